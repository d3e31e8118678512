//! The journal goes from one process to another, at an upgrade.
//!
//! | step | the old process | on the disk | a kill of it leaves |
//! |---|---|---|---|
//! | 1 | keeps a lease on what is left of the budgets (`budget::stance`) | | its segments, as ever |
//! | 2 | begins departing segments, which its workers write from now on | `g-w.departing` | the same: without a snapshot `g` they are its latest segments |
//! | 3 | reads its older segments to their end; the usage log has all their records | | the same |
//! | 4 | writes the reservations that are open, and locks that file for as long as it lives | `g.opening` | the same: the older segments have them, too |
//! | 5 | writes a snapshot without them, which names its files | `g.snapshot` | a departing process that has ended: what is open is charged in full |
//! | 6 | gives up the lock of the directory | | the same |
//! | 7 | | the new process takes the lock, and writes a snapshot, which names these files too | the same |
//! | 8 | ends its lease | `LeaseEnd` in a segment | the same |
//! | 9 | ends | the new process adds its files up, and names them in no further snapshot | |
//!
//! The new process reads the departing segments as they grow. It counts their reservations and settlements in its own ledger, and hands
//! their usage records to the usage log. So a settlement is one `write`, as ever, and it survives the death of either process.
//!
//! **The new process dies.** Before it serves, the old one takes the journal back (`Keeper::reclaim`). Afterwards any later process finds
//! the snapshot that names the departing files, and goes on in the same way, whether the old process lives or not.
//!
//! **Once.** A snapshot either names departing files or has their sum, and it replaces the one before as a whole.

use std::{
    fs::File,
    sync::Arc,
    time::{Duration, Instant},
};

use weir_base::Time;

use super::{
    JournalError,
    books::Books,
    departing::{Departing, apply},
    files::Kind,
    keeper::{Followed, Keeper, LINES_BYTES_MAX, RETRY_INTERVAL},
    record::Record,
    recovery::Found,
};
use crate::budget::Share;

/// How long the old process may grant its part of the budgets to its last connections, from the moment on at which the new one
/// serves. Default 1 s: an idle connection is closed within 20 ms, and a busy one behind its response. At the most one request
/// that was on its way comes with each.
pub const LEASE_TIME: Duration = Duration::from_secs(1);

/// The journal belongs to another process now, or is about to.
#[derive(Debug)]
pub(super) struct Departure {
    /// Generation of the files of this process.
    generation: u64,
    /// Its lock says that this process lives.
    _opening: File,
    /// When the lease ends. `None`: the other process does not serve yet.
    lease_end: Option<Instant>,
    /// The accounts say that it has ended; a segment does not say so yet.
    is_lease_over: bool,
    /// The journal shall come back; the last attempt was then.
    reclaim: Option<Instant>,
}

/// Why a journal is not handed over. It stays with this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverError {
    /// The disk refuses files, or the usage log does.
    Unwritable,
    /// A process before this one may still grant a part of the budgets: for [`LEASE_TIME`].
    Lent,
    /// It belongs to another process.
    Ceded,
}

impl std::fmt::Display for HandoverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unwritable => "the spend journal cannot be handed over: the disk refuses it or the usage log",
            Self::Lent => {
                "the spend journal cannot be handed over yet: a process before this one still admits requests; \
                           try again in a second"
            }
            Self::Ceded => "the spend journal belongs to another process",
        })
    }
}

impl std::error::Error for HandoverError {}

impl Keeper {
    /// Hands the journal over: another process may open it from now on. The writers of this one go on.
    pub(super) fn cede(&mut self) -> Result<(), HandoverError> {
        if self.departure.is_some() {
            return Err(HandoverError::Ceded);
        }
        self.follow_departing();
        if self.departing.iter().any(Departing::has_lease) {
            return Err(HandoverError::Lent);
        }
        // The rest is short then.
        if !self.compact() {
            return Err(HandoverError::Unwritable);
        }
        self.ledger.set_share(Share::Leased);
        match self.write_departure() {
            Ok(departure) => {
                self.departure = Some(departure);
                (self.usage, self.lock) = (None, None);
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "the spend journal is not handed over");
                // Without their snapshot the departing segments are those of any process, and go on as such.
                self.ledger.set_share(Share::Sole);
                Err(HandoverError::Unwritable)
            }
        }
    }

    /// Steps 2 to 5.
    fn write_departure(&mut self) -> std::io::Result<Departure> {
        // Workers have written to the segments since the snapshot.
        self.adopt();
        self.begin_generation(Kind::Departing)?;
        let generation = self.generation;
        let is_read = self.read_ended();
        // From here on they are followed again if the hand-over fails.
        self.adopt();
        if !is_read {
            return Err(std::io::Error::other("its usage records cannot be written"));
        }
        if let Some(usage) = &mut self.usage {
            usage.sync()?;
        }
        let mut books = self.books.clone();
        let mut opening = books.take_open(generation);
        self.write_rates(&mut opening);
        let opening = self.files.write_opening(generation, &opening)?;
        books.departing().insert(generation, false);
        self.write_snapshot(generation, &books)?;
        books.forget_settled();
        self.books = books;
        let kept = self.books.departing().clone();
        self.files.remove_before(generation, |of| kept.contains_key(&of));
        self.state.followed.clear();
        self.shared.live_bytes.store(0, std::sync::atomic::Ordering::Relaxed);
        Ok(Departure { generation, _opening: opening, lease_end: None, is_lease_over: false, reclaim: None })
    }

    /// Rates are not durable: only the process that comes next goes on with them.
    fn write_rates(&self, into: &mut Vec<u8>) {
        let now = Time::now();
        for account in self.ledger.accounts() {
            let (requests, tokens) = (account.requests.debt(now), account.tokens.debt(now));
            if requests > 0 || tokens > 0 {
                Record::Rates { id: account.id(), requests, tokens }.encode(into);
            }
        }
    }

    /// Writes a snapshot that changes whose the journal is. If it has its name, it is there, although the disk has not confirmed that.
    fn write_snapshot(&self, generation: u64, books: &Books) -> std::io::Result<()> {
        let written = self.files.write_snapshot(generation, &books.to_snapshot(generation));
        match written {
            Err(error) if self.files.has_snapshot(generation) => {
                tracing::error!(%error, "a snapshot of the spend journal would not survive a loss of power");
                Ok(())
            }
            written => written,
        }
    }

    /// The other process serves: the lease of this one ends in a moment.
    pub(super) fn end_lease(&mut self, after: Duration) {
        if let Some(departure) = &mut self.departure {
            departure.lease_end = Some(Instant::now() + after);
        }
    }

    /// The other process will not serve. The attempt is repeated if it fails.
    pub(super) fn want_back(&mut self) -> Result<(), JournalError> {
        let reclaimed = self.reclaim();
        if let (Err(error), Some(departure)) = (&reclaimed, &mut self.departure) {
            tracing::error!(%error, "the spend journal does not come back yet");
            departure.reclaim = Some(Instant::now());
        }
        reclaimed
    }

    /// The turn of a process that has handed the journal over.
    pub(super) fn depart(&mut self) {
        let Some(departure) = &mut self.departure else { return };
        if departure.reclaim.is_some_and(|at| at.elapsed() >= RETRY_INTERVAL) {
            let _ = self.want_back();
            return;
        }
        if departure.lease_end.is_none_or(|end| Instant::now() < end) {
            return;
        }
        if !departure.is_lease_over {
            self.ledger.set_share(Share::Ceded);
            departure.is_lease_over = true;
        }
        // A disk that refuses is tried again.
        if self.writers.first().is_none_or(|worker| worker.writer.end_lease().is_ok()) {
            departure.lease_end = None;
        }
    }

    /// Takes the journal back. The process that had it meanwhile has ended.
    fn reclaim(&mut self) -> Result<(), JournalError> {
        let Some(own) = self.departure.as_ref().map(|departure| departure.generation) else { return Ok(()) };
        let lock = self.files.lock()?;
        let mut found = Found::read(&self.files)?;
        found.charge_open()?;
        let at = found.departing.iter().position(|departing| departing.generation() == own);
        let Some(at) = at else { return Err(JournalError::NoSnapshot(self.files.directory().to_owned())) };
        let (own_books, read) = found.departing.swap_remove(at).into_parts();
        let usage = found.open_usage(&self.settings)?;
        found.books.departing().insert(own, true);
        let generation = found.newest + 1;
        self.write_snapshot(generation, &found.books)?;
        // The other process has numbered its reservations as this one has.
        found.books.forget_settled();
        // From here on this process has the journal. Its departing segments are followed like any, up to the next snapshot.
        self.enter_changes(&found);
        (self.books, self.departing, self.generation) = (found.books, found.departing, generation);
        self.books.adopt(own_books);
        // The next snapshot has them.
        self.books.departing().remove(&own);
        for worker in &self.writers {
            let read = read.get(&worker.writer.worker()).copied().unwrap_or(0);
            self.state.followed.push(Followed { segment: Arc::clone(&worker.segment), read, end: None });
        }
        (self.usage, self.lock, self.departure) = (usage, Some(lock), None);
        (self.state.is_due, self.state.wants_snapshot) = (false, true);
        self.ledger.set_share(Share::Sole);
        Ok(())
    }

    /// Counts in the ledger what other processes have charged since this one handed over.
    fn enter_changes(&self, found: &Found) {
        let sum = |books: &Books, departing: &[Departing]| {
            let mut sum = books.clone();
            departing.iter().for_each(|departing| sum.absorb(departing.books()));
            sum
        };
        let (before, after) = (sum(&self.books, &self.departing), sum(&found.books, &found.departing));
        for (id, totals) in after.totals() {
            self.ledger.charge_elsewhere(id, &totals.since(&before.used(id)));
        }
        self.departing.iter().for_each(|departing| departing.release(&self.ledger));
        found.departing.iter().for_each(|departing| departing.reserve(&self.ledger));
    }

    /// Reads what departing processes have written, and adds up the files of those that have ended.
    pub(super) fn follow_departing(&mut self) {
        if self.departing.is_empty() {
            return;
        }
        let had_lease = self.departing.iter().any(Departing::has_lease);
        for index in (0..self.departing.len()).rev() {
            let is_ended = self.departing[index].is_ended();
            if let Err(error) = self.read_departing(index, is_ended) {
                tracing::error!(%error, "the spend journal of a process that has handed over cannot be read");
            }
        }
        if had_lease && !self.departing.iter().any(Departing::has_lease) {
            self.ledger.set_share(Share::Sole);
        }
    }

    fn read_departing(&mut self, index: usize, is_ended: bool) -> std::io::Result<()> {
        let keeps = self.usage.is_some();
        let lines = std::cell::RefCell::new(std::mem::take(&mut self.state.lines));
        let on_line = |line: &[u8]| {
            if keeps {
                lines.borrow_mut().extend_from_slice(line);
            }
        };
        let departing = &mut self.departing[index];
        let has_room = || lines.borrow().len() < LINES_BYTES_MAX;
        let read = departing.read(on_line, |effect| apply(&self.ledger, effect), has_room);
        let mut ended = Ok(false);
        if is_ended && matches!(read, Ok(true)) {
            let before = departing.books().clone();
            departing.release(&self.ledger);
            ended = departing.end(on_line).map(|_| true);
            // Nothing, unless that failed.
            departing.reserve(&self.ledger);
            for (id, totals) in departing.books().totals() {
                self.ledger.charge_elsewhere(id, &totals.since(&before.used(id)));
            }
        }
        self.state.lines = lines.into_inner();
        self.write_lines();
        read?;
        if ended? {
            let departing = self.departing.swap_remove(index);
            self.books.absorb(departing.books());
            self.books.departing().remove(&departing.generation());
            self.state.wants_snapshot = true;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
