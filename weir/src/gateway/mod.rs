//! The gateway as a whole: workers, the plan they run, and reload. All of it on the control thread.

mod acceptor;
mod access_log;
mod admin;
mod ai_keys;
mod ai_requests;
mod certificates;
mod connections;
mod core;
mod departures;
mod drain;
mod errors;
mod insight;
mod knee;
mod listening;
mod log;
mod orders;
mod plan;
mod protocols;
mod relaying;
mod responses;
mod standing;
mod threshold;
mod upgrading;
mod watch;

use std::{
    io,
    path::PathBuf,
    rc::Rc,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use weir_ai::{Spend, settings::AiListenerSettings};
use weir_base::{
    limits,
    permit::{Budget, ByteLease, LocalBudget},
};
use weir_config::{Change, Diagnostics, ListenerProtocol, Snapshot, TelemetrySettings, diff, surroundings::Running};
use weir_engine::{Driver, Mailbox, Worker, WorkerState, accept::Balancer, mailbox, mailbox::Inbox, net};
use weir_listener::{Admission, ConnectionTable, CoreShare, Orders, Post, StageSample};
use weir_postgres::UpgradeRelay;
use weir_telemetry::{
    EventLog, Registry, SharedGauge, catalog,
    log::{LogReader, LogWriter, log_ring},
};

use self::{
    access_log::AccessLog,
    core::CoreSetup,
    departures::Departures,
    listening::{Sockets, bind_new},
    orders::OrderTaker,
    plan::{Mail, Plan, TlsContexts},
    protocols::ProcessProtocols,
    upgrading::Upgrading,
};
use crate::{program_log::LogLevelSwitch, systemd, upgrade::Inheritance, version};

pub use self::{listening::Inherited, upgrading::UpgradeEnd};

/// How long a reload waits until all workers run the new configuration. Default: as long as a worker may be busy without being
/// taken for stuck.
const APPLY_WAIT: Duration = watch::STALL;

/// Mail of a worker past which sessions of others can add none. Default 65,536; worst case as many names of keys, which are short.
const POSTED_MAX: usize = 65_536;

const ENDING: &str = "this process drains and ends";

/// Where the process stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Serving,
    /// Has the order to stop; still accepting, so that balancers can take notice.
    Settling,
    Draining,
    Drained,
}

/// A running gateway.
pub struct Gateway {
    registry: Registry,
    plan: ArcSwap<Plan>,
    admission: Admission,
    bytes: Budget,
    table: Arc<ConnectionTable>,
    states: Vec<Arc<WorkerState>>,
    mailboxes: Arc<Vec<Mailbox<Mail>>>,
    workers: Mutex<Vec<Worker>>,
    driver: Driver,
    phase: AtomicU8,
    drain_begun: Mutex<Option<Instant>>,
    drain_requested: tokio::sync::Notify,
    is_drain_requested: AtomicBool,
    started: Instant,
    source: Option<PathBuf>,
    /// One reload at a time.
    reloading: Mutex<()>,
    stopping: Arc<AtomicBool>,
    background: Mutex<Vec<std::thread::JoinHandle<()>>>,
    /// Connections that move to the new process after an upgrade.
    departures: Mutex<Option<Departures>>,
    listening: Mutex<Sockets>,
    generation: SharedGauge,
    /// Access rules of the admin server; set once it runs.
    access: OnceLock<weir_admin::AdminAccess>,
    /// Changes the level of the program's own log; set once there is one.
    log_level: OnceLock<LogLevelSwitch>,
    descriptors: u64,
    /// How near the listeners are to their knees; written by the watch thread, read by the admin thread.
    loads: Mutex<knee::Loads>,
    /// The shares of errors of HTTP listeners, likewise.
    errors: Mutex<errors::ErrorShares>,
    /// Configuration at the start of the process.
    first: Arc<Snapshot>,
    upgrading: Upgrading,
    balancer: Arc<Balancer>,
    /// The budgets of AI listeners.
    spend: Arc<Spend>,
    /// The members of MongoDB sets, as the workers have found them.
    mongodb: weir_mongodb::ProcessShare,
}

/// The result of a reload.
pub enum Reloaded {
    Applied(Change),
    Unchanged,
    Rejected(Diagnostics),
    /// The file is good, but the machine refused (an address in use).
    Refused(io::Error),
}

/// The budgets of AI listeners. At an upgrade the process before has their journal until this one shall serve.
fn budgets(
    snapshot: &Snapshot,
    inheritance: &Inheritance,
    workers: usize,
    trusts_clock: bool,
) -> io::Result<Arc<Spend>> {
    let spend = Spend::unopened(snapshot.protocols.ai.clone(), workers);
    let spend = if trusts_clock { spend.trusting_clock() } else { spend };
    if inheritance.predecessor.is_none() {
        spend.take().map_err(io::Error::other)?;
        spend.claim_first(ai_listeners(snapshot));
    }
    Ok(Arc::new(spend))
}

/// The AI listeners of a configuration, with their names.
fn ai_listeners(snapshot: &Snapshot) -> impl Iterator<Item = (&Arc<str>, &AiListenerSettings)> {
    snapshot.listeners.iter().filter_map(|listener| match &listener.protocol {
        ListenerProtocol::Ai(own) => Some((&listener.settings.name, &**own)),
        _ => None,
    })
}

/// A mailbox for each worker, and its other end.
fn mailboxes<T>(count: usize) -> (Arc<Vec<Mailbox<T>>>, Vec<Inbox<T>>) {
    let (mailboxes, inboxes) = (0..count).map(|_| mailbox()).unzip();
    (Arc::new(mailboxes), inboxes)
}

impl Gateway {
    /// Binds the listeners, or takes over those that it inherits, and starts the workers. Nothing is accepted before
    /// [`serve`](Self::serve). `source` is the file that reloads read again. `trusts_clock`: see [`Spend::trusting_clock`].
    ///
    /// # Errors
    /// An address that cannot be bound, TLS files that cannot be used, an access log or a journal of budgets that cannot be opened, a
    /// kernel that refuses the configured driver.
    pub fn prepare(
        snapshot: Snapshot,
        source: Option<PathBuf>,
        trusts_clock: bool,
        inheritance: &mut Inheritance,
    ) -> io::Result<Arc<Self>> {
        let descriptors = net::raise_descriptor_limit()?;
        let snapshot = fit_descriptors(snapshot, descriptors).published(1);
        let (registry, cpus) = (Registry::with_level(snapshot.telemetry.level), net::allowed_cpus());
        let count = snapshot.runtime.workers.unwrap_or(cpus.len()).max(1);
        let admission = Admission::new(snapshot.limits.connections, snapshot.limits.connections_per_source);
        let plan = Arc::new(Plan::new(snapshot.clone(), TlsContexts::read(&snapshot)?, &admission, None));
        let access_log = AccessLog::open(&snapshot.telemetry.access_log)?;
        let spend = budgets(&snapshot, inheritance, count, trusts_clock)?;
        let sockets = bind_new(&snapshot, None, &mut inheritance.listeners, count)?;
        let (bytes, table) = (Budget::new(snapshot.limits.buffered_bytes), ConnectionTable::new(count));
        table.number_from(inheritance.first_connection_id.max(1));
        let (mailboxes, inboxes) = mailboxes(count);
        let states: Vec<Arc<WorkerState>> = (0..count).map(|_| Arc::default()).collect();
        let balancer = Arc::new(Balancer::new(states.clone()));
        let relay = UpgradeRelay::new(inheritance.restart_epoch);
        let shared = WorkersShare {
            registry: registry.clone(),
            bytes: bytes.clone(),
            table: table.clone(),
            mailboxes: mailboxes.clone(),
            balancer: balancer.clone(),
            protocols: ProcessProtocols::new(&snapshot, relay.clone(), spend.clone()),
            orders: Orders::default(),
        };
        let (orders, mongodb) = (shared.orders.clone(), shared.protocols.mongodb());
        let (workers, rings) = shared.start(&snapshot, &cpus, inboxes, &states)?;
        let gateway = Arc::new(Self {
            plan: ArcSwap::new(plan),
            admission,
            bytes,
            table,
            driver: same_driver(&states)?,
            states,
            mailboxes,
            workers: Mutex::new(workers),
            phase: AtomicU8::new(Phase::Starting as u8),
            drain_begun: Mutex::new(None),
            drain_requested: tokio::sync::Notify::new(),
            is_drain_requested: AtomicBool::new(false),
            started: Instant::now(),
            source,
            reloading: Mutex::new(()),
            stopping: Arc::default(),
            background: Mutex::default(),
            departures: Mutex::default(),
            listening: Mutex::new(sockets),
            generation: registry.shared().gauge(&catalog::CONFIG_GENERATION, &[]),
            access: OnceLock::new(),
            log_level: OnceLock::new(),
            descriptors,
            loads: Mutex::default(),
            errors: Mutex::default(),
            first: snapshot,
            upgrading: Upgrading::new(inheritance, &registry, relay),
            balancer,
            spend,
            mongodb,
            registry,
        });
        let _ = orders.set(Arc::new(OrderTaker::new(&gateway)));
        gateway.begin_series();
        gateway.start_background(rings, access_log);
        Ok(gateway)
    }

    /// Series of the process that are there before their first event. A function such as `increase` of Prometheus misses the event
    /// with which a series begins.
    fn begin_series(&self) {
        let shared = self.registry.shared();
        shared.gauge(&catalog::BUILD_INFO, &[version::VERSION, version::COMMIT]).set(1);
        for outcome in ["applied", "unchanged", "rejected", "refused"] {
            shared.counter(&catalog::CONFIG_RELOADS, &[outcome]).add(0);
        }
        for result in ["failed", "refused"] {
            shared.counter(&catalog::UPGRADES, &[result]).add(0);
        }
    }

    /// Lets connections in; they wait until [`serve`](Self::serve).
    ///
    /// # Errors
    /// As `listen(2)`.
    pub fn listen(&self) -> io::Result<()> {
        lock(&self.listening).values().try_for_each(|sockets| sockets.listen())
    }

    /// Accepts connections from now on.
    pub fn serve(&self) {
        let sockets = lock(&self.listening).clone();
        self.publish(&sockets);
        self.set_phase(Phase::Serving);
        self.note_config_success();
    }

    fn start_background(self: &Arc<Self>, rings: Vec<LogReader>, access_log: AccessLog) {
        let stopping = self.stopping.clone();
        let log = move || log::run(rings, access_log, &stopping);
        let log = std::thread::Builder::new().name("log".into()).spawn(log);
        let gateway = self.clone();
        let watch = std::thread::Builder::new().name("watch".into()).spawn(move || watch::run(&gateway));
        lock(&self.background).extend([log, watch].into_iter().flatten());
    }

    /// Gives the current plan to the workers, each with its own of the new sockets.
    fn publish(&self, new: &Sockets) {
        let plan = self.plan.load_full();
        self.generation.set(plan.snapshot.generation as i64);
        self.send_to_workers(|| Mail::Apply(plan.clone()));
        for (id, mailbox) in self.mailboxes.iter().enumerate() {
            mailbox.send(Mail::Accept(listening::of_worker(new, id, self.mailboxes.len())));
        }
    }

    /// The configuration in force.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.plan.load().snapshot.clone()
    }

    /// The driver that all workers run on.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// The cells of the process.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The address that a listener is bound to, the port being known even if 0 was configured.
    pub fn bound(&self, listener: &str) -> Option<String> {
        lock(&self.listening).get(listener).map(|sockets| sockets.address())
    }

    /// Reads the file again; if it is good, the workers run it when this returns.
    pub fn reload(&self) -> Reloaded {
        let _one = lock(&self.reloading);
        if self.is_the_service() {
            systemd::reloading();
        }
        let outcome = match self.refusal_to_reload() {
            Some(reason) => Reloaded::Refused(io::Error::other(reason)),
            None => self.try_reload(),
        };
        let label = match &outcome {
            Reloaded::Applied(_) => "applied",
            Reloaded::Unchanged => "unchanged",
            Reloaded::Rejected(_) => "rejected",
            Reloaded::Refused(_) => "refused",
        };
        let shared = self.registry.shared();
        shared.counter(&catalog::CONFIG_RELOADS, &[label]).inc();
        if let Reloaded::Applied(change) = &outcome {
            let waits = !change.needs_restart.is_empty();
            shared.gauge(&catalog::CONFIG_RESTART_REQUIRED, &[]).set(waits.into());
        }
        if matches!(outcome, Reloaded::Applied(_) | Reloaded::Unchanged) {
            self.note_config_success();
        }
        log::reloaded(&outcome, self.snapshot().generation);
        self.notify_ready();
        outcome
    }

    fn refusal_to_reload(&self) -> Option<&'static str> {
        if self.is_handed_over() {
            return Some("this process has handed over to another; reload that one");
        }
        if self.is_ending() {
            return Some(ENDING);
        }
        // The new process has read the file as it was, and has the sockets as they were.
        self.is_upgrade_under_way().then_some("an upgrade is under way")
    }

    fn try_reload(&self) -> Reloaded {
        let Some(path) = &self.source else { return Reloaded::Unchanged };
        let running = Running { workers: self.mailboxes.len() };
        let next = match weir_config::reload(path, &|name| std::env::var(name).ok(), running) {
            Ok(next) => next,
            Err(diagnostics) => return Reloaded::Rejected(diagnostics),
        };
        // Name servers may have taken long.
        if self.is_ending() {
            return Reloaded::Refused(io::Error::other(ENDING));
        }
        let current = self.plan.load_full();
        if let Some(name) = changed_protocol(&current.snapshot, &next) {
            let text =
                format!("the listener \"{name}\" cannot change its protocol while it is open: give it another name");
            return Reloaded::Refused(io::Error::other(text));
        }
        let mut change = diff(&current.snapshot, &next);
        if change.is_empty() {
            return Reloaded::Unchanged;
        }
        // A restart is needed for each difference from the configuration at the start, however many reloads ago it was made.
        change.needs_restart = diff(&self.first, &next).needs_restart;
        let next = fit_descriptors(next, self.descriptors).published(current.snapshot.generation + 1);
        let bound = bind_new(&next, Some(&current.snapshot), &mut Inherited::new(), self.mailboxes.len());
        // All that can fail comes before the plan, which changes the limits of listeners that stay.
        let prepared = bound.and_then(|sockets| {
            let tls = TlsContexts::read(&next)?;
            sockets.values().try_for_each(|sockets| sockets.listen())?;
            Ok((tls, sockets))
        });
        let (tls, sockets) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Reloaded::Refused(error),
        };
        let plan = Plan::new(next.clone(), tls, &self.admission, Some(&current));
        self.bytes.set_limit(next.limits.buffered_bytes);
        let mut listening = lock(&self.listening);
        listening.retain(|name, _| next.listener(name).is_some());
        listening.extend(sockets.iter().map(|(name, sockets)| (name.clone(), sockets.clone())));
        drop(listening);
        self.admission.set_limits(next.limits.connections, next.limits.connections_per_source);
        if let Some(access) = self.access.get()
            && let Err(error) = access.set(next.admin.token.clone(), next.admin.hosts.clone())
        {
            tracing::error!(%error, "the admin server keeps its token");
        }
        self.measure(&current.snapshot.telemetry, &next.telemetry);
        self.plan.store(Arc::new(plan));
        self.publish(&sockets);
        self.wait_applied();
        Reloaded::Applied(change)
    }

    /// Measures and logs as the new settings say.
    fn measure(&self, old: &TelemetrySettings, new: &TelemetrySettings) {
        if old.level != new.level {
            self.registry.set_level(new.level);
        }
        if old.log_level != new.log_level
            && let Some(switch) = self.log_level.get()
        {
            switch.set(new.log_level);
        }
    }

    /// Waits until every worker runs what was published: a client that sees an applied reload meets it.
    fn wait_applied(&self) {
        let (reached, begun) = (self.mark_delivery(), Instant::now());
        while !reached.is_all() {
            if begun.elapsed() > APPLY_WAIT {
                return tracing::warn!(
                    waited = ?APPLY_WAIT,
                    "a worker does not run the new configuration yet; it will when its turn ends"
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets reloads change the level of the program's own log.
    pub fn set_log_level_switch(&self, switch: LogLevelSwitch) {
        let _ = self.log_level.set(switch);
    }

    /// Lets reloads change who may ask the admin server.
    pub fn set_admin_access(&self, access: weir_admin::AdminAccess) {
        let _ = self.access.set(access);
    }

    fn note_config_success(&self) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.registry.shared().gauge(&catalog::CONFIG_LAST_SUCCESS, &[]).set_duration(now);
    }

    /// Where the process stands.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            2 => Phase::Settling,
            3 => Phase::Draining,
            _ => Phase::Drained,
        }
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
        let state = (phase as i64 - Phase::Serving as i64).max(0);
        self.registry.shared().gauge(&catalog::DRAIN_STATE, &[]).set(state);
    }

    /// True from the order to stop on.
    fn is_ending(&self) -> bool {
        !matches!(self.phase(), Phase::Starting | Phase::Serving)
    }

    /// True while the service manager may hear of this process that it serves: another one does after an upgrade.
    fn is_the_service(&self) -> bool {
        !self.is_ending() && !self.is_handed_over()
    }

    /// True if a worker has not ended its turn for so long that it is taken for stuck.
    pub fn has_stalled_worker(&self) -> bool {
        let now = weir_base::time::Time::now();
        self.states.iter().any(|state| state.turn_age(now) > watch::STALL)
    }

    /// Connections open on all workers.
    pub fn connections(&self) -> usize {
        self.states.iter().map(|state| state.connections.load(Ordering::Relaxed)).sum()
    }

    fn send_to_workers(&self, mail: impl Fn() -> Mail) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.send(mail()));
    }
}

/// State that all workers share.
#[derive(Clone)]
struct WorkersShare {
    registry: Registry,
    bytes: Budget,
    table: Arc<ConnectionTable>,
    mailboxes: Arc<Vec<Mailbox<Mail>>>,
    balancer: Arc<Balancer>,
    protocols: ProcessProtocols,
    orders: Orders,
}

impl WorkersShare {
    /// Starts a worker for each mailbox. Returns the workers and their logs.
    fn start(
        &self,
        snapshot: &Snapshot,
        cpus: &[usize],
        inboxes: Vec<Inbox<Mail>>,
        states: &[Arc<WorkerState>],
    ) -> io::Result<(Vec<Worker>, Vec<LogReader>)> {
        let (mut workers, mut rings) = (Vec::new(), Vec::new());
        for (id, inbox) in inboxes.into_iter().enumerate() {
            let access_log = &snapshot.telemetry.access_log;
            let form = (access_log.target != weir_config::LogTarget::Off).then(|| access_log.form.clone());
            let (log, ring) = log_ring(limits::LOG_RING_EVENTS, form);
            rings.push(ring);
            let cpu = snapshot.runtime.pin.then(|| cpus[id % cpus.len()]);
            let (shared, state, own) = (self.clone(), states[id].clone(), states[id].clone());
            let main = move || core::run(shared.setup(id, log, inbox, own));
            workers.push(Worker::start(id, cpu, &snapshot.runtime, state, main)?);
        }
        Ok((workers, rings))
    }

    /// Creates the setup of worker number `worker`. Called on its own thread.
    fn setup(self, worker: usize, log: LogWriter, inbox: Inbox<Mail>, state: Arc<WorkerState>) -> CoreSetup {
        let share = CoreShare {
            worker,
            workers: self.mailboxes.len(),
            flight: LocalBudget::new(0),
            handshakes: LocalBudget::new(0),
            bytes: ByteLease::new(self.bytes),
            metrics: self.registry.core(worker as u32),
            events: EventLog::new(log.clone()),
            log,
            table: self.table,
            // As the first plan says.
            stage_sample: StageSample::new(0.0),
            post: post(self.mailboxes.clone()),
            orders: self.orders,
        };
        let (protocols, mailboxes, balancer) = (self.protocols.on_worker(worker), self.mailboxes, self.balancer);
        CoreSetup { share, protocols, inbox, mailboxes, balancer, state }
    }
}

/// Sends messages of sessions from worker to worker.
fn post(mailboxes: Arc<Vec<Mailbox<Mail>>>) -> Post {
    Rc::new(move |worker, listener, message| {
        let Some(mailbox) = mailboxes.get(worker).filter(|mailbox| mailbox.depth() < POSTED_MAX) else { return false };
        mailbox.send(Mail::Deliver { listener: listener.clone(), message });
        true
    })
}

/// Lowers the connection limit to what the process may open beside its upstream connections and the admin address.
fn fit_descriptors(mut snapshot: Snapshot, descriptors: u64) -> Snapshot {
    let workers = snapshot.runtime.workers.unwrap_or_else(|| net::allowed_cpus().len()) as u64;
    let lanes = |upstream: &weir_config::Upstream| {
        let settings = &upstream.settings;
        u64::from(settings.pinned_lanes_max) + u64::from(settings.shared_lanes) * settings.endpoints.len() as u64
    };
    let lanes: u64 = snapshot.upstreams.iter().map(lanes).sum();
    let reserved = weir_admin::limits::DESCRIPTORS_RESERVED as u64 + workers * lanes;
    let fits = descriptors.saturating_sub(reserved).max(descriptors / 4);
    let wanted = u64::from(snapshot.limits.connections);
    if fits < wanted {
        tracing::warn!(descriptors, wanted, fits, "limits.connections lowered: raise the descriptor limit (ulimit -n)");
        snapshot.limits.connections = fits as u32;
    }
    snapshot
}

/// Locks; a thread that panicked while it held the lock left the value whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All workers must run on one driver: figures of a mix would mean nothing.
fn same_driver(states: &[Arc<WorkerState>]) -> io::Result<Driver> {
    let first = states.first().map_or(Driver::Polling, |state| state.driver());
    if states.iter().any(|state| state.driver() != first) {
        return Err(io::Error::other("the workers ended up on different I/O drivers; set runtime.driver"));
    }
    Ok(first)
}

/// A listener whose protocol is another one in `next`.
fn changed_protocol(current: &Snapshot, next: &Snapshot) -> Option<Arc<str>> {
    let is_other = |listener: &&weir_config::Listener| {
        current.listener(&listener.settings.name).is_some_and(|old| old.protocol_name != listener.protocol_name)
    };
    next.listeners.iter().find(is_other).map(|listener| listener.settings.name.clone())
}
