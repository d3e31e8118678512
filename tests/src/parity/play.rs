//! Plays a script on two sides and reports where they differ.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::client::{Client, End};
use crate::parity::script::{Case, Line, Script, Tolerance};
use crate::server::Server;
use crate::stream::Address;
use crate::wire::shown;

/// A reply or a close that takes longer is missing.
const REPLY_WAIT: Duration = Duration::from_secs(10);
/// Differences shown in one failure.
const SHOWN_MAX: usize = 40;

/// Two servers that get the same requests.
pub struct Pair<'a> {
    /// Queried directly at its own address.
    pub control: &'a Server,
    /// Stands behind the address below.
    pub tested: &'a Server,
    /// Where the tested side is reached: the gateway, or the server itself for the control run.
    pub address: Address,
}

/// How a script is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    /// Command, reply, command, reply.
    Stepwise,
    /// Everything in one write; cases with several connections are left to [`Play::Stepwise`].
    Pipelined,
}

impl Pair<'_> {
    /// Plays every case that applies.
    ///
    /// # Panics
    /// If a reply differs, or if no case applied.
    pub fn play(&self, script: &Script, play: Play) {
        let mut differences = Vec::new();
        let mut played = 0;
        for protocol in [2, 3] {
            for case in &script.cases {
                let skipped = play == Play::Pipelined && !case.can_be_pipelined();
                if skipped || !case.applies(self.control.kind.name(), protocol) {
                    continue;
                }
                played += 1;
                for difference in self.case(case, protocol, play) {
                    differences.push(format!(
                        "{}.txt:{} ({}), RESP{protocol}, {play:?}: {difference}",
                        script.name, case.at, case.name
                    ));
                }
            }
        }
        assert!(played > 0, "{}.txt: no case applied", script.name);
        let more = differences.len().saturating_sub(SHOWN_MAX);
        let count = differences.len();
        differences.truncate(SHOWN_MAX);
        assert!(
            differences.is_empty(),
            "{count} differences in {played} cases ({more} not shown):\n{}",
            differences.join("\n")
        );
    }

    fn case(&self, case: &Case, protocol: u8, play: Play) -> Vec<String> {
        for server in [self.control, self.tested] {
            let mut direct = server.connect();
            for words in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"], &["FUNCTION", "FLUSH"]] {
                direct.expect(words, b"+OK\r\n");
            }
        }
        let mut control = Side::new(&self.control.address, protocol);
        let mut tested = Side::new(&self.address, protocol);
        match play {
            Play::Stepwise => stepwise(case, &mut control, &mut tested),
            Play::Pipelined => pipelined(case, &mut control, &mut tested),
        }
    }
}

/// The connections to one side.
struct Side {
    address: Address,
    protocol: u8,
    open: BTreeMap<char, Client>,
}

impl Side {
    fn new(address: &Address, protocol: u8) -> Self {
        Self { address: address.clone(), protocol, open: BTreeMap::new() }
    }

    fn client(&mut self, name: char) -> &mut Client {
        let (address, protocol) = (&self.address, self.protocol);
        self.open.entry(name).or_insert_with(|| {
            let mut client = Client::connect(address);
            if protocol == 3 {
                // A server that asks for a password refuses this; the case then stays on RESP2.
                client.command(&["HELLO", "3"]);
                client.reply();
            }
            client
        })
    }

    fn reply(&mut self, name: char) -> Result<Vec<u8>, End> {
        self.client(name).try_reply(REPLY_WAIT)
    }
}

fn stepwise(case: &Case, control: &mut Side, tested: &mut Side) -> Vec<String> {
    let mut differences = Vec::new();
    for line in &case.lines {
        match line {
            Line::Send { connection, bytes, replies, tolerance } => {
                let sent = [&mut *control, &mut *tested].map(|side| side.client(*connection).try_send(bytes).is_ok());
                if sent[0] != sent[1] {
                    differences.push(format!("{}: sent: {sent:?}", shown(bytes)));
                    return differences;
                }
                for _ in 0..*replies {
                    let pair = (control.reply(*connection), tested.reply(*connection));
                    let broken = pair.0.is_err() || pair.1.is_err();
                    differences.extend(difference(bytes, pair, tolerance));
                    if broken {
                        return differences;
                    }
                }
            }
            Line::End(connection) => {
                let ends = [&mut *control, &mut *tested].map(|side| side.client(*connection).read_to_end(REPLY_WAIT));
                if ends[0] != ends[1] || ends[0].1 == End::Silent {
                    differences.push(format!(
                        "end: control {} {:?}, tested {} {:?}",
                        shown(&ends[0].0),
                        ends[0].1,
                        shown(&ends[1].0),
                        ends[1].1
                    ));
                }
                control.open.remove(connection);
                tested.open.remove(connection);
            }
            Line::Close(connection) => {
                control.open.remove(connection);
                tested.open.remove(connection);
            }
        }
    }
    differences
}

fn pipelined(case: &Case, control: &mut Side, tested: &mut Side) -> Vec<String> {
    let mut all = Vec::new();
    let mut expected = Vec::new();
    for line in &case.lines {
        if let Line::Send { bytes, replies, tolerance, .. } = line {
            all.extend_from_slice(bytes);
            expected.extend((0..*replies).map(|_| (bytes.clone(), tolerance)));
        }
    }
    control.client('a').send(&all);
    tested.client('a').send(&all);
    let mut differences = Vec::new();
    for (bytes, tolerance) in expected {
        let pair = (control.reply('a'), tested.reply('a'));
        let broken = pair.0.is_err() || pair.1.is_err();
        differences.extend(difference(&bytes, pair, tolerance));
        if broken {
            break;
        }
    }
    differences
}

fn difference(
    sent: &[u8],
    (control, tested): (Result<Vec<u8>, End>, Result<Vec<u8>, End>),
    tolerance: &Tolerance,
) -> Option<String> {
    let (control, tested) = match (control, tested) {
        (Ok(control), Ok(tested)) => (control, tested),
        (control, tested) => {
            let word = |side: &Result<Vec<u8>, End>| match side {
                Ok(reply) => shown(reply),
                Err(end) => format!("no reply ({end:?})"),
            };
            // Both sides silent is a mistake of the script, not of the gateway.
            return Some(format!("{}\n    control: {}\n    tested:  {}", shown(sent), word(&control), word(&tested)));
        }
    };
    let same = match tolerance {
        Tolerance::None => control == tested,
        Tolerance::Contents => control.first() == tested.first(),
        Tolerance::All => true,
    };
    (!same).then(|| format!("{}\n    control: {}\n    tested:  {}", shown(sent), shown(&control), shown(&tested)))
}
