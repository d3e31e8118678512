//! Connections come and go, slots move: what is subscribed where is made true again.

use std::{collections::BTreeMap, time::Duration};

use slab::Slab;
use weir_base::time::Time;

use super::{
    feed::{Expect, Feed, Name},
    frame::Kind,
    registry::{Entry, Member, PING, PendingNames, Registry, RegistryIo},
};

/// Names in one command that subscribes again; a command of this many is about 10 KiB.
const CHUNK_NAMES_MAX: usize = 256;
/// Bytes of names in one such command.
const CHUNK_BYTES_MAX: usize = 64 << 10;
/// Such commands under way at a time: a server that comes back has more to do.
const CHUNKS_UNDER_WAY_MAX: usize = 4;

/// The server will answer otherwise in a while.
pub(super) fn is_passing(line: &[u8]) -> bool {
    let words: [&[u8]; 5] = [b"-LOADING", b"-CLUSTERDOWN", b"-TRYAGAIN", b"-MASTERDOWN", b"-BUSY"];
    words.iter().any(|word| line.starts_with(word))
}

/// The deadlines of a registry.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// A SUBSCRIBE, for a connection.
    pub connection: Duration,
    /// A reply of the server.
    pub reply: Duration,
    /// Silence after which the server gets a PING.
    pub silence: Duration,
    /// Time for which an unused connection is kept for the next client that needs one.
    pub unused: Duration,
}

impl Registry {
    /// The connection to `shard` is there: what was subscribed is subscribed again, and what waits is sent.
    pub fn opened(&mut self, shard: u16, io: &impl RegistryIo) {
        self.feeds.entry(shard).or_default().open(io.now());
        // A name without listeners is sent with the command that asks for it.
        let mut here: Vec<(Kind, Name)> = self
            .entries()
            .filter(|(_, _, entry)| !entry.listeners.is_empty() && entry.at.shards().contains(&shard))
            .map(|(kind, name, _)| (kind, name.clone()))
            .collect();
        // The table has no order, and the same events are to have the same bytes.
        here.sort_unstable();
        self.queue_again(shard, here, io);
        self.start_waiting(io);
    }

    /// The commands that wait for a connection are sent, if they can be.
    fn start_waiting(&mut self, io: &impl RegistryIo) {
        for client in self.waiting(|_| true) {
            self.start(client, io);
        }
    }

    fn waiting(&self, is_meant: impl Fn(Time) -> bool) -> Vec<usize> {
        let waits = |what: &PendingNames| matches!(what, PendingNames::Subscribe { is_waiting: true, .. });
        let each = self.members.iter();
        each.filter(|(_, member)| member.op.as_ref().is_some_and(|op| waits(&op.what) && is_meant(op.since)))
            .map(|(client, _)| client)
            .collect()
    }

    /// Queues names to be subscribed again on an open feed.
    pub(super) fn queue_again(&mut self, shard: u16, names: Vec<(Kind, Name)>, io: &impl RegistryIo) {
        let Some(feed) = self.feeds.get_mut(&shard) else { return };
        let mut bytes = 0;
        for (kind, name) in names {
            // In a cluster the names of one SSUBSCRIBE must be of one slot.
            let joins = |last: &&mut (Kind, Vec<Name>)| {
                let is_alike = last.0 == kind && kind != Kind::Shard;
                is_alike && last.1.len() < CHUNK_NAMES_MAX && bytes + name.len() <= CHUNK_BYTES_MAX
            };
            match feed.again.back_mut().filter(joins) {
                Some((_, chunk)) => {
                    bytes += name.len();
                    chunk.push(name);
                }
                None => {
                    bytes = name.len();
                    feed.again.push_back((kind, vec![name]));
                }
            }
        }
        self.resubscribe_more(shard, io);
    }

    /// Sends the next commands that subscribe again, as many as may be under way.
    pub(super) fn resubscribe_more(&mut self, shard: u16, io: &impl RegistryIo) {
        loop {
            let Some(feed) = self.feeds.get_mut(&shard) else { return };
            let is_again = |(expect, _): &&(Expect, Time)| matches!(expect, Expect::Resubscribe { .. });
            if feed.expected.iter().filter(is_again).count() >= CHUNKS_UNDER_WAY_MAX {
                return;
            }
            let Some((kind, mut names)) = feed.again.pop_front() else { return };
            // Some may have been given up, or have gone elsewhere, while they waited.
            let all = &self.names[kind as usize];
            let is_here =
                |name: &Name| all.get(name).is_some_and(|entry| entry.wanted > 0 && entry.at.shards().contains(&shard));
            names.retain(is_here);
            if !names.is_empty() {
                let expect = Expect::Resubscribe { kind, left: names.len(), names: names.clone() };
                self.send_command(shard, kind.subscribe(), &names, expect, io);
            }
        }
    }

    /// The connection to `shard` is gone. Its subscribers stay: it is made again, and what they had subscribed with it.
    pub fn closed(&mut self, shard: u16, io: &impl RegistryIo) {
        let Some(feed) = self.feeds.get_mut(&shard) else { return };
        for (expect, _) in feed.close() {
            match expect {
                Expect::Unsubscribe { who, .. } | Expect::Fence { who } => self.note_left(who, io),
                Expect::Publish { who } => self.published(who, None, io),
                Expect::Subscribe { .. } | Expect::Resubscribe { .. } => {}
            }
        }
        // To subscribe twice does no harm, so what is under way waits for the next connection; what this server had confirmed
        // while others had not, too.
        let names = &self.names;
        let is_here = |kind: Kind, name: &Name| {
            names[kind as usize].get(name).is_some_and(|entry| entry.at.shards().contains(&shard))
        };
        restart(&mut self.members, is_here);
        let lost = self.names_subscribed_at(shard);
        if lost > 0 {
            io.count_gap(shard, lost);
        }
        if self.names_at(shard) > 0 {
            io.connect(shard);
        } else {
            self.feeds.remove(&shard);
        }
    }

    /// Names of which messages come from `shard`.
    fn names_subscribed_at(&self, shard: u16) -> usize {
        let is_heard =
            |entry: &Entry| entry.wanted > 0 && !entry.listeners.is_empty() && entry.at.shards().contains(&shard);
        self.entries().filter(|(_, _, entry)| is_heard(entry)).count()
    }

    /// Refuses the commands that wait for a connection to `shard`, those that have waited `for_least` or longer.
    pub fn refuse_waiting(&mut self, shard: u16, for_least: Duration, line: &[u8], io: &impl RegistryIo) {
        let now = io.now();
        for client in self.waiting(|since| now.since(since) >= for_least) {
            let is_there = self.members[client].op.as_ref().is_some_and(|op| match &op.what {
                PendingNames::Subscribe { names, .. } => names.iter().any(|(name, _)| {
                    self.names[op.kind as usize].get(name).is_some_and(|entry| entry.at.shards().contains(&shard))
                }),
                _ => false,
            });
            if is_there {
                self.give_up(client, io);
                io.refused(client, line);
            }
        }
    }

    /// Looks at what is late, and at what has lost its place. `line` is the error for those who waited in vain.
    pub fn look(&mut self, patience: Patience, line: &[u8], io: &impl RegistryIo) {
        let now = io.now();
        for (shard, names) in std::mem::take(&mut self.dropped) {
            io.count_gap(shard, names);
        }
        let adrift = std::mem::take(&mut self.adrift);
        if !adrift.is_empty() {
            self.replace(adrift, io);
            self.start_waiting(io);
        }
        for client in self.waiting(|since| now.since(since) >= patience.connection) {
            self.give_up(client, io);
            io.refused(client, line);
        }
        let shards: Vec<u16> = self.feeds.keys().copied().collect();
        for shard in shards {
            let is_needed = self.names_at(shard) > 0;
            let Some(feed) = self.feeds.get_mut(&shard).filter(|feed| feed.is_open) else { continue };
            let waits = feed.waits_since();
            if waits.is_some_and(|since| now.since(since) > patience.reply) {
                io.close(shard, true);
                continue;
            }
            feed.unused_since = if is_needed || waits.is_some() { None } else { feed.unused_since.or(Some(now)) };
            if feed.unused_since.is_some_and(|since| now.since(since) > patience.unused) {
                io.close(shard, false);
            } else if waits.is_none() && now.since(feed.heard_at) > patience.silence {
                self.send(shard, PING, Expect::Fence { who: None }, io);
            }
        }
    }

    /// Everything may have another place.
    pub fn replace_all(&mut self, io: &impl RegistryIo) {
        let mut moved: Vec<(Kind, Name)> = self
            .entries()
            .filter(|(kind, name, entry)| entry.wanted > 0 && io.place(*kind, name) != entry.at)
            .map(|(kind, name, _)| (kind, name.clone()))
            .collect();
        if moved.is_empty() {
            return;
        }
        moved.sort_unstable();
        let mut left: BTreeMap<u16, usize> = BTreeMap::new();
        for (kind, name) in &moved {
            let Some(entry) = self.names[*kind as usize].get(name) else { continue };
            // The gap of a closed connection was counted when the connection was lost.
            for shard in entry.at.shards().iter().filter(|&&shard| self.is_open(shard)) {
                *left.entry(*shard).or_default() += 1;
            }
        }
        left.into_iter().for_each(|(shard, names)| io.count_gap(shard, names));
        self.replace(moved, io);
        self.start_waiting(io);
    }

    /// Subscribes names where they belong now.
    fn replace(&mut self, names: Vec<(Kind, Name)>, io: &impl RegistryIo) {
        for (kind, name) in names {
            let next = io.place(kind, &name);
            let Some(before) = self.put(kind, &name, &next) else { continue };
            let is_heard = self.names[kind as usize].get(&name).is_some_and(|entry| !entry.listeners.is_empty());
            for &shard in before.shards().iter().filter(|shard| !next.shards().contains(shard)) {
                if self.is_open(shard) {
                    let expect = Expect::Unsubscribe { who: None, kind, names: [name.clone()].into() };
                    self.send_command(shard, kind.unsubscribe(), std::slice::from_ref(&name), expect, io);
                }
            }
            if before != next {
                restart(&mut self.members, |of, other| of == kind && *other == name);
            }
            for &shard in next.shards() {
                match self.feeds.get(&shard).is_some_and(|feed: &Feed| feed.is_open) {
                    true if is_heard => self.queue_again(shard, vec![(kind, name.clone())], io),
                    true => {}
                    false => io.connect(shard),
                }
            }
        }
    }
}

/// Commands under way for one of these names are to be sent again; replies to the earlier ones are dropped.
fn restart(members: &mut Slab<Member>, is_meant: impl Fn(Kind, &Name) -> bool) {
    for (_, member) in members {
        if let Some(op) = &mut member.op
            && let PendingNames::Subscribe { names, is_waiting } = &mut op.what
            && names.iter().any(|(name, _)| is_meant(op.kind, name))
        {
            *is_waiting = true;
            op.serial = 0;
        }
    }
}
