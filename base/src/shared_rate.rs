//! A limit on a rate that all cores keep together: one number, which says until when what was taken is worth.
//!
//! For limits that must be exact although the limited work may all be on one core, such as the requests of one user. Each
//! permit costs an atomic exchange, so only callers with such a limit should use it;
//! [`LocalRate`](crate::rate::LocalRate) is for all others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::rate::BURST;
use crate::time::Time;

/// A rate that is shared. Algorithm: the virtual scheduling form of the generic cell rate algorithm (ITU-T I.371).
#[derive(Debug, Default)]
pub struct SharedRate {
    /// Nanoseconds that one is worth; 0: no limit.
    interval: AtomicU64,
    /// When all that was taken will have been earned, in nanoseconds of [`Time`].
    earned_at: AtomicU64,
}

impl SharedRate {
    /// At most so many per second on average; `None`: as many as come. Holds at once.
    pub fn set(&self, per_second: Option<f64>) {
        let interval = per_second.map_or(0, |rate| (1e9 / rate).clamp(1.0, 1e15) as u64);
        self.interval.store(interval, Ordering::Relaxed);
    }

    /// Takes one, if it is within the rate. After a pause what [`BURST`] is worth may be taken at once, and two at least.
    #[must_use]
    pub fn try_take(&self, now: Time) -> bool {
        let interval = self.interval.load(Ordering::Relaxed);
        if interval == 0 {
            return true;
        }
        let burst = Duration::as_nanos(&BURST) as u64;
        let latest = now.as_nanos().saturating_add(burst.max(interval * 2));
        let take = |earned: u64| {
            let next = earned.max(now.as_nanos()).saturating_add(interval);
            (next <= latest).then_some(next)
        };
        self.earned_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1_000)
    }

    #[test]
    fn the_rate_is_kept_whoever_asks_and_however_often() {
        for per_second in [3.0, 100.0, 50_000.0] {
            let rate = SharedRate::default();
            rate.set(Some(per_second));
            let passed = (1..=1_000_000).filter(|step| rate.try_take(at(step * 10))).count() as f64;
            let most = per_second * 10.0 + (per_second * 0.05).max(2.0) + 1.0;
            assert!(passed <= most && passed >= per_second * 10.0 * 0.98, "{per_second}: {passed} of {most}");
        }
    }

    #[test]
    fn without_a_limit_all_pass_and_a_new_limit_holds_at_once() {
        let rate = SharedRate::default();
        assert!((0..1_000).all(|_| rate.try_take(at(1))));
        rate.set(Some(10.0));
        assert_eq!((0..1_000).filter(|_| rate.try_take(at(2))).count(), 2);
        rate.set(None);
        assert!((0..1_000).all(|_| rate.try_take(at(3))));
    }

    #[test]
    fn cores_share_it() {
        let rate = SharedRate::default();
        rate.set(Some(1_000.0));
        let taken = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let count = (0..10_000).filter(|_| rate.try_take(at(1))).count() as u64;
                    taken.fetch_add(count, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(taken.into_inner(), 50);
    }
}
