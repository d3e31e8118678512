//! The journal as a worker has it: one file, and one system call for all records of a commit.

use std::{
    fs::File,
    io::{self, Write as _},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};

use super::record::{Charge, Found, Record, decode};

/// Bytes of settlements that wait for the disk, per worker. Default 1 MiB, some 2,000 requests. A commit that fails may add the records of
/// one loop turn.
pub const PENDING_BYTES_MAX: usize = 1 << 20;

/// State that all writers and the keeper share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Bytes in segments since the last snapshot.
    pub live_bytes: AtomicU64,
    /// The most of these.
    pub live_bytes_max: AtomicU64,
    /// Writes that failed.
    pub failed_writes: AtomicU64,
    /// Settlements that found no room in the pending bytes.
    pub lost_settlements: AtomicU64,
    /// The trouble of the last write, as the number of a [`Trouble`] from 1 on; 0: it succeeded.
    pub trouble: AtomicU8,
    /// A synchronisation failed. Nothing is written until a snapshot in new files has replaced everything: after such a failure
    /// the kernel may take pages for clean that never reached the disk.
    pub is_unsynchronised: AtomicBool,
    /// The usage log could not be written.
    pub is_usage_failing: AtomicBool,
}

/// Why the journal takes no record. Keys with a budget are refused meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The disk refuses writes: it is full, or broken.
    Unwritable,
    /// The segments have reached their bound, because no snapshot can be made.
    Full,
    /// The disk could not synchronise.
    Unsynchronised,
}

impl Trouble {
    const ALL: [Self; 3] = [Self::Unwritable, Self::Full, Self::Unsynchronised];

    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unwritable => "journal_unwritable",
            Self::Full => "journal_full",
            Self::Unsynchronised => "journal_unsynchronised",
        }
    }
}

impl Shared {
    /// The present trouble.
    pub fn trouble(&self) -> Option<Trouble> {
        let number = usize::from(self.trouble.load(Ordering::Relaxed));
        number.checked_sub(1).and_then(|index| Trouble::ALL.get(index)).copied()
    }

    /// Notes the result of a write. True: the trouble is new.
    fn note(&self, trouble: Option<Trouble>) -> bool {
        let number = trouble.map_or(0, |trouble| trouble as u8 + 1);
        let is_new = self.trouble.load(Ordering::Relaxed) != number;
        if is_new {
            self.trouble.store(number, Ordering::Relaxed);
        }
        is_new && trouble.is_some()
    }
}

/// A file of records that one worker appends to.
#[derive(Debug)]
pub(super) struct Segment {
    pub file: File,
    pub generation: u64,
    /// It has bytes that were not synchronised.
    pub is_dirty: AtomicBool,
}

/// The writer of one worker.
///
/// Its lock is the worker's own. The keeper takes it to put a new file into its place, for a few assignments; and while a disk
/// has refused settlements, for writes to the page cache. It never opens, synchronises or reads a file under it.
#[derive(Debug)]
pub struct JournalWriter {
    worker: u16,
    shared: Arc<Shared>,
    active: Mutex<Active>,
    deferral: OnceLock<Deferral>,
}

/// Records wait until their worker commits them.
#[derive(Debug)]
struct Deferral {
    writer: Weak<JournalWriter>,
    /// Has the worker call [`JournalWriter::commit`].
    schedule: fn(Arc<JournalWriter>),
}

#[derive(Debug)]
struct Active {
    segment: Arc<Segment>,
    /// Bytes of whole records.
    length: u64,
    /// The file may have a part of a record behind them.
    is_torn: bool,
    next_id: u64,
    buffer: Vec<u8>,
    /// Whole records since the last commit.
    deferred: Vec<u8>,
    /// Whole records that could not be written yet: settlements, and reservations of a commit that failed.
    pending: Vec<u8>,
}

/// The record is not in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwritable;

impl JournalWriter {
    pub(super) fn new(worker: u16, shared: Arc<Shared>, segment: Arc<Segment>, length: u64) -> Self {
        let active = Active {
            segment,
            length,
            is_torn: false,
            next_id: 1,
            buffer: Vec::new(),
            deferred: Vec::new(),
            pending: Vec::new(),
        };
        Self { worker, shared, active: Mutex::new(active), deferral: OnceLock::new() }
    }

    /// From now on records wait for a [`commit`](Self::commit), so that those of many requests are one system call. `schedule` is called
    /// with the first record since the last commit: the commit has to be over before a byte of any request leaves the worker.
    ///
    /// If a commit fails, its records wait in memory for the disk, and reservations are refused from then on. So the requests of one commit
    /// go on whose reservations a crash before the next successful write would lose.
    pub fn defer(self: &Arc<Self>, schedule: fn(Arc<Self>)) {
        let _ = self.deferral.set(Deferral { writer: Arc::downgrade(self), schedule });
    }

    /// Writes the records since the last commit.
    pub fn commit(&self) {
        let mut active = self.lock();
        if active.deferred.is_empty() {
            return;
        }
        let mut records = std::mem::take(&mut active.deferred);
        if self.put(&mut active, &records).is_err() {
            active.pending.append(&mut records);
        }
        records.clear();
        active.deferred = records;
    }

    /// The worker's number.
    pub fn worker(&self) -> u16 {
        self.worker
    }

    /// Writes a reservation and returns its id. From then on it survives the process.
    ///
    /// # Errors
    /// It is not written: a request with a budget must not go on.
    pub fn reserve(&self, charge: Charge, line: &[u8]) -> Result<u64, Unwritable> {
        let mut active = self.lock();
        let id = active.take_id(self.worker);
        let record = Record::Reserve { id, charge, line };
        if self.defers(&mut active, &record) {
            return Ok(id);
        }
        self.write_pending(&mut active)?;
        self.write(&mut active, &record).map(|()| id)
    }

    /// Writes the settlement of a reservation. If the disk refuses it, it waits for the next write that succeeds; until then a crash
    /// would charge the reservation in full.
    ///
    /// # Errors
    /// It is neither written nor waiting: the reservation stays open in the journal, and is charged in full.
    pub fn settle(&self, id: u64, charge: Charge, line: &[u8]) -> Result<(), Unwritable> {
        self.write_or_keep(|_| Record::Settle { id, charge, line })
    }

    /// Writes a charge without a reservation, in the same way.
    ///
    /// # Errors
    /// It is lost.
    pub fn charge(&self, charge: Charge, line: &[u8]) -> Result<(), Unwritable> {
        self.write_or_keep(|id| Record::Charge { id, charge, line })
    }

    /// Writes that this process grants nothing more to keys with a budget.
    ///
    /// # Errors
    /// It is not written.
    pub(super) fn end_lease(&self) -> Result<(), Unwritable> {
        let mut active = self.lock();
        self.write_pending(&mut active)?;
        self.write(&mut active, &Record::LeaseEnd)
    }

    fn write_or_keep<'r>(&self, record: impl FnOnce(u64) -> Record<'r>) -> Result<(), Unwritable> {
        let mut active = self.lock();
        let id = active.take_id(self.worker);
        let record = record(id);
        if self.defers(&mut active, &record) {
            return Ok(());
        }
        let written = self.write_pending(&mut active).and_then(|()| self.write(&mut active, &record));
        if written.is_ok() {
            return Ok(());
        }
        let before = active.pending.len();
        record.encode(&mut active.pending);
        if active.pending.len() > PENDING_BYTES_MAX {
            active.pending.truncate(before);
            self.shared.lost_settlements.fetch_add(1, Ordering::Relaxed);
            return Err(Unwritable);
        }
        Ok(())
    }

    /// Keeps a record for the next commit, unless it has to be written now: the disk has refused one, or nothing commits.
    fn defers(&self, active: &mut Active, record: &Record<'_>) -> bool {
        let Some(Deferral { writer, schedule }) = self.deferral.get() else { return false };
        if !active.pending.is_empty() || self.shared.trouble().is_some() {
            return false;
        }
        if active.deferred.is_empty() {
            let Some(writer) = writer.upgrade() else { return false };
            schedule(writer);
        }
        record.encode(&mut active.deferred);
        true
    }

    fn write(&self, active: &mut Active, record: &Record<'_>) -> Result<(), Unwritable> {
        let mut buffer = std::mem::take(&mut active.buffer);
        buffer.clear();
        record.encode(&mut buffer);
        let written = self.put(active, &buffer);
        active.buffer = buffer;
        written
    }

    /// Records that wait come first, one by one: a disk with little room takes some of them.
    fn write_pending(&self, active: &mut Active) -> Result<(), Unwritable> {
        let Active { pending, deferred, .. } = active;
        pending.append(deferred);
        if active.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut active.pending);
        let (mut written, mut result) = (0, Ok(()));
        while let Found::Record(_, length) = decode(&pending[written..]) {
            result = self.put(active, &pending[written..written + length]);
            if result.is_err() {
                break;
            }
            written += length;
        }
        active.pending = pending;
        active.pending.drain(..written);
        result
    }

    /// Appends whole records with one system call, or leaves the file as it was.
    fn put(&self, active: &mut Active, bytes: &[u8]) -> Result<(), Unwritable> {
        let shared = &*self.shared;
        let live = shared.live_bytes.load(Ordering::Relaxed);
        let is_full = live.saturating_add(bytes.len() as u64) > shared.live_bytes_max.load(Ordering::Relaxed);
        let (trouble, written) = if shared.is_unsynchronised.load(Ordering::Relaxed) {
            (Trouble::Unsynchronised, Err(io::ErrorKind::Other.into()))
        } else if is_full {
            (Trouble::Full, Err(io::ErrorKind::QuotaExceeded.into()))
        } else {
            (Trouble::Unwritable, active.append(bytes))
        };
        match written {
            Ok(()) => {
                shared.live_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                active.segment.is_dirty.store(true, Ordering::Release);
                shared.note(None);
                Ok(())
            }
            Err(error) => {
                shared.failed_writes.fetch_add(1, Ordering::Relaxed);
                if shared.note(Some(trouble)) {
                    let reason = trouble.name();
                    tracing::error!(reason, %error, "the spend journal takes no record: keys with a budget are refused");
                }
                Err(Unwritable)
            }
        }
    }

    /// Puts another segment into the place of the present one, which gets no further record. Settlements that wait go to the new
    /// one. The bytes of whole records in the old one.
    pub(super) fn replace(&self, segment: Arc<Segment>, length: u64) -> u64 {
        let mut active = self.lock();
        active.segment = segment;
        active.is_torn = false;
        std::mem::replace(&mut active.length, length)
    }

    /// Writes records that wait, without a further one. Not while the worker writes: it does the same.
    pub(super) fn flush(&self) {
        if let Ok(mut active) = self.active.try_lock() {
            let _ = self.write_pending(&mut active);
        }
    }

    /// Bytes of records that wait for the disk.
    pub fn pending_bytes(&self) -> usize {
        self.lock().pending.len()
    }

    fn lock(&self) -> MutexGuard<'_, Active> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Active {
    fn take_id(&mut self, worker: u16) -> u64 {
        let id = u64::from(worker) << 48 | self.next_id;
        self.next_id += 1;
        id
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut file = &self.segment.file;
        if self.is_torn {
            file.set_len(self.length)?;
            self.is_torn = false;
        }
        let written = loop {
            match file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => break written,
            }
        };
        match written {
            Ok(count) if count == bytes.len() => {
                self.length += count as u64;
                Ok(())
            }
            // A full disk takes a part. The next write begins by cutting it off, should that fail now.
            partial => {
                self.is_torn = file.set_len(self.length).is_err();
                Err(partial.err().unwrap_or_else(|| io::ErrorKind::StorageFull.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;
    use crate::{amount::Amount, budget::Day, journal::books::Books};

    const LINE: &[u8] = &[b'x'; 600];

    fn writer(path: &std::path::Path) -> (JournalWriter, Arc<Shared>) {
        let shared = Arc::new(Shared { live_bytes_max: u64::MAX.into(), ..Shared::default() });
        (JournalWriter::new(3, Arc::clone(&shared), segment(path), 0), shared)
    }

    fn segment(path: &std::path::Path) -> Arc<Segment> {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        Arc::new(Segment { file, generation: 1, is_dirty: false.into() })
    }

    fn charge(tokens: u64) -> Charge {
        Charge::new(Day::new(1), Amount { tokens, money: 0 }, [])
    }

    #[test]
    fn settlements_wait_for_a_disk_up_to_a_bound_and_go_to_the_next_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("good");
        let (writer, shared) = writer(&path);
        let ids: Vec<u64> = (0..2_000).map(|_| writer.reserve(charge(5), LINE).unwrap()).collect();
        assert!(ids.iter().all(|id| id >> 48 == 3));
        // A disk that is always full, and whose file cannot be cut either.
        let length = writer.replace(segment("/dev/full".as_ref()), 0);
        assert_eq!(length, std::fs::metadata(&path).unwrap().len());
        assert_eq!(writer.reserve(charge(5), LINE), Err(Unwritable));
        let kept = ids.iter().take_while(|id| writer.settle(**id, charge(1), LINE).is_ok()).count();
        assert!(kept > 1_000 && kept < ids.len(), "{kept}");
        assert!(writer.pending_bytes() <= PENDING_BYTES_MAX && writer.pending_bytes() > PENDING_BYTES_MAX - 1_000);
        assert_eq!(shared.lost_settlements.load(Ordering::Relaxed), 1);
        assert_eq!(shared.trouble(), Some(Trouble::Unwritable));
        writer.replace(segment(&path), length);
        writer.flush();
        assert_eq!((writer.pending_bytes(), shared.trouble()), (0, None));
        let mut books = Books::default();
        books.read_segment(&std::fs::read(&path).unwrap(), |line| assert_eq!(line, LINE));
        assert_eq!((books.open().len(), books.damage().is_unexpected()), (ids.len() - kept, false));
    }

    #[test]
    fn records_wait_for_their_commit_and_none_is_lost_if_it_fails() {
        static SCHEDULED: AtomicU64 = AtomicU64::new(0);
        let scheduled = || SCHEDULED.load(Ordering::Relaxed);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (writer, shared) = writer(&path);
        let (writer, length) = (Arc::new(writer), || std::fs::metadata(&path).unwrap().len());
        writer.defer(|_| {
            SCHEDULED.fetch_add(1, Ordering::Relaxed);
        });
        let ids = [(); 3].map(|()| writer.reserve(charge(5), LINE).unwrap());
        writer.settle(ids[0], charge(1), LINE).unwrap();
        assert_eq!((scheduled(), length()), (1, 0));
        writer.commit();
        let committed = length();
        assert!(committed > 2_400);
        // The disk becomes full between a reservation and its commit.
        writer.settle(ids[1], charge(1), LINE).unwrap();
        let late = writer.reserve(charge(5), LINE).unwrap();
        assert_eq!(scheduled(), 2);
        writer.replace(segment("/dev/full".as_ref()), 0);
        writer.commit();
        assert_eq!(shared.trouble(), Some(Trouble::Unwritable));
        assert_eq!(writer.reserve(charge(5), LINE), Err(Unwritable), "the next one is refused");
        writer.settle(late, charge(2), LINE).unwrap();
        writer.replace(segment(&path), committed);
        writer.flush();
        assert_eq!((scheduled(), writer.pending_bytes(), shared.trouble()), (2, 0, None));
        let mut books = Books::default();
        books.read_segment(&std::fs::read(&path).unwrap(), |_| ());
        assert_eq!((books.open().len(), books.damage().orphans, books.damage().is_unexpected()), (1, 0, false));
    }

    #[test]
    fn a_failed_synchronisation_stops_all_records() {
        let folder = tempfile::tempdir().unwrap();
        let (writer, shared) = writer(&folder.path().join("file"));
        shared.is_unsynchronised.store(true, Ordering::Relaxed);
        assert_eq!(writer.reserve(charge(5), LINE), Err(Unwritable));
        assert_eq!(shared.trouble().map(Trouble::name), Some("journal_unsynchronised"));
        shared.is_unsynchronised.store(false, Ordering::Relaxed);
        assert!(writer.reserve(charge(5), LINE).is_ok() && shared.trouble().is_none());
    }
}
