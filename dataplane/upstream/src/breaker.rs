//! A circuit breaker over failures of connections, not of requests. Its user decides the effect of an open one:
//! commands of Redis are refused; an exchange goes to another endpoint, and to this one only if all others fail as well and it
//! refuses connections instead of letting them time out ([`crate::choice`]).

use std::collections::VecDeque;

use weir_base::time::Time;

use crate::settings::BreakerSettings;

/// State of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything passes.
    Closed,
    /// The pause is over: the next attempt decides.
    HalfOpen,
    /// Not to be tried now; what that means is for its user to say, see above.
    Open,
}

impl BreakerState {
    /// The word in CLIENT LIST and INFO.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

/// Counts failures in a window; opens at the limit; after a pause the next attempt decides. Pure: time comes in.
#[derive(Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    failures: VecDeque<Time>,
    opened: Option<Time>,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(settings: BreakerSettings) -> Self {
        Self { settings, failures: VecDeque::new(), opened: None }
    }

    /// The state at `now`.
    pub fn state(&self, now: Time) -> BreakerState {
        match self.opened {
            None => BreakerState::Closed,
            Some(opened) if now.since(opened) >= self.settings.open_for => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
        }
    }

    /// A connection stands.
    pub fn succeeded(&mut self) {
        self.failures.clear();
        self.opened = None;
    }

    /// A connection failed or was lost; true if this opened the breaker.
    pub fn failed(&mut self, now: Time) -> bool {
        match self.state(now) {
            BreakerState::Closed => {}
            BreakerState::Open => return false,
            BreakerState::HalfOpen => {
                self.opened = Some(now);
                return true;
            }
        }
        let window = self.settings.window;
        while self.failures.front().is_some_and(|&first| now.since(first) > window) {
            self.failures.pop_front();
        }
        self.failures.push_back(now);
        if self.failures.len() < self.settings.failures.max(1) as usize {
            return false;
        }
        self.failures.clear();
        self.opened = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn breaker() -> Breaker {
        Breaker::new(BreakerSettings { failures: 3, window: Duration::from_secs(10), open_for: Duration::from_secs(1) })
    }

    #[test]
    fn opens_at_the_limit_within_the_window_only() {
        let mut spread = breaker();
        for second in [0, 11_000, 22_000, 33_000] {
            assert!(!spread.failed(at(second)));
        }
        let mut dense = breaker();
        assert!(!dense.failed(at(0)) && !dense.failed(at(1)) && dense.failed(at(2)));
        assert_eq!(dense.state(at(3)), BreakerState::Open);
        assert_eq!(dense.state(at(500)), BreakerState::Open);
    }

    #[test]
    fn the_attempt_after_the_pause_decides() {
        let mut breaker = breaker();
        let opened = (0..3).map(|n| breaker.failed(at(n))).last();
        assert_eq!(opened, Some(true));
        assert_eq!(breaker.state(at(1_002)), BreakerState::HalfOpen);
        assert!(breaker.failed(at(1_010)), "a failed attempt opens it again");
        assert_eq!(breaker.state(at(1_500)), BreakerState::Open);
        assert_eq!(breaker.state(at(2_011)), BreakerState::HalfOpen);
        breaker.succeeded();
        assert_eq!(breaker.state(at(2_012)), BreakerState::Closed);
    }
}
