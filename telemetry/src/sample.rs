//! Samplers for the log of the data path. A guard that closes silently costs its users a day; a line per hostile
//! request fills the disk. So: one line per (listener, reason) and second, with the number of those left out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use weir_base::{Rng, Time};

/// Pairs of listener and reason a sampler tells apart. Later ones share one entry; both come from configuration and
/// code, so the limit is not met in practice. Worst case 1,024 x about 100 bytes per core.
const PAIRS_MAX: usize = 1_024;

/// Decision about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Log it, and say how many were left out since the last one.
    Log {
        /// Lines of the same listener and reason that were left out.
        suppressed: u64,
    },
    /// Leave it out; it has been counted.
    Suppress,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    /// When the last line was let through.
    logged: Time,
    suppressed: u64,
}

impl Window {
    /// `lines` are as many, of which one would be written.
    fn check(&mut self, lines: u64, now: Time, period: Duration) -> Verdict {
        if now.since(self.logged) < period {
            self.suppressed += lines;
            return Verdict::Suppress;
        }
        self.logged = now;
        Verdict::Log { suppressed: std::mem::take(&mut self.suppressed) + lines - 1 }
    }
}

/// Lets one line per (listener, reason) and second through and counts the rest. Each core has one, so that a storm does not fill its
/// ring, and the log's thread has one, so that the cores together write no more than one line either.
#[derive(Debug)]
pub struct OncePerSecond {
    period: Duration,
    windows: HashMap<Arc<str>, Vec<(&'static str, Window)>>,
    pairs: usize,
    beyond: Option<Window>,
}

impl Default for OncePerSecond {
    fn default() -> OncePerSecond {
        OncePerSecond::new()
    }
}

impl OncePerSecond {
    /// A sampler with a window of one second.
    #[must_use]
    pub fn new() -> OncePerSecond {
        OncePerSecond { period: Duration::from_secs(1), windows: HashMap::new(), pairs: 0, beyond: None }
    }

    /// Whether the line of this listener and reason is to be logged now.
    pub fn check(&mut self, listener: &Arc<str>, reason: &'static str, now: Time) -> Verdict {
        self.check_many(listener, reason, 1, now)
    }

    /// The same for a line that stands for `lines`, at least one: those before it were left out already.
    pub fn check_many(&mut self, listener: &Arc<str>, reason: &'static str, lines: u64, now: Time) -> Verdict {
        let period = self.period;
        match self.window(listener, reason) {
            Some(window) => window.check(lines, now, period),
            None => {
                self.open(listener, reason, Window { logged: now, suppressed: 0 });
                Verdict::Log { suppressed: lines - 1 }
            }
        }
    }

    /// Counts `lines` that were left out elsewhere, and of which none is left to write: they belong to the open window of their pair, or
    /// are due at once.
    pub fn suppress(&mut self, listener: &Arc<str>, reason: &'static str, lines: u64) {
        match self.window(listener, reason) {
            Some(window) => window.suppressed += lines,
            None => self.open(listener, reason, Window { logged: Time::ZERO, suppressed: lines }),
        }
    }

    /// The window of the pair. One beyond the limit has the common window, once there is one.
    fn window(&mut self, listener: &Arc<str>, reason: &'static str) -> Option<&mut Window> {
        let has_room = self.pairs < PAIRS_MAX;
        let reasons = self.windows.get_mut(listener.as_ref());
        let own = reasons.and_then(|reasons| reasons.iter_mut().find(|(name, _)| *name == reason));
        match own {
            Some((_, window)) => Some(window),
            None => self.beyond.as_mut().filter(|_| !has_room),
        }
    }

    fn open(&mut self, listener: &Arc<str>, reason: &'static str, window: Window) {
        if self.pairs < PAIRS_MAX {
            self.pairs += 1;
            self.windows.entry(listener.clone()).or_default().push((reason, window));
        } else {
            self.beyond = Some(window);
        }
    }

    /// The counts of storms that have ended: pairs whose window is over with lines left out, each reported once; those beyond the limit as
    /// `other`. Pairs whose window is over are forgotten. Called about once a second, so that the tail of a storm is not kept back
    /// until the next one.
    pub fn take_suppressed(&mut self, now: Time) -> Vec<(Arc<str>, &'static str, u64)> {
        let (mut ended, period) = (Vec::new(), self.period);
        let is_over = |window: &Window| now.since(window.logged) >= period;
        self.windows.retain(|listener, reasons| {
            for (reason, window) in reasons.extract_if(.., |(_, window)| is_over(window)) {
                self.pairs -= 1;
                if window.suppressed > 0 {
                    ended.push((listener.clone(), reason, window.suppressed));
                }
            }
            !reasons.is_empty()
        });
        if let Some(beyond) = self.beyond.take_if(|window| is_over(window))
            && beyond.suppressed > 0
        {
            ended.push((Arc::from("other"), "other", beyond.suppressed));
        }
        ended
    }
}

/// Lets a random share of the lines through; for access logs.
#[derive(Clone, Debug)]
pub struct Share {
    /// A draw below it is let through; 2^64 is all.
    threshold: u128,
    rng: Rng,
}

impl Share {
    /// A sampler that lets `share` (0 to 1) of the lines through, drawn from `rng`.
    #[must_use]
    pub fn new(share: f64, rng: Rng) -> Share {
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        Share { threshold: (share * (1u128 << 64) as f64) as u128, rng }
    }

    /// Whether this line is to be logged. Draws nothing if the share is zero or one.
    #[inline]
    pub fn check(&mut self) -> bool {
        match self.threshold {
            0 => false,
            all if all >= 1 << 64 => true,
            threshold => u128::from(self.rng.next_u64()) < threshold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_first_line_of_each_pair_and_second_is_logged_with_the_count_of_the_rest() {
        let (mut sampler, cache, web) = (OncePerSecond::new(), Arc::from("cache"), Arc::from("web"));
        assert_eq!(sampler.check(&cache, "slow_head", at(0)), Verdict::Log { suppressed: 0 });
        for millis in 1..=500 {
            assert_eq!(sampler.check(&cache, "slow_head", at(millis)), Verdict::Suppress);
        }
        assert_eq!(sampler.check(&cache, "line_too_long", at(500)), Verdict::Log { suppressed: 0 });
        assert_eq!(sampler.check(&web, "slow_head", at(500)), Verdict::Log { suppressed: 0 });
        assert_eq!(sampler.check(&cache, "slow_head", at(1_000)), Verdict::Log { suppressed: 500 });
        assert_eq!(sampler.check(&cache, "slow_head", at(2_000)), Verdict::Log { suppressed: 0 });
    }

    #[test]
    fn lines_of_several_cores_become_one_with_the_count_of_the_rest() {
        let (mut sampler, cache) = (OncePerSecond::new(), Arc::from("cache"));
        assert_eq!(sampler.check_many(&cache, "slow_head", 4, at(0)), Verdict::Log { suppressed: 3 });
        assert_eq!(sampler.check_many(&cache, "slow_head", 1, at(10)), Verdict::Suppress);
        assert_eq!(sampler.check_many(&cache, "slow_head", 5, at(20)), Verdict::Suppress);
        assert_eq!(sampler.check_many(&cache, "slow_head", 2, at(1_000)), Verdict::Log { suppressed: 7 });
        assert_eq!(sampler.check_many(&cache, "slow_head", 3, at(1_001)), Verdict::Suppress);
        assert!(sampler.take_suppressed(at(1_500)).is_empty(), "the window is still open");
        assert_eq!(sampler.take_suppressed(at(2_001)), [(cache.clone(), "slow_head", 3)]);
        assert_eq!((sampler.pairs, sampler.windows.len()), (0, 0), "what is over takes no place");
    }

    #[test]
    fn the_tail_of_a_storm_is_logged_once_when_it_is_over() {
        let (mut sampler, cache) = (OncePerSecond::new(), Arc::from("cache"));
        for millis in 0..10 {
            sampler.check(&cache, "slow_head", at(millis));
        }
        assert!(sampler.take_suppressed(at(999)).is_empty(), "the window is still open");
        assert_eq!(sampler.take_suppressed(at(1_000)), [(cache.clone(), "slow_head", 9)]);
        assert!(sampler.take_suppressed(at(2_000)).is_empty());
    }

    #[test]
    fn lines_left_out_elsewhere_join_their_window_or_are_due_at_once() {
        let (mut sampler, cache) = (OncePerSecond::new(), Arc::from("cache"));
        sampler.suppress(&cache, "slow_head", 4);
        assert_eq!(sampler.check(&cache, "slow_head", at(2_000)), Verdict::Log { suppressed: 4 });
        sampler.suppress(&cache, "slow_head", 3);
        assert!(sampler.take_suppressed(at(2_500)).is_empty(), "the window is still open");
        assert_eq!(sampler.take_suppressed(at(3_000)), [(cache.clone(), "slow_head", 3)]);
        sampler.suppress(&cache, "slow_head", 2);
        assert_eq!(sampler.take_suppressed(at(3_100)), [(cache.clone(), "slow_head", 2)]);
    }

    #[test]
    fn pairs_are_bounded_and_those_beyond_share_a_window_whose_lines_are_reported_too() {
        let mut sampler = OncePerSecond::new();
        let names: Vec<Arc<str>> = (0..PAIRS_MAX).map(|n| Arc::from(format!("listener-{n}"))).collect();
        for name in &names {
            assert_eq!(sampler.check(name, "slow_head", at(0)), Verdict::Log { suppressed: 0 });
        }
        let (late, later) = (Arc::from("late"), Arc::from("later"));
        assert_eq!(sampler.check(&late, "slow_head", at(0)), Verdict::Log { suppressed: 0 });
        assert_eq!(sampler.check(&later, "slow_head", at(0)), Verdict::Suppress, "they share one window");
        assert_eq!((sampler.windows.len(), sampler.pairs), (PAIRS_MAX, PAIRS_MAX));
        assert_eq!(sampler.take_suppressed(at(1_000)), [(Arc::from("other"), "other", 1)]);
        assert_eq!(
            sampler.check(&later, "slow_head", at(1_000)),
            Verdict::Log { suppressed: 0 },
            "there is room again"
        );
        assert_eq!((sampler.pairs, sampler.beyond.is_none()), (1, true));
    }

    #[test]
    fn a_share_lets_about_that_many_through() {
        let count = |share| {
            let mut sampler = Share::new(share, Rng::new(5));
            (0..100_000).filter(|_| sampler.check()).count()
        };
        assert_eq!((count(0.0), count(1.0), count(f64::NAN), count(7.0)), (0, 100_000, 0, 100_000));
        assert!((900..1_100).contains(&count(0.01)), "{}", count(0.01));
    }
}
