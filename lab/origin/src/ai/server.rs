//! Starting: settings, workers, and what they share.

use std::{
    collections::HashMap,
    io,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use weir_base::secret::Secret;

use super::{
    connection,
    ledger::Ledger,
    model_response::Defaults,
    settings::AiOriginSettings,
    text::{Templates, Word},
};
use crate::server::{self, Origin, Places, WorkerStats};

/// Words whose tries are counted. 65,536: more than any test has under way. All are forgotten past it.
const TRIES_MAX: usize = 65_536;

/// State that every connection of a worker uses.
pub struct Shared {
    /// The longest text of this worker.
    pub templates: Templates,
    /// The ledger of the origin.
    pub ledger: Arc<Ledger>,
    /// Tries at the origin.
    pub tries: Arc<Tries>,
    /// Changes the words of texts.
    pub seed: u64,
    /// Lengths.
    pub defaults: Defaults,
    /// Wait before a reply.
    pub first: Duration,
    /// Wait between events.
    pub gap: Duration,
    /// The key that a client needs.
    pub key: Option<Secret>,
    /// Connections of this worker.
    pub connections_max: usize,
    /// Counters of this worker.
    pub stats: Arc<WorkerStats>,
}

/// How often each word was tried, for errors that only the first tries get.
#[derive(Debug, Default)]
pub struct Tries(Mutex<HashMap<[u8; 8], u32>>);

impl Tries {
    /// Counts one more try of a word. The tries before it.
    pub fn count(&self, word: Word) -> u32 {
        // A count is whole before anything can panic.
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tries.len() >= TRIES_MAX {
            tries.clear();
        }
        let count = tries.entry(word.digits()).or_default();
        *count += 1;
        *count - 1
    }
}

/// Binds and serves. When it returns, clients can connect.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for settings out of range; otherwise the address cannot be bound, or a worker's runtime
/// cannot be built.
pub fn start(settings: AiOriginSettings) -> io::Result<Origin> {
    start_with(settings, Arc::default())
}

/// As [`start`], with a ledger that the caller reads too.
///
/// # Errors
/// As [`start`].
pub fn start_with(settings: AiOriginSettings, ledger: Arc<Ledger>) -> io::Result<Origin> {
    settings.check()?;
    let tries: Arc<Tries> = Arc::default();
    let places =
        Places { bind: &settings.bind, workers: settings.workers, cpus: &settings.cpus, runtime: &settings.runtime };
    server::start(&places, |post| {
        let (ledger, tries, settings) = (ledger.clone(), tries.clone(), settings.clone());
        move || async move {
            let _housekeeper = server::count_cpu(post.stats.clone());
            let AiOriginSettings { seed, payload, events, first, gap, key, connections_max, .. } = settings;
            let shared = Rc::new(Shared {
                templates: Templates::default(),
                ledger,
                tries,
                seed,
                defaults: Defaults { payload, events },
                first,
                gap,
                key,
                connections_max,
                stats: post.stats.clone(),
            });
            server::accept(&post.listener, post.inbox, &post.stats, |socket| connection::admit(&shared, socket)).await;
        }
    })
}
