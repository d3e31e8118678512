//! The rate of cancel requests by source. Pure: time comes in.
//!
//! Sources are in two generations. A source enters the newer one with each request. When that is full, it becomes the older one, and the
//! sources of the older one that have sent nothing meanwhile are forgotten. So a source keeps its rate as long as fewer than
//! [`GENERATION_MAX`] others send between two of its requests, and no request looks through all sources.

use std::{collections::HashMap, net::IpAddr};

use weir_base::{rate::LocalRate, time::Time};

/// Requests of one source per worker and second. Default 20: a person cancels now and then, a driver with a timeout in each of its
/// connections some times a second; each costs a connection to the server.
const PER_SOURCE_AND_SECOND: f64 = 20.0;
/// Requests that may come at once. Default 200: when a server hangs, the statements of all connections of an application time out
/// together, and a request that is dropped leaves its statement running.
const BURST_PER_SOURCE: f64 = 200.0;
/// Sources of one generation. Default 512: 150 KiB for both generations per listener and worker at the most.
const GENERATION_MAX: usize = 512;

/// See above.
#[derive(Default)]
pub(super) struct CancelSources {
    newer: HashMap<IpAddr, LocalRate>,
    older: HashMap<IpAddr, LocalRate>,
}

impl CancelSources {
    /// Whether `source` may send one more request. The time is constant, except that of the request which begins a generation: it
    /// drops up to [`GENERATION_MAX`] sources.
    pub(super) fn admits(&mut self, source: IpAddr, now: Time) -> bool {
        if let Some(rate) = self.newer.get(&source) {
            return rate.try_take(1, now);
        }
        let known = self.older.remove(&source);
        let made = || LocalRate::with_burst(Some(PER_SOURCE_AND_SECOND), BURST_PER_SOURCE, now);
        let rate = known.unwrap_or_else(made);
        if self.newer.len() >= GENERATION_MAX {
            std::mem::swap(&mut self.newer, &mut self.older);
            self.newer.clear();
        }
        let is_admitted = rate.try_take(1, now);
        self.newer.insert(source, rate);
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO.saturating_add(Duration::from_secs(1_000 + seconds))
    }

    /// Requests of `source` that are admitted of many at once.
    fn admitted(sources: &mut CancelSources, source: IpAddr, now: Time) -> usize {
        (0..1_000).filter(|_| sources.admits(source, now)).count()
    }

    #[test]
    fn a_source_has_a_burst_and_then_a_rate() {
        let mut sources = CancelSources::default();
        assert_eq!(admitted(&mut sources, address(1), at(0)), BURST_PER_SOURCE as usize);
        assert_eq!(admitted(&mut sources, address(1), at(2)), 2 * PER_SOURCE_AND_SECOND as usize);
        assert_eq!(admitted(&mut sources, address(2), at(2)), BURST_PER_SOURCE as usize, "another one");
    }

    #[test]
    fn p16_other_sources_in_any_number_give_an_active_source_no_second_burst() {
        let mut sources = CancelSources::default();
        assert_eq!(admitted(&mut sources, address(0), at(0)), BURST_PER_SOURCE as usize);
        for number in 1..=20 * GENERATION_MAX as u32 {
            assert!(sources.admits(address(number), at(0)), "a source that sends one request");
            if number % 100 == 0 {
                assert!(!sources.admits(address(0), at(0)), "after {number} others");
            }
            let count = sources.newer.len() + sources.older.len();
            assert!(count <= 2 * GENERATION_MAX, "{count} sources");
        }
    }

    #[test]
    fn only_sources_that_send_no_longer_are_forgotten() {
        let mut sources = CancelSources::default();
        let quiet = address(0);
        assert_eq!(admitted(&mut sources, quiet, at(0)), BURST_PER_SOURCE as usize);
        let others = |sources: &mut CancelSources, first: u32, count: usize| {
            (first..first + count as u32).for_each(|number| assert!(sources.admits(address(number), at(0))));
        };
        others(&mut sources, 1, GENERATION_MAX - 1);
        others(&mut sources, 1_000, GENERATION_MAX - 1);
        assert!(!sources.admits(quiet, at(0)), "it is in the older generation, and enters the newer one again");
        others(&mut sources, 3_000, GENERATION_MAX - 1);
        assert!(!sources.admits(quiet, at(0)), "still known");
        others(&mut sources, 5_000, 2 * GENERATION_MAX + 1);
        assert!(sources.admits(quiet, at(0)), "forgotten: two generations of others came");
    }
}
