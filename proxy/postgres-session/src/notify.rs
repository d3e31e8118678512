//! LISTEN for all clients of a database through one connection: which listener wants which channel, and which statements the
//! connection needs.
//!
//! A registry without I/O. Its shell owns one server connection per database and user, sends the statements of
//! [`Registry::statement`], and reports how they ended. A listener gets notifications from the moment the server has confirmed its
//! channel. In the gateway a listener is a worker, which knows its clients.

use std::collections::{HashMap, HashSet};

/// Bytes of a channel name that PostgreSQL keeps.
pub const CHANNEL_BYTES_MAX: usize = 63;

/// A listener, by a number of the shell's choice.
pub type Listener = u64;

/// The reply to [`Registry::listen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// The server has confirmed the channel: notifications come from now on.
    Already,
    /// The server has to confirm it first: [`Registry::on_done`] names the listener.
    Later,
    /// There are as many channels as may be.
    TooMany,
}

/// A channel that the server has, or cannot get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The channel.
    pub channel: Box<[u8]>,
    /// The server has it. Otherwise those that waited for it wait no longer; those that had it before a loss still want it.
    pub has_it: bool,
    /// Everybody that wants it.
    pub listeners: Vec<Listener>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtServer {
    /// The server does not have it.
    No,
    /// LISTEN is under way.
    Begins,
    /// The server has it.
    Yes,
    /// UNLISTEN is under way.
    Ends,
}

#[derive(Debug)]
struct Channel {
    at_server: AtServer,
    /// Those that get notifications.
    listeners: HashSet<Listener>,
    /// Those that wait for the server's confirmation.
    waiting: Vec<Listener>,
}

impl Channel {
    fn is_wanted(&self) -> bool {
        !self.listeners.is_empty() || !self.waiting.is_empty()
    }
}

/// The channels of one database.
#[derive(Debug)]
pub struct Registry {
    channels: HashMap<Box<[u8]>, Channel>,
    channels_max: usize,
    /// Channels whose state at the server may have to change.
    changed: Vec<Box<[u8]>>,
    /// The statement under way.
    current: Option<Box<[u8]>>,
    is_connected: bool,
}

impl Registry {
    /// A registry without channels, for at most `channels_max` of them.
    pub fn new(channels_max: usize) -> Self {
        Self { channels: HashMap::new(), channels_max, changed: Vec::new(), current: None, is_connected: false }
    }

    /// A listener wants a channel. A second time is no error, as at the server.
    pub fn listen(&mut self, listener: Listener, channel: &[u8]) -> Listening {
        let channel = &channel[..channel.len().min(CHANNEL_BYTES_MAX)];
        if !self.channels.contains_key(channel) {
            if self.channels.len() >= self.channels_max {
                return Listening::TooMany;
            }
            let fresh = Channel { at_server: AtServer::No, listeners: HashSet::new(), waiting: Vec::new() };
            self.channels.insert(channel.into(), fresh);
        }
        let entry = self.channels.get_mut(channel).expect("it was just inserted");
        if entry.at_server == AtServer::Yes && self.is_connected {
            entry.listeners.insert(listener);
            return Listening::Already;
        }
        entry.waiting.push(listener);
        self.changed.push(channel.into());
        Listening::Later
    }

    /// A listener wants a channel no longer.
    pub fn unlisten(&mut self, listener: Listener, channel: &[u8]) {
        let channel = &channel[..channel.len().min(CHANNEL_BYTES_MAX)];
        if let Some(entry) = self.channels.get_mut(channel) {
            entry.listeners.remove(&listener);
            entry.waiting.retain(|waiting| *waiting != listener);
            if !entry.is_wanted() {
                self.changed.push(channel.into());
            }
        }
    }

    /// A listener wants no channel any more, or is gone.
    pub fn unlisten_all(&mut self, listener: Listener) {
        let all: Vec<_> = self
            .channels
            .iter()
            .filter(|(_, entry)| entry.listeners.contains(&listener) || entry.waiting.contains(&listener))
            .map(|(channel, _)| channel.clone())
            .collect();
        for channel in all {
            self.unlisten(listener, &channel);
        }
    }

    /// The connection is there, and listens to nothing yet.
    pub fn on_connected(&mut self) {
        self.is_connected = true;
        self.current = None;
        self.changed = self.channels.keys().cloned().collect();
    }

    /// The connection is lost: notifications of this time are lost too. The listeners that may miss some.
    pub fn on_lost(&mut self) -> Vec<Listener> {
        self.is_connected = false;
        self.current = None;
        let mut missing = HashSet::new();
        for entry in self.channels.values_mut() {
            entry.at_server = AtServer::No;
            missing.extend(entry.listeners.iter().copied());
        }
        self.channels.retain(|_, entry| entry.is_wanted());
        missing.into_iter().collect()
    }

    /// The next statement for the server, once the last one is done.
    pub fn statement(&mut self) -> Option<Vec<u8>> {
        if !self.is_connected || self.current.is_some() {
            return None;
        }
        while let Some(channel) = self.changed.pop() {
            let Some(entry) = self.channels.get_mut(&channel) else { continue };
            let word: &[u8] = match (entry.at_server, entry.is_wanted()) {
                (AtServer::No, true) => {
                    entry.at_server = AtServer::Begins;
                    b"LISTEN "
                }
                (AtServer::Yes, false) => {
                    entry.at_server = AtServer::Ends;
                    b"UNLISTEN "
                }
                (AtServer::No, false) => {
                    self.channels.remove(&channel);
                    continue;
                }
                _ => continue,
            };
            let mut text = word.to_vec();
            crate::variables::quote_name(&mut text, &channel);
            self.current = Some(channel);
            return Some(text);
        }
        None
    }

    /// The last statement has worked, or failed; the consequence for listeners.
    pub fn on_done(&mut self, has_worked: bool) -> Option<Done> {
        let channel = self.current.take()?;
        let entry = self.channels.get_mut(&channel)?;
        let has_it = (entry.at_server == AtServer::Begins) == has_worked;
        let has_begun = entry.at_server == AtServer::Begins;
        entry.at_server = if has_it { AtServer::Yes } else { AtServer::No };
        let mut listeners = Vec::new();
        if has_it {
            entry.listeners.extend(entry.waiting.drain(..));
            listeners.extend(entry.listeners.iter().copied());
        } else if has_begun {
            listeners = std::mem::take(&mut entry.waiting);
            listeners.extend(entry.listeners.iter().copied());
            listeners.sort_unstable();
            listeners.dedup();
        }
        // The wanted channels may have changed meanwhile.
        self.changed.push(channel.clone());
        (!listeners.is_empty()).then_some(Done { channel, has_it, listeners })
    }

    /// Everything that is wanted is at the server.
    pub fn is_complete(&self) -> bool {
        let is_settled = |entry: &Channel| !entry.is_wanted() || entry.at_server == AtServer::Yes;
        self.is_connected && self.channels.values().all(is_settled)
    }

    /// The listeners that get a notification.
    pub fn listeners(&self, channel: &[u8]) -> impl Iterator<Item = Listener> {
        self.channels.get(channel).into_iter().flat_map(|entry| entry.listeners.iter().copied())
    }

    /// Channels that somebody wants.
    pub fn channels(&self) -> usize {
        self.channels.values().filter(|entry| entry.is_wanted()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const A: &[u8] = b"a";

    fn connected() -> Registry {
        let mut registry = Registry::new(3);
        registry.on_connected();
        registry
    }

    /// The texts of all statements that are due, each of which works.
    fn settle(registry: &mut Registry) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(text) = registry.statement() {
            texts.push(String::from_utf8(text).expect("a text"));
            registry.on_done(true);
        }
        texts
    }

    fn heard(registry: &Registry, channel: &[u8]) -> Vec<Listener> {
        let mut listeners: Vec<_> = registry.listeners(channel).collect();
        listeners.sort_unstable();
        listeners
    }

    #[test]
    fn one_statement_serves_all_listeners_of_a_channel() {
        let mut registry = connected();
        assert_eq!(registry.listen(1, A), Listening::Later);
        assert_eq!(registry.listen(2, A), Listening::Later);
        assert_eq!(registry.statement().as_deref(), Some(&b"LISTEN \"a\""[..]));
        assert_eq!(registry.statement(), None, "one at a time");
        assert_eq!(heard(&registry, A), [], "the server has not confirmed it");
        let done = registry.on_done(true).expect("two wait");
        assert!(done.has_it && &*done.channel == A && done.listeners.len() == 2, "{done:?}");
        assert_eq!(registry.listen(3, A), Listening::Already);
        assert_eq!(heard(&registry, A), [1, 2, 3]);
        assert_eq!(settle(&mut registry), [""; 0]);
        for listener in [1, 2] {
            registry.unlisten(listener, A);
            assert_eq!(settle(&mut registry), [""; 0], "others still listen");
        }
        registry.unlisten_all(3);
        assert_eq!(settle(&mut registry), ["UNLISTEN \"a\""]);
        assert_eq!(registry.channels(), 0);
    }

    #[test]
    fn names_are_quoted_and_cut_as_the_server_cuts_them() {
        let mut registry = connected();
        registry.listen(1, b"A \"b");
        assert_eq!(settle(&mut registry), ["LISTEN \"A \"\"b\""]);
        let long = [b'x'; CHANNEL_BYTES_MAX + 9];
        registry.listen(1, &long);
        settle(&mut registry);
        assert_eq!(heard(&registry, &long[..CHANNEL_BYTES_MAX]), [1]);
        registry.unlisten(1, &long);
        assert_eq!(settle(&mut registry).len(), 1);
    }

    #[test]
    fn a_wish_that_changes_while_its_statement_is_under_way_is_met_afterwards() {
        let mut registry = connected();
        registry.listen(1, A);
        registry.statement().expect("LISTEN");
        registry.unlisten(1, A);
        registry.on_done(true);
        assert_eq!(registry.statement().as_deref(), Some(&b"UNLISTEN \"a\""[..]));
        assert_eq!(registry.listen(2, A), Listening::Later, "the server is about to drop it");
        assert_eq!(registry.on_done(true), None, "none has it yet");
        assert_eq!(registry.statement().as_deref(), Some(&b"LISTEN \"a\""[..]));
        assert_eq!(registry.on_done(true).expect("one waits").listeners, [2]);
        registry.unlisten(2, A);
        registry.statement().expect("UNLISTEN");
        registry.listen(3, A);
        assert_eq!(registry.on_done(false).expect("the server still has it").listeners, [3]);
    }

    #[test]
    fn a_lost_server_is_a_gap_and_every_channel_is_requested_again() {
        let mut registry = connected();
        for channel in [A, b"b", b"c"] {
            registry.listen(1, channel);
        }
        registry.listen(2, A);
        settle(&mut registry);
        assert!(registry.is_complete());
        registry.listen(7, b"c");
        registry.unlisten(1, b"b");
        registry.statement().expect("UNLISTEN is under way");
        let mut missing = registry.on_lost();
        missing.sort_unstable();
        assert_eq!(missing, [1, 2, 7]);
        assert_eq!(registry.on_done(true), None, "its reply never comes");
        assert_eq!((registry.statement(), registry.is_complete()), (None, false));
        assert_eq!(registry.listen(4, A), Listening::Later, "no server has it");
        registry.on_connected();
        let mut texts = settle(&mut registry);
        texts.sort_unstable();
        assert_eq!(texts, ["LISTEN \"a\"", "LISTEN \"c\""], "b is not wanted");
        assert_eq!(heard(&registry, A), [1, 2, 4]);
        assert!(registry.is_complete());
    }

    #[test]
    fn a_refused_listen_is_reported_and_requested_again_only_by_those_that_had_it() {
        let mut registry = connected();
        registry.listen(1, A);
        registry.statement().expect("LISTEN");
        let done = registry.on_done(false).expect("one waits");
        assert_eq!((done.has_it, done.listeners), (false, vec![1]));
        assert_eq!((registry.statement(), registry.channels()), (None, 0));
        registry.listen(1, A);
        settle(&mut registry);
        registry.on_lost();
        registry.on_connected();
        registry.statement().expect("LISTEN");
        assert!(!registry.on_done(false).expect("one had it").has_it);
        assert!(!registry.is_complete());
        registry.on_lost();
        registry.on_connected();
        assert_eq!(settle(&mut registry).len(), 1);
    }

    #[test]
    fn channels_are_bounded() {
        let mut registry = connected();
        for channel in [A, b"b", b"c"] {
            assert_eq!(registry.listen(1, channel), Listening::Later);
        }
        assert_eq!(registry.listen(1, b"d"), Listening::TooMany);
        assert_eq!(registry.listen(2, A), Listening::Later, "it is one of the three");
        registry.unlisten(1, b"b");
        settle(&mut registry);
        assert_eq!(registry.listen(1, b"d"), Listening::Later);
    }

    /// A server does what a statement about a channel of one letter says.
    fn execute(server: &mut BTreeSet<Vec<u8>>, text: &[u8]) {
        let name = text[text.len() - 2..text.len() - 1].to_vec();
        if text.starts_with(b"LISTEN") {
            server.insert(name);
        } else {
            server.remove(&name);
        }
    }

    /// Random requests, failures and losses: in the end the server has what is wanted, and nothing else.
    #[test]
    fn whatever_happens_the_server_ends_with_the_channels_that_are_wanted() {
        for seed in 0..200 {
            let mut rng = weir_base::Rng::new(seed);
            let mut registry = Registry::new(100);
            let (mut server, mut wanted) = (BTreeSet::new(), BTreeSet::new());
            let mut under_way: Option<Vec<u8>> = None;
            let mut is_up = false;
            for step in 0..400 {
                let (listener, channel) = (rng.below(4), vec![b'a' + rng.below(6) as u8]);
                match rng.below(9) {
                    _ if step > 350 && !is_up => {
                        registry.on_connected();
                        is_up = true;
                    }
                    0..=1 if step < 350 => {
                        wanted.insert((listener, channel.clone()));
                        registry.listen(listener, &channel);
                    }
                    2..=3 if step < 350 => {
                        wanted.remove(&(listener, channel.clone()));
                        registry.unlisten(listener, &channel);
                    }
                    4 if is_up && step < 350 && rng.below(4) == 0 => {
                        registry.on_lost();
                        server.clear();
                        (under_way, is_up) = (None, false);
                    }
                    5 if !is_up => {
                        registry.on_connected();
                        is_up = true;
                    }
                    6 => under_way = under_way.take().or_else(|| registry.statement()),
                    _ => {
                        if let Some(text) = under_way.take() {
                            execute(&mut server, &text);
                            registry.on_done(true);
                        }
                    }
                }
            }
            let mut next = under_way.take().or_else(|| registry.statement());
            while let Some(text) = next {
                execute(&mut server, &text);
                registry.on_done(true);
                next = registry.statement();
            }
            let expected: BTreeSet<Vec<u8>> = wanted.iter().map(|(_, channel)| channel.clone()).collect();
            assert_eq!(server, expected, "seed {seed}");
            for channel in &expected {
                let of: Vec<_> =
                    wanted.iter().filter(|(_, name)| name == channel).map(|(listener, _)| *listener).collect();
                assert_eq!(heard(&registry, channel), of, "seed {seed}");
            }
        }
    }
}
