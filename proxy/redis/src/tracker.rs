//! The table of one upstream on one worker, with its tracking lanes and its clients.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::{Rc, Weak},
    time::Duration,
};

use weir_base::time::{Time, turn};
use weir_resp::Version;
use weir_upstream::{LossCause, NOBODY, Refusal, SubscriptionLane, SubscriptionSender};

use weir_redis_session::{
    cache::Cache,
    io::Track,
    lane::LaneKey,
    pubsub::{
        Name,
        feed::{Feed, FrameProgress},
    },
    refusal,
    tracking::{
        Scope,
        line::{TrackingFrame, parse_frame, request},
        table::{EvictedKey, KEY_BYTES_MAX, KEYS_MAX, Table},
    },
};

use crate::{connection::Connection, service::RedisUpstream};

/// How often what is late is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Silence of a server after which it gets a PING: until it is known that it is not, clients keep what may
/// have changed.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// The longest that it may take to answer; `request_timeout`, if that is shorter.
const REPLY_TIME_MAX: Duration = Duration::from_secs(2);
/// Time for which an unused lane is kept.
const UNUSED_MAX: Duration = Duration::from_secs(10);
/// Chunks read in a row before other tasks get their turn.
const CHUNKS_PER_TURN_MAX: u32 = 4;
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// The tracking lane of one server.
#[derive(Default)]
struct Line {
    sender: Option<SubscriptionSender>,
    /// Changes are heard of.
    is_live: bool,
    /// Why it is not, once that is known.
    failure: Option<Vec<u8>>,
    /// The times of the requests without a reply.
    asked: VecDeque<Time>,
    heard_at: Time,
    /// When somebody last needed it.
    wanted_at: Time,
}

/// See the module's documentation.
pub(crate) struct Tracker {
    upstream: Weak<RedisUpstream>,
    login: u64,
    table: RefCell<Table>,
    clients: RefCell<Vec<Option<Rc<Connection>>>>,
    lines: RefCell<BTreeMap<u16, Line>>,
    caches: RefCell<Vec<Weak<Cache>>>,
    /// Clients whose CLIENT TRACKING is not answered, and since when.
    waiting: RefCell<Vec<(usize, Time)>>,
    /// The server that had all keys at the last look.
    primary: Cell<Option<u16>>,
    reported_keys: Cell<usize>,
    is_looking: Cell<bool>,
    me: Weak<Tracker>,
}

impl Tracker {
    /// That of `upstream` for clients with this login.
    pub(crate) fn of(upstream: &Rc<RedisUpstream>, login: u64) -> Rc<Self> {
        let make = || {
            Rc::new_cyclic(|me: &Weak<Self>| Self {
                upstream: Rc::downgrade(upstream),
                login,
                table: RefCell::default(),
                clients: RefCell::default(),
                lines: RefCell::default(),
                caches: RefCell::default(),
                waiting: RefCell::default(),
                primary: Cell::new(upstream.endpoints().primary()),
                reported_keys: Cell::new(0),
                is_looking: Cell::new(false),
                me: me.clone(),
            })
        };
        upstream.protocol().trackers.borrow_mut().entry(login).or_insert_with(make).clone()
    }

    /// As whom it listens.
    pub(crate) fn login(&self) -> u64 {
        self.login
    }

    fn key(&self, shard: u16) -> LaneKey {
        LaneKey { login: self.login, ..LaneKey::new(shard, Version::Resp3) }
    }

    /// Adds a client that gets invalidations from now on; its number.
    pub(crate) fn join(&self, connection: Rc<Connection>, scope: Scope) -> usize {
        let client = self.table.borrow_mut().join(scope);
        let mut clients = self.clients.borrow_mut();
        if clients.len() <= client {
            clients.resize_with(client + 1, || None);
        }
        clients[client] = Some(connection);
        client
    }

    /// A reply cache that gets invalidations from now on, for as long as it is there.
    pub(crate) fn add_cache(&self, cache: &Rc<Cache>) {
        let lines = self.lines.borrow();
        lines.iter().filter(|(_, line)| line.is_live).for_each(|(&shard, _)| cache.set_live(shard, true));
        let mut caches = self.caches.borrow_mut();
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(Rc::downgrade(cache));
        drop(caches);
        drop(lines);
        self.watch();
    }

    fn each_cache(&self, tell: impl FnMut(Rc<Cache>)) {
        self.caches.borrow().iter().filter_map(Weak::upgrade).for_each(tell);
    }

    /// It gets invalidations of other changes from now on.
    pub(crate) fn set_scope(&self, client: usize, scope: Scope) {
        self.table.borrow_mut().set_scope(client, scope);
    }

    /// The client is gone, or wants nothing more.
    pub(crate) fn leave(&self, client: usize) {
        self.clients.borrow_mut()[client] = None;
        self.waiting.borrow_mut().retain(|(waiting, _)| *waiting != client);
        self.table.borrow_mut().leave(client);
    }

    /// Makes the lanes to all servers that have keys. Where some are on their way [`Connection::on_tracked`] follows.
    pub(crate) fn begin(&self, client: usize) -> Track {
        let Some(upstream) = self.upstream.upgrade() else { return Track::Refused(Refusal::Unreachable) };
        let shards = upstream.endpoints().shards();
        shards.iter().for_each(|&shard| self.want(shard));
        self.watch();
        // With no servers known yet, the client waits until they are.
        if !shards.is_empty() && shards.iter().all(|&shard| self.is_live(shard)) {
            return Track::Live;
        }
        self.waiting.borrow_mut().push((client, turn::now()));
        Track::Later
    }

    /// As [`Tracker::begin`], for a client that tracks already, at another upstream: no client waits for it.
    pub(crate) fn follow(&self, client: usize) {
        if self.begin(client) == Track::Later {
            self.waiting.borrow_mut().retain(|(waiting, _)| *waiting != client);
        }
    }

    fn is_live(&self, shard: u16) -> bool {
        self.lines.borrow().get(&shard).is_some_and(|line| line.is_live)
    }

    /// Somebody needs to hear of changes at `shard`.
    pub(crate) fn want(&self, shard: u16) {
        if shard == NOBODY {
            return;
        }
        let now = turn::now();
        let mut lines = self.lines.borrow_mut();
        if let Some(line) = lines.get_mut(&shard) {
            line.wanted_at = now;
            return;
        }
        let (Some(me), Some(upstream)) = (self.me.upgrade(), self.upstream.upgrade()) else { return };
        lines.insert(shard, Line { wanted_at: now, ..Line::default() });
        weir_engine::spawn(me.run(upstream, shard)).detach();
    }

    /// See [`Feeds::watch_keys`](weir_redis_session::io::Feeds::watch_keys).
    pub(crate) fn watch_keys(&self, client: usize, keys: &[(Name, u16)], remembers: bool) -> bool {
        keys.iter().for_each(|(_, shard)| self.want(*shard));
        if !keys.iter().all(|(_, shard)| self.is_live(*shard)) {
            return false;
        }
        if remembers {
            if keys.iter().any(|(key, _)| key.len() > KEY_BYTES_MAX) {
                return false;
            }
            for (key, _) in keys {
                let forgotten = self.table.borrow_mut().remember(client, key, KEYS_MAX);
                if !forgotten.is_empty() {
                    self.defer(forgotten);
                }
            }
        }
        true
    }

    /// Keys are forgotten for want of room. Not at once: the session that reads is in the middle of it.
    fn defer(&self, forgotten: Vec<EvictedKey>) {
        let me = self.me.clone();
        weir_engine::spawn(async move {
            let Some(tracker) = me.upgrade() else { return };
            for (key, readers) in forgotten {
                for reader in readers {
                    tracker.with_client(reader, |connection| connection.on_changed(&[&key]));
                }
            }
        })
        .detach();
    }

    /// See [`Feeds::forget_key`](weir_redis_session::io::Feeds::forget_key).
    pub(crate) fn forget(&self, client: usize, key: &[u8]) {
        self.table.borrow_mut().forget(client, key);
    }

    fn with_client(&self, client: usize, tell: impl FnOnce(&Connection)) {
        // A clone, because the callback may remove the client.
        let connection = self.clients.borrow().get(client).cloned().flatten();
        if let Some(connection) = connection {
            tell(&connection);
        }
    }

    fn changed(&self, keys: &[&[u8]]) {
        self.each_cache(|cache| cache.changed(keys));
        let clients = self.clients.borrow();
        self.table.borrow_mut().changed(keys, |client, keys| {
            if let Some(Some(connection)) = clients.get(client) {
                connection.on_changed(keys);
            }
        });
    }

    fn all_changed(&self) {
        self.each_cache(|cache| cache.clear());
        let followers = self.table.borrow_mut().all_changed();
        followers.into_iter().for_each(|client| self.with_client(client, Connection::on_all_changed));
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
                let Some(tracker) = me.upgrade() else { return };
                if !tracker.look() {
                    tracker.is_looking.set(false);
                    return;
                }
            }
        })
        .detach();
    }

    fn is_used(&self) -> bool {
        self.table.borrow().followers() > 0 || self.caches.borrow().iter().any(|cache| cache.strong_count() > 0)
    }

    fn look(&self) -> bool {
        let Some(upstream) = self.upstream.upgrade() else { return false };
        let is_used = self.is_used();
        if is_used {
            upstream.endpoints().shards().into_iter().for_each(|shard| self.want(shard));
            // Keys read at other servers are kept for as long as they do not change.
            let servers = upstream.endpoints().servers();
            let known: Vec<u16> = self.lines.borrow().keys().copied().filter(|shard| servers.contains(shard)).collect();
            known.into_iter().for_each(|shard| self.want(shard));
        }
        let primary = upstream.endpoints().primary();
        if self.primary.replace(primary) != primary {
            // Writes at the previous primary may not have reached the new one.
            self.all_changed();
        }
        self.look_at_lines(upstream.settings().request_timeout.min(REPLY_TIME_MAX));
        self.settle_waiting(upstream.settings().lane_wait_timeout);
        let keys = self.table.borrow().keys();
        upstream.add_tracked_keys(keys as i64 - self.reported_keys.replace(keys) as i64);
        is_used || !self.lines.borrow().is_empty()
    }

    fn look_at_lines(&self, reply_time_max: Duration) {
        let now = turn::now();
        for line in self.lines.borrow_mut().values_mut() {
            let Some(sender) = &line.sender else { continue };
            let is_late =
                line.asked.front().is_some_and(|asked| now.since((*asked).max(line.heard_at)) > reply_time_max);
            if is_late || now.since(line.wanted_at) > UNUSED_MAX {
                sender.cut();
            } else if line.asked.is_empty() && now.since(line.heard_at) > SILENCE_MAX {
                sender.send(PING);
                line.asked.push_back(now);
            }
        }
    }

    /// Replies to those who wait, if no more will come of it.
    fn settle_waiting(&self, patience: Duration) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        let Some(upstream) = self.upstream.upgrade() else { return };
        let shards = upstream.endpoints().shards();
        let (mut is_any_live, mut is_open, mut failure) = (false, shards.is_empty(), None);
        for shard in shards {
            match self.lines.borrow().get(&shard) {
                Some(line) => {
                    is_any_live |= line.is_live;
                    is_open |= !line.is_live && line.failure.is_none();
                    failure = failure.or_else(|| line.failure.clone());
                }
                None => is_open = true,
            }
        }
        let now = turn::now();
        let mut over = Vec::new();
        self.waiting.borrow_mut().retain(|(client, since)| {
            let is_over = !is_open || now.since(*since) > patience;
            over.extend(is_over.then_some(*client));
            !is_over
        });
        let failure = failure.unwrap_or_else(|| refusal::line(refusal::refused(Refusal::Unreachable)));
        // Reads at a server without a live tracking lane are not kept, so one failed server need not stop the others.
        let refused = (!is_any_live).then_some(&failure[..]);
        over.into_iter().for_each(|client| self.with_client(client, |connection| connection.on_tracked(refused)));
    }
}

/// Connections.
impl Tracker {
    /// Keeps a lane to `shard` for as long as somebody needs it.
    async fn run(self: Rc<Self>, upstream: Rc<RedisUpstream>, shard: u16) {
        let mut attempt = 0;
        loop {
            let failure = match upstream.tracking_lane(self.key(shard)).await {
                Ok(lane) => {
                    let (cause, failure) = self.listen(shard, lane).await;
                    upstream.subscription_lane_lost(self.key(shard), cause);
                    failure
                }
                // A server that does not know RESP3 does not know tracking.
                Err(Refusal::Greeting) => Some(unknown_subcommand()),
                Err(refusal) => Some(refusal::line(refusal::refused(refusal))),
            };
            let was_live = self.closed(shard, failure);
            if was_live {
                attempt = 0;
                self.each_cache(|cache| cache.set_live(shard, false));
                upstream.count_tracking_gap(self.key(shard));
                self.all_changed();
            }
            self.settle_waiting(upstream.settings().lane_wait_timeout);
            let wanted_at = self.lines.borrow().get(&shard).map(|line| line.wanted_at);
            let is_wanted = wanted_at.is_some_and(|wanted| turn::now().since(wanted) <= UNUSED_MAX);
            if !is_wanted {
                break;
            }
            weir_engine::sleep(upstream.pause(attempt)).await;
            attempt += 1;
        }
        self.lines.borrow_mut().remove(&shard);
    }

    /// The lane to `shard` is gone; true if changes were heard on it.
    fn closed(&self, shard: u16, failure: Option<Vec<u8>>) -> bool {
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(&shard) else { return false };
        line.sender = None;
        line.asked.clear();
        line.failure = failure.or_else(|| Some(refusal::line(refusal::refused(Refusal::Unreachable))));
        std::mem::take(&mut line.is_live)
    }

    /// One connection, from its beginning to its end; with the error, if the server does not want to tell.
    async fn listen(&self, shard: u16, mut lane: SubscriptionLane) -> (LossCause, Option<Vec<u8>>) {
        let sender = lane.sender();
        sender.send(&request());
        let now = turn::now();
        if let Some(line) = self.lines.borrow_mut().get_mut(&shard) {
            line.sender = Some(sender);
            line.heard_at = now;
            line.asked.push_back(now);
        }
        let mut feed = Feed::default();
        feed.open(now);
        let mut chunks = 0;
        loop {
            let Some(chunk) = lane.receive().await else { return (LossCause::Closed, None) };
            match self.receive(shard, &mut feed, &chunk) {
                Ok(None) => {}
                Ok(Some(error)) => return (LossCause::Retired, Some(error)),
                Err(violation) => {
                    lane.violated(&violation);
                    return (LossCause::Violation, None);
                }
            }
            drop(chunk);
            chunks += 1;
            if chunks % CHUNKS_PER_TURN_MAX == 0 {
                weir_engine::yield_now().await;
            }
        }
    }

    /// Takes bytes of the server of `shard`; an error line if it refuses.
    fn receive(
        &self,
        shard: u16,
        feed: &mut Feed,
        input: &[u8],
    ) -> Result<Option<Vec<u8>>, weir_base::violation::Violation> {
        let mut at = 0;
        while at < input.len() {
            let (taken, what) = feed.take(&input[at..])?;
            let piece = &input[at..at + taken];
            at += taken;
            let refused = match what {
                FrameProgress::Piece => None,
                FrameProgress::Frame => self.on_frame(shard, piece),
                FrameProgress::Held(held) => {
                    let refused = self.on_frame(shard, &held);
                    feed.give_back(held);
                    refused
                }
                // Whatever it named.
                FrameProgress::TooLarge(_) => {
                    self.all_changed();
                    None
                }
            };
            if refused.is_some() {
                return Ok(refused);
            }
        }
        Ok(None)
    }

    fn on_frame(&self, shard: u16, frame: &[u8]) -> Option<Vec<u8>> {
        let frame_kind = parse_frame(frame);
        let mut has_opened = false;
        if let Some(line) = self.lines.borrow_mut().get_mut(&shard) {
            line.heard_at = turn::now();
            if matches!(frame_kind, TrackingFrame::Reply) {
                line.asked.pop_front();
                has_opened = !std::mem::replace(&mut line.is_live, true);
                line.failure = None;
            }
        }
        match frame_kind {
            TrackingFrame::Changed(keys) => self.changed(&keys),
            TrackingFrame::AllChanged => self.all_changed(),
            TrackingFrame::Error => return Some(frame.to_vec()),
            TrackingFrame::Reply if has_opened => {
                self.each_cache(|cache| cache.set_live(shard, true));
                self.opened();
            }
            TrackingFrame::Reply | TrackingFrame::Notice => {}
        }
        None
    }

    /// One more server now reports changes. Keys of it that clients have kept meanwhile may have changed unreported.
    fn opened(&self) {
        let waiting: Vec<usize> = self.waiting.borrow().iter().map(|(client, _)| *client).collect();
        let followers = self.table.borrow_mut().all_changed();
        // A waiter has kept nothing yet.
        let told = followers.into_iter().filter(|client| !waiting.contains(client));
        told.for_each(|client| self.with_client(client, Connection::on_all_changed));
        if let Some(upstream) = self.upstream.upgrade() {
            self.settle_waiting(upstream.settings().lane_wait_timeout);
        }
    }
}

/// The text on which clients turn the feature off.
fn unknown_subcommand() -> Vec<u8> {
    refusal::line("ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.")
}
