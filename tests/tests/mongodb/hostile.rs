//! Clients that break rules: cases M1 to M6, M11, M13, M14 and M16 to M19. Each is refused in MongoDB's words or closed, counted once, and
//! nothing of its message reaches the server. A gateway that holds something back fails at its end.

use std::time::{Duration, Instant};

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::checksum;
use weir_mongodb_codec::message::Flags;
use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::mongodb::fake::Fake;
use weir_tests::mongodb::raw::{COMPRESSED, ID, MSG, body, compressed, raw, sections, sequence, with_length};
use weir_tests::mongodb::wire::{Wire, document, find, message, plain};

use crate::gateway::{before, closes, port};

/// Memory that refused messages may cost, bytes: far below the lengths that clients claim.
const GROWTH_MAX: u64 = 32 << 20;

fn insert(body: &mut Writer<'_>) {
    body.string("insert", "notes");
    body.string("$db", "test");
}

/// The connection of `wire` ends behind `bytes`: silently, or with errors that have code 17 or 22. It is counted once.
fn is_closed(gateway: &Gateway, what: &str, mut wire: Wire, bytes: &[u8], reason: &str) {
    let (before, all) = (closes(gateway, reason), gateway.metric("weir_defensive_closes_total"));
    // The gateway may close before it has read everything.
    let _ = wire.send(bytes);
    let replies = wire.until_closed().unwrap_or_else(|error| panic!("{what}: {error}\n{}", gateway.log()));
    assert!(replies.iter().all(|reply| [17, 22].contains(&reply.code())), "{what}: {replies:?}");
    gateway.wait_metric("weir_defensive_closes_total", &[("reason", reason)], before + 1.0);
    assert_eq!(gateway.metric("weir_defensive_closes_total"), all + 1.0, "{what}: counted once");
}

/// The server has seen nothing but finds, and others are served.
fn is_unharmed(gateway: &mut Gateway, server: &Fake, resident: u64) {
    let mut wire = Wire::connect(port(gateway));
    assert_eq!(wire.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
    let seen = server.commands();
    assert!(!seen.contains_key("insert") && !seen.contains_key("drop"), "{seen:?}");
    let grown = gateway.process().resident().saturating_sub(resident);
    assert!(grown < GROWTH_MAX, "{grown} bytes more");
}

fn scene(listener: &str) -> (Gateway, Fake, u64) {
    let server = Fake::honest();
    let mut gateway = Gateway::start(before(&server.address, listener, "pool_size = 2"));
    let mut wire = Wire::connect(port(&gateway));
    assert_eq!(wire.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
    let resident = gateway.process().resident();
    (gateway, server, resident)
}

#[test]
fn m1_lengths_that_no_message_has_end_the_connection() {
    let (mut gateway, server, resident) = scene("");
    let reason = "mongodb_message_length";
    for claimed in [0, 15, -1, 48_000_001, i32::MAX, i32::MIN] {
        let bytes = with_length(claimed, MSG, &[]);
        is_closed(&gateway, &format!("first, {claimed}"), Wire::open(port(&gateway)), &bytes, reason);
        is_closed(&gateway, &format!("later, {claimed}"), Wire::connect(port(&gateway)), &bytes, reason);
    }
    for text in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"*1\r\n$4\r\nPING\r\n"] {
        is_closed(&gateway, "another protocol", Wire::open(port(&gateway)), text, "cross_protocol");
    }
    is_closed(&gateway, "an opcode", Wire::connect(port(&gateway)), &raw(9_999, b"x"), "mongodb_opcode");
    is_unharmed(&mut gateway, &server, resident);
}

/// A message of 48 MB that never comes costs what came of it.
#[test]
fn m1_a_length_that_is_claimed_alone_costs_no_memory() {
    let (mut gateway, server, resident) = scene("message_timeout = \"1s\"");
    let mut waiting: Vec<Wire> = (0..50).map(|_| Wire::connect(port(&gateway))).collect();
    for wire in &mut waiting {
        wire.send(&with_length(48_000_000, MSG, &[0; 30])).expect("sent");
    }
    is_unharmed(&mut gateway, &server, resident);
    for mut wire in waiting {
        wire.until_closed().expect("the deadline of a message ends it");
    }
}

#[test]
fn m2_compressed_messages_that_lie_are_refused() {
    let (mut gateway, server, resident) = scene("compressors = [\"zlib\", \"snappy\", \"zstd\"]");
    let plain_message = sections(0, &[body(insert)]);
    let data = &plain_message[16..];
    let deflated = {
        use std::io::Write as _;
        let mut deflater = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        deflater.write_all(data).expect("deflated");
        deflater.finish().expect("deflated")
    };
    let bomb = {
        use std::io::Write as _;
        let mut deflater = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        (0..40).for_each(|_| deflater.write_all(&vec![0; 1 << 20]).expect("deflated"));
        deflater.finish().expect("deflated")
    };
    let size = data.len() as i32;
    let at = port(&gateway);
    let ready = || {
        let compressors = |array: &mut Writer<'_>, name: &str, text: &str| array.string(name, text);
        Wire::connect_with(at, |body| body.array("compression", ["zlib"], compressors)).0
    };
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("a size too small", compressed(MSG, size - 1, 2, &deflated), "mongodb_inflate_size"),
        ("a size too large", compressed(MSG, size + 1, 2, &deflated), "mongodb_inflate_size"),
        ("a negative size", compressed(MSG, -1, 2, &deflated), "mongodb_inflated_size"),
        ("a size of 48 MB", compressed(MSG, 48_000_000, 2, &deflated), "mongodb_inflated_size"),
        ("a size that the ratio forbids", compressed(MSG, 47_000_000, 2, &deflated), "mongodb_inflate_ratio"),
        ("a bomb", compressed(MSG, 40 << 20, 2, &bomb), "mongodb_inflate_ratio"),
        ("one within another", compressed(COMPRESSED, size, 2, &deflated), "mongodb_compressed_twice"),
        ("a compressor that there is not", compressed(MSG, size, 9, &deflated), "mongodb_compressor"),
        ("broken bytes", compressed(MSG, size, 2, &[0x78, 0x9c, 1, 2, 3, 4]), "mongodb_inflate_broken"),
    ];
    for (what, bytes, reason) in cases {
        is_closed(&gateway, what, ready(), &bytes, reason);
    }
    is_unharmed(&mut gateway, &server, resident);
    // The same message, honestly: it arrives.
    let mut wire = ready();
    wire.send(&compressed(MSG, size, 2, &deflated)).expect("sent");
    assert!(wire.reply().expect("a reply").is_ok());
    assert_eq!(server.count("insert"), 1);
}

/// A compressor that was not agreed on has no place.
#[test]
fn m2_a_compressed_message_without_an_agreement_is_refused() {
    let (mut gateway, server, resident) = scene("");
    let plain_message = sections(0, &[body(insert)]);
    let data = &plain_message[16..];
    let bytes = compressed(MSG, data.len() as i32, 0, data);
    let mut wire = Wire::connect(port(&gateway));
    let _ = wire.send(&bytes);
    let replies = wire.until_closed().expect("the connection ends");
    assert!(replies.iter().all(|reply| !reply.is_ok()), "{replies:?}");
    gateway.wait_metric("weir_defensive_closes_total", &[], 1.0);
    is_unharmed(&mut gateway, &server, resident);
}

/// A document within a document, so many times.
fn nested(depth: u32, kind: u8) -> Vec<u8> {
    // Each level adds its length, its type, its name `a`, and its end.
    let heads = (1..=depth).rev().flat_map(|level| [&(5 + 8 * level).to_le_bytes()[..], &[kind, b'a', 0]].concat());
    heads.chain([5, 0, 0, 0, 0]).chain(std::iter::repeat_n(0, depth as usize)).collect()
}

/// Where nothing that the gateway needs is in there, they pass as they came, and the server decides. A rule about the elements in there
/// refuses a command that it cannot look through.
#[test]
fn m3_documents_that_are_nested_a_hundred_thousand_times_harm_nobody() {
    let (mut gateway, server, resident) = scene("");
    let rule = "[[listener.mongodb.rule]]\nname = \"no\"\naction = \"deny\"\njavascript = true";
    let judging = Gateway::start(before(&server.address, rule, "pool_size = 2"));
    for kind in [3, 4] {
        let filter = nested(100_000, kind);
        let filter = weir_mongodb_codec::bson::Document::read(&filter).expect("a document");
        for (gateway, code) in [(&gateway, 0), (&judging, 13)] {
            let counts = server.count("count");
            let mut wire = Wire::connect(port(gateway));
            let reply = wire.call(|body| {
                body.string("count", "notes");
                body.embed("query", filter);
                body.string("$db", "test");
            });
            assert_eq!((reply.code(), reply.is_ok()), (code, code == 0), "type {kind}: {reply:?}");
            assert_eq!(server.count("count") - counts, u64::from(code == 0), "type {kind}");
            assert_eq!(wire.call(|body| find(body, "notes", 2)).batch(), [1, 2], "the connection goes on");
        }
    }
    let denied = [("rule", "not_analysed"), ("action", "deny")];
    assert_eq!(judging.metrics().sum_where("weir_mongodb_rules_total", &denied), 2.0);
    judging.finish();
    is_unharmed(&mut gateway, &server, resident);
}

#[test]
fn m4_documents_whose_lengths_lie_are_refused() {
    let (mut gateway, server, resident) = scene("");
    let good = document(insert);
    let changed = |at: usize, bytes: &[u8]| {
        let mut document = good.clone();
        document[at..at + bytes.len()].copy_from_slice(bytes);
        sections(0, &[vec![0], document])
    };
    let without_end = {
        let mut document = good.clone();
        *document.last_mut().expect("a byte") = 1;
        sections(0, &[vec![0], document])
    };
    // The text of `insert` has its length behind four bytes of the document, its type and its name.
    let text_at = 4 + 1 + "insert".len() + 1;
    // A document that does not fit its message ends the connection; within a document that does, an element is the command's.
    let breaks: [(&str, Vec<u8>, &str); 4] = [
        ("a document of length 0", changed(0, &0_i32.to_le_bytes()), "mongodb_section"),
        ("a document that is too long", changed(0, &1_000_000_i32.to_le_bytes()), "mongodb_section"),
        ("a document of a negative length", changed(0, &(-5_i32).to_le_bytes()), "mongodb_section"),
        ("a document without its end", without_end, "bson_terminator"),
    ];
    for (what, bytes, reason) in breaks {
        is_closed(&gateway, what, Wire::connect(port(&gateway)), &bytes, reason);
    }
    let refusals: [(&str, Vec<u8>); 3] = [
        ("a text of a negative length", changed(text_at, &(-1_i32).to_le_bytes())),
        ("a text that reaches beyond", changed(text_at, &1_000_i32.to_le_bytes())),
        ("a type that there is not", changed(4, &[0x77])),
    ];
    let closed = gateway.metric("weir_defensive_closes_total");
    let mut wire = Wire::connect(port(&gateway));
    for (what, bytes) in refusals {
        wire.send(&bytes).expect("sent");
        let reply = wire.reply().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((reply.code(), reply.response_to), (22, ID), "{what}: {reply:?}");
    }
    assert_eq!(wire.call(|body| find(body, "notes", 2)).batch(), [1, 2], "the connection goes on");
    assert_eq!(gateway.metric("weir_defensive_closes_total"), closed, "nobody is blamed");
    drop(wire);
    is_unharmed(&mut gateway, &server, resident);
}

#[test]
fn m5_messages_that_break_the_rules_of_op_msg_end_the_connection() {
    let (mut gateway, server, resident) = scene("");
    let one = document(|body| body.int32("_id", 1));
    let mut overrun = sequence("documents", &one);
    overrun[1..5].copy_from_slice(&1_000_u32.to_le_bytes());
    let mut below = sequence("documents", &one);
    below[1..5].copy_from_slice(&3_u32.to_le_bytes());
    let wrong_sum = {
        let bytes = sections(1, &[body(insert), vec![1, 2, 3, 4]]);
        assert_ne!(checksum::of(&bytes[..bytes.len() - 4]).to_le_bytes(), [1, 2, 3, 4]);
        bytes
    };
    let twice = [body(insert), sequence("documents", &one), sequence("documents", &one)];
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("an unknown required flag", sections(1 << 5, &[body(insert)]), "mongodb_flags"),
        ("two bodies", sections(0, &[body(insert), body(insert)]), "mongodb_body"),
        ("no body", sections(0, &[sequence("documents", &one)]), "mongodb_body"),
        ("a kind that there is not", sections(0, &[body(insert), vec![7, 5, 0, 0, 0, 0]]), "mongodb_section"),
        ("a sequence beyond the message", sections(0, &[body(insert), overrun]), "mongodb_section"),
        ("a sequence of three bytes", sections(0, &[body(insert), below]), "mongodb_section"),
        ("two sequences of one name", sections(0, &twice), "mongodb_sequence"),
        ("a wrong checksum", wrong_sum, "mongodb_checksum"),
        ("flags without sections", raw(MSG, &[0; 4]), "mongodb_body"),
    ];
    for (what, bytes, reason) in cases {
        is_closed(&gateway, what, Wire::connect(port(&gateway)), &bytes, reason);
    }
    is_unharmed(&mut gateway, &server, resident);
    // An unknown optional flag, and a right checksum.
    for bits in [1 << 20, 1] {
        let mut bytes = sections(bits, &[body(|body| find(body, "notes", 2))]);
        if bits == 1 {
            let length = bytes.len() as u32 + 4;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes.extend(checksum::of(&bytes).to_le_bytes());
        }
        let mut wire = Wire::connect(port(&gateway));
        wire.send(&bytes).expect("sent");
        let reply = wire.reply().expect("a reply");
        assert_eq!((reply.batch(), reply.response_to), (vec![1, 2], ID));
        assert!(!reply.flags.contains(Flags::CHECKSUM_PRESENT));
    }
}

#[test]
fn m6_the_handshake_may_be_an_op_query_and_nothing_else() {
    let (mut gateway, server, resident) = scene("");
    let mut wire = Wire::open(port(&gateway));
    for name in ["isMaster", "ismaster"] {
        let id = wire.ask_legacy(|body| body.int32(name, 1));
        let reply = wire.reply().expect("a reply");
        assert!(reply.is_ok() && reply.is_legacy && reply.response_to == id, "{reply:?}");
        assert_eq!(reply.number(&["maxWireVersion"]), Some(25));
    }
    let id = wire.ask_legacy(|body| body.string("find", "notes"));
    let refused = wire.reply().expect("a reply");
    assert_eq!((refused.code(), refused.response_to), (352, id));
    assert_eq!(wire.call(|body| find(body, "notes", 2)).batch(), [1, 2], "the connection goes on");
    for op_code in [2001, 2002, 2005, 2006, 2007, 2010, 2011, 1] {
        let bytes = raw(op_code, &[0; 24]);
        is_closed(&gateway, &format!("opcode {op_code}"), Wire::connect(port(&gateway)), &bytes, "mongodb_opcode");
    }
    is_unharmed(&mut gateway, &server, resident);
}

#[test]
fn m11_commands_that_can_be_read_in_two_ways_are_refused() {
    let (mut gateway, server, resident) = scene("");
    let mut wire = Wire::connect(port(&gateway));
    let finds = server.count("find");
    let twice: [fn(&mut Writer<'_>); 3] = [
        |body| {
            find(body, "notes", 2);
            body.string("find", "other");
        },
        |body| {
            find(body, "notes", 2);
            body.string("$db", "other");
        },
        |body| {
            find(body, "notes", 2);
            body.document("lsid", |lsid| lsid.binary("id", 4, &[1; 16]));
            body.document("lsid", |lsid| lsid.binary("id", 4, &[2; 16]));
        },
    ];
    for write in twice {
        let reply = wire.call(write);
        assert_eq!(reply.code(), 9, "{reply:?}");
    }
    assert_eq!(server.count("find"), finds, "nothing of them was forwarded");
    is_unharmed(&mut gateway, &server, resident);
}

#[test]
fn m13_a_message_of_one_byte_at_a_time_ends_at_its_deadline() {
    let (mut gateway, server, resident) = scene("message_timeout = \"600ms\"");
    let whole = message(5, Flags::empty(), |body| find(body, "notes", 2));
    for part in [8, whole.len() - 2] {
        let mut wire = Wire::connect(port(&gateway));
        let begun = Instant::now();
        wire.send(&whole[..part]).expect("sent");
        while begun.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(150));
            if wire.send(&[0]).is_err() {
                break;
            }
        }
        wire.until_closed().expect("the connection ends");
        assert!(begun.elapsed() >= Duration::from_millis(600));
    }
    assert_eq!(gateway.metric("weir_defensive_closes_total"), 2.0, "{}", gateway.log());
    is_unharmed(&mut gateway, &server, resident);
}

/// Writes that want no reply, from a client that never reads: the server's pace is the client's.
#[test]
fn m14_a_flood_of_unacknowledged_writes_costs_bounded_memory() {
    let server = Fake::start(|asked| {
        if asked.name == "update" {
            std::thread::sleep(Duration::from_millis(1));
        }
        weir_tests::mongodb::fake::honest(asked)
    });
    let mut gateway = Gateway::start(before(&server.address, "", "pool_size = 4"));
    let resident = gateway.process().resident();
    let text = "x".repeat(20_000);
    let write = |body: &mut Writer<'_>| {
        body.string("update", "notes");
        body.string("text", &text);
        body.string("$db", "test");
    };
    let bytes = message(9, Flags::MORE_TO_COME, write).repeat(10);
    let mut wire = Wire::connect(port(&gateway));
    let mut victim = Wire::connect(port(&gateway));
    wire.socket().set_write_timeout(Duration::from_millis(20)).expect("a time limit");
    let (mut worst, mut asks) = (Duration::ZERO, 0);
    let mut ask = |victim: &mut Wire| {
        let asked = Instant::now();
        assert_eq!(victim.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
        worst = worst.max(asked.elapsed());
        asks += 1;
    };
    let begun = Instant::now();
    // Once it blocks, a message is there in part, and the flood waits.
    while wire.send(&bytes).is_ok() {
        ask(&mut victim);
        assert!(begun.elapsed() < Duration::from_secs(30), "the flood is never held back");
    }
    let blocked = Instant::now();
    while blocked.elapsed() < Duration::from_secs(2) {
        ask(&mut victim);
    }
    let grown = gateway.process().resident().saturating_sub(resident);
    assert!(grown < GROWTH_MAX, "{grown} bytes more");
    assert!(worst < Duration::from_millis(800) && asks >= 50, "a victim waited {worst:?}, and asked {asks} times");
    drop(wire);
    drop(victim);
    until_true("what was sent is written", || gateway.metric("weir_requests_in_flight") == 0.0);
}

/// A step of SASL.
fn sasl(body: &mut Writer<'_>, command: &str, payload: &[u8], conversation: i32) {
    body.int32(command, 1);
    body.string("mechanism", "SCRAM-SHA-256");
    body.binary("payload", 0, payload);
    body.int32("conversationId", conversation);
    body.string("$db", "admin");
}

#[test]
fn m16_logins_out_of_order_or_too_long_are_refused() {
    let server = Fake::honest();
    let folder = tempfile::tempdir().expect("a folder");
    let password = secret_file(folder.path(), "client-password", "a long word");
    let user = format!("[listener.mongodb]\n[[listener.user]]\nname = \"app\"\npassword = {{ file = \"{password}\" }}");
    let config = Config { protocol: "mongodb", ..Config::to(&server.address) }.listener(&user);
    let mut gateway = Gateway::start(config);
    let resident = gateway.process().resident();
    let mut wire = Wire::connect(port(&gateway));
    assert_eq!(wire.call(|body| find(body, "notes", 2)).code(), 13, "before the login");
    assert!(wire.call(|body| plain(body, "ping")).is_ok());
    assert_eq!(wire.call(|body| sasl(body, "saslContinue", b"x", 1)).code(), 17, "without a start");
    let first = b"n,,n=app,r=rOprNGfwEbeRWgbNEkqO";
    let begun = wire.call(|body| sasl(body, "saslStart", first, 0));
    assert!(begun.is_ok(), "{begun:?}");
    assert_eq!(wire.call(|body| sasl(body, "saslContinue", b"x", 99)).code(), 17, "another conversation");
    wire.ask(Flags::empty(), |body| sasl(body, "saslContinue", b"x", 1));
    let replies = wire.until_closed().expect("the third failure ends the connection");
    assert_eq!(replies.iter().map(weir_tests::mongodb::wire::Reply::code).collect::<Vec<_>>(), [17]);
    gateway.wait_metric("weir_defensive_closes_total", &[("reason", "mongodb_login_failures")], 1.0);
    let large = message(3, Flags::empty(), |body| sasl(body, "saslStart", &vec![b'x'; 1 << 20], 0));
    let all = gateway.metric("weir_defensive_closes_total");
    let mut wire = Wire::connect(port(&gateway));
    let _ = wire.send(&large);
    wire.until_closed().expect("a payload of a mebibyte ends it");
    gateway.wait_metric("weir_defensive_closes_total", &[], all + 1.0);
    let grown = gateway.process().resident().saturating_sub(resident);
    assert!(grown < GROWTH_MAX, "{grown} bytes more");
    assert_eq!(server.count("find"), 0);
}

#[test]
fn m17_a_body_behind_its_documents_is_found_or_refused() {
    let (mut gateway, server, resident) = scene("");
    let one = document(|body| body.string("text", "x".repeat(1_000)));
    let update = |body: &mut Writer<'_>| {
        body.string("update", "notes");
        body.string("$db", "test");
    };
    let mut wire = Wire::connect(port(&gateway));
    wire.send(&sections(0, &[sequence("updates", &one.repeat(50)), body(update)])).expect("sent");
    assert!(wire.reply().expect("a reply").is_ok());
    assert_eq!(server.count("update"), 1);
    // The gateway would have to hold 20 MB.
    let large = sections(0, &[sequence("updates", &one.repeat(20_000)), body(update)]);
    let mut wire = Wire::connect(port(&gateway));
    let _ = wire.send(&large);
    match wire.reply() {
        Ok(reply) => assert_eq!(reply.code(), 10_334, "{reply:?}"),
        Err(error) => assert_eq!(error, "closed"),
    }
    assert_eq!(server.count("update"), 1);
    drop(wire);
    is_unharmed(&mut gateway, &server, resident);
}

#[test]
fn m18_names_that_no_database_or_collection_has_are_refused() {
    let (mut gateway, server, resident) = scene("");
    let mut wire = Wire::connect(port(&gateway));
    let finds = server.count("find");
    let long = "x".repeat(1 << 20);
    let cases: [(&str, &str); 5] =
        [("notes", ""), ("notes", "a\0b"), ("notes", &long), ("notes", "a.b"), ("a\0b", "test")];
    for (collection, database) in cases {
        let reply = wire.call(|body| {
            body.string("find", collection);
            body.string("$db", database);
        });
        assert_eq!(reply.code(), 73, "{collection:?} in {:?}: {reply:?}", &database[..database.len().min(9)]);
    }
    assert_eq!(server.count("find"), finds);
    is_unharmed(&mut gateway, &server, resident);
}

#[test]
fn m19_a_list_of_a_million_cursors_is_refused() {
    let (mut gateway, server, resident) = scene("");
    // A million has 15.9 MB, which a document may have.
    for count in [1_001_i64, 60_000, 1_000_000] {
        let mut wire = Wire::connect(port(&gateway));
        let reply = wire.call(|body| {
            body.string("killCursors", "notes");
            body.array("cursors", 0..count, |array, name, id| array.int64(name, id));
            body.string("$db", "test");
        });
        assert_eq!(reply.code(), 2, "{count}: {reply:?}");
        assert_eq!(wire.call(|body| find(body, "notes", 2)).batch(), [1, 2], "the connection goes on");
    }
    assert_eq!(server.count("killCursors"), 0);
    is_unharmed(&mut gateway, &server, resident);
}
