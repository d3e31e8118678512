//! The files of a process that has handed the journal over and still has requests.
//!
//! It appends to them until its last request has ended; the process that has the journal now reads them as they grow. A lock tells
//! whether it lives, which the kernel takes away with the process: what is open then is charged in full.

use std::{
    collections::BTreeMap,
    fs::{File, TryLockError},
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
};

use weir_base::Time;

use super::{
    books::{Books, Effect, Rates},
    files::{Files, Kind},
    record::Charge,
};
use crate::budget::{Ledger, Totals};

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 256 << 10;

/// The right of a departing process to grant a part of the budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lease {
    Held,
    /// Its end was read. A grant before it may stand in a file that was read already, so the next look ends it.
    Ending,
    Over,
}

/// A departing process.
#[derive(Debug)]
pub(super) struct Departing {
    generation: u64,
    /// Locked by that process.
    opening: File,
    segments: Vec<Segment>,
    books: Books,
    /// When it handed over.
    rates: Vec<Rates>,
    lease: Lease,
}

#[derive(Debug)]
struct Segment {
    worker: u16,
    file: File,
    read: u64,
}

impl Departing {
    /// Opens the files of `generation`, and reads what was open when that process handed over.
    pub(super) fn open(files: &Files, generation: u64, workers: impl Iterator<Item = u16>) -> io::Result<Self> {
        let mut opening = files.open_opening(generation)?;
        let mut bytes = Vec::new();
        opening.read_to_end(&mut bytes)?;
        let (mut books, mut rates) = (Books::default(), Vec::new());
        let on_effect = |effect| {
            if let Effect::Rates(of) = effect {
                rates.push(of);
            }
        };
        books.follow_effects(&bytes, |_| (), on_effect);
        let open = |worker| {
            let file = files.open_segment(Kind::Departing, generation, worker)?;
            Ok(Segment { worker, file, read: 0 })
        };
        let segments = workers.map(open).collect::<io::Result<_>>()?;
        Ok(Self { generation, opening, segments, books, rates, lease: Lease::Held })
    }

    /// Generation of its files.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The process has ended, so no further record comes. To be called before [`Self::read`], which is the last one then.
    pub(super) fn is_ended(&self) -> bool {
        match self.opening.try_lock() {
            Ok(()) => {
                let _ = self.opening.unlock();
                true
            }
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => {
                tracing::error!(%error, "it is not known whether a process that has handed over lives");
                false
            }
        }
    }

    /// It may grant a part of the budgets.
    pub(super) fn has_lease(&self) -> bool {
        self.lease != Lease::Over
    }

    /// Reads on. `on_line` gets usage records, and says whether it takes more. False: there are further whole records.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read(
        &mut self,
        mut on_line: impl FnMut(&[u8]),
        mut on_effect: impl FnMut(Effect),
        mut has_room: impl FnMut() -> bool,
    ) -> io::Result<bool> {
        let is_ending = self.lease == Lease::Ending;
        let mut buffer = vec![0; READ_BYTES];
        for segment in &mut self.segments {
            loop {
                if !has_room() {
                    return Ok(false);
                }
                let count = segment.file.read_at(&mut buffer, segment.read)?;
                let lease = &mut self.lease;
                let whole = self.books.follow_effects(&buffer[..count], &mut on_line, |effect| {
                    if effect == Effect::LeaseEnded && *lease == Lease::Held {
                        *lease = Lease::Ending;
                    }
                    on_effect(effect);
                });
                segment.read += whole as u64;
                if whole == 0 {
                    break;
                }
            }
        }
        if is_ending {
            self.lease = Lease::Over;
        }
        Ok(true)
    }

    /// Reads on behind damage. The process has ended.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read_rest(&mut self, mut on_line: impl FnMut(&[u8])) -> io::Result<()> {
        for segment in &mut self.segments {
            let length = segment.file.metadata()?.len();
            let mut rest = vec![0; usize::try_from(length.saturating_sub(segment.read)).unwrap_or(0)];
            segment.file.read_exact_at(&mut rest, segment.read)?;
            self.books.read_segment(&rest, &mut on_line);
            segment.read = length;
        }
        Ok(())
    }

    /// The end of a process that has ended: reads the rest, and charges what is open. The number of reservations that were open.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn end(&mut self, mut on_line: impl FnMut(&[u8])) -> io::Result<usize> {
        self.read_rest(&mut on_line)?;
        self.lease = Lease::Over;
        let open = self.books.charge_open();
        open.iter().for_each(|line| on_line(line));
        Ok(open.len())
    }

    /// The sum of its charges and open reservations.
    pub(super) fn books(&self) -> &Books {
        &self.books
    }

    /// Its books, and for each worker the bytes of its segment that are in them.
    pub(super) fn into_parts(self) -> (Books, BTreeMap<u16, u64>) {
        let read = self.segments.iter().map(|segment| (segment.worker, segment.read)).collect();
        (self.books, read)
    }

    /// Counts in `ledger` what it has charged and what is open; and its rates, if it has handed over just now.
    pub(super) fn enter(&self, ledger: &Ledger) {
        let now = Time::now();
        for rates in self.rates.iter().filter(|_| self.has_lease()) {
            let account = ledger.account(rates.id);
            account.requests.take_over(rates.requests, now);
            account.tokens.take_over(rates.tokens, now);
        }
        for (id, totals) in self.books.totals() {
            ledger.charge_elsewhere(id, &totals);
        }
        self.reserve(ledger);
    }

    /// Counts in `ledger` the reservations that are open.
    pub(super) fn reserve(&self, ledger: &Ledger) {
        for open in self.books.open().values() {
            reserve(ledger, &open.charge);
        }
    }

    /// Takes the reservations that are open out of `ledger`.
    pub(super) fn release(&self, ledger: &Ledger) {
        for open in self.books.open().values() {
            ledger.release_elsewhere(open.charge.accounts(), open.charge.day, open.charge.amount);
        }
    }
}

/// Counts an effect of another process in the ledger of this one.
pub(super) fn apply(ledger: &Ledger, effect: Effect) {
    match effect {
        Effect::Reserved(charge) => reserve(ledger, &charge),
        Effect::Settled { reserved, charge } => {
            if let Some(reserved) = reserved {
                ledger.release_elsewhere(reserved.accounts(), reserved.day, reserved.amount);
            }
            self::charge(ledger, &charge);
        }
        Effect::Nothing | Effect::LeaseEnded | Effect::Rates(_) => {}
    }
}

fn reserve(ledger: &Ledger, charge: &Charge) {
    ledger.reserve_elsewhere(charge.accounts(), charge.day, charge.amount);
}

fn charge(ledger: &Ledger, charge: &Charge) {
    let mut totals = Totals::default();
    totals.add(charge.day, charge.amount);
    charge.accounts().for_each(|account| ledger.charge_elsewhere(account, &totals));
}
