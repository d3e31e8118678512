//! The store that several gateways share their budgets in: a Redis server.
//!
//! | file | concept |
//! |---|---|
//! | `connection` | a connection of the thread that claims |
//! | `identity` | the name of the gateway, which survives its process |
//! | `rivalry` | another process with that name |
//! | `script` | the calls of the script, which is `script.lua` |
//! | `status` | the state for metrics and operators |
//!
//! The rules are those of [`weir_spend::shared`]. A thread carries them out: it claims ahead of need, when an account calls it, and looks
//! at all accounts twice a second. No worker waits for it, or for the store.

mod connection;
mod identity;
mod rivalry;
pub mod script;
mod status;

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

pub use connection::{LIMIT, StoreConnection};
pub use status::StoreStatus;
use weir_base::{Rng, Time};
use weir_resp::Value;
use weir_spend::{
    budget::{Ledger, Supply},
    shared::{ClaimRequest, Claimant, GRACE, LOOK_INTERVAL},
};
use weir_store::StoreError;

use self::{
    identity::{Identity, token},
    rivalry::{GIVE_WAY, Rivalry},
    script::{Caller, ITEMS_MAX, Reply},
};
use crate::{settings::StoreSettings, spend::unix_time};

/// Between two calls. Default 5 ms: at most 200 a second of each gateway, at the end of a budget under load.
const PACE: Duration = Duration::from_millis(5);

/// Between two attempts to reach the store, with jitter: the first pause, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long an end waits for the last call, which gives claims back, and a hand-over for a call that is under way. Default 1.5 s: each call
/// and each connection ends within [`LIMIT`].
const END_LIMIT: Duration = Duration::from_millis(1_500);

/// The store as a process has it.
#[derive(Debug)]
pub struct SharedStore {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    handle: Thread,
}

/// The state that the thread shares.
#[derive(Debug, Default)]
struct Shared {
    status: StoreStatus,
    /// Another process has the journal, and claims.
    is_paused: AtomicBool,
    /// The process ends: claims are given back.
    is_ending: AtomicBool,
    /// Rounds that were wanted, and the number of the last one that ended.
    wanted: AtomicU64,
    done: AtomicU64,
}

impl SharedStore {
    /// Begins to claim for the accounts of `ledger`. The name of the gateway is in the directory `state`.
    ///
    /// # Errors
    /// Its file or a thread cannot be made.
    pub(crate) fn start(settings: &StoreSettings, state: &Path, ledger: &Ledger) -> io::Result<Self> {
        let identity = Identity::open(state)?;
        // Before the first reply nothing may be spent.
        ledger.set_supply(Supply::ClaimsAwaited);
        let shared = Arc::new(Shared::default());
        let mut claims = Claims {
            claimant: Claimant::new(ledger.clone(), settings.claims, Time::now()),
            caller: Caller { gateway: identity.gateway.clone(), epoch: identity.epoch.clone(), ..Caller::default() },
            identity,
            settings: settings.clone(),
            shared: Arc::clone(&shared),
            connection: None,
            endpoint: 0,
            tried: 0,
            server: None,
            attempts: 0,
            next_attempt: Time::ZERO,
            rng: Rng::new(unix_time().as_nanos() as u64),
            is_reported: false,
            rivalry: Rivalry::default(),
        };
        let ledger = ledger.clone();
        let body = move || {
            ledger.share_with(thread::current());
            claims.run();
        };
        let thread = thread::Builder::new().name("weir-claims".to_owned()).spawn(body)?;
        Ok(Self { handle: thread.thread().clone(), shared, thread: Some(thread) })
    }

    /// For metrics and operators.
    pub fn status(&self) -> &StoreStatus {
        &self.shared.status
    }

    /// Stops to claim, while another process has the journal and the name of this gateway. Claims stay as they are. Returns when no call
    /// is under way. False: there is still one, and [`Self::resume`] is to follow.
    #[must_use]
    pub(crate) fn pause(&self) -> bool {
        self.shared.is_paused.store(true, Ordering::SeqCst);
        self.wait(END_LIMIT)
    }

    /// Claims again.
    pub(crate) fn resume(&self) {
        self.shared.is_paused.store(false, Ordering::SeqCst);
        self.handle.unpark();
    }

    /// Waits until the thread has looked at all accounts and the store has responded, at most for `limit`. Whether that was so.
    pub fn wait(&self, limit: Duration) -> bool {
        let number = self.shared.wanted.fetch_add(1, Ordering::SeqCst) + 1;
        self.handle.unpark();
        let end = Instant::now() + limit;
        while self.shared.done.load(Ordering::SeqCst) < number && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        self.shared.done.load(Ordering::SeqCst) >= number
    }

    /// Gives back what is not used, since the process ends. Not while another process has the journal.
    pub(crate) fn end(&self) {
        if !self.shared.is_paused.load(Ordering::SeqCst) {
            self.shared.is_ending.store(true, Ordering::SeqCst);
            let _ = self.wait(END_LIMIT);
        }
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        self.shared.is_paused.store(true, Ordering::SeqCst);
        self.shared.is_ending.store(true, Ordering::SeqCst);
        self.handle.unpark();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread.
struct Claims {
    claimant: Claimant,
    identity: Identity,
    caller: Caller,
    settings: StoreSettings,
    shared: Arc<Shared>,
    connection: Option<StoreConnection>,
    /// The endpoint of the next attempt, and that of the last one.
    endpoint: usize,
    tried: usize,
    /// That of the latest session.
    server: Option<usize>,
    /// Attempts since the last success.
    attempts: u32,
    next_attempt: Time,
    rng: Rng,
    /// The log says that the store does not respond.
    is_reported: bool,
    /// Another process with the identity of this gateway.
    rivalry: Rivalry,
}

impl Claims {
    fn run(&mut self) {
        loop {
            let wanted = self.shared.wanted.load(Ordering::SeqCst);
            let (is_paused, is_ending) =
                (self.shared.is_paused.load(Ordering::SeqCst), self.shared.is_ending.load(Ordering::SeqCst));
            let mut is_heard = false;
            // One that has given way has nothing to give back.
            let is_paused = is_paused || (is_ending && self.rivalry.is_proved());
            if is_paused {
                self.connection = None;
            } else if is_ending || self.connection.is_some() || Time::now() >= self.next_attempt {
                if is_ending {
                    self.claimant.end();
                }
                if wanted > self.shared.done.load(Ordering::Relaxed) {
                    self.claimant.look_at_all();
                }
                is_heard = self.round();
            }
            if is_paused || is_heard {
                self.shared.done.store(wanted, Ordering::SeqCst);
            }
            // A connection that was closed meanwhile is made once more for the last call.
            if is_ending && (is_paused || is_heard || self.attempts > 1) {
                self.shared.done.store(wanted, Ordering::SeqCst);
                return;
            }
            thread::sleep(PACE);
            thread::park_timeout(if is_paused { LOOK_INTERVAL } else { self.pause() });
        }
    }

    /// The time to the next look, or to the next attempt.
    fn pause(&self) -> Duration {
        match &self.connection {
            Some(_) => LOOK_INTERVAL.saturating_sub(PACE),
            None => Time::now().until(self.next_attempt).min(LOOK_INTERVAL),
        }
    }

    /// One look, and the calls that follow from it. False: the store has not replied to them all.
    fn round(&mut self) -> bool {
        // A statement of this process would replace that of the one that it gives way to: its calls only see whether that one is there still.
        let requests = match self.rivalry.is_proved() {
            true => Vec::new(),
            false => self.claimant.requests(Time::now(), unix_time().as_secs()),
        };
        // An empty call, too: it keeps the session, and a look says what other gateways lack.
        let mut parts: Vec<&[ClaimRequest]> = requests.chunks(ITEMS_MAX).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let is_looking = self.claimant.is_looking();
        for (index, part) in parts.into_iter().enumerate() {
            if let Err(error) = self.call(part, is_looking && index == 0) {
                if error.reason == PAUSED {
                    return false;
                }
                self.on_failure(&requests, &error);
                return false;
            }
        }
        let now = Time::now();
        if self.rivalry.on_reply(now) {
            tracing::info!("no other process has the identity of this gateway any more");
            self.claimant.resume();
        } else {
            self.claimant.on_round(now);
        }
        self.attempts = 0;
        self.shared.status.set(self.claimant.tally(), now, !self.rivalry.is_proved());
        if std::mem::take(&mut self.is_reported) {
            tracing::info!("the store of budgets responds again");
        }
        true
    }

    fn on_failure(&mut self, requests: &[ClaimRequest], error: &StoreError) {
        let now = Time::now();
        // The first attempt follows at once: a connection may just have been closed.
        let pause = match self.attempts {
            0 => Duration::ZERO,
            attempts => self.rng.backoff(attempts - 1, RETRY.0, RETRY.1),
        };
        let is_rival = self.rivalry.is_proved() && error.reason == SUPERSEDED;
        let pause = if is_rival { GIVE_WAY + self.rng.backoff(0, GIVE_WAY / 2, GIVE_WAY / 2) } else { pause };
        (self.attempts, self.next_attempt) = (self.attempts.saturating_add(1), now.saturating_add(pause));
        self.claimant.on_failure(requests, now);
        let is_in_contact = self.claimant.is_in_contact(now);
        let is_served = is_in_contact && !self.rivalry.is_proved();
        self.shared.status.set(self.claimant.tally(), self.claimant.contact(), is_served);
        self.shared.status.count(error.reason);
        if !is_in_contact && !std::mem::replace(&mut self.is_reported, true) {
            let endpoint = &self.settings.endpoints[self.tried];
            let treatment = self.settings.claims.on_failure.name();
            tracing::warn!(%endpoint, %error, on_failure = treatment, "the store of budgets does not respond");
        }
    }

    /// Carries requests to the store, and its replies back. `looks`: with what other gateways lack.
    fn call(&mut self, requests: &[ClaimRequest], looks: bool) -> Result<(), StoreError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        self.check_pause()?;
        let (sent, prefix) = (Time::now(), &self.settings.prefix);
        let mut command = Vec::new();
        let ttl_ms = self.settings.claims.claim_ttl.as_millis() as u64;
        script::claim(&mut command, &connection.hash, prefix, &self.caller, (ttl_ms, looks), requests);
        let value = connection.call(&command)?;
        match read(&value, prefix, requests.len())? {
            Reply::Claim { revision, replies, hungers } => {
                self.caller.revision = revision;
                self.claimant.on_replies(requests, &replies, sent);
                self.claimant.on_hungers(&hungers);
                self.connection = Some(connection);
                Ok(())
            }
            Reply::Stale => Err(StoreError::new("stale", "its data are not those of the last call")),
            Reply::Superseded { by } => Err(self.superseded(&by)),
            Reply::Open { .. } => Err(malformed()),
        }
    }

    /// Another process may have the name of this gateway since the last command: this one says nothing more in that name.
    fn check_pause(&self) -> Result<(), StoreError> {
        match self.shared.is_paused.load(Ordering::SeqCst) {
            true => Err(StoreError::new(PAUSED, "another process claims")),
            false => Ok(()),
        }
    }

    /// Another session has the place of this one.
    fn superseded(&mut self, by: &str) -> StoreError {
        if self.rivalry.is_own(by) {
            return StoreError::new("stale", "a connection that was given up has begun a session behind this one");
        }
        if self.rivalry.on_superseded(Time::now()) {
            self.claimant.refuse();
            tracing::error!(
                "another process has the identity of this gateway in the store of budgets, from a copy of ai.state: keys with a budget are \
                 refused here until it has ended; give each gateway a state of its own"
            );
        }
        StoreError::new(SUPERSEDED, "another process has the identity of this gateway")
    }

    /// Begins a session, with the first endpoint if that takes one: gateways that stay with different servers would each have a budget.
    fn connect(&mut self) -> Result<StoreConnection, StoreError> {
        self.tried = self.endpoint;
        let opened = self.open(self.tried);
        self.endpoint = match &opened {
            Ok(_) => 0,
            Err(error) if error.reason == PAUSED => self.tried,
            Err(_) => (self.tried + 1) % self.settings.endpoints.len(),
        };
        if opened.is_ok() && self.server.replace(self.tried).is_some_and(|before| before != self.tried) {
            let endpoint = &self.settings.endpoints[self.tried];
            tracing::warn!(
                %endpoint,
                "another server is the store of budgets now: it must be the only one that takes writes, or each server gives out the whole budget"
            );
        }
        opened
    }

    /// Connects, and begins a session.
    fn open(&mut self, endpoint: usize) -> Result<StoreConnection, StoreError> {
        let mut connection = StoreConnection::open(&self.settings, &self.settings.endpoints[endpoint])?;
        self.caller.session = token().map_err(|error| StoreError::new("randomness", error.to_string()))?;
        self.check_pause()?;
        self.rivalry.on_open(&self.caller.session, Time::now());
        let (mut command, has_used) = (Vec::new(), self.claimant.has_used());
        let (hash, prefix) = (&connection.hash, &self.settings.prefix);
        script::open(&mut command, hash, prefix, &self.caller, &connection.run, has_used, GRACE.as_millis() as u64);
        let value = connection.call(&command)?;
        let Reply::Open { epoch, revision } = read(&value, prefix, 0)? else { return Err(malformed()) };
        if epoch != self.caller.epoch {
            if !self.caller.epoch.is_empty() {
                self.shared.status.count_epoch();
                tracing::warn!(
                    "the store of budgets was restarted or has lost data: this gateway puts back what it knows"
                );
            }
            self.claimant.on_new_epoch();
            self.identity.set_epoch(&epoch);
            (self.caller.epoch, self.caller.revision) = (epoch, 0);
        }
        self.caller.revision = self.caller.revision.max(revision);
        Ok(connection)
    }
}

/// No failure: see [`SharedStore::pause`].
const PAUSED: &str = "paused";

/// The reason of a failure: see [`Reply::Superseded`].
const SUPERSEDED: &str = "superseded";

fn read(value: &Value, prefix: &str, requests: usize) -> Result<Reply, StoreError> {
    script::read(value, prefix, requests).map_err(|script::Malformed| malformed())
}

fn malformed() -> StoreError {
    StoreError::new("protocol", "its reply is none of the script's")
}

#[cfg(test)]
mod tests;
