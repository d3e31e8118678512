//! Budgets and usage log of the process.

use std::{
    fmt, io,
    path::Path,
    rc::Rc,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use weir_engine::before_send;
use weir_spend::{
    budget::Ledger,
    journal::{Journal, JournalError, JournalSettings, JournalWriter, LEASE_TIME},
    keys::IssuedKeys,
    meter::Meter,
    usage::UsageSettings,
};

use crate::{
    cache::ResponseCache,
    recent::RecentRequests,
    settings::{AiListenerSettings, SpendSettings},
    share::WorkerShare,
    store::SharedStore,
    stored::StoredResponses,
};

/// The file of the usage log, in the directory of the state.
const USAGE_LOG: &str = "usage.log";

/// The accounts of the process and their journal, and its cache.
#[derive(Debug)]
pub struct Spend {
    settings: SpendSettings,
    workers: usize,
    trusts_clock: bool,
    opened: OnceLock<Opened>,
}

#[derive(Debug)]
struct Opened {
    ledger: Ledger,
    cache: Arc<ResponseCache>,
    journal: Option<(Journal, Vec<Arc<JournalWriter>>)>,
    stored: StoredResponses,
    issued: Arc<IssuedKeys>,
    store: Option<SharedStore>,
}

/// How long a start waits for the first claims. Afterwards requests of keys with a budget are refused until the store has responded.
const FIRST_CLAIMS_LIMIT: Duration = Duration::from_secs(1);

/// How long an order about a key waits for its claims.
const NEW_CLAIMS_LIMIT: Duration = Duration::from_millis(250);

impl Spend {
    /// Nothing is opened yet: at an upgrade, another process has the journal until it hands it over.
    pub fn unopened(settings: SpendSettings, workers: usize) -> Self {
        Self { settings, workers, trusts_clock: false, opened: OnceLock::new() }
    }

    /// Windows of budgets that a wrong clock has put into the future move to today when the journal is opened, with all that they hold.
    #[must_use]
    pub fn trusting_clock(self) -> Self {
        Self { trusts_clock: true, ..self }
    }

    /// Recovers what earlier processes have left. For the control thread: it waits for the disk.
    ///
    /// # Errors
    /// The directory cannot be used: another process has it, or what was used is not known.
    pub fn open(settings: &SpendSettings, workers: usize) -> Result<Self, SpendError> {
        let spend = Self::unopened(settings.clone(), workers);
        spend.take()?;
        Ok(spend)
    }

    /// Recovers, in the same way, what the process has left that hands its journal over. To be called once, before a listener is made.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn take(&self) -> Result<(), SpendError> {
        let opened = self.recover()?;
        let is_first = self.opened.set(opened).is_ok();
        debug_assert!(is_first);
        Ok(())
    }

    fn recover(&self) -> Result<Opened, SpendError> {
        let (cache, stored) = (ResponseCache::new(self.settings.cache), StoredResponses::default());
        let issued =
            |state: Option<&Path>| IssuedKeys::open(state).map(Arc::new).map_err(|error| SpendError(error.into()));
        let Some(state) = &self.settings.state else {
            let issued = issued(None)?;
            return Ok(Opened { ledger: Ledger::default(), cache, journal: None, stored, issued, store: None });
        };
        let usage = Some(UsageSettings::new(state.join(USAGE_LOG)));
        std::fs::create_dir_all(state).map_err(|error| SpendError(error.into()))?;
        let settings =
            JournalSettings { usage, trusts_clock: self.trusts_clock, ..JournalSettings::new(state.join("journal")) };
        let (journal, recovery) = Journal::open(settings, unix_time().as_secs()).map_err(SpendError)?;
        // Lines of a process that lives are on their way to the usage log.
        let lines_lost = recovery.restored_lines > 0 && recovery.departing == 0;
        if recovery.crashed > 0 || lines_lost || recovery.damage.is_unexpected() {
            let (charged, lines, damage) = (recovery.crashed, recovery.restored_lines, recovery.damage);
            tracing::warn!(charged, lines, ?damage, "requests of a process that died are charged in full");
        }
        if recovery.departing > 0 {
            let processes = recovery.departing;
            tracing::info!(processes, "processes before this one still have requests in the journal of budgets");
        }
        if recovery.days_ahead > 0 {
            let days = recovery.days_ahead;
            tracing::warn!(
                days,
                "the clock is behind the journal of budgets: they stay in their window. If the clock was ahead and is right now, start \
                 once with `weir run --trust-clock`"
            );
        }
        let writer = |worker| journal.writer(u16::try_from(worker).unwrap_or(u16::MAX));
        let writers =
            (0..self.workers).map(writer).collect::<io::Result<Vec<_>>>().map_err(|error| SpendError(error.into()))?;
        // The lock of the journal holds for the file of the keys, too.
        let issued = issued(Some(state))?;
        let ledger = recovery.ledger;
        let store = self.settings.store.as_ref().map(|store| SharedStore::start(store, state, &ledger));
        let store = store.transpose().map_err(|error| SpendError(error.into()))?;
        Ok(Opened { ledger, cache, journal: Some((journal, writers)), stored, issued, store })
    }

    /// Claims parts of shared budgets for the keys of these listeners, before the first request comes. For the control thread, behind
    /// [`Self::take`]: it waits for the store, at most a second.
    pub fn claim_first<'a>(&self, listeners: impl Iterator<Item = (&'a Arc<str>, &'a AiListenerSettings)>) {
        let Some(Opened { ledger, issued, store: Some(store), .. }) = self.opened.get() else { return };
        // Their rings register the budgets.
        listeners.for_each(|(name, settings)| drop(settings.ring(name, ledger, issued)));
        let _ = store.wait(FIRST_CLAIMS_LIMIT);
    }

    /// Claims for keys that have changed. For control threads: it waits for the store, at most a quarter of a second.
    pub fn claim_changed(&self) {
        if let Some(store) = self.store() {
            let _ = store.wait(NEW_CLAIMS_LIMIT);
        }
    }

    /// The store that budgets are shared in. `None`: there is none, or another process has the journal still.
    pub fn store(&self) -> Option<&SharedStore> {
        self.opened.get()?.store.as_ref()
    }

    /// The state that the listeners of a worker share. Called once for each worker, behind [`Self::take`]. `None`: that has not been.
    pub fn share(&self, worker: usize) -> Option<WorkerShare> {
        let opened = self.opened.get()?;
        let writer = opened.journal.as_ref().and_then(|(_, writers)| writers.get(worker).cloned());
        if let Some(writer) = &writer {
            writer.defer(|writer| before_send(move || writer.commit()));
        }
        let share = |of: usize| of.div_ceil(self.workers.max(1));
        let (recent, bodies) = (share(self.settings.recent_requests), share(self.settings.recent_bodies_bytes_max));
        Some(WorkerShare {
            meter: Meter::new(opened.ledger.clone(), writer),
            cache: opened.cache.clone(),
            issued: opened.issued.clone(),
            recent: Rc::new(RecentRequests::new(recent, bodies)),
            stored: opened.stored.clone(),
        })
    }

    /// The directory of the state. `None`: there is none.
    pub fn state(&self) -> Option<&Path> {
        self.settings.state.as_deref()
    }

    /// Hands the journal over to a process that is about to serve.
    ///
    /// # Errors
    /// In words. The journal stays here, and nothing has changed.
    pub fn cede(&self) -> Result<(), String> {
        // The new process has the name of this gateway in the store, and what it holds there.
        if let Some(store) = self.store()
            && !store.pause()
        {
            store.resume();
            return Err("ai.store: a call of this process is still under way; try again".to_owned());
        }
        let ceded =
            self.journal().map_or(Ok(()), |journal| journal.cede().map_err(|error| format!("ai.state: {error}")));
        if ceded.is_err() {
            self.store().into_iter().for_each(SharedStore::resume);
        }
        ceded
    }

    /// Takes the journal back from a process that did not serve, and reads the issued keys again, which that one may have changed.
    pub fn reclaim(&self) {
        if let Some(journal) = self.journal() {
            // A failure is logged there, and tried again.
            let _ = journal.reclaim();
        }
        self.store().into_iter().for_each(SharedStore::resume);
        if let Some(Err(error)) = self.issued().map(IssuedKeys::read_again) {
            tracing::error!(%error, "the issued keys cannot be read again: they stay as they were");
        }
    }

    /// The process that has the journal serves now.
    pub fn end_lease(&self) {
        if let Some(journal) = self.journal() {
            journal.end_lease(LEASE_TIME);
        }
    }

    fn journal(&self) -> Option<&Journal> {
        self.opened.get()?.journal.as_ref().map(|(journal, _)| journal)
    }

    /// The exact cache. `None`: another process has the journal still.
    pub fn cache(&self) -> Option<&ResponseCache> {
        self.opened.get().map(|opened| &*opened.cache)
    }

    /// The accounts of the process; none while another process has the journal.
    pub fn ledger(&self) -> Ledger {
        self.opened.get().map(|opened| opened.ledger.clone()).unwrap_or_default()
    }

    /// The keys that the admin API has issued. `None`: another process has their file still.
    pub fn issued(&self) -> Option<&IssuedKeys> {
        self.opened.get().map(|opened| &*opened.issued)
    }

    /// The journal or the usage log takes no records. `None`: there is no journal.
    pub fn is_failing(&self) -> Option<bool> {
        let health = self.journal()?.health();
        Some(health.trouble.is_some() || health.is_usage_failing)
    }

    /// Waits until all records are on the disk, and the usage log has those of all ended requests. Gives claims on shared budgets back. For
    /// the end of a process.
    pub fn finish(&self) {
        if let Some(journal) = self.journal() {
            journal.flush();
        }
        self.store().into_iter().for_each(SharedStore::end);
    }
}

/// Why budgets cannot be kept.
#[derive(Debug)]
pub struct SpendError(JournalError);

impl fmt::Display for SpendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ai.state: {}", self.0)
    }
}

impl std::error::Error for SpendError {}

/// The wall clock, since 1970.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
