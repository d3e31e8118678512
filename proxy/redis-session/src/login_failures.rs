//! Penalty for wrong passwords: all connections from the address wait, longer each time. Without it a guess would cost no more
//! than a new connection.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use weir_base::time::Time;

/// Sources that are remembered. Default 16,384, about 1 MiB. When all are in use, further ones get the longest delay and
/// are not remembered: remembering one more does not stop an attacker with so many addresses.
pub(crate) const SOURCES_MAX: usize = 16_384;

/// After so long without a wrong password a source is forgotten. Default 60 s.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// How often the table is searched for what may be forgotten. Default 1 s: a flood must not pay for the search each time.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// Wrong passwords by source address.
#[derive(Debug, Default)]
pub(crate) struct LoginFailures {
    sources: HashMap<IpAddr, Penalty>,
    tidied: Time,
}

#[derive(Debug)]
struct Penalty {
    /// Wrong passwords since it is remembered.
    count: u32,
    last: Time,
    until: Time,
}

impl LoginFailures {
    /// Until when logins from `source` wait, if they do.
    pub(crate) fn penalty(&self, source: IpAddr, now: Time) -> Option<Time> {
        self.sources.get(&network(source)).map(|penalty| penalty.until).filter(|until| *until > now)
    }

    /// Notes a wrong password; how long the source waits: `base`, and twice as long with each further one, up to `max`.
    pub(crate) fn failed(&mut self, source: IpAddr, now: Time, base: Duration, max: Duration) -> Duration {
        let source = network(source);
        if self.sources.len() >= SOURCES_MAX && !self.sources.contains_key(&source) {
            self.tidy(now);
            if self.sources.len() >= SOURCES_MAX {
                return max;
            }
        }
        let fresh = Penalty { count: 0, last: now, until: now };
        let penalty = self.sources.entry(source).or_insert(fresh);
        if is_forgotten(penalty, now) {
            penalty.count = 0;
        }
        let delay = base.saturating_mul(1 << penalty.count.min(20)).min(max);
        penalty.count = penalty.count.saturating_add(1);
        penalty.last = now;
        penalty.until = penalty.until.max(now.saturating_add(delay));
        delay
    }

    fn tidy(&mut self, now: Time) {
        if now.since(self.tidied) >= TIDY_EVERY {
            self.tidied = now;
            self.sources.retain(|_, penalty| !is_forgotten(penalty, now));
        }
    }
}

fn is_forgotten(penalty: &Penalty, now: Time) -> bool {
    now.since(penalty.last) >= FORGOTTEN_AFTER
}

/// The network of an address: the owner of one IPv6 address has 2^64 of them.
fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_delay_doubles_up_to_its_limit_and_is_forgotten() {
        let mut failures = LoginFailures::default();
        let source = address("192.0.2.1");
        let mut failed = |time| failures.failed(source, time, BASE, MAX).as_millis();
        assert_eq!([0, 1, 2, 3, 4, 5].map(|_| failed(at(1_000))), [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(failed(at(61_000)), 100);
        assert_eq!(failures.penalty(source, at(61_050)), Some(at(61_100)));
        assert_eq!(failures.penalty(source, at(61_100)), None);
    }

    #[test]
    fn other_sources_do_not_wait_but_the_same_network_does() {
        let mut failures = LoginFailures::default();
        failures.failed(address("2001:db8::1"), at(0), BASE, MAX);
        failures.failed(address("192.0.2.1"), at(0), BASE, MAX);
        assert!(failures.penalty(address("2001:db8::ffff:2"), at(1)).is_some());
        assert!(failures.penalty(address("::ffff:192.0.2.1"), at(1)).is_some());
        assert!(failures.penalty(address("2001:db8:0:1::1"), at(1)).is_none());
        assert!(failures.penalty(address("192.0.2.2"), at(1)).is_none());
    }

    #[test]
    fn the_table_is_bounded_and_overflowing_sources_wait_longest() {
        let mut failures = LoginFailures::default();
        for index in 0..SOURCES_MAX as u32 {
            failures.failed(IpAddr::V4(index.into()), at(0), BASE, MAX);
        }
        let late = address("203.0.113.9");
        assert_eq!(failures.failed(late, at(2_000), BASE, MAX), MAX);
        assert!(failures.sources.len() == SOURCES_MAX && failures.penalty(late, at(2_001)).is_none());
        assert_eq!(failures.failed(late, at(61_000), BASE, MAX), BASE);
        assert_eq!(failures.sources.len(), 1, "the others are forgotten");
    }
}
