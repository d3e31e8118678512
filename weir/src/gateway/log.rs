//! The workers' log, written by a thread that may block: a full disk costs lines, never requests.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use weir_base::time::Time;
use weir_telemetry::{
    log::{LogEvent, LogReader, Suppressed, UpstreamChange},
    sample::{OncePerSecond, Verdict},
};

use super::{Reloaded, access_log::AccessLog};

const LOOK: Duration = Duration::from_millis(50);
/// How often the tails of storms are logged.
const TAILS: Duration = Duration::from_secs(1);

/// Moves events from the workers' rings to their places until the gateway stops.
pub fn run(rings: Vec<LogReader>, mut access: AccessLog, stopping: &AtomicBool) {
    let (mut sampler, mut told) = (OncePerSecond::new(), Time::now());
    loop {
        let is_last = stopping.load(Ordering::Relaxed);
        for ring in &rings {
            while let Some(event) = ring.pop() {
                if let Some(suppressed) = sample(&event, &mut sampler) {
                    write(event, suppressed);
                }
            }
            ring.take_lines(|lines| access.write(lines));
        }
        access.look();
        let now = Time::now();
        if is_last || now.since(told) >= TAILS {
            told = now;
            for (of, reason, count) in sampler.take_suppressed(if is_last { Time::NEVER } else { now }) {
                write(LogEvent::Suppressed(Suppressed { at: now, of, reason, count }), 0);
            }
        }
        if is_last {
            return;
        }
        thread::sleep(LOOK);
    }
}

/// Decides whether the event is written: unless one like it happened within a second before. Each worker has done so for its own; an
/// upstream that goes away goes away for all of them. Returns the number of lines like it that were left out since the last one.
fn sample(event: &LogEvent, sampler: &mut OncePerSecond) -> Option<u64> {
    let (of, reason) = (event.of(), event.reason());
    if let LogEvent::Suppressed(tail) = event {
        sampler.suppress(&of, reason, tail.count);
        return None;
    }
    // When it happened, and not when it is read: this thread may have waited for a disk.
    match sampler.check_many(&of, reason, 1 + event.suppressed(), event.at()) {
        Verdict::Log { suppressed } => Some(suppressed),
        Verdict::Suppress => None,
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
        // Clients choose the names: they are written as quoted texts.
        LogEvent::Slow(slow) => tracing::warn!(
            listener = %slow.listener, peer = %slow.peer, connection = slow.connection, user = ?slow.user,
            database = ?slow.database, class = slow.class.unwrap_or("-"),
            fingerprint = slow.fingerprint.map_or_else(|| "-".to_owned(), |number| format!("{number:016x}")),
            duration_ms = slow.duration.as_millis() as u64, suppressed, "slow statement"
        ),
        // At the level of the lines that it stands for: a log without it would lose their number.
        LogEvent::Suppressed(tail) if tail.reason == UpstreamChange::Up.as_str() => {
            tracing::info!(of = %tail.of, reason = tail.reason, count = tail.count, "lines suppressed");
        }
        LogEvent::Suppressed(tail) => {
            tracing::warn!(of = %tail.of, reason = tail.reason, count = tail.count, "lines suppressed");
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

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use weir_base::Culprit;
    use weir_telemetry::log::Refusal;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn refusal(millis: u64, suppressed: u64) -> LogEvent {
        let (listener, reason, culprit) = ("cache".into(), "queue_full", Culprit::Gateway);
        LogEvent::Refusal(Refusal { at: at(millis), listener, reason, culprit, count: 1, limit: 1, suppressed })
    }

    #[test]
    fn events_that_are_read_at_once_are_sampled_by_the_time_at_which_they_happened() {
        let mut sampler = OncePerSecond::new();
        let events = [refusal(0, 0), refusal(900, 3), refusal(1_100, 0), refusal(2_200, 1)];
        let written = events.map(|event| sample(&event, &mut sampler));
        assert_eq!(written, [Some(0), None, Some(4), Some(1)]);
    }

    /// The lines from WARN on.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_of_warnings_has_the_number_of_the_lines_left_out() {
        let lines = Lines::default();
        let into = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::WARN)
            .with_writer(move || into.clone());
        tracing::subscriber::with_default(subscriber.finish(), || {
            for (reason, count) in [("queue_full", 9), (UpstreamChange::Up.as_str(), 8)] {
                write(LogEvent::Suppressed(Suppressed { at: at(0), of: "cache".into(), reason, count }), 0);
            }
        });
        let text = String::from_utf8(lines.0.lock().expect("no panic").clone()).expect("text");
        assert!(text.contains("lines suppressed") && text.contains("count=9"), "{text}");
        assert!(!text.contains("count=8"), "`upstream is up` is no warning: {text}");
    }

    #[test]
    fn lines_that_a_worker_left_out_are_reported_at_the_end_of_the_series() {
        let mut sampler = OncePerSecond::new();
        assert_eq!(sample(&refusal(0, 0), &mut sampler), Some(0));
        let tail = Suppressed { at: at(1_000), of: "cache".into(), reason: "queue_full", count: 9 };
        assert_eq!(sample(&LogEvent::Suppressed(tail), &mut sampler), None);
        assert_eq!(sampler.take_suppressed(at(1_000)), [("cache".into(), "queue_full", 9)]);
    }
}
