//! A listener that knows its clean knee: what it tells, and what it does there. Rates are the gateway's to keep; the
//! tests only come faster than any machine needs to be, and wait.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value as Json, json};
use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::victim::Victim;
use weir_tests::wire::encode;

/// A real result; it was a quick look, and ended at the ceiling of the lab.
const FOUND: &str = include_str!("../../../lab/trials/src/testdata/knee.json");
const REFUSED: &[u8] = b"-ERR weir: too many requests per second\r\n";
/// The load of two seconds and ten quiet ones, on a machine that is busy otherwise.
const CALM_WAIT: Duration = Duration::from_secs(60);

/// The result of a search that found this knee with one CPU.
fn result(rate: f64) -> String {
    let mut found: Json = serde_json::from_str(FOUND).expect("a result");
    let row = found["shape"]["row"].as_str().expect("a row").replace(", quick look", "");
    found["shape"]["row"] = row.into();
    found["knee"]["outcome"] = "verified".into();
    found["knee"]["clean"]["rate"] = rate.into();
    found.to_string()
}

/// A result in a folder that is dropped after the gateway.
fn result_file(folder: &Path, rate: f64) -> PathBuf {
    let path = folder.join("knee.json");
    std::fs::write(&path, result(rate)).expect("the result can be written");
    path
}

fn knee_keys(path: &Path, action: &str) -> String {
    format!("knee = \"{}\"\nknee_action = \"{action}\"", path.display())
}

/// The listener as the API shows it.
fn listener(gateway: &Gateway) -> Json {
    gateway.admin.get("/api/v1/listeners").json()["listeners"][0].clone()
}

/// The check of the knee in `/readyz?verbose`, with the status of the whole.
fn readiness(gateway: &Gateway) -> (u16, Json) {
    let response = gateway.admin.get("/readyz?verbose");
    let checks = response.json()["checks"].as_array().expect("checks").clone();
    let own = checks.into_iter().find(|check| check["name"] == "knee_test");
    (response.status, own.expect("the check of the listener `test`"))
}

/// Asks for a key many times in one go; how many replies were the value, and how many the refusal. Nothing else comes.
fn burst(client: &mut Client, count: usize) -> (usize, usize) {
    client.send(&encode(&["GET", "k"]).repeat(count));
    let mut seen = (0, 0);
    for _ in 0..count {
        match &client.reply()[..] {
            b"$1\r\nv\r\n" => seen.0 += 1,
            REFUSED => seen.1 += 1,
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }
    seen
}

#[test]
fn beyond_the_knee_requests_are_refused_and_connections_stay() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a folder");
    let path = result_file(folder.path(), 200.0);
    let gateway = Gateway::start(Config::to(&server.address).listener(&knee_keys(&path, "shed")));
    let (mut client, mut other) = (gateway.connect(), gateway.connect());
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    // Slower than the knee: everything is served.
    for _ in 0..5 {
        client.expect(&["GET", "k"], b"$1\r\nv\r\n");
        std::thread::sleep(Duration::from_millis(20));
    }
    // 5,000 requests at once would be 25 seconds of it.
    let (mut served, mut refused) = (0, 0);
    for _ in 0..20 {
        let (ok, no) = burst(&mut client, 250);
        (served, refused) = (served + ok, refused + no);
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
    // The connection is in order, and so is its neighbour; what the gateway answers itself is not refused.
    client.expect(&["PING"], b"+PONG\r\n");
    for client in [&mut client, &mut other] {
        deadline::until_true("a request below the knee", || client.call(&["GET", "k"]) == b"$1\r\nv\r\n");
    }
    // A transaction is refused as the server would refuse it, or carried out; it is over either way.
    burst(&mut client, 250);
    client.expect(&["MULTI"], b"+OK\r\n");
    client.expect(&["GET", "k"], b"+QUEUED\r\n");
    let reply = client.call(&["EXEC"]);
    assert!(reply.starts_with(b"-EXECABORT") || reply == b"*1\r\n$1\r\nv\r\n", "{}", String::from_utf8_lossy(&reply));
    client.expect(&["EXEC"], b"-ERR EXEC without MULTI\r\n");

    let metrics = gateway.metrics();
    let shed = metrics.sum_where("weir_shed_total", &[("listener", "test"), ("reason", "knee")]);
    assert!(shed >= refused as f64, "{shed} of {refused}");
    assert!(metrics.sum("weir_requests_total") >= (served + refused) as f64, "refused ones count as received");
    assert_eq!(metrics.sum("weir_listener_knee_requests_per_second"), 200.0);
    let shown = listener(&gateway);
    assert_eq!(shown["knee"]["requests_per_second"], 200.0);
    assert_eq!(shown["knee"]["action"], "shed");
    assert_eq!(shown["shed_total"]["knee"].as_f64(), Some(shed));
    // Found by another machine, and at the ceiling of the lab: used, with a note.
    assert!(shown["knee"]["caveats"].as_array().is_some_and(|caveats| !caveats.is_empty()), "{shown}");
    assert_eq!(readiness(&gateway).0, 200, "shedding is no reason to send nothing here");
}

#[test]
fn at_the_knee_the_gateway_is_unready_until_the_load_has_fallen() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a folder");
    let path = result_file(folder.path(), 50.0);
    let mut gateway = Gateway::start(Config::to(&server.address).listener(&knee_keys(&path, "unready")));
    let (status, check) = readiness(&gateway);
    assert_eq!((status, &check["status"]), (200, &json!("pass")), "{check}");
    let victims: Vec<Victim> = (0..2).map(|_| Victim::start(&gateway.address)).collect();
    let check = deadline::until("readiness to fall", CALM_WAIT, || {
        let (status, check) = readiness(&gateway);
        (status == 503).then_some(check)
    });
    assert_eq!(check["status"], "fail");
    let detail = check["detail"].as_str().expect("a detail");
    assert!(detail.starts_with("listener test: ") && detail.ends_with("of its knee of 50 req/s"), "{detail}");
    for probe in ["/livez", "/startupz"] {
        assert_eq!(gateway.admin.get(probe).status, 200, "{probe}");
    }
    let shown = listener(&gateway)["knee"].clone();
    assert_eq!((&shown["warned"], &shown["reached"]), (&json!(true), &json!(true)), "{shown}");
    assert!(shown["load_ratio"].is_number() && shown["offered_requests_per_second"].is_number(), "{shown}");
    gateway.wait_metric("weir_listener_offered_requests_per_second", &[("listener", "test")], 50.0);
    gateway.wait_metric("weir_listener_knee_load_ratio", &[("listener", "test")], 1.0);
    let shed = gateway.metrics().sum_where("weir_shed_total", &[("reason", "knee")]);
    assert_eq!(shed, 0.0, "nothing is refused");
    victims.into_iter().for_each(|victim| drop(victim.stop_unharmed()));
    deadline::until("readiness to come back", CALM_WAIT, || (readiness(&gateway).0 == 200).then_some(()));
    deadline::until("the warning to end", CALM_WAIT, || (listener(&gateway)["knee"]["warned"] == false).then_some(()));
    let log = gateway.process().log();
    for line in
        ["load is near the knee", "load is at the knee", "load is below the knee again", "load is no longer near"]
    {
        assert!(log.contains(line), "{line}:\n{log}");
    }
}

#[test]
fn a_reload_reads_the_file_again_and_a_bad_one_changes_nothing() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a folder");
    let path = result_file(folder.path(), 1_000.0);
    let gateway = Gateway::start(Config::to(&server.address).listener(&knee_keys(&path, "observe")));
    let knee_is = |rate: f64| {
        gateway.wait_metric("weir_listener_knee_requests_per_second", &[("listener", "test")], rate);
        assert_eq!(listener(&gateway)["knee"]["requests_per_second"], rate);
    };
    knee_is(1_000.0);
    std::fs::write(&path, result(2_000.0)).expect("another result");
    assert_eq!(listener(&gateway)["knee"]["requests_per_second"], 1_000.0, "read at a reload only");
    let outcome = gateway.admin.post("/api/v1/reload", "").json();
    assert_eq!((&outcome["outcome"], &outcome["applied"]), (&json!("applied"), &json!(["listener.test.knee"])));
    knee_is(2_000.0);
    for (what, text) in [
        ("half a file", result(3_000.0)[..500].to_owned()),
        ("a quick look", FOUND.to_owned()),
        ("another budget", result(3_000.0).replace("\"budget_vcpu\":1.0", "\"budget_vcpu\":4.0")),
    ] {
        std::fs::write(&path, text).expect("a bad result");
        let response = gateway.admin.post("/api/v1/reload", "");
        assert_eq!(response.status, 422, "{what}: {}", response.body);
        let told = response.json()["diagnostics"][0].clone();
        assert_eq!(told["key"], "listener[0].knee", "{what}");
        assert!(told["line"].as_u64().is_some() && told["remedy"].as_str().is_some(), "{what}: {told}");
        knee_is(2_000.0);
    }
    let config = std::fs::read_to_string(&gateway.file).expect("the configuration");
    let lines = config.lines().filter(|line| !line.starts_with("knee"));
    std::fs::write(&gateway.file, lines.collect::<Vec<_>>().join("\n")).expect("the configuration");
    assert_eq!(gateway.admin.post("/api/v1/reload", "").json()["outcome"], "applied");
    deadline::until_true("the figures to go", || !gateway.metrics().has("weir_listener_knee_requests_per_second"));
    assert_eq!(listener(&gateway)["knee"], json!(null));
}

/// Workers keep their shares of the knee: together they serve no more than it.
#[test]
fn the_shares_of_the_workers_add_up() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("knee.json");
    let of_two = result(400.0).replace("\"budget_vcpu\":1.0", "\"budget_vcpu\":2.0");
    std::fs::write(&path, of_two).expect("a result");
    let gateway = Gateway::start(Config::to(&server.address).workers(2).listener(&knee_keys(&path, "shed")));
    let mut clients: Vec<Client> = (0..8).map(|_| gateway.connect()).collect();
    clients[0].expect(&["SET", "k", "v"], b"+OK\r\n");
    let started = std::time::Instant::now();
    let mut served = 0;
    while started.elapsed() < Duration::from_secs(2) {
        served += clients.iter_mut().map(|client| burst(client, 50).0).sum::<usize>();
    }
    // Two bursts of 50 ms, and a share of a second for the clock that the gateway sees earlier and later than we do.
    let most = 400.0 * (started.elapsed().as_secs_f64() + 0.05) + 10.0;
    assert!(served > 0 && (served as f64) <= most, "{served} served, at most {most}");
}
