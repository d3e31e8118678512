//! One Redis listener on one worker: what its sessions share.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    rc::{Rc, Weak},
    sync::Arc,
};

use weir_base::{rate::LocalRate, time::turn};
use weir_listener::{
    Arrival, CloseReason, ConnectionFuture, ConnectionHandle, CoreShare, Drain, Mover, Session as _, Sessions,
    settings::ListenerSettings,
};
use weir_telemetry::log::{Denial, LogEvent};
use weir_upstream::Upstream;

use weir_redis_session::{
    cache::Cache,
    insight::Insight,
    moving::MovedSession,
    settings::RedisListenerSettings,
    spares::Spares,
    tracking::Notice,
    users::{ListenerShare, OWN_LOGIN},
};

use crate::{
    connection::{self, Connection},
    lane::RespLane,
    metrics::{Done, ListenerMetrics},
    spare_lists::SpareLists,
    tracker::Tracker,
};

/// An upstream of Redis sessions.
pub type RedisUpstream = Upstream<RespLane, Connection>;

/// State shared by the Redis listeners of one worker besides [`CoreShare`].
#[derive(Clone)]
pub struct RedisShare {
    /// Clients that wait for room, of all listeners of the core.
    pub waiting: Rc<RefCell<VecDeque<Weak<Connection>>>>,
    /// The worker's record of its requests.
    pub insight: Rc<Insight>,
}

/// One listener on one worker.
pub struct Service {
    pub(crate) sessions: Sessions,
    pub(crate) own: RedisShare,
    pub(crate) metrics: Rc<ListenerMetrics>,
    /// Rate limit of this worker's requests to the server.
    pub(crate) rate: LocalRate,
    /// Counts of the listener's users, shared with the other workers.
    pub(crate) share: Arc<ListenerShare>,
    /// Memory that sessions have only while they need it.
    pub(crate) spares: Rc<Spares>,
    pub(crate) done_lists: SpareLists<Done>,
    redis: RefCell<Rc<RedisListenerSettings>>,
    upstream: RefCell<Rc<RedisUpstream>>,
    /// The primary of the upstream was known at the last look.
    has_primary: Cell<bool>,
    /// The reply cache in front of the upstream, if there is one.
    cache: RefCell<Option<Rc<Cache>>>,
    /// Clients that get changed keys in place of others.
    noticed: RefCell<HashMap<u64, Weak<Connection>>>,
    /// See [`Cache::new`].
    cache_moment: Rc<Cell<u64>>,
    blocked: Cell<u32>,
    /// Takes connections to the process that serves in place of this one.
    mover: RefCell<Option<Mover>>,
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
        let cache_moment = Rc::<Cell<u64>>::default();
        let cache = make_cache(&core, &listener.name, &redis, &upstream, &cache_moment);
        Rc::new(Self {
            metrics: Rc::new(ListenerMetrics::new(&core, &listener.name)),
            share,
            spares: Rc::default(),
            done_lists: SpareLists::default(),
            rate: LocalRate::new(listener.requests_per_second_per_core, turn::now()),
            redis: RefCell::new(Rc::new(redis)),
            has_primary: Cell::new(upstream.endpoints().primary().is_some()),
            upstream: RefCell::new(upstream),
            cache: RefCell::new(cache),
            noticed: RefCell::default(),
            cache_moment,
            blocked: Cell::new(0),
            mover: RefCell::new(None),
            sessions: Sessions::new(core, listener),
            own,
        })
    }

    /// New settings. Open sessions keep their limits and move to the new upstream in their first quiet moment; the limit on
    /// the rate is the listener's and holds at once, and so do the rules of users.
    pub fn update(&self, listener: ListenerSettings, redis: RedisListenerSettings, upstream: Rc<RedisUpstream>) {
        self.rate.set(listener.requests_per_second_per_core, turn::now());
        let is_other = self.cache().as_ref().map(|cache| cache.settings()) != redis.cache.as_ref();
        if is_other || !Rc::ptr_eq(&self.upstream(), &upstream) {
            *self.cache.borrow_mut() =
                make_cache(self.sessions.core(), self.sessions.name(), &redis, &upstream, &self.cache_moment);
        }
        self.sessions.update(listener);
        *self.redis.borrow_mut() = Rc::new(redis);
        self.has_primary.set(upstream.endpoints().primary().is_some());
        *self.upstream.borrow_mut() = upstream;
        self.update_users();
        self.sessions.wake_all();
    }

    pub(crate) fn mover(&self) -> Option<Mover> {
        self.mover.borrow().clone()
    }

    #[inline]
    pub(crate) fn is_moving_away(&self) -> bool {
        self.sessions.drain_state() != Drain::Off && self.mover.borrow().is_some()
    }

    /// The users are those of the settings from now on, for open sessions too.
    fn update_users(&self) {
        let redis = self.redis();
        self.share.forget_others(redis.users.as_deref());
        for connection in self.connections() {
            if connection.follow_users(redis.users.as_ref()) {
                connection.end(CloseReason::Ended("user_removed"));
            }
        }
    }

    /// The connections that are open and not over.
    fn connections(&self) -> impl Iterator<Item = Rc<Connection>> {
        let all = self.sessions.all().into_iter();
        all.filter_map(|session| (session as Rc<dyn Any>).downcast::<Connection>().ok())
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

    #[cold]
    fn find_noticed(&self, id: u64) -> Option<Rc<Connection>> {
        let found = self.connections().find(|connection| connection.id() == id);
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

    /// Logs that a user was denied something, once a second per reason.
    pub(crate) fn note_denied(&self, user: &str, reason: &'static str, client: &ConnectionHandle) {
        let (at, listener) = (turn::now(), self.sessions.name());
        self.sessions.core().events.push(listener, reason, at, |suppressed| {
            let (listener, user) = (listener.clone(), user.to_owned());
            let (peer, connection) = (client.peer(), client.id());
            LogEvent::Denial(Denial { at, listener, peer, connection, user, reason, suppressed })
        });
    }
}

impl weir_listener::Service for Service {
    fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    fn serve(self: Rc<Self>, arrival: Arrival) -> ConnectionFuture {
        connection::serve(self, arrival)
    }

    fn refusal(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }

    fn uses(&self, upstream: &dyn Any) -> bool {
        let Some(upstream) = upstream.downcast_ref::<RedisUpstream>() else { return false };
        let is_current = std::ptr::eq(&**self.upstream.borrow(), upstream);
        is_current || self.connections().any(|connection| connection.uses(upstream))
    }

    /// Writes of a client's last connection take effect before its next connection reads.
    fn keeps_order(&self) -> bool {
        true
    }

    /// Tells one of the clients which keys have changed.
    fn deliver(&self, message: &dyn Any) {
        let Some(notice) = message.downcast_ref::<Notice>() else { return };
        let known = self.noticed.borrow().get(&notice.client).and_then(Weak::upgrade);
        let client = known.or_else(|| self.find_noticed(notice.client));
        if let Some(client) = client.filter(|client| !client.is_over()) {
            client.on_notice(notice);
        }
    }

    /// Lets the sessions look again once the primary is known.
    fn tick(&self) {
        let is_known = self.upstream.borrow().endpoints().primary().is_some();
        if self.has_primary.replace(is_known) != is_known && is_known {
            self.sessions.wake_all();
        }
    }

    fn takes(&self, session: &dyn Any) -> bool {
        session.is::<MovedSession>()
    }

    fn move_away(&self, mover: Mover) {
        *self.mover.borrow_mut() = Some(mover);
        self.sessions.drain(Drain::Gentle);
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
    // Servers report changes of all keys, whichever login tracks.
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
