//! The delay after wrong passwords: all logins from the address wait before their proof, longer each time.
//!
//! A login waits before it begins, and those that begin at the same time wait one behind the other. So many guesses at once gain
//! nothing but the first round: a source has at most one guess per delay. A login that would wait longer than [`QUEUE_MAX`] is refused.
//! That wait is below the limit of a login, so that a client with the right password behind the same address comes in.

use std::{
    cell::RefCell,
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use weir_base::time::Time;

/// Sources that are remembered per worker. Default 4,096, about 200 KiB. When all are in use, logins of all others wait the longest time,
/// each for itself.
const SOURCES_MAX: usize = 4_096;
/// The first delay; it doubles with each further wrong password. Default 100 ms, as for Redis.
const DELAY: Duration = Duration::from_millis(100);
/// The longest delay of a login that is alone. Default 2 s, as for Redis.
const DELAY_MAX: Duration = Duration::from_secs(2);
/// The longest delay of one of many. Default 10 s: a third of `client_login_timeout`.
const QUEUE_MAX: Duration = Duration::from_secs(10);
/// After so long without a wrong password one of them is forgotten. Default 10 s: a client that is wrong now and then, as one with an old
/// password in its configuration, does not bring its address to the longest delay.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);
/// Wrong passwords that count. Default 6: all are forgotten after a minute.
const WRONG_MAX: u32 = 6;

/// A source with wrong passwords: an address, or the network of 64 bits that an IPv6 address is in. Its owner has all of these addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Network(IpAddr);

impl Network {
    fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
            address => address,
        })
    }
}

/// What is known of a source.
#[derive(Clone, Copy)]
struct Source {
    wrong: u32,
    last: Time,
    /// Logins that wait now.
    waiting: u32,
}

impl Source {
    /// Wrong passwords that are not forgotten.
    fn wrong(self, now: Time) -> u32 {
        let forgotten = now.since(self.last).as_secs() / FORGOTTEN_AFTER.as_secs();
        self.wrong.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX))
    }

    fn is_in_use(self, now: Time) -> bool {
        self.waiting > 0 || self.wrong(now) > 0
    }
}

/// The delay of one login after so many wrong passwords.
fn delay(wrong: u32) -> Duration {
    DELAY.saturating_mul(1 << wrong.min(WRONG_MAX)).min(DELAY_MAX)
}

/// Wrong passwords by source.
#[derive(Default)]
pub(crate) struct Penalties(RefCell<HashMap<Network, Source>>);

/// The beginning of a login.
pub(crate) enum Begun<'a> {
    /// Its source has sent no wrong password.
    Free,
    /// It waits so long. Drop the second part after that.
    Delayed(Duration, Waiting<'a>),
    /// As many logins of its source wait as may.
    Refused,
}

/// A login that waits, until it is dropped.
pub(crate) struct Waiting<'a> {
    penalties: &'a Penalties,
    /// `None`: nothing is known of its source.
    source: Option<Network>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut sources = self.penalties.0.borrow_mut();
        if let Some(source) = self.source.and_then(|source| sources.get_mut(&source)) {
            source.waiting = source.waiting.saturating_sub(1);
        }
    }
}

impl Penalties {
    /// A login begins, before its proof.
    pub(crate) fn begins(&self, address: IpAddr, now: Time) -> Begun<'_> {
        let (source, mut sources) = (Network::of(address), self.0.borrow_mut());
        let Some(known) = sources.get_mut(&source).filter(|known| known.is_in_use(now)) else {
            if has_room(&mut sources, source, now) {
                return Begun::Free;
            }
            // It may have sent some.
            return Begun::Delayed(DELAY_MAX, Waiting { penalties: self, source: None });
        };
        let delay = delay(known.wrong(now)).saturating_mul(known.waiting + 1);
        if delay > QUEUE_MAX {
            return Begun::Refused;
        }
        known.waiting += 1;
        Begun::Delayed(delay, Waiting { penalties: self, source: Some(source) })
    }

    /// Notes a wrong password; how long its response waits. `waited`: what the login has waited already.
    pub(crate) fn failed(&self, address: IpAddr, waited: Duration, now: Time) -> Duration {
        let (source, mut sources) = (Network::of(address), self.0.borrow_mut());
        if !has_room(&mut sources, source, now) {
            return DELAY_MAX.saturating_sub(waited);
        }
        let known = sources.entry(source).or_insert(Source { wrong: 0, last: now, waiting: 0 });
        let wrong = known.wrong(now);
        (known.wrong, known.last) = ((wrong + 1).min(WRONG_MAX), now);
        delay(wrong).saturating_sub(waited)
    }
}

/// Whether `source` has a place, or can get one.
fn has_room(sources: &mut HashMap<Network, Source>, source: Network, now: Time) -> bool {
    if sources.len() >= SOURCES_MAX && !sources.contains_key(&source) {
        sources.retain(|_, known| known.is_in_use(now));
    }
    sources.len() < SOURCES_MAX || sources.contains_key(&source)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn delayed(begun: Begun<'_>) -> Option<(Duration, Waiting<'_>)> {
        match begun {
            Begun::Delayed(delay, waiting) => Some((delay, waiting)),
            Begun::Free | Begun::Refused => None,
        }
    }

    #[test]
    fn the_delay_doubles_up_to_its_bound_and_is_forgotten() {
        let penalties = Penalties::default();
        let failed = |second| penalties.failed(SOURCE, Duration::ZERO, at(second)).as_millis();
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(failed), [100, 200, 400, 800, 1_600, 2_000, 2_000]);
        let other = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(penalties.failed(other, Duration::ZERO, at(7)), DELAY, "another source");
        let wait = |second| delayed(penalties.begins(SOURCE, at(second))).map(|(delay, _)| delay.as_millis());
        assert_eq!([26, 46, 65, 67].map(wait), [Some(1_600), Some(400), Some(200), None]);
        assert_eq!(failed(70), 100);
        // A wrong password now and then.
        assert_eq!([100, 115, 130, 145].map(failed), [100, 100, 100, 100]);
    }

    #[test]
    fn logins_that_begin_together_wait_one_behind_the_other_and_too_many_are_refused() {
        let penalties = Penalties::default();
        assert!(matches!(penalties.begins(SOURCE, at(0)), Begun::Free), "a source without a wrong password");
        for second in 0..5 {
            penalties.failed(SOURCE, Duration::ZERO, at(second));
        }
        let waiting: Vec<_> = (0..20).map_while(|_| delayed(penalties.begins(SOURCE, at(5)))).collect();
        let seconds: Vec<u64> = waiting.iter().map(|(delay, _)| delay.as_secs()).collect();
        assert_eq!(seconds, [2, 4, 6, 8, 10]);
        assert!(matches!(penalties.begins(SOURCE, at(5)), Begun::Refused));
        drop(waiting);
        let (delay, _waiting) = delayed(penalties.begins(SOURCE, at(6))).expect("it waits");
        assert_eq!(delay, DELAY_MAX);
        assert_eq!(penalties.failed(SOURCE, delay, at(8)), Duration::ZERO, "it has waited");
    }

    #[test]
    fn guesses_of_a_thousand_connections_are_as_few_as_those_of_one() {
        let penalties = Penalties::default();
        penalties.failed(SOURCE, Duration::ZERO, at(0));
        // Each tick of 100 ms all connections begin a login that are not in one. The first round is free: it has begun before.
        let mut under_way: Vec<(Time, Waiting<'_>)> = Vec::new();
        let mut guesses = 0;
        for tick in 10..610 {
            let now = Time::from_nanos(tick * 100_000_000);
            let (over, left): (Vec<_>, Vec<_>) = under_way.into_iter().partition(|(end, _)| *end <= now);
            for (_, waiting) in over {
                guesses += 1;
                penalties.failed(SOURCE, DELAY_MAX, now);
                drop(waiting);
            }
            under_way = left;
            while under_way.len() < 1_000
                && let Some((delay, waiting)) = delayed(penalties.begins(SOURCE, now))
            {
                under_way.push((now.saturating_add(delay), waiting));
            }
        }
        // Those that waited when the first proofs failed, and one in 2 s.
        assert!((30..=110).contains(&guesses), "{guesses} guesses in a minute");
    }

    #[test]
    fn an_owner_of_many_addresses_is_one_source() {
        let penalties = Penalties::default();
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        penalties.failed(address("2001:db8:0:1::1"), Duration::ZERO, at(0));
        assert!(delayed(penalties.begins(address("2001:db8:0:1:ffff::2"), at(1))).is_some());
        assert!(delayed(penalties.begins(address("2001:db8:0:2::1"), at(1))).is_none());
        penalties.failed(address("::ffff:192.0.2.1"), Duration::ZERO, at(0));
        assert!(delayed(penalties.begins(SOURCE, at(1))).is_some());
    }

    #[test]
    fn a_source_without_a_place_waits_as_long_as_the_worst() {
        let penalties = Penalties::default();
        for number in 0..SOURCES_MAX as u32 {
            penalties.failed(std::net::Ipv4Addr::from_bits(number).into(), Duration::ZERO, at(0));
        }
        let wait = |second| delayed(penalties.begins(SOURCE, at(second))).map(|(delay, _)| delay);
        assert_eq!(wait(1), Some(DELAY_MAX));
        assert_eq!(penalties.failed(SOURCE, DELAY_MAX, at(1)), Duration::ZERO);
        assert_eq!(penalties.0.borrow().len(), SOURCES_MAX);
        assert_eq!(wait(11), None, "the others are forgotten");
    }
}
