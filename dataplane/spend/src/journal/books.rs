//! The sum of the records of a journal. Pure: the recovery of a process that was killed, and the compaction of one that runs.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::record::{Charge, Found, Record, VERSION, decode, next_mark};
use crate::{
    amount::Amount,
    budget::{AccountId, Day, Totals},
    usage::open_record::crash_line,
};

/// Accounts of keys and teams that are kept although they are not used any more. Default 131,072: twice the keys of a
/// configuration. Worst case 70 bytes each on disk, 9 MB.
pub const ACCOUNTS_KEPT: usize = 131_072;

/// A request without a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReservation {
    /// Reserved.
    pub charge: Charge,
    /// Its usage record if it stays open: see [`Record::Reserve`].
    pub line: Box<[u8]>,
}

/// Contents that should not be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Bytes between good records. A process that dies leaves none: this is a fault of the disk or of a person.
    pub damaged_bytes: u64,
    /// Bytes behind the last good record: a record whose write was cut off. Its request was not forwarded, or is open.
    pub torn_bytes: u64,
    /// Settlements without a reservation, which are charged; their reservations were in damaged bytes.
    pub orphans: u64,
    /// Second settlements of one reservation, which are not charged.
    pub duplicates: u64,
}

impl Damage {
    /// More than the end of a killed process explains.
    pub fn is_unexpected(&self) -> bool {
        self.damaged_bytes > 0 || self.orphans > 0 || self.duplicates > 0
    }
}

/// A snapshot that is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotError;

/// The change that a record has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// None.
    Nothing,
    /// A reservation is open.
    Reserved(Charge),
    /// A reservation has ended, if there was one, and this is charged.
    Settled {
        /// The reservation.
        reserved: Option<Charge>,
        /// The cost.
        charge: Charge,
    },
    /// The process grants nothing more to keys with a budget.
    LeaseEnded,
    /// The rates of an account: see [`Record::Rates`].
    Rates(Rates),
}

/// The rates of an account, as debts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    pub id: AccountId,
    pub requests: u64,
    pub tokens: u64,
}

/// Accounts, open reservations, and damage.
#[derive(Clone, Debug, Default)]
pub struct Books {
    totals: HashMap<AccountId, Totals>,
    open: BTreeMap<u64, OpenReservation>,
    /// Generations of files of processes that have handed the journal over, which are no part of this sum. True: that process has
    /// the journal again, and the files will be a part.
    departing: BTreeMap<u64, bool>,
    /// Settled since the last snapshot: a second settlement is none.
    settled: HashSet<u64>,
    latest_day: Day,
    damage: Damage,
}

impl Books {
    /// Reads a snapshot and its generation. It is taken whole or not at all.
    ///
    /// # Errors
    /// It is cut off, changed, or of another version.
    pub fn from_snapshot(bytes: &[u8]) -> Result<(Self, u64), SnapshotError> {
        let (mut books, mut at, mut records) = (Self::default(), 0, 0);
        let mut generation = None;
        while let Found::Record(record, length) = decode(&bytes[at..]) {
            at += length;
            match (record, generation) {
                (Record::Snapshot { version: VERSION, generation: found, latest_day }, None) => {
                    (generation, books.latest_day) = (Some(found), latest_day);
                }
                (Record::Account { id, totals }, Some(_)) => {
                    books.totals.insert(id, totals);
                }
                (Record::Reserve { id, charge, line }, Some(_)) => {
                    books.open.insert(id, OpenReservation { charge, line: line.into() });
                }
                (Record::Departing { generation, is_reclaimed }, Some(_)) => {
                    books.departing.insert(generation, is_reclaimed);
                }
                (Record::End { records: expected }, Some(generation)) if expected == records && at == bytes.len() => {
                    return Ok((books, generation));
                }
                _ => return Err(SnapshotError),
            }
            records += 1;
        }
        Err(SnapshotError)
    }

    /// A snapshot of everything here, for `generation`. With more than [`ACCOUNTS_KEPT`] accounts those are left out whose month is
    /// over. With fewer all are kept, for a clock that is ahead must not end a month.
    pub fn to_snapshot(&self, generation: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        Record::Snapshot { version: VERSION, generation, latest_day: self.latest_day }.encode(&mut bytes);
        let mut records = 1;
        let month = self.latest_day.month();
        let keeps_all = self.totals.len() <= ACCOUNTS_KEPT;
        for (&id, &totals) in self.totals.iter().filter(|(_, totals)| keeps_all || totals.month >= month) {
            Record::Account { id, totals }.encode(&mut bytes);
            records += 1;
        }
        for (&id, open) in &self.open {
            Record::Reserve { id, charge: open.charge, line: &open.line }.encode(&mut bytes);
            records += 1;
        }
        for (&generation, &is_reclaimed) in &self.departing {
            Record::Departing { generation, is_reclaimed }.encode(&mut bytes);
            records += 1;
        }
        Record::End { records }.encode(&mut bytes);
        bytes
    }

    /// Takes the open reservations out, as the records that a process begins with which hands over.
    pub(super) fn take_open(&mut self, generation: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        Record::Segment { version: VERSION, generation }.encode(&mut bytes);
        for (id, open) in std::mem::take(&mut self.open) {
            Record::Reserve { id, charge: open.charge, line: &open.line }.encode(&mut bytes);
        }
        bytes
    }

    /// Reads a whole segment, behind damage too. `on_line` gets the usage records of ended requests.
    pub fn read_segment(&mut self, bytes: &[u8], mut on_line: impl FnMut(&[u8])) {
        let mut at = 0;
        while at < bytes.len() {
            if let Found::Record(record, length) = decode(&bytes[at..]) {
                self.apply(&record, &mut on_line);
                at += length;
                continue;
            }
            let mut next = at;
            let found = loop {
                let Some(step) = next_mark(&bytes[next..]) else { break None };
                next += step;
                if matches!(decode(&bytes[next..]), Found::Record(..)) {
                    break Some(next);
                }
            };
            let Some(found) = found else {
                self.damage.torn_bytes += (bytes.len() - at) as u64;
                return;
            };
            self.damage.damaged_bytes += (found - at) as u64;
            at = found;
        }
    }

    /// Reads what has been appended to a segment that is being written: the bytes that were read. It stops at a record that is
    /// not whole yet.
    pub fn follow(&mut self, bytes: &[u8], on_line: impl FnMut(&[u8])) -> usize {
        self.follow_effects(bytes, on_line, |_| ())
    }

    /// [`follow`](Self::follow), with the effect of each record.
    pub(super) fn follow_effects(
        &mut self,
        bytes: &[u8],
        mut on_line: impl FnMut(&[u8]),
        mut on_effect: impl FnMut(Effect),
    ) -> usize {
        let mut at = 0;
        while let Found::Record(record, length) = decode(&bytes[at..]) {
            on_effect(self.apply(&record, &mut on_line));
            at += length;
        }
        at
    }

    /// Adds one record. The first reservation and the first settlement of an id count, in this order.
    fn apply(&mut self, record: &Record<'_>, on_line: &mut impl FnMut(&[u8])) -> Effect {
        match *record {
            Record::Reserve { id, charge, line } => {
                if self.settled.contains(&id) || self.open.contains_key(&id) {
                    return Effect::Nothing;
                }
                self.latest_day = self.latest_day.max(charge.day);
                self.open.insert(id, OpenReservation { charge, line: line.into() });
                Effect::Reserved(charge)
            }
            Record::Settle { id, charge, line } | Record::Charge { id, charge, line } => {
                if !self.settled.insert(id) {
                    self.damage.duplicates += 1;
                    return Effect::Nothing;
                }
                let reserved = self.open.remove(&id);
                self.damage.orphans += u64::from(reserved.is_none() && matches!(record, Record::Settle { .. }));
                self.charge(&charge);
                on_line(line);
                Effect::Settled { reserved: reserved.map(|open| open.charge), charge }
            }
            Record::LeaseEnd => Effect::LeaseEnded,
            Record::Rates { id, requests, tokens } => Effect::Rates(Rates { id, requests, tokens }),
            // Heads of files. Records of snapshots have no meaning in a segment.
            Record::Segment { .. }
            | Record::Snapshot { .. }
            | Record::Account { .. }
            | Record::Departing { .. }
            | Record::End { .. } => Effect::Nothing,
        }
    }

    fn charge(&mut self, charge: &Charge) {
        self.latest_day = self.latest_day.max(charge.day);
        for account in charge.accounts() {
            self.totals.entry(account).or_default().add(charge.day, charge.amount);
        }
    }

    /// Charges every open reservation in full, as after a crash: their usage records.
    pub fn charge_open(&mut self) -> Vec<Box<[u8]>> {
        let open = std::mem::take(&mut self.open);
        self.settled.extend(open.keys());
        let mut lines = Vec::with_capacity(open.len());
        for OpenReservation { charge, line } in open.into_values() {
            self.charge(&charge);
            lines.push(crash_line(&line, charge.day, charge.amount));
        }
        lines
    }

    /// Adds what another process has charged. Its open reservations are left out.
    pub(super) fn absorb(&mut self, other: &Self) {
        for (id, totals) in &other.totals {
            self.totals.entry(*id).or_default().merge(totals);
        }
        self.latest_day = self.latest_day.max(other.latest_day);
        self.damage.damaged_bytes += other.damage.damaged_bytes;
        self.damage.torn_bytes += other.damage.torn_bytes;
        self.damage.orphans += other.damage.orphans;
        self.damage.duplicates += other.damage.duplicates;
    }

    /// Adds a sum of this process itself, with what is open.
    pub(super) fn adopt(&mut self, mut own: Self) {
        self.open.append(&mut own.open);
        self.settled.extend(std::mem::take(&mut own.settled));
        self.absorb(&own);
    }

    /// The generations of files that are no part of this sum, and whether they will be: see [`Record::Departing`].
    pub(super) fn departing(&mut self) -> &mut BTreeMap<u64, bool> {
        &mut self.departing
    }

    /// Moves windows that lie after `today` to it, with all that they hold. For an operator whose clock was ahead.
    pub fn trust_clock(&mut self, today: Day) {
        for totals in self.totals.values_mut() {
            totals.day = totals.day.min(today);
            totals.month = totals.month.min(today.month());
        }
        for open in self.open.values_mut() {
            open.charge.day = open.charge.day.min(today);
        }
        self.latest_day = self.latest_day.min(today);
    }

    /// Forgets which reservations were settled: their segments are gone.
    pub fn forget_settled(&mut self) {
        self.settled = HashSet::new();
    }

    /// Every account.
    pub fn totals(&self) -> impl Iterator<Item = (AccountId, Totals)> {
        self.totals.iter().map(|(id, totals)| (*id, *totals))
    }

    /// The totals of an account.
    pub fn used(&self, account: AccountId) -> Totals {
        self.totals.get(&account).copied().unwrap_or_default()
    }

    /// Open reservations by id.
    pub fn open(&self) -> &BTreeMap<u64, OpenReservation> {
        &self.open
    }

    /// The latest day of any record.
    pub fn latest_day(&self) -> Day {
        self.latest_day
    }

    /// Contents that should not have been there.
    pub fn damage(&self) -> Damage {
        self.damage
    }

    /// Settled and open amounts of all accounts in their months; for tests of conservation.
    pub fn sum(&self) -> Amount {
        let settled = self.totals.values().map(|totals| totals.in_month).fold(Amount::ZERO, Amount::plus);
        let open = self.open.values().map(|open| {
            let accounts = open.charge.accounts().count();
            (0..accounts).fold(Amount::ZERO, |sum, _| sum.plus(open.charge.amount))
        });
        open.fold(settled, Amount::plus)
    }
}

#[cfg(test)]
mod tests;
