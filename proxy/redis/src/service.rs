//! One Redis listener on one worker: what its sessions share.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    rc::{Rc, Weak},
    sync::Arc,
};

use slab::Slab;
use weir_base::{
    rate::LocalRate,
    rng::Rng,
    time::{Time, turn},
    violation::Violation,
};
use weir_listener::{CoreShare, Drain, Reports, settings::ListenerSettings};
use weir_telemetry::{
    access::AccessRecord,
    log::{Denial, LogEvent, Peer},
    sample::{OncePerSecond, Share, Verdict},
};
use weir_upstream::Upstream;

use crate::{
    cache::Cache,
    connection::Connection,
    insight::Insight,
    lane::RespLane,
    metrics::ListenerMetrics,
    moving::Mover,
    settings::RedisListenerSettings,
    tracking::{Notice, Tracker},
    users::{ListenerShare, OWN_LOGIN},
};

/// An upstream of Redis sessions.
pub type RedisUpstream = Upstream<RespLane, Connection>;

/// What the Redis listeners of one worker share besides [`CoreShare`].
#[derive(Clone)]
pub struct RedisShare {
    /// Clients that wait for room, of all listeners of the core.
    pub waiting: Rc<RefCell<VecDeque<Weak<Connection>>>>,
    /// What it remembers of its requests.
    pub insight: Rc<Insight>,
    /// Brings a notice to another worker; false if that one has too much to do already.
    pub post: Post,
}

/// See [`RedisShare::post`].
pub type Post = Rc<dyn Fn(usize, Notice) -> bool>;

/// One listener on one worker.
pub struct Service {
    pub(crate) core: CoreShare,
    pub(crate) own: RedisShare,
    pub(crate) metrics: Rc<ListenerMetrics>,
    /// What this worker may send to the server per second.
    pub(crate) rate: LocalRate,
    /// What it counts of its users together with the other workers.
    pub(crate) share: Arc<ListenerShare>,
    name: Arc<str>,
    listener: RefCell<Rc<ListenerSettings>>,
    redis: RefCell<Rc<RedisListenerSettings>>,
    upstream: RefCell<Rc<RedisUpstream>>,
    connections: RefCell<Slab<Weak<Connection>>>,
    /// The reply cache in front of the upstream, if there is one.
    cache: RefCell<Option<Rc<Cache>>>,
    /// Those that are told of changed keys in place of others.
    noticed: RefCell<HashMap<u64, Weak<Connection>>>,
    /// See [`Cache::new`].
    cache_moment: Rc<Cell<u64>>,
    blocked: Cell<u32>,
    drain: Cell<Drain>,
    /// Takes connections to the process that serves in place of this one.
    mover: RefCell<Option<Mover>>,
    sampler: RefCell<OncePerSecond>,
    reports: Reports,
    access: RefCell<Share>,
    stage_countdown: Cell<u32>,
    /// One request of this many is timed in detail; 0: none.
    stage_every: u32,
}

impl Service {
    /// A listener with its settings and upstream.
    pub fn new(
        (core, own): (CoreShare, RedisShare),
        listener: ListenerSettings,
        redis: RedisListenerSettings,
        upstream: Rc<RedisUpstream>,
        share: Arc<ListenerShare>,
    ) -> Rc<Self> {
        let rng = Rng::new(Time::now().as_nanos() ^ core.worker as u64);
        let reports = Reports::new(&core, listener.name.clone());
        let cache_moment = Rc::<Cell<u64>>::default();
        let cache = make_cache(&core, &listener.name, &redis, &upstream, &cache_moment);
        Rc::new(Self {
            metrics: Rc::new(ListenerMetrics::new(&core.metrics, &listener.name)),
            name: listener.name.clone(),
            share,
            rate: LocalRate::new(listener.requests_per_second_per_core, turn::now()),
            access: RefCell::new(Share::new(listener.access_log_sample, rng)),
            listener: RefCell::new(Rc::new(listener)),
            redis: RefCell::new(Rc::new(redis)),
            upstream: RefCell::new(upstream),
            connections: RefCell::default(),
            cache: RefCell::new(cache),
            noticed: RefCell::default(),
            cache_moment,
            blocked: Cell::new(0),
            drain: Cell::new(Drain::Off),
            mover: RefCell::new(None),
            sampler: RefCell::new(OncePerSecond::new()),
            reports,
            stage_countdown: Cell::new(0),
            stage_every: if core.stage_sample > 0.0 { (1.0 / core.stage_sample).round() as u32 } else { 0 },
            core,
            own,
        })
    }

    /// New settings. Open sessions keep their limits and move to the new upstream in their first quiet moment; the limit on
    /// the rate is the listener's and holds at once, and so do the rules of users.
    pub fn update(&self, listener: ListenerSettings, redis: RedisListenerSettings, upstream: Rc<RedisUpstream>) {
        let rng = Rng::new(Time::now().as_nanos());
        self.rate.set(listener.requests_per_second_per_core, turn::now());
        *self.access.borrow_mut() = Share::new(listener.access_log_sample, rng);
        let is_other = self.cache().as_ref().map(|cache| cache.settings()) != redis.cache.as_ref();
        if is_other || !Rc::ptr_eq(&self.upstream(), &upstream) {
            *self.cache.borrow_mut() = make_cache(&self.core, &self.name, &redis, &upstream, &self.cache_moment);
        }
        *self.listener.borrow_mut() = Rc::new(listener);
        *self.redis.borrow_mut() = Rc::new(redis);
        *self.upstream.borrow_mut() = upstream;
        self.update_users();
        self.wake_all();
    }

    /// Lets the sessions look again: which server is the primary was not known, and is now.
    pub fn primary_found(&self) {
        self.wake_all();
    }

    /// Begins a drain in which connections do not end but move, each in its first quiet moment.
    pub fn move_away(&self, mover: Mover) {
        *self.mover.borrow_mut() = Some(mover);
        self.drain(Drain::Gentle);
    }

    pub(crate) fn mover(&self) -> Option<Mover> {
        self.mover.borrow().clone()
    }

    #[inline]
    pub(crate) fn is_moving_away(&self) -> bool {
        self.drain.get() != Drain::Off && self.mover.borrow().is_some()
    }

    /// The users are those of the settings from now on, for open sessions too.
    fn update_users(&self) {
        let redis = self.redis();
        self.share.forget_others(redis.users.as_deref());
        for connection in self.open() {
            if connection.follow_users(redis.users.as_ref()) {
                connection.end("user_removed");
            }
        }
    }

    /// Begins or hardens a drain.
    pub fn drain(&self, drain: Drain) {
        self.drain.set(drain);
        self.wake_all();
    }

    /// Ends every session now; how many connections and requests were cut.
    pub fn cut(&self) -> (usize, u64) {
        let connections = self.open();
        let requests = connections.iter().map(|connection| connection.outstanding()).sum();
        connections.iter().for_each(|connection| connection.end("drain_cut"));
        (connections.len(), requests)
    }

    /// Ends the sessions that CLIENT KILL named.
    pub fn end_killed(&self) {
        for connection in self.open() {
            if connection.entry_is_killed() {
                connection.end("killed");
            }
        }
    }

    /// Sessions that still use `upstream`.
    pub fn uses(&self, upstream: &Rc<RedisUpstream>) -> bool {
        let is_current = Rc::ptr_eq(&self.upstream.borrow(), upstream);
        is_current || self.open().iter().any(|connection| connection.uses(upstream))
    }

    /// Sessions open on this worker.
    pub fn open_count(&self) -> usize {
        self.open().len()
    }

    /// The name in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn listener(&self) -> Rc<ListenerSettings> {
        self.listener.borrow().clone()
    }

    pub(crate) fn redis(&self) -> Rc<RedisListenerSettings> {
        self.redis.borrow().clone()
    }

    pub(crate) fn upstream(&self) -> Rc<RedisUpstream> {
        self.upstream.borrow().clone()
    }

    /// The reply cache in front of [`Service::upstream`].
    #[inline]
    pub(crate) fn cache(&self) -> Option<Rc<Cache>> {
        self.cache.borrow().clone()
    }

    pub(crate) fn drain_state(&self) -> Drain {
        self.drain.get()
    }

    /// Lists a connection until the result is dropped. A connection that has ended must not stay: the list would keep the
    /// memory of thousands after a peak.
    pub(crate) fn enter(self: &Rc<Self>, connection: &Rc<Connection>) -> Listed {
        let key = self.connections.borrow_mut().insert(Rc::downgrade(connection));
        Listed { service: self.clone(), key }
    }

    fn open(&self) -> Vec<Rc<Connection>> {
        self.connections
            .borrow()
            .iter()
            .filter_map(|(_, connection)| connection.upgrade())
            .filter(|c| !c.is_over())
            .collect()
    }

    fn wake_all(&self) {
        self.open().iter().for_each(|connection| connection.wake());
    }

    /// Tells one of the clients what has changed.
    pub fn notify(&self, notice: &Notice) {
        let known = self.noticed.borrow().get(&notice.client).and_then(Weak::upgrade);
        let client = known.or_else(|| self.find_noticed(notice.client));
        if let Some(client) = client.filter(|client| !client.is_over()) {
            client.on_notice(notice);
        }
    }

    #[cold]
    fn find_noticed(&self, id: u64) -> Option<Rc<Connection>> {
        let found = self.open().into_iter().find(|connection| connection.id() == id);
        let mut noticed = self.noticed.borrow_mut();
        noticed.retain(|_, connection| connection.strong_count() > 0);
        if let Some(found) = &found {
            noticed.insert(id, Rc::downgrade(found));
        }
        found
    }

    /// One more client sits in a blocking command; false if there are too many.
    pub(crate) fn try_block(&self) -> bool {
        let has_room = self.blocked.get() < self.redis.borrow().blocking_max;
        self.blocked.set(self.blocked.get() + u32::from(has_room));
        has_room
    }

    pub(crate) fn unblock(&self) {
        self.blocked.set(self.blocked.get().saturating_sub(1));
    }

    pub(crate) fn wait_for_room(&self, connection: Weak<Connection>) {
        self.own.waiting.borrow_mut().push_back(connection);
    }

    /// `count` exchanges are over: the first that wait may go on.
    #[inline]
    pub(crate) fn room_freed(&self, count: u64) {
        if !self.own.waiting.borrow().is_empty() {
            self.wake_waiting(count);
        }
    }

    #[cold]
    fn wake_waiting(&self, mut count: u64) {
        while count > 0 {
            let Some(next) = self.own.waiting.borrow_mut().pop_front() else { return };
            count -= u64::from(next.upgrade().is_some_and(|connection| connection.take_room()));
        }
    }

    /// Whether the stages of the next request are timed.
    #[inline]
    pub(crate) fn samples_stages(&self) -> bool {
        let left = self.stage_countdown.get();
        if left > 1 {
            self.stage_countdown.set(left - 1);
            return false;
        }
        self.stage_countdown.set(self.stage_every);
        self.stage_every != 0
    }

    /// Whether the next request is written to the access log.
    #[inline]
    pub(crate) fn samples_access(&self) -> bool {
        self.core.log.has_access_log() && self.access.borrow_mut().check()
    }

    pub(crate) fn log_access(&self, record: &AccessRecord<'_>) {
        self.core.log.access(record);
    }

    /// Logs that a user was denied something, once a second per reason.
    pub(crate) fn note_denied(&self, user: &str, reason: &'static str, peer: Peer, connection: u64) {
        let verdict = self.sampler.borrow_mut().check(&self.name, reason, turn::now());
        if let Verdict::Log { suppressed } = verdict {
            self.core.log.push(LogEvent::Denial(Denial {
                at: turn::now(),
                listener: self.name.clone(),
                peer,
                connection,
                user: user.to_owned(),
                reason,
                suppressed,
            }));
        }
    }

    /// Counts a violation and logs it, once a second per reason.
    pub(crate) fn report(&self, violation: &Violation, peer: Peer, connection: u64, is_close: bool) {
        self.reports.report(violation, peer, connection, is_close);
    }
}

/// A reply cache that hears of what changes at `upstream`, if the listener wants one.
fn make_cache(
    core: &CoreShare,
    listener: &str,
    redis: &RedisListenerSettings,
    upstream: &Rc<RedisUpstream>,
    moment: &Rc<Cell<u64>>,
) -> Option<Rc<Cache>> {
    let settings = redis.cache.clone()?;
    // Servers tell of all keys, whoever asks.
    let tracker = Tracker::of(upstream, OWN_LOGIN);
    let weak = Rc::downgrade(&tracker);
    let want = move |shard| {
        if let Some(tracker) = weak.upgrade() {
            tracker.want(shard);
        }
    };
    let cache = Cache::new(settings, &core.metrics, listener, moment.clone(), want);
    tracker.add_cache(&cache);
    Some(cache)
}

/// A place in the list of a service's connections.
pub(crate) struct Listed {
    service: Rc<Service>,
    key: usize,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.service.connections.borrow_mut().remove(self.key);
    }
}
