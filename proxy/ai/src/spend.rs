//! Budgets and usage log of the process.

use std::{
    fmt, io,
    path::Path,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use weir_spend::{
    budget::Ledger,
    journal::{Journal, JournalError, JournalSettings, JournalWriter},
    keys::IssuedKeys,
    meter::Meter,
    usage::UsageSettings,
};

use crate::{cache::ResponseCache, recent::RecentRequests, settings::SpendSettings, share::WorkerShare};

/// The file of the usage log, in the directory of the state.
const USAGE_LOG: &str = "usage.log";

/// The accounts of the process and their journal, and its cache.
#[derive(Debug)]
pub struct Spend {
    ledger: Ledger,
    cache: Arc<ResponseCache>,
    journal: Option<(Journal, Vec<Arc<JournalWriter>>)>,
    issued: Arc<IssuedKeys>,
    /// Requests that each worker remembers.
    recent_requests: usize,
}

impl Spend {
    /// Recovers what earlier processes have left. For the control thread: it waits for the disk.
    ///
    /// # Errors
    /// The directory cannot be used: another process has it, or what was used is not known.
    pub fn open(settings: &SpendSettings, workers: usize) -> Result<Self, SpendError> {
        let cache = ResponseCache::new(settings.cache);
        let recent_requests = settings.recent_requests.div_ceil(workers.max(1));
        let issued =
            |state: Option<&Path>| IssuedKeys::open(state).map(Arc::new).map_err(|error| SpendError(error.into()));
        let Some(state) = &settings.state else {
            let issued = issued(None)?;
            return Ok(Self { ledger: Ledger::default(), cache, journal: None, issued, recent_requests });
        };
        let usage = Some(UsageSettings::new(state.join(USAGE_LOG)));
        std::fs::create_dir_all(state).map_err(|error| SpendError(error.into()))?;
        let settings = JournalSettings { usage, ..JournalSettings::new(state.join("journal")) };
        let (journal, recovery) = Journal::open(settings, unix_time().as_secs()).map_err(SpendError)?;
        if recovery.crashed > 0 || recovery.restored_lines > 0 || recovery.damage.is_unexpected() {
            let (charged, lines, damage) = (recovery.crashed, recovery.restored_lines, recovery.damage);
            tracing::warn!(charged, lines, ?damage, "requests of a process that died are charged in full");
        }
        if recovery.days_ahead > 0 {
            let days = recovery.days_ahead;
            tracing::warn!(days, "the clock is behind the journal of budgets: they stay in their window");
        }
        let writer = |worker| journal.writer(u16::try_from(worker).unwrap_or(u16::MAX));
        let writers =
            (0..workers).map(writer).collect::<io::Result<Vec<_>>>().map_err(|error| SpendError(error.into()))?;
        // The lock of the journal holds for the file of the keys, too.
        let issued = issued(Some(state))?;
        Ok(Self { ledger: recovery.ledger, cache, journal: Some((journal, writers)), issued, recent_requests })
    }

    /// The state that the listeners of a worker share. Called once for each worker.
    pub fn share(&self, worker: usize) -> WorkerShare {
        let writer = self.journal.as_ref().and_then(|(_, writers)| writers.get(worker).cloned());
        WorkerShare {
            meter: Meter::new(self.ledger.clone(), writer),
            cache: self.cache.clone(),
            issued: self.issued.clone(),
            recent: Rc::new(RecentRequests::new(self.recent_requests)),
        }
    }

    /// The exact cache.
    pub fn cache(&self) -> &ResponseCache {
        &self.cache
    }

    /// The accounts of the process.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The keys that the admin API has issued.
    pub fn issued(&self) -> &IssuedKeys {
        &self.issued
    }

    /// The journal or the usage log takes no records. `None`: there is no journal.
    pub fn is_failing(&self) -> Option<bool> {
        let health = self.journal.as_ref()?.0.health();
        Some(health.trouble.is_some() || health.is_usage_failing)
    }

    /// Waits until all records are on the disk, and the usage log has those of all ended requests.
    pub fn flush(&self) {
        if let Some((journal, _)) = &self.journal {
            journal.flush();
        }
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
