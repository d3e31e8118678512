//! The legacy of earlier processes: the sum of all files of a directory.

use std::io;

use super::{
    JournalError, JournalSettings,
    books::Books,
    departing::Departing,
    files::{Files, Kind, Listing},
};
use crate::{
    budget::{Day, Ledger, Share},
    usage::UsageFile,
};

/// Usage records.
type Lines = Vec<Box<[u8]>>;

/// The sum of a directory.
#[derive(Default)]
pub(super) struct Found {
    pub books: Books,
    /// Usage records of requests that have ended.
    pub lines: Lines,
    /// The newest generation of any file.
    pub newest: u64,
    /// Processes that have handed over, and are no part of the books.
    pub departing: Vec<Departing>,
    /// Reservations that were charged in full.
    pub crashed: usize,
    /// Usage records that the usage log lacked.
    pub restored_lines: usize,
}

impl Found {
    /// Adds everything in the directory up. Nothing is charged that is open.
    pub(super) fn read(files: &Files) -> Result<Self, JournalError> {
        let listing = files.list()?;
        let newest = |list: &[(u64, u16)]| list.last().map(|(generation, _)| *generation);
        let segments = newest(&listing.segments).max(newest(&listing.departing));
        let Some(newest) = listing.snapshots.last().copied().max(segments) else { return Ok(Self::default()) };
        // An older snapshot is no substitute: its segments may be gone.
        let no_snapshot = || JournalError::NoSnapshot(files.directory().to_owned());
        let begin = *listing.snapshots.last().ok_or_else(no_snapshot)?;
        let (books, found) = Books::from_snapshot(&files.read_snapshot(begin)?).map_err(|_| no_snapshot())?;
        if found != begin {
            return Err(no_snapshot());
        }
        let mut all = Self { books, newest, ..Self::default() };
        // Segments below may settle what is open in these.
        all.read_departing(files, &listing)?;
        // A process that died on its way to hand over, or went on, had written no snapshot of that generation.
        let departing = listing.departing.iter().filter(|(generation, _)| *generation > begin);
        let owned = listing.segments.iter().filter(|(generation, _)| *generation >= begin);
        let departing = departing.map(|(generation, worker)| (*generation, *worker, Kind::Departing));
        let mut segments: Vec<_> = owned.map(|of| (of.0, of.1, Kind::Owned)).chain(departing).collect();
        segments.sort_by_key(|(generation, ..)| *generation);
        for (generation, worker, kind) in segments {
            all.read_segment(files, kind, generation, worker)?;
        }
        Ok(all)
    }

    fn read_segment(&mut self, files: &Files, kind: Kind, generation: u64, worker: u16) -> io::Result<()> {
        let bytes = files.read_segment(kind, generation, worker)?;
        let lines = &mut self.lines;
        self.books.read_segment(&bytes, |line| keep(lines, line));
        Ok(())
    }

    /// Those that the snapshot names. The books have the files of any other that is still there.
    fn read_departing(&mut self, files: &Files, listing: &Listing) -> io::Result<()> {
        for (generation, is_reclaimed) in self.books.departing().clone() {
            let workers = listing.departing.iter().filter(|(of, _)| *of == generation).map(|(_, worker)| *worker);
            let mut departing = Departing::open(files, generation, workers)?;
            let lines = &mut self.lines;
            // Twice: the second look ends a lease.
            for _ in 0..2 {
                departing.read(|line| keep(lines, line), |_| (), || true)?;
            }
            if !is_reclaimed {
                self.departing.push(departing);
                continue;
            }
            // The process that had the journal again has died, too. Its segments go on with what is open.
            departing.read_rest(|line| keep(&mut self.lines, line))?;
            let (books, _) = departing.into_parts();
            self.books.adopt(books);
            self.books.departing().remove(&generation);
        }
        Ok(())
    }

    /// Charges what processes have left open that have ended.
    pub(super) fn charge_open(&mut self) -> io::Result<()> {
        let mut crashed = self.books.charge_open();
        self.crashed += crashed.len();
        let mut living = Vec::new();
        for mut departing in std::mem::take(&mut self.departing) {
            if !departing.is_ended() {
                living.push(departing);
                continue;
            }
            self.crashed += departing.end(|line| crashed.push(line.into()))?;
            self.books.absorb(departing.books());
            self.books.departing().remove(&departing.generation());
        }
        self.departing = living;
        self.lines.extend(crashed.into_iter().filter(|line| !line.is_empty()));
        Ok(())
    }

    /// Opens the usage log, and appends the usage records that it lacks.
    pub(super) fn open_usage(&mut self, settings: &JournalSettings) -> io::Result<Option<UsageFile>> {
        let mut usage = settings.usage.clone().map(UsageFile::open).transpose()?;
        let lines = std::mem::take(&mut self.lines);
        if let Some(usage) = &mut usage {
            self.restored_lines = usage.restore(lines)?;
        }
        Ok(usage)
    }

    /// All accounts, with what living processes have open.
    pub(super) fn ledger(&mut self) -> Ledger {
        let ledger = Ledger::new(self.books.totals(), self.books.latest_day());
        self.departing.iter().for_each(|departing| departing.enter(&ledger));
        if self.departing.iter().any(Departing::has_lease) {
            ledger.set_share(Share::Lending);
        }
        ledger
    }

    /// The latest day of any of the books.
    pub(super) fn latest_day(&self) -> Day {
        let days = self.departing.iter().map(|departing| departing.books().latest_day());
        days.fold(self.books.latest_day(), Day::max)
    }
}

fn keep(lines: &mut Lines, line: &[u8]) {
    if !line.is_empty() {
        lines.push(line.into());
    }
}
