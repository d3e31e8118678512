//! The delay after wrong passwords: all logins from the address wait, longer each time.

use std::{cell::RefCell, collections::HashMap, net::IpAddr, time::Duration};

use weir_base::time::Time;

/// Addresses that are remembered per worker. Default 4,096, about 200 KiB. When all are in use, further ones wait the longest time.
const SOURCES_MAX: usize = 4_096;
/// The first delay; it doubles with each further wrong password. Default 100 ms, as for Redis.
const DELAY: Duration = Duration::from_millis(100);
/// The longest delay. Default 2 s, as for Redis.
const DELAY_MAX: Duration = Duration::from_secs(2);
/// After so long without a wrong password an address is forgotten. Default 60 s.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Wrong passwords by address.
#[derive(Default)]
pub(crate) struct Penalties(RefCell<HashMap<IpAddr, (u32, Time)>>);

impl Penalties {
    /// Notes a wrong password; how long its reply waits.
    pub(crate) fn failed(&self, source: IpAddr, now: Time) -> Duration {
        let mut sources = self.0.borrow_mut();
        if sources.len() >= SOURCES_MAX && !sources.contains_key(&source) {
            sources.retain(|_, (_, last)| now.since(*last) < FORGOTTEN_AFTER);
            if sources.len() >= SOURCES_MAX {
                return DELAY_MAX;
            }
        }
        let (count, last) = sources.entry(source).or_insert((0, now));
        if now.since(*last) >= FORGOTTEN_AFTER {
            *count = 0;
        }
        let delay = DELAY.saturating_mul(1 << (*count).min(20)).min(DELAY_MAX);
        (*count, *last) = (count.saturating_add(1), now);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_bound_and_is_forgotten() {
        let (penalties, source) = (Penalties::default(), IpAddr::from([192, 0, 2, 1]));
        let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        let delays: Vec<u128> = (0..7).map(|second| penalties.failed(source, at(second)).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
        assert_eq!(penalties.failed(IpAddr::from([192, 0, 2, 2]), at(7)), DELAY, "another source");
        assert_eq!(penalties.failed(source, at(70)), DELAY);
    }
}
