//! The lab as a user runs it: `weir lab knee` and `weir plan` as processes, against real servers. The tests of this binary
//! run one after the other, because they measure.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use weir_tests::gateway::program;
use weir_tests::server::{Kind, Server};

#[path = "lab/clients.rs"]
mod clients;
#[path = "lab/demo.rs"]
mod demo;
#[path = "lab/envoy_edges.rs"]
mod envoy_edges;
#[path = "lab/flags.rs"]
mod flags;
#[path = "lab/gates.rs"]
mod gates;
#[path = "lab/http.rs"]
mod http;
#[path = "lab/imports.rs"]
mod imports;
#[path = "lab/loads.rs"]
mod loads;
#[path = "lab/pages.rs"]
mod pages;
#[path = "lab/placement.rs"]
mod placement;
#[path = "lab/postgres.rs"]
mod postgres;
#[path = "lab/pubsub.rs"]
mod pubsub;
#[path = "lab/tcp.rs"]
mod tcp;
#[path = "lab/together.rs"]
mod together;
#[path = "lab/tutorial.rs"]
mod tutorial;
#[path = "lab/upgrades.rs"]
mod upgrades;

const SCENARIO: &str = r#"
name = "small"
protocol = "redis"
connections = 20
slo_p99 = "500ms"
keys = { count = 1000 }
command = [{ name = "GET", weight = 80 }, { name = "SET", weight = 20 }]
phase = [{ rate = 1000, duration = "1s" }]
"#;

/// A folder with a scenario, and the commands that use it.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(scenario: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("scenario.toml"), scenario).expect("written");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `weir`, behind the words of `wrapper`.
    fn weir(&self, wrapper: &[&str], words: &[&str]) -> Output {
        let program = program().to_string_lossy().into_owned();
        let all: Vec<&str> = wrapper.iter().copied().chain([&*program]).chain(words.iter().copied()).collect();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).current_dir(self.folder.path()).env("TMPDIR", self.folder.path());
        command.output().expect("weir starts")
    }

    /// Runs `weir lab compare`. It runs again if the host of this virtual machine withheld the CPUs during every attempt, because
    /// that is no fault of the lab.
    fn compare(&self, words: &[&str]) -> Output {
        let all = [&["lab", "compare", "scenario.toml"], words].concat();
        let is_stolen = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("attempts: steal");
        let first = self.weir(&[], &all);
        (0..4).fold(first, |last, _| if is_stolen(&last) { self.weir(&[], &all) } else { last })
    }

    /// A quick search. Its output, and its result if there is one.
    fn knee(&self, wrapper: &[&str], words: &[&str]) -> (String, Option<Value>) {
        let fixed = ["lab", "knee", "scenario.toml", "--quick", "--json", "found.json"];
        let output = self.weir(wrapper, &[&fixed, words].concat());
        let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let result = fs::read_to_string(self.path("found.json")).unwrap_or_default();
        (told, serde_json::from_str(&result).ok())
    }
}

/// Searches until one is not spoiled by the machine (steal, somebody else's load), three times at most. `None`: all were, and
/// what was looked at is that each said so and recommended nothing. Whether a machine is quiet decides on no test.
fn fit(mut search: impl FnMut() -> (String, Option<Value>)) -> Option<(String, Value)> {
    for _ in 0..3 {
        let (told, result) = search();
        let result = result.unwrap_or_else(|| panic!("no result:\n{told}"));
        // Descriptors are the test's own doing, never the machine's.
        let is_invalid = told.replace("invalid: fds", "").contains("invalid: ");
        let is_box = word(&result, "/knee/stop/reason") == "box";
        if !is_invalid && !is_box {
            return Some((told, result));
        }
        let is_modest = told.contains("no knee was found") || told.contains("Do not use it for sizing");
        assert!(is_modest, "a spoiled search recommends something:\n{told}");
        eprintln!("spoiled:\n{told}");
    }
    eprintln!("BUSY MACHINE: three searches were spoiled, and said so; what a good one finds was not looked at");
    None
}

fn number(result: &Value, path: &str) -> f64 {
    result.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} is no number in {result:#}"))
}

fn word<'a>(result: &'a Value, path: &str) -> &'a str {
    result.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("{path} is no word in {result:#}"))
}

#[test]
fn a_knee_in_front_of_real_redis_is_found_and_a_quick_look_sizes_nothing() {
    let server = Server::start(Kind::Redis);
    let bench = Bench::new(SCENARIO);
    let behind = server.address.tcp().to_string();
    let Some((told, result)) = fit(|| bench.knee(&[], &["--behind", &behind, "--rate-max", "5000"])) else {
        return;
    };
    assert_eq!(word(&result, "/knee/outcome"), "at_ceiling", "{told}");
    assert_eq!(word(&result, "/knee/stop/reason"), "asked", "{told}");
    assert_eq!(number(&result, "/knee/clean/rate"), 5_000.0);
    assert!(number(&result, "/knee/clean/clean") >= 2.0);
    assert!(number(&result, "/knee/base/gateway_cpu_us_per_req") > 1.0, "a request costs more than a microsecond here");
    assert!(number(&result, "/knee/ceilings/direct") > 5_000.0);
    assert!(told.contains("clean knee") && told.contains("5.0k req/s"), "{told}");
    assert!(server.calls("get") > 10_000, "the load went to the server");
    // It stands in a report, which names what is no result.
    fs::write(bench.path("other.json"), "{}").expect("written");
    let reported = bench.weir(&[], &["lab", "report", ".", "--out", "page"]);
    let complaint = String::from_utf8_lossy(&reported.stderr).into_owned();
    assert!(
        reported.status.code() == Some(1) && complaint.contains("not read: other.json: no result of the lab"),
        "{complaint}"
    );
    let page = |name: &str| fs::read_to_string(bench.path("page").join(name)).expect("a report");
    let (text, html) = (page("report.md"), page("report.html"));
    assert!(text.contains("| small, real back end, quick look |") && text.contains("5.0k req/s"), "{text}");
    assert!(html.contains("<svg") && html.contains("clean knee") && !html.contains("http"), "{html}");
    // A look is no evidence.
    let plan = ["plan", "--scenario", "scenario.toml", "--demand", "4000", "--results", "."];
    let refused = bench.weir(&[], &plan);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("quick look"), "{text}");
    // Without the mark of a quick look, the plan uses the result.
    let whole = result.to_string().replace(", quick look", "");
    fs::write(bench.path("found.json"), whole).expect("written");
    let planned = bench.weir(&[], &plan);
    let text = String::from_utf8_lossy(&planned.stdout).into_owned();
    assert!(text.starts_with("3 instances of 1 vCPU each"), "{text}");
}

#[test]
fn a_back_end_slower_than_the_gateway_is_named_as_the_reason() {
    // 200 connections, each answered after 50 ms: 4,000 a second, whatever stands in front. So slow that the generator is
    // on time also on a busy machine.
    let wide = SCENARIO.replace("connections = 20", "connections = 200");
    let bench = Bench::new(&wide);
    let origin = Origin::start(&["--delay", "50ms"]);
    let Some((told, result)) = fit(|| bench.knee(&[], &["--behind", &origin.address])) else {
        return;
    };
    assert_eq!(word(&result, "/knee/stop/reason"), "backend", "{told}");
    let (clean, direct) = (number(&result, "/knee/clean/rate"), number(&result, "/knee/ceilings/direct"));
    // Half a second of backlog is allowed, which a window of three takes some time to gather.
    assert!(clean > direct / 2.0 && clean < direct * 1.3, "{clean} of {direct}\n{told}");
}

#[test]
fn too_few_descriptors_are_named_as_the_reason() {
    // The generator has 20 connections and about as many descriptors of its own.
    let bench = Bench::new(SCENARIO);
    if let Some((told, result)) = fit(|| bench.knee(&["prlimit", "--nofile=72:72"], &[])) {
        assert_eq!(word(&result, "/knee/stop/reason"), "connections", "{told}");
        assert!(told.contains("file descriptors"), "{told}");
    }
    let _ = fs::remove_file(bench.path("found.json"));
    // With still fewer there are not even the connections.
    let (told, _) = bench.knee(&["prlimit", "--nofile=30:30"], &[]);
    assert!(told.contains("open files"), "{told}");
}

#[test]
fn a_generator_starved_of_cpu_is_named_as_the_reason() {
    let bench = Bench::new(&SCENARIO.replace("500ms", "100ms"));
    let server = Server::start(Kind::Redis);
    let last = std::thread::available_parallelism().expect("CPUs").get() - 1;
    let _hogs: Vec<Hog> = (0..4).map(|_| Hog::start(last)).collect();
    let behind = server.address.tcp().to_string();
    // Otherwise the load of others would be the reported reason.
    let Some((told, result)) = fit(|| bench.knee(&[], &["--behind", &behind])) else { return };
    assert_eq!(word(&result, "/knee/stop/reason"), "generator", "{told}");
    // Below that it may have seen clean trials: a lower bound, and it says so.
    assert!(told.contains("the generator is the limit"), "{told}");
}

#[test]
fn a_share_of_a_cpu_bounds_the_gateway_and_marks_the_result() {
    let bench = Bench::new(SCENARIO);
    let Some((told, result)) = fit(|| bench.knee(&[], &["--budget", "0.2", "--telemetry", "off"])) else {
        return;
    };
    assert!(told.contains("level = \"off\""), "{told}");
    assert_eq!((word(&result, "/shape/budget_kind"), word(&result, "/shape/telemetry")), ("quota", "off"));
    assert_eq!(number(&result, "/shape/budget_vcpu"), 0.2);
    assert_eq!(result.pointer("/knee/is_quota_shaped"), Some(&Value::Bool(true)), "{told}");
    // Nothing used more than its share, and a twentieth more for the edges of the window.
    let trials = result.pointer("/knee/seen").and_then(Value::as_array).expect("trials");
    let used = |trial: &Value| {
        Some(trial.pointer("/gateway_cpu_us_per_req")?.as_f64()? * trial.get("completed_rate")?.as_f64()? / 1e6)
    };
    let most = trials.iter().filter_map(used).fold(0.0, f64::max);
    assert!(most > 0.02 && most < 0.25, "{most} of 0.2\n{told}");
}

#[test]
fn telemetry_is_a_row_of_its_own_with_its_cost() {
    let bench = Bench::new(SCENARIO);
    let words = ["lab", "compare", "scenario.toml", "--peers", "weir-telemetry-off,weir-capture-all"];
    // One block shows that each row is made; figures are not looked at.
    let output = bench.weir(&[], &[&words[..], &["--blocks", "1", "--seconds", "1"]].concat());
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    for line in ["\n| weir-telemetry-off", "\n| weir-capture-all", "level = \"off\"", "sample = 1.0"] {
        assert!(told.contains(line), "{line} is not in\n{told}");
    }
}

#[test]
fn unmeasurable_setups_are_refused_before_any_load() {
    let bench = Bench::new(SCENARIO);
    let (told, _) = bench.knee(&[], &["--budget", "512"]);
    assert!(told.contains("not run: a budget of 512 CPUs"), "{told}");
    let closed = Bench::new(&SCENARIO.replace("protocol", "mode = \"closed\"\nprotocol").replace("rate = 1000, ", ""));
    let (told, _) = closed.knee(&[], &[]);
    assert!(told.contains("write `mode = \"open\"`"), "{told}");
    let (told, _) = bench.knee(&[], &["--behind", "127.0.0.1:9"]);
    assert!(told.contains("cannot reach 127.0.0.1:9"), "{told}");
}

/// A peer's file: the gateway itself, started by another program.
fn peer(name: &str, program: &str, seconds: &str) -> String {
    let weir = weir_tests::gateway::program().display();
    format!(
        r#"name = "{name}"
protocols = ["redis"]
program = "{program}"
install = "build it"
arguments = ["{seconds}", "{weir}", "run", "--config", "{{config}}"]
[config]
file = "c.toml"
text = '''
[runtime]
workers = {{workers}}
[admin]
bind = "127.0.0.1:{{admin_port}}"
[[listener]]
name = "redis"
protocol = "redis"
bind = "127.0.0.1:{{port}}"
upstream = "redis"
[[upstream]]
name = "redis"
endpoints = ["{{origin}}"]
'''
"#
    )
}

#[test]
fn peers_are_compared_and_a_missing_or_dying_peer_does_not_end_it() {
    let server = Server::start(Kind::Redis);
    let phase = "rate = 2000, warmup = \"0s\", duration = \"1s\"";
    let bench = Bench::new(&SCENARIO.replace("rate = 1000, duration = \"1s\"", phase));
    // Behind a program that starts the gateway as a child of its own: its CPU time counts all the same.
    for (name, program, seconds) in
        [("mine", "timeout", "600"), ("brief", "timeout", "15"), ("absent", "no-such-one", "1")]
    {
        fs::write(bench.path(&format!("{name}.toml")), peer(name, program, seconds)).expect("written");
    }
    let peers = "envoy,haproxy,twemproxy,./mine.toml,./brief.toml,./absent.toml,direct";
    let behind = server.address.tcp().to_string();
    let output = bench.compare(&["--peers", peers, "--behind", &behind, "--blocks", "2", "--json", "found.json"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(bench.path("found.json")).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert!(told.contains("Not compared: absent. no-such-one is not installed: build it"), "{told}");
    assert_eq!(word(&result, "/failed/0/arm"), "brief", "{told}");
    assert!(word(&result, "/arms/2/config").contains("nbthread 1"), "{told}");
    for arm in ["weir", "envoy", "haproxy", "twemproxy", "mine", "direct"] {
        for (block, run) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let at = |path: &str| format!("/rows/0/blocks/{block}/runs/{arm}/{run}{path}");
            let intended = number(&result, &at("/trial/intended"));
            let completed = number(&result, &at("/trial/completed"));
            assert!(intended > 1_500.0 && completed == intended, "{arm}: {completed} of {intended}\n{told}");
            let cost = result.pointer(&at("/trial/parties/gateway_cpu_us_per_req")).and_then(Value::as_f64);
            assert_eq!(cost.is_some_and(|micros| micros > 1.0), arm != "direct", "{arm}: {cost:?}\n{told}");
        }
    }
    assert!(number(&result, "/direct_ceiling") > 4_000.0, "{told}");
    // So few blocks give figures and no claim.
    assert!(!told.contains(" better") && !told.contains(" worse"), "{told}");
    let ours = format!("{}/weir-lab-", bench.folder.path().display());
    weir_tests::deadline::until_true("all that the lab started to end", || {
        let words = fs::read_dir("/proc").expect("processes").filter_map(|entry| {
            let words = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&words).into_owned())
        });
        !words.into_iter().any(|words| words.contains(&ours))
    });
}

#[test]
fn a_comparison_without_a_gateway_shows_the_cost_of_the_gateway() {
    let phase = "rate = 2000, warmup = \"0s\", duration = \"1s\"";
    let bench = Bench::new(&SCENARIO.replace("rate = 1000, duration = \"1s\"", phase));
    let output = bench.compare(&["--peers", "direct", "--json", "found.json"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(bench.path("found.json")).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    let has_ratio = told.lines().any(|line| line.starts_with("| direct ") && line.contains(" to "));
    assert!(has_ratio || told.contains("do not count") || told.contains("count for cost"), "{told}");
    assert!(number(&result, "/rows/0/blocks/7/runs/weir/1/trial/completed") > 1_000.0, "{told}");
    assert_eq!(word(&result, "/backend"), "synthetic");
    let cost = |arm: &str| {
        result
            .pointer(&format!("/rows/0/blocks/0/runs/{arm}/0/trial/parties/gateway_cpu_us_per_req"))
            .and_then(Value::as_f64)
    };
    assert!(cost("weir").is_some_and(|micros| micros > 1.0) && cost("direct").is_none(), "{told}");
}

#[test]
fn a_wrong_peer_is_refused_before_any_load() {
    let bench = Bench::new(SCENARIO);
    fs::write(bench.path("wrong.toml"), "name = \"wrong\"\ncolour = 1\n").expect("written");
    let refusal = |peers: &str, budget: &str| {
        let output = bench.weir(&[], &["lab", "compare", "scenario.toml", "--peers", peers, "--budget", budget]);
        assert!(!output.status.success() && output.stdout.is_empty());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(
        refusal("gate", "1")
            .contains("no peer `gate`; there are weir-telemetry-off, weir-capture-all, weir-polling, weir-cache")
    );
    assert!(refusal("nginx", "1").contains("nginx does not speak redis; it speaks http1"));
    assert!(refusal("./wrong.toml", "1").contains("wrong.toml:2: unknown field `colour`"));
    assert!(refusal("envoy,envoy", "1").contains("envoy is named twice"));
    assert!(refusal("weir", "1").contains("no peer to compare with"));
    fs::write(bench.path("other.toml"), peer("weir", "timeout", "600")).expect("written");
    assert!(
        refusal("./other.toml,envoy", "1").contains("weir is the name of this gateway, and timeout another program")
    );
    fs::write(bench.path("origin.toml"), peer("origin", "timeout", "600")).expect("written");
    assert!(refusal("./origin.toml", "1").contains("a name of the lab's own"));
    assert!(refusal("envoy", "512").contains("not run: a budget of 512 CPUs"));
}

/// A synthetic server of the lab.
struct Origin {
    child: Child,
    address: String,
}

impl Origin {
    fn start(words: &[&str]) -> Self {
        Self::of("redis", words)
    }

    fn of(protocol: &str, words: &[&str]) -> Self {
        let port = weir_tests::port::free();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(program());
        command.args(["lab", "origin", protocol, "--bind", &address]).args(words);
        let child = command.stdout(Stdio::null()).spawn().expect("an origin starts");
        weir_tests::deadline::until_true("the origin to listen", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self { child, address }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that never rests, on one CPU.
struct Hog(Child);

impl Hog {
    fn start(cpu: usize) -> Self {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"]);
        Self(command.spawn().expect("taskset starts"))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
