//! Objects that the workers share, and those of a worker.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use weir_base::Rng;
use weir_base::secret::Secret;
use weir_sasl::{Mechanism, ScramVerifier, mongodb};

use super::changes::Changes;
use super::cursors::Cursors;
use super::face::Face;
use super::fail_point::FailPoints;
use super::settings::MongodbOriginSettings;
use super::store::Store;
use super::transactions::Transactions;
use crate::server::WorkerStats;

/// Salt of the verifiers, the same for all users, who have one password.
const SALT: &[u8] = b"weir lab origin.";

/// Verifiers for SCRAM-SHA-1, which depend on the user. 1,024: users of a test.
const VERIFIERS_MAX: usize = 1_024;

/// State of all workers.
#[derive(Debug)]
pub(super) struct State {
    face: Mutex<Face>,
    /// Counter of the topology version: it grows with each change of the face.
    pub version: AtomicU64,
    /// Identity of this process in the topology version, and as a service.
    pub process: [u8; 12],
    /// The face takes writes, has transactions, and is a mongos: copies that commands read without the lock.
    pub is_writable: AtomicBool,
    pub has_cluster: AtomicBool,
    pub is_mongos: AtomicBool,
    fail_points: Mutex<FailPoints>,
    pub has_fail_point: AtomicBool,
    cursors: Mutex<Cursors>,
    transactions: Mutex<Transactions>,
    changes: Mutex<Changes>,
    store: Mutex<Store>,
    /// Open change streams: without any, writes are not noted.
    pub watchers: AtomicU64,
    /// Connections so far.
    connections: AtomicU64,
    /// Writes so far: the increments of the time of the deployment.
    pub writes: AtomicU64,
    /// Documents inserted so far.
    pub inserted: AtomicU64,
    /// Commands so far.
    pub counts: Counts,
    /// Ids of documents made here.
    pub ids: AtomicU64,
}

impl State {
    pub fn new(face: Face) -> io::Result<Self> {
        let mut seed = [0; 20];
        aws_lc_rs::rand::fill(&mut seed).map_err(|_| io::Error::other("this machine has no randomness"))?;
        let (process, seed) = seed.split_at(12);
        let seed = u64::from_le_bytes(seed.try_into().unwrap_or_default());
        let state = Self {
            face: Mutex::default(),
            version: AtomicU64::new(0),
            process: process.try_into().unwrap_or_default(),
            is_writable: AtomicBool::new(true),
            has_cluster: AtomicBool::new(false),
            is_mongos: AtomicBool::new(false),
            fail_points: Mutex::default(),
            has_fail_point: AtomicBool::new(false),
            cursors: Mutex::new(Cursors::new(Rng::new(seed))),
            transactions: Mutex::default(),
            changes: Mutex::default(),
            store: Mutex::default(),
            watchers: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            inserted: AtomicU64::new(0),
            counts: Counts::default(),
            ids: AtomicU64::new(0),
        };
        state.set_face(face);
        Ok(state)
    }

    pub fn face(&self) -> Face {
        lock(&self.face).clone()
    }

    /// Another face; hellos that wait get their reply.
    pub fn set_face(&self, face: Face) {
        let mut present = lock(&self.face);
        self.is_writable.store(face.is_writable(), Ordering::Relaxed);
        self.has_cluster.store(face.has_cluster(), Ordering::Relaxed);
        self.is_mongos.store(face.is_mongos(), Ordering::Relaxed);
        *present = face;
        self.version.fetch_add(1, Ordering::Release);
    }

    pub fn fail_points(&self) -> MutexGuard<'_, FailPoints> {
        lock(&self.fail_points)
    }

    pub fn cursors(&self) -> MutexGuard<'_, Cursors> {
        lock(&self.cursors)
    }

    pub fn transactions(&self) -> MutexGuard<'_, Transactions> {
        lock(&self.transactions)
    }

    pub fn changes(&self) -> MutexGuard<'_, Changes> {
        lock(&self.changes)
    }

    pub fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    pub fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The time of the deployment in the form of the wire: seconds, and a number that grows with each write.
    pub fn cluster_time(&self) -> [u8; 8] {
        let writes = self.writes.load(Ordering::Relaxed) as u32;
        ((unix_millis() as u64 / 1000) << 32 | u64::from(writes.wrapping_add(1))).to_le_bytes()
    }
}

/// Commands that are counted by name.
const COUNTED: [&str; 16] = [
    "find",
    "getMore",
    "insert",
    "update",
    "delete",
    "aggregate",
    "findAndModify",
    "killCursors",
    "commitTransaction",
    "abortTransaction",
    "endSessions",
    "hello",
    "isMaster",
    "saslStart",
    "saslContinue",
    "ping",
];

/// Commands so far, by name, and the compressed ones of them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    by_name: [AtomicU64; COUNTED.len()],
    pub compressed: AtomicU64,
}

impl Counts {
    /// Counts a command, if it is one of those that are counted.
    pub fn note(&self, name: &[u8]) {
        if let Some(at) = COUNTED.iter().position(|known| known.as_bytes() == name) {
            self.by_name[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The commands that came, with their counts.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = COUNTED.iter().zip(&self.by_name).map(|(name, count)| (*name, count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0)
    }
}

/// No code leaves a value half changed, even in a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time of the wall clock, in milliseconds since 1970.
pub(super) fn unix_millis() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// Terms of all connections of one worker.
pub(super) struct Core {
    pub settings: MongodbOriginSettings,
    pub state: Arc<State>,
    pub stats: Arc<WorkerStats>,
    /// For SCRAM-SHA-256; `None`: there is no login.
    verifier: Option<ScramVerifier>,
    /// For SCRAM-SHA-1.
    verifiers: RefCell<HashMap<Vec<u8>, ScramVerifier>>,
    /// Room for the filler of a document.
    pub scratch: RefCell<Vec<u8>>,
    next_request: Cell<i32>,
}

impl Core {
    pub fn new(settings: MongodbOriginSettings, state: Arc<State>, stats: Arc<WorkerStats>) -> Self {
        let verifier = settings.password.as_ref().map(|password| verifier(Mechanism::ScramSha256, b"", password));
        Self {
            settings,
            state,
            stats,
            verifier,
            verifiers: RefCell::default(),
            scratch: RefCell::default(),
            next_request: Cell::new(0),
        }
    }

    /// The id of the next message of this worker.
    pub fn next_request(&self) -> i32 {
        self.next_request.replace(self.next_request.get().wrapping_add(1))
    }

    /// Whether clients must log in.
    pub fn has_password(&self) -> bool {
        self.verifier.is_some()
    }

    /// The verifier of a user; `None`: there is no password.
    pub fn verifier(&self, mechanism: Mechanism, user: &[u8]) -> Option<ScramVerifier> {
        if mechanism != Mechanism::ScramSha1 {
            return self.verifier.clone();
        }
        let password = self.settings.password.as_ref()?;
        let mut known = self.verifiers.borrow_mut();
        if known.len() >= VERIFIERS_MAX {
            known.clear();
        }
        Some(known.entry(user.to_vec()).or_insert_with(|| verifier(mechanism, user, password)).clone())
    }
}

fn verifier(mechanism: Mechanism, user: &[u8], password: &Secret) -> ScramVerifier {
    let password = mongodb::password(mechanism, user, password);
    ScramVerifier::from_password(mechanism, &password, SALT, mongodb::iterations(mechanism))
}
