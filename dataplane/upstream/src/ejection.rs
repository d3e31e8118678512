//! Endpoints that respond badly and are left out for a while: passive health. Pure: time comes in.

use std::time::Duration;

use weir_base::time::Time;

use crate::{endpoint::LOSSES_AT_ONCE, settings::EjectionSettings};

/// How an exchange with an endpoint ended, as far as that says something of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeOutcome {
    /// It responded.
    Responded(ResponseVerdict),
    /// It did not respond as it should.
    Failed,
    /// The connection, which stood since then, ended without a response.
    Lost(Time),
    /// It did not respond in time.
    TimedOut,
}

/// The meaning of a response for the health of its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseVerdict {
    /// It is well.
    Well,
    /// Its application failed: perhaps for this exchange alone. See [`EjectionSettings::application_errors`].
    ApplicationError,
    /// It cannot serve at the moment, by its own word or by that of a gateway in front of it.
    Unavailable,
}

/// Recent outcomes of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Ejection {
    /// Failures without a success in between.
    failures: u32,
    /// When a connection that ended without a response counted last.
    lost_at: Option<Time>,
    /// When an exchange that got no response in time counted last.
    timed_out_at: Option<Time>,
    /// Times it was left out lately; each time it is for longer.
    times: u32,
    until: Option<Time>,
}

impl Ejection {
    /// An exchange ended; true if the endpoint is to be left out for it, should that be possible.
    pub(crate) fn note(&mut self, is_good: bool, settings: &EjectionSettings, now: Time) -> bool {
        if is_good {
            self.failures = 0;
            // As long as it was out the last time, it has to do well until that is forgotten.
            if self.until.is_some_and(|until| now.since(until) > settings.duration * self.times) {
                (self.times, self.until) = (0, None);
            }
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        settings.failures > 0 && self.failures >= settings.failures && !self.is_out(now)
    }

    /// A connection, which stood since `opened`, ended without a response; true if that is a failure of its own. A server that
    /// restarts ends all its connections, and those that stood when the first one ended say no more than that one. A connection
    /// that was made after it does.
    pub(crate) fn is_own_loss(&mut self, opened: Time, now: Time) -> bool {
        let is_known = self.lost_at.is_some_and(|at| opened <= at && now.since(at) <= LOSSES_AT_ONCE);
        if !is_known {
            self.lost_at = Some(now);
        }
        !is_known
    }

    /// An exchange got no response in time; true if that is a failure of its own. Requests that came together, from one client to
    /// one slow page, end together.
    pub(crate) fn is_own_timeout(&mut self, now: Time) -> bool {
        let is_known = self.timed_out_at.is_some_and(|at| now.since(at) <= LOSSES_AT_ONCE);
        if !is_known {
            self.timed_out_at = Some(now);
        }
        !is_known
    }

    /// Leaves it out; for how long.
    pub(crate) fn eject(&mut self, settings: &EjectionSettings, now: Time) -> Duration {
        (self.failures, self.times) = (0, self.times.saturating_add(1));
        let duration = (settings.duration * self.times).min(settings.duration_max.max(settings.duration));
        self.until = Some(now.saturating_add(duration));
        duration
    }

    /// It is left out.
    pub(crate) fn is_out(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> EjectionSettings {
        EjectionSettings {
            failures: 3,
            duration: Duration::from_secs(10),
            duration_max: Duration::from_secs(25),
            ..Default::default()
        }
    }

    fn at(second: u64) -> Time {
        Time::from_nanos((second + 1) * 1_000_000_000)
    }

    #[test]
    fn failures_in_a_row_count_and_a_success_forgives() {
        let mut ejection = Ejection::default();
        let noted: Vec<bool> =
            [false, false, true, false, false, false].map(|good| ejection.note(good, &settings(), at(0))).into();
        assert_eq!(noted, [false, false, false, false, false, true]);
    }

    #[test]
    fn each_time_is_longer_up_to_the_most_and_good_conduct_ends_that() {
        let mut ejection = Ejection::default();
        assert_eq!(ejection.eject(&settings(), at(0)), Duration::from_secs(10));
        assert!(ejection.is_out(at(9)) && !ejection.is_out(at(10)));
        assert!(!ejection.note(false, &settings(), at(5)), "it is out already");
        assert_eq!(ejection.eject(&settings(), at(10)), Duration::from_secs(20));
        assert_eq!(ejection.eject(&settings(), at(30)), Duration::from_secs(25));
        ejection.note(true, &settings(), at(60));
        assert_eq!(ejection.eject(&settings(), at(61)), Duration::from_secs(25), "not for long enough");
        ejection.note(true, &settings(), at(400));
        assert_eq!(ejection.eject(&settings(), at(401)), Duration::from_secs(10));
    }

    #[test]
    fn the_connections_that_a_restart_ends_are_one_failure_and_later_ones_are_failures_of_their_own() {
        let (mut ejection, ms) = (Ejection::default(), |ms: u64| Time::from_nanos(ms * 1_000_000));
        assert!(ejection.is_own_loss(ms(1), ms(1_000)));
        assert!((0..50).all(|at| !ejection.is_own_loss(ms(20 * at), ms(1_000 + at))), "all stood when the first ended");
        assert!(ejection.is_own_loss(ms(1_001), ms(1_002)), "the server was there again");
        assert!(ejection.is_own_loss(ms(1_003), ms(1_004)));
        assert!(!ejection.is_own_loss(ms(1_003), ms(1_005)));
        assert!(ejection.is_own_loss(ms(5), ms(1_300)), "long after");
    }

    #[test]
    fn requests_that_time_out_together_are_one_failure() {
        let (mut ejection, ms) = (Ejection::default(), |ms: u64| Time::from_nanos(ms * 1_000_000));
        assert!(ejection.is_own_timeout(ms(1_000)));
        assert!((0..=100).all(|after| !ejection.is_own_timeout(ms(1_000 + after))));
        assert!(ejection.is_own_timeout(ms(1_101)));
    }

    #[test]
    fn zero_failures_switch_it_off() {
        let mut ejection = Ejection::default();
        let off = EjectionSettings { failures: 0, ..settings() };
        assert!((0..100).all(|_| !ejection.note(false, &off, at(0))));
    }
}
