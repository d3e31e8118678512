//! The delay after wrong passwords: all logins from the address wait before their proof, longer each time.
//!
//! A login waits before it begins, and so does each of many that begin at the same time, one behind the other up to a bound. When too many
//! wait, further ones are refused if their user has had a wrong password from there: an application with one wrong copy of a password
//! still opens its pools, and guesses in parallel are few. Other users behind the same address wait, and come in.

use std::{
    cell::RefCell,
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use weir_base::time::Time;

/// Addresses that are remembered per worker. Default 4,096, less than 1 MiB. When all are in use, further ones wait the longest time.
const SOURCES_MAX: usize = 4_096;
/// Users with wrong passwords that are remembered for an address. Default 8: with more of them it is a search, and holds for all users.
const USERS_MAX: usize = 8;
/// The first delay; it doubles with each further wrong password. Default 100 ms, as for Redis.
const DELAY: Duration = Duration::from_millis(100);
/// The longest delay of a login that is alone. Default 2 s, as for Redis: 0.5 guesses a second.
const DELAY_MAX: Duration = Duration::from_secs(2);
/// The longest delay of one of many. Default 10 s: a third of `client_login_timeout`.
const QUEUE_MAX: Duration = Duration::from_secs(10);
/// Logins of such users that wait at the same time, per address. Default 100: guesses of one address are 10 a second at the most.
const WAITING_MAX: u32 = 100;
/// After so long without a wrong password half of them are forgotten, and so on. Default 60 s.
const HALVED_AFTER: Duration = Duration::from_secs(60);
/// Wrong passwords that count. Default 1,024: all are forgotten after 11 minutes at the most.
const WRONG_MAX: u32 = 1_024;

/// An address with wrong passwords.
struct Source {
    wrong: u32,
    last: Time,
    /// Logins that wait now.
    waiting: u32,
    /// Hashes of the names of the users.
    users: Vec<u64>,
}

impl Source {
    /// Forgets what is old.
    fn age(&mut self, now: Time) {
        let halves = now.since(self.last).as_secs() / HALVED_AFTER.as_secs();
        if halves > 0 {
            self.wrong = self.wrong.checked_shr(u32::try_from(halves).unwrap_or(u32::MAX)).unwrap_or(0);
            self.last =
                self.last.saturating_add(HALVED_AFTER.saturating_mul(u32::try_from(halves).unwrap_or(u32::MAX)));
        }
        if self.wrong == 0 {
            self.users.clear();
        }
    }

    /// The delay of one login after so many wrong passwords.
    fn delay(&self) -> Duration {
        DELAY.saturating_mul(1 << self.wrong.min(20)).min(DELAY_MAX)
    }

    fn is_search_for(&self, user: u64) -> bool {
        self.users.len() >= USERS_MAX || self.users.contains(&user)
    }
}

/// Wrong passwords by address.
#[derive(Default)]
pub struct Penalties {
    sources: RefCell<HashMap<IpAddr, Source>>,
    /// Strangers choose the names.
    hashes: RandomState,
}

/// The fate of a login that begins.
pub enum Begun<'a> {
    /// It goes on.
    Free,
    /// It waits so long. Drop the second behind that.
    Waits(Duration, Option<Waiting<'a>>),
    /// Too many wait for the same.
    Refused,
}

/// A login that waits, until it is dropped.
pub struct Waiting<'a> {
    penalties: &'a Penalties,
    source: IpAddr,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(source) = self.penalties.sources.borrow_mut().get_mut(&self.source) {
            source.waiting = source.waiting.saturating_sub(1);
        }
    }
}

/// The network that counts as one source: a host with an IPv6 address has 2^64 of them.
pub fn network(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_none() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        other => other,
    }
}

impl Penalties {
    /// A login of `user` begins.
    pub fn begins(&self, source: IpAddr, user: &[u8], now: Time) -> Begun<'_> {
        let source = network(source);
        let mut sources = self.sources.borrow_mut();
        let is_full = sources.len() >= SOURCES_MAX;
        let Some(known) = sources.get_mut(&source) else {
            return if is_full { Begun::Waits(DELAY_MAX, None) } else { Begun::Free };
        };
        known.age(now);
        if known.wrong == 0 {
            return Begun::Free;
        }
        if known.waiting >= WAITING_MAX && known.is_search_for(self.hashes.hash_one(user)) {
            return Begun::Refused;
        }
        known.waiting += 1;
        let delay = known.delay().saturating_mul(known.waiting);
        Begun::Waits(delay.min(QUEUE_MAX), Some(Waiting { penalties: self, source }))
    }

    /// Notes a wrong password of `user`; how long its response waits. `waited`: the time that the login has waited already.
    pub fn failed(&self, source: IpAddr, user: &[u8], waited: Duration, now: Time) -> Duration {
        let source = network(source);
        let mut sources = self.sources.borrow_mut();
        if sources.len() >= SOURCES_MAX && !sources.contains_key(&source) {
            sources.retain(|_, known| {
                known.age(now);
                known.waiting > 0 || known.wrong > 0
            });
            if sources.len() >= SOURCES_MAX {
                return DELAY_MAX;
            }
        }
        let made = || Source { wrong: 0, last: now, waiting: 0, users: Vec::new() };
        let known = sources.entry(source).or_insert_with(made);
        known.age(now);
        let delay = known.delay();
        let user = self.hashes.hash_one(user);
        if !known.is_search_for(user) {
            known.users.push(user);
        }
        (known.wrong, known.last) = ((known.wrong + 1).min(WRONG_MAX), now);
        delay.saturating_sub(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const USER: &[u8] = b"app";

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn waits(begun: &Begun<'_>) -> Option<Duration> {
        match begun {
            Begun::Free => Some(Duration::ZERO),
            Begun::Waits(delay, _) => Some(*delay),
            Begun::Refused => None,
        }
    }

    #[test]
    fn the_delay_doubles_up_to_its_bound_and_is_forgotten_by_halves() {
        let penalties = Penalties::default();
        let failed = |second| penalties.failed(SOURCE, USER, Duration::ZERO, at(second)).as_millis();
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(failed), [100, 200, 400, 800, 1_600, 2_000, 2_000]);
        let other = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(penalties.failed(other, USER, Duration::ZERO, at(7)), DELAY, "another source");
        let delay = |second| waits(&penalties.begins(SOURCE, USER, at(second))).map(|delay| delay.as_millis());
        assert_eq!([65, 66, 126, 186].map(delay), [Some(2_000), Some(800), Some(200), Some(0)]);
        assert_eq!(failed(187), 100);
    }

    #[test]
    fn logins_that_begin_together_wait_one_behind_the_other() {
        let penalties = Penalties::default();
        assert!(matches!(penalties.begins(SOURCE, USER, at(0)), Begun::Free), "no wrong password came from there");
        for second in 0..5 {
            penalties.failed(SOURCE, USER, Duration::ZERO, at(second));
        }
        let waiting: Vec<_> = (0..120).map(|_| penalties.begins(SOURCE, USER, at(5))).collect();
        let seconds: Vec<_> = waiting.iter().map(|begun| waits(begun).map(|delay| delay.as_secs())).collect();
        assert_eq!(seconds[..6], [Some(2), Some(4), Some(6), Some(8), Some(10), Some(10)]);
        let (some, none) = seconds.split_at(WAITING_MAX as usize);
        assert!(some.iter().all(Option::is_some) && none.iter().all(Option::is_none), "{seconds:?}");
        let other = penalties.begins(SOURCE, b"other", at(5));
        assert_eq!(waits(&other), Some(QUEUE_MAX), "no password of this user was wrong: it comes in");
        drop((waiting, other));
        let begun = penalties.begins(SOURCE, USER, at(6));
        assert_eq!(waits(&begun), Some(DELAY_MAX));
        assert_eq!(penalties.failed(SOURCE, USER, DELAY_MAX, at(8)), Duration::ZERO, "it has waited");
    }

    /// The figures of THREAT-MODEL.md.
    #[test]
    fn a_thousand_logins_at_once_guess_ten_times_a_second_behind_the_first_round() {
        for users in [1, 1_000] {
            let penalties = Penalties::default();
            let name = |client: u64| (client % users).to_be_bytes();
            let (mut guesses, mut pending) = (0, Vec::new());
            for tenth in 0..600_u64 {
                let now = Time::from_nanos(tenth * 100_000_000);
                let (due, later): (Vec<_>, Vec<_>) = pending.into_iter().partition(|(at, _, _)| *at <= now);
                pending = later;
                for (_, client, waiting) in due {
                    drop(waiting);
                    penalties.failed(SOURCE, &name(client), Duration::ZERO, now);
                    guesses += u64::from(tenth > 0);
                }
                // As many as have no login under way try again.
                for client in 0..1_000 - pending.len() as u64 {
                    match penalties.begins(SOURCE, &name(client), now) {
                        Begun::Free => pending.push((now, client, None)),
                        Begun::Waits(delay, waiting) => pending.push((now.saturating_add(delay), client, waiting)),
                        Begun::Refused => {}
                    }
                }
                if tenth == 0 {
                    // The first round: no wrong password was known.
                    for (_, client, _) in pending.drain(..) {
                        penalties.failed(SOURCE, &name(client), Duration::ZERO, now);
                    }
                }
            }
            assert!((300..=700).contains(&guesses), "{users} users: {guesses} guesses in a minute");
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_source_and_a_full_table_frees_no_stranger() {
        let penalties = Penalties::default();
        let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
        penalties.failed(v6("2001:db8::1"), USER, Duration::ZERO, at(0));
        assert!(matches!(penalties.begins(v6("2001:db8::ffff:2"), USER, at(0)), Begun::Waits(..)));
        assert!(matches!(penalties.begins(v6("2001:db8:0:1::1"), USER, at(0)), Begun::Free));
        for number in 0..SOURCES_MAX as u32 {
            penalties.failed(IpAddr::from(number.to_be_bytes()), USER, Duration::ZERO, at(1));
        }
        let stranger = penalties.begins(IpAddr::from([203, 0, 113, 1]), USER, at(1));
        assert_eq!(waits(&stranger), Some(DELAY_MAX));
        assert_eq!(penalties.failed(IpAddr::from([203, 0, 113, 1]), USER, Duration::ZERO, at(1)), DELAY_MAX);
        assert_eq!(
            penalties.failed(IpAddr::from([203, 0, 113, 1]), USER, Duration::ZERO, at(99)),
            DELAY,
            "old ones go"
        );
    }
}
