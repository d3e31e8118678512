//! Servers that restart one after the other: as long as one of them serves, clients notice nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_tests::deadline::until_true;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::lab_origin::LabOrigin;
use weir_tests::port;
use weir_tests::stream::Address;

/// How long a server is down: its breaker opens, and its health check fails less often than it takes to call it down.
const DOWN: Duration = Duration::from_millis(900);
/// Between the return of one server and the end of the next.
const APART: Duration = Duration::from_millis(400);
/// Clients that keep their connection, and as many that make a new one for each request.
const CLIENTS: usize = 4;
/// Requests of a kill -9 that were under way on a connection without an earlier response are not repeated.
const ERRORS_MAX: usize = 2;

/// Clients of both kinds that ask until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<BTreeMap<String, usize>>>,
}

impl Load {
    fn start(gateway: &Address) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let client = |number: usize| {
            let (stop, gateway) = (stop.clone(), gateway.clone());
            std::thread::spawn(move || {
                let mut results = BTreeMap::new();
                let mut client = HttpClient::connect(&gateway);
                while !stop.load(Ordering::Relaxed) {
                    let response = client.try_get("/12");
                    let result = response.as_ref().map_or_else(
                        || "cut".to_owned(),
                        |response| match response.status {
                            200 => "200".to_owned(),
                            status => format!("{status} {}", response.text().trim()),
                        },
                    );
                    *results.entry(result).or_insert(0) += 1;
                    if response.is_none() || number >= CLIENTS {
                        client = HttpClient::connect(&gateway);
                    }
                    // The pace of a client.
                    std::thread::sleep(Duration::from_millis(4));
                }
                results
            })
        };
        let clients = (0..2 * CLIENTS).map(client).collect();
        Self { stop, clients }
    }

    /// How often each result came.
    fn stop(self) -> BTreeMap<String, usize> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = BTreeMap::new();
        for client in self.clients {
            for (result, count) in client.join().expect("a client ends in order") {
                *all.entry(result).or_insert(0) += count;
            }
        }
        all
    }
}

fn assert_no_outage(endpoints: usize, upstream: &str) {
    let mut origins: Vec<LabOrigin> = (0..endpoints).map(|_| LabOrigin::start()).collect();
    let config = Config { protocol: "http", ..Config::to_all(origins.iter().map(|origin| &origin.address)) };
    let gateway = Gateway::start(config.upstream(upstream));
    let load = Load::start(&gateway.address);
    for origin in &mut origins {
        std::thread::sleep(APART);
        origin.kill();
        std::thread::sleep(DOWN);
        origin.restart();
    }
    std::thread::sleep(APART);
    let results = load.stop();
    let good = results.get("200").copied().unwrap_or(0);
    let errors = results.values().sum::<usize>() - good;
    assert!(errors <= ERRORS_MAX && good > 100, "{endpoints} endpoints, {upstream:?}: {results:?}");
    gateway.finish();
}

#[test]
fn a_rolling_restart_of_two_endpoints_with_default_settings_is_no_outage() {
    assert_no_outage(2, "");
}

#[test]
fn a_rolling_restart_of_three_endpoints_without_health_checks_is_no_outage() {
    assert_no_outage(3, "[upstream.health]\nenabled = false\n");
}

#[test]
fn a_rolling_restart_of_two_endpoints_in_http2_is_no_outage() {
    assert_no_outage(2, "[upstream.http]\nversion = \"2\"\n");
}

#[test]
fn connect_failures_beyond_the_retry_budget_cost_no_request() {
    let slow = Faulty::http(|_| {
        // Many are under way at once.
        std::thread::sleep(Duration::from_millis(300));
        Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec())
    });
    let away = Address::port(port::free());
    let config = Config { protocol: "http", ..Config::to_all([&away, &slow.address]) };
    let gateway =
        Gateway::start(config.upstream("[upstream.health]\nenabled = false\n[upstream.breaker]\nfailures = 1000\n"));
    let clients: Vec<_> = (0..40)
        .map(|_| {
            let address = gateway.address.clone();
            std::thread::spawn(move || HttpClient::connect(&address).get("/").status)
        })
        .collect();
    let statuses: Vec<u16> = clients.into_iter().map(|client| client.join().expect("a response")).collect();
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    gateway.finish();
}

#[test]
fn an_ejected_endpoint_serves_while_the_others_cannot_be_reached() {
    let is_bad = Arc::new(AtomicBool::new(true));
    let seen = is_bad.clone();
    let first = Faulty::http(move |_| {
        let status = if seen.load(Ordering::Relaxed) { "503 Service Unavailable" } else { "200 OK" };
        Act::Reply(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nhi").into_bytes())
    });
    let mut second = LabOrigin::start();
    let config = Config { protocol: "http", ..Config::to_all([&first.address, &second.address]) };
    let gateway =
        Gateway::start(config.upstream("[upstream.health]\nenabled = false\n[upstream.breaker]\nopen_for = \"60s\"\n"));
    let mut client = HttpClient::connect(&gateway.address);
    until_true("the first endpoint to be ejected", || {
        client.get("/2");
        gateway.metrics().sum("weir_endpoint_ejections_total") >= 1.0
    });
    is_bad.store(false, Ordering::Relaxed);
    second.kill();
    let statuses: Vec<u16> = (0..40).map(|_| client.get("/2").status).collect();
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    drop(client);
    gateway.finish();
}

#[test]
fn a_good_health_check_lets_an_endpoint_in_whose_breaker_is_open() {
    let mut origins = [LabOrigin::start(), LabOrigin::start()];
    let config = Config { protocol: "http", ..Config::to_all(origins.iter().map(|origin| &origin.address)) };
    let checks = "[upstream.health]\ninterval = \"50ms\"\ntimeout = \"50ms\"\nunhealthy_after = 1000\n";
    let gateway = Gateway::start(config.upstream(checks).upstream("[upstream.breaker]\nopen_for = \"60s\"\n"));
    let mut client = HttpClient::connect(&gateway.address);
    origins[0].kill();
    until_true("the breaker to open", || {
        assert_eq!(client.get("/2").status, 200);
        gateway.metrics().sum("weir_breaker_opened_total") >= 1.0
    });
    origins[0].restart();
    let address = origins[0].address.text();
    let served = || gateway.metrics().sum_where("weir_lane_connects_total", &[("endpoint", &address)]);
    let before = served();
    until_true("a connection to the endpoint that is back", || {
        assert_eq!(client.get("/2").status, 200);
        served() > before
    });
    drop(client);
    gateway.finish();
}
