//! The gateway's side of the calls of a session.

use std::{
    cell::Cell,
    fmt::Write as _,
    net::IpAddr,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use weir_analysis::redis::{Class, Command};
use weir_base::{
    permit::LocalPermit,
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::settings::Address;
use weir_listener::ConnectionEntry;
use weir_telemetry::log::Peer;
use weir_upstream::{Exchange, Node, Refusal, SlotMap, placement::KeyLocation};

use super::{AccessSample, Connection, Shared, own_lanes::Pinned};
use weir_redis_session::{
    PinReason,
    cache::Cache,
    client::write_line,
    io::{
        Admission, Clients, Clock, Feeds, Full, Lanes, NoSubscription, Pinning, Replies, Sample, Tally, Ticket,
        Topology, Track,
    },
    lane::{LaneKey, ServerInfo},
    pubsub::{Kind, Name},
    tracking::{Notice, Scope},
    users::ListenerShare,
};

impl Connection {
    /// The exchange of a request that goes on the lane of `key`.
    #[inline]
    fn exchange(
        &self,
        ticket: Ticket,
        permit: Option<LocalPermit>,
        key: LaneKey,
        request: &[u8],
    ) -> Option<Exchange<Connection>> {
        let waiter = self.me.upgrade()?;
        self.note_sent(ticket, key, request);
        self.exchanges_begun(ticket.count, ticket.has_deadline);
        let parsed = self.parsed_at.replace(Time::NEVER);
        if parsed != Time::NEVER {
            self.stages.set((ticket.number, parsed, Time::now()));
        }
        if let Some(access) = self.access.get()
            && let Some(sample) = access.borrow_mut().back_mut().filter(|sample| sample.number.is_none())
        {
            sample.number = Some(ticket.number);
            sample.request_bytes = request.len() as u64;
        }
        Some(Exchange {
            waiter,
            number: ticket.number,
            count: ticket.count,
            skip: ticket.skip,
            has_deadline: ticket.has_deadline,
            arrived: turn::now(),
            permit,
        })
    }

    /// The connections of this listener, on all workers.
    fn neighbours(&self) -> impl Iterator<Item = Arc<ConnectionEntry>> {
        let listener = self.handle.entry().listener.clone();
        let is_there =
            move |entry: &Arc<ConnectionEntry>| entry.listener == listener && !entry.is_killed() && !entry.has_left();
        self.handle.table().entries().into_iter().filter(is_there)
    }

    /// Chooses this command for the access log. Commands that the gateway answers itself are logged at once.
    #[cold]
    fn begin_access_record(&self, command: Option<&'static Command>) {
        let name = command.map_or("unknown", |command| command.name);
        let sample = AccessSample { number: None, command: name, request_bytes: 0, reply_bytes: 0 };
        if command.is_some_and(|command| matches!(command.class, Class::Local(_))) {
            self.log_access(&sample, 0, 0, false, None);
        } else {
            self.access.get_or_init(Box::default).borrow_mut().push_back(sample);
        }
    }

    /// A command that was chosen for the access log and then not sent must not lend its name to the next.
    #[inline]
    fn drop_unsent_sample(&self) {
        if let Some(access) = self.access.get() {
            access.borrow_mut().pop_back_if(|last| last.number.is_none());
        }
    }

    /// Requests in flight go into the access log.
    #[inline]
    pub(super) fn has_access_samples(&self) -> bool {
        self.access.get().is_some_and(|access| !access.borrow().is_empty())
    }

    fn hold_lane(
        &self,
        lane: Rc<weir_upstream::Lane<crate::lane::RespLane, Connection>>,
        key: LaneKey,
        is_blocking: bool,
    ) {
        let upstream = self.upstream.borrow().clone();
        *self.own_lanes().pinned.borrow_mut() = Some(Pinned { lane, key, upstream, is_blocking });
    }
}

impl Clock for Connection {
    #[inline]
    fn now(&self) -> Time {
        turn::now()
    }

    fn retry_later(&self, exchange: u64, pause: Duration) {
        let me = self.me.clone();
        weir_engine::spawn(async move {
            weir_engine::sleep(pause).await;
            if let Some(connection) = me.upgrade() {
                connection.retry(exchange);
            }
        })
        .detach();
    }
}

impl Replies for Connection {
    #[inline]
    fn reply(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.output.with(encode);
    }

    #[inline]
    fn is_congested(&self) -> bool {
        self.output.is_congested()
    }
}

impl Admission for Connection {
    #[inline]
    fn full(&self) -> Option<Full> {
        if !self.service.sessions.core().flight.has_room() {
            Some(Full::InFlight)
        } else if self.is_over_budget.get() {
            Some(Full::Buffered)
        } else if self.upstream.borrow().endpoints().primary().is_none() {
            Some(Full::NoPrimary)
        } else {
            None
        }
    }

    fn room(&self) -> u64 {
        self.service.sessions.core().flight.room()
    }

    #[inline]
    fn admit(&self, count: u64) -> bool {
        self.service.rate.try_take(count, turn::now())
    }
}

impl Lanes for Connection {
    fn server(&self, key: LaneKey) -> Option<Rc<ServerInfo>> {
        self.upstream.borrow().protocol().server(key.version)
    }

    #[inline]
    fn batch_room(&self, key: LaneKey) -> u64 {
        match self.shared.borrow().get(key) {
            Some(shared) if self.full().is_none() && !self.must_settle(key) => self
                .service
                .sessions
                .core()
                .flight
                .room()
                .min(shared.lane.room(self))
                .min(self.service.rate.room(turn::now())),
            _ => 0,
        }
    }

    #[inline]
    fn must_settle(&self, key: LaneKey) -> bool {
        let changed =
            |shared: &Shared| shared.lane.serial(self).is_none_or(|serial| shared.serial.get() != Some(serial));
        self.on_their_way.get() > 0 && self.shared.borrow().get(key).is_some_and(changed)
    }

    #[inline]
    fn forward(&self, key: LaneKey, request: &[u8], ticket: Ticket) -> Result<(), Refusal> {
        let permit = self.service.sessions.core().flight.try_acquire_many(ticket.count).ok_or(Refusal::QueueFull)?;
        let exchange = self.exchange(ticket, Some(permit), key, request).ok_or(Refusal::QueueFull)?;
        let send = |shared: &Shared| {
            let sent = shared.lane.send(request, exchange);
            shared.serial.set(shared.lane.serial(self));
            sent.inspect_err(|_| self.exchanges_over(ticket.count))
        };
        let mut shared = self.shared.borrow_mut();
        if let Some(shared) = shared.get(key) {
            return send(shared);
        }
        let lane = self.upstream.borrow().shared(key, self.handle.id());
        send(shared.add(Shared { key, lane, serial: Cell::new(None) }))
    }

    fn request_complete(&self) {
        self.with_pinned(|pinned| pinned.lane.limit_last());
    }

    fn pin(&self, key: LaneKey, reason: PinReason) -> Pinning {
        // A lane that arrived after the session's request for it is used first.
        if self.with_pinned(|pinned| pinned.key == key) == Some(true) {
            return Pinning::Ready;
        }
        let Some(me) = self.me.upgrade() else { return Pinning::Later };
        let is_blocking = reason == PinReason::Blocking;
        if is_blocking && !self.service.try_block() {
            return Pinning::TooManyBlocked;
        }
        let upstream = self.upstream.borrow().clone();
        upstream.count_pin(key, reason.name());
        match upstream.pin(key, &me, self.is_parked()) {
            Ok(Some(lane)) => {
                self.hold_lane(lane, key, is_blocking);
                Pinning::Ready
            }
            Err(refusal) => {
                if is_blocking {
                    self.service.unblock();
                }
                Pinning::Refused(refusal)
            }
            Ok(None) => {
                *self.own_lanes().asked.borrow_mut() = Some((key, is_blocking, upstream));
                Pinning::Later
            }
        }
    }

    fn forward_pinned(&self, request: &[u8], ticket: Ticket) {
        let lane = self.with_pinned(|pinned| (pinned.lane.clone(), pinned.key));
        let permit = self.service.sessions.core().flight.try_acquire();
        if let Some((lane, key)) = lane
            && let Some(exchange) = self.exchange(ticket, permit, key, request)
        {
            if !ticket.has_deadline {
                self.handle.entry().set_blocked_as(key.shard, lane.greeting().id);
            }
            lane.send(request, exchange);
        }
    }

    fn write_pinned(&self, bytes: &[u8]) {
        self.with_pinned(|pinned| pinned.lane.write(bytes));
    }

    fn is_pin_congested(&self) -> bool {
        self.with_pinned(|pinned| pinned.lane.output().is_congested()) == Some(true)
    }

    fn set_tunnel(&self, is_tunnel: bool) {
        self.with_pinned(|pinned| pinned.lane.set_tunnel(is_tunnel));
    }

    fn park(&self) {
        let own = self.own_lanes();
        *own.parked.borrow_mut() = own.pinned.take();
    }

    fn unpark(&self) {
        if let Some(parked) = self.take_parked() {
            *self.own_lanes().pinned.borrow_mut() = Some(parked);
        }
    }

    fn unpin(&self, is_clean: bool) {
        if let Some(pinned) = self.take_pinned() {
            self.return_lane(pinned, is_clean);
        }
    }
}

impl Topology for Connection {
    #[inline]
    fn primary(&self) -> Option<u16> {
        self.upstream.borrow().endpoints().primary()
    }

    fn read_from(&self, shard: u16) -> u16 {
        self.upstream.borrow().read_from(shard, self.handle.id())
    }

    #[inline]
    fn is_sharded(&self) -> bool {
        self.upstream.borrow().endpoints().is_spread()
    }

    fn shards(&self) -> Vec<u16> {
        self.upstream.borrow().endpoints().shards()
    }

    fn place(&self, key: &[u8]) -> KeyLocation {
        self.upstream.borrow().endpoints().place(key)
    }

    fn shard_of(&self, group: u16) -> u16 {
        self.upstream.borrow().endpoints().shard_of(group)
    }

    fn keyless(&self) -> u16 {
        let upstream = self.upstream.borrow();
        upstream.endpoints().slots().map_or_else(|| upstream.endpoints().primary().unwrap_or(0), SlotMap::first)
    }

    fn home(&self) -> u16 {
        self.upstream.borrow().endpoints().home()
    }

    fn topology(&self) -> Option<u64> {
        self.upstream.borrow().endpoints().slots().map(SlotMap::version)
    }

    fn redirected(&self, slot: Option<u16>, node: &Node, from: u16) -> Option<u16> {
        let upstream = self.upstream.borrow();
        let target = upstream.endpoints().find(node, from)?;
        if let (Some(slot), Some(slots)) = (slot, upstream.endpoints().slots()) {
            slots.moved(slot, from, target, turn::now());
            // One slot moved; others may have.
            upstream.endpoints().refresh();
        }
        Some(target)
    }

    fn refresh(&self) {
        self.upstream.borrow().endpoints().refresh();
    }

    fn advertised(&self) -> (String, u16) {
        let bind = &self.service.sessions.settings().bind;
        let host = match bind {
            Address::Socket(address) if !address.ip().is_unspecified() => address.ip().to_string(),
            _ => String::new(),
        };
        (host, bind.port().unwrap_or_default())
    }
}

impl Feeds for Connection {
    fn subscribe(&self, login: u64, kind: Kind, names: &[Name]) -> Result<(), NoSubscription> {
        let Some((hub, client)) = self.join_hub(login) else {
            return Err(NoSubscription::Refused(Refusal::Unreachable));
        };
        hub.subscribe(client, kind, names)
    }

    fn unsubscribe(&self, kind: Kind, names: &[Name]) -> bool {
        self.hub().is_none_or(|(hub, client)| hub.unsubscribe(client, kind, names))
    }

    fn unsubscribe_all(&self) {
        self.leave_hub();
    }

    fn note_subscriptions(&self, count: usize) {
        self.count_subscriptions(count);
    }

    fn publish(&self, login: u64, kind: Kind, name: &[u8], request: &[u8]) -> bool {
        self.join_hub(login).is_some_and(|(hub, client)| hub.publish_own(client, kind, name, request))
    }

    fn track(&self, login: u64, scope: &Scope) -> Track {
        self.begin_tracking(login, scope)
    }

    fn untrack(&self) {
        self.end_tracking();
    }

    fn note_tracking(&self, tracks: bool) {
        self.count_tracking(tracks);
    }

    fn watch_keys(&self, keys: &[(Name, u16)], remembers: bool) -> bool {
        self.watch(keys, remembers)
    }

    fn forget_key(&self, key: &[u8]) {
        self.unwatch(key);
    }

    #[inline]
    fn cache(&self) -> Option<Rc<Cache>> {
        let cache = self.service.cache()?;
        // It is in front of the upstream of now, which this client may not have moved to yet.
        Rc::ptr_eq(&self.upstream.borrow(), &self.service.upstream()).then_some(cache)
    }
}

impl Clients for Connection {
    fn entry(&self) -> &ConnectionEntry {
        self.handle.entry()
    }

    fn source(&self) -> Option<IpAddr> {
        match self.handle.peer() {
            Peer::Ip(address) => Some(address.ip()),
            Peer::Unix => None,
        }
    }

    fn share(&self) -> Option<&ListenerShare> {
        Some(&self.service.share)
    }

    fn find_client(&self, id: u64) -> Option<Arc<ConnectionEntry>> {
        self.neighbours().find(|entry| entry.id == id)
    }

    fn post(&self, client: &ConnectionEntry, keys: Option<&[&[u8]]>) {
        let keys = keys.map(|keys| keys.iter().map(|key| Box::from(*key)).collect());
        let notice = Notice { client: client.id, keys };
        let core = self.service.sessions.core();
        if !(core.post)(client.worker, &client.listener, Box::new(notice)) {
            // Its worker has fallen far behind. It must not keep a value whose invalidation it may miss.
            self.handle.table().kill(client);
        }
    }

    fn list_clients(&self, filter: &dyn Fn(&ConnectionEntry) -> bool, out: &mut Vec<u8>) {
        let now = turn::now();
        self.neighbours().filter(|entry| filter(entry)).for_each(|entry| write_line(out, &entry, now));
    }

    fn kill_clients(&self, filter: &dyn Fn(&ConnectionEntry) -> bool) -> u64 {
        let named = self.neighbours().filter(|entry| filter(entry));
        named.map(|entry| self.handle.table().kill(&entry)).count() as u64
    }

    fn blocked_as(&self, id: u64) -> Option<(u16, u64)> {
        self.neighbours().find(|entry| entry.id == id)?.blocked_as()
    }
}

impl Tally for Connection {
    #[inline]
    fn draw_sample(&self) -> Sample {
        Sample {
            is_timed: self.service.metrics.durations.samples_stages(),
            is_logged: self.service.sessions.samples_access(),
        }
    }

    #[inline]
    fn begin_command(&self, sample: Sample) {
        self.parsed_at.set(if sample.is_timed { Time::now() } else { Time::NEVER });
        self.is_logged.set(sample.is_logged);
        self.drop_unsent_sample();
    }

    #[inline]
    fn count(&self, command: Option<&'static Command>, times: u64) {
        self.service.metrics.command(command, times);
        let entry = self.handle.entry();
        entry.active_at.store(turn::now().as_nanos(), Relaxed);
        entry.last_command.store(command.map_or(0, |command| u32::from(command.id.0) + 1), Relaxed);
        if self.is_logged.take() {
            self.begin_access_record(command);
        }
    }

    fn count_shed(&self, reason: &'static str) {
        self.service.metrics.shed(reason);
    }

    fn count_refused(&self, command: Option<&'static Command>, reason: &'static str) {
        self.service.metrics.command(command, 1);
        self.service.metrics.shed(reason);
    }

    fn count_auth_failure(&self) {
        self.service.metrics.auth_failed();
    }

    fn count_error(&self, reply: &[u8]) {
        if reply.starts_with(b"-READONLY") {
            // The primary has become a replica.
            self.upstream.borrow().endpoints().refresh();
        }
        self.service.metrics.error_reply(reply);
    }

    fn count_redirect(&self, kind: &'static str) {
        self.upstream.borrow().endpoints().count_redirect(kind);
    }

    fn count_invalidations(&self, count: usize) {
        self.service.metrics.invalidations.add(count as u64);
    }

    fn count_denied(&self, user: &str, reason: &'static str) {
        self.service.metrics.denied(user, reason);
        self.service.note_denied(user, reason, &self.handle);
    }

    fn count_login(&self, user: &str) {
        self.service.metrics.logged_in(user);
    }

    fn write_info(&self, out: &mut String, with_keys: bool) {
        let _ = write!(out, "process_id:{}\r\n", std::process::id());
        self.write_info(out, with_keys);
    }

    fn report(&self, violation: &Violation) {
        self.service.sessions.report(&self.handle, violation);
    }
}
