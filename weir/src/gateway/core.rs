//! A worker's own work: it runs the current plan, takes connections in and lets them go.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use weir_base::time::turn;
use weir_config::Snapshot;
use weir_engine::{Mailbox, WorkerState, accept::Balancer, mailbox::Inbox};
use weir_listener::{CoreShare, Drain, FINISH_MAX};
use weir_telemetry::{Counter, Gauge, catalog};

use super::{
    acceptor::ListenerAcceptor,
    listening::OwnSockets,
    plan::{AdmittedConnection, Mail, Moved, Plan},
    protocols::{self, AnyUpstream, BuiltUpstream, Upstreams, WorkerProtocols},
};

/// Interval of a worker's housekeeping: gauges, killed clients, unused upstreams.
const HOUSEKEEPING: Duration = Duration::from_millis(100);

/// The settings of a worker at its start.
pub struct CoreSetup {
    pub share: CoreShare,
    pub protocols: WorkerProtocols,
    pub inbox: Inbox<Mail>,
    pub mailboxes: Arc<Vec<Mailbox<Mail>>>,
    pub balancer: Arc<Balancer>,
    pub state: Arc<WorkerState>,
}

/// One worker's doors and upstreams.
pub struct Core {
    pub share: CoreShare,
    protocols: WorkerProtocols,
    pub mailboxes: Arc<Vec<Mailbox<Mail>>>,
    pub balancer: Arc<Balancer>,
    pub state: Arc<WorkerState>,
    acceptors: RefCell<HashMap<Arc<str>, Rc<ListenerAcceptor>>>,
    /// It has the order to accept no more; a reload that was under way does not change that.
    is_leaving: Cell<bool>,
    /// Removed by a reload; their sessions are finishing.
    closing: RefCell<Vec<Rc<ListenerAcceptor>>>,
    upstreams: RefCell<Upstreams>,
    /// Replaced by a reload, and still used by sessions in the middle of something.
    old: RefCell<Vec<Rc<dyn AnyUpstream>>>,
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
        protocols: setup.protocols,
        mailboxes: setup.mailboxes,
        balancer: setup.balancer,
        state: setup.state,
        acceptors: RefCell::default(),
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
                Mail::StopAccepting => core.leave(|acceptor| acceptor.stop_accepting(&core, true)),
                Mail::Adopt { listener, moved, permit } => core.adopt(&listener, *moved, permit),
                Mail::HandOver { untaken, movable, departures } => core.leave(|acceptor| {
                    let name = acceptor.name();
                    match untaken.contains(name) {
                        true => acceptor.stop_accepting(&core, true),
                        false => acceptor.hand_over(),
                    }
                    if movable.contains(name) {
                        let (name, departures) = (name.clone(), departures.clone());
                        // The receiver of the connections lives as long as this worker.
                        let mover = move |departure| departures.push(name.clone(), departure);
                        acceptor.service.move_away(Rc::new(mover));
                    }
                }),
                Mail::Visit(visit) => visit(&core.protocols),
                Mail::Deliver { listener, message } => core.each_acceptor(|acceptor| {
                    if *acceptor.name() == listener {
                        acceptor.service.deliver(&*message);
                    }
                }),
                Mail::Reached(mark) => drop(mark),
                Mail::Drain(drain) => core.each_acceptor(|acceptor| acceptor.service.sessions().drain(drain)),
                Mail::Stop => {
                    core.stop().await;
                    return;
                }
            }
        }
    }
}

impl Core {
    fn each_acceptor(&self, act: impl FnMut(&Rc<ListenerAcceptor>)) {
        self.acceptors.borrow().values().chain(self.closing.borrow().iter()).for_each(act);
    }

    /// Lets go of the listening sockets for good.
    fn leave(&self, act: impl FnMut(&Rc<ListenerAcceptor>)) {
        self.is_leaving.set(true);
        self.each_acceptor(act);
    }

    fn receive(self: &Rc<Self>, listener: &Arc<str>, admitted: AdmittedConnection) {
        let acceptor = self.acceptors.borrow().get(listener).cloned();
        match acceptor {
            Some(acceptor) => acceptor.enter(self, admitted),
            // The listener went away while the connection was on its way here.
            None => self.connection_left(),
        }
    }

    fn adopt(self: &Rc<Self>, listener: &Arc<str>, moved: Moved, permit: weir_listener::ConnectionPermit) {
        let acceptor = self.acceptors.borrow().get(listener).cloned();
        match acceptor {
            Some(acceptor) => acceptor.adopt(self, moved, permit),
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
        self.share.handshakes.set_limit(snapshot.limits.handshakes_per_core.into());
        self.share.stage_sample.set(snapshot.telemetry.stage_sample);
        self.update_upstreams(plan);
        self.acceptors.borrow_mut().retain(|name, acceptor| {
            let stays = snapshot.listener(name).is_some();
            if !stays {
                acceptor.stop_accepting(self, true);
                acceptor.service.sessions().drain(Drain::Gentle);
                self.closing.borrow_mut().push(acceptor.clone());
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
            let acceptor = self.acceptors.borrow().get(&name).cloned();
            if let Some(acceptor) = acceptor {
                acceptor.accept_on(self, queues);
            }
        }
    }

    fn update_door(self: &Rc<Self>, plan: &Arc<Plan>, listener: &weir_config::Listener) {
        let name = &listener.settings.name;
        let Some(listener_plan) = plan.listeners.get(name) else { return };
        let upstreams = self.upstreams.borrow();
        let mut acceptors = self.acceptors.borrow_mut();
        match acceptors.get(name) {
            Some(acceptor) => {
                acceptor.update(listener_plan, listener.settings.clone());
                if protocols::update(&*acceptor.service, listener, &upstreams).is_none() {
                    tracing::error!(listener = %name, "the listener keeps its old settings: an upstream could not be made");
                }
            }
            None => {
                let share = &listener_plan.share;
                let made = protocols::service(&self.share, &self.protocols, listener, share, &upstreams);
                let Some(service) = made else { return };
                let (settings, workers) = (listener.settings.clone(), self.mailboxes.len());
                acceptors
                    .insert(name.clone(), Rc::new(ListenerAcceptor::new(service, listener_plan, settings, workers)));
            }
        }
    }

    /// Creates the upstreams that are new or changed. A replaced upstream is kept until its last user is gone.
    fn update_upstreams(&self, plan: &Plan) {
        let mut upstreams = self.upstreams.borrow_mut();
        let mut before = std::mem::take(&mut upstreams.0);
        for config in &plan.snapshot.upstreams {
            let name = config.settings.name.clone();
            let hard_cap = hard_cap(&plan.snapshot, &name);
            let mut replaced = None;
            if let Some(kept) = before.remove(&name) {
                if kept.config == *config && kept.hard_cap == hard_cap {
                    upstreams.0.insert(name, kept);
                    continue;
                }
                kept.upstream.retire();
                self.old.borrow_mut().push(kept.upstream.clone());
                replaced = Some(kept.upstream);
            }
            let shares = plan.shares.get(&name).cloned().unwrap_or_default();
            match protocols::upstream(&self.share, &self.protocols, config, hard_cap, &shares) {
                Ok(upstream) => {
                    if let Some(before) = replaced {
                        upstream.keep_pauses(&*before);
                    }
                    upstreams.0.insert(name, BuiltUpstream { config: config.clone(), hard_cap, upstream });
                }
                Err(error) => tracing::error!(upstream = %name, %error, "cannot make the upstream"),
            }
        }
        self.old.borrow_mut().extend(before.into_values().map(|gone| gone.upstream));
    }

    fn tidy(&self) {
        self.share.bytes.release_surplus();
        self.buffered.set(self.share.bytes.in_use() as i64);
        self.leased.set(self.share.bytes.leased() as i64);
        self.log_dropped.advance_to(self.share.log.dropped());
        self.share.events.report_suppressed(turn::now());
        let acceptors = self.acceptors.borrow();
        if self.share.table.has_killed() {
            acceptors
                .values()
                .chain(self.closing.borrow().iter())
                .for_each(|acceptor| acceptor.service.sessions().end_killed());
        }
        acceptors.values().for_each(|acceptor| acceptor.service.tick());
        let mut closing = self.closing.borrow_mut();
        closing.retain(|acceptor| acceptor.service.sessions().open_count() > 0);
        self.old.borrow_mut().retain(|upstream| {
            let is_used = acceptors.values().chain(closing.iter()).any(|acceptor| acceptor.service.uses(&**upstream));
            if !is_used {
                upstream.end();
            }
            is_used
        });
    }

    /// Ends what is left. Sessions get a moment to say why.
    async fn stop(self: &Rc<Self>) {
        self.each_acceptor(|acceptor| {
            acceptor.stop_accepting(self, false);
            let (connections, requests) = acceptor.service.sessions().cut();
            let count = |cut, count: u64| {
                let labels = [&**acceptor.name(), cut];
                self.share.metrics.counter(&catalog::DRAIN_CUT, &labels).add(count);
            };
            count("connection", connections as u64);
            count("request", requests);
        });
        let deadline = turn::now().saturating_add(Duration::from_millis(500));
        while self.state.connections.load(Ordering::Relaxed) > 0 && turn::now() < deadline {
            weir_engine::sleep(Duration::from_millis(5)).await;
        }
        let mut last = Vec::new();
        self.each_acceptor(|acceptor| last.extend(acceptor.service.finish()));
        // A listener that takes too long loses the rest of its work; the process must end.
        let _ = weir_engine::timeout(FINISH_MAX, join_all(last)).await;
        self.upstreams.borrow().0.values().for_each(|made| made.upstream.end());
        self.share.events.report_all(turn::now());
    }
}

/// The most output that a client of `upstream` may hold before it must not hold up others.
fn hard_cap(snapshot: &Snapshot, upstream: &Arc<str>) -> usize {
    let listeners = snapshot.listeners.iter().filter(|listener| listener.upstream == *upstream);
    let caps = listeners.map(|listener| listener.settings.output_hard_cap as usize);
    caps.min().unwrap_or(usize::MAX)
}
