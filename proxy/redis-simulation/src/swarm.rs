//! Sequences of commands and events, drawn from a seed or from a fuzzer's bytes, run against all invariants.
//!
//! Each run switches on a subset of the features and of the faults: a bug that needs two of them to meet is found sooner
//! when the others keep quiet (Groce et al., "Swarm Testing", 2012).

use weir_base::{
    exchange::{LossCause, Refusal},
    rng::Rng,
};
use weir_redis_session::{
    io::{Full, Pinning},
    session::Next,
    settings::{RedisListenerSettings, UnknownCommands},
};

use crate::{Client, End, Simulation};

/// Bytes in front of what a raw client sends: they choose settings and the size of its pieces.
const RAW_HEADER_BYTES: usize = 11;

/// Steps of a run, at most.
const STEPS_MAX: u32 = 400;

/// Where decisions come from.
pub trait Choice {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64;
    /// No more decisions: the run comes to its end.
    fn is_spent(&self) -> bool;
}

/// Decisions of a seed.
pub struct Seeded {
    rng: Rng,
}

impl Seeded {
    /// The same seed, the same run.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed) }
    }
}

impl Choice for Seeded {
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn is_spent(&self) -> bool {
        false
    }
}

/// Decisions of a fuzzer: one byte each.
pub struct Bytes<'a>(pub &'a [u8]);

impl Choice for Bytes<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        u64::from(byte) % bound.max(1)
    }

    fn is_spent(&self) -> bool {
        self.0.is_empty()
    }
}

/// Groups of commands; a run has some of them.
const FEATURES: [&[&str]; 13] = [
    &["GET", "SET", "STRLEN", "LRANGE", "PING", "ECHO", "ID", "ARITY"],
    &["MULTI", "MULTI", "EXEC", "EXEC", "EXEC", "DISCARD", "OOM", "EXEC x", "READONLY", "ARITY"],
    &["WATCH", "WATCH", "UNWATCH", "MULTI", "EXEC"],
    &["SELECT", "SELECT", "SELECT 40", "SELECT x"],
    &["SUBSCRIBE", "SUBSCRIBE", "UNSUBSCRIBE", "UNSUBSCRIBE", "UNSUBSCRIBE ALL", "DENIED", "PSUBSCRIBE", "SSUBSCRIBE"],
    &["BLPOP"],
    &["LARGE", "LARGE", "LARGE MOD", "LARGE LRANGE"],
    &["MOD.X", "MOD.STATE", "OBJECT"],
    &["HELLO 3", "HELLO 3", "HELLO 2", "HELLO", "RESET"],
    &["WAIT", "MONITOR", "CONFIG"],
    &["AUTH", "AUTH", "AUTH", "AUTH WRONG", "HELLO AUTH", "RESET", "NOPE"],
    &["REPLY OFF", "REPLY ON", "REPLY SKIP", "REPLY SKIP", "RESET"],
    &["SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH", "PUBLISH", "HELLO 3", "LRANGE", "MULTI", "EXEC"],
];
const REPLY: usize = 11;
const AUTH: usize = 10;
/// Features that the emulation of CLIENT REPLY is run with: those whose outcome the client knows without a reply.
const WITH_REPLY: [usize; 3] = [0, 6, 7];

/// Other events in a run.
#[derive(Clone, Copy, Debug)]
struct Faults {
    losses: bool,
    refusals: bool,
    shortage: bool,
}

struct Run<'a, C: Choice> {
    choice: &'a mut C,
    simulation: Simulation,
    client: Client,
    features: Vec<usize>,
    faults: Faults,
    tag: u64,
    /// Messages published.
    messages: u64,
    in_multi: bool,
    is_muted: bool,
    skips_next: bool,
}

/// One session from its beginning to its end. Panics if an invariant does not hold.
pub fn run(choice: &mut impl Choice) {
    run_moving(choice, 0);
}

/// As [`run`], with a session that moves to another process in one of `every` moments in which it can. How many there were.
pub fn run_moving(choice: &mut impl Choice, every: u32) -> u32 {
    let mut run = Run::new(choice);
    run.simulation.moves_every(every);
    for _ in 0..STEPS_MAX {
        if run.choice.is_spent() || run.simulation.end().is_some() {
            break;
        }
        run.step();
    }
    run.calm_down();
    run.say_goodbye();
    run.simulation.movable_moments()
}

/// A client that sends any bytes, in pieces: the gateway's replies are well formed, and no rule of its surroundings breaks.
pub fn run_raw(input: &[u8]) {
    let (header, bytes) = input.split_at(input.len().min(RAW_HEADER_BYTES));
    let mut choice = Bytes(header);
    // The client cannot guess the password, so the session must not forward anything.
    let password = (choice.below(4) == 1).then_some("k9-Vt2!qLw");
    let settings = RedisListenerSettings { admin_commands: choice.below(2) == 1, ..settings(&mut choice, password) };
    let piece = 1 + choice.below(64) as usize;
    let mut simulation = Simulation::new(settings);
    let mut output = Vec::new();
    for chunk in bytes.chunks(piece) {
        simulation.send(chunk);
        output.extend(simulation.settle());
    }
    let is_over = simulation.end().is_some() || simulation.client_ends();
    output.extend(simulation.settle());
    assert!(is_over || simulation.next() == Next::Wait);
    let mut framer = weir_resp::ReplyFramer::default();
    let mut at = 0;
    while at < output.len() {
        at += framer.advance(&output[at..]).expect("well-formed replies").taken;
    }
    assert!(framer.is_idle(), "whole replies");
}

fn settings(choice: &mut impl Choice, password: Option<&str>) -> RedisListenerSettings {
    let small = |choice: &mut dyn FnMut() -> u64, some: [u64; 4]| some[choice() as usize];
    let mut four = || choice.below(4);
    RedisListenerSettings {
        password: password.map(|password| password.to_owned().into()),
        pipeline_max: small(&mut four, [1024, 1, 2, 5]) as u32,
        pipeline_bytes: small(&mut four, [1 << 20, 64, 200, 1000]),
        stream_bytes: small(&mut four, [1 << 16, 64, 100, 300]),
        transaction_bytes_max: small(&mut four, [1 << 20, 300, 1000, 4000]),
        transaction_commands_max: small(&mut four, [1000, 1000, 3, 5]) as u32,
        subscriptions_max: small(&mut four, [1000, 1000, 2, 1]) as u32,
        unknown_commands: match four() {
            3 => UnknownCommands::Refuse,
            _ => UnknownCommands::Forward,
        },
        auth_failures_max: 3,
        ..RedisListenerSettings::default()
    }
}

impl<'a, C: Choice> Run<'a, C> {
    fn new(choice: &'a mut C) -> Self {
        let mut features: Vec<usize> = (1..FEATURES.len()).filter(|_| choice.below(3) == 0).collect();
        if features.contains(&REPLY) {
            features.retain(|feature| *feature == REPLY || WITH_REPLY.contains(feature));
        }
        features.push(0);
        let has_password = features.contains(&AUTH);
        let mut one_of = |bound| choice.below(bound) == 1;
        let faults = Faults { losses: one_of(3), refusals: one_of(3), shortage: one_of(3) };
        let settings = settings(choice, has_password.then_some("secret"));
        let mut client = Client::new(settings.clone());
        client.is_lenient = faults.losses || faults.refusals || faults.shortage;
        Self {
            simulation: Simulation::new(settings),
            choice,
            client,
            features,
            faults,
            tag: 0,
            messages: 0,
            in_multi: false,
            is_muted: false,
            skips_next: false,
        }
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.choice.below(bound) == 0
    }

    fn size(&mut self) -> usize {
        [usize::MAX, 1, 2, 7, 30, 200][self.choice.below(6) as usize]
    }

    fn lane(&mut self) -> Option<usize> {
        let count = self.simulation.world.lane_count() as u64;
        (count > 0).then(|| self.choice.below(count) as usize)
    }

    fn step(&mut self) {
        match self.choice.below(25) {
            20 | 21 => {
                let size = self.size();
                let shards = self.simulation.world.feeds().shards();
                for shard in shards {
                    self.simulation.deliver_feed(shard, size);
                }
            }
            22 | 23 => {
                let shards = self.simulation.world.feeds().shards();
                for shard in shards {
                    self.simulation.execute_feed(shard);
                }
            }
            24 => drop(self.simulation.connect_feed()),
            0..=4 => self.speak(),
            5 | 6 => {
                let size = self.size();
                self.simulation.arrive(size);
            }
            7 | 8 => {
                if let Some(lane) = self.lane() {
                    self.simulation.flush(lane);
                    self.simulation.execute(lane);
                }
            }
            9 | 10 => {
                if let Some(lane) = self.lane() {
                    self.simulation.execute(lane);
                }
            }
            11..=13 => {
                let size = self.size();
                if let Some(lane) = self.lane() {
                    self.simulation.deliver(lane, size);
                }
            }
            14 => drop(self.simulation.wake()),
            15 => {
                let size = self.size();
                self.listen(size);
            }
            16 => self.resolve_pin(),
            17 | 18 => self.happen(),
            _ => self.fail(),
        }
    }

    fn listen(&mut self, bytes: usize) {
        let read = self.simulation.world.read_output(bytes);
        if !read.is_empty() {
            self.simulation.poke();
        }
        self.client.read(&read, &self.simulation.world.server().touched.clone());
    }

    fn resolve_pin(&mut self) {
        let is_refused = self.faults.refusals && self.one_in(3);
        let refusal = [Refusal::Unreachable, Refusal::QueueTimeout, Refusal::Greeting][self.choice.below(3) as usize];
        self.simulation.resolve_pin(if is_refused { Err(refusal) } else { Ok(()) });
    }

    /// Something that others do.
    fn happen(&mut self) {
        match self.choice.below(6) {
            5 => {
                if let Some(lane) = self.lane() {
                    self.simulation.world.retire_lane(lane);
                }
            }
            0 => {
                let key = self.key();
                self.simulation.world.server().touch(&key);
            }
            1 | 2 => {
                let channel = self.channel();
                self.messages += 1;
                let padding = "m".repeat([3, 40, 3000][self.choice.below(3) as usize]);
                let payload = format!("{} {padding}", self.messages);
                // The client's view of its subscriptions depends on the replies that it has read.
                self.listen(usize::MAX);
                self.client.published(&channel, self.messages);
                self.simulation.world.feeds().publish_from_outside(&channel, payload.as_bytes());
            }
            3 => {
                let has_data = self.one_in(2);
                self.on_each_lane(|lane, server| {
                    lane.speak(|connection, out| connection.release(server, has_data, out));
                });
            }
            _ => drop(self.simulation.pass_delay()),
        }
    }

    fn on_each_lane(&mut self, mut each: impl FnMut(&mut super::lane::Lane, &mut super::server::Shared)) {
        for index in 0..self.simulation.world.lane_count() {
            self.simulation.world.with_lane(index, &mut each);
        }
    }

    fn fail(&mut self) {
        let what = self.choice.below(8);
        match what {
            6 if self.faults.losses => {
                let shards = self.simulation.world.feeds().shards();
                shards.into_iter().for_each(|shard| self.simulation.lose_feed(shard));
            }
            7 if self.faults.refusals => self.simulation.refuse_feeds(Refusal::Unreachable),
            0 | 1 if self.faults.losses => {
                let cause = if self.one_in(2) { LossCause::Closed } else { LossCause::Timeout };
                if let Some(lane) = self.lane() {
                    self.simulation.lose(lane, cause);
                }
            }
            2 if self.faults.refusals => {
                let refuses = self.one_in(2);
                let ready = [Pinning::Later, Pinning::Ready][self.choice.below(2) as usize];
                self.simulation.world.set(|policy| {
                    policy.refusal = refuses.then_some(Refusal::BreakerOpen);
                    policy.pinning = ready;
                });
            }
            3 if self.faults.refusals => {
                if let Some(lane) = self.lane() {
                    self.simulation.refuse_oldest(lane, Refusal::Unreachable);
                }
            }
            4 if self.faults.shortage => {
                let full = [None, Some(Full::InFlight), Some(Full::Buffered)][self.choice.below(3) as usize];
                let admits = [u64::MAX, 0, 2][self.choice.below(3) as usize];
                self.simulation.world.set(|policy| (policy.full, policy.admits) = (full, admits));
                self.simulation.poke();
            }
            5 if self.faults.shortage => self.simulation.refuse_held(),
            _ => {}
        }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key{}", self.choice.below(3)).into_bytes()
    }

    fn channel(&mut self) -> Vec<u8> {
        [&b"a"[..], b"b", b"message"][self.choice.below(3) as usize].to_vec()
    }

    /// The client sends a command.
    fn speak(&mut self) {
        let feature = self.features[self.choice.below(self.features.len() as u64) as usize];
        let group = FEATURES[feature];
        let what = group[self.choice.below(group.len() as u64) as usize];
        self.tag += 1;
        let args = self.words(what);
        let is_quiet = self.note(what);
        let is_inline = self.one_in(8) && args.iter().all(|arg| !arg.is_empty() && arg.len() < 200);
        let mut wire = Vec::new();
        if is_inline {
            wire = [&args.join(&b' ')[..], b"\r\n"].concat();
        } else {
            weir_resp::encode::command(&mut wire, &args);
        }
        if !is_quiet {
            self.client.sent(&args);
        }
        self.simulation.send(&wire);
    }

    /// Keeps account of what the client itself knows; true if no reply is due.
    fn note(&mut self, what: &str) -> bool {
        match what {
            "AUTH" | "HELLO AUTH" => self.simulation.world.set(|policy| policy.is_trusted = true),
            "MULTI" => self.in_multi = true,
            "EXEC" | "EXEC x" | "DISCARD" => self.in_multi = false,
            // It ends OFF and is answered; SKIP covers it.
            "RESET" => (self.in_multi, self.is_muted) = (false, false),
            "REPLY ON" => {
                (self.is_muted, self.skips_next) = (false, false);
                return false;
            }
            "REPLY OFF" => {
                (self.is_muted, self.skips_next) = (true, false);
                return true;
            }
            "REPLY SKIP" => {
                self.skips_next = !self.is_muted;
                return true;
            }
            _ => {}
        }
        self.is_muted | std::mem::take(&mut self.skips_next)
    }

    fn words(&mut self, what: &str) -> Vec<Vec<u8>> {
        let tag = format!("t{}", self.tag);
        let large = "x".repeat([70, 150, 400, 2000][self.choice.below(4) as usize]);
        let channel = String::from_utf8_lossy(&self.channel()).into_owned();
        let key = String::from_utf8_lossy(&self.key()).into_owned();
        let text = match what {
            "ID" => "CLIENT ID".to_owned(),
            "ARITY" => "GET".to_owned(),
            "OOM" => format!("GET oom-{tag}"),
            "READONLY" => "READONLY".to_owned(),
            "WATCH" => format!("WATCH {key}"),
            "SELECT" => format!("SELECT {}", self.choice.below(3)),
            "SUBSCRIBE" if self.one_in(2) => "SUBSCRIBE a b".to_owned(),
            "DENIED" => "SUBSCRIBE denied".to_owned(),
            "SUBSCRIBE" | "UNSUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE" => format!("{what} {channel}"),
            "PUBLISH" => {
                self.messages += 1;
                format!("PUBLISH {channel} o{}", self.messages)
            }
            "UNSUBSCRIBE ALL" => ["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"][self.choice.below(3) as usize].into(),
            "BLPOP" => format!("BLPOP {tag} 0"),
            "LARGE" => format!("SET {tag} {large}"),
            "LARGE MOD" => format!("MOD.X {tag} {large}"),
            "LARGE LRANGE" => format!("LRANGE message {tag} {large}"),
            "MOD.X" | "MOD.STATE" => format!("{what} {tag}"),
            "OBJECT" => format!("OBJECT NOPE {tag}"),
            "WAIT" => "WAIT 0 0".to_owned(),
            "CONFIG" => "CONFIG GET requirepass".to_owned(),
            "AUTH" => "AUTH secret".to_owned(),
            "AUTH WRONG" => "AUTH guess".to_owned(),
            "HELLO AUTH" => "HELLO 3 AUTH default secret".to_owned(),
            "NOPE" => "MOD.NOPE x".to_owned(),
            "REPLY ON" => "CLIENT REPLY ON".to_owned(),
            "REPLY OFF" => "CLIENT REPLY OFF".to_owned(),
            "REPLY SKIP" => "CLIENT REPLY SKIP".to_owned(),
            "LRANGE" => format!("LRANGE subscribe {tag} 9"),
            "SET" => format!("SET {tag} value"),
            "GET" | "STRLEN" | "ECHO" => format!("{what} {tag}"),
            "PING" if self.one_in(2) => format!("PING {tag}"),
            other => other.to_owned(),
        };
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    /// The faults end, and everything under way comes to its end.
    fn calm_down(&mut self) {
        self.simulation.world.set(|policy| {
            (policy.full, policy.refusal, policy.is_stalled) = (None, None, false);
            policy.admits = u64::MAX;
            policy.pinning = Pinning::Later;
        });
        for _ in 0..1000 {
            self.simulation.poke();
            let read = self.simulation.settle();
            self.client.read(&read, &self.simulation.world.server().touched.clone());
            let mut was_blocked = false;
            self.on_each_lane(|lane, server| {
                was_blocked |= lane.server.is_blocked();
                lane.speak(|connection, out| connection.release(server, true, out));
            });
            if !was_blocked {
                break;
            }
        }
        if self.simulation.end().is_none() {
            let oldest = self.client.oldest().map(|args| args.join(&b' ').escape_ascii().to_string());
            assert_eq!(oldest, None, "a command without its reply");
            assert!(!self.client.is_mid_frame(), "half a reply");
            assert!(self.simulation.is_at_rest(), "a session that waits for nothing");
            let missing = self.client.missing().filter(|_| !self.faults.losses);
            assert_eq!(missing, None, "a message that was published to a subscriber");
        }
    }

    /// The client sends a last batch and goes.
    fn say_goodbye(&mut self) {
        if self.simulation.end().is_none() {
            let commands: &[&str] = match self.choice.below(3) {
                0 => &["GET", "SELECT", "GET"],
                1 => &["GARBAGE"],
                _ => &["GET", "PING", "QUIT"],
            };
            for what in commands {
                self.tag += 1;
                let args = self.words(what);
                if !self.note(what) {
                    self.client.sent(&args);
                }
                let mut wire = Vec::new();
                weir_resp::encode::command(&mut wire, &args);
                self.simulation.send(if *what == "GARBAGE" { b"*1\r\n$4\r\nECHOx" } else { &wire });
            }
            // A subscriber's commands may still be refused or on their way when it goes: that one just leaves.
            let is_plain = !self.simulation.is_waiting_for_data();
            if !is_plain {
                let read = self.simulation.settle();
                self.client.read(&read, &self.simulation.world.server().touched.clone());
            }
            while self.simulation.arrive(usize::MAX) {}
            let ends = self.simulation.client_ends();
            let read = self.simulation.settle();
            self.client.read(&read, &self.simulation.world.server().touched.clone());
            let read = if ends { Vec::new() } else { self.end_now() };
            self.client.read(&read, &self.simulation.world.server().touched.clone());
        }
        let read = self.simulation.settle();
        self.client.read(&read, &self.simulation.world.server().touched.clone());
        self.judge_end();
    }

    /// The client could not be read to its end at once: now it can.
    fn end_now(&mut self) -> Vec<u8> {
        self.simulation.client_ends();
        self.simulation.settle()
    }

    fn judge_end(&mut self) {
        let end = self.simulation.end().expect("a session whose client has gone ends");
        let is_owed = self.client.waiting() > 0;
        match end {
            _ if self.simulation.is_cut() => assert!(self.client.is_lenient, "cut without a fault"),
            End::Closed | End::Violation(_) => {
                assert!(!self.client.is_mid_frame(), "half a reply");
                // The error that ends it may be one that the client did not want to hear.
                let is_deaf = self.features.contains(&REPLY) && self.faults.losses;
                assert!(
                    !is_owed || self.client.is_dismissed || is_deaf,
                    "closed without a word: {end:?} {:?}",
                    self.client.oldest()
                );
            }
            End::ClientEnd => assert!(!self.client.is_mid_frame(), "half a reply"),
        }
        let [made, clean, closed, lost] = self.simulation.world.pins();
        assert_eq!(made, clean + closed + lost, "each lane is given back once");
        for shard in self.simulation.world.feeds().shards() {
            while self.simulation.execute_feed(shard) {}
        }
        assert_eq!(self.simulation.world.feeds().dirt(), None, "nothing is subscribed for nobody");
    }
}
