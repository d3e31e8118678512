//! The journal as a worker has it: one file, one system call per record.

use std::{
    fs::File,
    io::{self, Write as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::record::{Charge, Found, Record, decode};

/// Bytes of settlements that wait for the disk, per worker. Default 1 MiB, some 2,000 requests.
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
    /// The last write failed.
    pub is_failing: AtomicBool,
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
    /// Whole records of settlements that could not be written yet.
    pending: Vec<u8>,
}

/// The record is not in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwritable;

impl JournalWriter {
    pub(super) fn new(worker: u16, shared: Arc<Shared>, segment: Arc<Segment>, length: u64) -> Self {
        let active = Active { segment, length, is_torn: false, next_id: 1, buffer: Vec::new(), pending: Vec::new() };
        Self { worker, shared, active: Mutex::new(active) }
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
        self.write_pending(&mut active)?;
        self.write(&mut active, &Record::Reserve { id, charge, line }).map(|()| id)
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

    fn write_or_keep<'r>(&self, record: impl FnOnce(u64) -> Record<'r>) -> Result<(), Unwritable> {
        let mut active = self.lock();
        let id = active.take_id(self.worker);
        let record = record(id);
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

    fn write(&self, active: &mut Active, record: &Record<'_>) -> Result<(), Unwritable> {
        let mut buffer = std::mem::take(&mut active.buffer);
        buffer.clear();
        record.encode(&mut buffer);
        let written = self.put(active, &buffer);
        active.buffer = buffer;
        written
    }

    /// Settlements that wait come first, one by one: a disk with little room takes some of them.
    fn write_pending(&self, active: &mut Active) -> Result<(), Unwritable> {
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
        let written = if is_full { Err(io::ErrorKind::QuotaExceeded.into()) } else { active.append(bytes) };
        match written {
            Ok(()) => {
                shared.live_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                active.segment.is_dirty.store(true, Ordering::Release);
                if shared.is_failing.load(Ordering::Relaxed) {
                    shared.is_failing.store(false, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(error) => {
                shared.failed_writes.fetch_add(1, Ordering::Relaxed);
                if !shared.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::error!(%error, "the spend journal cannot be written: keys with a budget are refused");
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

    /// Writes settlements that wait, without a further record. Not while the worker writes: it does the same.
    pub(super) fn flush(&self) {
        if let Ok(mut active) = self.active.try_lock() {
            let _ = self.write_pending(&mut active);
        }
    }

    /// Bytes of settlements that wait for the disk.
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
