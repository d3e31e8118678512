//! Which endpoints the next exchange may go to. Pure: what is known of each endpoint is given.

use crate::settings::CONNECT_TRIES_MAX;

/// Endpoints that one exchange could not reach.
#[derive(Clone, Debug, Default)]
pub struct TriedEndpoints(Vec<usize>);

impl TriedEndpoints {
    /// Number `number` of so many `endpoints` could not be reached; true if another one is left that was not tried. Such a try
    /// loads no server: it needs no leave of the retry budget.
    pub fn failed(&mut self, number: usize, endpoints: usize) -> bool {
        let is_new = !self.has(number);
        if is_new {
            self.0.push(number);
        }
        is_new && self.0.len() < endpoints.min(CONNECT_TRIES_MAX)
    }

    /// The last one.
    pub fn last(&self) -> Option<usize> {
        self.0.last().copied()
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[usize] {
        &self.0
    }

    pub(crate) fn has(&self, number: usize) -> bool {
        self.0.contains(&number)
    }
}

/// State of an endpoint, as the choice needs it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndpointStanding {
    /// Its weight is 0: it gets nothing.
    pub(crate) is_off: bool,
    /// The active check says that it does not respond.
    pub(crate) is_down: bool,
    /// It responded badly and is left out for a while.
    pub(crate) is_ejected: bool,
    /// Its breaker.
    pub(crate) reach: Reach,
    /// This exchange could not connect to it.
    pub(crate) has_failed: bool,
    /// A connection to it stands that takes the exchange.
    pub(crate) has_lane: bool,
}

/// Whether connections to an endpoint can be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// As far as is known.
    #[default]
    Yes,
    /// The next attempt decides: the breaker is half open, and no attempt is in progress.
    Trial,
    /// It refused a connection a moment ago: another attempt costs no time.
    No,
    /// It timed out a moment ago: another attempt would cost the exchange as much.
    Silent,
}

impl EndpointStanding {
    /// It counts as well.
    pub(crate) fn is_up(self) -> bool {
        !self.is_down && !self.is_ejected && self.reach == Reach::Yes
    }

    /// The lower the better; `None`: it is not worth a try.
    fn rank(self, is_panic: bool, is_only: bool) -> Option<u32> {
        if self.is_off {
            return None;
        }
        let rank = match self.reach {
            // An endpoint that takes no new connections may respond on those that it has.
            Reach::Silent if self.has_lane => RANKS - 1,
            Reach::Silent => return None,
            // One endpoint alone: its breaker refuses at once.
            Reach::No if is_only || self.has_failed => return None,
            // Perhaps it is back. One attempt at a time: see `ExclusiveUpstream::may_connect`.
            Reach::No => RANKS - 2,
            _ if is_panic => 0,
            _ => u32::from(self.is_down || self.is_ejected),
        };
        Some(if self.has_failed { rank + RANKS } else { rank })
    }
}

/// Ranks of endpoints that this exchange has not tried.
const RANKS: u32 = 4;

/// The endpoints to choose from: those of the best rank. Well ones come first, then those that are down or ejected and may be
/// connected to, then those with an open breaker that refused the last connection, then those with an open breaker whose last
/// connection timed out and which have another one with room; and behind them all, in the same order, those that this exchange has
/// tried. Without such a connection an endpoint whose last one timed out gets no exchange.
///
/// When less than `panic_percent` of them are well it does not matter which are down or ejected: those left could not carry the
/// load of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    best: Option<u32>,
    is_panic: bool,
    is_only: bool,
}

impl Choice {
    /// Among these.
    pub(crate) fn among(standings: &[EndpointStanding], panic_percent: u32) -> Self {
        let (count, mut up) = (standings.len(), 0);
        let is_only = count == 1;
        let mut best = [None; 2];
        for standing in standings {
            up += usize::from(standing.is_up());
            for (is_panic, best) in [false, true].into_iter().zip(&mut best) {
                *best = standing.rank(is_panic, is_only).into_iter().chain(*best).min();
            }
        }
        let is_panic = up * 100 < count * panic_percent as usize;
        Self { best: best[usize::from(is_panic)], is_panic, is_only }
    }

    /// An endpoint of this standing is one of them.
    pub(crate) fn takes(self, standing: EndpointStanding) -> bool {
        self.best.is_some() && standing.rank(self.is_panic, self.is_only) == self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: EndpointStanding = EndpointStanding {
        is_off: false,
        is_down: false,
        is_ejected: false,
        reach: Reach::Yes,
        has_failed: false,
        has_lane: false,
    };
    const DOWN: EndpointStanding = EndpointStanding { is_down: true, ..UP };
    const EJECTED: EndpointStanding = EndpointStanding { is_ejected: true, ..UP };
    const OPEN: EndpointStanding = EndpointStanding { reach: Reach::No, ..UP };
    const TRIAL: EndpointStanding = EndpointStanding { reach: Reach::Trial, ..UP };
    const SILENT: EndpointStanding = EndpointStanding { reach: Reach::Silent, ..UP };

    fn failed(standing: EndpointStanding) -> EndpointStanding {
        EndpointStanding { has_failed: true, ..standing }
    }

    fn chosen(standings: &[EndpointStanding]) -> Vec<usize> {
        let choice = Choice::among(standings, 50);
        (0..standings.len()).filter(|&number| choice.takes(standings[number])).collect()
    }

    #[test]
    fn endpoints_that_are_well_come_first() {
        assert_eq!(chosen(&[UP, DOWN, UP, EJECTED]), [0, 2]);
        assert_eq!(chosen(&[UP, OPEN]), [0]);
        assert_eq!(chosen(&[UP, UP, TRIAL]), [0, 1, 2], "the next attempt decides");
    }

    #[test]
    fn an_open_breaker_counts_as_not_well_so_that_an_ejected_endpoint_serves() {
        assert_eq!(chosen(&[EJECTED, OPEN]), [0]);
        assert_eq!(chosen(&[DOWN, OPEN]), [0]);
        assert_eq!(chosen(&[EJECTED, OPEN, UP]), [0, 2], "one of three is no longer enough");
        assert_eq!(chosen(&[EJECTED, OPEN, UP, UP]), [2, 3]);
    }

    #[test]
    fn a_failed_connect_goes_to_any_other_endpoint_first() {
        assert_eq!(chosen(&[EJECTED, failed(UP)]), [0], "though half of them are well");
        assert_eq!(chosen(&[OPEN, failed(UP)]), [0], "it may be back");
        assert_eq!(chosen(&[failed(UP), failed(DOWN)]), [0]);
        assert_eq!(chosen(&[failed(OPEN), failed(UP)]), [1]);
    }

    #[test]
    fn with_all_breakers_open_each_endpoint_is_tried_once() {
        assert_eq!(chosen(&[OPEN, OPEN, OPEN]), [0, 1, 2]);
        assert_eq!(chosen(&[failed(OPEN), OPEN, failed(OPEN)]), [1]);
        assert_eq!(chosen(&[failed(OPEN), failed(OPEN)]), [0; 0]);
    }

    #[test]
    fn nobody_waits_for_an_endpoint_that_lets_connections_time_out() {
        assert_eq!(chosen(&[SILENT, SILENT]), [0; 0], "refused at once, in panic too");
        assert_eq!(chosen(&[SILENT, OPEN]), [1]);
        assert_eq!(chosen(&[SILENT, failed(UP)]), [1]);
        assert_eq!(chosen(&[SILENT, TRIAL, SILENT]), [1]);
        assert_eq!(chosen(&[SILENT, EJECTED]), [1], "it does not count as well");
    }

    #[test]
    fn an_endpoint_that_lets_connections_time_out_still_serves_on_those_that_stand() {
        let standing = EndpointStanding { has_lane: true, ..SILENT };
        assert_eq!(chosen(&[standing]), [0]);
        assert_eq!(chosen(&[SILENT, standing, SILENT]), [1], "in panic too");
        assert_eq!(chosen(&[standing, OPEN]), [1], "it comes last");
        assert_eq!(chosen(&[standing, DOWN]), [1]);
        assert_eq!(chosen(&[standing, failed(UP)]), [0]);
    }

    #[test]
    fn an_endpoint_without_weight_gets_nothing() {
        let off = EndpointStanding { is_off: true, ..UP };
        assert_eq!(chosen(&[off, OPEN]), [1]);
        assert_eq!(chosen(&[off, failed(UP)]), [1]);
    }

    #[test]
    fn each_endpoint_is_tried_once_and_so_many_at_most() {
        let mut tried = TriedEndpoints::default();
        assert!(tried.failed(1, 3) && !tried.failed(1, 3), "the same again is no further one");
        assert!(tried.failed(0, 3) && !tried.failed(2, 3), "none is left");
        let mut tried = TriedEndpoints::default();
        assert_eq!((0..1_000).take_while(|&number| tried.failed(number, 1_000)).count(), CONNECT_TRIES_MAX - 1);
        assert!(!TriedEndpoints::default().failed(0, 1));
    }

    #[test]
    fn the_breaker_of_the_only_endpoint_refuses() {
        assert_eq!(chosen(&[OPEN]), [0; 0]);
        assert_eq!(chosen(&[TRIAL]), [0]);
        assert_eq!(chosen(&[DOWN]), [0]);
        assert_eq!(chosen(&[failed(UP)]), [0]);
    }
}
