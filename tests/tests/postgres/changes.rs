//! Sessions that go on while things around them change: a reload, a server that starts, a request that comes late.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::postgres::torture::wire::{SYNC, Wire, cancel, message, parse, query, run};
use weir_tests::postgres::{Fault, Major, PASSWORD, Postgres, Relay, USER};

use crate::gateway::before;
use crate::hostile::{login, running, value};

/// A gateway before a relay before `server`.
fn behind(relay: &Relay, folder: &std::path::Path, listener: &str, upstream: &str) -> Config {
    let password = secret_file(folder, "server-password", PASSWORD);
    Config { protocol: "postgres", ..Config::to(&relay.address) }
        .listener(&format!("[listener.postgres]\nauth = \"trust\"\n{listener}"))
        .upstream(&format!(
            "[upstream.postgres]\nuser = \"{USER}\"\npassword = {{ file = \"{password}\" }}\n{upstream}"
        ))
}

fn connects(gateway: &Gateway) -> f64 {
    gateway.metric("weir_lane_connects_total")
}

#[test]
fn a_reload_of_the_upstream_ends_no_session_and_makes_no_storm_of_logins() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2").workers(2));
    let mut clients: Vec<Wire> = (0..6).map(|_| login(&gateway)).collect();
    let mut waiting = login(&gateway);
    let reload = |from: u32, to: u32| {
        gateway.rewrite(|text| text.replace(&format!("pool_size = {from}"), &format!("pool_size = {to}")));
        let outcome = gateway.admin.post("/api/v1/reload", "");
        assert_eq!(outcome.json()["outcome"], "applied", "{}", outcome.body);
    };
    for (from, to) in [(2, 3), (3, 2)] {
        // One within a transaction, one that waits, and idle ones.
        for client in &mut clients[..from as usize] {
            value(client, "begin");
        }
        waiting.send(&query("select 7")).expect("sent");
        until_true("it waits", || gateway.metric("gateway_lane_pool_waiters") == 1.0);
        let made = connects(&gateway);
        reload(from, to);
        if to > from {
            assert_eq!(waiting.reply().expect("its session goes on").rows, [["7"]], "there is room now");
        }
        for client in &mut clients[..from as usize] {
            value(client, "commit");
        }
        if to < from {
            assert_eq!(waiting.reply().expect("its session goes on").rows, [["7"]]);
        }
        for client in &mut clients {
            for _ in 0..20 {
                assert_eq!(value(client, "select 1"), "1");
            }
        }
        let made = connects(&gateway) - made;
        assert!(made <= 12.0, "{made} logins for at most {} servers, and two workers", from.max(to));
    }
}

#[test]
fn a_server_that_starts_or_closes_is_waited_for_and_then_refused_with_57p03() {
    let server = Postgres::start(Major::Fifteen);
    let relay = Relay::before(server.address.tcp());
    let folder = tempfile::tempdir().expect("a folder");
    let wait = "query_wait_timeout = \"4s\"";
    let upstream = "pool_size = 2\nserver_lifetime = \"1s\"";
    let gateway = Gateway::start(behind(&relay, folder.path(), wait, upstream));
    let mut client = login(&gateway);
    for fault in [Fault::Refuse("57P03"), Fault::Refuse("53300"), Fault::Close] {
        until_true("its servers are too old", || {
            assert_eq!(value(&mut client, "select 1"), "1");
            std::thread::sleep(Duration::from_millis(100));
            gateway.metric("weir_lanes_open") == 0.0
        });
        let before = relay.logins();
        relay.set(fault.clone());
        client.send(&query("select 7")).expect("sent");
        until_true("a login fails", || relay.logins() > before + 1);
        relay.set(Fault::None);
        assert_eq!(client.reply().expect("its session goes on").rows, [["7"]], "{fault:?}");
        assert!(relay.logins() < before + 60, "no storm");
    }
    relay.set(Fault::Refuse("57P03"));
    until_true("its servers are too old", || gateway.metric("weir_lanes_open") == 0.0);
    let begun = Instant::now();
    let reply = client.query("select 7").expect("its session goes on");
    assert_eq!(reply.state(), "57P03", "{:?}", reply.errors);
    assert!(begun.elapsed() >= Duration::from_millis(3_900), "after its whole wait: {:?}", begun.elapsed());
    relay.set(Fault::None);
    until_true("it is served again", || client.query("select 8").is_ok_and(|reply| reply.rows == [["8"]]));
}

#[test]
fn a_cancel_request_that_comes_late_ends_no_query_of_another_client() {
    let server = Postgres::start(Major::Fifteen);
    let relay = Relay::before(server.address.tcp());
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(behind(&relay, folder.path(), "query_wait_timeout = \"20s\"", "pool_size = 1"));
    let (mut first, mut second) = (login(&gateway), login(&gateway));
    // The gateway waits for 10 s, and the request comes to the server a second later.
    relay.set(Fault::DelayCancel(Duration::from_secs(11)));
    first.send(&query("select pg_sleep(6), 1")).expect("sent");
    until_true("it runs", || running(&server, "pg_sleep(6)") == "1");
    let (port, key) = (gateway.address.tcp().port(), first.key.clone());
    let request = std::thread::spawn(move || cancel(port, &key));
    assert_eq!(first.reply().expect("a reply").errors, []);
    // It waits for the server, which is kept from it until the request is over.
    assert_eq!(second.query("select pg_sleep(3)").expect("a reply").errors, []);
    request.join().expect("no panic").expect("it ends");
    assert_eq!(gateway.metrics().sum_where("weir_postgres_cancels_total", &[("outcome", "unconfirmed")]), 1.0);
}

#[test]
fn a_client_that_waits_in_a_pause_is_not_idle() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "client_idle_timeout = \"1s\"", ""));
    let port = gateway.address.tcp().port();
    let mut client = login(&gateway);
    value(&mut client, "select 1");
    let mut boss = Wire::connect(port, "boss", "pgbouncer", "test").expect("a console");
    boss.query("pause").expect("paused");
    std::thread::sleep(Duration::from_millis(500));
    client.send(&query("select 7")).expect("sent");
    // The console is idle as well: it looks now and then.
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(400));
        boss.query("show pools").expect("shown");
    }
    boss.query("resume").expect("resumed");
    assert_eq!(client.reply().expect("its session goes on").rows, [["7"]]);
    until_true("silence ends it", || client.idle_messages().is_err());
}

#[test]
fn a_cancel_request_reaches_a_client_of_the_process_before_an_upgrade() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let mut gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2").workers(2));
    let port = gateway.address.tcp().port();
    let mut client = login(&gateway);
    client.send(&query("select pg_sleep(60)")).expect("sent");
    until_true("it runs", || running(&server, "pg_sleep(60)") == "1");
    let mut old = gateway.upgrade();
    let mut wrong = client.key.clone();
    *wrong.last_mut().expect("a secret") ^= 1;
    cancel(port, &wrong).expect("it ends");
    assert_eq!(running(&server, "pg_sleep(60)"), "1", "the secret decides");
    // The new process has clients of its own, with keys of their own.
    let mut other = login(&gateway);
    other.send(&query("select pg_sleep(2), 'unharmed'")).expect("sent");
    let begun = Instant::now();
    cancel(port, &client.key).expect("it ends");
    assert!(begun.elapsed() < Duration::from_secs(9), "it ends when the old process says so: {:?}", begun.elapsed());
    assert_eq!(client.reply().expect("a reply").state(), "57014");
    assert_eq!(other.reply().expect("a reply").rows[0][1], "unharmed");
    let end = client.query("select 1").expect_err("the old process drains");
    assert!(end.contains("57P01") || end.contains("closed") || end.contains("send"), "{end}");
    assert!(old.wait(Duration::from_secs(20)).success(), "{}", old.log());
}

/// The driver reads rows by the description that it has. A server of its own would refuse the Bind; another server knows nothing of it.
#[test]
fn a_client_gets_rows_as_described_or_an_error_at_whichever_server() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 4"));
    let (mut client, mut holder, mut late) = (login(&gateway), login(&gateway), login(&gateway));
    let changes = |client: &mut Wire, text: &str| {
        let reply = client.query(text).expect("its session goes on");
        assert_eq!(reply.errors, [], "{text}");
    };
    changes(&mut late, "create table changing (a int); insert into changing values (1)");
    let learn = |name: &str| {
        let describe = message(b'D', format!("S{name}\0").as_bytes());
        [&parse(name, "select * from changing")[..], &describe, SYNC].concat()
    };
    let exchange = |client: &mut Wire, bytes: &[u8]| {
        client.send(bytes).expect("sent");
        let reply = client.reply().expect("its session goes on");
        (reply.rows, reply.errors.into_iter().next().map(|(state, text)| format!("{state} {text}")))
    };
    let used = |name: &str| [&run(name, &[])[..], SYNC].concat();
    let changed = || Some("0A000 cached plan must not change result type".to_owned());
    // All use the one server, until it is kept from them.
    assert_eq!(exchange(&mut client, &learn("first")), (vec![], None));
    value(&mut holder, "begin");
    value(&mut holder, "select 1");
    assert_eq!(
        exchange(&mut client, &used("first")),
        (vec![vec!["1".to_owned()]], None),
        "another server, and no change"
    );
    let has_servers =
        |count: f64| until_true("so many servers are open", || gateway.metric("weir_lanes_open") == count);
    has_servers(2.0);
    changes(&mut late, "alter table changing add column b int default 2");
    value(&mut late, "begin");
    value(&mut late, "select 1");
    assert_eq!(
        exchange(&mut client, &used("first")),
        (vec![], changed()),
        "a third server prepares it after the change"
    );
    has_servers(3.0);
    assert_eq!(exchange(&mut client, &learn("second")), (vec![], None));
    let rows = vec![vec!["1".to_owned(), "2".to_owned()]];
    assert_eq!(exchange(&mut client, &used("second")), (rows.clone(), None));
    // Back at the servers that prepared the statement before the change: they get it again.
    value(&mut holder, "commit");
    value(&mut late, "commit");
    for _ in 0..3 {
        value(&mut client, "begin");
        assert_eq!(exchange(&mut client, &used("second")), (rows.clone(), None));
        assert_eq!(exchange(&mut client, &used("first")).1, changed());
        value(&mut client, "rollback");
        assert_eq!(exchange(&mut client, &used("second")), (rows.clone(), None));
    }
    drop((client, holder, late));
    gateway.finish();
}

/// SSLRequest, and the response of a gateway without TLS.
fn begin_login(gateway: &Gateway) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address.tcp()).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).expect("sent");
    let mut response = [0];
    stream.read_exact(&mut response).expect("a response");
    assert_eq!(response, *b"N");
    stream
}

#[test]
fn a_drain_ends_logins_and_consoles_with_57p01() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let mut gateway = Gateway::start(before(&server, folder.path(), "", ""));
    let mut logging_in = begin_login(&gateway);
    let mut boss = Wire::connect(gateway.address.tcp().port(), "boss", "pgbouncer", "test").expect("a console");
    gateway.process().signal("TERM");
    let mut words = Vec::new();
    logging_in.read_to_end(&mut words).expect("the end");
    assert!(String::from_utf8_lossy(&words).contains("57P01"), "{:?}", String::from_utf8_lossy(&words));
    let (tag, body) = boss.message().expect("its last message");
    assert!(tag == b'E' && String::from_utf8_lossy(&body).contains("57P01"));
    assert!(gateway.process().wait(Duration::from_secs(20)).success());
    gateway.ended();
}
