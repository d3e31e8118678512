//! Clients that mean harm after their login, and a server that does: cases P11 and P13 to P19.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::postgres::torture::wire::{SYNC, Wire, cancel, message, parse, query, run};
use weir_tests::postgres::{Major, Postgres, USER};
use weir_tests::stream::Address;

use crate::gateway::before;

/// Memory that hostile work may cost, bytes.
const GROWTH_MAX: u64 = 64 << 20;

pub(crate) fn login(gateway: &Gateway) -> Wire {
    Wire::connect(gateway.address.tcp().port(), USER, USER, "test").expect("a login")
}

/// The first value of a statement.
pub(crate) fn value(wire: &mut Wire, text: &str) -> String {
    let reply = wire.query(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert!(reply.errors.is_empty(), "{text}: {:?}", reply.errors);
    reply.rows.first().and_then(|row| row.first()).cloned().unwrap_or_default()
}

/// Statements of the test user whose text contains `part`, and that run now.
pub(crate) fn running(server: &Postgres, part: &str) -> String {
    let text = "select count(*) from pg_stat_activity where usename = 'app' and state = 'active' and query like";
    server.sql(&format!("{text} '%{part}%'"))
}

#[test]
fn p11_a_client_that_dies_within_a_long_query_leaves_nothing_behind() {
    let server = Postgres::start(Major::Fifteen);
    server.sql_in(USER, "create table notes (n int); grant all on notes to app");
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    for way in [0, 1] {
        let mut lost = login(&gateway);
        value(&mut lost, "begin; insert into notes values (1)");
        lost.send(&query("select pg_sleep(3600)")).expect("sent");
        until_true("the query runs", || running(&server, "pg_sleep(3600)") == "1");
        lost.leave(way);
        until_true("it is cancelled", || running(&server, "pg_sleep(3600)") == "0");
        // The only server of the pool: it serves the next client, outside of a transaction.
        let mut next = login(&gateway);
        assert_eq!(value(&mut next, "select count(*) from notes"), "0");
        assert_eq!(next.status, b'I');
    }
    assert_eq!(gateway.metrics().sum_where("weir_postgres_cancels_total", &[("outcome", "forwarded")]), 2.0);
}

#[test]
fn p13_statements_without_end_keep_their_bounds() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let mut gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    let mut wire = login(&gateway);
    let (mut refused, mut prepared) = (0, 0);
    for first in (0..20_000).step_by(500) {
        if first == 2_000 {
            prepared = gateway.process().resident();
        }
        let names = first..first + 500;
        let mut bytes: Vec<u8> = names
            .flat_map(|n| [parse(&format!("s{n}"), &format!("select {n}, $1::text")), SYNC.to_vec()].concat())
            .collect();
        bytes.extend(query("select 1"));
        wire.send(&bytes).expect("sent");
        for _ in 0..500 {
            let reply = wire.reply().expect("a reply");
            refused += usize::from(!reply.errors.is_empty());
            assert!(reply.state().is_empty() || reply.state() == "53000", "{:?}", reply.errors);
        }
        assert_eq!(wire.reply().expect("a reply").rows, [["1"]], "after {first}");
    }
    let grown = gateway.process().resident().saturating_sub(prepared);
    assert!(grown < GROWTH_MAX / 4, "{grown} bytes more for 18,000 names");
    assert_eq!(refused, 20_000 - 512, "512 names have their statements");
    let kept: usize = value(&mut wire, "select count(*) from pg_prepared_statements").parse().expect("a number");
    assert!(kept <= 200, "{kept} statements at the server");
    // The names that it has still work, whether the server has them or not.
    for n in [0, 250, 511] {
        wire.send(&[run(&format!("s{n}"), &["x"]), SYNC.to_vec()].concat()).expect("sent");
        assert_eq!(wire.reply().expect("a reply").rows, [[n.to_string(), "x".to_owned()]]);
    }
    let mut other = login(&gateway);
    other.send(&[parse("s0", "select 'other'"), run("s0", &[]), SYNC.to_vec()].concat()).expect("sent");
    assert_eq!(other.reply().expect("a reply").rows, [["other"]]);
}

#[test]
fn p14_a_pipeline_with_errors_has_one_ready_for_each_sync() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    let mut wire = login(&gateway);
    let good = |n: usize| [parse("", "select $1::text"), run("", &[&n.to_string()])].concat();
    let bad = [parse("", "select 1/0"), run("", &[])].concat();
    let mut bytes = Vec::new();
    for n in 0..200 {
        // The rest of a batch is skipped behind its error.
        let batch = if n % 3 == 1 { [bad.clone(), good(n)].concat() } else { [good(n), good(n)].concat() };
        bytes.extend([batch, SYNC.to_vec()].concat());
    }
    wire.send(&bytes).expect("sent");
    for n in 0..200_usize {
        let reply = wire.reply().expect("a reply");
        if n % 3 == 1 {
            assert_eq!((reply.state(), reply.rows.len()), ("22012", 0), "{n}");
        } else {
            assert_eq!(reply.rows, vec![vec![n.to_string()]; 2], "{n}");
        }
        assert_eq!(wire.status, b'I');
    }
    wire.idle_messages().expect("nothing more");
}

#[test]
fn p15_a_copy_that_fails_vanishes_or_stops_holds_no_server_and_leaves_no_row() {
    let server = Postgres::start(Major::Fifteen);
    server.sql_in(USER, "create table notes (n int); grant all on notes to app");
    let folder = tempfile::tempdir().expect("a folder");
    let limit = "idle_transaction_timeout = \"2s\"";
    let gateway = Gateway::start(before(&server, folder.path(), limit, "pool_size = 1"));
    let begin = || {
        let mut wire = login(&gateway);
        assert!(wire.query("copy notes from stdin").expect("a reply").wants_copy);
        wire.send(&message(b'd', b"1\n2\n")).expect("sent");
        wire
    };
    let is_clean = |what: &str| {
        let mut next = login(&gateway);
        assert_eq!(value(&mut next, "select count(*) from notes"), "0", "{what}");
        assert_eq!(next.status, b'I', "{what}");
    };
    let mut failing = begin();
    failing.send(&message(b'f', b"no more\0")).expect("sent");
    assert_eq!(failing.reply().expect("a reply").state(), "57014");
    assert_eq!(value(&mut failing, "select 7"), "7", "its session goes on");
    for way in [0, 1] {
        begin().leave(way);
        is_clean("it vanished");
    }
    let mut half = begin();
    half.send(&message(b'd', b"3\n4\n")[..6]).expect("sent");
    half.leave(0);
    is_clean("it vanished within a message");
    // It stays, and sends nothing: others need its server.
    let mut silent = begin();
    is_clean("it stopped");
    let error = silent.reply().expect_err("its session is over");
    assert!(error.contains("25P03"), "{error}");
    // One that sends is not silent, however slow it is.
    let mut slow = begin();
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(400));
        slow.send(&message(b'd', b"5\n")).expect("sent");
    }
    slow.send(&message(b'c', b"")).expect("sent");
    assert_eq!(slow.reply().expect("a reply").tags, ["COPY 10"]);
}

#[test]
fn p16_keys_that_are_guessed_cancel_nothing() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "").workers(2));
    let mut owner = login(&gateway);
    owner.send(&query("select pg_sleep(3), 'unharmed'")).expect("sent");
    until_true("the query runs", || running(&server, "unharmed") == "1");
    let (port, mut random) = (gateway.address.tcp().port(), weir_tests::seed::seeded());
    let begun = Instant::now();
    for _ in 0..2_000 {
        // The right process, and a wrong secret.
        let mut key = owner.key.clone();
        let noise = random.next_u64().to_be_bytes();
        key[4..8].copy_from_slice(&noise[..4]);
        cancel(port, &key).expect("sent");
        if begun.elapsed() > Duration::from_secs(2) {
            break;
        }
    }
    assert_eq!(owner.reply().expect("a reply").rows, [["", "unharmed"]]);
    let cancels = gateway.metrics().sum_where("weir_postgres_cancels_total", &[("outcome", "forwarded")]);
    assert_eq!(cancels, 0.0);
    // The flood has used up its source's rate, and no more: the owner's own request comes through a moment later.
    owner.send(&query("select pg_sleep(60), 'mine'")).expect("sent");
    until_true("the query runs", || running(&server, "mine") == "1");
    until_true("it is cancelled", || {
        cancel(port, &owner.key).expect("sent");
        running(&server, "mine") == "0"
    });
    assert_eq!(owner.reply().expect("a reply").state(), "57014");
    assert_eq!(value(&mut owner, "select 7"), "7");
}

#[test]
fn p17_clients_that_begin_and_idle_lose_their_servers_to_those_that_wait() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let limits = "idle_transaction_timeout = \"1500ms\"\nquery_wait_timeout = \"400ms\"";
    let gateway = Gateway::start(before(&server, folder.path(), limits, "pool_size = 2"));
    let mut holders: Vec<Wire> = (0..2).map(|_| login(&gateway)).collect();
    let mut waiters: Vec<Wire> = (0..2).map(|_| login(&gateway)).collect();
    for holder in &mut holders {
        value(holder, "begin");
    }
    for waiter in &mut waiters {
        waiter.send(&query("begin")).expect("sent");
    }
    for waiter in &mut waiters {
        let reply = waiter.reply().expect("a reply in time");
        assert_eq!((reply.state(), waiter.status), ("53300", b'I'), "{:?}", reply.errors);
    }
    for holder in &mut holders {
        assert!(holder.reply().expect_err("its session is over").contains("25P03"));
    }
    for waiter in &mut waiters {
        assert_eq!(value(waiter, "select 7"), "7", "a refusal ends no session");
    }
    assert_eq!(server.sql("select count(*) from pg_stat_activity where state like 'idle in transaction%'"), "0");
}

/// A server that lets everybody in, and sends `evil` in place of its `at`th response: 0 is its greeting, 1 the response to the
/// parameters of the client, 2 that to its query.
fn evil_server(at: usize, evil: Vec<u8>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::port(listener.local_addr().expect("its address").port());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let evil = evil.clone();
            std::thread::spawn(move || serve(stream, at, &evil));
        }
    });
    address
}

/// Responds to the startup packet and each thing after it, until its peer ends.
fn serve(mut stream: TcpStream, at: usize, evil: &[u8]) {
    let greeting = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
    let done = [message(b'C', b"SET\0"), message(b'Z', b"I")].concat();
    let mut piece = [0; 16 * 1024];
    for turn in 0.. {
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => {}
            _ => return,
        }
        let response = match turn {
            turn if turn == at => evil,
            0 => &greeting,
            _ => &done,
        };
        if stream.write_all(response).is_err() {
            return;
        }
    }
}

/// The error of a client's login or of its query.
fn outcome(gateway: &Gateway) -> String {
    match Wire::connect(gateway.address.tcp().port(), USER, USER, "victim") {
        Err(error) => error,
        Ok(mut wire) => wire.query("select 1").map_or_else(|error| error, |reply| reply.state().to_owned()),
    }
}

#[test]
fn p19_a_server_that_breaks_the_protocol_is_closed_and_its_client_gets_an_error() {
    let length = |tag: u8, claimed: u32| [&[tag][..], &claimed.to_be_bytes()].concat();
    let cases: [(&str, usize, Vec<u8>); 9] = [
        ("a greeting of length 3", 0, length(b'R', 3)),
        ("an unknown request for a proof", 0, message(b'R', &99_u32.to_be_bytes())),
        ("an error without SQLSTATE as a greeting", 0, message(b'E', b"SFATAL\0Mgo away\0\0")),
        ("a greeting of 2 GiB", 0, length(b'R', 0x7fff_ffff)),
        ("a row of length 3 for parameters", 1, length(b'D', 3)),
        ("a row of length 3", 2, length(b'D', 3)),
        ("a row of 2 GiB, which no server has", 2, length(b'D', 0x7fff_ffff)),
        ("a row of a negative length", 2, length(b'D', u32::MAX)),
        ("a message that there is not", 2, message(b'!', b"")),
    ];
    for (what, at, evil) in cases {
        let address = evil_server(at, evil);
        let config = Config { protocol: "postgres", ..Config::to(&address) };
        let config = config.listener("[listener.postgres]\nauth = \"trust\"\nquery_wait_timeout = \"2s\"");
        let mut gateway = Gateway::start_unready(config.upstream("[upstream.health]\nenabled = false"));
        let resident = gateway.process().resident();
        let error = outcome(&gateway);
        assert!(
            ["08", "57P03", "53300", "XX000", "28"].iter().any(|class| error.contains(class)),
            "{what}: {error}\n{}",
            gateway.log()
        );
        let grown = gateway.process().resident().saturating_sub(resident);
        assert!(grown < GROWTH_MAX, "{what}: {grown} bytes more");
        gateway.finish();
    }
}

/// The claimed length of a row costs nothing: it passes as it comes, and its client sees the end of its connection.
#[test]
fn p19_a_row_of_a_gibibyte_that_never_comes_costs_no_memory() {
    let row = [message(b'T', b"\0\0"), [&b"D"[..], &0x3000_0000_u32.to_be_bytes(), b"\0\x01"].concat()].concat();
    // Half of a row has gone to the client: no error can follow. A response to its parameters is not for it.
    for (at, end) in [(2, "closed"), (1, "57014")] {
        let address = evil_server(at, row.clone());
        let config = Config { protocol: "postgres", ..Config::to(&address) };
        let config = config.listener("[listener.postgres]\nauth = \"trust\"\nquery_timeout = \"1s\"");
        let mut gateway = Gateway::start_unready(config);
        let resident = gateway.process().resident();
        let error = outcome(&gateway);
        assert!(error.contains(end), "{error}\n{}", gateway.log());
        let grown = gateway.process().resident().saturating_sub(resident);
        assert!(grown < GROWTH_MAX / 4, "{grown} bytes more");
    }
}
