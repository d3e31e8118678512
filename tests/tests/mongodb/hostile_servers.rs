//! Servers that break rules: case M8, and the server's side of M1, M2, M4 and M5. Their clients get an error of the gateway or the end of
//! their connection, never the reply of another, and the connection to the server is not used again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::message::{self, Flags, Ids};
use weir_tests::gateway::Gateway;
use weir_tests::mongodb::fake::{Act, Asked, Fake, honest};
use weir_tests::mongodb::wire::{Wire, find};

use crate::gateway::{before, port};

/// Memory that a hostile server may cost, bytes.
const GROWTH_MAX: u64 = 32 << 20;

fn reply(response_to: i32, flags: Flags, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    message::write(&mut out, Ids { request: 9, response_to }, flags, body);
    out
}

fn good(body: &mut Writer<'_>) {
    body.int32("evil", 1);
    body.double("ok", 1.0);
}

/// The replies so far: whether each was evil, and its connection.
type Noted = Arc<Mutex<Vec<(bool, u64)>>>;

/// Answers the first count with `evil`, and everything else honestly. The connections of both are noted.
fn evil_once(evil: fn(&Asked<'_>) -> Act) -> (Fake, Noted) {
    let (seen, is_over) = (Arc::new(Mutex::new(Vec::new())), AtomicBool::new(false));
    let noted = Arc::clone(&seen);
    let server = Fake::start(move |asked| {
        let is_evil = asked.name == "count" && !is_over.swap(true, Ordering::Relaxed);
        if matches!(asked.name, "count" | "find") {
            noted.lock().expect("the connections").push((is_evil, asked.connection));
        }
        if is_evil { evil(asked) } else { honest(asked) }
    });
    (server, seen)
}

/// A name, the reply, and whether the client may have it before the rule is seen to be broken.
type Case = (&'static str, fn(&Asked<'_>) -> Act, bool);

const CASES: [Case; 11] = [
    ("a reply to nothing", |_| Act::Raw(reply(4_242, Flags::empty(), good)), false),
    (
        "two replies",
        |asked| {
            let one = reply(asked.id, Flags::empty(), good);
            Act::Raw([reply(4_242, Flags::empty(), good), one].concat())
        },
        false,
    ),
    ("a stream that nobody asked for", |asked| Act::Raw(reply(asked.id, Flags::MORE_TO_COME, good)), true),
    ("a length of 2 GiB", |_| Act::Raw(i32::MAX.to_le_bytes().to_vec()), false),
    ("a negative length", |_| Act::Raw((-1_i32).to_le_bytes().to_vec()), false),
    ("a length of 15", |_| Act::Raw([15_i32, 1, 1, 2013].map(i32::to_le_bytes).concat()), false),
    ("an opcode that there is not", |asked| Act::Raw([16, 1, asked.id, 4_000].map(i32::to_le_bytes).concat()), false),
    (
        "a compressed reply that nobody agreed on",
        |asked| Act::Raw([&[25, 1, asked.id, 2012, 2013, 5].map(i32::to_le_bytes).concat()[..], &[0]].concat()),
        false,
    ),
    (
        "an unknown required flag",
        |asked| {
            let mut bytes = reply(asked.id, Flags::empty(), good);
            bytes[16] = 1 << 6;
            Act::Raw(bytes)
        },
        false,
    ),
    (
        "a document that is too long",
        |asked| {
            let mut bytes = reply(asked.id, Flags::empty(), good);
            bytes[21..25].copy_from_slice(&1_000_000_u32.to_le_bytes());
            Act::Raw(bytes)
        },
        false,
    ),
    (
        "half a reply and the end",
        |asked| {
            let bytes = reply(asked.id, Flags::empty(), good);
            Act::Last(bytes[..bytes.len() / 2].to_vec())
        },
        false,
    ),
];

#[test]
fn m8_a_server_that_breaks_the_protocol_is_closed_and_its_client_gets_an_error() {
    for (what, evil, may_deliver) in CASES {
        let (server, seen) = evil_once(evil);
        let limit = "request_timeout = \"1s\"";
        let mut gateway = Gateway::start(before(&server.address, limit, "pool_size = 1"));
        let resident = gateway.process().resident();
        let mut wire = Wire::connect(port(&gateway));
        wire.ask(Flags::empty(), |body| {
            body.string("count", "notes");
            body.string("$db", "test");
        });
        match wire.reply() {
            Ok(reply) => {
                assert!(reply.code() != 0 || (may_deliver && reply.number(&["evil"]).is_some()), "{what}: {reply:?}")
            }
            Err(error) => assert!(error == "closed" || error.contains("cannot be read"), "{what}: {error}"),
        }
        // Nothing of it reaches another client, and the pool makes a connection of its own for that one.
        let mut other = Wire::connect(port(&gateway));
        let found = other.call(|body| find(body, "notes", 2));
        assert_eq!(found.batch(), [1, 2], "{what}: {found:?}");
        let seen = seen.lock().expect("the connections").clone();
        let bad = seen.iter().find(|(is_evil, _)| *is_evil).map(|(_, connection)| *connection);
        // A reply behind which nothing is wrong leaves its connection as it was.
        let is_reused = seen.iter().any(|(is_evil, connection)| !is_evil && Some(*connection) == bad);
        assert!(!is_reused, "{what}: the connection served another client: {seen:?}");
        let grown = gateway.process().resident().saturating_sub(resident);
        assert!(grown < GROWTH_MAX, "{what}: {grown} bytes more");
        drop((wire, other));
        gateway.finish();
    }
}

/// Bytes behind a reply, before the next request.
#[test]
fn m8_a_reply_too_many_reaches_no_client() {
    let (server, seen) = evil_once(|asked| {
        let second = reply(asked.id, Flags::empty(), good);
        let first = reply(asked.id, Flags::empty(), |body| {
            body.int32("n", 5);
            body.double("ok", 1.0);
        });
        Act::Raw([first, second].concat())
    });
    let gateway = Gateway::start(before(&server.address, "", "pool_size = 1"));
    let mut wire = Wire::connect(port(&gateway));
    let first = wire.call(|body| {
        body.string("count", "notes");
        body.string("$db", "test");
    });
    assert_eq!(first.number(&["n"]), Some(5));
    wire.expect_silence(Duration::from_millis(200));
    let mut other = Wire::connect(port(&gateway));
    assert_eq!(other.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
    let seen = seen.lock().expect("the connections").clone();
    let bad = seen.iter().find(|(is_evil, _)| *is_evil).map(|(_, connection)| *connection);
    assert!(seen.iter().all(|(is_evil, connection)| *is_evil || Some(*connection) != bad), "{seen:?}");
    drop((wire, other));
    gateway.finish();
}

/// A reply of 40 MB that never comes: its client waits as long as it may, and memory follows what came.
#[test]
fn m1_a_reply_whose_length_is_claimed_alone_costs_no_memory() {
    let server = Fake::start(|asked| match asked.name {
        "count" => Act::Raw([&[40_000_000, 1, asked.id, 2013].map(i32::to_le_bytes).concat()[..], &[0; 5]].concat()),
        _ => honest(asked),
    });
    let mut gateway = Gateway::start(before(&server.address, "request_timeout = \"2s\"", "pool_size = 30"));
    let mut victim = Wire::connect(port(&gateway));
    assert_eq!(victim.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
    let resident = gateway.process().resident();
    let mut waiting: Vec<Wire> = (0..25).map(|_| Wire::connect(port(&gateway))).collect();
    for wire in &mut waiting {
        wire.ask(Flags::empty(), |body| {
            body.string("count", "notes");
            body.string("$db", "test");
        });
    }
    assert_eq!(victim.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
    let grown = gateway.process().resident().saturating_sub(resident);
    assert!(grown < GROWTH_MAX, "{grown} bytes more");
    for mut wire in waiting {
        let _ = wire.until_closed();
    }
    drop(victim);
    gateway.finish();
}
