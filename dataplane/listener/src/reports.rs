//! Violations by the peers of one listener, counted and reported.

use std::sync::Arc;

use weir_base::{error::Culprit, time::turn, violation::Violation};
use weir_telemetry::{
    CoreMetrics, EventLog, catalog,
    log::{DefensiveClose, LogEvent, Peer},
};

use crate::{close::CloseReason, share::CoreShare};

/// Counts violations on one listener and logs them, once a second per reason.
pub struct Reports {
    listener: Arc<str>,
    metrics: CoreMetrics,
    events: EventLog,
}

impl Reports {
    /// Reports of `listener` on one worker.
    pub fn new(core: &CoreShare, listener: Arc<str>) -> Self {
        // At 0 from the start: one event is worth an alert, and `increase` misses the one with which a series begins.
        let invariant = CloseReason::InternalInvariant.name();
        core.metrics.counter(&catalog::VIOLATIONS, &[&listener, invariant, Culprit::Gateway.as_str()]).add(0);
        Self { listener, metrics: core.metrics.clone(), events: core.events.clone() }
    }

    /// A peer broke a rule; `is_close`: its connection ends for it.
    pub fn report(&self, violation: &Violation, peer: Peer, connection: u64, is_close: bool) {
        let labels = [&*self.listener, violation.reason, violation.culprit.as_str()];
        self.metrics.counter(&catalog::VIOLATIONS, &labels).inc();
        if is_close {
            self.metrics.counter(&catalog::DEFENSIVE_CLOSES, &[&self.listener, violation.reason]).inc();
        }
        let at = turn::now();
        self.events.push(&self.listener, violation.reason, at, |suppressed| {
            let (listener, violation) = (self.listener.clone(), violation.clone());
            LogEvent::Close(DefensiveClose { at, listener, peer, connection, violation, suppressed })
        });
    }
}
