//! What peers of one listener do wrong, counted and told.

use std::{cell::RefCell, sync::Arc};

use weir_base::{error::Culprit, time::turn, violation::Violation};
use weir_telemetry::{
    CoreMetrics, catalog,
    log::{DefensiveClose, LogEvent, LogWriter, Peer},
    sample::{OncePerSecond, Verdict},
};

use crate::{close::CloseReason, share::CoreShare};

/// Counts violations on one listener and logs them, once a second per reason.
pub struct Reports {
    listener: Arc<str>,
    metrics: CoreMetrics,
    log: LogWriter,
    sampler: RefCell<OncePerSecond>,
}

impl Reports {
    /// Of `listener` on one worker.
    pub fn new(core: &CoreShare, listener: Arc<str>) -> Self {
        let sampler = RefCell::new(OncePerSecond::new());
        // At 0 from the start: one event is worth an alert, and `increase` misses the one with which a series begins.
        let invariant = CloseReason::InternalInvariant.name();
        core.metrics.counter(&catalog::VIOLATIONS, &[&listener, invariant, Culprit::Gateway.as_str()]).add(0);
        Self { listener, metrics: core.metrics.clone(), log: core.log.clone(), sampler }
    }

    /// A peer broke a rule; `is_close`: its connection ends for it.
    pub fn report(&self, violation: &Violation, peer: Peer, connection: u64, is_close: bool) {
        let labels = [&*self.listener, violation.reason, violation.culprit.as_str()];
        self.metrics.counter(&catalog::VIOLATIONS, &labels).inc();
        if is_close {
            self.metrics.counter(&catalog::DEFENSIVE_CLOSES, &[&self.listener, violation.reason]).inc();
        }
        let verdict = self.sampler.borrow_mut().check(&self.listener, violation.reason, turn::now());
        if let Verdict::Log { suppressed } = verdict {
            self.log.push(LogEvent::Close(DefensiveClose {
                at: turn::now(),
                listener: self.listener.clone(),
                peer,
                connection,
                violation: violation.clone(),
                suppressed,
            }));
        }
    }
}
