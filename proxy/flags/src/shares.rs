//! Places that the sources of requests share: so many in all, and so many for each source.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Mutex,
};

use crate::environment::lock;

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
    by_source: HashMap<IpAddr, usize>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    shares: &'a Shares,
    source: IpAddr,
}

impl Shares {
    pub(crate) fn new(all_max: usize, source_max: usize) -> Self {
        Self { all_max, source_max, taken: Mutex::default() }
    }

    /// A place for a source. `None`: all are taken, or its share of them.
    pub(crate) fn place(&self, source: IpAddr) -> Option<Place<'_>> {
        self.take(source).then(|| Place { shares: self, source })
    }

    /// Takes a place until [`Self::give_back`]. False: all are taken, or the share of the source.
    pub(crate) fn take(&self, source: IpAddr) -> bool {
        let mut taken = lock(&self.taken);
        let own = taken.by_source.get(&group(source)).copied().unwrap_or(0);
        if taken.all >= self.all_max || own >= self.source_max {
            return false;
        }
        taken.all += 1;
        taken.by_source.insert(group(source), own + 1);
        true
    }

    /// Gives a place of a source back.
    pub(crate) fn give_back(&self, source: IpAddr) {
        let mut taken = lock(&self.taken);
        let Some(own) = taken.by_source.get_mut(&group(source)) else { return };
        *own -= 1;
        if *own == 0 {
            taken.by_source.remove(&group(source));
        }
        taken.all -= 1;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shares.give_back(self.source);
    }
}

/// The addresses that count as one source: one of IPv4, or a network of 64 bits of IPv6, which one client may have for itself.
fn group(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_gets_its_share_and_no_more() {
        let shares = Shares::new(3, 2);
        let [one, other, third] =
            ["2001:db8::1", "2001:db8::2", "192.0.2.1"].map(|text| text.parse().expect("an address"));
        let first = shares.place(one).expect("a place");
        let _second = shares.place(other).expect("a place");
        assert!(shares.place(one).is_none(), "one network is one source");
        let _third = shares.place(third).expect("a place");
        assert!(shares.place(third).is_none(), "all are taken");
        drop(first);
        assert!(shares.place(one).is_some());
    }
}
