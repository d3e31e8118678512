//! Durability: budgets and usage records that survive the process.
//!
//! | file | concept |
//! |---|---|
//! | [`record`] | records on disk |
//! | [`books`] | the sum of records (pure) |
//! | `writer` | a worker's file: one system call for the records of a commit |
//! | `keeper` | the thread behind: synchronises, feeds the usage log, makes snapshots |
//! | `recovery` | the sum of what earlier processes have left |
//! | `handover`, `departing` | the journal goes from one process to another, and the files of the first one are followed |
//! | `files` | names and durable operations |
//!
//! **Protocol.** A worker writes `Reserve` before its request is forwarded, and `Settle` before the end of the response leaves. They go to
//! the worker's own file, those of one loop turn by one `write`: from there on they are in the page cache of the kernel, and survive the
//! death of the process. The keeper calls `fdatasync` every [`SYNC_INTERVAL`] while there is traffic, and within 100 ms after a pause. A
//! loss of power costs the records of that time and of one synchronisation at most.
//!
//! **Recovery.** The newest snapshot and all segments from its generation on are added up. A reservation without a settlement is
//! charged in full, and its usage record has the flag `crash`. Then a new snapshot replaces all these files. If the
//! process dies before that snapshot is in place, the next recovery reads the same files again; afterwards it ignores
//! them. So nothing is charged twice.
//!
//! **Usage log.** The usage record of a request is a part of its `Settle`. The keeper copies these records to the usage log, and
//! a snapshot comes only after they have reached the disk there. A recovery compares the records of the segments with the lines of the log
//! and appends those that are missing. So each request has one line, whenever the process dies.
//!
//! **Order.** Records only add, and each has all that it needs, so files of several workers need no common order. A settlement
//! follows its reservation in the file of one worker.
//!
//! **One process** has the directory: a lock, which ends with it. At an upgrade it hands the journal over, and settles its last requests
//! in files of its own: see `handover`.
//!
//! **Decision.** The choice was among this journal, redb, and SQLite.
//!
//! | | survives a kill without a synchronisation per record | workers wait for | new crates |
//! |---|---|---|---|
//! | journal | yes: a record is a part of one `write` | none: each has a file of its own | none; `crc32fast` is in the tree |
//! | redb | no: a commit without a synchronisation is undone by the next opening | the one writer of the database | 1 |
//! | SQLite in WAL mode | yes: a commit is a `write` to the WAL | the one writer of the database, and its checkpoints | 5, and a C library |
//!
//! The rows of the databases are those of their documents: `Durability::None` of redb, "Write-Ahead Logging" of SQLite. The row of
//! the journal is tested by kills (`tests/it/crash.rs`).
//!
//! Both databases have one writer at a time, so a worker would wait while another one commits, and in redb for `fdatasync`. A thread
//! of its own could commit for all workers, but a request may not be forwarded before its reservation is durable, so each would wait
//! for two changes of threads. The journal needs neither lookups nor transactions, which are the strengths of a database: records
//! only add, and their sum is small enough to be written whole as a snapshot. `examples/journal_cost.rs` measures the cost
//! per request.
//!
//! **A disk that refuses.** A record is written whole, or cut off again. Reservations of keys with a budget are then refused
//! ([`Denial::Journal`](crate::Denial::Journal)); others go on. Settlements wait in memory, at most [`PENDING_BYTES_MAX`] per
//! worker, for the next write that succeeds.

pub mod books;
mod departing;
mod files;
mod handover;
mod keeper;
pub mod record;
mod recovery;
mod writer;

use std::{
    fmt, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use books::Damage;
use files::Files;
pub use handover::{HandoverError, LEASE_TIME};
use keeper::{Keeper, Order, State};
use recovery::Found;
use writer::Shared;
pub use writer::{JournalWriter, PENDING_BYTES_MAX, Trouble, Unwritable};

use crate::{
    budget::{Day, Ledger},
    usage::UsageSettings,
};

/// Between two calls of `fdatasync`. Default 20 ms. A call under load takes some 0.4 ms of a CPU: every 5 ms it was a tenth of the
/// gateway's own time, and every 20 ms it is a fortieth.
pub const SYNC_INTERVAL: Duration = Duration::from_millis(20);

/// Bytes of segments after which a snapshot replaces them. Default 16 MiB: some 20,000 requests, and a recovery of 50 ms.
pub const SNAPSHOT_BYTES: u64 = 16 << 20;

/// Bytes of segments at most. Default 256 MiB. Only a usage log or a snapshot that cannot be written leads there.
pub const LIVE_BYTES_MAX: u64 = 256 << 20;

/// How a journal is kept.
#[derive(Clone, Debug)]
pub struct JournalSettings {
    /// Its directory, for this process alone. It is created.
    pub directory: PathBuf,
    /// See [`SYNC_INTERVAL`].
    pub sync_interval: Duration,
    /// See [`SNAPSHOT_BYTES`].
    pub snapshot_bytes: u64,
    /// See [`LIVE_BYTES_MAX`].
    pub live_bytes_max: u64,
    /// Windows of budgets that lie in the future are those of a clock that was wrong: their amounts move to today. Without
    /// it they stay until the clock has reached them. For one start after the clock was set right. Amounts of the windows that the
    /// wrong ones replaced are in the usage log alone.
    pub trusts_clock: bool,
    /// The usage log. `None`: there is none.
    pub usage: Option<UsageSettings>,
}

impl JournalSettings {
    /// The defaults, in this directory, without a usage log.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            sync_interval: SYNC_INTERVAL,
            snapshot_bytes: SNAPSHOT_BYTES,
            live_bytes_max: LIVE_BYTES_MAX,
            trusts_clock: false,
            usage: None,
        }
    }
}

/// The legacy of an earlier process.
#[derive(Debug)]
pub struct Recovery {
    /// All accounts, with every open reservation charged.
    pub ledger: Ledger,
    /// Reservations that were charged in full. Those of a process that has handed over and still lives are not among them.
    pub crashed: usize,
    /// Processes that have handed over, and have not ended.
    pub departing: usize,
    /// Usage records that the usage log lacked.
    pub restored_lines: usize,
    /// Contents of the files that should not have been there.
    pub damage: Damage,
    /// The latest day of the ledger is so many days after that of the clock: budgets stay in their window.
    pub days_ahead: u32,
}

/// Why there is no journal.
#[derive(Debug)]
pub enum JournalError {
    /// An operation on the files has failed.
    Io(io::Error),
    /// No snapshot of the directory is whole, and the segments say nothing about what was used before them.
    NoSnapshot(PathBuf),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the spend journal cannot be opened: {error}"),
            Self::NoSnapshot(directory) => write!(
                f,
                "the spend journal in {} has no whole snapshot, so what was used is not known; restore the directory, or move it \
                 away to begin with unused budgets",
                directory.display()
            ),
        }
    }
}

impl std::error::Error for JournalError {}

impl From<io::Error> for JournalError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// An open journal with its thread. Dropping it moves everything into a snapshot; requests that are open then are charged in
/// full by the next recovery.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// A journal as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHealth {
    /// Why it takes no record; keys with a budget are refused then.
    pub trouble: Option<Trouble>,
    /// The usage log takes no line. Its records stay in the journal, up to its bound.
    pub is_usage_failing: bool,
    /// Writes that failed.
    pub failed_writes: u64,
    /// Settlements that found no room in memory while the disk refused: their reservations stay charged in full.
    pub lost_settlements: u64,
    /// Bytes since the last snapshot.
    pub live_bytes: u64,
}

impl Journal {
    /// Recovers what is in the directory, and begins new files. `unix_seconds` is the time of the wall clock.
    ///
    /// # Errors
    /// See [`JournalError`]. Nothing that was used is forgotten then.
    pub fn open(settings: JournalSettings, unix_seconds: u64) -> Result<(Self, Recovery), JournalError> {
        let (keeper, recovery) = Keeper::open(settings, unix_seconds)?;
        let shared = Arc::clone(&keeper.shared);
        let (orders, received) = channel();
        let body = move || keeper.run(&received);
        let thread = std::thread::Builder::new().name("weir-spend".to_owned()).spawn(body)?;
        Ok((Self { shared, orders: Some(orders), thread: Some(thread) }, recovery))
    }

    /// The writer of a worker; the same one for the same number. For the control thread: it waits for the disk.
    ///
    /// # Errors
    /// Its file cannot be created.
    pub fn writer(&self, worker: u16) -> io::Result<Arc<JournalWriter>> {
        self.order(|made| Order::Writer(worker, made)).unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Waits until all records are synchronised, and the usage records of ended requests are in the usage log.
    pub fn flush(&self) {
        self.order(Order::Flush);
    }

    /// Replaces all segments by a snapshot. False: it failed, and nothing is lost.
    pub fn compact(&self) -> bool {
        self.order(Order::Compact).unwrap_or(false)
    }

    /// Hands the journal over, at an upgrade: another process may open it from now on. The writers of this one go on, and the new
    /// process reads what they write. Keys with a budget keep half of what is left until [`Self::end_lease`].
    ///
    /// # Errors
    /// The journal stays here, and nothing has changed.
    pub fn cede(&self) -> Result<(), HandoverError> {
        self.order(Order::Cede).unwrap_or(Err(HandoverError::Unwritable))
    }

    /// Takes the journal back from a process that did not serve, and has ended.
    ///
    /// # Errors
    /// It does not come back yet. The attempt is repeated each second; until then this process has its lease.
    pub fn reclaim(&self) -> Result<(), JournalError> {
        self.order(Order::Reclaim).unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::BrokenPipe).into()))
    }

    /// The process that the journal was handed over to serves. `after` that time, for example [`LEASE_TIME`], this one admits no
    /// request of a key with a budget any more.
    pub fn end_lease(&self, after: Duration) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(Order::EndLease(after));
        }
    }

    /// Its present state.
    pub fn health(&self) -> JournalHealth {
        let shared = &*self.shared;
        JournalHealth {
            trouble: shared.trouble(),
            is_usage_failing: shared.is_usage_failing.load(Ordering::Relaxed),
            failed_writes: shared.failed_writes.load(Ordering::Relaxed),
            lost_settlements: shared.lost_settlements.load(Ordering::Relaxed),
            live_bytes: shared.live_bytes.load(Ordering::Relaxed),
        }
    }

    fn order<T>(&self, order: impl FnOnce(Sender<T>) -> Order) -> Option<T> {
        let (done, result) = channel();
        self.orders.as_ref()?.send(order(done)).ok()?;
        result.recv().ok()
    }
}

impl Keeper {
    /// Recovers what is in the directory, and begins new files.
    fn open(settings: JournalSettings, unix_seconds: u64) -> Result<(Self, Recovery), JournalError> {
        let files = Files::new(&settings.directory);
        let lock = files.lock()?;
        let today = Day::of(unix_seconds);
        let mut found = Found::read(&files)?;
        if settings.trusts_clock {
            found.books.trust_clock(today);
        }
        found.charge_open()?;
        let usage = found.open_usage(&settings)?;
        let generation = found.newest + 1;
        files.write_snapshot(generation, &found.books.to_snapshot(generation))?;
        found.books.forget_settled();
        let kept = found.books.departing();
        files.remove_before(generation, |of| kept.contains_key(&of));
        let recovery = Recovery {
            ledger: found.ledger(),
            crashed: found.crashed,
            departing: found.departing.len(),
            restored_lines: found.restored_lines,
            damage: found.books.damage(),
            days_ahead: found.latest_day().number().saturating_sub(today.number()),
        };
        let shared = Arc::new(Shared::default());
        shared.live_bytes_max.store(settings.live_bytes_max, Ordering::Relaxed);
        let keeper = Self {
            files,
            shared,
            writers: Vec::new(),
            settings,
            books: found.books,
            usage,
            ledger: recovery.ledger.clone(),
            // Until the last file is written no other process may read them.
            lock: Some(lock),
            departing: found.departing,
            departure: None,
            generation,
            state: State::default(),
        };
        Ok((keeper, recovery))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
