//! The pause of a listener: all its clients wait, on all workers; other clients of the server do not.
//!
//! It consists of two numbers that every command checks. A waiting command checks them again every 100 ms, so the end of a
//! pause by UNPAUSE is seen within that time on all workers.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use weir_base::time::Time;

/// How soon a command that waits looks again.
const LOOK: Duration = Duration::from_millis(100);

/// Whether the clients of a listener are paused.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// In nanoseconds of [`Time`]; 0: they are not.
    until: AtomicU64,
    /// Commands that only read wait too.
    is_for_all: AtomicBool,
}

impl Pause {
    /// Pauses until then. A pause that is there already ends no earlier for it, and holds no less.
    pub(crate) fn begin(&self, until: Time, is_for_all: bool, now: Time) {
        let is_there = self.is_on(now);
        self.is_for_all.store(is_for_all || (is_there && self.is_for_all.load(Relaxed)), Relaxed);
        self.until.store(until.as_nanos().max(if is_there { self.until.load(Relaxed) } else { 0 }), Relaxed);
    }

    pub(crate) fn end(&self) {
        self.until.store(0, Relaxed);
    }

    /// Some commands wait.
    #[inline]
    pub(crate) fn is_on(&self, now: Time) -> bool {
        let until = self.until.load(Relaxed);
        until != 0 && now.as_nanos() < until
    }

    /// Until when a command waits now, before it looks again; `None`: it does not.
    pub(crate) fn holds(&self, may_write: bool, now: Time) -> Option<Time> {
        let holds = self.is_on(now) && (may_write || self.is_for_all.load(Relaxed));
        holds.then(|| Time::from_nanos(self.until.load(Relaxed)).min(now.saturating_add(LOOK)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_pause_holds_writes_or_all_until_it_ends() {
        let pause = Pause::default();
        assert_eq!(pause.holds(true, at(1)), None);
        pause.begin(at(1_000), false, at(1));
        assert_eq!(pause.holds(true, at(2)), Some(at(102)), "it looks again soon");
        assert_eq!(pause.holds(true, at(950)), Some(at(1_000)));
        assert_eq!((pause.holds(false, at(2)), pause.holds(true, at(1_000))), (None, None));
        pause.begin(at(500), true, at(2));
        assert!(pause.holds(false, at(900)).is_some(), "the longer and the stricter hold");
        pause.begin(at(600), false, at(3));
        assert!(pause.holds(false, at(900)).is_some());
        pause.end();
        assert!(!pause.is_on(at(4)));
        pause.begin(at(900), false, at(5));
        assert!(pause.holds(false, at(6)).is_none() && pause.holds(true, at(6)).is_some(), "a new one is another");
        pause.begin(at(2_000), false, at(1_500));
        assert_eq!(pause.holds(true, at(1_999)), Some(at(2_000)));
    }
}
