//! A limit on a rate: so many per second on one core, as a token bucket.
//!
//! A caller pays a comparison and a subtraction; tokens are added at most once per [`STEP`], by the next caller.
//! Without a limit the bucket holds infinitely many, so there is no second case to tell apart.

use std::cell::Cell;
use std::time::Duration;

use crate::time::Time;

/// Burst allowed after a pause: this long at the rate, and at least [`BURST_MIN`]. Default 50 ms: arrivals of many
/// clients are not evenly spaced, and a limit without slack would refuse some although the mean is below it. Larger
/// would let a burst through that takes longer to serve than clients are ready to wait.
pub const BURST: Duration = Duration::from_millis(50);

/// The least that may be taken at once. Default 2: with room for one only, the fraction above it would be lost each time
/// and a low rate not be reached.
pub const BURST_MIN: f64 = 2.0;

/// How often tokens are added. Default 1 ms: a fiftieth of [`BURST`], and rare beside requests where they matter.
pub const STEP: Duration = Duration::from_millis(1);

const _: () = assert!(STEP.as_nanos() * 10 <= BURST.as_nanos(), "tokens must not come in lumps as large as the burst");

/// A rate that one core keeps. Not `Sync`: a process-wide rate is the sum of those of its cores.
#[derive(Debug)]
pub struct LocalRate {
    per_second: Cell<Option<f64>>,
    /// Taken at once at the most, if that is more than [`BURST`] is worth.
    burst_min: f64,
    tokens: Cell<f64>,
    filled: Cell<Time>,
    /// From here on tokens are due.
    due: Cell<Time>,
}

impl LocalRate {
    /// At most `per_second` on average, from `now` on; `None`: as many as come.
    #[must_use]
    pub fn new(per_second: Option<f64>, now: Time) -> LocalRate {
        LocalRate::with_burst(per_second, BURST_MIN, now)
    }

    /// At most `per_second` on average. `burst` may come at once, or what [`BURST`] is worth if that is more: for events that come
    /// together by nature.
    #[must_use]
    pub fn with_burst(per_second: Option<f64>, burst: f64, now: Time) -> LocalRate {
        let rate = LocalRate {
            per_second: Cell::new(None),
            burst_min: burst.max(BURST_MIN),
            tokens: Cell::new(f64::INFINITY),
            filled: Cell::new(now),
            due: Cell::new(Time::NEVER),
        };
        rate.set(per_second, now);
        rate
    }

    /// Another limit. The same one again changes nothing: reloads must not be worth a burst.
    pub fn set(&self, per_second: Option<f64>, now: Time) {
        if self.per_second.replace(per_second) == per_second {
            return;
        }
        let due = if per_second.is_some() { now.saturating_add(STEP) } else { Time::NEVER };
        self.tokens.set(self.burst());
        self.filled.set(now);
        self.due.set(due);
    }

    /// How many may be taken now.
    #[inline]
    #[must_use]
    pub fn room(&self, now: Time) -> u64 {
        if now >= self.due.get() {
            self.fill(now);
        }
        self.tokens.get() as u64
    }

    /// Takes `count` or, if that is too many, none.
    #[inline]
    #[must_use]
    pub fn try_take(&self, count: u64, now: Time) -> bool {
        if now >= self.due.get() {
            self.fill(now);
        }
        let (tokens, wanted) = (self.tokens.get(), count as f64);
        let has_room = tokens >= wanted;
        if has_room {
            self.tokens.set(tokens - wanted);
        }
        has_room
    }

    fn fill(&self, now: Time) {
        let grown = self.per_second.get().unwrap_or(f64::INFINITY) * now.since(self.filled.get()).as_secs_f64();
        self.tokens.set((self.tokens.get() + grown).min(self.burst()));
        self.filled.set(now);
        self.due.set(now.saturating_add(STEP));
    }

    fn burst(&self) -> f64 {
        self.per_second.get().map_or(f64::INFINITY, |rate| (rate * BURST.as_secs_f64()).max(self.burst_min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1_000)
    }

    /// How many of the requests that come every `gap` microseconds for `seconds` get through.
    fn taken(rate: &LocalRate, gap: u64, seconds: u64) -> u64 {
        let begin = rate.filled.get().as_nanos() / 1_000;
        let times = (1..=seconds * 1_000_000 / gap).map(|index| at(begin + index * gap));
        times.filter(|now| rate.try_take(1, *now)).count() as u64
    }

    #[test]
    fn events_faster_than_the_rate_are_cut_to_it() {
        for per_second in [3.0, 200.0, 12_345.6, 400_000.0] {
            let rate = LocalRate::new(Some(per_second), at(7));
            let gap = (1e6 / per_second / 2.5) as u64;
            let burst = (per_second * 0.05).max(2.0);
            let passed = taken(&rate, gap.max(1), 20) as f64;
            let most = per_second * 20.0 + burst;
            assert!(passed <= most, "{per_second}: {passed} of at most {most}");
            assert!(passed >= per_second * 20.0 * 0.99 - 1.0, "{per_second}: only {passed}");
        }
    }

    #[test]
    fn a_burst_of_its_own_leaves_the_rate_as_it_is() {
        let rate = LocalRate::with_burst(Some(20.0), 100.0, at(0));
        assert_eq!((0..150).filter(|_| rate.try_take(1, at(0))).count(), 100);
        assert_eq!(taken(&rate, 1_000, 10), 200);
    }

    #[test]
    fn events_slower_than_the_rate_are_never_refused() {
        let rate = LocalRate::new(Some(1_000.0), at(0));
        assert_eq!(taken(&rate, 1_050, 10), 10_000_000 / 1_050);
    }

    #[test]
    fn a_pause_is_worth_a_burst_and_no_more() {
        let rate = LocalRate::new(Some(1_000.0), at(0));
        assert_eq!(rate.room(at(60_000_000)), 50);
        assert!(!rate.try_take(51, at(60_000_000)), "all or none");
        assert!(rate.try_take(50, at(60_000_000)));
        assert!(!rate.try_take(1, at(60_000_500)), "within one step nothing is added");
        assert!(rate.try_take(1, at(60_001_000)) && !rate.try_take(1, at(60_001_000)));
    }

    #[test]
    fn the_rates_of_the_cores_add_up() {
        let cores: Vec<LocalRate> = (0..4).map(|_| LocalRate::new(Some(2_500.0), at(0))).collect();
        let passed: u64 = cores.iter().map(|core| taken(core, 100, 10)).sum();
        assert!((100_000..=100_000 + 4 * 125).contains(&passed), "{passed}");
    }

    #[test]
    fn without_a_limit_all_pass_at_any_time() {
        let rate = LocalRate::new(None, at(5));
        assert_eq!(rate.room(at(0)), u64::MAX);
        for now in [at(0), at(1), Time::from_nanos(u64::MAX - 1), Time::NEVER] {
            assert!(rate.try_take(1 << 40, now), "{now:?}");
        }
    }

    #[test]
    fn the_same_limit_again_grants_nothing_and_another_holds_at_once() {
        let rate = LocalRate::new(Some(100.0), at(0));
        assert!(rate.try_take(5, at(0)));
        rate.set(Some(100.0), at(10));
        assert!(!rate.try_take(1, at(10)));
        rate.set(None, at(20));
        assert!(rate.try_take(1_000, at(20)));
        rate.set(Some(40.0), at(30));
        assert_eq!(rate.room(at(30)), 2);
        assert!((401..=402).contains(&taken(&rate, 1_000, 10)));
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_gives_nothing() {
        let rate = LocalRate::new(Some(20.0), at(1_000_000));
        assert!(rate.try_take(2, at(1_000_000)));
        assert!(!rate.try_take(1, at(1_000_000)) && !rate.try_take(1, at(500)));
    }
}
