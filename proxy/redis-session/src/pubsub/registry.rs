//! Subscribers and pending commands to the servers: the subscriptions of all clients of a worker at one upstream.
//!
//! It does no I/O: its environment does ([`RegistryIo`]). The order of each subscription lane makes it exact. A
//! SUBSCRIBE of a client always goes to the server, though the name may be subscribed already: its confirmation tells which
//! messages came before it. An UNSUBSCRIBE goes there if the client is the last one; else a PING takes its place.
//!
//! A client has one command in flight at most. Its names are counted in [`Entry::wanted`] from the moment it is sent, so
//! that a name is unsubscribed when, and only when, no client wants it any more.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use slab::Slab;
use weir_base::time::Time;
use weir_resp::encode;

use super::{
    feed::{Expect, Feed, Name, Requester},
    frame::Kind,
};

pub(crate) const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// The shards on which a name is subscribed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// One shard.
    One(u16),
    /// Not empty.
    Many(Rc<[u16]>),
}

impl At {
    /// Their numbers.
    pub fn shards(&self) -> &[u16] {
        match self {
            At::One(shard) => std::slice::from_ref(shard),
            At::Many(shards) => shards,
        }
    }
}

/// The registry's requests to its environment, and its notifications to the clients. A call must not call back.
pub trait RegistryIo {
    /// The time of this loop turn.
    fn now(&self) -> Time;
    /// Where a name is subscribed.
    fn place(&self, kind: Kind, name: &[u8]) -> At;
    /// Sends to the server of a shard, whose connection is open.
    fn write(&self, shard: u16, bytes: &[u8]);
    /// A connection to a shard is needed: [`Registry::opened`] follows.
    fn connect(&self, shard: u16);
    /// The connection to a shard is not needed, or of no use: [`Registry::closed`] follows.
    fn close(&self, shard: u16, is_late: bool);
    /// A node of a cluster refused a subscription; true if that may help later, here or elsewhere.
    fn is_redirection(&self, shard: u16, line: &[u8]) -> bool;
    /// Subscriptions were without a server for a moment.
    fn count_gap(&self, shard: u16, names: usize);
    /// A whole message.
    fn message(&self, client: usize, frame: &[u8]);
    /// A message that is larger than a subscriber may have unread.
    fn message_too_large(&self, client: usize);
    /// The next name of the client's SUBSCRIBE.
    fn subscribed(&self, client: usize);
    /// All names of the client's UNSUBSCRIBE.
    fn unsubscribed(&self, client: usize);
    /// The rest of the client's SUBSCRIBE is refused with this error.
    fn refused(&self, client: usize, line: &[u8]);
    /// The reply to the client's PUBLISH; `None` if it is lost.
    fn published(&self, client: usize, reply: Option<&[u8]>);
    /// The server does not take back a subscription of the client that was lost.
    fn lost(&self, client: usize);
}

/// A channel or pattern that somebody wants, or that somebody has just left.
#[derive(Debug)]
pub struct Entry {
    pub(crate) at: At,
    /// Clients that are subscribed and not about to leave, and those about to come.
    pub(crate) wanted: usize,
    pub(crate) listeners: BTreeSet<usize>,
}

/// A command of a client that waits for the server.
#[derive(Debug)]
pub(crate) struct PendingCommand {
    pub(crate) kind: Kind,
    pub(crate) since: Time,
    pub(crate) serial: u64,
    pub(crate) what: PendingNames,
}

#[derive(Debug)]
pub(crate) enum PendingNames {
    /// The names that are not confirmed, each with the number of servers that have not; not sent while `is_waiting`.
    Subscribe {
        names: VecDeque<(Name, usize)>,
        is_waiting: bool,
    },
    /// The replies to come.
    Unsubscribe {
        names: Vec<Name>,
        left: usize,
    },
    Publish,
}

/// A client with subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Member {
    held: BTreeSet<(Kind, Name)>,
    pub(crate) op: Option<PendingCommand>,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Registry {
    pub(super) names: [HashMap<Name, Entry>; 3],
    pub(super) members: Slab<Member>,
    pub(super) feeds: BTreeMap<u16, Feed>,
    /// Names that their server has dropped: they are to be subscribed again.
    pub(super) adrift: Vec<(Kind, Name)>,
    /// How many of them a server has dropped by itself.
    pub(super) dropped: BTreeMap<u16, usize>,
    /// How many names are wanted on a shard.
    wanted: BTreeMap<u16, usize>,
    serial: u64,
    count: usize,
}

impl Registry {
    /// A client without subscriptions.
    pub fn join(&mut self) -> usize {
        self.members.insert(Member::default())
    }

    /// Clients.
    pub fn clients(&self) -> usize {
        self.members.len()
    }

    /// Subscriptions of all clients together.
    pub fn subscriptions(&self) -> usize {
        self.count
    }

    /// Channels and patterns that are subscribed on the server of `shard`, or will be.
    pub fn names_at(&self, shard: u16) -> usize {
        self.wanted.get(&shard).copied().unwrap_or(0)
    }

    /// The names that somebody is subscribed to, with what is known of each.
    pub fn entries(&self) -> impl Iterator<Item = (Kind, &Name, &Entry)> {
        let each = Kind::ALL.into_iter().zip(&self.names);
        each.flat_map(|(kind, names)| names.iter().map(move |(name, entry)| (kind, name, entry)))
    }

    /// There is a connection to `shard`.
    pub(crate) fn is_open(&self, shard: u16) -> bool {
        self.feeds.get(&shard).is_some_and(|feed| feed.is_open)
    }

    /// Subscribes a client to names of one kind that it does not have; none comes twice. [`RegistryIo::subscribed`] follows
    /// for each, in order, or [`RegistryIo::refused`].
    pub fn subscribe(&mut self, client: usize, kind: Kind, names: &[Name], io: &impl RegistryIo) {
        self.count += names.len();
        let names = names.iter().map(|name| (self.want(kind, name, io), 0)).collect();
        let what = PendingNames::Subscribe { names, is_waiting: true };
        self.begin(client, kind, what, io);
        self.start(client, io);
    }

    fn begin(&mut self, client: usize, kind: Kind, what: PendingNames, io: &impl RegistryIo) -> Requester {
        self.serial += 1;
        let member = &mut self.members[client];
        debug_assert!(member.op.is_none(), "one command at a time");
        member.op = Some(PendingCommand { kind, since: io.now(), serial: self.serial, what });
        Requester { client, serial: self.serial }
    }

    /// One more client wants a name. Gives the registry's own copy of it.
    fn want(&mut self, kind: Kind, name: &Name, io: &impl RegistryIo) -> Name {
        let names = &mut self.names[kind as usize];
        let own = names.get_key_value(name).map_or(name, |(own, _)| own).clone();
        let place = || Entry { at: io.place(kind, name), wanted: 0, listeners: BTreeSet::new() };
        let entry = names.entry(own.clone()).or_insert_with(place);
        entry.wanted += 1;
        if entry.wanted == 1 {
            // While only those who leave were left, it was not moved with the others.
            entry.at = io.place(kind, name);
            entry.at.shards().iter().for_each(|&shard| *self.wanted.entry(shard).or_default() += 1);
        }
        own
    }

    /// Gives a name that is wanted another place; where it was before.
    pub(super) fn put(&mut self, kind: Kind, name: &Name, next: &At) -> Option<At> {
        let entry = self.names[kind as usize].get_mut(name).filter(|entry| entry.wanted > 0)?;
        let before = std::mem::replace(&mut entry.at, next.clone());
        next.shards().iter().for_each(|&shard| *self.wanted.entry(shard).or_default() += 1);
        before.shards().iter().for_each(|&shard| *self.wanted.entry(shard).or_default() -= 1);
        Some(before)
    }

    /// Sends what is left of a SUBSCRIBE, if all its servers are connected.
    pub(super) fn start(&mut self, client: usize, io: &impl RegistryIo) {
        let Some(op) = &mut self.members[client].op else { return };
        let PendingNames::Subscribe { names, is_waiting } = &mut op.what else { return };
        self.serial += 1;
        op.serial = self.serial;
        let (who, kind) = (Requester { client, serial: self.serial }, op.kind);
        let mut plan: BTreeMap<u16, Vec<Name>> = BTreeMap::new();
        for (name, left) in names.iter_mut() {
            let Some(entry) = self.names[kind as usize].get(name) else { continue };
            *left = entry.at.shards().len();
            for &shard in entry.at.shards() {
                plan.entry(shard).or_default().push(name.clone());
            }
        }
        let is_open = |shard: &u16| self.feeds.get(shard).is_some_and(|feed| feed.is_open);
        let missing: Vec<u16> = plan.keys().copied().filter(|shard| !is_open(shard)).collect();
        *is_waiting = !missing.is_empty();
        if *is_waiting {
            return missing.into_iter().for_each(|shard| io.connect(shard));
        }
        for (shard, names) in plan {
            let expect = Expect::Subscribe { who, kind, left: names.len() };
            self.send_command(shard, kind.subscribe(), &names, expect, io);
        }
    }

    /// Sends a command with `names` to an open feed.
    pub(super) fn send_command(
        &mut self,
        shard: u16,
        command: &str,
        names: &[Name],
        expect: Expect,
        io: &impl RegistryIo,
    ) {
        let mut wire = Vec::new();
        let words: Vec<&[u8]> = std::iter::once(command.as_bytes()).chain(names.iter().map(|name| &**name)).collect();
        encode::command(&mut wire, words);
        self.send(shard, &wire, expect, io);
    }

    pub(super) fn send(&mut self, shard: u16, wire: &[u8], expect: Expect, io: &impl RegistryIo) {
        let feed = self.feeds.entry(shard).or_default();
        debug_assert!(feed.is_open, "asked without a connection");
        feed.expected.push_back((expect, io.now()));
        io.write(shard, wire);
    }

    /// Ends subscriptions that a client has. [`RegistryIo::unsubscribed`] follows; if the result is true, it does not:
    /// it is done.
    pub fn unsubscribe(&mut self, client: usize, kind: Kind, names: &[Name], io: &impl RegistryIo) -> bool {
        let mut plan: BTreeMap<u16, VecDeque<Name>> = BTreeMap::new();
        for name in names {
            self.members[client].held.remove(&(kind, name.clone()));
            self.unwant(kind, name, &mut plan);
        }
        plan.retain(|&shard, _| self.is_open(shard));
        let left = plan.len();
        let who = self.begin(client, kind, PendingNames::Unsubscribe { names: names.to_vec(), left }, io);
        if left == 0 {
            self.finish_leaving(client);
            return true;
        }
        for (shard, names) in plan {
            self.unsubscribe_at(shard, kind, names, Some(who), io);
        }
        false
    }

    /// Ends subscriptions at a server; without names this is a fence.
    fn unsubscribe_at(
        &mut self,
        shard: u16,
        kind: Kind,
        names: VecDeque<Name>,
        who: Option<Requester>,
        io: &impl RegistryIo,
    ) {
        if names.is_empty() {
            return self.send(shard, PING, Expect::Fence { who }, io);
        }
        let list: Vec<Name> = names.iter().cloned().collect();
        self.send_command(shard, kind.unsubscribe(), &list, Expect::Unsubscribe { who, kind, names }, io);
    }

    /// One client less wants a name. If it was the last, the name goes to the servers to be unsubscribed from; to the others
    /// goes nothing, but they are named.
    fn unwant(&mut self, kind: Kind, name: &Name, plan: &mut BTreeMap<u16, VecDeque<Name>>) {
        let names = &mut self.names[kind as usize];
        let Some(entry) = names.get_mut(name) else { return };
        entry.wanted -= 1;
        self.count -= 1;
        for &shard in entry.at.shards() {
            let unwanted = plan.entry(shard).or_default();
            if entry.wanted == 0 {
                unwanted.push_back(name.clone());
                *self.wanted.entry(shard).or_default() -= 1;
            }
        }
        if entry.wanted == 0 && entry.listeners.is_empty() {
            names.remove(name);
        }
    }

    /// The client hears the names of its UNSUBSCRIBE no more.
    fn finish_leaving(&mut self, client: usize) {
        let Some(PendingCommand { kind, what: PendingNames::Unsubscribe { names, .. }, .. }) =
            self.members[client].op.take()
        else {
            return;
        };
        names.iter().for_each(|name| self.stop_listening(client, kind, name));
    }

    fn stop_listening(&mut self, client: usize, kind: Kind, name: &Name) {
        let names = &mut self.names[kind as usize];
        let Some(entry) = names.get_mut(name) else { return };
        entry.listeners.remove(&client);
        if entry.wanted == 0 && entry.listeners.is_empty() {
            names.remove(name);
        }
    }

    /// The client hears nothing more, and its number may become another's.
    pub fn leave(&mut self, client: usize, io: &impl RegistryIo) {
        match self.members[client].op.as_ref().map(|op| &op.what) {
            Some(PendingNames::Subscribe { .. }) => self.give_up(client, io),
            Some(PendingNames::Unsubscribe { .. }) => self.finish_leaving(client),
            Some(PendingNames::Publish) | None => {}
        }
        let member = self.members.remove(client);
        for kind in Kind::ALL {
            let mut plan = BTreeMap::new();
            for (_, name) in member.held.iter().filter(|(of, _)| *of == kind) {
                // Before it is unwanted, so that the entry goes with the last of them.
                self.stop_listening(client, kind, name);
                self.unwant(kind, name, &mut plan);
            }
            self.abandon(kind, plan, io);
        }
    }

    /// The names of a client's SUBSCRIBE that are not confirmed are not wanted any more.
    pub(super) fn give_up(&mut self, client: usize, io: &impl RegistryIo) {
        let Some(PendingCommand { kind, what: PendingNames::Subscribe { names, .. }, .. }) =
            self.members[client].op.take()
        else {
            return;
        };
        let mut plan = BTreeMap::new();
        names.iter().for_each(|(name, _)| self.unwant(kind, name, &mut plan));
        self.abandon(kind, plan, io);
    }

    /// Unsubscribes from names that no client wants.
    fn abandon(&mut self, kind: Kind, plan: BTreeMap<u16, VecDeque<Name>>, io: &impl RegistryIo) {
        for (shard, names) in plan {
            if !names.is_empty() && self.is_open(shard) {
                self.unsubscribe_at(shard, kind, names, None, io);
            }
        }
    }

    /// Takes over a client that has subscriptions: its subscriptions elsewhere move here, unnoticed.
    pub fn adopt(&mut self, client: usize, held: &[(Kind, Name)], io: &impl RegistryIo) {
        self.count += held.len();
        for (kind, name) in held {
            let name = self.want(*kind, name, io);
            let Some(entry) = self.names[*kind as usize].get_mut(&name) else { continue };
            entry.listeners.insert(client);
            let at = entry.at.clone();
            self.members[client].held.insert((*kind, name.clone()));
            for &shard in at.shards() {
                match self.is_open(shard) {
                    true => self.queue_again(shard, vec![(*kind, name.clone())], io),
                    false => io.connect(shard),
                }
            }
        }
    }

    /// Sends a PUBLISH of a client on the lane that its message comes back on, so that it hears the message before the reply.
    /// False if there is no such lane just now.
    pub fn publish(&mut self, client: usize, kind: Kind, name: &[u8], wire: &[u8], io: &impl RegistryIo) -> bool {
        let At::One(shard) = io.place(kind, name) else { return false };
        if !self.is_open(shard) {
            return false;
        }
        let who = self.begin(client, kind, PendingNames::Publish, io);
        self.send(shard, wire, Expect::Publish { who }, io);
        true
    }

    /// The command of `who`, if it is still under way.
    pub(super) fn op(&mut self, who: Requester) -> Option<&mut PendingCommand> {
        self.members.get_mut(who.client)?.op.as_mut().filter(|op| op.serial == who.serial)
    }

    /// One of the servers has confirmed a name of a SUBSCRIBE.
    pub(super) fn confirm(&mut self, who: Requester, name: &[u8], io: &impl RegistryIo) {
        let Some(PendingCommand { kind, what: PendingNames::Subscribe { names, .. }, .. }) = self.op(who) else {
            return;
        };
        let kind = *kind;
        if let Some((_, left)) = names.iter_mut().find(|(other, left)| **other == *name && *left > 0) {
            *left -= 1;
        }
        let count = names.iter().take_while(|(_, left)| *left == 0).count();
        let done: Vec<(Name, usize)> = names.drain(..count).collect();
        let is_over = names.is_empty();
        let member = &mut self.members[who.client];
        if is_over {
            member.op = None;
        }
        for (name, _) in done {
            if let Some(entry) = self.names[kind as usize].get_mut(&name) {
                entry.listeners.insert(who.client);
                member.held.insert((kind, name));
            }
            io.subscribed(who.client);
        }
    }

    /// One of the replies to an UNSUBSCRIBE is here.
    pub(super) fn note_left(&mut self, who: Option<Requester>, io: &impl RegistryIo) {
        let Some(who) = who else { return };
        let Some(PendingCommand { what: PendingNames::Unsubscribe { left, .. }, .. }) = self.op(who) else { return };
        *left -= 1;
        if *left == 0 {
            self.finish_leaving(who.client);
            io.unsubscribed(who.client);
        }
    }
}
