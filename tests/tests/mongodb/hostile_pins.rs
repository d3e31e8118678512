//! Clients that misuse or leave behind what lives at servers: cursors, transactions, streams, hellos that wait. Cases M7, M9, M10, M12, M15
//! and M20.

use std::io::Read;
use std::time::{Duration, Instant};

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::message::{self, Flags, Ids};
use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::mongodb::fake::{Act, Asked, Fake, honest};
use weir_tests::mongodb::wire::{Reply, Wire, find, get_more, login, plain, session};
use weir_tests::mongodb::{FerretDb, PASSWORD, USER};
use weir_tests::stream::Address;

use crate::gateway::{before, port};

/// Memory that unread replies may cost, bytes.
const GROWTH_MAX: u64 = 48 << 20;
const LARGE: usize = 16 << 20;

/// Says hello as a client in load-balanced mode.
fn balanced(gateway: &Gateway) -> (Wire, Reply) {
    Wire::connect_with(port(gateway), |body| body.bool("loadBalanced", true))
}

/// A statement in a transaction.
fn part(body: &mut Writer<'_>, id: [u8; 16], number: i64, is_first: bool) {
    body.string("insert", "notes");
    body.array("documents", [1], |array, name, id| array.document(name, |one| one.int32("_id", id)));
    session(body, id);
    body.int64("txnNumber", number);
    if is_first {
        body.bool("startTransaction", true);
    }
    body.bool("autocommit", false);
    body.string("$db", "test");
}

#[test]
fn m7_hellos_that_wait_hold_no_server_connection() {
    let server = Fake::honest();
    let gateway = Gateway::start(before(&server.address, "request_timeout = \"1s\"", "pool_size = 1"));
    let (mut first, hello) = Wire::connect_with(port(&gateway), |_| {});
    let process = hello.value(&["topologyVersion", "processId"]).and_then(|id| id.as_object_id()).expect("a process");
    let counter = hello.number(&["topologyVersion", "counter"]).expect("a counter");
    let mut monitors: Vec<(Wire, i32)> = (0..300)
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
                body.int64("maxAwaitTimeMS", 2_500);
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
    assert!(waited > Duration::from_millis(1_500) && waited < Duration::from_secs(6), "{waited:?}");
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

/// A gateway with the users ann and ben, who are one at the server.
fn two_users(server: &Address, upstream: &str) -> Gateway {
    let folder = tempfile::tempdir().expect("a folder");
    let password = secret_file(folder.path(), "client-password", "word");
    let user = |name: &str| format!("[[listener.user]]\nname = \"{name}\"\npassword = {{ file = \"{password}\" }}\n");
    let listener = format!("[listener.mongodb]\nauth = \"scram\"\n{}{}", user("ann"), user("ben"));
    let config = Config { protocol: "mongodb", ..Config::to(server) };
    Gateway::start(config.listener(&listener).upstream(&format!("[upstream.mongodb]\n{upstream}")))
}

/// The end of a transaction.
fn end(body: &mut Writer<'_>, command: &str, id: [u8; 16], number: i64) {
    body.int32(command, 1);
    session(body, id);
    body.int64("txnNumber", number);
    body.bool("autocommit", false);
    body.string("$db", "admin");
}

/// Nothing that ben does with the session of ann reaches the server, which would take him for her.
#[test]
fn m20_a_transaction_of_another_user_is_unknown() {
    let server = Fake::honest();
    let gateway = two_users(&server.address, "");
    let mut ann = login(port(&gateway), "ann", "word");
    let mut ben = login(port(&gateway), "ben", "word");
    let id = [9; 16];
    assert!(ann.call(|body| part(body, id, 1, true)).is_ok());
    let inserts = server.count("insert");
    assert!(!ben.call(|body| part(body, id, 1, false)).is_ok(), "a statement");
    assert_eq!(server.count("insert"), inserts, "a statement");
    for command in ["commitTransaction", "abortTransaction"] {
        let reply = ben.call(|body| end(body, command, id, 1));
        assert!(!reply.is_ok(), "{command}: {reply:?}");
        assert_eq!(server.count(command), 0, "{command}");
    }
    assert!(ann.call(|body| part(body, id, 1, false)).is_ok(), "its owner goes on");
    assert!(ann.call(|body| end(body, "commitTransaction", id, 1)).is_ok(), "and ends it");
    assert_eq!(server.count("commitTransaction"), 1);
    drop((ann, ben));
    gateway.finish();
}

/// Two users of the gateway, one login at the server: the server does not tell them apart.
#[test]
fn m9_cursors_of_another_user_are_unknown() {
    let server = FerretDb::start_with_logins();
    let folder = tempfile::tempdir().expect("a folder");
    let own = secret_file(folder.path(), "server-password", PASSWORD);
    let gateway = two_users(&server.address, &format!("user = \"{USER}\"\npassword = {{ file = \"{own}\" }}"));
    let mut ann = login(port(&gateway), "ann", "word");
    let mut ben = login(port(&gateway), "ben", "word");
    let insert = ann.call(|body| {
        body.string("insert", "notes");
        body.array("documents", 0..10, |array, name, id| array.document(name, |one| one.int32("_id", id)));
        body.string("$db", "test");
    });
    assert!(insert.is_ok(), "{insert:?}");
    let id = [7; 16];
    let opened = ann.call(|body| {
        find(body, "notes", 2);
        session(body, id);
    });
    let cursor = opened.cursor();
    assert!(cursor != 0, "{opened:?}");
    let theirs = |body: &mut Writer<'_>| {
        get_more(body, cursor, "notes");
        session(body, id);
    };
    assert_eq!(ben.call(theirs).code(), 43, "with the same session");
    let killed = ben.call(|body| {
        body.string("killCursors", "notes");
        body.array("cursors", [cursor], |array, name, id| array.int64(name, id));
        session(body, id);
        body.string("$db", "test");
    });
    assert!(killed.value(&["cursorsKilled"]).is_none_or(|list| list.bytes.len() <= 5), "{killed:?}");
    let own = ann.call(theirs);
    assert!(own.is_ok() && !own.batch().is_empty(), "its owner goes on: {own:?}");
    drop((ann, ben));
    gateway.finish();
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

/// Large replies for clients that do not read them.
#[test]
fn m12_large_replies_that_are_not_read_cost_bounded_memory() {
    let server = Fake::start(|asked| match asked.name {
        "aggregate" => Act::reply(|body| body.string("text", "x".repeat(LARGE))),
        _ => honest(asked),
    });
    let mut gateway = Gateway::start(before(&server.address, "", "pool_size = 26"));
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
    lost.socket().try_clone().expect("a handle").read_exact(&mut piece).expect("some of it");
    lost.leave(true);
    drop((wire, victim));
    until_true("nothing is held", || gateway.metric("weir_requests_in_flight") == 0.0);
    gateway.finish();
}
