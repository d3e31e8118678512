//! One client costs another nothing: cases S1 and S3 to S8 with PostgreSQL, and with them S12: counters and `/api/v1/connections`.
//! S2, S9, S10 and S11 have files of their own.

use std::io::Read;
use std::time::{Duration, Instant};

use weir_tests::deadline::{until, until_true};
use weir_tests::gateway::Gateway;
use weir_tests::postgres::torture::wire::{SYNC, Wire, message, parse, query, run};
use weir_tests::postgres::{Major, Postgres, USER};

use crate::gateway::before;
use crate::hostile::{login, running, value};

mod distance;
mod encoding;
mod forms;
mod settings;
mod unread;

/// 1 s is what must hold; the rest is for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_millis(2_500);
/// Gives a result of 200 MB.
const LARGE: &str = "select repeat('x', 1000) from generate_series(1, 200000)";

/// The waits of small queries one after the other for `time`, the longest last.
fn waits(wire: &mut Wire, time: Duration) -> Vec<Duration> {
    let (begun, mut waits) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        let sent = Instant::now();
        assert_eq!(value(wire, "select 7"), "7");
        waits.push(sent.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
    waits.sort();
    waits
}

fn percentile(waits: &[Duration], part: usize) -> Duration {
    waits[(waits.len() - 1) * part / 100]
}

/// The connections that the gateway shows at its listener.
fn shown(gateway: &Gateway) -> Vec<serde_json::Value> {
    let connections = gateway.admin.get("/api/v1/connections").json();
    connections["connections"].as_array().unwrap_or_else(|| panic!("a list: {connections}")).clone()
}

/// Why the clients that have a pin have it.
pub(crate) fn pins(gateway: &Gateway) -> Vec<String> {
    let reasons = |one: serde_json::Value| one["pinned_by"].as_array().cloned().unwrap_or_default();
    shown(gateway).into_iter().flat_map(reasons).map(|reason| reason.to_string()).collect()
}

#[test]
fn s1_a_client_that_reads_slowly_costs_another_neither_time_nor_memory() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let mut gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 4"));
    let mut victim = login(&gateway);
    let quiet = waits(&mut victim, Duration::from_secs(1));
    let resident = gateway.process().resident();
    for rate in [0, 1_000_000_usize] {
        let mut slow = login(&gateway);
        slow.send(&query(LARGE)).expect("sent");
        until_true("the query runs", || running(&server, "generate_series") == "1");
        let with = std::thread::scope(|scope| {
            let socket = slow.socket().try_clone().expect("a second handle");
            scope.spawn(move || {
                let (mut socket, mut piece) = (socket, vec![0; rate / 20]);
                for _ in 0..40 {
                    if rate > 0 {
                        socket.read_exact(&mut piece).expect("a part of the result");
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            waits(&mut victim, Duration::from_secs(2))
        });
        for part in [50, 99] {
            let (with, quiet) = (percentile(&with, part), percentile(&quiet, part));
            let limit = (quiet * 5).max(Duration::from_millis(60));
            assert!(with <= limit, "p{part} at {rate} B/s: {with:?}, quiet {quiet:?}");
        }
        let grown = gateway.process().resident().saturating_sub(resident);
        assert!(grown < 24 << 20, "{grown} bytes more at {rate} B/s");
        assert_eq!((shown(&gateway).len(), gateway.metric("weir_connections_open")), (2, 2.0));
        assert_eq!(gateway.metric("weir_requests_in_flight"), 1.0, "the slow client alone");
        slow.leave(0);
        until_true("its query is over", || running(&server, "generate_series") == "0");
    }
}

#[test]
fn s3_a_slow_upload_holds_no_server_that_others_need() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "idle_transaction_timeout = \"2s\"", "pool_size = 1"));
    let literal = |bytes: usize| query(&format!("select length('{}')", "x".repeat(bytes)));
    let bind = [parse("", "select length($1)"), run("", &[&"y".repeat(60_000)]), SYNC.to_vec()].concat();
    // These are read whole before they need a server.
    for small in [literal(100), literal(60_000)] {
        let mut slow = login(&gateway);
        slow.send(&small[..small.len() / 2]).expect("sent");
        let mut victim = login(&gateway);
        assert_eq!(value(&mut victim, "select 7"), "7");
        assert!(victim.query("select pg_sleep(0)").expect("a reply").errors.is_empty());
        slow.send(&small[small.len() / 2..]).expect("sent");
        assert_eq!(slow.reply().expect("a reply").errors, []);
    }
    // These pass in pieces: the server is held while bytes come, and free after `idle_transaction_timeout` of silence.
    for large in [literal(2 << 20), bind] {
        let mut slow = login(&gateway);
        slow.send(&large[..large.len() / 2]).expect("sent");
        std::thread::sleep(Duration::from_millis(100));
        let mut victim = login(&gateway);
        assert_eq!(value(&mut victim, "select 7"), "7", "within query_wait_timeout");
        slow.leave(1);
    }
}

#[test]
fn s4_a_client_that_leaves_is_noticed_and_its_query_cancelled() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2"));
    // `2` is Terminate in the middle of a query, then the end.
    for way in [0, 1, 2] {
        for text in ["select pg_sleep(100)", LARGE] {
            let part = if text == LARGE { "generate_series" } else { "pg_sleep(100)" };
            let mut lost = login(&gateway);
            lost.send(&query(text)).expect("sent");
            until_true("the query runs", || running(&server, part) == "1");
            lost.leave(way);
            let left = Instant::now();
            until_true("it is cancelled", || running(&server, part) == "0");
            assert!(left.elapsed() < NOTICED_WITHIN, "way {way}, {text}: {:?}", left.elapsed());
            until_true("it is not shown", || shown(&gateway).is_empty());
        }
    }
    assert_eq!(gateway.metric("weir_defensive_closes_total"), 0.0, "nobody is blamed");
    assert_eq!(value(&mut login(&gateway), "select 7"), "7");
}

#[test]
fn s5_of_a_client_that_comes_back_at_once_nothing_takes_effect_later() {
    let server = Postgres::start(Major::Fifteen);
    server.sql_in(USER, "create table notes (n int); grant all on notes to app");
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 3"));
    for round in 0..6 {
        let mut client = login(&gateway);
        let text = "set statement_timeout = '7s'; select pg_sleep(30); insert into notes values (1)";
        client.send(&query(text)).expect("sent");
        until_true("the query runs", || running(&server, "pg_sleep(30)") == "1");
        client.leave(round % 2);
        let mut again = login(&gateway);
        assert_eq!(value(&mut again, "show statement_timeout"), "0", "round {round}");
        assert_eq!(value(&mut again, "select count(*) from notes"), "0", "round {round}");
    }
    until_true("all are over", || running(&server, "pg_sleep(30)") == "0");
    assert_eq!(server.sql_in(USER, "select count(*) from notes"), "0");
}

#[test]
fn s6_a_restart_of_the_server_costs_idle_clients_two_errors_at_most() {
    let mut server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 4"));
    let mut clients: Vec<Wire> = (0..10).map(|_| login(&gateway)).collect();
    for client in &mut clients {
        value(client, "set datestyle = 'German'");
    }
    server.stop();
    server.start_again();
    let mut errors = Vec::new();
    for client in &mut clients {
        let text = until("a client is served", Duration::from_secs(20), || {
            let reply = client.query("show datestyle").expect("its session goes on");
            errors.extend(reply.errors);
            reply.rows.first().map(|row| row[0].clone())
        });
        assert!(text.starts_with("German"), "{text}: its own settings");
    }
    assert!(errors.len() <= 2, "{errors:?}");
    assert_eq!(gateway.metric("weir_connections_open"), 10.0);
}

/// The sizes around which the path of a message may change.
fn sizes() -> impl Iterator<Item = usize> {
    [4, 64, 128, 1024].into_iter().flat_map(|kib| [kib * 1024 - 1, kib * 1024, kib * 1024 + 1])
}

#[test]
fn s7_messages_of_all_sizes_keep_their_bytes_and_their_order() {
    let server = Postgres::start(Major::Fifteen);
    server.sql_in(USER, "create table texts (t text); grant all on texts to app");
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2"));
    let mut wire = login(&gateway);
    // `rest`: the bytes of a message of `size` bytes that are no filling.
    let fill = |size: usize, rest: usize| "x".repeat(size - rest);
    for size in sizes() {
        let text = |rest: usize| format!("select length('{}')", fill(size, rest));
        let (in_query, in_parse) = (text(5 + 17 + 1), text(5 + 1 + 17 + 1 + 2));
        let (one, other) = (query(&in_query), parse("", &in_parse));
        assert_eq!((one.len(), other.len()), (size, size));
        let bound = fill(size, 5 + 16);
        let small = |mark: &str| query(&format!("select '{mark}'"));
        let bind = [parse("", "select md5($1), length($1)"), run("", &[&bound]), SYNC.to_vec()].concat();
        let row = query(&format!("select repeat('y', {})", size - 11));
        let parsed = [other, run("", &[]), SYNC.to_vec()].concat();
        wire.send(&[small("a"), one, small("b"), parsed, small("c"), bind, row, small("d")].concat()).expect("sent");
        let mut next = || {
            let reply = wire.reply().unwrap_or_else(|error| panic!("{size}: {error}\n{}", gateway.log()));
            assert!(reply.errors.is_empty(), "{size}: {:?}", reply.errors);
            reply.rows.concat()
        };
        assert_eq!(next(), ["a"]);
        assert_eq!(next(), [(size - 23).to_string()], "Query of {size}");
        assert_eq!(next(), ["b"]);
        assert_eq!(next(), [(size - 26).to_string()], "Parse of {size}");
        assert_eq!(next(), ["c"]);
        let sum = server.sql(&format!("select md5(repeat('x', {}))", bound.len()));
        assert_eq!(next(), [sum, bound.len().to_string()], "Bind with a value of {}", bound.len());
        assert!(next() == ["y".repeat(size - 11)], "DataRow of {size}");
        assert_eq!(next(), ["d"]);
        assert!(wire.query("copy texts from stdin").expect("a reply").wants_copy);
        let data = message(b'd', format!("{}\n", fill(size, 6)).as_bytes());
        assert_eq!(data.len(), size);
        let tail = [message(b'd', b"tail\n"), message(b'c', b""), small("e")].concat();
        wire.send(&[data, tail].concat()).expect("sent");
        assert_eq!(wire.reply().expect("a reply").tags, ["COPY 2"], "CopyData of {size}");
        assert_eq!(wire.reply().expect("a reply").rows, [["e"]]);
        let lengths = wire.query("select string_agg(length(t)::text, ' ' order by length(t)) from texts");
        assert_eq!(lengths.expect("a reply").rows, [[format!("4 {}", size - 6)]]);
        value(&mut wire, "truncate texts");
        wire.idle_messages().expect("nothing more");
    }
}

#[test]
fn s8_a_refusal_within_a_sequence_leaves_no_state() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "query_wait_timeout = \"300ms\"", "pool_size = 1"));
    let (mut holder, mut refused) = (login(&gateway), login(&gateway));
    value(&mut refused, "set datestyle = 'German'");
    for _ in 0..3 {
        value(&mut holder, "begin");
        // A batch, a statement, a setting and the beginning of a block: each is refused in its place.
        let batch = [parse("kept", "select $1::text || '!'"), run("kept", &["a"]), SYNC.to_vec()].concat();
        let queries = [query("set datestyle = 'SQL'"), query("begin")].concat();
        refused.send(&[batch.clone(), queries].concat()).expect("sent");
        for _ in 0..3 {
            let reply = refused.reply().expect("a reply");
            assert_eq!((reply.state(), reply.rows.len(), refused.status), ("53300", 0, b'I'), "{:?}", reply.errors);
        }
        refused.idle_messages().expect("nothing more");
        value(&mut holder, "commit");
        assert!(value(&mut refused, "show datestyle").starts_with("German"));
        assert_eq!(refused.status, b'I', "no block has begun");
        // The name is free once it is closed: a Parse that a server of the pool has taken before succeeds without one.
        let close = weir_tests::postgres::torture::wire::close("kept");
        refused.send(&[close.clone(), SYNC.to_vec(), batch, close, SYNC.to_vec()].concat()).expect("sent");
        assert_eq!(refused.reply().expect("a reply").errors, []);
        assert_eq!(refused.reply().expect("a reply").rows, [["a!"]]);
        assert_eq!(refused.reply().expect("a reply").errors, []);
    }
    assert!(gateway.metric("weir_shed_total") >= 3.0);
    assert_eq!((shown(&gateway).len(), gateway.metric("weir_connections_open")), (2, 2.0));
}
