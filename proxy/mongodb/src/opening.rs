//! Connections of clients' own that are being made for a login that the server checks: how many at once, and how soon again.
//!
//! Any client may begin such a login, so one that never logs in must not make many connections, and a server that fails must not be met by
//! one attempt after the other. The rules are those of the pools: behind a failure one attempt at a time decides, after a pause that grows.

use std::{cell::Cell, rc::Rc, time::Duration};

use weir_base::time::Time;

/// Connections under way at once, on one worker to the servers of one upstream. Default 64: a login takes a few milliseconds, so that a
/// worker makes over a thousand a second. Further clients look for a place every 50 ms.
pub(crate) const UNDER_WAY_MAX: u32 = 64;

/// See above.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    under_way: Cell<u32>,
    /// Failures in a row.
    failures: Cell<u32>,
    retry_at: Cell<Time>,
}

/// One that is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Opening(Rc<Openings>);

impl Openings {
    /// A connection may be made now. `None`: too many are under way, or one has failed a moment ago.
    pub(crate) fn begin(self: &Rc<Self>, now: Time) -> Option<Opening> {
        let under_way = self.under_way.get();
        let has_room = match self.failures.get() {
            0 => under_way < UNDER_WAY_MAX,
            _ => under_way == 0 && now >= self.retry_at.get(),
        };
        has_room.then(|| {
            self.under_way.set(under_way + 1);
            Opening(self.clone())
        })
    }
}

impl Opening {
    /// It has come about.
    pub(crate) fn succeeded(self) {
        self.0.failures.set(0);
    }

    /// It has failed. `pause`: the time before the next one, by the number of failures in a row.
    pub(crate) fn failed(self, now: Time, pause: impl FnOnce(u32) -> Duration) {
        let failures = self.0.failures.get().saturating_add(1);
        self.0.failures.set(failures);
        self.0.retry_at.set(now.saturating_add(pause(failures)));
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn so_many_are_under_way_and_no_more() {
        let openings = Rc::new(Openings::default());
        let mut all: Vec<_> = (0..UNDER_WAY_MAX).map(|_| openings.begin(at(0)).expect("room")).collect();
        assert!(openings.begin(at(0)).is_none());
        all.pop();
        assert!(openings.begin(at(0)).is_some());
    }

    #[test]
    fn behind_a_failure_one_at_a_time_decides_after_its_pause() {
        let openings = Rc::new(Openings::default());
        let [first, second] = [0, 0].map(|_| openings.begin(at(0)).expect("room"));
        first.failed(at(10), |failures| Duration::from_millis(100 * u64::from(failures)));
        assert!(openings.begin(at(200)).is_none(), "another one is under way");
        drop(second);
        assert!(openings.begin(at(109)).is_none(), "too early");
        let next = openings.begin(at(110)).expect("its time has come");
        assert!(openings.begin(at(110)).is_none());
        next.failed(at(120), |failures| Duration::from_millis(100 * u64::from(failures)));
        assert!(openings.begin(at(319)).is_none(), "the pause grows");
        openings.begin(at(320)).expect("its time has come").succeeded();
        let all: Vec<_> = (0..3).map(|_| openings.begin(at(320))).collect();
        assert!(all.iter().all(Option::is_some));
    }
}
