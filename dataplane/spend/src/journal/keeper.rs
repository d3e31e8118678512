//! The thread behind a journal: it synchronises, moves usage records to the usage log, and makes snapshots.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use super::{
    JournalError, JournalSettings,
    books::Books,
    departing::Departing,
    files::{Files, Kind},
    handover::{Departure, HandoverError},
    record::{Record, VERSION},
    writer::{JournalWriter, Segment, Shared},
};
use crate::{budget::Ledger, usage::UsageFile};

/// Bytes of a segment that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Usage records in memory that the usage log does not take. Past it the segments keep them: 4 MiB.
pub(super) const LINES_BYTES_MAX: usize = 4 << 20;

/// How often usage records go to the usage log.
const EXPORT_INTERVAL: Duration = Duration::from_millis(100);

/// The pause between looks at a journal without traffic.
const IDLE_INTERVAL: Duration = Duration::from_millis(100);

/// The pause after a snapshot that failed.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// An order to the thread.
pub(super) enum Order {
    /// Synchronise and export everything, then respond.
    Flush(Sender<()>),
    /// Make a snapshot, then report whether it succeeded.
    Compact(Sender<bool>),
    /// The writer of a worker.
    Writer(u16, Sender<io::Result<Arc<JournalWriter>>>),
    /// Hand the journal over, then respond.
    Cede(Sender<Result<(), HandoverError>>),
    /// Take it back, then respond.
    Reclaim(Sender<Result<(), JournalError>>),
    /// The process that it was handed over to serves: the lease of this one ends after that time.
    EndLease(Duration),
}

/// Segments that are read as they grow.
pub(super) struct Followed {
    pub segment: Arc<Segment>,
    pub read: u64,
    /// No further record comes: the bytes of its whole records.
    pub end: Option<u64>,
}

impl Followed {
    /// Every record of it is in the books.
    fn is_read(&self) -> bool {
        self.end.is_some_and(|end| self.read >= end)
    }
}

/// The state of the thread.
pub(super) struct Keeper {
    pub files: Files,
    pub shared: Arc<Shared>,
    pub writers: Vec<Worker>,
    pub settings: JournalSettings,
    pub books: Books,
    pub usage: Option<UsageFile>,
    /// The accounts of the process, for what other processes charge.
    pub ledger: Ledger,
    /// The lock of the directory. `None`: another process may have the journal.
    pub lock: Option<File>,
    /// Processes that have handed the journal over, and have not ended.
    pub departing: Vec<Departing>,
    /// This process has handed the journal over.
    pub departure: Option<Departure>,
    /// The generation of the segments that are written now.
    pub generation: u64,
    pub state: State,
}

/// A writer and the segment that it writes.
pub(super) struct Worker {
    pub writer: Arc<JournalWriter>,
    pub segment: Arc<Segment>,
}

/// Work that it has begun.
#[derive(Default)]
pub(super) struct State {
    pub followed: Vec<Followed>,
    pub lines: Vec<u8>,
    buffer: Vec<u8>,
    exported: Option<Instant>,
    retry: Option<Instant>,
    /// New segments have begun, and the snapshot of those before them is not written yet.
    pub is_due: bool,
    /// Files of departing processes are to be taken over into a snapshot.
    pub wants_snapshot: bool,
    /// The generation of the newest segment that could not be synchronised. A snapshot of a later one replaces it.
    unsynchronised: Option<u64>,
}

impl Keeper {
    /// Runs until the journal is dropped. Afterwards the contents of all segments are in the usage log and in a snapshot, unless
    /// another process has the journal.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        let mut is_busy = true;
        loop {
            let interval =
                if is_busy { self.settings.sync_interval } else { IDLE_INTERVAL.max(self.settings.sync_interval) };
            match orders.recv_timeout(interval) {
                Ok(Order::Flush(done)) => {
                    self.flush();
                    let _ = done.send(());
                }
                Ok(Order::Compact(done)) => {
                    let _ = done.send(self.compact());
                }
                Ok(Order::Writer(worker, made)) => {
                    let _ = made.send(self.writer(worker));
                }
                Ok(Order::Cede(done)) => {
                    let _ = done.send(self.cede());
                }
                Ok(Order::Reclaim(done)) => {
                    let _ = done.send(self.want_back());
                }
                Ok(Order::EndLease(after)) => self.end_lease(after),
                Err(RecvTimeoutError::Timeout) => is_busy = self.turn(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.flush();
        self.compact();
    }

    /// One look. Whether there was anything to do.
    pub(super) fn turn(&mut self) -> bool {
        let is_busy = self.sync();
        if self.state.exported.is_none_or(|at| at.elapsed() >= EXPORT_INTERVAL) {
            self.state.exported = Some(Instant::now());
            // A worker without requests would not try again by itself after a failure.
            self.writers.iter().for_each(|worker| worker.writer.flush());
            if self.departure.is_some() {
                self.depart();
                return is_busy;
            }
            self.export();
            let is_due = self.state.is_due
                || self.state.wants_snapshot
                || self.shared.live_bytes.load(Ordering::Relaxed) >= self.settings.snapshot_bytes
                || self.shared.is_unsynchronised.load(Ordering::Relaxed);
            if is_due && self.state.retry.is_none_or(|at| at.elapsed() >= RETRY_INTERVAL) {
                let has_failed = !self.compact();
                self.state.retry = has_failed.then(Instant::now);
            }
        }
        is_busy
    }

    pub(super) fn flush(&mut self) {
        self.writers.iter().for_each(|worker| worker.writer.flush());
        self.sync();
        if self.departure.is_some() {
            return;
        }
        self.export();
        if let Some(usage) = &mut self.usage {
            let _ = usage.sync();
        }
    }

    /// The writer of a worker: one for each number, so that each file has one writer.
    pub(super) fn writer(&mut self, worker: u16) -> io::Result<Arc<JournalWriter>> {
        if let Some(found) = self.writers.iter().find(|found| found.writer.worker() == worker) {
            return Ok(Arc::clone(&found.writer));
        }
        if self.departure.is_some() {
            return Err(io::Error::other(HandoverError::Ceded));
        }
        let (segment, length) = create(&self.files, Kind::Owned, self.generation, worker)?;
        let writer = JournalWriter::new(worker, Arc::clone(&self.shared), Arc::clone(&segment), length);
        let writer = Arc::new(writer);
        self.writers.push(Worker { writer: Arc::clone(&writer), segment });
        Ok(writer)
    }

    /// Makes what was written survive a loss of power. The flag falls first: a record that comes meanwhile raises it again.
    fn sync(&mut self) -> bool {
        let mut is_busy = false;
        let current = self.writers.iter().map(|worker| Arc::clone(&worker.segment));
        for segment in self.state.followed.iter().map(|followed| Arc::clone(&followed.segment)).chain(current) {
            if segment.is_dirty.swap(false, Ordering::Acquire) {
                is_busy = true;
                if let Err(error) = segment.file.sync_data() {
                    self.shared.is_unsynchronised.store(true, Ordering::Relaxed);
                    self.state.unsynchronised = self.state.unsynchronised.max(Some(segment.generation));
                    tracing::error!(%error, "the spend journal cannot be synchronised");
                }
            }
        }
        is_busy
    }

    /// Takes new segments of workers into the list; not while a snapshot of the older ones is due.
    pub(super) fn adopt(&mut self) {
        for Worker { segment, .. } in self.writers.iter().filter(|_| !self.state.is_due) {
            if !self.state.followed.iter().any(|followed| Arc::ptr_eq(&followed.segment, segment)) {
                self.state.followed.push(Followed { segment: Arc::clone(segment), read: 0, end: None });
            }
        }
    }

    /// Reads what the segments have grown by, and hands its usage records to the usage log.
    fn export(&mut self) {
        self.adopt();
        for index in 0..self.state.followed.len() {
            self.follow_to_end(index);
        }
        self.follow_departing();
    }

    /// Reads all whole records of a segment, unless the usage log takes no line.
    fn follow_to_end(&mut self, index: usize) {
        while self.state.lines.len() < LINES_BYTES_MAX && self.follow(index) {
            if self.state.lines.len() >= LINES_BYTES_MAX {
                self.write_lines();
            }
        }
        self.write_lines();
    }

    /// Reads a piece of a segment. False: there is no further whole record.
    fn follow(&mut self, index: usize) -> bool {
        let State { followed, lines, buffer, .. } = &mut self.state;
        let Followed { segment, read, end } = &mut followed[index];
        buffer.resize(READ_BYTES, 0);
        let count = match segment.file.read_at(buffer, *read) {
            Ok(count) => count,
            Err(error) => {
                tracing::error!(%error, "the spend journal cannot be read");
                return false;
            }
        };
        let left = end.map_or(usize::MAX, |end| usize::try_from(end.saturating_sub(*read)).unwrap_or(usize::MAX));
        let piece = &buffer[..count.min(left)];
        let keeps = self.usage.is_some();
        let whole = self.books.follow(piece, |line| {
            if keeps {
                lines.extend_from_slice(line);
            }
        });
        *read += whole as u64;
        whole > 0
    }

    pub(super) fn write_lines(&mut self) {
        let Some(usage) = &mut self.usage else { return };
        if self.state.lines.is_empty() {
            return usage.look();
        }
        let written = usage.write(&self.state.lines);
        self.shared.is_usage_failing.store(written.is_err(), Ordering::Relaxed);
        match written {
            Ok(()) => self.state.lines.clear(),
            Err((written, error)) => {
                self.state.lines.drain(..written);
                tracing::error!(%error, "the usage log cannot be written; its records stay in the journal");
            }
        }
    }

    /// Begins a new generation of segments and writes a snapshot of all before it. False: nothing is lost, and the old files stay.
    ///
    /// The new segments are not read before the snapshot is written: a recovery adds them to it. A snapshot that failed is tried
    /// again without newer segments.
    pub(super) fn compact(&mut self) -> bool {
        if self.departure.is_some() {
            return false;
        }
        self.adopt();
        if !self.state.is_due {
            if let Err(error) = self.begin_generation(Kind::Owned) {
                tracing::error!(%error, "the spend journal cannot begin new files");
                return false;
            }
            self.state.is_due = true;
        }
        if !self.read_ended() {
            return false;
        }
        if let Some(usage) = &mut self.usage
            && let Err(error) = usage.sync()
        {
            tracing::error!(%error, "the usage log cannot be synchronised; its records stay in the journal");
            return false;
        }
        let generation = self.generation;
        if let Err(error) = self.files.write_snapshot(generation, &self.books.to_snapshot(generation)) {
            tracing::error!(%error, "the spend journal cannot write a snapshot; its segments stay");
            return false;
        }
        let gone = self.state.followed.drain(..).filter_map(|followed| followed.end).sum::<u64>();
        let rest = |live: u64| Some(live.saturating_sub(gone));
        let _ = self.shared.live_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        self.books.forget_settled();
        let kept = self.books.departing();
        self.files.remove_before(generation, |of| kept.contains_key(&of));
        (self.state.is_due, self.state.wants_snapshot) = (false, false);
        if self.state.unsynchronised.is_some_and(|failed| failed < generation) {
            self.state.unsynchronised = None;
            self.shared.is_unsynchronised.store(false, Ordering::Relaxed);
        }
        true
    }

    /// Reads segments that get no further record to their end. False: the usage log has not all of their records.
    pub(super) fn read_ended(&mut self) -> bool {
        for index in 0..self.state.followed.len() {
            self.follow_to_end(index);
            self.read_damaged(index);
        }
        self.state.lines.is_empty() && self.state.followed.iter().all(Followed::is_read)
    }

    /// Reads on behind damage in a segment that gets no further record.
    fn read_damaged(&mut self, index: usize) {
        let State { followed, lines, .. } = &mut self.state;
        let followed = &mut followed[index];
        if !lines.is_empty() || followed.is_read() {
            return;
        }
        let end = followed.end.unwrap_or(followed.read);
        let mut rest = vec![0; usize::try_from(end - followed.read).unwrap_or(0)];
        if followed.segment.file.read_exact_at(&mut rest, followed.read).is_ok() {
            tracing::error!(generation = followed.segment.generation, "a segment of the spend journal is damaged");
            let keeps = self.usage.is_some();
            self.books.read_segment(&rest, |line| {
                if keeps {
                    lines.extend_from_slice(line);
                }
            });
            followed.read = end;
        }
        self.write_lines();
    }

    pub(super) fn begin_generation(&mut self, kind: Kind) -> io::Result<()> {
        let generation = self.generation + 1;
        let mut fresh = Vec::with_capacity(self.writers.len());
        for Worker { writer, .. } in &self.writers {
            fresh.push(create(&self.files, kind, generation, writer.worker())?);
        }
        self.generation = generation;
        for (worker, (segment, length)) in self.writers.iter_mut().zip(fresh) {
            let end = worker.writer.replace(Arc::clone(&segment), length);
            let old = std::mem::replace(&mut worker.segment, segment);
            let followed = self.state.followed.iter_mut().filter(|followed| Arc::ptr_eq(&followed.segment, &old));
            followed.for_each(|followed| followed.end = Some(end));
        }
        Ok(())
    }
}

/// A segment with its first record.
pub(super) fn create(files: &Files, kind: Kind, generation: u64, worker: u16) -> io::Result<(Arc<Segment>, u64)> {
    let mut head = Vec::new();
    Record::Segment { version: VERSION, generation }.encode(&mut head);
    let file = files.create_segment(kind, generation, worker, &head)?;
    let segment = Segment { file, generation, is_dirty: false.into() };
    Ok((Arc::new(segment), head.len() as u64))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;
    use crate::{
        amount::Amount,
        budget::Day,
        journal::{Trouble, Unwritable, record::Charge},
    };

    #[test]
    fn after_a_failed_synchronisation_a_snapshot_in_new_files_opens_the_journal_again() {
        let folder = tempfile::tempdir().unwrap();
        let shared = Arc::new(Shared { live_bytes_max: u64::MAX.into(), ..Shared::default() });
        // It takes writes and cannot be synchronised.
        let file = OpenOptions::new().read(true).append(true).open("/dev/null").unwrap();
        let segment = Arc::new(Segment { file, generation: 1, is_dirty: true.into() });
        let writer = Arc::new(JournalWriter::new(0, Arc::clone(&shared), Arc::clone(&segment), 0));
        let mut keeper = Keeper {
            files: Files::new(folder.path()),
            shared: Arc::clone(&shared),
            writers: vec![Worker { writer: Arc::clone(&writer), segment }],
            settings: JournalSettings::new(folder.path()),
            books: Books::default(),
            usage: None,
            ledger: Ledger::default(),
            lock: None,
            departing: Vec::new(),
            departure: None,
            generation: 1,
            state: State::default(),
        };
        let charge = Charge::new(Day::new(1), Amount::ZERO, []);
        assert!(writer.reserve(charge, b"").is_ok() && keeper.sync());
        assert_eq!(writer.reserve(charge, b""), Err(Unwritable));
        assert_eq!(shared.trouble(), Some(Trouble::Unsynchronised));
        // The device has kept nothing, so the segment has no record to be read again.
        writer.replace(Arc::clone(&keeper.writers[0].segment), 0);
        assert!(keeper.compact());
        assert!(writer.reserve(charge, b"").is_ok() && shared.trouble().is_none());
    }
}
