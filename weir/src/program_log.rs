//! The program's own log.

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, reload};
use weir_config::{LogFormat, LogLevel, TelemetrySettings};

/// Lines that wait to be written; more are dropped. The queue is laid out at start, 32 bytes each: the crate's default of 128,000
/// would be a third of the process at rest.
const LOG_LINES_MAX: usize = 4_096;

/// A filter in the place of `telemetry.log_level`.
const VARIABLE: &str = "WEIR_LOG";

/// Changes the least severity of the lines.
pub struct LogLevelSwitch {
    set: Box<dyn Fn(EnvFilter) + Send + Sync>,
    /// The environment says what is logged.
    is_fixed: bool,
}

/// Starts the log. Dropping the guard writes the queued lines. Lines go through a bounded queue: a blocked terminal or pipe must
/// stop neither a reload nor the exit.
pub fn start(settings: &TelemetrySettings) -> (WorkerGuard, LogLevelSwitch) {
    let builder = NonBlockingBuilder::default();
    let (writer, guard) = builder.buffered_lines_limit(LOG_LINES_MAX).finish(std::io::stderr());
    let named = EnvFilter::try_from_env(VARIABLE).ok();
    let is_fixed = named.is_some();
    let filter = named.unwrap_or_else(|| filter(settings.log_level));
    let builder = tracing_subscriber::fmt().with_writer(writer).with_target(false);
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let set = match settings.log_format {
        LogFormat::Text => {
            let builder = builder.with_ansi(is_terminal).with_env_filter(filter).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            setter(handle)
        }
        LogFormat::Json => {
            let builder = builder.json().with_env_filter(filter).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            setter(handle)
        }
    };
    (guard, LogLevelSwitch { set, is_fixed })
}

impl LogLevelSwitch {
    /// Logs lines of `level` and above from now on, unless the environment says what is logged.
    pub fn set(&self, level: LogLevel) {
        match self.is_fixed {
            true => tracing::warn!("{VARIABLE} is set, so telemetry.log_level has no effect"),
            false => (self.set)(filter(level)),
        }
    }
}

/// The gateway counts HTTP/2 frame violations of clients and logs them once a second: `h2` would write a line for each.
fn filter(level: LogLevel) -> EnvFilter {
    EnvFilter::new(format!("{},h2=off", level.name()))
}

fn setter<S: 'static>(handle: reload::Handle<EnvFilter, S>) -> Box<dyn Fn(EnvFilter) + Send + Sync> {
    // It fails once the log is gone, with the process.
    Box::new(move |filter| drop(handle.reload(filter)))
}
