//! The state of a listener that all workers share.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    future::poll_fn,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use arc_swap::ArcSwap;
use slab::Slab;
use weir_base::{Rng, Time};
use weir_flags_codec::metrics::ConnectVia;
use weir_flags_session::{Token, TokenTable, limits::TOKENS_PENDING_MAX, metrics::Aggregates};

use crate::{
    counts::Counts,
    environment::{Environment, lock},
    limits::{METRICS_BYTES_MAX, PENDING_PER_SOURCE_MAX, VALIDATE_REQUESTS_MAX, VALIDATE_REQUESTS_PER_SOURCE_MAX},
    shares::Shares,
    usage::Usage,
};

/// Flags, tokens and gathered metrics of a listener. The keeper on the first worker writes them, and requests on all workers read them.
pub struct Edge {
    view: ArcSwap<View>,
    /// By [`Watched`].
    watchers: [Mutex<Watchers>; 2],
    wanted: Mutex<Wanted>,
    /// Tokens that wait for a verdict, by their sources.
    pending: Shares,
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
    /// Requests of `/edge/validate` that wait for verdicts.
    pub(crate) validations: Shares,
    /// This process in requests to the server.
    identity: ArcSwap<ConnectVia>,
}

/// Without texts of tokens, which are secrets.
impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (view, wanted) = (self.view(), lock(&self.wanted).sources.len());
        f.debug_struct("Edge").field("view", &view).field("wanted", &wanted).finish_non_exhaustive()
    }
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
            watchers: Default::default(),
            wanted: Mutex::default(),
            pending: Shares::new(TOKENS_PENDING_MAX, PENDING_PER_SOURCE_MAX),
            signal: Signal::default(),
            aggregates: Mutex::new(Aggregates::new(METRICS_BYTES_MAX)),
            usage: Mutex::default(),
            instances: Mutex::default(),
            counts: Counts::default(),
            streams: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            validations: Shares::new(VALIDATE_REQUESTS_MAX, VALIDATE_REQUESTS_PER_SOURCE_MAX),
            identity: ArcSwap::from_pointee(ConnectVia {
                app_name: "weir".to_owned(),
                instance_id: crate::identity::instance_id(),
            }),
        }
    }
}

impl Edge {
    /// The present state.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Whether the first flags of a good token are on their way.
    pub(crate) fn awaits_flags(&self, view: &View, token: &Token) -> bool {
        let is_failing = |name: &str| self.counts.is_failing(name);
        !view.is_offline
            && view.environment(token).is_none()
            && token.environment().is_some_and(|name| !is_failing(name))
    }

    /// This process in requests to the server.
    pub(crate) fn identity(&self) -> Arc<ConnectVia> {
        self.identity.load_full()
    }

    /// Gives this process another name. That of the instance stays.
    pub(crate) fn set_app_name(&self, app_name: &str) {
        let instance_id = self.identity().instance_id.clone();
        self.identity.store(Arc::new(ConnectVia { app_name: app_name.to_owned(), instance_id }));
    }

    /// Puts another state in its place, and wakes all that watch it. `changed`: a state with other verdicts on bad and new tokens alone wakes no
    /// stream.
    pub(crate) fn publish(&self, view: View, changed: Watched) {
        self.view.store(Arc::new(view));
        for watched in [Watched::Verdicts, Watched::Flags] {
            if watched == Watched::Verdicts || changed == Watched::Flags {
                let watchers = lock(self.watchers(watched)).take();
                watchers.into_iter().for_each(Waker::wake);
            }
        }
    }

    fn watchers(&self, watched: Watched) -> &Mutex<Watchers> {
        let [verdicts, flags] = &self.watchers;
        match watched {
            Watched::Verdicts => verdicts,
            Watched::Flags => flags,
        }
    }

    /// Has a token validated. False: too many tokens wait, or too many of this source, and the request is to come again.
    pub(crate) fn want(&self, token: &str, source: IpAddr) -> bool {
        let token = token.trim();
        let mut wanted = lock(&self.wanted);
        if wanted.sources.contains_key(token) {
            return true;
        }
        if !self.pending.take(source) {
            return false;
        }
        wanted.sources.insert(token.to_owned(), source);
        wanted.fresh.push(token.to_owned());
        drop(wanted);
        self.signal.notify();
        true
    }

    /// The tokens to validate since the last call.
    pub(crate) fn take_wanted(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.wanted).fresh)
    }

    /// Has the tokens that wait validated by another keeper.
    pub(crate) fn want_again(&self) {
        let mut wanted = lock(&self.wanted);
        wanted.fresh = wanted.sources.keys().cloned().collect();
    }

    /// These tokens no longer wait.
    pub(crate) fn settle(&self, tokens: &[String]) {
        let mut wanted = lock(&self.wanted);
        let sources = tokens.iter().filter_map(|token| wanted.sources.remove(token.trim()));
        sources.for_each(|source| self.pending.give_back(source));
    }
}

/// Tokens that wait for a verdict.
#[derive(Default)]
struct Wanted {
    /// Those that the keeper does not have yet.
    fresh: Vec<String>,
    /// All, with the addresses that have sent them first.
    sources: HashMap<String, IpAddr>,
}

/// The parts of the state that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// Verdicts on tokens, and all else: a request that waits.
    Verdicts,
    /// Flags, and tokens that are no longer good: a stream.
    Flags,
}

/// The tasks that wait for another state.
#[derive(Debug, Default)]
struct Watchers {
    wakers: Slab<Waker>,
    /// Counts the publications: a key of an earlier one is no longer its watch's own.
    epoch: u64,
}

impl Watchers {
    /// Adds a task. The place is its own until the next publication.
    fn insert(&mut self, waker: Waker) -> WatchPlace {
        WatchPlace { key: self.wakers.insert(waker), epoch: self.epoch }
    }

    /// Removes a task, unless a publication has done so.
    fn remove(&mut self, place: WatchPlace) {
        if place.epoch == self.epoch {
            self.wakers.try_remove(place.key);
        }
    }

    /// All tasks, to be woken by a publication.
    fn take(&mut self) -> Vec<Waker> {
        self.epoch += 1;
        self.wakers.drain().collect()
    }
}

/// The place of a task among those that wait.
#[derive(Clone, Copy, Debug)]
struct WatchPlace {
    key: usize,
    epoch: u64,
}

/// Waits for another state than the one that a request or a stream has seen.
#[derive(Debug)]
pub(crate) struct Watch {
    edge: Arc<Edge>,
    watched: Watched,
    place: Option<WatchPlace>,
}

impl Watch {
    pub(crate) const fn new(edge: Arc<Edge>, watched: Watched) -> Self {
        Self { edge, watched, place: None }
    }

    /// The state, as soon as it is another one than `seen`.
    pub(crate) fn poll_changed(&mut self, seen: &Arc<View>, context: &mut Context<'_>) -> Poll<Arc<View>> {
        self.leave();
        self.place = Some(lock(self.edge.watchers(self.watched)).insert(context.waker().clone()));
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
        if let Some(place) = self.place.take() {
            lock(self.edge.watchers(self.watched)).remove(place);
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
    /// A map from the names of all environments to their flags, as JSON. Takes milliseconds: to be called off the workers.
    pub(crate) fn all_documents(&self) -> Vec<u8> {
        let mut all = vec![b'{'];
        for (at, (name, environment)) in self.environments.iter().enumerate() {
            if at > 0 {
                all.push(b',');
            }
            weir_flags_codec::delta::string(&mut all, name);
            all.push(b':');
            all.extend_from_slice(&environment.whole_json());
        }
        all.push(b'}');
        all
    }

    /// The environment of a token.
    pub(crate) fn environment(&self, token: &Token) -> Option<&Arc<Environment>> {
        let name = if self.is_offline { "" } else { token.environment().unwrap_or_default() };
        self.environments.get(name)
    }

    /// Whether an environment has flags, or a token with which they are fetched. An offline gateway has one alone, under the empty name.
    pub(crate) fn knows(&self, environment: &str) -> bool {
        let is_source = |source: &Arc<Token>| source.environment().unwrap_or_default() == environment;
        match self.is_offline {
            true => environment.is_empty(),
            false => self.environments.contains_key(environment) || self.sources.iter().any(is_source),
        }
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

/// A number from the lowest to the highest, so that clients that were sent away together do not come back together.
pub(crate) fn random_in((low, high): (u64, u64)) -> u64 {
    low + Rng::new(seed()).below(high - low + 1)
}

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv4Addr,
        sync::atomic::AtomicU32,
        task::{Wake, Waker},
    };

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn view() -> View {
        View {
            tokens: TokenTable::new(1),
            is_offline: true,
            sources: Vec::new(),
            awaits_sources: false,
            environments: HashMap::new(),
        }
    }

    #[test]
    fn an_offline_gateway_knows_no_environment_of_a_server_before() {
        let sources = vec![Arc::new(Token::parse("*:development.s").expect("a token"))];
        let online = View { is_offline: false, sources, ..view() };
        assert_eq!(["", "development", "production"].map(|name| online.knows(name)), [false, true, false]);
        assert_eq!(["", "development", "production"].map(|name| view().knows(name)), [true, false, false]);
    }

    #[test]
    fn an_edge_that_is_shown_shows_no_token() {
        let edge = Edge::default();
        assert!(edge.want("*:development.a-secret", Ipv4Addr::LOCALHOST.into()));
        let shown = format!("{edge:?}");
        assert!(!shown.contains("a-secret") && shown.contains("wanted: 1"), "{shown}");
    }

    #[test]
    fn f8_a_source_that_makes_tokens_up_leaves_room_for_others() {
        let edge = Edge::default();
        let [one, other]: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv4Addr::BROADCAST.into()];
        let taken = (0..1_000).filter(|number| edge.want(&format!("*:development.{number}"), one)).count();
        assert_eq!(taken, PENDING_PER_SOURCE_MAX);
        assert!(edge.want("*:development.0", one), "it waits already");
        assert!(edge.want(" *:development.honest ", other) && edge.take_wanted().len() == taken + 1);
        edge.settle(&["*:development.0".to_owned(), "*:development.honest".to_owned()]);
        assert!(edge.want("*:development.new", one) && !edge.want("*:development.newer", one));
        edge.want_again();
        assert_eq!(edge.take_wanted().len(), taken);
    }

    #[test]
    fn a_watch_wakes_for_publications_alone() {
        let edge = Arc::new(Edge::default());
        let wakes: [Arc<Wakes>; 2] = Default::default();
        let wakers = wakes.each_ref().map(|it| Waker::from(it.clone()));
        let woken = || wakes.each_ref().map(|it| it.0.load(Ordering::Relaxed));
        let [mut first, mut second] =
            [Watched::Flags, Watched::Verdicts].map(|watched| Watch::new(edge.clone(), watched));
        let seen = edge.view();
        for _ in 0..3 {
            assert!(first.poll_changed(&seen, &mut Context::from_waker(&wakers[0])).is_pending());
            assert!(second.poll_changed(&seen, &mut Context::from_waker(&wakers[1])).is_pending());
        }
        assert_eq!(woken(), [0, 0], "a second poll wakes nobody");
        edge.publish(view(), Watched::Flags);
        assert_eq!(woken(), [1, 1]);
        assert!(second.poll_changed(&seen, &mut Context::from_waker(&wakers[1])).is_ready());
        assert!(second.poll_changed(&edge.view(), &mut Context::from_waker(&wakers[1])).is_pending());
        let seen = edge.view();
        assert!(first.poll_changed(&seen, &mut Context::from_waker(&wakers[0])).is_pending());
        edge.publish(view(), Watched::Verdicts);
        assert_eq!(woken(), [1, 2], "no stream wakes for a verdict on a new token");
        assert!(second.poll_changed(&edge.view(), &mut Context::from_waker(&wakers[1])).is_pending());
        drop(first);
        edge.publish(view(), Watched::Flags);
        assert_eq!(woken(), [1, 3], "a watch that leaves late takes no other's place");
    }
}
