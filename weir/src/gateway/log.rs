//! What the workers log, written by a thread that may block: a full disk costs lines, never requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use weir_base::time::Time;
use weir_telemetry::{
    log::{LogEvent, LogReader, UpstreamChange},
    sample::{OncePerSecond, Verdict},
};

use super::{Reloaded, access_log::AccessLog};

const LOOK: Duration = Duration::from_millis(50);
/// How often the tails of storms are told.
const TAILS: Duration = Duration::from_secs(1);

/// Moves events from the workers' rings to their places until the gateway stops.
pub fn run(rings: Vec<LogReader>, mut access: AccessLog, stopping: &AtomicBool) {
    let (mut sampler, mut told) = (OncePerSecond::new(), Time::now());
    loop {
        let is_last = stopping.load(Ordering::Relaxed);
        for ring in &rings {
            while let Some(event) = ring.pop() {
                sample(event, &mut sampler);
            }
            ring.take_lines(|lines| access.write(lines));
        }
        access.look();
        let now = Time::now();
        if is_last || now.since(told) >= TAILS {
            told = now;
            for (of, reason, count) in sampler.take_suppressed(now) {
                tracing::info!(%of, reason, count, "lines suppressed");
            }
        }
        if is_last {
            return;
        }
        thread::sleep(LOOK);
    }
}

/// Writes an event unless one like it was written within a second. Each worker has done so for its own; an upstream that goes away
/// goes away for all of them.
fn sample(event: LogEvent, sampler: &mut OncePerSecond) {
    let (of, reason, suppressed): (Arc<str>, _, _) = match &event {
        LogEvent::Close(close) => (close.listener.clone(), close.violation.reason, close.suppressed),
        LogEvent::Refusal(refusal) => (refusal.listener.clone(), refusal.reason, refusal.suppressed),
        LogEvent::Denial(denial) => (denial.listener.clone(), denial.reason, denial.suppressed),
        LogEvent::Upstream(event) => {
            (format!("{} {}", event.upstream, event.endpoint).into(), event.change.as_str(), event.suppressed)
        }
    };
    if let Verdict::Log { suppressed } = sampler.check_many(&of, reason, 1 + suppressed, Time::now()) {
        write(event, suppressed);
    }
}

/// `suppressed`: lines like it that were left out since the last one, on all workers.
fn write(event: LogEvent, suppressed: u64) {
    match event {
        LogEvent::Close(close) => tracing::warn!(
            listener = %close.listener, peer = %close.peer, connection = close.connection,
            reason = close.violation.reason, count = close.violation.count, limit = close.violation.limit,
            suppressed, "{}", close.violation.text
        ),
        LogEvent::Refusal(refusal) => tracing::warn!(
            listener = %refusal.listener, reason = refusal.reason, count = refusal.count, limit = refusal.limit,
            suppressed, "refused"
        ),
        LogEvent::Denial(denial) => tracing::warn!(
            listener = %denial.listener, peer = %denial.peer, connection = denial.connection, user = %denial.user,
            reason = denial.reason, suppressed, "denied"
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
            reason = event.reason, detail = event.detail.as_deref().unwrap_or_default(), suppressed, "upstream"
        ),
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
