//! The metrics, the example of a configuration and the alerts of the guide, as a real Prometheus reads them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use weir_tests::certificate::Certificates;
use weir_tests::deadline::{WAIT, until, until_true};
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::port;
use weir_tests::prometheus::{Prometheus, Series, config, examples, promtool};
use weir_tests::stream::Address;

mod stand;

use stand::Stand;

/// Between two looks at Prometheus, which scrapes each second.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for a value of Prometheus.
fn until_seen<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    until(what, 2 * WAIT, || {
        look().or_else(|| {
            std::thread::sleep(LOOK);
            None
        })
    })
}

#[test]
fn promtool_has_no_finding_in_the_metrics_of_all_protocols_at_any_level() {
    let wrong = "# HELP weir_wait_ms Time.\n# TYPE weir_wait_ms counter\nweir_wait_ms 1\n";
    assert!(promtool(Path::new("/"), &["check", "metrics"], wrong).is_err(), "it finds what there is to find");
    for (level, least) in [("off", 50), ("counters", 150), ("full", 1_000)] {
        let mut stand = Stand::start(level);
        stand.burst();
        stand.mischief();
        let mut transfers = stand.transfers();
        until_true("the transfers to begin", || stand.gateway.metric("weir_requests_in_flight") >= 2.0);
        let page = stand.gateway.admin.get("/metrics").body;
        assert!(transfers.are_under_way());
        assert_eq!(promtool(Path::new("/"), &["check", "metrics"], &page), Ok(String::new()), "level {level}");
        // It reads a page, and not an error of one line.
        let series = page.lines().filter(|line| !line.starts_with('#')).count();
        assert!(series > least, "level {level}: {series} series");
        stand.end(transfers);
        stand.gateway.finish();
    }
}

/// The expressions that hold while a transfer goes through this listener and to this upstream.
fn moving(listener: &str, upstream: &str) -> [String; 2] {
    // All other traffic is far slower.
    [
        format!("rate(weir_client_written_bytes_total{{listener=\"{listener}\"}}[5s]) > 50000"),
        format!("rate(weir_upstream_read_bytes_total{{upstream=\"{upstream}\"}}[5s]) > 50000"),
    ]
}

fn by(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The responses of each listener by class, from each family that counts them; and all requests.
fn assert_statuses(prometheus: &Prometheus, stand: &Stand) {
    let counts: Series = stand
        .counts
        .iter()
        .map(|((listener, class), count)| (by(&[("listener", listener), ("class", class)]), *count))
        .collect();
    let code = r#"label_replace(weir_http_responses_total, "class", "${1}xx", "code", "(.)..")"#;
    let of_listeners = format!("sum by (listener, class) ({code})");
    until_seen(&format!("{counts:?}"), || (prometheus.query(&of_listeners) == counts).then_some(()));
    assert_eq!(prometheus.query("sum by (listener, class) (weir_http_route_responses_total) > 0"), counts);
    assert_eq!(prometheus.query("sum by (listener, class) (weir_http_listener_responses_total) > 0"), counts);
    let requests = prometheus.query(r#"sum by (listener) (weir_requests_total{listener=~"test|secure"})"#);
    assert_eq!(prometheus.query("sum by (listener) (weir_http_responses_total)"), requests);
    let of_origin = prometheus.query("sum by (class) (weir_http_upstream_responses_total) > 0");
    assert_eq!(prometheus.query(&format!("sum by (class) ({code})")), of_origin, "all responses are the origin's");
}

#[test]
fn rates_of_bytes_move_while_transfers_run_and_the_classes_of_statuses_add_up() {
    let mut stand = Stand::start("full");
    stand.burst();
    let prometheus = Prometheus::start(stand.gateway.admin.address);
    until_seen("a scrape", || prometheus.value("up == 1"));
    let expressions: Vec<String> = [("test", "server"), ("names", "nginx"), ("secure", "server"), ("pipe", "source")]
        .iter()
        .flat_map(|(listener, upstream)| moving(listener, upstream))
        .collect();
    for expression in &expressions {
        assert_eq!(prometheus.value(expression), None, "nothing flows yet: {expression}");
    }
    let mut transfers = stand.transfers();
    for expression in &expressions {
        until_seen(expression, || prometheus.value(expression));
    }
    stand.burst();
    assert!(transfers.are_under_way());
    let (bodies, piped) = stand.end(transfers);
    for bytes in
        ["weir_client_written_bytes_total{listener=\"pipe\"}", "weir_upstream_read_bytes_total{upstream=\"source\"}"]
    {
        until_seen(&format!("{piped} of {bytes}"), || prometheus.value(&format!("{bytes} == {piped}")));
    }
    let of_http = "sum(weir_client_written_bytes_total{listener=~\"test|secure\"})";
    until_seen(&format!("{bodies} of {of_http}"), || prometheus.value(&format!("{of_http} >= {bodies}")));
    assert_statuses(&prometheus, &stand);
    assert_eq!(prometheus.value("min_over_time(up[10m])"), Some(1.0), "a scrape failed");
    assert!(prometheus.value("count_over_time(up[10m])").is_some_and(|scrapes| scrapes >= 3.0));
    let targets = prometheus.data("/api/v1/targets");
    assert_eq!(targets["activeTargets"][0]["lastError"], "", "{targets}");
    assert_eq!(prometheus.complaints(), Vec::<String>::new());
    stand.gateway.finish();
}

#[test]
fn the_examples_are_valid_and_their_alerts_fire_when_they_must() {
    promtool(&examples(), &["check", "config", "prometheus.yml"], "").expect("no fault");
    promtool(&examples(), &["test", "rules", "weir.rules.test.yml"], "").expect("no fault");
    // The lines for a token, as a user enables them.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name);
    let token = file("weir.token");
    let text = config(Address::port(9900).tcp());
    let with_token = text.replace("    # authorization:", "    authorization:").replace(
        "    #   credentials_file: /etc/prometheus/weir.token",
        &format!("      credentials_file: {}", token.display()),
    );
    assert_eq!(with_token.matches("weir.token").count(), 1);
    std::fs::write(&token, "secret").expect("written");
    std::fs::copy(examples().join("weir.rules.yml"), file("weir.rules.yml")).expect("copied");
    std::fs::write(file("prometheus.yml"), with_token).expect("written");
    promtool(folder.path(), &["check", "config", "prometheus.yml"], "").expect("no fault");
}

/// Waits until these alerts are pending or firing, and no other one.
fn until_alerts(prometheus: &Prometheus, expected: &[&str], mut meanwhile: impl FnMut()) {
    let started = Instant::now();
    loop {
        meanwhile();
        let names = prometheus.alerts();
        if names.as_ref().is_some_and(|names| names.iter().eq(expected)) {
            return;
        }
        assert!(started.elapsed() < 2 * WAIT, "{expected:?} are expected, and these are there: {names:?}");
        std::thread::sleep(LOOK);
    }
}

#[test]
fn an_outage_raises_the_alerts_of_the_example_in_a_real_prometheus() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create_ending_in(folder.path(), 90);
    let origin = Faulty::http(|_| Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()));
    let (certificate, key) = (files.server.display(), files.server_key.display());
    let secure = format!(
        "[[listener]]\nname = \"secure\"\nprotocol = \"http\"\nbind = \"127.0.0.1:{}\"\nupstream = \"server\"\n\
         [listener.tls]\ncert_file = \"{certificate}\"\nkey_file = \"{key}\"",
        port::free()
    );
    let health = "[upstream.health]\ninterval = \"100ms\"\ntimeout = \"100ms\"";
    let gateway = Gateway::start(Config::http(&origin.address).upstream(health).tables(&secure));
    let prometheus = Prometheus::start(gateway.admin.address);
    // `increase` sees an event only in a series that was there before it.
    for (name, label, value) in [
        ("weir_upgrades_total", "result", "failed"),
        ("weir_violations_total", "reason", "internal_invariant"),
        ("weir_worker_stalls_total", "worker", "0"),
    ] {
        assert_eq!(gateway.metrics().by(name, label).get(value), Some(&0.0), "{name}");
    }
    let address = gateway.address.clone();
    let request = || drop(HttpClient::connect(&address).get("/"));
    until_seen("responses that are counted", || {
        request();
        prometheus.value("rate(weir_http_responses_total[1m]) > 0")
    });
    until_alerts(&prometheus, &[], request);
    drop(origin);
    Certificates::create_ending_in(folder.path(), 2);
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    gateway.rewrite(|text| text.replace("protocol = \"http\"", "protocol = \"gopher\""));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 422);
    let outage = [
        "WeirCertificateExpires",
        "WeirCertificateExpiresSoon",
        "WeirEndpointDown",
        "WeirErrorShare",
        "WeirReloadFailed",
        "WeirRequestsRefused",
        "WeirUpstreamDown",
    ];
    until_alerts(&prometheus, &outage, request);
    gateway.finish();
    until_seen("WeirDown", || prometheus.alerts().filter(|names| names.contains("WeirDown")));
}

/// The expressions of the code blocks of a document, each with its line.
fn expressions(document: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_inside = false;
    for (at, line) in document.lines().enumerate() {
        if line.starts_with("```") {
            is_inside = line == "```promql";
        } else if is_inside && !line.starts_with('#') {
            let line = line.split("  # ").next().unwrap_or(line);
            match found.last_mut().filter(|_| line.starts_with("  ")) {
                Some((_, expression)) => *expression += line,
                None => found.push((at + 1, line.to_owned())),
            }
        }
    }
    found
}

#[test]
fn every_expression_of_the_guide_is_promql_over_metrics_that_exist() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/operations.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let mut rules = "groups:\n- name: guide\n  rules:\n".to_owned();
    let found = expressions(&guide);
    assert!(found.len() > 30, "{found:?}");
    for (line, expression) in &found {
        rules += &format!("  - record: line_{line}\n    expr: |\n      {expression}\n");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("rules.yml"), &rules).expect("written");
    promtool(folder.path(), &["check", "rules", "rules.yml"], "").expect("no fault");
    let examples = std::fs::read_to_string(examples().join("weir.rules.yml")).expect("the rules");
    let words = [rules, examples].concat();
    let words = words.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let metrics = words.filter(|word| ["weir_", "gateway_", "process_"].iter().any(|start| word.starts_with(start)));
    for metric in metrics {
        let family = metric.trim_end_matches("_bucket");
        assert!(weir_telemetry::catalog::find(family).is_some(), "no metric is called {metric}");
    }
}
