//! Places that the sources of requests share, so that a few sources leave room for others.
//!
//! A source is an address of IPv4, or a network of 64 bits of IPv6: one client may have all addresses of such a network. It holds at most a certain
//! part of the places that the others leave: with 500 places and a part of a fifth, the first source gets 100, a second one 80, and ten of them leave
//! 50. A site may have many networks of 64 bits, so a network of 48 bits of IPv6 has a bound, too: twice the part of a source. All networks of one site
//! leave three fifths of the places then.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Mutex,
};

use crate::environment::lock;

/// The part of a site, in parts of a source.
const SITE_SOURCES: usize = 2;

/// Places that are taken and given back.
#[derive(Debug)]
pub(crate) struct Shares {
    all_max: usize,
    source_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_group: HashMap<Group, usize>,
}

/// Addresses that count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Group {
    Source(IpAddr),
    /// The first 48 bits.
    Site(Ipv6Addr),
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    shares: &'a Shares,
    source: IpAddr,
}

impl Shares {
    /// So many places, and so many for a source that is alone.
    pub(crate) fn new(all_max: usize, source_max: usize) -> Self {
        Self { all_max, source_max, taken: Mutex::default() }
    }

    /// A place for a source. `None`: it has its share of those that the others leave.
    pub(crate) fn place(&self, source: IpAddr) -> Option<Place<'_>> {
        self.take(source).then(|| Place { shares: self, source })
    }

    /// Takes a place until [`Self::give_back`]. False: the source has its share of those that the others leave.
    pub(crate) fn take(&self, source: IpAddr) -> bool {
        let mut taken = lock(&self.taken);
        let has_room = groups(source).iter().flatten().all(|group| {
            let own = taken.by_group.get(group).copied().unwrap_or(0);
            let part = match group {
                Group::Source(_) => self.source_max,
                Group::Site(_) => SITE_SOURCES * self.source_max,
            };
            // own < left * part / all_max, where `left` has the free places and its own.
            own * self.all_max < (self.all_max - taken.all + own) * part
        });
        if !has_room || taken.all >= self.all_max {
            return false;
        }
        taken.all += 1;
        groups(source).iter().flatten().for_each(|group| *taken.by_group.entry(*group).or_default() += 1);
        true
    }

    /// Gives a place of a source back.
    pub(crate) fn give_back(&self, source: IpAddr) {
        let mut taken = lock(&self.taken);
        taken.all = taken.all.saturating_sub(1);
        for group in groups(source).iter().flatten() {
            let Some(own) = taken.by_group.get_mut(group) else { continue };
            *own -= 1;
            if *own == 0 {
                taken.by_group.remove(group);
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shares.give_back(self.source);
    }
}

/// The groups of an address: its source, and the site of one of IPv6.
fn groups(source: IpAddr) -> [Option<Group>; 2] {
    match source.to_canonical() {
        IpAddr::V6(address) => {
            let network = |bits: u32| Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - bits)));
            [Some(Group::Source(network(64).into())), Some(Group::Site(network(48)))]
        }
        other => [Some(Group::Source(other)), None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// The places that a source gets.
    fn fill(shares: &Shares, source: IpAddr) -> usize {
        (0..1_000).take_while(|_| shares.take(source)).count()
    }

    #[test]
    fn a_source_gets_its_share_and_no_more() {
        let shares = Shares::new(10, 2);
        let [one, other, third] = ["2001:db8::1", "2001:db8::2", "192.0.2.1"].map(address);
        let first = shares.place(one).expect("a place");
        let _second = shares.place(other).expect("a place");
        assert!(shares.place(one).is_none(), "one network is one source");
        let _third = shares.place(third).expect("a place");
        drop(first);
        assert!(shares.place(one).is_some());
    }

    #[test]
    fn ten_sources_leave_room_for_another_one() {
        let shares = Shares::new(500, 100);
        let taken: Vec<usize> =
            (0..10).map(|number| fill(&shares, address(&format!("2001:db8:{number}::1")))).collect();
        assert_eq!(taken[..3], [100, 80, 64]);
        assert!(taken.iter().sum::<usize>() < 460, "{taken:?}");
        assert!(fill(&shares, address("192.0.2.1")) >= 8);
    }

    #[test]
    fn the_networks_of_a_site_get_two_shares() {
        let shares = Shares::new(500, 100);
        let taken: usize = (0..1_000).map(|number| fill(&shares, address(&format!("2001:db8:0:{number:x}::1")))).sum();
        assert_eq!(taken, 200);
        assert_eq!(fill(&shares, address("2001:db8:1::1")), 60, "another site");
        assert_eq!(fill(&shares, address("192.0.2.1")), 48);
        for _ in 0..60 {
            shares.give_back(address("2001:db8:1::1"));
        }
        assert_eq!(fill(&shares, address("2001:db8:2::1")), 51);
    }

    #[test]
    fn many_sources_take_all_places() {
        let shares = Shares::new(16, 1);
        let taken = (0..17).filter(|number| shares.take(address(&format!("192.0.2.{number}")))).count();
        assert_eq!(taken, 16);
    }
}
