//! Which writes a standby has: positions in the log of a primary, and the times at which they were read.

use std::collections::VecDeque;
use std::time::Duration;

use weir_base::time::Time;

/// Positions that are remembered. Default 1,024: with one a second, a standby may be a quarter of an hour behind.
const POSITIONS_MAX: usize = 1_024;

/// The positions of a primary. Both times and positions rise.
#[derive(Debug, Default)]
pub struct Positions(VecDeque<(Time, u64)>);

/// Whether a standby may serve a statement that only reads. `seen`: what was written before is there. `wrote_at`: the client's own last write
/// was over then. `lag_max`: the most that it may be behind.
pub fn may_serve(seen: Option<Time>, wrote_at: Option<Time>, lag_max: Option<Duration>, now: Time) -> bool {
    wrote_at.is_none_or(|wrote_at| seen.is_some_and(|seen| seen > wrote_at))
        && lag_max.is_none_or(|lag_max| seen.is_some_and(|seen| now.since(seen) <= lag_max))
}

impl Positions {
    /// At `at` the primary had not written beyond `position`: the position was read later than that.
    pub fn note(&mut self, at: Time, position: u64) {
        match self.0.back_mut() {
            // The same position at a later time.
            Some(last) if last.1 == position => last.0 = last.0.max(at),
            // Another server, or one that was restored.
            Some(last) if last.1 > position => {
                self.0.clear();
                self.0.push_back((at, position));
            }
            _ => self.0.push_back((at, position)),
        }
        if self.0.len() > POSITIONS_MAX {
            self.0.pop_front();
        }
    }

    /// The time up to which everything that was written is at a standby that has replayed up to `replayed`. `None`: nothing is known.
    pub fn seen_by(&self, replayed: u64) -> Option<Time> {
        let count = self.0.partition_point(|(_, position)| *position <= replayed);
        count.checked_sub(1).map(|last| self.0[last].0)
    }

    /// Forgets everything: the server is no primary.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn a_standby_has_what_was_written_before_the_last_position_that_it_has_passed() {
        let mut positions = Positions::default();
        assert_eq!(positions.seen_by(100), None);
        for (time, position) in [(1, 10), (2, 20), (3, 20), (4, 30)] {
            positions.note(at(time), position);
        }
        assert_eq!(positions.seen_by(9), None);
        assert_eq!(positions.seen_by(10), Some(at(1)));
        assert_eq!(positions.seen_by(29), Some(at(3)), "nothing was written between the two looks");
        assert_eq!(positions.seen_by(1_000), Some(at(4)));
    }

    #[test]
    fn positions_of_another_server_begin_again() {
        let mut positions = Positions::default();
        positions.note(at(1), 50);
        positions.note(at(2), 40);
        assert_eq!((positions.seen_by(39), positions.seen_by(50)), (None, Some(at(2))));
        for time in 3..5_000 {
            positions.note(at(time), 40 + time);
        }
        assert_eq!(positions.0.len(), POSITIONS_MAX);
    }
}
