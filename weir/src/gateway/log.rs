//! What the workers log, written by a thread that may block: a full disk costs lines, never requests.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use weir_config::AccessLogSettings;
use weir_telemetry::log::{LogEvent, LogReader, UpstreamChange};

use super::{Reloaded, access_log::AccessLog};

const LOOK: Duration = Duration::from_millis(50);

/// Moves events from the workers' rings to their places until the gateway stops.
pub fn run(rings: Vec<LogReader>, settings: &AccessLogSettings, stopping: &AtomicBool) {
    let mut access = AccessLog::new(settings);
    loop {
        let is_last = stopping.load(Ordering::Relaxed);
        for ring in &rings {
            while let Some(event) = ring.pop() {
                write(event);
            }
            ring.take_lines(|lines| access.write(lines));
        }
        access.look();
        if is_last {
            return;
        }
        thread::sleep(LOOK);
    }
}

fn write(event: LogEvent) {
    match event {
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
        LogEvent::Upstream(event) if event.change == UpstreamChange::Unreachable => tracing::warn!(
            upstream = %event.upstream, endpoint = %event.endpoint,
            detail = event.detail.as_deref().unwrap_or_default(), "upstream cannot be reached"
        ),
        LogEvent::Upstream(event) => tracing::warn!(
            upstream = %event.upstream, endpoint = %event.endpoint, change = event.change.as_str(),
            reason = event.reason, detail = event.detail.as_deref().unwrap_or_default(), "upstream"
        ),
        LogEvent::Suppressed(lines) => {
            tracing::info!(listener = %lines.listener, reason = lines.reason, count = lines.count, "lines suppressed")
        }
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
