//! The delay after wrong passwords: all logins from the address wait before their proof, longer each time.
//!
//! A login waits before it begins, and so does each of many that begin at the same time: guesses in parallel gain nothing but the
//! first round. The longest wait is below the limit of a login, so that a client with the right password behind the same address
//! comes in.

use std::{cell::RefCell, collections::HashMap, net::IpAddr, time::Duration};

use weir_base::time::Time;

/// Addresses that are remembered per worker. Default 4,096, about 200 KiB. When all are in use, further ones wait the longest time.
const SOURCES_MAX: usize = 4_096;
/// The first delay; it doubles with each further wrong password. Default 100 ms, as for Redis.
const DELAY: Duration = Duration::from_millis(100);
/// The longest delay of a login that is alone. Default 2 s, as for Redis.
const DELAY_MAX: Duration = Duration::from_secs(2);
/// The longest delay of one of many. Default 10 s: a third of `client_login_timeout`.
const QUEUE_MAX: Duration = Duration::from_secs(10);
/// After so long without a wrong password an address is forgotten. Default 60 s.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// An address with wrong passwords.
#[derive(Clone, Copy)]
struct Source {
    wrong: u32,
    last: Time,
    /// Logins that wait now.
    waiting: u32,
}

impl Source {
    /// The delay of one login after so many wrong passwords.
    fn delay(self) -> Duration {
        DELAY.saturating_mul(1 << self.wrong.min(20)).min(DELAY_MAX)
    }
}

/// Wrong passwords by address.
#[derive(Default)]
pub(crate) struct Penalties(RefCell<HashMap<IpAddr, Source>>);

/// A login that waits, until it is dropped.
pub(crate) struct Waiting<'a> {
    penalties: &'a Penalties,
    source: IpAddr,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(source) = self.penalties.0.borrow_mut().get_mut(&self.source) {
            source.waiting = source.waiting.saturating_sub(1);
        }
    }
}

impl Penalties {
    /// A login begins: how long it waits, if the address has sent wrong passwords. Drop the result after the wait.
    pub(crate) fn begins(&self, source: IpAddr, now: Time) -> Option<(Duration, Waiting<'_>)> {
        let mut sources = self.0.borrow_mut();
        let known = sources.get_mut(&source).filter(|known| now.since(known.last) < FORGOTTEN_AFTER)?;
        known.waiting += 1;
        let delay = known.delay().saturating_mul(known.waiting).min(QUEUE_MAX);
        Some((delay, Waiting { penalties: self, source }))
    }

    /// Notes a wrong password; how long its response waits. `waited`: what the login has waited already.
    pub(crate) fn failed(&self, source: IpAddr, waited: Duration, now: Time) -> Duration {
        let mut sources = self.0.borrow_mut();
        if sources.len() >= SOURCES_MAX && !sources.contains_key(&source) {
            sources.retain(|_, known| known.waiting > 0 || now.since(known.last) < FORGOTTEN_AFTER);
            if sources.len() >= SOURCES_MAX {
                return DELAY_MAX;
            }
        }
        let known = sources.entry(source).or_insert(Source { wrong: 0, last: now, waiting: 0 });
        if now.since(known.last) >= FORGOTTEN_AFTER {
            known.wrong = 0;
        }
        let delay = known.delay();
        (known.wrong, known.last) = (known.wrong.saturating_add(1), now);
        delay.saturating_sub(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_delay_doubles_up_to_its_bound_and_is_forgotten() {
        let penalties = Penalties::default();
        let failed = |second| penalties.failed(SOURCE, Duration::ZERO, at(second)).as_millis();
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(failed), [100, 200, 400, 800, 1_600, 2_000, 2_000]);
        let other = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(penalties.failed(other, Duration::ZERO, at(7)), DELAY, "another source");
        assert!(penalties.begins(SOURCE, at(65)).is_some() && penalties.begins(SOURCE, at(67)).is_none());
        assert_eq!(failed(70), 100);
    }

    #[test]
    fn logins_that_begin_together_wait_one_behind_the_other() {
        let penalties = Penalties::default();
        assert!(penalties.begins(SOURCE, at(0)).is_none(), "a source without a wrong password waits for nothing");
        for second in 0..5 {
            penalties.failed(SOURCE, Duration::ZERO, at(second));
        }
        let waiting: Vec<_> = (0..20).filter_map(|_| penalties.begins(SOURCE, at(5))).collect();
        let seconds: Vec<u64> = waiting.iter().map(|(delay, _)| delay.as_secs()).collect();
        assert_eq!((&seconds[..6], seconds[19]), (&[2, 4, 6, 8, 10, 10][..], 10));
        drop(waiting);
        let (delay, _waiting) = penalties.begins(SOURCE, at(6)).expect("it waits");
        assert_eq!(delay, DELAY_MAX);
        assert_eq!(penalties.failed(SOURCE, delay, at(8)), Duration::ZERO, "it has waited");
    }
}
