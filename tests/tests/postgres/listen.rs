//! LISTEN for many clients through one connection: real servers, several workers, fewer servers than clients.

use std::time::{Duration, Instant};

use weir_tests::deadline::{until, until_true};
use weir_tests::gateway::Gateway;
use weir_tests::postgres::torture::wire::{SYNC, Wire, parse, query, run};
use weir_tests::postgres::{Major, Postgres, USER};

use crate::gateway::before;
use crate::hostile::login;

fn do_all(wire: &mut Wire, texts: &[&str]) {
    for text in texts {
        let reply = wire.query(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(reply.errors.is_empty(), "{text}: {:?}", reply.errors);
    }
}

/// Waits until each client has heard exactly this, in this order.
fn all_hear(wires: &mut [Wire], expected: &[(&str, &str)]) {
    for (at, wire) in wires.iter_mut().enumerate() {
        until_true(format_args!("client {at} hears {expected:?}"), || {
            wire.idle_messages().unwrap_or_else(|error| panic!("client {at}: {error}"));
            wire.heard.len() >= expected.len()
        });
        let heard: Vec<_> = wire.heard.drain(..).collect();
        let heard: Vec<_> = heard.iter().map(|(channel, payload)| (channel.as_str(), payload.as_str())).collect();
        assert_eq!(heard, expected, "client {at}");
    }
}

/// Connections of the gateway's user at the server that have sent LISTEN.
fn listening_servers(server: &Postgres) -> String {
    server.sql("select count(*) from pg_stat_activity where usename = 'app' and query ilike 'listen %'")
}

#[test]
fn more_clients_listen_than_servers_exist_and_one_connection_serves_all_workers() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2").workers(3));
    let mut wires: Vec<_> = (0..24).map(|_| login(&gateway)).collect();
    for (at, wire) in wires.iter_mut().enumerate() {
        match at % 3 {
            0 => do_all(wire, &["LISTEN News"]),
            1 => do_all(wire, &["begin; select 1; listen \"news\"; commit"]),
            _ => {
                // As drivers do without arguments: the extended protocol.
                wire.send(&[parse("", "listen news"), run("", &[]), SYNC.to_vec()].concat()).expect("sent");
                assert_eq!(wire.reply().expect("a reply").tags, ["LISTEN"]);
            }
        }
    }
    server.sql_in(USER, "notify news, 'from psql'");
    all_hear(&mut wires, &[("news", "from psql")]);
    let mut notifier = login(&gateway);
    do_all(&mut notifier, &["select pg_notify('news', n::text) from generate_series(1, 3) n", "notify other, 'x'"]);
    all_hear(&mut wires, &[("news", "1"), ("news", "2"), ("news", "3")]);
    assert_eq!(listening_servers(&server), "1");
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum_where("weir_lanes_open", &[("kind", "subscription")]), 1.0);
    assert!(metrics.sum_where("weir_lanes_open", &[("kind", "pooled")]) <= 2.0);
    assert_eq!(metrics.sum("weir_postgres_listening_clients"), 24.0);
    assert_eq!(metrics.sum("weir_postgres_notifications_total"), 24.0 * 4.0);
    assert_eq!(metrics.sum_where("weir_postgres_session_events_total", &[("event", "pin")]), 0.0);
    let mut console = Wire::connect(gateway.address.tcp().port(), "boss", "pgbouncer", "test").expect("a login");
    let shown = console.query("show listeners").expect("a table").rows;
    let of = |kind: &str| shown.iter().filter(|row| row[0] == kind).count();
    assert_eq!((of("S"), of("C")), (1, 24), "{shown:?}");
    assert!(shown[0].contains(&"connected".to_owned()) && shown[0].contains(&USER.to_owned()), "{shown:?}");
    drop(wires);
    until_true("no client listens", || gateway.metric("weir_postgres_listening_clients") == 0.0);
}

#[test]
fn transactions_decide_about_listen_as_at_the_server() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2").workers(2));
    let mut wires = [login(&gateway)];
    let notify = |payload: &str| server.sql_in(USER, &format!("notify news, '{payload}'; notify kept, '{payload}'"));
    do_all(&mut wires[0], &["begin", "listen news", "rollback", "listen kept"]);
    notify("one");
    all_hear(&mut wires, &[("kept", "one")]);
    do_all(&mut wires[0], &["begin", "savepoint s", "listen news", "rollback to s", "unlisten *"]);
    notify("within");
    std::thread::sleep(Duration::from_millis(100));
    wires[0].idle_messages().expect("nothing");
    assert!(wires[0].heard.is_empty(), "PostgreSQL delivers between transactions");
    do_all(&mut wires[0], &["rollback"]);
    all_hear(&mut wires, &[("kept", "within")]);
    do_all(&mut wires[0], &["listen news; select 1", "unlisten kept"]);
    notify("two");
    all_hear(&mut wires, &[("news", "two")]);
    let reply = wires[0].query("begin; select 1/0; listen kept").expect("a reply");
    assert_eq!((reply.state(), wires[0].status), ("22012", b'E'));
    assert_eq!(wires[0].query("listen kept").expect("a reply").state(), "25P02");
    do_all(&mut wires[0], &["rollback", "discard all"]);
    notify("three");
    do_all(&mut wires[0], &["listen last"]);
    server.sql_in(USER, "notify last, 'over'");
    all_hear(&mut wires, &[("last", "over")]);
}

/// The next messages up to ReadyForQuery: their tags, and the process numbers of notifications.
fn messages(wire: &mut Wire) -> (String, Vec<Vec<u8>>) {
    let (mut tags, mut processes) = (String::new(), Vec::new());
    loop {
        let (tag, body) = wire.message().expect("a message");
        tags.push(char::from(tag));
        match tag {
            b'A' => processes.push(body[..4].to_vec()),
            b'Z' => return (tags, processes),
            _ => {}
        }
    }
}

#[test]
fn an_own_notification_comes_before_ready_and_with_the_own_process_number() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1").workers(2));
    let (mut one, mut two) = (login(&gateway), login(&gateway));
    do_all(&mut one, &["listen news"]);
    do_all(&mut two, &["listen news"]);
    let own = one.key[..4].to_vec();
    for round in 0..20 {
        for (request, expected) in [
            (query(&format!("notify news, '{round}'")), "CAZ"),
            (query(&format!("begin; select pg_notify('news', '{round}'); commit")), "CTDCCAZ"),
            ([parse("", "select pg_notify('news', 'x')"), run("", &[]), SYNC.to_vec()].concat(), "12DCAZ"),
        ] {
            // The same server serves another that notifies.
            do_all(&mut two, &["notify news, 'of two'"]);
            until_true("one hears two", || one.idle_messages().is_ok() && !one.heard.is_empty());
            one.heard.clear();
            one.send(&request).expect("sent");
            assert_eq!(messages(&mut one), (expected.to_owned(), vec![own.clone()]));
        }
        do_all(&mut one, &["begin", "notify news, 'a'"]);
        one.send(&query("commit")).expect("sent");
        one.send(&query("select 7")).expect("sent");
        assert_eq!(messages(&mut one), ("CAZ".to_owned(), vec![own.clone()]));
        assert_eq!(messages(&mut one).0, "TDCZ");
        until_true("two hears one", || two.idle_messages().is_ok() && two.heard.len() >= 7 * (round + 1));
    }
}

#[test]
fn a_server_that_is_killed_is_a_gap_that_clients_get_to_know() {
    let mut server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2").workers(2));
    let mut wires: Vec<_> = (0..6).map(|_| login(&gateway)).collect();
    for wire in &mut wires {
        do_all(wire, &["listen news"]);
    }
    server.kill();
    let mut late = login(&gateway);
    let reply = until("LISTEN without a server", Duration::from_secs(20), || {
        let reply = late.query("listen other").expect("a reply");
        (!reply.errors.is_empty()).then_some(reply)
    });
    assert!(["57P03", "57P01", "08006"].contains(&reply.state()), "{:?}", reply.errors);
    assert_eq!(late.status, b'I');
    server.start_again();
    for wire in &mut wires {
        let (tag, body) = wire.message().expect("the notice");
        assert_eq!(tag, b'N');
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(text.contains("WARNING") && text.contains("notifications may have been lost"), "{text}");
    }
    server.sql_in(USER, "notify news, 'again'");
    all_hear(&mut wires, &[("news", "again")]);
    do_all(&mut late, &["listen other"]);
    server.sql_in(USER, "notify other, 'late'");
    all_hear(std::slice::from_mut(&mut late), &[("other", "late")]);
    assert!(gateway.metric("weir_postgres_listen_gaps_total") >= 1.0);
    assert_eq!(gateway.metrics().sum_where("weir_lanes_open", &[("kind", "subscription")]), 1.0);
}

#[test]
fn a_thousand_clients_listen_before_five_servers() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 5").workers(2));
    let mut wires: Vec<_> = (0..1_000).map(|_| login(&gateway)).collect();
    for (at, wire) in wires.iter_mut().enumerate() {
        let own = format!("listen own_{at}");
        do_all(wire, &["listen everyone", &own]);
    }
    let mut worker = login(&gateway);
    assert_eq!(worker.query("select 7").expect("a reply").rows, [["7"]], "servers are free");
    do_all(&mut worker, &["notify own_7, 'to one'", "notify everyone, 'to all'"]);
    all_hear(&mut wires[7..8], &[("own_7", "to one"), ("everyone", "to all")]);
    all_hear(&mut wires[..7], &[("everyone", "to all")]);
    all_hear(&mut wires[8..], &[("everyone", "to all")]);
    let connections = server.sql("select count(*) from pg_stat_activity where usename = 'app'");
    assert!(connections.parse::<u32>().expect("a number") <= 6, "{connections}");
    assert_eq!(gateway.metric("weir_postgres_listening_clients"), 1_000.0);
    drop(wires);
    until_true("all channels are gone", || gateway.metric("weir_postgres_listening_clients") == 0.0);
}

#[test]
fn s1_a_client_that_does_not_read_its_notifications_is_disconnected_and_costs_others_nothing() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2").workers(2));
    let (mut deaf, mut busy) = (login(&gateway), login(&gateway));
    let mut wires = [login(&gateway), login(&gateway)];
    do_all(&mut deaf, &["listen flood"]);
    do_all(&mut busy, &["listen flood", "begin"]);
    for wire in &mut wires {
        do_all(wire, &["listen flood", "listen quiet"]);
    }
    let limit = Instant::now() + Duration::from_secs(30);
    let flood = "select pg_notify('flood', n || repeat('x', 7000)) from generate_series(1, 500) n";
    let closed = || gateway.metrics().sum_where("weir_violations_total", &[("reason", "slow_listener")]);
    while closed() < 2.0 {
        assert!(Instant::now() < limit, "{} of two are disconnected\n{}", closed(), gateway.log());
        server.sql_in(USER, flood);
        for wire in &mut wires {
            wire.idle_messages().expect("it reads");
        }
    }
    let error = busy.query("select 1").expect_err("its transaction was too long");
    assert!(error.contains("54000"), "{error}");
    for wire in &mut wires {
        until_true("the rest of the flood", || {
            wire.idle_messages().expect("it reads");
            wire.heard.clear();
            gateway.metrics().sum("weir_postgres_listening_clients") == 2.0
        });
    }
    server.sql_in(USER, "notify quiet, 'still here'");
    for wire in &mut wires {
        until_true("the others hear", || {
            wire.idle_messages().expect("it reads");
            wire.heard.iter().any(|(channel, _)| channel == "quiet")
        });
    }
    drop(deaf);
}

#[test]
fn in_session_mode_listen_stays_with_the_clients_server() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "pool_mode = \"session\"", "pool_size = 2"));
    let mut wires = [login(&gateway), login(&gateway)];
    for wire in &mut wires {
        do_all(wire, &["listen news"]);
    }
    server.sql_in(USER, "notify news, 'x'");
    all_hear(&mut wires, &[("news", "x")]);
    assert_eq!(listening_servers(&server), "2");
    assert_eq!(gateway.metrics().sum_where("weir_lanes_open", &[("kind", "subscription")]), 0.0);
}

/// Two Python drivers, with three times as many clients as servers. All drivers run their own checks of notifications in `drivers`.
const PYTHON: &str = r#"
import asyncio, sys, asyncpg, psycopg
url = sys.argv[1]

async def main():
    queue = asyncio.Queue()
    listening = [await asyncpg.connect(url) for _ in range(6)]
    for conn in listening:
        await conn.add_listener("news", lambda *words: queue.put_nowait(words))
    blocking = [psycopg.connect(url, autocommit=True) for _ in range(6)]
    for conn in blocking:
        conn.execute("listen news")
    await listening[0].execute("notify news, 'hello'")
    got = [await asyncio.wait_for(queue.get(), 10) for _ in listening]
    assert {words[2:] for words in got} == {("news", "hello")}, got
    own = [words[0] for words in got if words[1] == words[0].get_server_pid()]
    assert len(own) == 1, "one client knows its own"
    for conn in blocking:
        note = next(conn.notifies(timeout=10, stop_after=1))
        assert note.payload == "hello" and note.pid != conn.info.backend_pid, note
    blocking[0].execute("notify news, 'own'")
    note = next(blocking[0].notifies(timeout=10, stop_after=1))
    assert note.payload == "own" and note.pid == blocking[0].info.backend_pid, note
    print("done")

asyncio.run(main())
"#;

#[test]
fn drivers_listen_with_more_clients_than_servers() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 4").workers(2));
    let url = weir_tests::postgres::url(gateway.address.tcp().port(), USER);
    let mut python = std::process::Command::new(weir_tests::tools::python_installed());
    let output = python.args(["-c", PYTHON, &url]).output().expect("Python starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("done".to_owned(), String::new()));
    assert_eq!(gateway.metrics().sum_where("weir_lanes_open", &[("kind", "subscription")]), 1.0);
}
