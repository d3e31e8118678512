//! One gateway process: started from a configuration text, watched, and judged at its end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

use crate::admin::Admin;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::deadline::{WAIT, until};
use crate::metrics::Metrics;
use crate::port;
use crate::process::{Process, take_in_orphans};
use crate::server::Server;
use crate::stream::Address;

mod config;

pub use config::{Config, secret_file};

/// Gauges that are zero when no client is there: what was taken is given back, to the last permit.
/// A test of the crate holds the names against the catalog.
pub const GAUGES_AT_REST: [&str; 12] = [
    "weir_connections_open",
    "weir_requests_in_flight",
    "weir_http_tunnels_open",
    "weir_buffered_bytes",
    "weir_pinned_sessions",
    "weir_lane_requests_in_flight",
    "weir_tls_handshakes_in_flight",
    "gateway_lane_pool_waiters",
    "weir_redis_subscribers",
    "weir_redis_subscriptions",
    "weir_redis_upstream_subscriptions",
    "weir_redis_tracking_clients",
];

/// SIGTERM to exit when no client is connected.
const EXIT_WAIT: Duration = Duration::from_secs(15);

/// The driver that the tests run with: `io_uring`, `polling` or `auto`.
///
/// # Panics
/// If `WEIR_TEST_DRIVER` holds another word.
pub fn driver() -> &'static str {
    static DRIVER: OnceLock<String> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| std::env::var("WEIR_TEST_DRIVER").unwrap_or_else(|_| "auto".to_owned()));
    assert!(
        matches!(driver.as_str(), "io_uring" | "polling" | "auto"),
        "WEIR_TEST_DRIVER={driver}: io_uring, polling or auto"
    );
    driver
}

/// The gateway program: named by `WEIR_BIN`, else built by cargo beside this test.
///
/// # Panics
/// If it cannot be built.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os("WEIR_BIN") {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

fn build() -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = std::process::Command::new(cargo)
        .args(["build", "--package", "weir"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "the gateway does not build");
    let test = std::env::current_exe().expect("the test has a path");
    let candidates = test.ancestors().map(|folder| folder.join("weir"));
    candidates.into_iter().find(|path| path.is_file()).expect("the gateway stands beside the test in the target folder")
}

/// A running gateway. When it is dropped the test ends with [`Gateway::finish`].
pub struct Gateway {
    /// Where the (first) listener listens.
    pub address: Address,
    /// Its admin port.
    pub admin: Admin,
    /// Its configuration file.
    pub file: PathBuf,
    process: Process,
    judged: bool,
    folder: TempDir,
}

impl Gateway {
    /// Changes the text of the configuration file. A reload takes it.
    pub fn rewrite(&self, change: impl Fn(&str) -> String) {
        let text = std::fs::read_to_string(&self.file).expect("the configuration");
        // Written to a new file and renamed, so that no reader sees half a file.
        let beside = self.file.with_extension("new");
        std::fs::write(&beside, change(&text)).expect("the new configuration");
        std::fs::rename(&beside, &self.file).expect("the new configuration takes its place");
    }

    /// In front of a server, with the smallest configuration and one worker.
    pub fn before(server: &Server) -> Self {
        Self::start(Config::to(&server.address))
    }

    /// In front of a cluster, with two workers.
    pub fn before_cluster(cluster: &Cluster) -> Self {
        // Two seeds: the gateway finds the others.
        let seeds: Vec<&Address> = cluster.addresses().take(2).collect();
        let config = Config::to_all(seeds)
            .workers(2)
            .upstream("topology = \"cluster\"")
            .upstream("[upstream.health]\ninterval = \"100ms\"\ntimeout = \"100ms\"");
        Self::start(config)
    }

    /// Starts and waits until it is ready.
    pub fn start(config: Config) -> Self {
        let mut gateway = Self::spawn(config, &[]);
        let admin = gateway.admin;
        gateway.process.wait_ready(|| admin.is_ready());
        gateway
    }

    /// Starts and waits until its admin port answers; an upstream may be away.
    pub fn start_unready(config: Config) -> Self {
        let mut gateway = Self::spawn(config, &[]);
        let admin = gateway.admin;
        gateway.process.wait_ready(|| admin.request("GET", "/livez", &[], "").is_ok());
        gateway
    }

    /// Starts behind other words, such as `prlimit --nofile=100`, and waits until it is live.
    pub fn start_behind(words: &[&str], config: Config) -> Self {
        let mut gateway = Self::spawn(config, words);
        let admin = gateway.admin;
        gateway.process.wait_ready(|| admin.request("GET", "/livez", &[], "").is_ok());
        gateway
    }

    /// Starts with the text of a configuration without `[admin]` and `[drain]`, whose listener listens on `address`, and waits until
    /// it is ready.
    pub fn with_text(text: &str, address: Address) -> Self {
        Self::with_environment(text, address, &[])
    }

    /// The same with environment variables.
    pub fn with_environment(text: &str, address: Address, environment: &[(String, String)]) -> Self {
        let folder = tempfile::Builder::new().prefix("weir-gateway-").tempdir().expect("a temporary folder");
        let admin_port = port::free();
        let file = folder.path().join("weir.toml");
        let tables =
            format!("\n[admin]\nbind = \"127.0.0.1:{admin_port}\"\n\n[drain]\nsettle = \"0s\"\ntimeout = \"3s\"\n");
        std::fs::write(&file, format!("{text}{tables}")).expect("the configuration can be written");
        let words = [program().to_string_lossy(), "run".into(), "--config".into(), file.to_string_lossy()];
        take_in_orphans();
        let process = Process::start("weir", &words.map(Into::into), &folder.path().join("weir.log"), environment);
        let admin = Admin { address: Address::port(admin_port).tcp() };
        let mut gateway = Self { address, admin, file, process, judged: false, folder };
        gateway.process.wait_ready(|| admin.is_ready());
        gateway
    }

    fn spawn(mut config: Config, before: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("weir-gateway-").tempdir().expect("a temporary folder");
        if config.unix {
            config.bind = Address::Unix(folder.path().join("listener.sock"));
        }
        let admin_port = port::free();
        let file = folder.path().join("weir.toml");
        std::fs::write(&file, config.text(admin_port)).expect("the configuration can be written");
        let mut words: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
        words.push(config.program.as_deref().unwrap_or_else(|| program()).to_string_lossy().into_owned());
        words.extend(["run".into(), "--config".into()]);
        words.push(file.to_string_lossy().into_owned());
        let log = folder.path().join("weir.log");
        take_in_orphans();
        let process = Process::start("weir", &words, &log, &config.environment);
        Self {
            address: config.bind,
            admin: Admin { address: Address::port(admin_port).tcp() },
            file,
            process,
            judged: false,
            folder,
        }
    }

    /// A plain connection to the listener.
    pub fn connect(&self) -> Client {
        Client::connect(&self.address)
    }

    /// The process, for signals and figures.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Runs `weir upgrade` with its admin address.
    ///
    /// # Panics
    /// If the program cannot be run.
    pub fn request_upgrade(&self) -> Output {
        let url = format!("http://{}", self.admin.address);
        let mut command = Command::new(program());
        command.args(["upgrade", "--admin", &url]).env_remove("WEIR_ADMIN_TOKEN").output().expect("weir upgrade")
    }

    /// Runs `weir upgrade`, and watches the new process from then on. Returns the old one.
    ///
    /// # Panics
    /// If it does not succeed.
    pub fn upgrade(&mut self) -> Process {
        let output = self.request_upgrade();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}{err}\n{}", self.process.log());
        assert!(out.starts_with("done: process "), "{out}");
        self.follow()
    }

    /// Another process serves in place of the one that was watched: watches that one from now on, and returns the old one.
    ///
    /// # Panics
    /// If it is still the same.
    pub fn follow(&mut self) -> Process {
        let pid = self.admin.get("/api/v1/version").json()["pid"].as_u64().expect("a process id");
        assert_ne!(pid, u64::from(self.process.id()), "the process is still the same");
        let new = Process::adopt(pid as u32, &self.process);
        std::mem::replace(&mut self.process, new)
    }

    /// Starts the program again with its file, where the process has ended or ends, and waits until it is ready. Returns the one before,
    /// which a drop would kill.
    ///
    /// # Panics
    /// If it does not come.
    pub fn start_again(&mut self, environment: &[(String, String)]) -> Process {
        let words = [program().to_string_lossy(), "run".into(), "--config".into(), self.file.to_string_lossy()];
        let log = self.folder.path().join(format!("weir-{}.log", self.process.id()));
        let new = Process::start("weir", &words.map(Into::into), &log, environment);
        let before = std::mem::replace(&mut self.process, new);
        let admin = self.admin;
        self.process.wait_ready(|| admin.is_ready());
        before
    }

    /// A folder that lives as long as the gateway.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Scrapes `/metrics`.
    pub fn metrics(&self) -> Metrics {
        self.admin.metrics()
    }

    /// Sum of one metric now.
    pub fn metric(&self, name: &str) -> f64 {
        self.metrics().sum(name)
    }

    /// Waits until a metric (summed over its label sets that carry `labels`) reaches `at_least`.
    pub fn wait_metric(&self, name: &str, labels: &[(&str, &str)], at_least: f64) {
        let what = format!("{name}{labels:?} >= {at_least}");
        until(what, WAIT, || (self.metrics().sum_where(name, labels) >= at_least).then_some(()));
    }

    /// Waits until these words are in the log, which a thread of its own writes.
    pub fn wait_log(&self, words: &str) {
        until(format!("`{words}` in the log"), WAIT, || self.process.log().contains(words).then_some(()));
    }

    /// Waits until every gauge of [`GAUGES_AT_REST`] is zero: all permits are back.
    ///
    /// # Panics
    /// After [`WAIT`], with the gauges that are not.
    pub fn wait_at_rest(&self) {
        let started = std::time::Instant::now();
        loop {
            let metrics = self.metrics();
            let held: Vec<(&str, f64)> = GAUGES_AT_REST
                .into_iter()
                .map(|name| (name, metrics.sum(name)))
                .filter(|(_, value)| *value != 0.0)
                .collect();
            if held.is_empty() {
                return;
            }
            assert!(started.elapsed() < WAIT, "no client is there, yet these are held: {held:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Descriptors without the lanes that the gateway says it has: which idle lanes of its pools stand at a moment is chance. The
    /// fewest of several looks, for a probe or a scrape may hold one for a moment.
    pub fn descriptors_besides_lanes(&self) -> usize {
        let looks = (0..10).map(|_| {
            let lanes = self.metric("weir_lanes_open") as usize;
            std::thread::sleep(Duration::from_millis(20));
            self.process.descriptors().saturating_sub(lanes)
        });
        looks.min().unwrap_or_default()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The judgement at the end of a test: at rest, a clean exit on SIGTERM, no panic in the log.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub fn finish(mut self) {
        self.judge();
    }

    fn judge(&mut self) {
        if std::mem::replace(&mut self.judged, true) {
            return;
        }
        if self.process.try_wait().is_none() {
            self.wait_at_rest();
            self.process.signal("TERM");
            let status = self.process.wait(EXIT_WAIT);
            assert!(status.success(), "weir ended with {status} on SIGTERM; its log:\n{}", self.process.log());
        }
        self.assert_no_panic();
    }

    /// The end was watched by the test itself; only the log is still judged.
    pub fn ended(mut self) {
        self.judged = true;
        self.assert_no_panic();
    }

    /// No panic and no broken internal invariant in the log.
    ///
    /// # Panics
    /// If there is one.
    pub fn assert_no_panic(&self) {
        let log = self.process.log();
        for word in ["panicked at", "internal_invariant", "RUST_BACKTRACE"] {
            assert!(!log.contains(word), "`{word}` in the gateway's log:\n{log}");
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.process.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("--- the gateway's log, last lines ---");
            for line in tail.iter().rev() {
                eprintln!("{line}");
            }
        } else {
            self.judge();
        }
    }
}
