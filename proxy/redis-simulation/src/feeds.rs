//! The subscription lanes of the world: the gateway's own registry, with one client, between the session and model servers.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use weir_base::time::Time;
use weir_redis_session::{
    io::{Clock, Topology},
    lane::LaneKey,
    pubsub::{At, Kind, Name, Patience, Registry, RegistryIo},
    redirect, refusal,
};
use weir_resp::Version;

use crate::{server::ServerConnection, world::World};

/// An event of the registry for the client.
pub(super) enum FeedEvent {
    Message(Vec<u8>),
    Subscribed,
    Unsubscribed,
    Refused(Vec<u8>),
    Published(Option<Vec<u8>>),
    Lost,
}

/// One connection for subscriptions.
struct Line {
    server: ServerConnection,
    unsent: Vec<u8>,
    outbox: VecDeque<u8>,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Feeds {
    registry: RefCell<Registry>,
    client: Cell<Option<usize>>,
    requested: RefCell<VecDeque<u16>>,
    lines: RefCell<BTreeMap<u16, Line>>,
    events: RefCell<VecDeque<FeedEvent>>,
    gaps: Cell<u64>,
}

impl Feeds {
    fn client(&self) -> usize {
        let client = self.client.get().unwrap_or_else(|| self.registry.borrow_mut().join());
        self.client.set(Some(client));
        client
    }

    pub(super) fn subscribe(&self, kind: Kind, names: &[Name], world: &World) {
        let client = self.client();
        self.registry.borrow_mut().subscribe(client, kind, names, world);
    }

    pub(super) fn unsubscribe(&self, kind: Kind, names: &[Name], world: &World) -> bool {
        let client = self.client();
        self.registry.borrow_mut().unsubscribe(client, kind, names, world)
    }

    pub(super) fn publish(&self, kind: Kind, name: &[u8], wire: &[u8], world: &World) -> bool {
        let client = self.client();
        self.registry.borrow_mut().publish(client, kind, name, wire, world)
    }

    pub(super) fn leave(&self, world: &World) {
        if let Some(client) = self.client.take() {
            self.registry.borrow_mut().leave(client, world);
            assert_eq!(self.registry.borrow().subscriptions(), 0, "nothing is left of a client that left");
            self.events.borrow_mut().clear();
        }
    }

    pub(super) fn take(&self) -> Option<FeedEvent> {
        self.events.borrow_mut().pop_front()
    }

    /// The shards with a connection.
    pub fn shards(&self) -> Vec<u16> {
        self.lines.borrow().keys().copied().collect()
    }

    /// Shards with a pending connection.
    pub fn requested(&self) -> Vec<u16> {
        self.requested.borrow().iter().copied().collect()
    }

    /// How often subscriptions were lost.
    pub fn gaps(&self) -> u64 {
        self.gaps.get()
    }

    /// Why somebody would notice that a client was there, if so.
    pub fn dirt(&self) -> Option<&'static str> {
        let lines = self.lines.borrow();
        lines.values().find_map(|line| (line.unsent.is_empty()).then(|| line.server.dirt()).flatten())
    }

    pub(super) fn connect(&self, world: &World) -> bool {
        let Some(shard) = self.requested.borrow_mut().pop_front() else { return false };
        let server = ServerConnection::new(LaneKey::new(shard, Version::Resp3));
        self.lines.borrow_mut().insert(shard, Line { server, unsent: Vec::new(), outbox: VecDeque::new() });
        self.registry.borrow_mut().opened(shard, world);
        true
    }

    pub(super) fn execute(&self, shard: u16, world: &World) -> bool {
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(&shard) else { return false };
        line.server.receive(&std::mem::take(&mut line.unsent));
        let mut out = Vec::new();
        let did = line.server.execute_one(&mut world.server(), &mut out);
        line.outbox.extend(out);
        did
    }

    pub(super) fn read(&self, shard: u16, bytes: usize) -> Option<Vec<u8>> {
        let mut lines = self.lines.borrow_mut();
        let outbox = &mut lines.get_mut(&shard)?.outbox;
        let count = bytes.min(outbox.len());
        (count > 0).then(|| outbox.drain(..count).collect())
    }

    pub(super) fn receive(&self, shard: u16, bytes: &[u8], world: &World) {
        self.registry.borrow_mut().receive(shard, bytes, world).expect("the model server is correct");
    }

    pub(super) fn lose(&self, shard: u16, world: &World) {
        if self.lines.borrow_mut().remove(&shard).is_some() {
            self.registry.borrow_mut().closed(shard, world);
        }
    }

    pub(super) fn look(&self, world: &World) {
        let never = Duration::from_secs(1 << 30);
        let patience = Patience { connection: never, reply: never, silence: never, unused: never };
        self.registry.borrow_mut().look(patience, &refusal::line(refusal::STATE_LOST), world);
    }

    /// Those who wait for a connection are refused.
    pub(super) fn refuse(&self, shard: u16, line: &[u8], world: &World) {
        self.registry.borrow_mut().refuse_waiting(shard, Duration::ZERO, line, world);
    }

    /// Another client publishes: each server with a subscription to the channel sends it.
    pub fn publish_from_outside(&self, channel: &[u8], payload: &[u8]) {
        for line in self.lines.borrow_mut().values_mut() {
            let mut out = Vec::new();
            line.server.publish(channel, payload, &mut out);
            line.outbox.extend(out);
        }
    }

    /// The server speaks unasked.
    pub fn speak(&self, shard: u16, say: impl FnOnce(&mut ServerConnection, &mut Vec<u8>)) {
        if let Some(line) = self.lines.borrow_mut().get_mut(&shard) {
            let mut out = Vec::new();
            say(&mut line.server, &mut out);
            line.outbox.extend(out);
        }
    }
}

impl World {
    fn notify_client(&self, client: usize, event: FeedEvent) {
        assert_eq!(self.feeds.client.get(), Some(client), "there is one client");
        self.feeds.events.borrow_mut().push_back(event);
    }
}

impl RegistryIo for World {
    fn now(&self) -> Time {
        Clock::now(self)
    }

    fn place(&self, kind: Kind, name: &[u8]) -> At {
        let shards = self.shards();
        if kind != Kind::Shard && name.starts_with(b"__key") && shards.len() > 1 {
            return At::Many(shards.into());
        }
        match self.topology() {
            Some(_) if kind == Kind::Shard => At::One(Topology::place(self, name).shard),
            _ => At::One(0),
        }
    }

    fn write(&self, shard: u16, bytes: &[u8]) {
        let mut lines = self.feeds.lines.borrow_mut();
        lines.get_mut(&shard).expect("written to where there is a connection").unsent.extend_from_slice(bytes);
    }

    fn connect(&self, shard: u16) {
        let mut asked = self.feeds.requested.borrow_mut();
        if !asked.contains(&shard) && !self.feeds.lines.borrow().contains_key(&shard) {
            asked.push_back(shard);
        }
    }

    fn close(&self, _shard: u16, _is_late: bool) {
        unreachable!("the registry of the simulation has all the patience in the world");
    }

    fn is_redirection(&self, _shard: u16, line: &[u8]) -> bool {
        let Some((slot, node)) = redirect::moved(line) else { return false };
        self.refresh();
        self.redirected(Some(slot), &node, 0).is_some()
    }

    fn count_gap(&self, _shard: u16, _names: usize) {
        self.feeds.gaps.set(self.feeds.gaps.get() + 1);
    }

    fn message(&self, client: usize, frame: &[u8]) {
        self.notify_client(client, FeedEvent::Message(frame.to_vec()));
    }

    fn message_too_large(&self, _client: usize) {
        unreachable!("no message of the simulation is so large");
    }

    fn subscribed(&self, client: usize) {
        self.notify_client(client, FeedEvent::Subscribed);
    }

    fn unsubscribed(&self, client: usize) {
        self.notify_client(client, FeedEvent::Unsubscribed);
    }

    fn refused(&self, client: usize, line: &[u8]) {
        self.notify_client(client, FeedEvent::Refused(line.to_vec()));
    }

    fn published(&self, client: usize, reply: Option<&[u8]>) {
        self.notify_client(client, FeedEvent::Published(reply.map(<[u8]>::to_vec)));
    }

    fn lost(&self, client: usize) {
        self.notify_client(client, FeedEvent::Lost);
    }
}
