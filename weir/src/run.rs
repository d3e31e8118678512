//! `weir run`: the gateway until it gets the order to stop, or until another process serves in its place.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};
use weir_admin::{AdminServer, StartError};
use weir_config::{Diagnostics, Snapshot, surroundings::Machine};

use crate::{
    gateway::Gateway,
    program_log, systemd,
    upgrade::{Inheritance, predecessor::Predecessor, program::Program},
    version,
};

/// How many ports behind the default one of the admin server are tried. Default 99: a gateway without a file is one of a few.
const ADMIN_PORTS: u16 = 99;

/// Start the gateway.
///
/// SIGHUP reloads the configuration file. SIGUSR2 starts a new process of the program, which takes over the sockets, as with
/// `weir upgrade`. SIGTERM and SIGINT drain and exit; a second signal exits at once.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir run --config weir.toml\n  kill -HUP $(pidof weir)   # reload\n  kill -USR2 $(pidof weir)  # upgrade\n  kill -TERM $(pidof weir)  # drain and exit"
)]
pub struct RunArgs {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", default_value = "weir.toml", env = "WEIR_CONFIG")]
    config: PathBuf,
    /// Count the AI usage recorded for future days and months against the budgets of today and this month. Use it for one start, after
    /// the correction of a clock that was ahead. Without it, budgets stay in the latest recorded day and month until the clock reaches
    /// them.
    #[arg(long)]
    trust_clock: bool,
}

/// Where the configuration comes from.
pub enum Source {
    /// A file, which a reload reads again.
    File {
        /// Its path.
        path: PathBuf,
        /// `--trust-clock`
        trusts_clock: bool,
    },
    /// A text generated from the command line. A reload finds nothing to change.
    Text {
        /// Text of a configuration file.
        text: String,
        /// The text names no address of the admin server: if the default port is taken, the next free one serves.
        is_admin_open: bool,
    },
}

impl Source {
    fn file(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Text { .. } => None,
        }
    }

    fn trusts_clock(&self) -> bool {
        matches!(self, Self::File { trusts_clock: true, .. })
    }

    fn is_admin_open(&self) -> bool {
        matches!(self, Self::Text { is_admin_open: true, .. })
    }

    fn load(&self) -> Result<Snapshot, Diagnostics> {
        let env = |name: &str| std::env::var(name).ok();
        match self {
            Self::File { path, .. } => weir_config::load(path, &env),
            Self::Text { text, .. } => weir_config::check(text, &self.to_string(), Path::new(""), &Machine::new(&env)),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => write!(f, "{}", path.display()),
            Self::Text { .. } => f.write_str("the command line"),
        }
    }
}

pub fn run(args: &RunArgs) -> Result<(), String> {
    serve(&Source::File { path: args.config.clone(), trusts_clock: args.trust_clock }, |_, _| {})
}

/// Serves until a signal says otherwise. `started` is called once clients can connect, with the address of the admin server.
///
/// # Errors
/// In words: why nothing was started.
pub fn serve(source: &Source, started: impl FnOnce(&Gateway, SocketAddr)) -> Result<(), String> {
    let program = Program::of_this_process();
    let runtime = control_runtime()?;
    let orders = {
        let _context = runtime.enter();
        Orders::listen()
    };
    let predecessor = Predecessor::find()?;
    let mut log = None;
    let (gateway, server, stops) = match start(source, program, predecessor.as_ref(), &runtime, &mut log) {
        Ok(started) => started,
        Err(reason) => {
            if let Some(predecessor) = &predecessor {
                predecessor.fail(&reason);
            }
            return Err(reason);
        }
    };
    if let Some(predecessor) = predecessor {
        gateway.watch_predecessor(predecessor.serving());
    }
    announce(&gateway, &server);
    gateway.notify_ready();
    started(&gateway, server.local_addr());
    runtime.block_on(until_stopped(&gateway, orders, stops));
    server.stop();
    // A reload that waits for a name server does not hold up the end.
    runtime.shutdown_background();
    Ok(())
}

/// Signals whose default action would end the process: one that comes during the start waits until it can be served.
struct Orders {
    reload: Signal,
    upgrade: Signal,
}

impl Orders {
    fn listen() -> Self {
        Self { reload: on(SignalKind::hangup()), upgrade: on(SignalKind::user_defined2()) }
    }
}

/// The orders to stop. During the start their default action is right; from the first connection on it would cut clients.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn listen() -> Self {
        Self { terminate: on(SignalKind::terminate()), interrupt: on(SignalKind::interrupt()) }
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The guard of the program's own log: what is queued is written when it is dropped.
type Log = Option<tracing_appender::non_blocking::WorkerGuard>;

/// Up to the first connection that may come in.
fn start(
    source: &Source,
    program: Program,
    predecessor: Option<&Predecessor>,
    runtime: &Runtime,
    log: &mut Log,
) -> Result<(Arc<Gateway>, AdminServer, StopSignals), String> {
    let mut inheritance = predecessor.map(Predecessor::inheritance).transpose()?.unwrap_or_default();
    let snapshot = source.load().map_err(|diagnostics| {
        let mistakes = crate::check::mistakes(&diagnostics);
        let summary = format!("{source}: {mistakes}; nothing was started");
        // The process that waits has but one message; an operator at a terminal sees the mistakes in front of the sentence.
        if predecessor.is_some() {
            return format!("{summary}\n{diagnostics}");
        }
        eprintln!("{diagnostics}");
        summary
    })?;
    let (guard, level) = program_log::start(&snapshot.telemetry);
    *log = Some(guard);
    if !snapshot.warnings.is_empty() {
        tracing::warn!("configuration warnings\n{}", snapshot.warnings);
    }
    let admin = snapshot.admin.clone();
    // The process that an upgrade starts has the same command line, and goes on with the journal of the one before.
    let trusts_clock = source.trusts_clock() && predecessor.is_none();
    let gateway = Gateway::prepare(snapshot, source.file().map(Path::to_owned), trusts_clock, &mut inheritance);
    let gateway = gateway.map_err(|error| error.to_string())?;
    gateway.set_log_level_switch(level);
    let socket = admin_socket(&admin, &mut inheritance, source, &gateway)?;
    if let Some(predecessor) = predecessor {
        let untaken = std::mem::take(&mut inheritance.listeners);
        gateway.go_on_with(predecessor.wait_take(&untaken, gateway.movable(), gateway.budget_state())?);
        gateway.take_budgets()?;
    }
    let copy = socket.try_clone().map_err(|error| format!("cannot copy the admin socket: {error}"))?;
    let stops = {
        let _context = runtime.enter();
        StopSignals::listen()
    };
    // A client that gets a response from the admin server may connect.
    gateway.listen().map_err(|error| error.to_string())?;
    let server = start_admin(&gateway, &admin, socket)?;
    gateway.allow_upgrades(program, admin.bind.to_string(), copy, server.stopper());
    gateway.serve();
    Ok((gateway, server, stops))
}

/// The socket of the admin server: that of the process before, if it is at the same address. The address of the configuration counts
/// for this, so that a port that was free stays the same over upgrades.
fn admin_socket(
    admin: &weir_config::AdminSettings,
    inheritance: &mut Inheritance,
    source: &Source,
    gateway: &Gateway,
) -> Result<TcpListener, String> {
    let is_same = |(bind, socket): &(String, TcpListener)| {
        *bind == admin.bind.to_string() || socket.local_addr().is_ok_and(|address| address == admin.bind)
    };
    match inheritance.admin.take().filter(is_same) {
        Some((_, socket)) => Ok(socket),
        None => match weir_admin::bind(&admin_settings(admin)) {
            Err(StartError::Bind { source: error, .. }) if is_taken(&error) && source.is_admin_open() => {
                next_free(admin, gateway)
            }
            bound => bound.map_err(|error| error.to_string()),
        },
    }
}

/// The first free port behind the one of the settings. The listeners are bound and do not listen yet, so the kernel would let the admin
/// server listen at their ports, and refuse them then.
fn next_free(admin: &weir_config::AdminSettings, gateway: &Gateway) -> Result<TcpListener, String> {
    let snapshot = gateway.snapshot();
    let is_listeners = |port| snapshot.listeners.iter().any(|one| one.settings.bind.port() == Some(port));
    let last = admin.bind.port().saturating_add(ADMIN_PORTS);
    for port in (admin.bind.port() + 1..=last).filter(|port| !is_listeners(*port)) {
        let mut settings = admin_settings(admin);
        settings.bind.set_port(port);
        match weir_admin::bind(&settings) {
            Err(StartError::Bind { source, .. }) if is_taken(&source) => {}
            bound => return bound.map_err(|error| error.to_string()),
        }
    }
    Err(format!("admin server: the ports {} to {last} are taken; choose another one with --admin", admin.bind.port()))
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// The runtime of the control thread.
pub fn control_runtime() -> Result<Runtime, String> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| format!("cannot start the control thread: {error}"))
}

/// Waits for SIGINT or SIGTERM.
pub async fn until_interrupted() {
    StopSignals::listen().next().await;
}

fn on(kind: SignalKind) -> Signal {
    signal(kind).expect("a signal handler can be installed at start")
}

/// Starts the admin server as the configuration asks.
fn start_admin(
    gateway: &Arc<Gateway>,
    admin: &weir_config::AdminSettings,
    socket: TcpListener,
) -> Result<AdminServer, String> {
    let server = AdminServer::start_on(admin_settings(admin), socket, gateway.clone());
    let server = server.map_err(|error| error.to_string())?;
    gateway.set_admin_access(server.access());
    Ok(server)
}

fn admin_settings(admin: &weir_config::AdminSettings) -> weir_admin::AdminSettings {
    weir_admin::AdminSettings {
        bind: admin.bind,
        token: admin.token.clone(),
        hosts: admin.hosts.clone(),
        deadlines: weir_admin::Deadlines::default(),
    }
}

fn announce(gateway: &Gateway, server: &AdminServer) {
    let snapshot = gateway.snapshot();
    for listener in &snapshot.listeners {
        let name = &listener.settings.name;
        let bind = gateway.bound(name).unwrap_or_default();
        tracing::info!(listener = %name, %bind, upstream = %listener.upstream, "listening");
    }
    let (admin, driver, restart_epoch) = (server.local_addr(), gateway.driver().name(), gateway.restart_epoch());
    tracing::info!(%admin, driver, restart_epoch, version = version::VERSION, commit = version::COMMIT, "ready");
}

/// Serves signals until the gateway has drained.
async fn until_stopped(gateway: &Arc<Gateway>, mut orders: Orders, mut stops: StopSignals) {
    tokio::spawn(feed_watchdog(gateway.clone()));
    let mut reloads = JoinSet::new();
    loop {
        tokio::select! {
            // One at a time; what is ordered meanwhile is one more.
            _ = orders.reload.recv(), if reloads.is_empty() => reload(gateway, &mut reloads),
            Some(_) = reloads.join_next() => {}
            _ = orders.upgrade.recv() => upgrade(gateway),
            () = stops.next() => break,
            () = gateway.drain_requested() => break,
        }
    }
    gateway.cancel_upgrade();
    let mut drain = std::pin::pin!(gateway.drain());
    // After an upgrade this process has not received a stop signal; a service that is stopped as a whole sends it now.
    let enough = || if gateway.is_handed_over() { 2 } else { 1 };
    let mut signals = 0;
    while signals < enough() {
        tokio::select! {
            _ = &mut drain => return,
            () = stops.next() => signals += 1,
        }
    }
    tracing::warn!("second signal: exiting at once");
}

/// An upgrade takes seconds, in which other signals are served.
fn upgrade(gateway: &Arc<Gateway>) {
    let gateway = gateway.clone();
    // Its result is logged, and a drain requested, where it is known.
    tokio::task::spawn_blocking(move || drop(gateway.upgrade()));
}

/// Tells the service manager that no worker is stuck, as often as it wants to hear it.
async fn feed_watchdog(gateway: Arc<Gateway>) {
    let Some(interval) = systemd::watchdog_interval(gateway.restart_epoch() > 0) else { return };
    loop {
        if gateway.is_handed_over() {
            return;
        }
        if !gateway.has_stalled_worker() {
            systemd::mention("WATCHDOG=1");
        }
        tokio::time::sleep(interval).await;
    }
}

/// A reload reads files and resolves names, so it runs beside the control thread, which serves other signals meanwhile.
fn reload(gateway: &Arc<Gateway>, reloads: &mut JoinSet<()>) {
    let gateway = gateway.clone();
    reloads.spawn_blocking(move || drop(gateway.reload()));
}
