//! The events of one worker on their way to the log: one per subject, reason and second, and the number of the rest.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use weir_base::Time;

use crate::log::{LogEvent, LogWriter, Suppressed};
use crate::sample::{OncePerSecond, Verdict};

/// The sampled log of one worker. Clones share the sampler. The log's thread samples once more, over all workers.
#[derive(Clone)]
pub struct EventLog {
    writer: LogWriter,
    sampler: Rc<RefCell<OncePerSecond>>,
}

impl EventLog {
    /// Events go to `writer`.
    #[must_use]
    pub fn new(writer: LogWriter) -> EventLog {
        EventLog { writer, sampler: Rc::default() }
    }

    /// Queues an event of `of` (a listener, or an endpoint with its upstream), unless one with this reason was queued within a second.
    /// `event` makes it from the number of those left out since.
    pub fn push(&self, of: &Arc<str>, reason: &'static str, now: Time, event: impl FnOnce(u64) -> LogEvent) {
        if let Verdict::Log { suppressed } = self.sampler.borrow_mut().check(of, reason, now) {
            self.writer.push(event(suppressed));
        }
    }

    /// Reports the events left out of series that are over. The worker calls it several times a second, so that the end of a storm
    /// is not kept back until the next one.
    pub fn report_suppressed(&self, now: Time) {
        let over = self.sampler.borrow_mut().take_suppressed(now);
        self.report(now, over);
    }

    /// As [`EventLog::report_suppressed`], of all series: the worker ends.
    pub fn report_all(&self, now: Time) {
        let all = self.sampler.borrow_mut().take_suppressed(Time::NEVER);
        self.report(now, all);
    }

    fn report(&self, at: Time, series: Vec<(Arc<str>, &'static str, u64)>) {
        for (of, reason, count) in series {
            self.writer.push(LogEvent::Suppressed(Suppressed { at, of, reason, count }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Refusal, log_ring};
    use weir_base::Culprit;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn refused(events: &EventLog, listener: &Arc<str>, now: Time) {
        events.push(listener, "queue_full", now, |suppressed| {
            let (listener, reason, culprit) = (listener.clone(), "queue_full", Culprit::Gateway);
            LogEvent::Refusal(Refusal { at: now, listener, reason, culprit, count: 1, limit: 1, suppressed })
        });
    }

    /// The lines that an event stands for: itself if it is one, and those left out.
    fn counts(event: &LogEvent) -> (u64, u64) {
        match event {
            LogEvent::Refusal(refusal) => (1, refusal.suppressed),
            LogEvent::Suppressed(tail) => (0, tail.count),
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn events_left_out_are_reported_when_their_series_is_over() {
        let (writer, reader) = log_ring(64, None);
        let (events, listener) = (EventLog::new(writer), Arc::from("cache"));
        (0..10).for_each(|millis| refused(&events.clone(), &listener, at(millis)));
        events.report_suppressed(at(900));
        assert_eq!(reader.pop().as_ref().map(counts), Some((1, 0)));
        assert!(reader.pop().is_none(), "the second is not over");
        events.report_suppressed(at(1_000));
        events.report_suppressed(at(1_100));
        let tail = reader.pop().expect("the tail");
        assert_eq!((counts(&tail), tail.at(), tail.reason()), ((0, 9), at(1_000), "queue_full"));
        assert!(reader.pop().is_none(), "once");
    }

    #[test]
    fn the_last_events_are_reported_at_the_end_of_the_worker() {
        let (writer, reader) = log_ring(64, None);
        let events = EventLog::new(writer);
        let names: Vec<Arc<str>> = vec!["cache".into(), "web".into()];
        for name in &names {
            (0..3).for_each(|millis| refused(&events, name, at(millis)));
        }
        events.report_all(at(5));
        let all = std::iter::from_fn(|| reader.pop()).map(|event| counts(&event));
        assert_eq!(all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)), (2, 4));
    }
}
