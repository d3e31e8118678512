//! Asks the admin API. One sample is everything that a frame shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use ureq::Agent;
use weir_admin::status::{
    ListenerList, ListenerStatus, ProbeResponse, RouteList, RouteStatus, UpstreamList, UpstreamStatus, VersionStatus,
    WorkerList, WorkerStatus,
};
use weir_base::secret::Secret;

use super::exposition::Exposition;
use super::insight::{self, InsightData, Page};

/// One poll of the admin API.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    /// When it was taken.
    pub(super) at: Instant,
    pub(super) version: VersionStatus,
    pub(super) readiness: ProbeResponse,
    pub(super) listeners: Vec<ListenerStatus>,
    pub(super) routes: Vec<RouteStatus>,
    pub(super) upstreams: Vec<UpstreamStatus>,
    pub(super) workers: Vec<WorkerStatus>,
    pub(super) metrics: Exposition,
    /// The part of the workers' records that the page needs.
    pub(super) remembered: Option<InsightData>,
}

/// A connection to one admin server.
pub(super) struct AdminClient {
    agent: Agent,
    base: String,
    token: Option<Secret>,
    visible_page: VisiblePage,
}

/// The page that is shown: only its data is requested.
#[derive(Debug, Clone, Default)]
pub(super) struct VisiblePage(Arc<AtomicUsize>);

impl VisiblePage {
    pub(super) fn set(&self, page: Page) {
        let at = Page::ALL.iter().position(|known| *known == page);
        self.0.store(at.unwrap_or(0), Relaxed);
    }

    fn page(&self) -> Page {
        Page::ALL.get(self.0.load(Relaxed)).copied().unwrap_or_default()
    }
}

/// Time for one response. The server promises far less; this bounds how long the view is blind.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes of one response: 32 MiB is a `/metrics` of some 300,000 lines.
const RESPONSE_BYTES_MAX: u64 = 32 << 20;

/// The connections, as far as one page has them.
const CONNECTIONS: &str = "/api/v1/connections?limit=1000";

impl AdminClient {
    /// A client for the server at `base`, a URL without path. Nothing is sent yet.
    pub(super) fn new(base: &str, token: Option<Secret>) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(RESPONSE_TIMEOUT))
            .http_status_as_error(false)
            // Neither a redirect nor a proxy from the environment may carry the token elsewhere.
            .max_redirects(0)
            .proxy(None)
            .build();
        Self {
            agent: config.into(),
            base: base.trim_end_matches('/').to_owned(),
            token,
            visible_page: VisiblePage::default(),
        }
    }

    /// Takes a sample. The error is a sentence for the operator that begins with the path.
    pub(super) fn sample(&self) -> Result<Sample, String> {
        let at = Instant::now();
        let metrics = Exposition::parse(&self.text("/metrics", &[200])?);
        let listeners: ListenerList = self.json("/api/v1/listeners", &[200])?;
        let routes: RouteList = self.json("/api/v1/routes", &[200])?;
        let upstreams: UpstreamList = self.json("/api/v1/upstreams", &[200])?;
        let workers: WorkerList = self.json("/api/v1/workers", &[200])?;
        Ok(Sample {
            at,
            version: self.json("/api/v1/version", &[200])?,
            readiness: self.json("/readyz?verbose", &[200, 503])?,
            listeners: listeners.listeners,
            routes: routes.routes,
            upstreams: upstreams.upstreams,
            workers: workers.workers,
            metrics,
            remembered: self.remembered()?,
        })
    }

    /// Where the page that is shown is chosen.
    pub(super) fn visible_page(&self) -> VisiblePage {
        self.visible_page.clone()
    }

    fn remembered(&self) -> Result<Option<InsightData>, String> {
        Ok(match self.visible_page.page() {
            Page::Overview => None,
            Page::HotKeys => Some(InsightData::HotKeys(self.json("/api/v1/hot-keys", &[200])?)),
            Page::BigKeys => Some(InsightData::BigKeys(self.json("/api/v1/big-keys", &[200])?)),
            Page::SlowLog => Some(InsightData::SlowLog(self.json("/api/v1/slow-log", &[200])?)),
            Page::Clients => Some(insight::clients(self.json(CONNECTIONS, &[200])?)),
            Page::Ai => Some(insight::ai(self.json(CONNECTIONS, &[200])?)),
        })
    }

    fn json<T: DeserializeOwned>(&self, path: &str, statuses: &[u16]) -> Result<T, String> {
        let text = self.text(path, statuses)?;
        serde_json::from_str(&text)
            .map_err(|error| format!("{path} responds with an unknown format ({error}); is it a Weir of this version?"))
    }

    fn text(&self, path: &str, statuses: &[u16]) -> Result<String, String> {
        let url = format!("{}{path}", self.base);
        let mut request = self.agent.get(&url);
        if let Some(token) = self.token.as_ref().and_then(Secret::expose_str) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut response = request.call().map_err(|error| format!("{path}: {error}"))?;
        let status = response.status().as_u16();
        let body = response
            .body_mut()
            .with_config()
            .limit(RESPONSE_BYTES_MAX)
            .read_to_string()
            .map_err(|error| format!("{path}: {error}"))?;
        if statuses.contains(&status) {
            return Ok(body);
        }
        Err(match serde_json::from_str::<weir_admin::Problem>(&body) {
            Ok(problem) => format!("{path} responds with {status}: {}; {}", problem.detail, problem.remedy),
            Err(_not_ours) => format!("{path} responds with {status}; is it the admin address of Weir?"),
        })
    }
}
