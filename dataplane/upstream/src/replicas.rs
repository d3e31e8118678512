//! The replicas of each primary, and the servers that reads go to.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use weir_placement::NOBODY;

use crate::settings::ReadFrom;

/// The one server that has all keys, as one worker knows it.
#[derive(Debug, Default)]
pub(crate) struct Primary(Cell<Option<u16>>);

impl Primary {
    /// Its endpoint; `None`: not known yet.
    #[inline]
    pub(crate) fn number(&self) -> Option<u16> {
        self.0.get()
    }

    pub(crate) fn set(&self, number: Option<u16>) {
        // The old primary stays until there is a new one.
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

    /// Where connection number `connection` reads what `primary` has; `is_well` tells whether an endpoint is worth a try,
    /// `is_near` whether it is to be preferred to others.
    pub(crate) fn choose(
        &self,
        read_from: ReadFrom,
        primary: u16,
        connection: u64,
        is_well: impl Fn(u16) -> bool,
        is_near: impl Fn(u16) -> bool,
    ) -> u16 {
        let all = self.0.borrow();
        let replicas = all.get(&primary).map_or(&[][..], Vec::as_slice);
        // With `Any` the primary has its share of the connections.
        let own = (read_from == ReadFrom::Any).then_some(primary);
        let share = |count: usize| (connection % count.max(1) as u64) as usize;
        let well_of = |is_meant: &dyn Fn(u16) -> bool| {
            let meant = || replicas.iter().copied().chain(own).filter(|&number| is_meant(number));
            let count = meant().count();
            meant().chain(meant()).skip(share(count)).take(count).find(|&number| is_well(number))
        };
        let chosen = || well_of(&is_near).or_else(|| well_of(&|_| true));
        match read_from {
            ReadFrom::Primary => primary,
            ReadFrom::PreferPrimary if is_well(primary) => primary,
            ReadFrom::PreferPrimary | ReadFrom::PreferReplica | ReadFrom::Any => chosen().unwrap_or(primary),
            // One that does not respond says so to the client.
            ReadFrom::Replica => chosen().or_else(|| replicas.get(share(replicas.len())).copied()).unwrap_or(NOBODY),
        }
    }
}

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
            all.choose(ReadFrom::PreferReplica, 0, connection, |number| !sick.contains(&number), |_| false)
        };
        assert_eq!([choose(0, &[]), choose(1, &[]), choose(2, &[])], [3, 5, 3]);
        assert_eq!([choose(0, &[3]), choose(1, &[3])], [5, 5]);
        assert_eq!(choose(0, &[3, 5]), 0, "better the primary than nobody");
        assert_eq!(all.choose(ReadFrom::PreferReplica, 9, 0, |_| true, |_| false), 9, "a primary without replicas");
    }

    #[test]
    fn each_rule_has_its_way_out() {
        let all = replicas();
        let choose = |read_from, connection, sick: &[u16]| {
            all.choose(read_from, 0, connection, |number| !sick.contains(&number), |_| false)
        };
        assert_eq!(choose(ReadFrom::Primary, 0, &[0]), 0);
        assert_eq!([choose(ReadFrom::PreferPrimary, 1, &[]), choose(ReadFrom::PreferPrimary, 1, &[0])], [0, 5]);
        assert_eq!([choose(ReadFrom::Replica, 1, &[5]), choose(ReadFrom::Replica, 1, &[3, 5])], [3, 5]);
        assert_eq!(all.choose(ReadFrom::Replica, 9, 0, |_| true, |_| false), NOBODY);
        let any: Vec<u16> = (0..3).map(|connection| choose(ReadFrom::Any, connection, &[])).collect();
        assert_eq!(any, [3, 5, 0]);
        assert_eq!(choose(ReadFrom::Any, 2, &[0]), 3);
    }

    #[test]
    fn a_near_replica_comes_first_while_it_is_healthy() {
        let all = Replicas::default();
        all.add(0, [1, 2, 3, 4].into_iter());
        let choose = |read_from, near: &[u16], sick: &[u16]| -> Vec<u16> {
            let of = |connection| {
                let is_well = |number| !sick.contains(&number);
                all.choose(read_from, 0, connection, is_well, |number| near.contains(&number))
            };
            (0..6).map(of).collect()
        };
        assert_eq!(choose(ReadFrom::PreferReplica, &[2, 4], &[]), [2, 4, 2, 4, 2, 4]);
        assert_eq!(choose(ReadFrom::Replica, &[2, 4], &[4]), [2; 6]);
        assert_eq!(choose(ReadFrom::PreferReplica, &[2, 4], &[2, 4]), [1, 3, 3, 1, 1, 3], "far is better than nobody");
        assert_eq!(choose(ReadFrom::PreferReplica, &[0], &[]), [1, 2, 3, 4, 1, 2], "a primary is no replica");
        assert_eq!(choose(ReadFrom::Any, &[0], &[]), [0; 6], "the primary in the zone, before replicas elsewhere");
        assert_eq!(choose(ReadFrom::Any, &[0, 3], &[]), [3, 0, 3, 0, 3, 0]);
        assert_eq!(choose(ReadFrom::PreferPrimary, &[3], &[]), [0; 6]);
        assert_eq!(choose(ReadFrom::PreferPrimary, &[3], &[0]), [3; 6]);
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
