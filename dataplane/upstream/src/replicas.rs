//! Who follows whom, and where is read.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use crate::settings::ReadFrom;

/// The one server that has all keys, as one worker knows it.
#[derive(Debug, Default)]
pub(crate) struct Primary(Cell<Option<u16>>);

impl Primary {
    /// Its endpoint; `None`: nobody has said yet.
    #[inline]
    pub(crate) fn number(&self) -> Option<u16> {
        self.0.get()
    }

    pub(crate) fn set(&self, number: Option<u16>) {
        // Who was it stays it until there is another.
        self.0.set(number.or(self.0.get()));
    }
}

/// The replicas of each primary.
#[derive(Debug, Default)]
pub(crate) struct Replicas(RefCell<HashMap<u16, Vec<u16>>>);

impl Replicas {
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// `replicas` follow `primary`. In order of their numbers, whatever order a server names them in.
    pub(crate) fn add(&self, primary: u16, replicas: impl Iterator<Item = u16>) {
        let mut all = self.0.borrow_mut();
        let of = all.entry(primary).or_default();
        of.extend(replicas.filter(|replica| *replica != primary));
        of.sort_unstable();
        of.dedup();
    }

    /// Where connection number `connection` reads what `primary` has; `is_well` tells whether an endpoint is worth a try.
    pub(crate) fn choose(
        &self,
        read_from: ReadFrom,
        primary: u16,
        connection: u64,
        is_well: impl Fn(u16) -> bool,
    ) -> u16 {
        let all = self.0.borrow();
        let replicas = all.get(&primary).map_or(&[][..], Vec::as_slice);
        let of = |count: usize| (connection % count.max(1) as u64) as usize;
        let replica = || {
            let begin = of(replicas.len());
            replicas.iter().cycle().skip(begin).take(replicas.len()).copied().find(|&number| is_well(number))
        };
        match read_from {
            ReadFrom::Primary => primary,
            ReadFrom::PreferPrimary if is_well(primary) => primary,
            ReadFrom::PreferPrimary | ReadFrom::PreferReplica => replica().unwrap_or(primary),
            // One that does not answer says so to the client.
            ReadFrom::Replica => replica().or(replicas.get(of(replicas.len())).copied()).unwrap_or(NOBODY),
            // The primary has its share of the connections.
            ReadFrom::Any if of(replicas.len() + 1) == replicas.len() && is_well(primary) => primary,
            ReadFrom::Any => replica().unwrap_or(primary),
        }
    }
}

/// No endpoint has this number.
pub const NOBODY: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas() -> Replicas {
        let replicas = Replicas::default();
        replicas.add(0, [5, 3, 5, 0].into_iter());
        replicas
    }

    #[test]
    fn each_connection_keeps_its_replica_while_that_is_well() {
        let all = replicas();
        let choose = |connection, sick: &[u16]| {
            all.choose(ReadFrom::PreferReplica, 0, connection, |number| !sick.contains(&number))
        };
        assert_eq!([choose(0, &[]), choose(1, &[]), choose(2, &[])], [3, 5, 3]);
        assert_eq!([choose(0, &[3]), choose(1, &[3])], [5, 5]);
        assert_eq!(choose(0, &[3, 5]), 0, "better the primary than nobody");
        assert_eq!(all.choose(ReadFrom::PreferReplica, 9, 0, |_| true), 9, "a primary without replicas");
    }

    #[test]
    fn each_rule_has_its_way_out() {
        let all = replicas();
        let choose = |read_from, connection, sick: &[u16]| {
            all.choose(read_from, 0, connection, |number| !sick.contains(&number))
        };
        assert_eq!(choose(ReadFrom::Primary, 0, &[0]), 0);
        assert_eq!([choose(ReadFrom::PreferPrimary, 1, &[]), choose(ReadFrom::PreferPrimary, 1, &[0])], [0, 5]);
        assert_eq!([choose(ReadFrom::Replica, 1, &[5]), choose(ReadFrom::Replica, 1, &[3, 5])], [3, 5]);
        assert_eq!(all.choose(ReadFrom::Replica, 9, 0, |_| true), NOBODY);
        let any: Vec<u16> = (0..3).map(|connection| choose(ReadFrom::Any, connection, &[])).collect();
        assert_eq!(any, [3, 5, 0]);
        assert_eq!(choose(ReadFrom::Any, 2, &[0]), 3);
    }

    #[test]
    fn the_last_known_primary_stays_one() {
        let primary = Primary::default();
        assert_eq!(primary.number(), None);
        primary.set(Some(4));
        primary.set(None);
        assert_eq!(primary.number(), Some(4));
    }
}
