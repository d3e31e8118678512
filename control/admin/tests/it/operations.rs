//! Operations that change state: reload, drain, and the end of the server itself.

use std::io::Read;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use weir_admin::AdminServer;
use weir_admin::status::{ReloadOutcome, ReloadResult, UpgradeOutcome, UpgradeResult};

use crate::support::{FakeGateway, PATIENCE, connect, exchange, fetch, loopback, send, start};

#[test]
fn a_good_reload_lists_applied_and_waiting_changes() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let response = send(&server, "/api/v1/reload");
    assert_eq!(response.status, 200);
    let outcome: ReloadOutcome = serde_json::from_value(response.json()).expect("an outcome");
    assert_eq!(outcome.outcome, ReloadResult::Applied);
    assert_eq!(outcome.generation, 5);
    assert_eq!(outcome.applied.len(), 1);
    assert_eq!(outcome.needs_restart, ["runtime.workers 1 -> 2"]);
}

#[test]
fn a_rejected_reload_is_422_with_every_mistake() {
    let gateway = FakeGateway::new();
    gateway.config_is_valid.store(false, Ordering::SeqCst);
    let server = start(&gateway);
    let response = send(&server, "/api/v1/reload");
    assert_eq!(response.status, 422);
    let outcome: ReloadOutcome = serde_json::from_value(response.json()).expect("an outcome");
    assert_eq!(outcome.outcome, ReloadResult::Rejected);
    assert_eq!(outcome.generation, 4);
    assert_eq!(outcome.diagnostics[0].line, Some(4));
    assert_eq!(outcome.diagnostics[0].remedy.as_deref(), Some("write host:port"));
}

#[test]
fn while_a_reload_blocks_the_probes_respond_and_a_second_one_is_refused() {
    let gateway = FakeGateway::new();
    gateway.gate.close();
    let server = start(&gateway);
    thread::scope(|scope| {
        let first = scope.spawn(|| send(&server, "/api/v1/reload"));
        let begin = Instant::now();
        while gateway.gate.waiting.load(Ordering::SeqCst) == 0 {
            assert!(begin.elapsed() < PATIENCE);
            thread::yield_now();
        }
        assert_eq!(fetch(&server, "/livez").status, 200);
        assert_eq!(send(&server, "/api/v1/reload").problem(409), "reload");
        gateway.gate.open();
        assert_eq!(first.join().expect("the first reload").status, 200);
    });
    assert_eq!(send(&server, "/api/v1/reload").status, 200, "and then it is free again");
}

#[test]
fn an_upgrade_gets_its_result() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let cases = [(UpgradeResult::Done, 200), (UpgradeResult::Failed, 422), (UpgradeResult::Refused, 409)];
    for (result, status) in cases {
        *gateway.upgrade_result.lock().unwrap() = result;
        let response = send(&server, "/api/v1/upgrade");
        assert_eq!(response.status, status, "{result:?}");
        let outcome: UpgradeOutcome = serde_json::from_value(response.json()).expect("an outcome");
        let is_done = result == UpgradeResult::Done;
        assert_eq!((outcome.result, outcome.successor), (result, is_done.then_some(42)));
        assert_eq!(outcome.reason.is_none(), is_done);
    }
}

#[test]
fn while_an_upgrade_waits_a_second_one_is_refused_and_a_reload_still_gets_a_response() {
    let gateway = FakeGateway::new();
    gateway.gate.close();
    let server = start(&gateway);
    let wait = |count| {
        let begin = Instant::now();
        while gateway.gate.waiting.load(Ordering::SeqCst) < count {
            assert!(begin.elapsed() < PATIENCE);
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| send(&server, "/api/v1/upgrade"));
        wait(1);
        assert_eq!(send(&server, "/api/v1/upgrade").problem(409), "upgrade");
        assert_eq!(fetch(&server, "/livez").status, 200);
        // It reaches the gateway, which decides.
        let reload = scope.spawn(|| send(&server, "/api/v1/reload"));
        wait(2);
        gateway.gate.open();
        assert_eq!(first.join().expect("the upgrade").status, 200);
        assert_eq!(reload.join().expect("the reload").status, 200);
    });
}

/// Two servers on one socket, as during an upgrade: the one with the order to stop finishes its requests and accepts no
/// more, and the socket goes on listening for the other.
#[test]
fn a_stopped_server_leaves_a_shared_socket_to_the_other() {
    let gateway = FakeGateway::new();
    let socket = weir_admin::bind(&loopback()).expect("a free port");
    let copy = socket.try_clone().expect("a second descriptor");
    let old = AdminServer::start_on(loopback(), socket, gateway.clone()).expect("started");
    gateway.gate.close();
    thread::scope(|scope| {
        let asked = scope.spawn(|| send(&old, "/api/v1/upgrade"));
        let begin = Instant::now();
        while gateway.gate.waiting.load(Ordering::SeqCst) == 0 {
            assert!(begin.elapsed() < PATIENCE);
            thread::yield_now();
        }
        let successor = FakeGateway::new();
        successor.ready.store(false, Ordering::SeqCst);
        let new = AdminServer::start_on(loopback(), copy, successor).expect("started");
        old.stopper().stop();
        gateway.gate.open();
        assert_eq!(asked.join().expect("the response under way").status, 200);
        for _ in 0..20 {
            assert_eq!(fetch(&new, "/readyz").status, 503, "only the new one is unready, so it responded");
        }
    });
}

#[test]
fn drain_is_accepted_and_may_be_requested_again() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let response = send(&server, "/api/v1/drain");
    assert_eq!(response.status, 202);
    assert_eq!(response.json()["state"], "started");
    assert_eq!(send(&server, "/api/v1/drain").json()["state"], "draining");
    assert_eq!(gateway.drains.load(Ordering::SeqCst), 2);
    assert_eq!(fetch(&server, "/readyz").status, 503);
}

#[test]
fn a_post_takes_nothing_or_an_empty_object() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let post = |content_type: &str, body: &str| {
        let host = server.local_addr();
        let length = body.len();
        exchange(
            &server,
            &format!(
                "POST /api/v1/drain HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{content_type}Content-Length: {length}\r\n\r\n{body}"
            ),
        )
    };
    const JSON: &str = "Content-Type: application/json\r\n";
    assert_eq!(post("", "").status, 202);
    assert_eq!(post(JSON, "").status, 202);
    assert_eq!(post(JSON, " {} ").status, 202);
    assert_eq!(post("Content-Type: Application/JSON; charset=utf-8\r\n", "{}").status, 202);
    assert_eq!(gateway.drains.load(Ordering::SeqCst), 4);

    assert_eq!(post("", "{}").problem(415), "body");
    assert_eq!(post("Content-Type: text/plain\r\n", "").problem(415), "body");
    assert_eq!(post("Content-Type: application/x-www-form-urlencoded\r\n", "a=b").problem(415), "body");
    for body in ["{\"force\":true}", "[]", "{", "null"] {
        assert_eq!(post(JSON, body).problem(400), "body", "{body}");
    }
    assert_eq!(post(JSON, &" ".repeat(5000)).problem(413), "body");
    assert_eq!(gateway.drains.load(Ordering::SeqCst), 4, "nothing of that drained");
}

#[test]
fn a_stopped_server_closes_its_connections_and_its_port() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let address = server.local_addr();
    let mut idle = connect(&server);
    // Responded, so it is accepted for sure.
    assert_eq!(fetch(&server, "/livez").status, 200);
    let begin = Instant::now();
    server.stop();
    assert!(begin.elapsed() < Duration::from_secs(3));
    let mut byte = [0];
    assert!(matches!(idle.read(&mut byte), Ok(0) | Err(_)), "the idle connection is closed");
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_blocked_reload_does_not_hold_up_the_end() {
    let gateway = FakeGateway::new();
    gateway.gate.close();
    let server = start(&gateway);
    let address = server.local_addr();
    let waiting = thread::spawn(move || {
        use std::io::Write;
        let mut stream = TcpStream::connect(address).expect("connect");
        write!(stream, "POST /api/v1/reload HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("send");
        let mut rest = Vec::new();
        // Cut or responded, either ends the wait.
        let _ = stream.read_to_end(&mut rest);
    });
    let begin = Instant::now();
    while gateway.gate.waiting.load(Ordering::SeqCst) == 0 {
        assert!(begin.elapsed() < PATIENCE);
        thread::yield_now();
    }
    let begin = Instant::now();
    server.stop();
    assert!(begin.elapsed() < Duration::from_secs(3));
    waiting.join().expect("the client's thread");
    gateway.gate.open();
}
