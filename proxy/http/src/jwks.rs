//! Keys of tokens, fetched from who issues them.
//!
//! The first token fetches them, and all that come meanwhile wait for the same answer. They are used until newer ones are there:
//! an issuer that is down for a while costs nobody a login. A token of an unknown key fetches them again, but not often: anybody
//! can write such a token.

use std::{
    future::poll_fn,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use weir_base::time::{Time, turn};
use weir_http_codec::{Fields, HeadLimits, RequestHead, Version};
use weir_policy::http::{JWKS_BYTES_MAX, KeySet, SharedKeys};
use weir_telemetry::log::{LogEvent, UpstreamChange, UpstreamEvent};

use crate::{
    connection::Connection, refusal::Refusal, relay::Copied, routes::Routes, service::Service, subrequest::Subrequest,
};

/// How old keys may become. Default 5 min, as Envoy's `cache_duration`.
pub const REFRESH: Duration = Duration::from_secs(300);

/// How long fetching them may take. As Envoy's examples.
const FETCH_TIMEOUT: Duration = Duration::from_secs(1);

/// Between two fetches of which the first failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Between two fetches because of unknown keys.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(10);

/// The keys of one issuer, and where they are.
#[derive(Debug)]
pub struct RemoteKeys {
    /// The upstream that has them.
    pub upstream: Arc<str>,
    /// Their path there.
    pub path: Box<str>,
    /// The Host of the request. `None`: that of the upstream's first endpoint.
    pub host: Option<Box<str>>,
    /// See [`REFRESH`].
    pub refresh: Duration,
    /// The keys.
    pub keys: Arc<SharedKeys>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the keys that are there.
    fetched: Option<Time>,
    /// As it came.
    document: Option<String>,
    tried: Option<Time>,
    is_fetching: bool,
    /// Those that are over.
    fetches: u64,
    /// Who waits for the end of the fetch, on any worker.
    waiting: Vec<Waker>,
}

impl RemoteKeys {
    /// None yet.
    pub fn new(upstream: Arc<str>, path: &str, host: Option<&str>, refresh: Duration, keys: Arc<SharedKeys>) -> Self {
        Self { upstream, path: path.into(), host: host.map(Into::into), refresh, keys, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever gets true fetches them.
    fn begins(&self, pause: Duration) -> bool {
        let (mut state, now) = (self.state(), turn::now());
        let may = !state.is_fetching && state.tried.is_none_or(|tried| now.since(tried) >= pause);
        if may {
            (state.is_fetching, state.tried) = (true, Some(now));
        }
        may
    }

    /// Ready when the fetch under way is over; `place` is the caller's among those who wait for it.
    fn poll_fetched(&self, place: &mut Option<(u64, usize)>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let fetch = state.fetches;
        match place {
            Some((known, _)) if *known != fetch => return Poll::Ready(()),
            _ if !state.is_fetching => return Poll::Ready(()),
            Some((_, at)) => state.waiting[*at].clone_from(context.waker()),
            None => {
                *place = Some((fetch, state.waiting.len()));
                state.waiting.push(context.waker().clone());
            }
        }
        Poll::Pending
    }

    fn is_same_place(&self, other: &Self) -> bool {
        (&self.upstream, &self.path, &self.host) == (&other.upstream, &other.path, &other.host)
            && self.keys.allowed() == other.keys.allowed()
    }
}

/// Old keys are fetched again while they go on being used.
pub(crate) fn refresh(all: &[Arc<RemoteKeys>], connection: &Connection) {
    for keys in all {
        let fetched = keys.state().fetched;
        let is_old = fetched.is_some_and(|fetched| turn::now().since(fetched) >= keys.refresh);
        if is_old && keys.begins(RETRY_PAUSE) {
            start(&connection.service, keys);
        }
    }
}

/// Keys that are not there or may have changed, so that a token of an unknown one is good after all. What other keys can decide
/// does not wait for them.
pub(crate) fn due(all: &[Arc<RemoteKeys>]) -> Option<Arc<RemoteKeys>> {
    if let Some(missing) = all.iter().find(|keys| keys.state().fetched.is_none()) {
        return Some(missing.clone());
    }
    let may_change = |keys: &&Arc<RemoteKeys>| {
        let state = keys.state();
        state.is_fetching || state.tried.is_none_or(|tried| turn::now().since(tried) >= UNKNOWN_PAUSE)
    };
    all.iter().find(may_change).cloned()
}

/// Waits until they are there, or newer ones if some are.
///
/// # Errors
/// No keys could be had.
pub(crate) async fn fetch(connection: &Connection, keys: &Arc<RemoteKeys>) -> Result<(), Refusal> {
    if keys.begins(RETRY_PAUSE) {
        start(&connection.service, keys);
    }
    let mut place = None;
    poll_fn(|context| keys.poll_fetched(&mut place, context)).await;
    if keys.state().fetched.is_some() {
        return Ok(());
    }
    connection.service.metrics.denied(Refusal::JWKS_UNAVAILABLE.reason);
    Err(Refusal::JWKS_UNAVAILABLE)
}

/// In a task of its own: the client that was the first to need them may go.
fn start(service: &Rc<Service>, keys: &Arc<RemoteKeys>) {
    let (service, fetching) = (service.clone(), Fetching(keys.clone()));
    weir_engine::spawn(async move {
        let keys = &fetching.0;
        let made = match document(&service, keys).await {
            // What it has decided goes on.
            Some(document) if keys.state().document.as_deref() == Some(&*document) => Ok((document, None)),
            Some(document) => KeySet::from_jwks(&document, keys.keys.allowed())
                .map(|made| (document, Some(made)))
                .map_err(|_| "the document has no key that can be used"),
            None => Err("no document came"),
        };
        match made {
            Ok((document, made)) => {
                made.into_iter().for_each(|made| keys.keys.set(Arc::new(made)));
                let mut state = keys.state();
                (state.fetched, state.document) = (Some(turn::now()), Some(document));
                drop(state);
                service.metrics.keys_fetched("ok");
            }
            Err(why) => {
                service.metrics.keys_fetched("failed");
                // One fetch a second at most, so that no further sampling is needed.
                service.sessions.core().log.push(LogEvent::Upstream(UpstreamEvent {
                    at: turn::now(),
                    upstream: keys.upstream.clone(),
                    endpoint: Arc::from(&*keys.path),
                    change: UpstreamChange::JwksFailed,
                    reason: Refusal::JWKS_UNAVAILABLE.reason,
                    detail: Some(why.into()),
                    suppressed: 0,
                }));
            }
        }
    })
    .detach();
}

/// The document, if there is one.
async fn document(service: &Service, keys: &RemoteKeys) -> Option<String> {
    let routing = service.routing();
    let upstream = routing.upstream(&keys.upstream)?;
    let first = upstream.settings().endpoints.first().map(ToString::to_string).unwrap_or_default();
    let host = keys.host.as_deref().unwrap_or(&first).as_bytes();
    let mut fields = Fields::new();
    fields.push(b"Accept", b"application/json");
    let line = (&b"GET"[..], keys.path.as_bytes(), host);
    let head = RequestHead::from_parts(Version::Http11, line, fields, true, &HeadLimits::default()).ok()?;
    let (timeout, idle_timeout) = (FETCH_TIMEOUT, FETCH_TIMEOUT);
    let limit = Some(FETCH_TIMEOUT);
    let request = Subrequest { head: &head, host, body: b"", is_head: false, timeout, idle_timeout, limit };
    let mut body = Copied::new(JWKS_BYTES_MAX);
    let answer = request.ask(service, upstream, &mut body).await.ok()?;
    (answer.head.status() == 200 && answer.is_whole)
        .then(|| body.take())
        .flatten()
        .and_then(|body| String::from_utf8(body).ok())
}

/// Keys that stand in a new configuration as they stood in the old one are there at once.
pub(crate) fn keep(old: &Routes, new: &Routes) {
    fn all(routes: &Routes) -> impl Iterator<Item = &Arc<RemoteKeys>> {
        routes
            .table
            .routes()
            .iter()
            .filter_map(|route| route.action.policies.as_ref())
            .flat_map(|policies| &policies.keys)
    }
    for keys in all(new) {
        let same = all(old).find(|old| !Arc::ptr_eq(old, keys) && old.is_same_place(keys));
        if let Some(same) = same
            && keys.state().fetched.is_none()
            && let Some(known) = same.keys.current()
        {
            keys.keys.set(known);
            let of_same = same.state();
            let (fetched, document) = (of_same.fetched, of_same.document.clone());
            drop(of_same);
            let mut state = keys.state();
            (state.fetched, state.document) = (fetched, document);
        }
    }
}

/// See [`RemoteKeys::begins`].
struct Fetching(Arc<RemoteKeys>);

impl Drop for Fetching {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.state();
            state.is_fetching = false;
            state.fetches += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}
