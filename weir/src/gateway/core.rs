//! A worker's own work: it runs the current plan, takes connections in and lets them go.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use weir_base::{permit::LocalBudget, time::turn};
use weir_config::{ListenerProtocol, Snapshot, UpstreamProtocol};
use weir_engine::{Mailbox, WorkerState, accept::Balancer, mailbox::Inbox};
use weir_http::{Http2Origins, HttpUpstream};
use weir_listener::{CoreShare, Drain};
use weir_redis::{Notice, RedisShare, RespLane};
use weir_tcp::TcpUpstream;
use weir_telemetry::{Counter, Gauge, catalog};
use weir_upstream::{ConnectionProbe, Upstream, UpstreamMetrics};

use super::{
    door::Door,
    listening::OwnSockets,
    plan::{Admitted, Arrival, ListenerPlan, Mail, Plan},
    serving::{AnyUpstream, Serving},
};

/// How often a worker tidies: gauges, killed clients, upstreams that nobody uses any more.
const HOUSEKEEPING: Duration = Duration::from_millis(100);

/// What a worker is started with.
pub struct CoreSetup {
    pub share: CoreShare,
    pub redis: RedisShare,
    pub inbox: Inbox<Mail>,
    pub mailboxes: Arc<Vec<Mailbox<Mail>>>,
    pub balancer: Arc<Balancer>,
    pub state: Arc<WorkerState>,
}

/// An upstream and the settings it was made from.
struct UpstreamSlot {
    config: weir_config::Upstream,
    hard_cap: usize,
    upstream: AnyUpstream,
}

/// One worker's doors and upstreams.
pub struct Core {
    pub share: CoreShare,
    redis: RedisShare,
    pub mailboxes: Arc<Vec<Mailbox<Mail>>>,
    pub balancer: Arc<Balancer>,
    pub state: Arc<WorkerState>,
    /// TLS handshakes under way.
    pub handshakes: LocalBudget,
    doors: RefCell<HashMap<Arc<str>, Rc<Door>>>,
    /// It was told to accept no more; a reload that was under way does not change that.
    is_leaving: Cell<bool>,
    /// Removed by a reload; their sessions are finishing.
    closing: RefCell<Vec<Rc<Door>>>,
    upstreams: RefCell<HashMap<Arc<str>, UpstreamSlot>>,
    /// Replaced by a reload, and still used by sessions in the middle of something.
    old: RefCell<Vec<AnyUpstream>>,
    buffered: Gauge,
    leased: Gauge,
    generation: Gauge,
    log_dropped: Counter,
}

/// The main future of a worker: it ends with [`Mail::Stop`].
pub async fn run(setup: CoreSetup) {
    let worker = setup.share.worker.to_string();
    let metrics = setup.share.metrics.clone();
    let core = Rc::new(Core {
        share: setup.share,
        redis: setup.redis,
        mailboxes: setup.mailboxes,
        balancer: setup.balancer,
        state: setup.state,
        handshakes: LocalBudget::new(0),
        doors: RefCell::default(),
        is_leaving: Cell::new(false),
        closing: RefCell::default(),
        upstreams: RefCell::default(),
        old: RefCell::default(),
        buffered: metrics.gauge(&catalog::BUFFERED_BYTES, &[]),
        leased: metrics.gauge(&catalog::BUFFERED_LEASED_BYTES, &[]),
        generation: metrics.gauge(&catalog::WORKER_CONFIG_GENERATION, &[&worker]),
        log_dropped: metrics.counter(&catalog::LOG_DROPPED, &[&worker]),
    });
    let tidy = core.clone();
    let _housekeeping = weir_engine::spawn(async move {
        loop {
            weir_engine::sleep(HOUSEKEEPING).await;
            tidy.tidy();
        }
    });
    loop {
        for mail in setup.inbox.receive().await {
            match mail {
                Mail::Apply(plan) => core.apply(&plan),
                Mail::Accept(sockets) => core.accept_on(sockets),
                Mail::Connection { listener, admitted } => core.receive(&listener, admitted),
                Mail::StopAccepting => core.leave(|door| door.stop_accepting(&core, true)),
                Mail::Adopt { listener, arrival, permit } => core.adopt(&listener, *arrival, permit),
                Mail::HandOver { untaken, movable, departures } => core.leave(|door| {
                    let name = door.service.name();
                    match untaken.contains(name) {
                        true => door.stop_accepting(&core, true),
                        false => door.hand_over(),
                    }
                    if let (true, Serving::Redis(service)) = (movable.contains(name), &door.service) {
                        let (name, departures) = (name.clone(), departures.clone());
                        // Whoever takes them lives as long as this worker.
                        let mover = move |departure| departures.push(name.clone(), departure);
                        service.move_away(std::rc::Rc::new(mover));
                    }
                }),
                // Who asked may have given up.
                Mail::Tell(asker) => drop(asker.send(core.redis.insight.report(turn::now()))),
                Mail::ResetSlowLog(asker) => drop(asker.send((core.share.worker, core.redis.insight.reset_slow()))),
                Mail::Notice(notice) => core.notify(&notice),
                Mail::Reached(mark) => drop(mark),
                Mail::Drain(drain) => core.each_door(|door| door.service.drain(drain)),
                Mail::Stop => {
                    core.stop().await;
                    return;
                }
            }
        }
    }
}

impl Core {
    fn each_door(&self, act: impl FnMut(&Rc<Door>)) {
        self.doors.borrow().values().chain(self.closing.borrow().iter()).for_each(act);
    }

    /// Lets go of the listening sockets for good.
    fn leave(&self, act: impl FnMut(&Rc<Door>)) {
        self.is_leaving.set(true);
        self.each_door(act);
    }

    fn notify(&self, notice: &Notice) {
        self.each_door(|door| {
            if let Some(service) = door.service.redis().filter(|service| service.name() == &notice.listener) {
                service.notify(notice);
            }
        });
    }

    fn receive(self: &Rc<Self>, listener: &Arc<str>, admitted: Admitted) {
        let door = self.doors.borrow().get(listener).cloned();
        match door {
            Some(door) => door.enter(self, admitted),
            // The listener went away while the connection was on its way here.
            None => self.connection_left(),
        }
    }

    fn adopt(self: &Rc<Self>, listener: &Arc<str>, arrival: Arrival, permit: weir_listener::ConnectionPermit) {
        let door = self.doors.borrow().get(listener).cloned();
        match door {
            Some(door) => door.adopt(self, arrival, permit),
            None => self.connection_left(),
        }
    }

    /// Gives back the charge of the balancer.
    pub fn connection_left(&self) {
        self.state.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adopts a plan. This is a turn boundary: no session is in the middle of a step.
    fn apply(self: &Rc<Self>, plan: &Arc<Plan>) {
        let snapshot = &plan.snapshot;
        self.share.flight.set_limit(snapshot.limits.in_flight_per_core.into());
        self.handshakes.set_limit(snapshot.limits.handshakes_per_core.into());
        self.update_upstreams(plan);
        self.doors.borrow_mut().retain(|name, door| {
            let stays = snapshot.listener(name).is_some();
            if !stays {
                door.stop_accepting(self, true);
                door.service.drain(Drain::Gentle);
                self.closing.borrow_mut().push(door.clone());
            }
            stays
        });
        for listener in &snapshot.listeners {
            self.update_door(plan, listener);
        }
        self.generation.set(snapshot.generation as i64);
    }

    fn accept_on(self: &Rc<Self>, sockets: OwnSockets) {
        if self.is_leaving.get() {
            return;
        }
        for (name, queues) in sockets {
            let door = self.doors.borrow().get(&name).cloned();
            if let Some(door) = door {
                door.accept_on(self, queues);
            }
        }
    }

    fn update_door(self: &Rc<Self>, plan: &Arc<Plan>, listener: &weir_config::Listener) {
        let name = &listener.settings.name;
        let Some(listener_plan) = plan.listeners.get(name) else { return };
        let upstreams = self.upstreams.borrow();
        let mut doors = self.doors.borrow_mut();
        match doors.get(name) {
            Some(door) => {
                door.update(listener_plan, listener.settings.clone());
                update_service(&door.service, listener, &upstreams);
            }
            None => {
                let Some(service) = self.make_service(listener, listener_plan, &upstreams) else { return };
                let (settings, workers) = (listener.settings.clone(), self.mailboxes.len());
                doors.insert(name.clone(), Rc::new(Door::new(service, listener_plan, settings, workers)));
            }
        }
    }

    fn make_service(
        &self,
        listener: &weir_config::Listener,
        plan: &ListenerPlan,
        upstreams: &HashMap<Arc<str>, UpstreamSlot>,
    ) -> Option<Serving> {
        let UpstreamSlot { upstream, .. } = upstreams.get(&listener.upstream)?;
        let (settings, share) = ((*listener.settings).clone(), self.share.clone());
        match (&listener.protocol, upstream) {
            (ListenerProtocol::Redis(redis), AnyUpstream::Redis { upstream, .. }) => {
                let shares = (share, self.redis.clone());
                let (redis, users) = ((**redis).clone(), plan.share.clone());
                Some(Serving::Redis(weir_redis::Service::new(shares, settings, redis, upstream.clone(), users)))
            }
            (ListenerProtocol::Http(http), _) => {
                let upstreams = http_upstreams(upstreams, http)?;
                Some(Serving::Http(weir_http::Service::new(share, settings, (**http).clone(), upstreams)))
            }
            (ListenerProtocol::Tcp(tcp), _) => {
                let upstreams = tcp_upstreams(upstreams, tcp)?;
                Some(Serving::Tcp(weir_tcp::Service::new(share, settings, (**tcp).clone(), upstreams)))
            }
            // The configuration has an upstream of the listener's protocol, or is refused.
            _ => None,
        }
    }

    /// Makes the upstreams that are new or changed; what they replace is kept until nobody uses it.
    fn update_upstreams(&self, plan: &Plan) {
        let mut slots = self.upstreams.borrow_mut();
        let mut next = HashMap::new();
        for config in &plan.snapshot.upstreams {
            let name = config.settings.name.clone();
            let hard_cap = hard_cap(&plan.snapshot, &name);
            if let Some(slot) = slots.remove(&name) {
                if slot.config == *config && slot.hard_cap == hard_cap {
                    next.insert(name, slot);
                    continue;
                }
                slot.upstream.retire();
                self.old.borrow_mut().push(slot.upstream);
            }
            match self.make_upstream(config, hard_cap, plan) {
                Ok(upstream) => {
                    next.insert(name, UpstreamSlot { config: config.clone(), hard_cap, upstream });
                }
                Err(error) => tracing::error!(upstream = %name, %error, "cannot make the upstream"),
            }
        }
        self.old.borrow_mut().extend(slots.drain().map(|(_, slot)| slot.upstream));
        *slots = next;
    }

    fn make_upstream(
        &self,
        config: &weir_config::Upstream,
        hard_cap: usize,
        plan: &Plan,
    ) -> std::io::Result<AnyUpstream> {
        let name = &config.settings.name;
        let metrics = UpstreamMetrics::new(&self.share.metrics, self.share.log.clone(), name.clone());
        let health = plan.health.get(name).cloned().unwrap_or_default();
        // One worker probes for all: the server need not answer the same question once per core.
        let probes = self.share.worker == 0;
        let settings = (*config.settings).clone();
        match &config.protocol {
            UpstreamProtocol::Redis(redis) => {
                let protocol = RespLane::new((**redis).clone());
                let upstream = Upstream::new(settings, protocol, &health, metrics, hard_cap, probes)?;
                let has_primary = Cell::new(upstream.primary().is_some());
                Ok(AnyUpstream::Redis { upstream, has_primary })
            }
            UpstreamProtocol::Http(http) => {
                let probe = probes.then(|| http.probe.clone());
                let http2 = http.http2.map(|http2| Http2Origins::new(http2, self.share.bytes.clone()));
                HttpUpstream::new(settings, http.lanes.clone(), http2, &health, &metrics, probe).map(AnyUpstream::Http)
            }
            UpstreamProtocol::Tcp(lanes) => {
                let probe = probes.then_some(ConnectionProbe);
                TcpUpstream::new(settings, (**lanes).clone(), None, &health, &metrics, probe).map(AnyUpstream::Tcp)
            }
        }
    }

    fn tidy(&self) {
        self.share.bytes.release_surplus();
        self.buffered.set(self.share.bytes.in_use() as i64);
        self.leased.set(self.share.bytes.leased() as i64);
        self.log_dropped.advance_to(self.share.log.dropped());
        let doors = self.doors.borrow();
        if self.share.table.has_killed() {
            doors.values().chain(self.closing.borrow().iter()).for_each(|door| door.service.end_killed());
        }
        // Not `any`: each is to be looked at.
        if self.upstreams.borrow().values().filter(|slot| slot.upstream.has_found_primary()).count() > 0 {
            doors.values().filter_map(|door| door.service.redis()).for_each(|service| service.primary_found());
        }
        let mut closing = self.closing.borrow_mut();
        closing.retain(|door| door.service.open_count() > 0);
        self.old.borrow_mut().retain(|upstream| {
            let is_used = doors.values().chain(closing.iter()).any(|door| door.service.uses(upstream));
            if !is_used {
                upstream.end();
            }
            is_used
        });
    }

    /// Ends what is left. Sessions get a moment to say why.
    async fn stop(self: &Rc<Self>) {
        self.each_door(|door| {
            door.stop_accepting(self, false);
            let (connections, requests) = door.service.cut();
            let count = |cut, count: u64| {
                let labels = [&**door.service.name(), cut];
                self.share.metrics.counter(&catalog::DRAIN_CUT, &labels).add(count);
            };
            count("connection", connections as u64);
            count("request", requests);
        });
        let deadline = turn::now().saturating_add(Duration::from_millis(500));
        while self.state.connections.load(Ordering::Relaxed) > 0 && turn::now() < deadline {
            weir_engine::sleep(Duration::from_millis(5)).await;
        }
        for slot in self.upstreams.borrow().values() {
            slot.upstream.end();
        }
    }
}

/// The upstreams of a TCP listener's names, in their order.
fn tcp_upstreams(
    slots: &HashMap<Arc<str>, UpstreamSlot>,
    tcp: &weir_tcp::settings::TcpListenerSettings,
) -> Option<Vec<Rc<TcpUpstream>>> {
    let find = |name| match &slots.get(name)?.upstream {
        AnyUpstream::Tcp(upstream) => Some(upstream.clone()),
        AnyUpstream::Redis { .. } | AnyUpstream::Http(_) => None,
    };
    tcp.upstreams.iter().map(find).collect()
}

/// The upstreams of an HTTP listener's routes, in their order.
fn http_upstreams(
    slots: &HashMap<Arc<str>, UpstreamSlot>,
    http: &weir_http::settings::HttpListenerSettings,
) -> Option<Vec<Rc<HttpUpstream>>> {
    let find = |name| match &slots.get(name)?.upstream {
        AnyUpstream::Http(upstream) => Some(upstream.clone()),
        AnyUpstream::Redis { .. } | AnyUpstream::Tcp(_) => None,
    };
    http.routes.upstreams.iter().map(find).collect()
}

/// New settings for a listener that stays.
fn update_service(service: &Serving, listener: &weir_config::Listener, upstreams: &HashMap<Arc<str>, UpstreamSlot>) {
    let settings = (*listener.settings).clone();
    let Some(UpstreamSlot { upstream, .. }) = upstreams.get(&listener.upstream) else { return };
    match (service, &listener.protocol, upstream) {
        (Serving::Redis(service), ListenerProtocol::Redis(redis), AnyUpstream::Redis { upstream, .. }) => {
            service.update(settings, (**redis).clone(), upstream.clone());
        }
        (Serving::Http(service), ListenerProtocol::Http(http), _) => {
            if let Some(upstreams) = http_upstreams(upstreams, http) {
                service.update(settings, (**http).clone(), upstreams);
            }
        }
        (Serving::Tcp(service), ListenerProtocol::Tcp(tcp), _) => {
            if let Some(upstreams) = tcp_upstreams(upstreams, tcp) {
                service.update(settings, (**tcp).clone(), upstreams);
            }
        }
        // A reload that changes the protocol of a listener is refused.
        _ => {}
    }
}

/// The most output that a client of `upstream` may hold before it must not hold up others.
fn hard_cap(snapshot: &Snapshot, upstream: &Arc<str>) -> usize {
    let listeners = snapshot.listeners.iter().filter(|listener| listener.upstream == *upstream);
    let caps = listeners.map(|listener| listener.settings.output_hard_cap as usize);
    caps.min().unwrap_or(usize::MAX)
}
