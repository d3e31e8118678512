//! A gateway with fixed responses, and HTTP by hand so that every byte of a request is the test's own.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use weir_admin::status::{
    AiKeyList, AiKeyOrder, AiKeyOutcome, AiKeyPolicy, AiKeyQuery, AiKeySource, AiKeyState, AiKeyStatus, AiKeyUsage,
    AiRequestList, AiRequestQuery, Breaker, Check, ConnectionQuery, ConnectionResponse, ConnectionState,
    ConnectionStatus, Diagnostic, DrainState, DrainStatus, EndpointStatus, ErrorStatus, Health, HotKeyStatus,
    InsightResponse, KeyNames, KneeAction, KneeStatus, ListenerState, ListenerStatus, Quantiles, ReloadOutcome,
    ReloadResult, ResponseClasses, RouteStatus, Severity, SlowLogReset, UpgradeOutcome, UpgradeResult, UpstreamStatus,
    Validity, VersionStatus, WorkerStatus,
};
use weir_admin::{AdminServer, AdminSettings, BoxFuture, Gateway, Problem};
use weir_base::secret::Secret;
use weir_telemetry::{Registry, catalog};

/// Longest that a test waits for anything that should come.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The fixed gateway. Switches are public for the tests to turn.
pub struct FakeGateway {
    pub ready: AtomicBool,
    pub config_is_valid: AtomicBool,
    pub drains: AtomicUsize,
    pub upgrade_result: Mutex<UpgradeResult>,
    pub registry: Registry,
    pub silent_workers: Mutex<Vec<u32>>,
    /// While closed, a reload or an upgrade waits here.
    pub gate: Gate,
    pub connection_count: u64,
    /// Makes `config` panic.
    pub is_broken: AtomicBool,
    /// Orders about keys that were carried out.
    pub key_orders: Mutex<Vec<AiKeyOrder>>,
    pub request_queries: Mutex<Vec<AiRequestQuery>>,
}

/// A door that is open unless closed.
#[derive(Default)]
pub struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    pub waiting: AtomicUsize,
}

impl Gate {
    pub fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    pub fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut closed = self.closed.lock().unwrap();
        while *closed {
            closed = self.opened.wait(closed).unwrap();
        }
    }
}

impl FakeGateway {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            ready: AtomicBool::new(true),
            config_is_valid: AtomicBool::new(true),
            drains: AtomicUsize::new(0),
            upgrade_result: Mutex::new(UpgradeResult::Done),
            registry: Registry::new(),
            silent_workers: Mutex::new(Vec::new()),
            gate: Gate::default(),
            connection_count: 250,
            is_broken: AtomicBool::new(false),
            key_orders: Mutex::default(),
            request_queries: Mutex::default(),
        })
    }
}

impl FakeGateway {
    /// Makes `/metrics` at least this long.
    pub fn lengthen_metrics(&self, series: usize) {
        let metrics = self.registry.shared();
        // Names as long as a label may be.
        for index in 0..series {
            let name = format!("{index:0>128}");
            metrics.gauge(&catalog::CONNECTIONS_OPEN, &[&name]).set(1);
            metrics.counter(&catalog::CONNECTIONS_TOTAL, &[&name]).inc();
        }
    }
}

impl Gateway for FakeGateway {
    fn liveness(&self) -> Vec<Check> {
        vec![Check::new("workers_turning", true, "2 of 2")]
    }

    fn readiness(&self) -> Vec<Check> {
        let ready = self.ready.load(Ordering::SeqCst);
        vec![
            Check::new("listeners_bound", true, "1 of 1 at 127.0.0.1:6380"),
            Check::new("not_draining", ready, "asked to drain"),
            Check::warning("upstream_redis-main", false, "Connection refused"),
        ]
    }

    fn startup(&self) -> Vec<Check> {
        vec![Check::new("workers_started", true, "2 of 2, io_uring")]
    }

    fn version(&self) -> VersionStatus {
        VersionStatus {
            version: "0.1.0".to_owned(),
            commit: "unknown".to_owned(),
            target: "x86_64-linux".to_owned(),
            debug: true,
            pid: std::process::id(),
            uptime_seconds: 3.5,
            generation: 4,
            restart_epoch: 2,
            draining_predecessor: None,
        }
    }

    fn config_json(&self) -> Value {
        assert!(!self.is_broken.load(Ordering::SeqCst), "the test asked for this panic");
        json!({ "listener": [{ "name": "cache", "password": "[redacted]" }] })
    }

    fn listeners(&self) -> Vec<ListenerStatus> {
        vec![ListenerStatus {
            name: "cache".to_owned(),
            protocol: "redis".to_owned(),
            bind: "127.0.0.1:6380".to_owned(),
            tls: false,
            certificates: Vec::new(),
            upstream: "redis-main".to_owned(),
            state: ListenerState::Accepting,
            connections_open: 250,
            connections_max: Some(16_384),
            accepted_total: 300,
            refused_total: BTreeMap::from([("listener_connections".to_owned(), 2)]),
            closed_total: 50,
            requests_total: 9000,
            requests_in_flight: 3,
            responses_total: Some(ResponseClasses { successful: 9, server_error: 1, ..ResponseClasses::default() }),
            errors: Some(ErrorStatus { ratio: Some(0.1), warn_ratio: 0.05, warned: true }),
            shed_total: BTreeMap::from([("in_flight".to_owned(), 7)]),
            received_bytes_total: 1,
            sent_bytes_total: 2,
            request_seconds: Quantiles { count: 9000, p50: Some(0.0001), p99: Some(0.0009), p999: Some(0.002) },
            overhead_seconds: Quantiles::default(),
            knee: Some(KneeStatus {
                requests_per_second: 9_500.0,
                offered_requests_per_second: Some(8_550.0),
                load_ratio: Some(0.9),
                warn_ratio: 0.8,
                warned: true,
                reached: false,
                action: KneeAction::Unready,
                file: "results/redis-real.json".to_owned(),
                run_id: "r1".to_owned(),
                measured_at: 1_795_310_822,
                caveats: vec!["it was found without TLS".to_owned()],
            }),
        }]
    }

    fn upstreams(&self) -> Vec<UpstreamStatus> {
        vec![UpstreamStatus {
            name: "redis-main".to_owned(),
            tls: true,
            endpoints: vec![EndpointStatus {
                address: "127.0.0.1:6379".to_owned(),
                health: Health::Healthy,
                breaker: Breaker::HalfOpen,
                lanes_shared: 2,
                lanes_pinned: 1,
                waiters: 0,
                requests_in_flight: 3,
                requests_total: 8993,
                responses_total: None,
                failures_total: 1,
                connects_total: 4,
                connect_failures_total: 1,
                last_error: Some("connection refused".to_owned()),
                last_error_age_seconds: Some(12.0),
            }],
            acquire_wait_seconds: Quantiles::default(),
            response_seconds: Quantiles::default(),
        }]
    }

    fn routes(&self) -> Vec<RouteStatus> {
        vec![RouteStatus {
            name: "shop".to_owned(),
            domain: None,
            listeners: vec!["web".to_owned()],
            online: true,
            validity: Validity::Invalid,
            mistakes: vec!["`route[0].upstream` names the upstream \"ap\", which does not exist".to_owned()],
            responses_total: None,
        }]
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        (0..2)
            .map(|id| WorkerStatus {
                id,
                cpu: Some(id),
                driver: "io_uring".to_owned(),
                connections: 125,
                cpu_seconds: 1.5,
                turns: 1000,
                stalled: false,
                generation: 4,
            })
            .collect()
    }

    /// Two workers, each of which sends its own lowest ids, the second's first: the order is for the server to mend.
    fn connections(&self, query: ConnectionQuery) -> BoxFuture<'_, ConnectionResponse> {
        let workers_silent = self.silent_workers.lock().unwrap().clone();
        let mut connections = Vec::new();
        for worker in [1, 0] {
            if workers_silent.contains(&worker) {
                continue;
            }
            let own = (1..=self.connection_count)
                .filter(|id| id % 2 == u64::from(worker))
                .map(|id| connection(id, worker))
                .filter(|connection| query.matches(connection));
            connections.extend(own.take(query.limit + 1));
        }
        Box::pin(async move { ConnectionResponse { connections, workers_silent } })
    }

    fn insight(&self) -> BoxFuture<'_, InsightResponse> {
        let hot_key = |n: u32| HotKeyStatus {
            key: format!("key:{n}"),
            key_bytes: 5,
            hash: format!("{n:016x}"),
            upstream: "redis-main".to_owned(),
            db: 0,
            command: "get".to_owned(),
            per_second: f64::from(1000 - n),
            samples: 10,
        };
        let workers_silent = self.silent_workers.lock().unwrap().clone();
        let hot_keys = (0..300).map(hot_key).collect();
        Box::pin(async move {
            InsightResponse {
                names: KeyNames::Full,
                sample: 64,
                hot_keys,
                workers_silent,
                ..InsightResponse::default()
            }
        })
    }

    fn reset_slow_log(&self) -> BoxFuture<'_, SlowLogReset> {
        Box::pin(async { SlowLogReset { removed: 7, workers_silent: Vec::new() } })
    }

    /// Each name but `unknown` has a key.
    fn ai_keys(&self, query: AiKeyQuery) -> AiKeyList {
        let name = query.name.unwrap_or_else(|| "team".to_owned());
        let keys = if name == "unknown" { Vec::new() } else { vec![key(&name)] };
        AiKeyList { keys, can_issue: true, next_after: query.after }
    }

    fn order_ai_key(&self, order: AiKeyOrder) -> Result<AiKeyOutcome, Problem> {
        self.gate.pass();
        self.key_orders.lock().unwrap().push(order.clone());
        let (name, text) = match order {
            AiKeyOrder::Create(request) => (request.name, Some(KEY_TEXT)),
            AiKeyOrder::Rotate { name, .. } => (name, Some(KEY_TEXT)),
            AiKeyOrder::Change { name, .. } | AiKeyOrder::Delete { name } => (name, None),
        };
        match &*name {
            "unknown" => Err(Problem::refused(404, "key", "there is no key of this name", "list the keys")),
            _ => Ok(AiKeyOutcome { key: key(&name), text: text.map(Secret::from) }),
        }
    }

    fn ai_requests(&self, query: AiRequestQuery) -> BoxFuture<'_, AiRequestList> {
        self.request_queries.lock().unwrap().push(query);
        Box::pin(async {
            AiRequestList { schema_url: "https://schemas.example/1".to_owned(), ..AiRequestList::default() }
        })
    }

    fn reload(&self) -> ReloadOutcome {
        self.gate.pass();
        if self.config_is_valid.load(Ordering::SeqCst) {
            return ReloadOutcome {
                outcome: ReloadResult::Applied,
                generation: 5,
                applied: vec!["listener cache: connections_max 100 -> 200".to_owned()],
                needs_restart: vec!["runtime.workers 1 -> 2".to_owned()],
                diagnostics: Vec::new(),
            };
        }
        ReloadOutcome {
            outcome: ReloadResult::Rejected,
            generation: 4,
            applied: Vec::new(),
            needs_restart: Vec::new(),
            diagnostics: vec![Diagnostic {
                severity: Severity::Error,
                file: Some("weir.toml".to_owned()),
                line: Some(4),
                column: Some(1),
                key: Some("listener[0].bind".to_owned()),
                message: "not an address".to_owned(),
                remedy: Some("write host:port".to_owned()),
            }],
        }
    }

    fn upgrade(&self) -> UpgradeOutcome {
        self.gate.pass();
        let result = *self.upgrade_result.lock().unwrap();
        let is_done = result == UpgradeResult::Done;
        UpgradeOutcome {
            result,
            pid: 41,
            successor: is_done.then_some(42),
            restart_epoch: if is_done { 3 } else { 2 },
            reason: (!is_done).then(|| "the new process ended".to_owned()),
        }
    }

    fn drain(&self) -> DrainStatus {
        let before = self.drains.fetch_add(1, Ordering::SeqCst);
        self.ready.store(false, Ordering::SeqCst);
        DrainStatus {
            state: if before == 0 { DrainState::Started } else { DrainState::Draining },
            connections_open: 250,
            requests_in_flight: 3,
            remaining_seconds: 10.0,
        }
    }

    fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// The text of each key that is issued.
pub const KEY_TEXT: &str = "sk-weir-text-of-a-new-key";

fn key(name: &str) -> AiKeyStatus {
    AiKeyStatus {
        name: name.to_owned(),
        source: AiKeySource::Api,
        listener: None,
        state: AiKeyState::Active,
        expires: None,
        created: Some("2026-11-27T00:00:00Z".to_owned()),
        texts: Vec::new(),
        shadowed_by: Vec::new(),
        policy: AiKeyPolicy { day_tokens: Some(5), ..AiKeyPolicy::default() },
        usage: AiKeyUsage::default(),
    }
}

fn connection(id: u64, worker: u32) -> ConnectionStatus {
    ConnectionStatus {
        id,
        listener: if id <= 10 { "admin-cache" } else { "cache" }.to_owned(),
        protocol: "redis".to_owned(),
        worker,
        peer: format!("127.0.0.1:{}", 40_000 + id),
        age_seconds: 10.0,
        idle_seconds: 0.5,
        name: None,
        user: Some("default".to_owned()),
        db: Some(0),
        database: None,
        protocol_version: "RESP3".to_owned(),
        state: ConnectionState::Pinned,
        pinned_by: vec!["watch".to_owned()],
        pinned_seconds: Some(2.0),
        transaction_seconds: None,
        waits_for: None,
        in_flight: 1,
        buffered_bytes: 64,
        last_command: Some("watch".to_owned()),
        key: None,
        model: None,
        stream: None,
    }
}

/// Any free port of loopback.
pub fn loopback() -> AdminSettings {
    AdminSettings::loopback(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// A server on loopback without a token.
pub fn start(gateway: &Arc<FakeGateway>) -> AdminServer {
    start_with(loopback(), gateway)
}

pub fn start_with(settings: AdminSettings, gateway: &Arc<FakeGateway>) -> AdminServer {
    AdminServer::start(settings, Arc::clone(gateway) as Arc<dyn Gateway>).expect("it starts")
}

/// A response, taken apart.
#[derive(Debug)]
pub struct AdminResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl AdminResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that this is a problem of that status with every member filled, and gives its name.
    pub fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body = self.json();
        assert_eq!(body["status"], status);
        for member in ["title", "detail", "remedy"] {
            assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{member} in {body}");
        }
        let kind = body["type"].as_str().expect("a type");
        kind.strip_prefix("urn:weir:problem:").expect("our name space").to_owned()
    }
}

/// Connects with time limits, so that a silent server fails the test instead of holding it.
pub fn connect(server: &AdminServer) -> TcpStream {
    let stream = TcpStream::connect(server.local_addr()).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("timeout");
    stream
}

/// Sends these bytes and reads until the server closes.
pub fn exchange(server: &AdminServer, request: &str) -> AdminResponse {
    let mut stream = connect(server);
    stream.write_all(request.as_bytes()).expect("send");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("read");
    parse(&bytes)
}

/// A request with a proper Host, `Connection: close` and these further header lines.
pub fn ask(server: &AdminServer, method: &str, target: &str, headers: &[&str]) -> AdminResponse {
    let mut lines = String::new();
    for header in headers {
        lines.push_str(header);
        lines.push_str("\r\n");
    }
    let host = server.local_addr();
    exchange(server, &format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n"))
}

pub fn fetch(server: &AdminServer, target: &str) -> AdminResponse {
    ask(server, "GET", target, &[])
}

pub fn send(server: &AdminServer, target: &str) -> AdminResponse {
    ask(server, "POST", target, &[])
}

/// The same with a body, and these further header lines.
pub fn ask_with(server: &AdminServer, method: &str, target: &str, headers: &[&str], body: &str) -> AdminResponse {
    let length = format!("Content-Length: {}", body.len());
    let mut lines: Vec<&str> = headers.to_vec();
    lines.push(&length);
    let (lines, host) = (lines.join("\r\n"), server.local_addr());
    exchange(
        server,
        &format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n\r\n{body}"),
    )
}

fn parse(bytes: &[u8]) -> AdminResponse {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
    let mut lines = head.lines();
    let status =
        lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok()).expect("a status");
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    AdminResponse { status, headers, body: body.to_owned() }
}
