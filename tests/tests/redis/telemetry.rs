//! A reload changes metrics and logs, without a restart and without a lost request.

use std::path::Path;
use std::time::Instant;

use serde_json::Value as Json;
use weir_tests::deadline::{WAIT, until, until_true};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::port;
use weir_tests::server::{Kind, Server};
use weir_tests::stream::Address;

const DURATIONS: &str = "weir_request_duration_seconds_count";
const STAGES: &str = "weir_request_stage_duration_seconds_count";

/// Changes the file and reloads it by the API.
fn reload(gateway: &Gateway, from: &str, to: &str) -> Json {
    gateway.rewrite(|text| {
        assert!(text.contains(from), "{from}: {text}");
        text.replace(from, to)
    });
    let response = gateway.admin.post("/api/v1/reload", "");
    assert_eq!((response.status, &response.json()["outcome"]), (200, &"applied".into()), "{}", response.body);
    response.json()
}

fn has(outcome: &Json, list: &str, words: &str) -> bool {
    outcome[list].as_array().expect("a list").iter().any(|one| one.as_str().is_some_and(|one| one.contains(words)))
}

fn get(gateway: &Gateway, count: u32) {
    let mut client = gateway.connect();
    (0..count).for_each(|_| client.expect(&["GET", "k"], b"$-1\r\n"));
}

#[test]
fn the_level_holds_from_a_reload_on_for_open_connections_too() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).tables("[telemetry]\nlevel = \"full\""));
    let mut client = gateway.connect();
    let mut ask = || client.expect(&["GET", "k"], b"$-1\r\n");
    let seen = |name: &str| gateway.metrics().sum(name);
    ask();
    gateway.wait_metric(DURATIONS, &[], 1.0);
    let outcome = reload(&gateway, "level = \"full\"", "level = \"counters\"");
    assert!(has(&outcome, "applied", "telemetry.level") && outcome["needs_restart"] == Json::from(Vec::<Json>::new()));
    ask();
    assert_eq!(seen(DURATIONS), 0.0, "there are no histograms at this level");
    gateway.wait_metric("weir_requests_total", &[], 2.0);
    let outcome = reload(&gateway, "level = \"counters\"", "level = \"off\"");
    assert!(has(&outcome, "applied", "telemetry.level") && has(&outcome, "needs_restart", "hot keys"), "{outcome}");
    ask();
    assert_eq!(seen("weir_requests_total"), 0.0, "there are no counters at this level");
    assert!(seen("weir_connections_open") >= 1.0, "gauges there are");
    let outcome = reload(&gateway, "level = \"off\"", "level = \"full\"");
    assert_eq!(outcome["needs_restart"], Json::from(Vec::<Json>::new()), "it is as at the start");
    ask();
    gateway.wait_metric("weir_requests_total", &[], 4.0);
    gateway.wait_metric(DURATIONS, &[], 2.0);
    assert_eq!(seen(DURATIONS), 2.0, "what went by unmeasured is in none");
    drop(client);
    gateway.finish();
}

#[test]
fn the_level_of_the_log_changes_by_sighup() {
    let server = Server::start(Kind::Redis);
    let mut gateway = Gateway::start(Config::to(&server.address).tables("[telemetry]\nlog_level = \"info\""));
    let mut change = |from: &str, to: &str, generation: f64| {
        gateway.rewrite(|text| text.replace(&format!("\"{from}\""), &format!("\"{to}\"")));
        gateway.process().signal("HUP");
        gateway.wait_metric("weir_config_generation", &[], generation);
        gateway.wait_metric("weir_config_reloads_total", &[("outcome", "applied")], generation - 1.0);
    };
    change("info", "error", 2.0);
    change("error", "warn", 3.0);
    change("warn", "info", 4.0);
    gateway.wait_log("generation=4");
    let log = gateway.process().log();
    assert!(!log.contains("generation=2") && !log.contains("generation=3"), "{log}");
    gateway.finish();
}

#[test]
fn a_log_level_beside_the_environment_says_that_it_does_nothing() {
    let server = Server::start(Kind::Redis);
    let mut config = Config::to(&server.address).tables("[telemetry]\nlog_level = \"info\"");
    config.environment.push(("WEIR_LOG".to_owned(), "info".to_owned()));
    let gateway = Gateway::start(config);
    reload(&gateway, "log_level = \"info\"", "log_level = \"error\"");
    gateway.wait_log("WEIR_LOG is set, so telemetry.log_level has no effect");
    gateway.wait_log("generation=2");
    gateway.finish();
}

#[test]
fn the_sampling_of_stages_changes_with_a_reload() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).tables("[telemetry]\nstage_sample = 0.0"));
    get(&gateway, 40);
    gateway.wait_metric(DURATIONS, &[], 40.0);
    assert_eq!(gateway.metric(STAGES), 0.0);
    let outcome = reload(&gateway, "stage_sample = 0.0", "stage_sample = 1.0");
    assert!(has(&outcome, "applied", "telemetry.stage_sample"), "{outcome}");
    get(&gateway, 40);
    gateway.wait_metric(STAGES, &[("stage", "parse")], 40.0);
    reload(&gateway, "stage_sample = 1.0", "stage_sample = 0.0");
    // The one whose turn it was is the last.
    get(&gateway, 40);
    gateway.wait_metric(DURATIONS, &[], 120.0);
    assert!(gateway.metrics().sum_where(STAGES, &[("stage", "parse")]) <= 41.0);
    gateway.finish();
}

fn logged_to(file: &Path, lines: &str) -> String {
    format!("[telemetry.access_log]\ntarget = \"file:{}\"\n{lines}", file.display())
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap_or_default().lines().count()
}

#[test]
fn the_access_log_has_every_request_by_default_and_its_share_changes_with_a_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("access.log");
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).tables(&logged_to(&file, "format = \"text\"")));
    get(&gateway, 30);
    until("30 lines", WAIT, || (lines(&file) >= 30).then_some(()));
    let outcome = reload(&gateway, "format = \"text\"", "format = \"text\"\nsample = 0.0");
    assert!(has(&outcome, "applied", "telemetry.access_log.sample"), "{outcome}");
    get(&gateway, 30);
    let outcome = reload(&gateway, "sample = 0.0", "sample = 1.0");
    assert_eq!(outcome["needs_restart"], Json::from(Vec::<Json>::new()), "{outcome}");
    get(&gateway, 30);
    until("60 lines", WAIT, || (lines(&file) >= 60).then_some(()));
    gateway.wait_metric("weir_requests_total", &[], 90.0);
    gateway.finish();
    assert_eq!(lines(&file), 60, "those in the middle were left out");
}

#[test]
fn keys_that_need_a_restart_are_named_by_the_reload_and_by_the_reference() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, other) = (folder.path().join("access.log"), folder.path().join("other.log"));
    let server = Server::start(Kind::Redis);
    let tables = format!("[telemetry]\nlog_format = \"text\"\n{}", logged_to(&file, ""));
    let gateway = Gateway::start(Config::to(&server.address).tables(&tables));
    gateway.rewrite(|text| {
        text.replace("log_format = \"text\"", "log_format = \"json\"")
            .replace(&file.display().to_string(), &other.display().to_string())
    });
    let outcome = gateway.admin.post("/api/v1/reload", "").json();
    for key in ["telemetry.log_format", "telemetry.access_log.target"] {
        assert!(has(&outcome, "needs_restart", key), "{outcome}");
    }
    gateway.wait_log("these changes wait for a restart");
    get(&gateway, 1);
    until("a line in the old file", WAIT, || (lines(&file) >= 1).then_some(()));
    assert!(!other.exists());
    gateway.finish();
}

#[test]
fn an_endpoint_event_that_every_worker_sees_is_logged_once_a_second() {
    let nobody = Address::port(port::free());
    let config = Config::to(&nobody)
        .workers(4)
        .upstream("[upstream.breaker]\nfailures = 1\nopen_for = \"10ms\"\n[upstream.health]\nenabled = false");
    let gateway = Gateway::start_unready(config);
    let begun = Instant::now();
    let mut clients: Vec<_> = (0..16).map(|_| gateway.connect()).collect();
    let opened = || gateway.metrics().sum("weir_breaker_opened_total");
    until_true("breakers to open again and again", || {
        for client in &mut clients {
            assert_eq!(client.call(&["GET", "k"])[0], b'-');
        }
        opened() >= 40.0
    });
    gateway.wait_log("breaker_opened");
    drop(clients);
    let log = gateway.log();
    let lines = log.lines().filter(|line| line.contains("breaker_opened")).count();
    // One at once and one for each second since, by the times of the events: four workers would write four at once.
    assert!(lines as f64 <= 1.0 + begun.elapsed().as_secs_f64(), "{log}");
    gateway.wait_log("lines suppressed");
    gateway.finish();
}
