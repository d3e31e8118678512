//! Keys of tokens, fetched from who issues them.
//!
//! The first token fetches them, and all tokens that come meanwhile wait for the same response. They are used until newer ones arrive: an
//! issuer that is down for a while costs no client its login. A token of an unknown key fetches them again, but not often: any client can
//! write such a token.

use std::{
    future::poll_fn,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use weir_base::time::{Time, turn};
use weir_engine::wake_elsewhere;
use weir_http_codec::{Fields, HeadLimits, RequestHead, Version};
use weir_policy::http::{JWKS_BYTES_MAX, KeySet, SharedKeys};
use weir_telemetry::log::{LogEvent, LogWriter, UpstreamChange, UpstreamEvent};

use crate::{
    body::BodyCopy, metrics::ListenerMetrics, refusal::Refusal, subrequest::Subrequest, upstream::HttpUpstream,
};

/// Greatest age of keys. Default 5 min, as Envoy's `cache_duration`.
pub const REFRESH: Duration = Duration::from_secs(300);

/// Timeout of a fetch, as in Envoy's examples.
const FETCH_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause after a failed fetch.
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
    /// Time of the present keys.
    fetched: Option<Time>,
    /// The document as it was fetched.
    document: Option<String>,
    tried: Option<Time>,
    is_fetching: bool,
    /// Number of finished fetches.
    fetches: u64,
    /// Wakers of the requests that wait for the fetch, on any worker.
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

    /// The caller that gets true fetches them.
    fn try_begin(&self, pause: Duration) -> bool {
        let (mut state, now) = (self.state(), turn::now());
        let may = !state.is_fetching && state.tried.is_none_or(|tried| now.since(tried) >= pause);
        if may {
            (state.is_fetching, state.tried) = (true, Some(now));
        }
        may
    }

    /// Ready when the fetch under way is over; `ticket` is the caller's among those who wait for it.
    fn poll_fetched(&self, ticket: &mut Option<(u64, usize)>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let fetch = state.fetches;
        match ticket {
            Some((known, _)) if *known != fetch => return Poll::Ready(()),
            _ if !state.is_fetching => return Poll::Ready(()),
            Some((_, at)) => state.waiting[*at].clone_from(context.waker()),
            None => {
                *ticket = Some((fetch, state.waiting.len()));
                state.waiting.push(context.waker().clone());
            }
        }
        Poll::Pending
    }

    /// Takes the keys that stood in the configuration before, if they are of the same place, so that they are there at once.
    pub(crate) fn adopt(&self, other: &Self) {
        if self.state().fetched.is_none()
            && let Some(known) = other.keys.current()
        {
            self.keys.set(known);
            let of_other = other.state();
            let (fetched, document) = (of_other.fetched, of_other.document.clone());
            drop(of_other);
            let mut state = self.state();
            (state.fetched, state.document) = (fetched, document);
        }
    }

    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        (&self.upstream, &self.path, &self.host) == (&other.upstream, &other.path, &other.host)
            && self.keys.allowed() == other.keys.allowed()
    }
}

/// Old keys are fetched again while they go on being used.
pub(crate) fn refresh(all: &[Arc<RemoteKeys>], fetch: impl Fn(&Arc<RemoteKeys>) -> Fetch) {
    for keys in all {
        let fetched = keys.state().fetched;
        let is_old = fetched.is_some_and(|fetched| turn::now().since(fetched) >= keys.refresh);
        if is_old && keys.try_begin(RETRY_PAUSE) {
            fetch(keys).start();
        }
    }
}

/// Keys that are missing or may have changed, so that a token of an unknown key may be valid after all. A token that other keys can
/// verify does not wait for them.
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

/// A fetch of the keys of one issuer, for one listener.
pub(crate) struct Fetch {
    pub(crate) keys: Arc<RemoteKeys>,
    /// `None`: it is not among the upstreams of the listener.
    pub(crate) upstream: Option<Rc<HttpUpstream>>,
    pub(crate) metrics: Rc<ListenerMetrics>,
    pub(crate) log: LogWriter,
}

impl Fetch {
    /// Waits until the keys are there, or newer ones if some are.
    ///
    /// # Errors
    /// No keys could be fetched.
    pub(crate) async fn wait(self) -> Result<(), Refusal> {
        let (keys, metrics) = (self.keys.clone(), self.metrics.clone());
        if keys.try_begin(RETRY_PAUSE) {
            self.start();
        }
        let mut ticket = None;
        poll_fn(|context| keys.poll_fetched(&mut ticket, context)).await;
        if keys.state().fetched.is_some() {
            return Ok(());
        }
        metrics.denied(Refusal::JWKS_UNAVAILABLE.reason);
        Err(Refusal::JWKS_UNAVAILABLE)
    }

    /// Begins, in a task of its own: the client that was the first to need the keys may go.
    fn start(self) {
        let guard = FetchGuard(self.keys.clone());
        weir_engine::spawn(async move {
            let keys = &guard.0;
            let made = match self.document().await {
                // Its earlier verdicts stay valid.
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
                    self.metrics.keys_fetched("ok");
                }
                Err(why) => self.failed(why),
            }
        })
        .detach();
    }

    fn failed(&self, why: &'static str) {
        self.metrics.keys_fetched("failed");
        // One fetch a second at most, so that no further sampling is needed.
        self.log.push(LogEvent::Upstream(UpstreamEvent {
            at: turn::now(),
            upstream: self.keys.upstream.clone(),
            endpoint: Arc::from(&*self.keys.path),
            change: UpstreamChange::JwksFailed,
            reason: Refusal::JWKS_UNAVAILABLE.reason,
            detail: Some(why.into()),
            suppressed: 0,
        }));
    }

    /// The document, if there is one.
    async fn document(&self) -> Option<String> {
        let (keys, upstream) = (&self.keys, self.upstream.as_ref()?);
        let first = upstream.settings().endpoints.first().map(ToString::to_string).unwrap_or_default();
        let host = keys.host.as_deref().unwrap_or(&first).as_bytes();
        let mut fields = Fields::new();
        fields.push(b"Accept", b"application/json");
        let line = (&b"GET"[..], keys.path.as_bytes(), host);
        let head = RequestHead::from_parts(Version::Http11, line, fields, true, &HeadLimits::default()).ok()?;
        let request = Subrequest::within(FETCH_TIMEOUT, &head, host, b"");
        let mut body = BodyCopy::new(JWKS_BYTES_MAX);
        let response = request.send(&self.metrics, upstream, &mut body).await.ok()?;
        (response.head.status() == 200 && response.is_whole)
            .then(|| body.take())
            .flatten()
            .and_then(|body| String::from_utf8(body).ok())
    }
}

/// See [`RemoteKeys::begins`].
struct FetchGuard(Arc<RemoteKeys>);

impl Drop for FetchGuard {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.state();
            state.is_fetching = false;
            state.fetches += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(wake_elsewhere);
    }
}
