//! A real Prometheus with the files of `examples/prometheus`, and promtool: `cargo xtask setup prometheus`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::admin::Admin;
use crate::port;
use crate::process::Process;
use crate::stream::Address;

/// A vector of PromQL: labels and value of each series.
pub type Series = BTreeMap<BTreeMap<String, String>, f64>;

/// The folder with the files that users start from.
pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/prometheus")
}

/// The example of a configuration, which scrapes and evaluates each second and has another target.
///
/// # Panics
/// If the example does not have what is replaced.
pub fn config(target: SocketAddr) -> String {
    let text = std::fs::read_to_string(examples().join("prometheus.yml")).expect("the example");
    assert!(text.contains("127.0.0.1:9900") && text.matches("_interval: 15s").count() == 2, "{text}");
    text.replace("127.0.0.1:9900", &target.to_string()).replace("_interval: 15s", "_interval: 1s")
}

/// Runs promtool in `folder` with `input` on its standard input, and returns its output.
///
/// # Errors
/// It finds a fault: its output.
///
/// # Panics
/// If it cannot be run.
pub fn promtool(folder: &Path, words: &[&str], input: &str) -> Result<String, String> {
    let mut promtool = Command::new("promtool");
    promtool.args(words).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().expect("promtool starts: `cargo xtask setup prometheus` installs it");
    // It reads all before it prints, or reads nothing.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("its end");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if output.status.success() { Ok(text) } else { Err(text) }
}

/// A running Prometheus; it ends with this value.
pub struct Prometheus {
    api: Admin,
    process: Process,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts one that scrapes this address, and evaluates the rules of the example.
    ///
    /// # Panics
    /// If it is not installed, or does not come up.
    pub fn start(target: SocketAddr) -> Self {
        let folder = tempfile::Builder::new().prefix("weir-prometheus-").tempdir().expect("a temporary folder");
        let file = |name: &str| folder.path().join(name);
        std::fs::copy(examples().join("weir.rules.yml"), file("weir.rules.yml")).expect("copied");
        std::fs::write(file("prometheus.yml"), config(target)).expect("written");
        let listen = Address::port(port::free()).tcp();
        let words = [
            "prometheus".to_owned(),
            format!("--config.file={}", file("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", file("data").display()),
            format!("--web.listen-address={listen}"),
            "--log.level=warn".to_owned(),
        ];
        let mut process = Process::start("prometheus", &words, &file("log"), &[]);
        let api = Admin { address: listen };
        process.wait_ready(|| api.request("GET", "/-/ready", &[], "").is_ok_and(|response| response.status == 200));
        Self { api, process, _folder: folder }
    }

    /// The `data` of a response of its API.
    ///
    /// # Panics
    /// If the response is an error.
    pub fn data(&self, path: &str) -> Value {
        let mut response = self.api.get(path).json();
        assert_eq!(response["status"], "success", "{path}: {response}");
        response["data"].take()
    }

    /// The value of a PromQL expression now: a vector, without the name of the metric.
    ///
    /// # Panics
    /// If it is wrong, or no vector.
    pub fn query(&self, expression: &str) -> Series {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let data = self.data(&format!("/api/v1/query?query={encoded}"));
        assert_eq!(data["resultType"], "vector", "{expression}: {data}");
        let series = data["result"].as_array().expect("a list").iter().map(|one| {
            let labels = one["metric"].as_object().expect("labels").iter();
            let labels = labels.filter(|(name, _)| *name != "__name__");
            let labels = labels.map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned())).collect();
            let value = one["value"][1].as_str().and_then(|digits| digits.parse().ok()).expect("a number");
            (labels, value)
        });
        series.collect()
    }

    /// The value of an expression with one series; `None` if it has none.
    ///
    /// # Panics
    /// If it has several.
    pub fn value(&self, expression: &str) -> Option<f64> {
        let series = self.query(expression);
        assert!(series.len() <= 1, "{expression}: {series:?}");
        series.into_values().next()
    }

    /// The lines of its log about scrapes: failures, and samples that it refuses (doubled, out of order).
    pub fn complaints(&self) -> Vec<String> {
        self.process.log().lines().filter(|line| line.contains("scrape")).map(str::to_owned).collect()
    }

    /// The names of the alerts that are pending or firing; `None` until each rule has been evaluated.
    ///
    /// # Panics
    /// If a rule cannot be evaluated.
    pub fn alerts(&self) -> Option<BTreeSet<String>> {
        let data = self.data("/api/v1/rules");
        let groups = data["groups"].as_array().expect("a list").iter();
        let rules: Vec<&Value> = groups.flat_map(|group| group["rules"].as_array().expect("a list")).collect();
        for rule in &rules {
            assert_ne!(rule["health"], "err", "{rule:#}");
        }
        let raised = rules.iter().filter(|rule| rule["state"] != "inactive");
        let names = raised.map(|rule| rule["name"].as_str().expect("text").to_owned()).collect();
        rules.iter().all(|rule| rule["health"] == "ok").then_some(names)
    }
}
