//! The state of a listener that all workers share.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use arc_swap::ArcSwap;
use slab::Slab;
use weir_base::Time;
use weir_flags_codec::metrics::ConnectVia;
use weir_flags_session::{Token, TokenTable, metrics::Aggregates};

use crate::{
    counts::Counts,
    environment::{Environment, lock},
    limits::METRICS_BYTES_MAX,
    usage::Usage,
};

/// Flags, tokens and gathered metrics of a listener. The keeper on the first worker writes them, and requests on all workers read them.
#[derive(Debug)]
pub struct Edge {
    view: ArcSwap<View>,
    watchers: Mutex<Slab<Waker>>,
    /// Tokens to validate.
    wanted: Mutex<HashSet<String>>,
    /// A document lacks a coding that a client accepts.
    lacks_coding: AtomicBool,
    pub(crate) signal: Signal,
    pub(crate) aggregates: Mutex<Aggregates>,
    pub(crate) usage: Mutex<Usage>,
    /// The last report of each edge behind this one.
    pub(crate) instances: Mutex<BTreeMap<String, serde_json::Value>>,
    pub(crate) counts: Counts,
    /// Streams that are open.
    pub(crate) streams: AtomicUsize,
    /// Requests that wait for a verdict on their token.
    pub(crate) waiting: AtomicUsize,
    /// This process in requests to the server.
    pub(crate) identity: ConnectVia,
}

/// The state that requests read: replaced as a whole.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) tokens: TokenTable,
    /// Flags come from a file: a token that is not known is bad, and one environment serves all.
    pub(crate) is_offline: bool,
    /// Backend tokens with which flags are fetched. A request needs one that covers its token.
    pub(crate) sources: Vec<Arc<Token>>,
    /// A source is not validated yet: more may be covered soon.
    pub(crate) awaits_sources: bool,
    /// By their names. An offline gateway has one under the empty name.
    pub(crate) environments: HashMap<Box<str>, Arc<Environment>>,
}

impl Default for Edge {
    /// Without flags and tokens.
    fn default() -> Self {
        let view = View {
            tokens: TokenTable::new(0),
            is_offline: false,
            sources: Vec::new(),
            awaits_sources: true,
            environments: HashMap::new(),
        };
        Self {
            view: ArcSwap::from_pointee(view),
            watchers: Mutex::default(),
            wanted: Mutex::default(),
            lacks_coding: AtomicBool::new(false),
            signal: Signal::default(),
            aggregates: Mutex::new(Aggregates::new(METRICS_BYTES_MAX)),
            usage: Mutex::default(),
            instances: Mutex::default(),
            counts: Counts::default(),
            streams: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            identity: ConnectVia { app_name: "weir".to_owned(), instance_id: crate::identity::instance_id() },
        }
    }
}

impl Edge {
    /// The present state.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Puts another state in its place, and wakes all that watch it.
    pub(crate) fn publish(&self, view: View) {
        self.view.store(Arc::new(view));
        let watchers: Vec<Waker> = lock(&self.watchers).drain().collect();
        watchers.into_iter().for_each(Waker::wake);
    }

    /// Has a token validated.
    pub(crate) fn want(&self, token: &str) {
        let mut wanted = lock(&self.wanted);
        if wanted.len() < crate::limits::VALIDATIONS_MAX {
            wanted.insert(token.to_owned());
        }
        drop(wanted);
        self.signal.notify();
    }

    /// The tokens to validate since the last call.
    pub(crate) fn take_wanted(&self) -> HashSet<String> {
        std::mem::take(&mut *lock(&self.wanted))
    }

    /// Has the codings made that documents lack.
    pub(crate) fn want_coding(&self) {
        self.lacks_coding.store(true, Ordering::Relaxed);
        self.signal.notify();
    }

    /// Whether codings are to be made, since the last call.
    pub(crate) fn take_wanted_coding(&self) -> bool {
        self.lacks_coding.swap(false, Ordering::Relaxed)
    }
}

/// Waits for another state than the one that a request or a stream has seen.
#[derive(Debug)]
pub(crate) struct Watch {
    edge: Arc<Edge>,
    key: Option<usize>,
}

impl Watch {
    pub(crate) const fn new(edge: Arc<Edge>) -> Self {
        Self { edge, key: None }
    }

    /// The state, as soon as it is another one than `seen`.
    pub(crate) fn poll_changed(&mut self, seen: &Arc<View>, context: &mut Context<'_>) -> Poll<Arc<View>> {
        self.leave();
        self.key = Some(lock(&self.edge.watchers).insert(context.waker().clone()));
        // Behind the entry: a state that comes from here on wakes the task.
        let view = self.edge.view();
        if Arc::ptr_eq(&view, seen) {
            return Poll::Pending;
        }
        self.leave();
        Poll::Ready(view)
    }

    /// The same as a future.
    pub(crate) async fn changed(&mut self, seen: &Arc<View>) -> Arc<View> {
        poll_fn(|context| self.poll_changed(seen, context)).await
    }

    fn leave(&mut self) {
        if let Some(key) = self.key.take() {
            // A publication has emptied the list, and the key may be another watcher's by now: that one is woken once in vain.
            if let Some(waker) = lock(&self.edge.watchers).try_remove(key) {
                waker.wake();
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Wakes one task, from any thread.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    is_set: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Signal {
    pub(crate) fn notify(&self) {
        if !self.is_set.swap(true, Ordering::AcqRel) {
            let waker = lock(&self.waker).take();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns once it has been notified, also before the call.
    pub(crate) async fn wait(&self) {
        poll_fn(|context| {
            *lock(&self.waker) = Some(context.waker().clone());
            match self.is_set.swap(false, Ordering::AcqRel) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

impl View {
    /// The environment of a token.
    pub(crate) fn environment(&self, token: &Token) -> Option<&Arc<Environment>> {
        let name = if self.is_offline { "" } else { token.environment().unwrap_or_default() };
        self.environments.get(name)
    }

    /// Whether flags are fetched for a token.
    pub(crate) fn is_covered(&self, token: &Token) -> bool {
        self.is_offline || self.sources.iter().any(|source| source.covers(token))
    }
}

/// Seconds since 1970.
pub(crate) fn unix_time() -> std::time::Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// A number that strangers cannot guess.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(Time::now().as_nanos())
}
