//! Keyed pools of whole connections: each serves one client at a time, and is logged in as its key says (PostgreSQL, MongoDB).
//!
//! The limit of a key is one for the process, and a connection lives on one worker. The **ledger** of an endpoint, behind a lock,
//! counts the permits of all keys and has one line per key with those that wait on any worker. A client with an idle connection on
//! its worker never comes there. A connection that comes back stays on its worker unless somebody waits; then the ledger says for
//! whom it is. For one on another worker its descriptor moves there, with the state that the protocol has of it.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | options that an operator may choose |
//! | `protocol` | the trait of a wire protocol |
//! | `account` / `ledger` | connections and waiters of one key; of all keys of one endpoint (pure) |
//! | `shared` / `permit` / `slot` | the ledger behind its lock; the right to one connection; what one that waits gets |
//! | `connection` | one connection, idle or lent |
//! | `member` / `pool` | the connections of a key on one worker, at one endpoint and at all |
//! | `wait` | one client's wait |
//! | `fitness` | which endpoints take connections |
//! | `aside` | a connection beside the pools |
//! | `upkeep` | idle connections: age, checks, other workers |
//! | `counts` / `listing` | figures, and the connections one by one, for operators |

mod account;
mod aside;
mod connection;
mod counts;
mod fitness;
mod ledger;
mod listing;
mod member;
mod permit;
mod pool;
mod protocol;
mod settings;
mod shared;
mod slot;
mod upkeep;
mod wait;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::poll_fn,
    io,
    rc::{Rc, Weak},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use weir_base::{
    exchange::Refusal,
    rng::Rng,
    time::{Time, turn},
};
use weir_engine::{JoinHandle, Stream, timeout};
use weir_telemetry::CoreMetrics;

pub use self::{
    aside::{AsideConnection, OwnConnection},
    connection::{Condition, PooledConnection},
    counts::PoolCounts,
    fitness::Fitness,
    ledger::Scope,
    listing::ConnectionStatus,
    pool::Pool,
    protocol::{IdleVerdict, LoginError, LoginTarget, PooledProtocol},
    settings::{
        MIN_POOL_SIZE, POOL_SIZE, PooledSettings, RESERVE_POOL_SIZE, RESERVE_POOL_TIMEOUT, SERVER_CHECK_DELAY,
        SERVER_IDLE_TIMEOUT, SERVER_LIFETIME, UPKEEP_TIMEOUT, WAITERS_MAX,
    },
    shared::PoolShare,
    wait::{AcquireError, Patience},
};
use self::{pool::Context, shared::EndpointLedger, upkeep::IDLE_LOOK};
use crate::{
    bell::Bell,
    ejection::ExchangeOutcome,
    endpoint::{Endpoint, EndpointShare},
    endpoints::Endpoints,
    health::Probe,
    metrics::UpstreamMetrics,
    settings::UpstreamSettings,
};

/// The number of the next upstream of the process.
static NEXT_WORKER: AtomicUsize = AtomicUsize::new(0);

/// One named upstream on one worker.
pub struct PooledUpstream<P: PooledProtocol> {
    context: Rc<Context<P>>,
    /// In the order of the endpoints.
    ledgers: Vec<Arc<EndpointLedger<P>>>,
    pools: RefCell<HashMap<P::Key, Rc<Pool<P>>>>,
    me: Weak<Self>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl<P: PooledProtocol> PooledUpstream<P> {
    /// Bytes of the objects of one connection, without buffers.
    pub const CONNECTION_BYTES: usize = size_of::<connection::Connection<P>>();

    /// Prepares an upstream; connects nothing. `shares` has one entry per endpoint, the same on all workers; `probe` is given on the one
    /// worker that probes for all.
    ///
    /// # Errors
    /// No endpoint, or TLS files that cannot be read.
    pub fn new(
        settings: UpstreamSettings,
        pooled: PooledSettings,
        protocol: P,
        shares: &[Arc<EndpointShare>],
        metrics: UpstreamMetrics,
        probe: Option<impl Probe + 'static>,
    ) -> io::Result<Rc<Self>> {
        let endpoints = Endpoints::new(settings, pooled.balancing.clone(), shares, metrics)?;
        let bell = Arc::<Bell>::default();
        let ledgers: Vec<_> = endpoints.all().iter().map(|endpoint| endpoint.pools().ledger::<P>()).collect();
        ledgers.iter().for_each(|ledger| ledger.enter(&bell, &pooled));
        let worker = NEXT_WORKER.fetch_add(1, Ordering::Relaxed);
        let context = Rc::new(Context {
            endpoints,
            protocol,
            settings: pooled,
            bell,
            worker,
            rng: RefCell::new(Rng::new(Time::now().as_nanos() ^ worker as u64)),
            is_retired: Cell::new(false),
        });
        let upstream = Rc::new_cyclic(|me| Self {
            context,
            ledgers,
            pools: RefCell::default(),
            me: me.clone(),
            tasks: RefCell::default(),
        });
        upstream.start_tasks(probe);
        Ok(upstream)
    }

    fn start_tasks(&self, probe: Option<impl Probe + 'static>) {
        let (me, bell) = (self.me.clone(), self.context.bell.clone());
        let mut tasks = vec![weir_engine::spawn(async move {
            let mut next_look = turn::now().saturating_add(IDLE_LOOK);
            loop {
                let _ = timeout(next_look.since(turn::now()), bell.rung()).await;
                let Some(upstream) = me.upgrade() else { return };
                let is_due = turn::now() >= next_look;
                if is_due {
                    next_look = turn::now().saturating_add(IDLE_LOOK);
                }
                upstream.attend(is_due);
            }
        })];
        if let Some(probe) = probe {
            let open = async |endpoint: &Endpoint, _| endpoint.connector().connect_for_session(P::NEGOTIATES_TLS).await;
            tasks.extend(self.context.endpoints.probe(probe, open));
        }
        *self.tasks.borrow_mut() = tasks;
    }

    /// Rung or not: a connection may have become idle since the bell was heard.
    fn attend(&self, is_due: bool) {
        let pools: Vec<_> = self.pools.borrow().values().cloned().collect();
        for pool in &pools {
            pool.attend();
            if is_due {
                // This list has one, and the table.
                pool.tidy(Rc::strong_count(pool) > 2);
            }
        }
        drop(pools);
        if is_due {
            self.context.endpoints.publish_breakers();
            let before = self.pools.borrow().len();
            let is_used =
                |pool: &Rc<Pool<P>>| Rc::strong_count(pool) > 1 || pool.members.iter().any(|member| member.has_idle());
            self.pools.borrow_mut().retain(|_, pool| is_used(pool));
            if self.pools.borrow().len() < before {
                self.ledgers.iter().for_each(|ledger| ledger.prune());
            }
        }
    }

    /// The pool of `key`. A session keeps it: this costs a hash of the key.
    pub fn pool(&self, key: &P::Key) -> Rc<Pool<P>> {
        if let Some(pool) = self.pools.borrow().get(key) {
            return pool.clone();
        }
        let pool = Pool::new(&self.context, key);
        self.pools.borrow_mut().insert(key.clone(), pool.clone());
        pool
    }

    /// The protocol.
    pub fn protocol(&self) -> &P {
        &self.context.protocol
    }

    /// The servers of the upstream.
    pub fn endpoints(&self) -> &Endpoints {
        &self.context.endpoints
    }

    /// The settings that it was made with.
    pub fn settings(&self) -> &UpstreamSettings {
        self.context.endpoints.settings()
    }

    /// Those of its pools.
    pub fn pooled_settings(&self) -> &PooledSettings {
        &self.context.settings
    }

    /// How an exchange with endpoint number `number` ended, and how long its response took to begin.
    pub fn note(&self, number: usize, outcome: ExchangeOutcome, took: Option<Duration>) {
        self.context.endpoints.note(number, outcome, took);
    }

    /// The cells that the protocol has for endpoint number `number`. They are made once, from the name of the upstream and that of the
    /// endpoint.
    pub fn own_metrics<T: 'static>(&self, number: usize, make: impl FnOnce(&CoreMetrics, [&str; 2]) -> T) -> Rc<T> {
        self.context.endpoints.get(number).metrics().own(make)
    }

    /// A connection beside the pools, which no limit counts and which is not logged in: for one request to the server, as to cancel
    /// another one.
    ///
    /// # Errors
    /// The endpoint cannot be reached.
    pub async fn connect_aside(&self, number: usize) -> Result<(Stream, LoginTarget), Refusal> {
        let endpoint = self.context.endpoints.get(number);
        let stream = endpoint.connector().connect_for_session(P::NEGOTIATES_TLS).await;
        let stream = stream.map_err(|error| error.refusal)?;
        Ok((stream, LoginTarget { endpoint, number }))
    }

    /// All workers of the process use no connection of `scope` from now on: idle ones are closed, others when they come back. Those
    /// that want one wait. See [`PooledUpstream::drained`].
    pub fn pause(&self, scope: &Scope<P::Key>) {
        self.ledgers.iter().for_each(|ledger| ledger.pause(scope));
    }

    /// Connections of `scope` are made again. `Scope::All` ends all pauses.
    pub fn resume(&self, scope: &Scope<P::Key>) {
        for ledger in &self.ledgers {
            ledger.change(|ledger| {
                ledger.set_paused(scope, false);
                ledger.launch_all(turn::now())
            });
        }
    }

    /// Each connection of `scope` that stands now is closed when it is free, and others are made.
    pub fn reconnect(&self, scope: &Scope<P::Key>) {
        for ledger in &self.ledgers {
            ledger.with(|ledger| ledger.reconnect(scope));
            ledger.ring_all();
        }
    }

    /// Ready once no connection of `scope` is left on any worker. Only a pause leads there for certain.
    pub async fn drained(&self, scope: &Scope<P::Key>) {
        for ledger in &self.ledgers {
            poll_fn(|context| ledger.poll_drained(scope, context)).await;
        }
    }

    /// Connections of `key` are not used now.
    pub fn is_paused(&self, key: &P::Key) -> bool {
        self.ledgers.iter().any(|ledger| ledger.with(|ledger| ledger.is_key_paused(key)))
    }

    /// No connection is used now, of whatever key.
    pub fn is_all_paused(&self) -> bool {
        self.ledgers.iter().any(|ledger| ledger.with(|ledger| ledger.is_all_paused()))
    }

    /// The scopes of [`PooledUpstream::pause`] that hold now at any endpoint, each once. An upstream that replaces this one is not paused by
    /// itself where it has other endpoints.
    pub fn pauses(&self) -> Vec<Scope<P::Key>> {
        let mut pauses: Vec<Scope<P::Key>> = Vec::new();
        for scope in self.ledgers.iter().flat_map(|ledger| ledger.with(|ledger| ledger.pauses())) {
            if !pauses.contains(&scope) {
                pauses.push(scope);
            }
        }
        pauses
    }

    /// The connections of all workers, for each key and endpoint that has any, or is waited for.
    pub fn counts(&self) -> Vec<PoolCounts<P::Key>> {
        self.ledgers.iter().enumerate().flat_map(|(number, ledger)| ledger.counts(number)).collect()
    }

    /// Takes no part in anything new: it was replaced.
    pub fn retire(&self) {
        self.context.is_retired.set(true);
        // Its successor probes now: two probes could report different states of one endpoint.
        self.tasks.borrow_mut().truncate(1);
        let pools: Vec<_> = self.pools.borrow().values().cloned().collect();
        pools.iter().for_each(|pool| pool.close_idle());
    }
}

#[cfg(test)]
mod tests;
