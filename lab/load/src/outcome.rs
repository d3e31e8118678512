//! The results of the requests of one shard: counters and latencies, merged by adding.
//!
//! Each request that belongs to the window ends in exactly one of: completed, shed, error, skipped. Requests still under
//! way when the drain limit is over are timeouts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_knee::rules::LAG_MAX;
pub use weir_knee::trial::Errors;

use crate::recorder::Recorder;
use crate::requests::Integrity;

/// The four instants of a request, in nanoseconds on one clock, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// When the schedule wanted it sent.
    pub intended: u64,
    /// When a slot of a connection was free for it; at least `intended`.
    pub ready: u64,
    /// When its first byte was handed to the kernel.
    pub sent: u64,
    /// When its reply was there and checked, or when it failed.
    pub completed: u64,
}

impl Stamps {
    /// Waiting because all slots were busy: the system under test is behind.
    #[must_use]
    pub const fn backlog(&self) -> u64 {
        self.ready.saturating_sub(self.intended)
    }

    /// Waiting although a slot was free: the generator is behind.
    #[must_use]
    pub const fn generator_lag(&self) -> u64 {
        self.sent.saturating_sub(self.ready)
    }

    /// Time from send to reply, as closed-loop tools report it.
    #[must_use]
    pub const fn service(&self) -> u64 {
        self.completed.saturating_sub(self.sent)
    }

    /// The latency that counts.
    #[must_use]
    pub const fn sojourn(&self) -> u64 {
        self.completed.saturating_sub(self.intended)
    }
}

/// The decision on a request whose turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is within the late limit.
    Send,
    /// It is not, because of its wait for a slot: evidence of overload.
    SkipBacklog,
    /// It is not, because of the generator: the trial is invalid.
    SkipGenerator,
}

impl Turn {
    /// For a request intended at `intended`, with a slot since `ready`, whose turn is `now`; nanoseconds.
    ///
    /// In an overload the queue stands at the late limit, and requests whose slot came just in time pass it while the
    /// generator gets round to them. So up to a tenth of the limit, and not more than [`LAG_MAX`], is not held against it,
    /// as a tenth of the sojourn is not for requests that were sent.
    #[must_use]
    pub fn of(intended: u64, ready: u64, now: u64, late_limit: Duration) -> Self {
        let limit = u64::try_from(late_limit.as_nanos()).unwrap_or(u64::MAX);
        let (backlog, lag) = (ready.saturating_sub(intended), now.saturating_sub(ready));
        if now.saturating_sub(intended) <= limit {
            Self::Send
        } else if backlog > limit || lag <= (limit / 10).min(LAG_MAX.as_nanos() as u64) {
            Self::SkipBacklog
        } else {
            Self::SkipGenerator
        }
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The connection could not be made, was reset or closed.
    Transport,
    /// The reply is not the protocol.
    Protocol,
    /// An error reply that is not the overload reply.
    Status,
    /// No reply within the limit.
    Timeout,
    /// A reply with the wrong content.
    Payload,
}

/// The count of a class.
fn count_of(errors: &mut Errors, class: ErrorClass) -> &mut u64 {
    match class {
        ErrorClass::Transport => &mut errors.transport,
        ErrorClass::Protocol => &mut errors.protocol,
        ErrorClass::Status => &mut errors.status,
        ErrorClass::Timeout => &mut errors.timeout,
        ErrorClass::Payload => &mut errors.payload,
    }
}

/// Checks of replies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntegrityCounts {
    /// Replies whose content was checked.
    pub checked: u64,
    /// Checked replies that were missing or wrong.
    pub failed: u64,
    /// Checked replies that are whole values of another planned SET of the key.
    pub race_suspect: u64,
}

/// Requests by what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// The requests of the schedule within the window.
    pub intended: u64,
    /// Handed to the kernel.
    pub sent: u64,
    /// Completed correctly.
    pub completed: u64,
    /// Completed, but after more than the late limit.
    pub late: u64,
    /// Not sent: past the late limit for want of a free slot.
    pub skipped_backlog: u64,
    /// Not sent: past the late limit because of the generator.
    pub skipped_generator: u64,
    /// Refused with the overload reply, by reason.
    pub shed: BTreeMap<String, u64>,
    /// Failed, by class.
    pub errors: Errors,
    /// Checked replies.
    pub integrity: IntegrityCounts,
}

impl Counts {
    /// Refused for all reasons.
    #[must_use]
    pub fn shed_total(&self) -> u64 {
        self.shed.values().sum()
    }

    /// Never sent.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped_backlog + self.skipped_generator
    }

    /// Requests that did not complete because of the target: refused, failed, or not sent because it was behind.
    #[must_use]
    pub fn failed_by_target(&self) -> u64 {
        self.shed_total() + self.errors.total() + self.skipped_backlog
    }

    /// Failures that no generator can cause. A late generator reads replies late, so timeouts and a backlog may be its own
    /// fault.
    #[must_use]
    pub fn proven_by_target(&self) -> u64 {
        self.shed_total() + self.errors.total() - self.errors.timeout
    }

    /// Intended requests that the generator was in time for.
    #[must_use]
    pub const fn meant_for_target(&self) -> u64 {
        self.intended.saturating_sub(self.skipped_generator)
    }

    /// Requests whose end is known. Equals `intended` when a step is over.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.completed + self.shed_total() + self.errors.total() + self.skipped()
    }

    /// Adds the counts of another shard.
    pub fn merge(&mut self, other: &Self) {
        // Taken apart, so that a new counter cannot be forgotten.
        let Self { intended, sent, completed, late, skipped_backlog, skipped_generator, shed, errors, integrity } =
            other;
        self.intended += intended;
        self.sent += sent;
        self.completed += completed;
        self.late += late;
        self.skipped_backlog += skipped_backlog;
        self.skipped_generator += skipped_generator;
        for (reason, count) in shed {
            *self.shed.entry(reason.clone()).or_default() += count;
        }
        let Errors { transport, protocol, status, timeout, payload } = errors;
        self.errors.transport += transport;
        self.errors.protocol += protocol;
        self.errors.status += status;
        self.errors.timeout += timeout;
        self.errors.payload += payload;
        let IntegrityCounts { checked, failed, race_suspect } = integrity;
        self.integrity.checked += checked;
        self.integrity.failed += failed;
        self.integrity.race_suspect += race_suspect;
    }
}

/// The latencies of one shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Intended to completed, of completed requests.
    pub sojourn: Recorder,
    /// Sent to completed, of completed requests.
    pub service: Recorder,
    /// Intended to ready, of all that were sent.
    pub backlog: Recorder,
    /// Ready to sent, of all that were sent.
    pub generator_lag: Recorder,
    /// Sent to completed, of refused and failed requests: fast refusals must not improve the percentiles of the others.
    pub error_service: Recorder,
    /// Intended to the first event, of replies that are streamed.
    pub first_event: Recorder,
    /// From each event of a reply to the next.
    pub between_events: Recorder,
}

/// Counts and latencies of one shard in one window. Under 2 MiB.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowResult {
    /// Requests by end.
    pub counts: Counts,
    /// Their times.
    pub latencies: Latencies,
    late_limit_nanos: u64,
}

impl WindowResult {
    /// Nothing yet. Completed requests with a longer sojourn than `late_limit` are late.
    #[must_use]
    pub fn new(late_limit: Duration) -> Self {
        Self::from_parts(Counts::default(), Latencies::default(), late_limit)
    }

    /// From stored parts.
    #[must_use]
    pub fn from_parts(counts: Counts, latencies: Latencies, late_limit: Duration) -> Self {
        Self { counts, latencies, late_limit_nanos: u64::try_from(late_limit.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// The schedule has a request.
    #[inline]
    pub fn intended(&mut self) {
        self.counts.intended += 1;
    }

    /// A request was handed to the kernel.
    #[inline]
    pub fn sent(&mut self) {
        self.counts.sent += 1;
    }

    /// A request was not sent. [`Turn::Send`] changes nothing.
    pub fn skipped(&mut self, turn: Turn) {
        match turn {
            Turn::Send => {}
            Turn::SkipBacklog => self.counts.skipped_backlog += 1,
            Turn::SkipGenerator => self.counts.skipped_generator += 1,
        }
    }

    /// A value came back; `integrity` is what its check found, `None` if there was no check. A wrong value is an error of
    /// class payload and not completed.
    #[inline]
    pub fn completed(&mut self, stamps: &Stamps, integrity: Option<Integrity>) {
        if let Some(found) = integrity {
            let counts = &mut self.counts.integrity;
            counts.checked += 1;
            match found {
                Integrity::Ok => {}
                Integrity::RaceSuspect => counts.race_suspect += 1,
                Integrity::Missing | Integrity::Mismatch => {
                    counts.failed += 1;
                    return self.failed(ErrorClass::Payload, Some(stamps));
                }
            }
        }
        self.waited(stamps);
        self.counts.completed += 1;
        self.counts.late += u64::from(stamps.sojourn() > self.late_limit_nanos);
        self.latencies.sojourn.record_nanos(stamps.sojourn());
        self.latencies.service.record_nanos(stamps.service());
    }

    /// An event of a streamed reply came `since_intended` nanoseconds after its request should have been sent, and `since_event`
    /// after the event before it; `None`: it is the first.
    #[inline]
    pub fn event(&mut self, since_intended: u64, since_event: Option<u64>) {
        match since_event {
            None => self.latencies.first_event.record_nanos(since_intended),
            Some(gap) => self.latencies.between_events.record_nanos(gap),
        }
    }

    /// The overload reply came back.
    pub fn shed(&mut self, reason: &str, stamps: &Stamps) {
        match self.counts.shed.get_mut(reason) {
            Some(count) => *count += 1,
            None => {
                self.counts.shed.insert(reason.to_owned(), 1);
            }
        }
        self.waited(stamps);
        self.latencies.error_service.record_nanos(stamps.service());
    }

    /// A request failed; without stamps if it was never sent, for example because its connection was gone.
    pub fn failed(&mut self, class: ErrorClass, stamps: Option<&Stamps>) {
        *count_of(&mut self.counts.errors, class) += 1;
        if let Some(stamps) = stamps {
            self.waited(stamps);
            self.latencies.error_service.record_nanos(stamps.service());
        }
    }

    /// Adds another shard. The result equals one outcome that saw both; the late limit of `self` stays.
    pub fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        let Latencies { sojourn, service, backlog, generator_lag, error_service, first_event, between_events } =
            &other.latencies;
        self.latencies.sojourn.merge(sojourn);
        self.latencies.service.merge(service);
        self.latencies.backlog.merge(backlog);
        self.latencies.generator_lag.merge(generator_lag);
        self.latencies.error_service.merge(error_service);
        self.latencies.first_event.merge(first_event);
        self.latencies.between_events.merge(between_events);
    }

    #[inline]
    fn waited(&mut self, stamps: &Stamps) {
        self.latencies.backlog.record_nanos(stamps.backlog());
        self.latencies.generator_lag.record_nanos(stamps.generator_lag());
    }
}

#[cfg(test)]
mod tests;
