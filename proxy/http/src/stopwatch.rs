//! The time that an exchange spends in its phases, for its filter. Routes without a filter have none.

use std::{cell::Cell, time::Duration};

use weir_base::time::Time;

use crate::filter::ExchangeTiming;

/// A phase of an exchange. A request that is sent again comes back to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Policy,
    Request,
    Queue,
    Upstream,
    Response,
}

/// Adds up the phases.
pub(crate) struct Stopwatch {
    arrived: Time,
    phase: Cell<(Phase, Time)>,
    spent: [Cell<Duration>; Phase::Response as usize + 1],
}

impl Stopwatch {
    /// The first phase of a request begins with its head.
    pub(crate) fn new(arrived: Time) -> Self {
        Self { arrived, phase: Cell::new((Phase::Policy, arrived)), spent: Default::default() }
    }

    /// A phase begins, and the one before it ends.
    pub(crate) fn enter(&self, phase: Phase, now: Time) {
        let (last, since) = self.phase.replace((phase, now));
        let spent = &self.spent[last as usize];
        spent.set(spent.get() + now.since(since));
    }

    /// The phases so far.
    pub(crate) fn timing(&self, now: Time) -> ExchangeTiming {
        self.enter(self.phase.get().0, now);
        let [policy, request, queue, upstream, response] = self.spent.each_ref().map(Cell::get);
        ExchangeTiming { policy, request, queue, upstream, response, total: now.since(self.arrived) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up_also_if_one_comes_back() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let millis = |timing: ExchangeTiming| {
            let ExchangeTiming { policy, request, queue, upstream, response, total } = timing;
            [policy, request, queue, upstream, response, total].map(|part| part.as_millis())
        };
        let stopwatch = Stopwatch::new(at(5));
        assert_eq!(millis(stopwatch.timing(at(6))), [1, 0, 0, 0, 0, 1]);
        for (phase, now) in [(Phase::Request, 7), (Phase::Queue, 10), (Phase::Upstream, 14), (Phase::Queue, 22)] {
            stopwatch.enter(phase, at(now));
        }
        stopwatch.enter(Phase::Upstream, at(23));
        assert_eq!(millis(stopwatch.timing(at(29))), [2, 3, 5, 14, 0, 24]);
        stopwatch.enter(Phase::Response, at(30));
        assert_eq!(millis(stopwatch.timing(at(40))), [2, 3, 5, 15, 10, 35]);
    }
}
