//! What the workers log, written by a thread that may block: a full disk costs lines, never requests.

use std::{
    fs::OpenOptions,
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, SystemTime},
};

use weir_base::time::Time;
use weir_config::{AccessLogFormat, AccessLogSettings, LogTarget};
use weir_telemetry::log::{AccessRecord, LogEvent, LogReader, UpstreamChange};

use super::Reloaded;

const LOOK: Duration = Duration::from_millis(50);

/// Moves events from the workers' rings to their places until the gateway stops.
pub fn run(rings: Vec<LogReader>, settings: &AccessLogSettings, stopping: &AtomicBool) {
    let mut target = open(&settings.target);
    loop {
        let is_last = stopping.load(Ordering::Relaxed);
        for ring in &rings {
            while let Some(event) = ring.pop() {
                write(event, settings.format, target.as_mut());
            }
        }
        if let Some(target) = &mut target {
            let _ = target.flush();
        }
        if is_last {
            return;
        }
        thread::sleep(LOOK);
    }
}

fn open(target: &LogTarget) -> Option<Box<dyn Write>> {
    match target {
        LogTarget::Off => None,
        LogTarget::Stdout => Some(Box::new(std::io::stdout())),
        LogTarget::Stderr => Some(Box::new(std::io::stderr())),
        LogTarget::File(path) => match OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => Some(Box::new(std::io::BufWriter::new(file))),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "cannot open the access log; it is off");
                None
            }
        },
    }
}

fn write(event: LogEvent, format: AccessLogFormat, target: Option<&mut Box<dyn Write>>) {
    match event {
        LogEvent::Access(record) => {
            if let Some(target) = target {
                // A log that cannot be written must not stop the others.
                let _ = writeln!(target, "{}", line(&record, format));
            }
        }
        LogEvent::Close(close) => tracing::warn!(
            listener = %close.listener, peer = %close.peer, connection = close.connection,
            reason = close.violation.reason, count = close.violation.count, limit = close.violation.limit,
            suppressed = close.suppressed, "{}", close.violation.text
        ),
        LogEvent::Refusal(refusal) => tracing::warn!(
            listener = %refusal.listener, reason = refusal.reason, count = refusal.count, limit = refusal.limit,
            suppressed = refusal.suppressed, "refused"
        ),
        LogEvent::Denial(denial) => tracing::warn!(
            listener = %denial.listener, peer = %denial.peer, connection = denial.connection, user = %denial.user,
            reason = denial.reason, suppressed = denial.suppressed, "denied"
        ),
        LogEvent::Upstream(event) if event.change == UpstreamChange::Up => {
            tracing::info!(upstream = %event.upstream, endpoint = %event.endpoint, "upstream is up")
        }
        LogEvent::Upstream(event) => tracing::warn!(
            upstream = %event.upstream, endpoint = %event.endpoint, change = event.change.as_str(),
            reason = event.reason, detail = event.detail.as_deref().unwrap_or_default(), "upstream"
        ),
        LogEvent::Suppressed(lines) => {
            tracing::info!(listener = %lines.listener, reason = lines.reason, count = lines.count, "lines suppressed")
        }
    }
}

fn line(record: &AccessRecord, format: AccessLogFormat) -> String {
    let age = Time::now().since(record.at);
    let at = SystemTime::now().checked_sub(age).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let at = at.unwrap_or_default().as_secs_f64();
    let upstream = record.upstream.as_deref().unwrap_or("-");
    let (took, upstream_took) = (record.duration_nanos / 1_000, record.upstream_nanos / 1_000);
    match format {
        AccessLogFormat::Text => format!(
            "{at:.3} {} {} {} {} {upstream} {took}us {upstream_took}us {}B {}B {}",
            record.listener,
            record.peer,
            record.connection,
            record.command,
            record.request_bytes,
            record.reply_bytes,
            record.outcome
        ),
        AccessLogFormat::Json => serde_json::json!({
            "time": at, "listener": &*record.listener, "peer": record.peer.to_string(),
            "connection": record.connection, "command": record.command, "upstream": upstream,
            "duration_us": took, "upstream_us": upstream_took,
            "request_bytes": record.request_bytes, "reply_bytes": record.reply_bytes, "outcome": record.outcome,
        })
        .to_string(),
    }
}

/// Says what became of a reload.
pub fn reloaded(outcome: &Reloaded, generation: u64) {
    match outcome {
        Reloaded::Applied(change) => {
            tracing::info!(generation, applied = ?change.applied, "configuration reloaded");
            if !change.needs_restart.is_empty() {
                tracing::warn!(keys = ?change.needs_restart, "these changes wait for a restart");
            }
        }
        Reloaded::Unchanged => tracing::info!(generation, "configuration unchanged"),
        Reloaded::Rejected(diagnostics) => {
            tracing::error!(generation, "configuration rejected, the last good one stays in force\n{diagnostics}");
        }
        Reloaded::Refused(error) => {
            tracing::error!(generation, %error, "configuration refused, the last good one stays in force");
        }
    }
}
