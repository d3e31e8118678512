//! Clients that leave something behind at servers, or hold it: cursors, transactions, streams, hellos that wait. Cases M7, M9, M10, M12 and
//! M15.

use std::io::Read;
use std::time::{Duration, Instant};

use weir_engine::net::raise_descriptor_limit;
use weir_mongodb_codec::message::{self, Flags, Ids};
use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::mongodb::fake::{Act, Asked, Fake, honest};
use weir_tests::mongodb::wire::{Reply, Wire, find, get_more, part, plain};

use crate::gateway::{before, port};

/// Memory that unread replies may cost, bytes.
const GROWTH_MAX: u64 = 48 << 20;
const LARGE: usize = 16 << 20;
/// Clients whose hellos wait at a time: as many as the case has.
const MONITORS: usize = 10_000;

/// Says hello as a client in load-balanced mode.
fn balanced(gateway: &Gateway) -> (Wire, Reply) {
    Wire::connect_with(port(gateway), |body| body.bool("loadBalanced", true))
}

#[test]
fn m7_hellos_that_wait_hold_no_server_connection() {
    raise_descriptor_limit().expect("a higher limit");
    let server = Fake::honest();
    let limits = format!("[limits]\nconnections_per_source = {}", MONITORS + 100);
    let config = before(&server.address, "request_timeout = \"1s\"", "pool_size = 1");
    let gateway = Gateway::start(config.tables(&limits));
    let (mut first, hello) = Wire::connect_with(port(&gateway), |_| {});
    let process = hello.value(&["topologyVersion", "processId"]).and_then(|id| id.as_object_id()).expect("a process");
    let counter = hello.number(&["topologyVersion", "counter"]).expect("a counter");
    let mut monitors: Vec<(Wire, i32)> = (0..MONITORS)
        .map(|number| {
            let mut wire = Wire::connect(port(&gateway));
            // Half of them ask for a stream of replies.
            let flags = if number % 2 == 0 { Flags::EXHAUST_ALLOWED } else { Flags::empty() };
            let id = wire.ask(flags, |body| {
                body.int32("hello", 1);
                body.document("topologyVersion", |version| {
                    version.object_id("processId", process);
                    version.int64("counter", counter);
                });
                body.int64("maxAwaitTimeMS", 8_000);
                body.string("$db", "admin");
            });
            (wire, id)
        })
        .collect();
    let begun = Instant::now();
    assert_eq!(first.call(|body| find(body, "notes", 2)).batch(), [1, 2], "the only connection is free");
    for (wire, id) in &mut monitors {
        let reply = wire.reply().expect("a reply within its time");
        assert!(reply.is_ok() && reply.response_to == *id, "{reply:?}");
    }
    let waited = begun.elapsed();
    assert!(waited > Duration::from_secs(4) && waited < Duration::from_secs(16), "{waited:?}");
    assert!(server.connections() <= 4, "{} connections", server.connections());
    drop((first, monitors));
    gateway.finish();
}

#[test]
fn m7_a_hello_with_half_of_what_waiting_takes_is_refused() {
    let server = Fake::honest();
    let gateway = Gateway::start(before(&server.address, "", ""));
    let mut wire = Wire::connect(port(&gateway));
    let half = wire.call(|body| {
        body.int32("hello", 1);
        body.int64("maxAwaitTimeMS", 100);
        body.string("$db", "admin");
    });
    assert!(!half.is_ok() && half.code() != 0, "{half:?}");
    assert!(wire.call(|body| plain(body, "ping")).is_ok(), "the connection goes on");
}

#[test]
fn m9_cursors_of_a_client_that_leaves_are_killed_in_load_balanced_mode_alone() {
    let server = Fake::honest();
    let gateway = Gateway::start(before(&server.address, "", "pool_size = 3"));
    for with_reset in [false, true] {
        let killed = server.count("killCursors");
        let (mut wire, hello) = balanced(&gateway);
        assert!(hello.value(&["serviceId"]).is_some(), "{hello:?}");
        assert!(wire.call(|body| find(body, "notes", 2)).cursor() != 0);
        wire.leave(with_reset);
        until_true("its cursor is killed", || server.count("killCursors") == killed + 1);
    }
    let killed = server.count("killCursors");
    let (mut wire, hello) = Wire::connect_with(port(&gateway), |_| {});
    assert!(hello.value(&["serviceId"]).is_none(), "{hello:?}");
    let cursor = wire.call(|body| find(body, "notes", 2)).cursor();
    wire.leave(false);
    // A driver goes on with it on another of its connections.
    let mut other = Wire::connect(port(&gateway));
    assert_eq!(other.call(|body| get_more(body, cursor, "notes")).batch(), [3, 4, 5]);
    assert_eq!(server.count("killCursors"), killed);
    drop(other);
    gateway.finish();
}

#[test]
fn m10_a_transaction_of_a_client_that_leaves_is_aborted_in_load_balanced_mode_alone() {
    let server = Fake::honest();
    let gateway = Gateway::start(before(&server.address, "transaction_idle_timeout = \"2s\"", "pool_size = 3"));
    for with_reset in [false, true] {
        let aborted = server.count("abortTransaction");
        let (mut wire, _) = balanced(&gateway);
        assert!(wire.call(|body| part(body, [1; 16], 1, true)).is_ok());
        wire.leave(with_reset);
        until_true("its transaction is aborted", || server.count("abortTransaction") == aborted + 1);
    }
    let aborted = server.count("abortTransaction");
    let mut wire = Wire::connect(port(&gateway));
    assert!(wire.call(|body| part(body, [2; 16], 1, true)).is_ok());
    wire.leave(false);
    let mut other = Wire::connect(port(&gateway));
    assert!(other.call(|body| part(body, [2; 16], 1, false)).is_ok(), "it goes on with another connection");
    assert_eq!(server.count("abortTransaction"), aborted);
    drop(other);
    gateway.finish();
}

/// Large replies for clients that do not read them. The byte budget has no room for one of them.
#[test]
fn m12_large_replies_that_are_not_read_cost_bounded_memory() {
    let server = Fake::start(|asked| match asked.name {
        "aggregate" => Act::reply(|body| body.string("text", "x".repeat(LARGE))),
        _ => honest(asked),
    });
    let config = before(&server.address, "", "pool_size = 26");
    let mut gateway = Gateway::start(config.tables("[limits]\nbuffered_bytes = \"8MiB\""));
    let mut victim = Wire::connect(port(&gateway));
    assert_eq!(victim.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
    let resident = gateway.process().resident();
    let mut unread: Vec<Wire> = (0..24).map(|_| Wire::connect(port(&gateway))).collect();
    for wire in &mut unread {
        wire.ask(Flags::empty(), |body| {
            body.string("aggregate", "notes");
            body.string("$db", "test");
        });
    }
    until_true("all are under way", || server.count("aggregate") == 24);
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(victim.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let grown = gateway.process().resident().saturating_sub(resident);
    assert!(grown < GROWTH_MAX, "{grown} bytes more for 24 replies of 16 MiB");
    // One that reads at last has all of it; the others leave.
    let reply = unread.pop().expect("one of them").reply().expect("a whole reply");
    assert_eq!(reply.text(&["text"]).len(), LARGE);
    unread.into_iter().enumerate().for_each(|(number, wire)| wire.leave(number % 2 == 0));
    until_true("nothing is held", || gateway.metric("weir_buffered_bytes") == 0.0);
    drop(victim);
    gateway.finish();
}

/// A stream of replies without an end, as fast as the server's socket takes them.
fn endless(asked: &Asked<'_>, count: i32) -> Act {
    let mut out = Vec::new();
    for number in 0..count {
        let response_to = if number == 0 { asked.id } else { 50_000 + number - 1 };
        let ids = Ids { request: 50_000 + number, response_to };
        let follows = if number + 1 < count { Flags::MORE_TO_COME } else { Flags::empty() };
        message::write(&mut out, ids, follows, |body| {
            body.document("cursor", |cursor| {
                let text = "x".repeat(100_000);
                cursor.array("nextBatch", [0], |array, name, _| array.document(name, |one| one.string("text", &text)));
                cursor.int64("id", if number + 1 < count { 99 } else { 0 });
                cursor.string("ns", "test.notes");
            });
            body.double("ok", 1.0);
        });
    }
    Act::Raw(out)
}

#[test]
fn m15_a_stream_of_replies_whose_client_stops_reading_pauses_its_server() {
    let server = Fake::start(|asked| match asked.name {
        "getMore" => endless(asked, 1_000),
        "find" if asked.body.get(b"find").ok().flatten().and_then(|name| name.as_string()) == Some(b"stream") => {
            Act::batch(asked, 99, [1, 2])
        }
        _ => honest(asked),
    });
    let mut gateway = Gateway::start(before(&server.address, "", "pool_size = 3"));
    let mut victim = Wire::connect(port(&gateway));
    assert_eq!(victim.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
    let resident = gateway.process().resident();
    let mut wire = Wire::connect(port(&gateway));
    let cursor = wire.call(|body| find(body, "stream", 2)).cursor();
    let id = wire.ask(Flags::EXHAUST_ALLOWED, |body| get_more(body, cursor, "stream"));
    std::thread::sleep(Duration::from_secs(1));
    let grown = gateway.process().resident().saturating_sub(resident);
    assert!(grown < GROWTH_MAX, "{grown} bytes more of a stream of 100 MB");
    assert_eq!(victim.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
    // It reads at last: the stream is whole, and each reply names the one before.
    let mut expected = id;
    for number in 0..1_000 {
        let reply = wire.reply().expect("a reply of the stream");
        assert_eq!(reply.response_to, expected, "reply {number}");
        expected = reply.id;
        assert_eq!(reply.flags.contains(Flags::MORE_TO_COME), number < 999);
    }
    assert!(wire.call(|body| plain(body, "ping")).is_ok());
    // Another one leaves in the middle: its server connection is gone too, and nothing is held.
    let mut lost = Wire::connect(port(&gateway));
    let cursor = lost.call(|body| find(body, "stream", 2)).cursor();
    lost.ask(Flags::EXHAUST_ALLOWED, |body| get_more(body, cursor, "stream"));
    let mut piece = vec![0; 300_000];
    lost.socket().duplicate().read_exact(&mut piece).expect("some of it");
    lost.leave(true);
    drop((wire, victim));
    until_true("nothing is held", || gateway.metric("weir_requests_in_flight") == 0.0);
    gateway.finish();
}
