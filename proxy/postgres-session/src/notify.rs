//! LISTEN for all clients of a database through one connection: who wants which channel, and which statements the connection needs.
//!
//! A registry without I/O. Its shell owns one server connection per database and user, sends the statements of
//! [`Registry::statement`], and reports how they ended. A client listens from the moment the server has confirmed its channel.

use std::collections::{HashMap, HashSet};

/// Bytes of a channel name that PostgreSQL keeps.
pub const CHANNEL_BYTES_MAX: usize = 63;

/// A client, by a number of the shell's choice.
pub type Listener = u64;

/// The answer to [`Registry::listen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// The server has confirmed the channel: notifications come from now on.
    Already,
    /// The server has to confirm it first: [`Registry::on_done`] names the client.
    Later,
    /// There are as many channels as may be.
    TooMany,
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
    /// Clients that get notifications.
    listeners: HashSet<Listener>,
    /// Clients that wait for the server's confirmation.
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
    gaps: u64,
}

impl Registry {
    /// A registry without channels, for at most `channels_max` of them.
    pub fn new(channels_max: usize) -> Self {
        Self {
            channels: HashMap::new(),
            channels_max,
            changed: Vec::new(),
            current: None,
            is_connected: false,
            gaps: 0,
        }
    }

    /// A client wants a channel. A second time is no error, as at the server.
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

    /// A client wants a channel no longer.
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

    /// A client wants no channel any more, or is gone.
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

    /// The connection is lost: notifications of this time are lost too. The clients that may miss some.
    pub fn on_lost(&mut self) -> Vec<Listener> {
        self.is_connected = false;
        self.current = None;
        self.gaps += 1;
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

    /// The last statement has worked, or failed. Clients whose LISTEN ends with it.
    pub fn on_done(&mut self, has_worked: bool) -> Vec<Listener> {
        let Some(channel) = self.current.take() else { return Vec::new() };
        let Some(entry) = self.channels.get_mut(&channel) else { return Vec::new() };
        let has_it = (entry.at_server == AtServer::Begins) == has_worked;
        entry.at_server = if has_it { AtServer::Yes } else { AtServer::No };
        let mut answered = Vec::new();
        if has_it == has_worked {
            answered = std::mem::take(&mut entry.waiting);
            if has_it {
                entry.listeners.extend(answered.iter().copied());
            }
        }
        // Wishes may have changed meanwhile.
        self.changed.push(channel);
        answered
    }

    /// The clients that get a notification.
    pub fn listeners(&self, channel: &[u8]) -> impl Iterator<Item = Listener> {
        self.channels.get(channel).into_iter().flat_map(|entry| entry.listeners.iter().copied())
    }

    /// Channels that some client wants.
    pub fn channels(&self) -> usize {
        self.channels.values().filter(|entry| entry.is_wanted()).count()
    }

    /// How often the connection was lost: each time, notifications may have been.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }
}
