//! The handler of each route. They read published state; messages to the workers fetch theirs.

pub(crate) mod ai;

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::body::{Bytes, to_bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use weir_telemetry::{SharedMetrics, catalog, prometheus};

use crate::document::openapi_document;
use crate::gateway::Gateway;
use crate::guard::AdminAccess;
use crate::limits::{BODY_BYTES_MAX, PAGE_DEFAULT, PAGE_MAX};
use crate::problem::Problem;
use crate::process;
use crate::routes::ROUTES;
use crate::status::{
    BigKeyList, Check, ConnectionPage, ConnectionQuery, HotKeyList, ListenerList, ProbeResponse, ReloadResult,
    RouteList, SlowLogList, UpgradeResult, UpstreamList, Verdict, WorkerList,
};

/// State that all handlers share.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) access: AdminAccess,
    gateway: Arc<dyn Gateway>,
    /// One reload at a time.
    reload: Arc<Semaphore>,
    /// One upgrade at a time.
    upgrade: Arc<Semaphore>,
    /// One order about keys at a time; the others wait.
    keys: Arc<Semaphore>,
    /// Made for the first reader: most processes have none.
    openapi: OnceLock<Bytes>,
    metrics: SharedMetrics,
}

impl std::ops::Deref for Shared {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Shared {
    pub(crate) fn new(access: AdminAccess, gateway: Arc<dyn Gateway>) -> Self {
        let metrics = gateway.registry().shared();
        Self(Arc::new(Inner {
            access,
            gateway,
            reload: Arc::new(Semaphore::new(1)),
            upgrade: Arc::new(Semaphore::new(1)),
            keys: Arc::new(Semaphore::new(1)),
            openapi: OnceLock::new(),
            metrics,
        }))
    }

    /// Counts a response. Paths that are not in the table count as `other`: a label never carries what a client sent.
    pub(crate) fn count(&self, path: &str, status: StatusCode) {
        let route = ROUTES.iter().find(|route| route.takes(path)).map_or("other", |route| route.path);
        self.metrics.counter(&catalog::ADMIN_REQUESTS, &[route, status.as_str()]).inc();
    }
}

// === probes ===

/// Probes ignore parameters they do not know: balancers like to add some.
#[derive(Deserialize)]
pub(crate) struct ProbeQuery {
    verbose: Option<String>,
}

type ProbeParameters = Result<Query<ProbeQuery>, QueryRejection>;

pub(crate) async fn livez(State(shared): State<Shared>, headers: HeaderMap, query: ProbeParameters) -> Response {
    probe(&shared, shared.gateway.liveness(), &headers, query)
}

pub(crate) async fn readyz(State(shared): State<Shared>, headers: HeaderMap, query: ProbeParameters) -> Response {
    probe(&shared, shared.gateway.readiness(), &headers, query)
}

pub(crate) async fn startupz(State(shared): State<Shared>, headers: HeaderMap, query: ProbeParameters) -> Response {
    probe(&shared, shared.gateway.startup(), &headers, query)
}

/// Names are for everybody; details name addresses and limits, so they follow the token.
fn probe(shared: &Shared, checks: Vec<Check>, headers: &HeaderMap, query: ProbeParameters) -> Response {
    let verbose = query.is_ok_and(|query| query.verbose.is_some());
    let with_details = verbose && shared.access.is_authorized(headers);
    let response = ProbeResponse::of(checks, with_details);
    let status = match response.status {
        Verdict::Pass | Verdict::Warn => StatusCode::OK,
        Verdict::Fail => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(response)).into_response()
}

// === reading ===

pub(crate) async fn index() -> String {
    let mut text = String::from("weir admin\n\n");
    for route in ROUTES {
        let (word, path, summary) = (route.verb.word(), route.path, route.summary);
        text.push_str(&format!("{word:<7}{path:<31}{summary}\n"));
    }
    text
}

pub(crate) async fn metrics(State(shared): State<Shared>) -> Response {
    let registry = shared.gateway.registry();
    process::publish(&shared.metrics);
    let text = prometheus::render(&registry.exposed());
    let content_type = HeaderValue::from_static(prometheus::CONTENT_TYPE);
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

pub(crate) async fn version(State(shared): State<Shared>) -> Response {
    Json(shared.gateway.version()).into_response()
}

pub(crate) async fn config(State(shared): State<Shared>) -> Response {
    Json(shared.gateway.config_json()).into_response()
}

pub(crate) async fn listeners(State(shared): State<Shared>) -> Response {
    let listeners = shared.gateway.listeners();
    Json(ListenerList { listeners }).into_response()
}

pub(crate) async fn upstreams(State(shared): State<Shared>) -> Response {
    let upstreams = shared.gateway.upstreams();
    Json(UpstreamList { upstreams }).into_response()
}

pub(crate) async fn routes(State(shared): State<Shared>) -> Response {
    let routes = shared.gateway.routes();
    Json(RouteList { routes }).into_response()
}

pub(crate) async fn workers(State(shared): State<Shared>) -> Response {
    let workers = shared.gateway.workers();
    Json(WorkerList { workers }).into_response()
}

pub(crate) async fn openapi(State(shared): State<Shared>) -> Response {
    let content_type = HeaderValue::from_static("application/json");
    let make = || openapi_document(&shared.gateway.version().version).to_string().into();
    ([(header::CONTENT_TYPE, content_type)], shared.openapi.get_or_init(make).clone()).into_response()
}

/// An unknown parameter is a mistake that the caller wants to know of.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    limit: Option<usize>,
    after: Option<u64>,
    listener: Option<String>,
    worker: Option<u32>,
}

pub(crate) async fn connections(
    State(shared): State<Shared>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(page) = query.map_err(|rejection| bad_query(rejection.body_text(), CONNECTION_PARAMETERS))?;
    let limit = limit(page.limit, CONNECTION_PARAMETERS)?;
    let query = ConnectionQuery { limit, after: page.after, listener: page.listener, worker: page.worker };
    let response = shared.gateway.connections(query.clone()).await;
    Ok(Json(ConnectionPage::of(response, &query)).into_response())
}

/// Parameters besides `limit`, as a remedy names them.
const CONNECTION_PARAMETERS: &str = ", after, listener and worker, each at most once";
const LIST_PARAMETERS: &str = ", at most once";

fn limit(wanted: Option<usize>, others: &str) -> Result<usize, Problem> {
    let limit = wanted.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(bad_query(format!("limit is {limit}, allowed are 1 to {PAGE_MAX}"), others));
    }
    Ok(limit)
}

fn bad_query(detail: impl Into<String>, others: &str) -> Problem {
    let plural = if others == LIST_PARAMETERS { " is" } else { "s are" };
    let remedy = format!("the parameter{plural} limit (1 to {PAGE_MAX}){others}");
    Problem::new(StatusCode::BAD_REQUEST, "query", detail, remedy)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    limit: Option<usize>,
}

type ListParameters = Result<Query<ListQuery>, QueryRejection>;

fn list_limit(query: ListParameters) -> Result<usize, Problem> {
    let Query(list) = query.map_err(|rejection| bad_query(rejection.body_text(), LIST_PARAMETERS))?;
    limit(list.limit, LIST_PARAMETERS)
}

pub(crate) async fn hot_keys(State(shared): State<Shared>, query: ListParameters) -> Result<Response, Problem> {
    let limit = list_limit(query)?;
    let mut response = shared.gateway.insight().await;
    response.hot_keys.truncate(limit);
    let (names, sample) = (response.names, response.sample);
    let (hot_keys, workers_silent) = (response.hot_keys, response.workers_silent);
    Ok(Json(HotKeyList { names, sample, hot_keys, workers_silent }).into_response())
}

pub(crate) async fn big_keys(State(shared): State<Shared>, query: ListParameters) -> Result<Response, Problem> {
    let limit = list_limit(query)?;
    let mut response = shared.gateway.insight().await;
    response.big_keys.truncate(limit);
    let (names, big_keys, workers_silent) = (response.names, response.big_keys, response.workers_silent);
    Ok(Json(BigKeyList { names, big_keys, workers_silent }).into_response())
}

pub(crate) async fn slow_log(State(shared): State<Shared>, query: ListParameters) -> Result<Response, Problem> {
    let limit = list_limit(query)?;
    let mut response = shared.gateway.insight().await;
    response.slow_requests.truncate(limit);
    let (slow_requests, workers_silent) = (response.slow_requests, response.workers_silent);
    let slower_than_seconds = response.slower_than_seconds;
    Ok(Json(SlowLogList { slower_than_seconds, slow_requests, workers_silent }).into_response())
}

// === changing ===

pub(crate) async fn drain(State(shared): State<Shared>, request: Request) -> Result<Response, Problem> {
    expect_no_input(request).await?;
    let status = shared.gateway.drain();
    Ok((StatusCode::ACCEPTED, Json(status)).into_response())
}

pub(crate) async fn reset_slow_log(State(shared): State<Shared>, request: Request) -> Result<Response, Problem> {
    expect_no_input(request).await?;
    Ok(Json(shared.gateway.reset_slow_log().await).into_response())
}

pub(crate) async fn reload(State(shared): State<Shared>, request: Request) -> Result<Response, Problem> {
    expect_no_input(request).await?;
    let Ok(permit) = Arc::clone(&shared.reload).try_acquire_owned() else {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "reload",
            "a reload is under way",
            "wait until it ends; if the file has changed since, send the request again",
        ));
    };
    let gateway = Arc::clone(&shared.gateway);
    // The permit goes along: if the deadline ends the wait, the work still counts as under way.
    let work = spawn_blocking(move || {
        let outcome = gateway.reload();
        drop(permit);
        outcome
    });
    let outcome = work.await.map_err(|_panicked| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "reload",
            "the reload failed; the configuration in force stays",
            "this is a bug of the gateway: please report it with the panic message in the log",
        )
    })?;
    let status = match outcome.outcome {
        ReloadResult::Applied | ReloadResult::Unchanged => StatusCode::OK,
        ReloadResult::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
    };
    Ok((status, Json(outcome)).into_response())
}

pub(crate) async fn upgrade(State(shared): State<Shared>, request: Request) -> Result<Response, Problem> {
    expect_no_input(request).await?;
    let Ok(permit) = Arc::clone(&shared.upgrade).try_acquire_owned() else {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "upgrade",
            "an upgrade is under way",
            "wait until it ends; the process that then serves can be upgraded after this process has drained",
        ));
    };
    let gateway = Arc::clone(&shared.gateway);
    let work = spawn_blocking(move || {
        let outcome = gateway.upgrade();
        drop(permit);
        outcome
    });
    let outcome = work.await.map_err(|_panicked| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "upgrade",
            "the upgrade failed; this process continues to serve",
            "this is a bug of the gateway: please report it with the panic message in the log",
        )
    })?;
    let status = match outcome.result {
        UpgradeResult::Done => StatusCode::OK,
        UpgradeResult::Failed => StatusCode::UNPROCESSABLE_ENTITY,
        UpgradeResult::Refused => StatusCode::CONFLICT,
    };
    Ok((status, Json(outcome)).into_response())
}

/// The operations take no parameters: no body, or an empty JSON object from clients that always send one.
/// Another content type is refused, since it is what an HTML form would send.
async fn expect_no_input(request: Request) -> Result<(), Problem> {
    let is_json = request.headers().get(header::CONTENT_TYPE).map(|value| is_json(value.as_bytes()));
    let body = to_bytes(request.into_body(), BODY_BYTES_MAX).await.map_err(|_too_long_or_broken| {
        bad_body(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is cut off or has more than {BODY_BYTES_MAX} bytes"))
    })?;
    if is_json == Some(false) || (is_json.is_none() && !body.is_empty()) {
        return Err(bad_body(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type is not application/json"));
    }
    if body.is_empty() {
        return Ok(());
    }
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&body) {
        Ok(members) if members.is_empty() => Ok(()),
        Ok(_) => Err(bad_body(StatusCode::BAD_REQUEST, "the body is a JSON object with members")),
        Err(error) => Err(bad_body(StatusCode::BAD_REQUEST, format!("the body is not a JSON object: {error}"))),
    }
}

fn is_json(content_type: &[u8]) -> bool {
    content_type
        .split(|byte| *byte == b';')
        .next()
        .is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"application/json"))
}

fn bad_body(status: StatusCode, detail: impl Into<String>) -> Problem {
    Problem::new(status, "body", detail, "send no body, or {} with `Content-Type: application/json`")
}

// === fallbacks ===

pub(crate) async fn not_found(request: Request) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "path",
        format!("there is nothing at {}", request.uri().path()),
        "GET / lists the paths",
    )
}

pub(crate) async fn method_not_allowed(request: Request) -> Response {
    let path = request.uri().path();
    let verbs = ROUTES.iter().filter(|route| route.takes(path)).map(|route| route.verb.allow());
    let allow = verbs.collect::<Vec<_>>().join(", ");
    let problem = Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method",
        format!("{path} does not support {}", request.method()),
        format!("use {allow}"),
    );
    let mut response = problem.into_response();
    if let Ok(allow) = HeaderValue::from_str(&allow) {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}
