//! The registry of one upstream on one worker, with its connections and its clients.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::{Rc, Weak},
    time::Duration,
};

use weir_base::time::{Time, turn};
use weir_engine::Chunk;
use weir_resp::Version;
use weir_upstream::{LossCause, Node, Refusal, SubscriptionLane, SubscriptionSender};

use weir_redis_session::{
    io::NoSubscription,
    lane::LaneKey,
    pubsub::{At, Kind, Name, Patience, Registry, RegistryIo},
    redirect, refusal,
};

use crate::{connection::Connection, service::RedisUpstream};

/// Subscriptions of all clients of one upstream on one worker. Each takes about 150 bytes and the name, twice.
/// Default 1,000,000: a hundred clients with as many as one may have.
const SUBSCRIPTIONS_MAX: usize = 1_000_000;
/// How often what is late is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Silence of a server after which it gets a PING: a dead connection must not look like a quiet channel.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// An idle subscription lane is kept that long.
const UNUSED_MAX: Duration = Duration::from_secs(10);
/// Chunks read in a row before other tasks get their turn.
const CHUNKS_PER_TURN_MAX: u32 = 4;
/// Channels on which a server speaks of its own keys: no other server does (Redis `notify.c`).
const KEY_EVENTS: [&[u8]; 2] = [b"__keyspace@", b"__keyevent@"];

/// The connection to one shard.
#[derive(Default)]
struct Line {
    /// `None` while it is being made.
    sender: Option<SubscriptionSender>,
    /// It speaks RESP3, in which a subscriber may send all other commands too.
    is_resp3: bool,
    /// It was cut for this.
    ending: Option<LossCause>,
}

/// See the module's documentation.
pub(crate) struct Hub {
    upstream: Weak<RedisUpstream>,
    /// As whom it subscribes.
    login: u64,
    registry: RefCell<Registry>,
    clients: RefCell<Vec<Option<Rc<Connection>>>>,
    lines: RefCell<HashMap<u16, Line>>,
    /// Where classic channels are subscribed in a cluster, whose nodes tell each other of messages.
    home: Cell<Option<u16>>,
    /// The map of slots by which names were placed.
    topology: Cell<u64>,
    /// The primary at which they were, where there is one of all.
    primary: Cell<Option<u16>>,
    /// The last reported number of subscriptions of each shard.
    reported: RefCell<HashMap<u16, usize>>,
    is_looking: Cell<bool>,
    me: Weak<Hub>,
}

impl Hub {
    /// That of `upstream` for clients with this login: what one may hear another one may not.
    pub(crate) fn of(upstream: &Rc<RedisUpstream>, login: u64) -> Rc<Self> {
        let make = || {
            Rc::new_cyclic(|me: &Weak<Self>| Self {
                upstream: Rc::downgrade(upstream),
                login,
                registry: RefCell::default(),
                clients: RefCell::default(),
                lines: RefCell::default(),
                home: Cell::new(None),
                topology: Cell::new(0),
                primary: Cell::new(upstream.endpoints().primary()),
                reported: RefCell::default(),
                is_looking: Cell::new(false),
                me: me.clone(),
            })
        };
        upstream.protocol().hubs.borrow_mut().entry(login).or_insert_with(make).clone()
    }

    /// As whom it subscribes.
    pub(crate) fn login(&self) -> u64 {
        self.login
    }

    /// Subscriptions are of no database; the endpoint is what counts.
    fn key(&self, shard: u16, version: Version) -> LaneKey {
        LaneKey { login: self.login, ..LaneKey::new(shard, version) }
    }

    /// A client without subscriptions; its number.
    pub(crate) fn join(&self, connection: Rc<Connection>) -> usize {
        let client = self.registry.borrow_mut().join();
        let mut clients = self.clients.borrow_mut();
        if clients.len() <= client {
            clients.resize_with(client + 1, || None);
        }
        clients[client] = Some(connection);
        client
    }

    /// The client is gone, or wants nothing more.
    pub(crate) fn leave(&self, client: usize) {
        self.clients.borrow_mut()[client] = None;
        self.registry.borrow_mut().leave(client, self);
        self.report_counts();
    }

    /// See [`Registry::subscribe`].
    ///
    /// # Errors
    /// It is refused at once, without a request.
    pub(crate) fn subscribe(&self, client: usize, kind: Kind, names: &[Name]) -> Result<(), NoSubscription> {
        if self.registry.borrow().subscriptions() + names.len() > SUBSCRIPTIONS_MAX {
            return Err(NoSubscription::TooMany);
        }
        if self.upstream.upgrade().is_none_or(|upstream| upstream.endpoints().primary().is_none()) {
            // Without a known primary, the endpoint might not be a server at all.
            return Err(NoSubscription::Refused(Refusal::Unreachable));
        }
        for name in names {
            for &shard in self.place(kind, name).shards() {
                self.check_available(shard).map_err(NoSubscription::Refused)?;
            }
        }
        self.registry.borrow_mut().subscribe(client, kind, names, self);
        self.report_counts();
        self.watch();
        Ok(())
    }

    /// As [`Hub::subscribe`], for a client that has these subscriptions already, at another upstream.
    pub(crate) fn adopt(&self, client: usize, held: &[(Kind, Name)]) {
        self.registry.borrow_mut().adopt(client, held, self);
        self.report_counts();
        self.watch();
    }

    /// See [`Registry::unsubscribe`].
    pub(crate) fn unsubscribe(&self, client: usize, kind: Kind, names: &[Name]) -> bool {
        let is_done = self.registry.borrow_mut().unsubscribe(client, kind, names, self);
        self.report_counts();
        is_done
    }

    /// See [`Registry::publish`].
    pub(crate) fn publish_own(&self, client: usize, kind: Kind, name: &[u8], wire: &[u8]) -> bool {
        let speaks = |shard| self.lines.borrow().get(shard).is_some_and(|line| line.is_resp3);
        self.place(kind, name).shards().iter().all(speaks)
            && self.registry.borrow_mut().publish(client, kind, name, wire, self)
    }

    /// A yes unless there is no connection and trying is known to be useless, or the server takes nothing.
    fn check_available(&self, shard: u16) -> Result<(), Refusal> {
        let lines = self.lines.borrow();
        match lines.get(&shard) {
            Some(Line { sender: Some(sender), .. }) if sender.is_congested() => Err(Refusal::QueueFull),
            Some(Line { sender: Some(_), .. }) => Ok(()),
            _ => self.upstream.upgrade().ok_or(Refusal::Unreachable)?.check_available(self.key(shard, Version::Resp3)),
        }
    }

    /// Tells how many names are subscribed where.
    fn report_counts(&self) {
        let Some(upstream) = self.upstream.upgrade() else { return };
        let registry = self.registry.borrow();
        for &shard in self.lines.borrow().keys() {
            self.report_names(&upstream, shard, registry.names_at(shard));
        }
    }

    /// So many names are subscribed at `shard`; other logins have theirs.
    fn report_names(&self, upstream: &RedisUpstream, shard: u16, names: usize) {
        let before = self.reported.borrow_mut().insert(shard, names).unwrap_or(0);
        upstream.add_subscriptions(self.key(shard, Version::Resp3), names as i64 - before as i64);
    }

    /// Looks at what is late, as long as there is anything to look at.
    fn watch(&self) {
        if self.is_looking.replace(true) {
            return;
        }
        let me = self.me.clone();
        weir_engine::spawn(async move {
            loop {
                weir_engine::sleep(LOOK).await;
                let Some(hub) = me.upgrade() else { return };
                if !hub.look() {
                    hub.is_looking.set(false);
                    return;
                }
            }
        })
        .detach();
    }

    fn look(&self) -> bool {
        let Some(upstream) = self.upstream.upgrade() else { return false };
        if let Some(slots) = upstream.endpoints().slots() {
            let version = slots.version();
            if self.topology.replace(version) != version {
                if self.home.get().is_some_and(|home| !slots.primaries().contains(&home)) {
                    self.home.set(None);
                }
                self.registry.borrow_mut().replace_all(self);
            }
        }
        let primary = upstream.endpoints().primary();
        if self.primary.replace(primary) != primary {
            self.registry.borrow_mut().replace_all(self);
        }
        let settings = upstream.settings();
        let patience = Patience {
            connection: settings.lane_wait_timeout,
            reply: settings.request_timeout,
            silence: SILENCE_MAX,
            unused: UNUSED_MAX,
        };
        self.registry.borrow_mut().look(patience, &refusal::line(refusal::refused(Refusal::Unreachable)), self);
        self.report_counts();
        self.registry.borrow().clients() > 0 || !self.lines.borrow().is_empty()
    }

    fn with_client(&self, client: usize, tell: impl FnOnce(&Connection)) {
        // A clone, because the callback may remove the client.
        let connection = self.clients.borrow().get(client).cloned().flatten();
        if let Some(connection) = connection {
            tell(&connection);
        }
    }
}

/// Connections.
impl Hub {
    /// Keeps a connection to `shard` for as long as somebody needs it.
    async fn run(self: Rc<Self>, upstream: Rc<RedisUpstream>, shard: u16) {
        let mut version = Version::Resp3;
        let mut attempt = 0;
        while self.registry.borrow().names_at(shard) > 0 {
            let lane = match upstream.subscription_lane(self.key(shard, version)).await {
                Ok(lane) => lane,
                Err(Refusal::Greeting) if version == Version::Resp3 => {
                    // A server that does not know HELLO speaks of channels in the older way.
                    version = Version::Resp2;
                    continue;
                }
                Err(refusal) => {
                    version = Version::Resp3;
                    self.not_connected(&upstream, shard, refusal);
                    weir_engine::sleep(upstream.pause(attempt)).await;
                    attempt += 1;
                    continue;
                }
            };
            attempt = 0;
            let cause = self.read(shard, version, lane).await;
            upstream.subscription_lane_lost(self.key(shard, version), cause);
            self.lines.borrow_mut().insert(shard, Line::default());
            self.registry.borrow_mut().closed(shard, &*self);
            if cause != LossCause::Retired {
                self.leave_home(&upstream, shard);
            }
        }
        self.report_names(&upstream, shard, 0);
        self.reported.borrow_mut().remove(&shard);
        self.lines.borrow_mut().remove(&shard);
    }

    /// One connection, from its beginning to its end.
    async fn read(&self, shard: u16, version: Version, mut lane: SubscriptionLane) -> LossCause {
        let is_resp3 = version == Version::Resp3;
        let line = Line { sender: Some(lane.sender()), is_resp3, ending: None };
        self.lines.borrow_mut().insert(shard, line);
        self.registry.borrow_mut().opened(shard, self);
        self.report_counts();
        let mut chunks = 0;
        let cause = loop {
            let Some(chunk) = lane.receive().await else { break LossCause::Closed };
            if let Err(violation) = self.receive(shard, &chunk) {
                lane.violated(&violation);
                break LossCause::Violation;
            }
            drop(chunk);
            chunks += 1;
            if chunks % CHUNKS_PER_TURN_MAX == 0 {
                weir_engine::yield_now().await;
            }
        };
        let ending = self.lines.borrow().get(&shard).and_then(|line| line.ending);
        ending.unwrap_or(cause)
    }

    fn receive(&self, shard: u16, chunk: &Chunk) -> Result<(), weir_base::violation::Violation> {
        self.registry.borrow_mut().receive(shard, chunk, self)
    }

    /// An attempt to connect has failed.
    fn not_connected(&self, upstream: &RedisUpstream, shard: u16, refusal: Refusal) {
        let line = refusal::line(refusal::refused(refusal));
        let is_hopeless =
            refusal != Refusal::Unreachable || upstream.check_available(self.key(shard, Version::Resp3)).is_err();
        let patience = if is_hopeless { Duration::ZERO } else { upstream.settings().lane_wait_timeout };
        self.leave_home(upstream, shard);
        self.registry.borrow_mut().refuse_waiting(shard, patience, &line, self);
        self.report_counts();
    }

    /// The node of the classic channels is gone: any other will do.
    fn leave_home(&self, upstream: &RedisUpstream, shard: u16) {
        let Some(slots) = upstream.endpoints().slots().filter(|_| self.home.get() == Some(shard)) else { return };
        let primaries = slots.primaries();
        let at = primaries.iter().position(|&primary| primary == shard).map_or(0, |at| at + 1);
        let works = |&&primary: &&u16| {
            primary != shard && upstream.check_available(self.key(primary, Version::Resp3)) == Ok(())
        };
        let next = primaries.iter().cycle().skip(at).take(primaries.len()).find(works).copied();
        if let Some(next) = next {
            self.home.set(Some(next));
            self.registry.borrow_mut().replace_all(self);
        }
    }
}

impl RegistryIo for Hub {
    fn now(&self) -> Time {
        turn::now()
    }

    fn place(&self, kind: Kind, name: &[u8]) -> At {
        let Some(upstream) = self.upstream.upgrade() else { return At::One(0) };
        if kind != Kind::Shard && KEY_EVENTS.iter().any(|prefix| name.starts_with(prefix)) {
            let mut shards = upstream.endpoints().shards();
            shards.sort_unstable();
            if !shards.is_empty() {
                return At::Many(shards.into());
            }
        }
        // Without a cluster PUBLISH and SPUBLISH go where commands without keys go.
        let Some(slots) = upstream.endpoints().slots() else {
            return At::One(upstream.endpoints().primary().unwrap_or(0));
        };
        if kind == Kind::Shard {
            return At::One(slots.place(name).shard);
        }
        let home = self.home.get().unwrap_or_else(|| upstream.endpoints().home());
        self.home.set(Some(home));
        At::One(home)
    }

    fn write(&self, shard: u16, bytes: &[u8]) {
        if let Some(sender) = self.lines.borrow().get(&shard).and_then(|line| line.sender.as_ref()) {
            sender.send(bytes);
        }
    }

    fn connect(&self, shard: u16) {
        let (Some(me), Some(upstream)) = (self.me.upgrade(), self.upstream.upgrade()) else { return };
        // While there is a line, its task sees that it is needed.
        let is_new = !self.lines.borrow().contains_key(&shard);
        if is_new {
            self.lines.borrow_mut().insert(shard, Line::default());
            weir_engine::spawn(me.run(upstream, shard)).detach();
        }
    }

    fn close(&self, shard: u16, is_late: bool) {
        if let Some(line) = self.lines.borrow_mut().get_mut(&shard)
            && let Some(sender) = &line.sender
        {
            line.ending = Some(if is_late { LossCause::Timeout } else { LossCause::Retired });
            sender.cut();
        }
    }

    fn is_redirection(&self, shard: u16, line: &[u8]) -> bool {
        let Some(upstream) = self.upstream.upgrade() else { return false };
        let Some(slots) = upstream.endpoints().slots() else { return false };
        let Some((slot, node)): Option<(u16, Node)> = redirect::moved(line) else { return false };
        if let Some(target) = upstream.endpoints().find(&node, shard) {
            slots.moved(slot, shard, target, turn::now());
        }
        upstream.endpoints().refresh();
        true
    }

    fn count_gap(&self, shard: u16, names: usize) {
        if let Some(upstream) = self.upstream.upgrade() {
            upstream.count_subscription_gap(self.key(shard, Version::Resp3), names);
            if upstream.endpoints().slots().is_some() {
                upstream.endpoints().refresh();
            }
        }
    }

    #[inline]
    fn message(&self, client: usize, frame: &[u8]) {
        if let Some(Some(connection)) = self.clients.borrow().get(client) {
            connection.on_message(frame);
        }
    }

    fn message_too_large(&self, client: usize) {
        self.with_client(client, Connection::on_message_too_large);
    }

    fn subscribed(&self, client: usize) {
        self.with_client(client, Connection::on_subscribed);
    }

    fn unsubscribed(&self, client: usize) {
        self.with_client(client, Connection::on_unsubscribed);
    }

    fn refused(&self, client: usize, line: &[u8]) {
        self.with_client(client, |connection| connection.on_subscription_refused(line));
    }

    fn published(&self, client: usize, reply: Option<&[u8]>) {
        self.with_client(client, |connection| connection.on_published(reply));
    }

    fn lost(&self, client: usize) {
        self.with_client(client, Connection::on_subscription_lost);
    }
}
