//! `weir run`: the gateway until it is told to stop.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use weir_admin::AdminServer;
use weir_config::{LogFormat, Snapshot};

use crate::gateway::Gateway;

/// Start the gateway.
///
/// SIGHUP reads the configuration file again; SIGTERM and SIGINT drain and exit, a second one exits at once.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir run --config weir.toml\n  kill -HUP $(pidof weir)   # reload\n  kill -TERM $(pidof weir)  # drain and exit"
)]
pub struct RunArgs {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", default_value = "weir.toml", env = "WEIR_CONFIG")]
    config: PathBuf,
}

pub fn run(args: &RunArgs) -> Result<(), String> {
    let snapshot = weir_config::load(&args.config, &|name| std::env::var(name).ok()).map_err(|diagnostics| {
        eprintln!("{diagnostics}");
        format!("{}: {}; nothing was started", args.config.display(), crate::check::mistakes(&diagnostics))
    })?;
    let _log = start_log(&snapshot);
    if !snapshot.warnings.is_empty() {
        tracing::warn!("configuration warnings\n{}", snapshot.warnings);
    }
    let admin = snapshot.admin.clone();
    let gateway = Gateway::start(snapshot, Some(args.config.clone())).map_err(|error| error.to_string())?;
    let server = start_admin(&gateway, &admin)?;
    announce(&gateway, &server);
    control_runtime()?.block_on(until_stopped(&gateway));
    server.stop();
    Ok(())
}

/// The runtime of the control thread.
pub fn control_runtime() -> Result<tokio::runtime::Runtime, String> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| format!("cannot start the control thread: {error}"))
}

/// Waits for SIGINT or SIGTERM.
pub async fn until_interrupted() {
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate()), on(SignalKind::interrupt()));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn on(kind: SignalKind) -> Signal {
    signal(kind).expect("a signal handler can be installed at start")
}

/// Starts the admin server as the configuration asks.
pub fn start_admin(gateway: &Arc<Gateway>, admin: &weir_config::AdminSettings) -> Result<AdminServer, String> {
    let settings = weir_admin::AdminSettings {
        bind: admin.bind,
        token: admin.token.clone(),
        hosts: admin.hosts.clone(),
        deadlines: weir_admin::Deadlines::default(),
    };
    let server = AdminServer::start(settings, gateway.clone()).map_err(|error| error.to_string())?;
    gateway.set_admin_access(server.access());
    Ok(server)
}

fn announce(gateway: &Gateway, server: &AdminServer) {
    let snapshot = gateway.snapshot();
    for listener in &snapshot.listeners {
        let name = &listener.settings.name;
        let bind = gateway.bound(name).unwrap_or_default();
        tracing::info!(listener = %name, %bind, upstream = %listener.upstream, "listening");
    }
    tracing::info!(admin = %server.local_addr(), driver = gateway.driver().name(), "ready");
}

/// Serves signals until the gateway has drained.
async fn until_stopped(gateway: &Arc<Gateway>) {
    let (mut hangup, mut terminate, mut interrupt) =
        (on(SignalKind::hangup()), on(SignalKind::terminate()), on(SignalKind::interrupt()));
    loop {
        tokio::select! {
            _ = hangup.recv() => reload(gateway).await,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = gateway.drain_asked() => break,
        }
    }
    tokio::select! {
        _ = gateway.drain() => {}
        _ = terminate.recv() => tracing::warn!("second signal: exiting at once"),
        _ = interrupt.recv() => tracing::warn!("second signal: exiting at once"),
    }
}

/// A reload reads files, so it runs beside the control thread.
async fn reload(gateway: &Arc<Gateway>) {
    let gateway = gateway.clone();
    let _ = tokio::task::spawn_blocking(move || drop(gateway.reload())).await;
}

/// Lines of the program's own log that wait to be written; more are dropped. The queue is laid out at start, 32 bytes each:
/// the crate's default of 128,000 would be a third of the process at rest.
const LOG_LINES_MAX: usize = 4_096;

/// Starts the program's own log. Lines go through a bounded queue: a terminal or a pipe that takes no more must stop neither
/// a reload nor the way out. What is queued is written when the guard is dropped.
fn start_log(snapshot: &Snapshot) -> tracing_appender::non_blocking::WorkerGuard {
    let builder = tracing_appender::non_blocking::NonBlockingBuilder::default();
    let (writer, guard) = builder.buffered_lines_limit(LOG_LINES_MAX).finish(std::io::stderr());
    let filter = tracing_subscriber::EnvFilter::try_from_env("WEIR_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(snapshot.telemetry.log_level.name()));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    match snapshot.telemetry.log_format {
        LogFormat::Text => builder.with_ansi(is_terminal).init(),
        LogFormat::Json => builder.json().init(),
    }
    guard
}
