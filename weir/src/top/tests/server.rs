//! Over a real admin server with real telemetry: what one side writes, the other reads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_admin::status::{
    AiKeyList, AiKeyOrder, AiKeyOutcome, AiKeyQuery, AiRequestList, AiRequestQuery, Check, ConnectionQuery,
    ConnectionResponse, DrainState, DrainStatus, InsightResponse, ListenerStatus, ReloadOutcome, ReloadResult,
    RouteStatus, SlowLogReset, UpgradeOutcome, UpgradeResult, UpstreamStatus, VersionStatus, WorkerStatus,
};
use weir_admin::{AdminServer, AdminSettings, BoxFuture, Gateway, Problem};
use weir_base::secret::Secret;
use weir_telemetry::{Registry, catalog};

use super::{listener, sample, upstream, worker};
use crate::top::client::AdminClient;
use crate::top::insight::Page;
use crate::top::state::State;
use crate::top::{TopArgs, TopError, admin_url, interval, once, token};

/// A gateway of one listener.
struct OneListener {
    registry: Registry,
}

impl Gateway for OneListener {
    fn liveness(&self) -> Vec<Check> {
        Vec::new()
    }

    fn readiness(&self) -> Vec<Check> {
        vec![Check::new("listeners_bound", true, "1 of 1")]
    }

    fn startup(&self) -> Vec<Check> {
        Vec::new()
    }

    fn version(&self) -> VersionStatus {
        sample(Instant::now(), 0.0, Vec::new()).version
    }

    fn config_json(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn listeners(&self) -> Vec<ListenerStatus> {
        vec![listener("cache", 1000)]
    }

    fn upstreams(&self) -> Vec<UpstreamStatus> {
        vec![upstream("redis-main")]
    }

    fn routes(&self) -> Vec<RouteStatus> {
        Vec::new()
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        vec![worker(0, 1.0)]
    }

    fn connections(&self, _query: ConnectionQuery) -> BoxFuture<'_, ConnectionResponse> {
        Box::pin(async { ConnectionResponse::default() })
    }

    fn insight(&self) -> BoxFuture<'_, InsightResponse> {
        Box::pin(async { InsightResponse { slower_than_seconds: Some(0.01), ..InsightResponse::default() } })
    }

    fn reset_slow_log(&self) -> BoxFuture<'_, SlowLogReset> {
        Box::pin(async { SlowLogReset::default() })
    }

    fn ai_keys(&self, _: AiKeyQuery) -> AiKeyList {
        AiKeyList { keys: Vec::new(), can_issue: false, next_after: None }
    }

    fn order_ai_key(&self, _: AiKeyOrder) -> Result<AiKeyOutcome, Problem> {
        Err(Problem::refused(409, "ai_state", "this gateway has no keys", "start another one"))
    }

    fn ai_requests(&self, _: AiRequestQuery) -> BoxFuture<'_, AiRequestList> {
        Box::pin(async { AiRequestList::default() })
    }

    fn reload(&self) -> ReloadOutcome {
        ReloadOutcome {
            outcome: ReloadResult::Unchanged,
            generation: 2,
            applied: Vec::new(),
            needs_restart: Vec::new(),
            diagnostics: Vec::new(),
        }
    }

    fn upgrade(&self) -> UpgradeOutcome {
        UpgradeOutcome {
            result: UpgradeResult::Refused,
            pid: 7,
            successor: None,
            restart_epoch: 0,
            reason: Some("this gateway is none".to_owned()),
        }
    }

    fn drain(&self) -> DrainStatus {
        DrainStatus { state: DrainState::Started, connections_open: 0, requests_in_flight: 0, remaining_seconds: 1.0 }
    }

    fn registry(&self) -> &Registry {
        &self.registry
    }
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn serve(registry: &Registry, token: Option<Secret>) -> (AdminServer, String) {
    let settings = AdminSettings { token, ..AdminSettings::loopback(SocketAddr::from(([127, 0, 0, 1], 0))) };
    let gateway = OneListener { registry: registry.clone() };
    let server = AdminServer::start(settings, Arc::new(gateway)).expect("it starts");
    let url = format!("http://{}", server.local_addr());
    (server, url)
}

fn once_args(admin: &str) -> TopArgs {
    TopArgs {
        admin: admin.to_owned(),
        token_env: None,
        interval: Duration::from_millis(1),
        once: true,
        view: Page::default(),
        columns: 120,
    }
}

#[test]
fn once_prints_a_frame_with_quantiles_of_the_window() {
    let registry = Registry::new();
    let (_server, url) = serve(&registry, None);
    let client = AdminClient::new(&url, None);
    let mut state = State::new(&url);
    let core = registry.core(0);
    let request = core.histogram(&catalog::REQUEST_DURATION, &["cache"]);
    // Before the window: a second each, which the frame must not show.
    request.record_many(1_000_000_000, 1000);
    state.accept(client.sample());
    assert_eq!(state.failure, None);
    request.record_many(100_000, 990);
    request.record_many(10_000_000, 10);
    let wait = core.histogram(&catalog::LANE_POOL_ACQUIRE_WAIT, &["redis-main", "127.0.0.1:6379"]);
    wait.record_many(3_000, 10);
    state.accept(client.sample());
    let frame = crate::top::render::plain(&mut state, 80);
    let lines: Vec<String> = frame.lines().map(str::to_owned).collect();
    let times = super::words(&lines, "cache")[4..7].to_vec();
    let micros = |text: &str| match text.strip_suffix("us") {
        Some(number) => number.parse::<f64>().expect("a number"),
        None => text.strip_suffix("ms").expect("a time").parse::<f64>().expect("a number") * 1e3,
    };
    // Within the exposed bucket, a factor of the square root of two.
    assert!((70.0..142.0).contains(&micros(times[0])), "{times:?}");
    assert!((7_000.0..14_200.0).contains(&micros(times[2])), "{times:?}");
    let wait = super::words(&lines, "redis-main")[6];
    assert!((2.1..4.3).contains(&micros(wait)), "{wait}");
    assert!(!frame.contains('*'), "{frame}");

    let mut output = Vec::new();
    once(&client, State::new(&url), &once_args(&url), &mut output).expect("a frame");
    let text = String::from_utf8(output).expect("text");
    assert!(text.contains("READY") && text.contains("cache") && text.contains(" rss "), "{text}");
}

#[test]
fn only_the_visible_page_is_requested() {
    let registry = Registry::new();
    let (_server, url) = serve(&registry, None);
    let client = AdminClient::new(&url, None);
    assert!(client.sample().expect("a sample").remembered.is_none());
    for page in [Page::HotKeys, Page::BigKeys, Page::SlowLog] {
        client.visible_page().set(page);
        let remembered = client.sample().expect("a sample").remembered;
        assert_eq!(remembered.map(|remembered| remembered.page()), Some(page));
    }
}

#[test]
fn the_token_is_sent_and_a_missing_one_is_explained() {
    let registry = Registry::new();
    let (_server, url) = serve(&registry, Some(Secret::from(TOKEN)));
    AdminClient::new(&url, Some(Secret::from(TOKEN))).sample().expect("a sample");
    let failure = AdminClient::new(&url, None).sample().expect_err("no token");
    assert!(failure.starts_with("/metrics responds with 401: ") && failure.contains("Authorization"), "{failure}");
}

#[test]
fn an_unreachable_server_fails_once_with_its_address() {
    let registry = Registry::new();
    let (server, url) = serve(&registry, None);
    server.stop();
    let client = AdminClient::new(&url, None);
    let error = once(&client, State::new(&url), &once_args(&url), &mut Vec::new()).expect_err("nobody there");
    assert!(matches!(error, TopError::Unreachable(_)));
    assert!(error.to_string().starts_with(&format!("{url}/metrics: ")), "{error}");
}

#[test]
fn arguments_are_checked() {
    for url in ["http://127.0.0.1:9900", "http://gateway/", "http://[::1]:9900"] {
        assert!(admin_url(url).is_ok(), "{url}");
    }
    for url in ["127.0.0.1:9900", "https://gateway", "http://gateway/api", "http://gateway/?x", "", "http://"] {
        assert!(admin_url(url).is_err(), "{url}");
    }
    assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
    for seconds in ["0", "61", "-1", "NaN", "inf", "x"] {
        assert!(interval(seconds).is_err(), "{seconds}");
    }
    let missing = token(Some("WEIR_TEST_NO_SUCH_VARIABLE")).expect_err("not set");
    assert!(missing.to_string().contains("WEIR_TEST_NO_SUCH_VARIABLE"));
}
