//! One client costs another nothing: cases S1 to S8 with MongoDB, and with them S12: counters and `/api/v1/connections`. S9, S10 and S11
//! have files of their own.

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::message::{Flags, Message};
use weir_tests::deadline::{until, until_true};
use weir_tests::gateway::Gateway;
use weir_tests::mongodb::fake::{Act, Asked, Fake, honest};
use weir_tests::mongodb::wire::{Wire, document, find, message};
use weir_tests::mongodb::{FerretDb, Scripted, raw};

use crate::gateway::{before, port};

mod distance;
mod forms;
mod settings;

/// 1 s is what must hold; the rest is for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_millis(2_500);
/// A reply that no output holds whole.
const LARGE: usize = 12 << 20;
/// A reply below `output_high_water`, which is 256 KiB.
const SMALL: usize = 100_000;

/// A request with this size has its reply after [`LATE`].
const SIZE_LATE: i64 = -2;
const LATE: Duration = Duration::from_millis(1_500);

/// A server whose replies to `aggregate` have the size that the request names, come late, or never.
fn sizes_server() -> Fake {
    Fake::start(|asked| match asked.name {
        "aggregate" => match asked.body.get(b"size").ok().flatten().and_then(|size| size.as_integer()) {
            Some(size) if size >= 0 => Act::reply(|body| body.string("text", "x".repeat(size as usize))),
            Some(SIZE_LATE) => {
                std::thread::sleep(LATE);
                Act::reply(|_| {})
            }
            _ => Act::Silence,
        },
        _ => honest(asked),
    })
}

/// Asks for a reply of that size; with -1 it never comes.
fn ask(wire: &mut Wire, size: i64) -> i32 {
    wire.ask(Flags::empty(), |body| {
        body.string("aggregate", "notes");
        body.int64("size", size);
        body.string("$db", "test");
    })
}

pub(super) fn is_served(wire: &mut Wire) {
    let reply = wire.call(|body| find(body, "notes", 2));
    assert_eq!(reply.batch(), [1, 2], "{reply:?}");
}

/// The waits of small requests one after the other for `time`, sorted.
fn waits(wire: &mut Wire, time: Duration) -> Vec<Duration> {
    let (begun, mut waits) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        let sent = Instant::now();
        is_served(wire);
        waits.push(sent.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
    waits.sort();
    waits
}

fn percentile(waits: &[Duration], part: usize) -> Duration {
    waits[(waits.len() - 1) * part / 100]
}

/// The median and the 99th percentile stay near those of a quiet time.
fn is_unharmed(what: &str, with: &[Duration], quiet: &[Duration]) {
    for part in [50, 99] {
        let (with, quiet) = (percentile(with, part), percentile(quiet, part));
        let limit = (quiet * 5).max(Duration::from_millis(60));
        assert!(with <= limit, "{what}: p{part} is {with:?}, quiet {quiet:?}");
    }
}

/// The connections that the gateway shows at its listener.
fn shown(gateway: &Gateway) -> usize {
    let connections = gateway.admin.get("/api/v1/connections").json();
    connections["connections"].as_array().unwrap_or_else(|| panic!("a list: {connections}")).len()
}

#[test]
fn s1_a_client_that_reads_slowly_costs_another_neither_time_nor_memory() {
    let server = sizes_server();
    let mut gateway = Gateway::start(before(&server.address, "", "pool_size = 4"));
    let mut victim = Wire::connect(port(&gateway));
    let quiet = waits(&mut victim, Duration::from_secs(1));
    let resident = gateway.process().resident();
    for rate in [0, 1_000_000_usize] {
        let mut slow = Wire::connect(port(&gateway));
        ask(&mut slow, LARGE as i64);
        let with = std::thread::scope(|scope| {
            let socket = slow.socket().duplicate();
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
        is_unharmed(&format!("{rate} B/s"), &with, &quiet);
        let grown = gateway.process().resident().saturating_sub(resident);
        assert!(grown < 24 << 20, "{grown} bytes more at {rate} B/s");
        assert_eq!((shown(&gateway), gateway.metric("weir_connections_open")), (2, 2.0));
        assert_eq!(gateway.metric("weir_requests_in_flight"), 1.0, "the slow client alone");
        slow.leave(false);
        until_true("its request is over", || gateway.metric("weir_requests_in_flight") == 0.0);
    }
    drop(victim);
    gateway.finish();
}

/// A reply that fits into the output of its client is taken from the server at once, read or not.
#[test]
fn s2_small_replies_that_are_not_read_hold_no_server() {
    let server = sizes_server();
    let gateway = Gateway::start(before(&server.address, "", "pool_size = 2"));
    let mut unread: Vec<Wire> = (0..100).map(|_| Wire::connect(port(&gateway))).collect();
    for client in &mut unread {
        ask(client, SMALL as i64);
    }
    until_true("all were asked", || server.count("aggregate") == 100);
    until_true("no server is held", || gateway.metric("weir_requests_in_flight") == 0.0);
    let mut victim = Wire::connect(port(&gateway));
    let begun = Instant::now();
    is_served(&mut victim);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    for client in &mut unread {
        assert_eq!(client.reply().expect("a reply").text(&["text"]).len(), SMALL);
    }
    drop((unread, victim));
    gateway.finish();
}

/// A larger one for which the byte budget has no room holds its server until its client reads or leaves: as many as the pool has. Others
/// are refused in their time.
#[test]
fn s2_large_replies_that_are_not_read_hold_their_servers_and_nothing_else() {
    let server = sizes_server();
    let config = before(&server.address, "queue_wait_timeout = \"500ms\"", "pool_size = 4");
    let mut gateway = Gateway::start(config.tables("[limits]\nbuffered_bytes = \"8MiB\""));
    let mut victim = Wire::connect(port(&gateway));
    let quiet = waits(&mut victim, Duration::from_secs(1));
    let resident = gateway.process().resident();
    let begin = || {
        let mut client = Wire::connect(port(&gateway));
        ask(&mut client, LARGE as i64);
        client
    };
    let mut unread: Vec<Wire> = (0..3).map(|_| begin()).collect();
    until_true("three run", || gateway.metric("weir_requests_in_flight") == 3.0);
    is_unharmed("three unread", &waits(&mut victim, Duration::from_secs(1)), &quiet);
    unread.push(begin());
    until_true("four run", || gateway.metric("weir_requests_in_flight") == 4.0);
    let refused = victim.call(|body| find(body, "notes", 2));
    assert_eq!(refused.code(), 462, "the pool is theirs: {refused:?}");
    assert_eq!((shown(&gateway), gateway.metric("weir_requests_in_flight")), (5, 4.0));
    let grown = gateway.process().resident().saturating_sub(resident);
    assert!(grown < 24 << 20, "{grown} bytes more");
    unread.pop().expect("one of them").leave(true);
    until_true("the victim is served", || victim.call(|body| find(body, "notes", 2)).batch() == [1, 2]);
    unread.into_iter().for_each(|client| client.leave(false));
    drop(victim);
    gateway.finish();
}

/// Where the byte budget has room, the rest of a reply is taken for a client that waits for the server, and the slow one reads it later.
#[test]
fn s2_a_large_reply_that_is_not_read_gives_its_server_to_a_client_that_waits() {
    let server = sizes_server();
    let gateway = Gateway::start(before(&server.address, "queue_wait_timeout = \"5s\"", "pool_size = 1"));
    let mut slow = Wire::connect(port(&gateway));
    let id = ask(&mut slow, LARGE as i64);
    until_true("it runs", || gateway.metric("weir_requests_in_flight") == 1.0);
    let mut victim = Wire::connect(port(&gateway));
    let begun = Instant::now();
    is_served(&mut victim);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    until_true("the rest is charged", || gateway.metric("weir_buffered_bytes") >= (LARGE / 2) as f64);
    let reply = slow.reply().expect("a whole reply");
    assert_eq!((reply.text(&["text"]).len(), reply.response_to), (LARGE, id));
    drop((slow, victim));
    gateway.finish();
}

/// A request of that many bytes, all of them in its body.
fn request(bytes: usize) -> Vec<u8> {
    let write = |body: &mut Writer<'_>, text: &str| {
        body.string("update", "notes");
        body.string("text", text);
        body.string("$db", "test");
    };
    let frame = message(1, Flags::empty(), |body| write(body, "")).len();
    message(1, Flags::empty(), |body| write(body, &"x".repeat(bytes - frame)))
}

/// The same with most of them in a document beside its body: a long one passes in pieces.
fn request_beside(bytes: usize) -> Vec<u8> {
    let whole = |text: &str| {
        let head = raw::body(|body| {
            body.string("update", "notes");
            body.string("$db", "test");
        });
        raw::sections(0, &[head, raw::sequence("updates", &document(|one| one.string("text", text)))])
    };
    whole(&"x".repeat(bytes - whole("").len()))
}

#[test]
fn s3_a_slow_upload_holds_no_server_that_others_need() {
    let server = Fake::honest();
    let gateway = Gateway::start(before(&server.address, "message_timeout = \"3s\"", "pool_size = 1"));
    // These are read whole before they need a server: all but long ones with documents beside their body.
    let wholes = [200, 60_000, 900_000, 4 << 20].map(request).into_iter().chain([60_000, 900_000].map(request_beside));
    for whole in wholes {
        let bytes = whole.len();
        let mut slow = Wire::connect(port(&gateway));
        slow.send(&whole[..bytes / 2]).expect("sent");
        std::thread::sleep(Duration::from_millis(100));
        let mut victim = Wire::connect(port(&gateway));
        let begun = Instant::now();
        is_served(&mut victim);
        assert!(begun.elapsed() < Duration::from_secs(1), "beside {bytes}: {:?}", begun.elapsed());
        slow.send(&whole[bytes / 2..]).expect("sent");
        assert!(slow.reply().expect("a reply").is_ok());
    }
    // A longer one of these passes in pieces: the server is held until it is whole, or its time is over.
    let whole = request_beside(4 << 20);
    let mut slow = Wire::connect(port(&gateway));
    slow.send(&whole[..2 << 20]).expect("sent");
    std::thread::sleep(Duration::from_millis(200));
    let mut victim = Wire::connect(port(&gateway));
    is_served(&mut victim);
    drop((slow, victim));
    gateway.finish();
}

#[test]
fn s4_a_client_that_leaves_is_noticed() {
    let server = sizes_server();
    let gateway = Gateway::start(before(&server.address, "request_timeout = \"4s\"", "pool_size = 8"));
    for with_reset in [false, true] {
        // Before the reply, within it, and idle.
        for size in [Some(-1), Some(LARGE as i64), None] {
            let mut lost = Wire::connect(port(&gateway));
            if let Some(size) = size {
                ask(&mut lost, size);
                until_true("the request runs", || gateway.metric("weir_requests_in_flight") == 1.0);
            }
            lost.leave(with_reset);
            let left = Instant::now();
            until_true("it is not shown", || shown(&gateway) == 0);
            assert!(left.elapsed() < NOTICED_WITHIN, "{size:?}: {:?}", left.elapsed());
            until_true("nothing is held", || gateway.metric("weir_requests_in_flight") == 0.0);
        }
    }
    assert_eq!(gateway.metric("weir_defensive_closes_total"), 0.0, "nobody is blamed");
    let mut next = Wire::connect(port(&gateway));
    is_served(&mut next);
    drop(next);
    gateway.finish();
}

/// Clients that send a write, leave without its reply, come back and write again. Returns how many of the first writes reached the server
/// behind the second.
fn late_writes(port: u16, arrived: &Mutex<Vec<i64>>) -> usize {
    arrived.lock().expect("the numbers").clear();
    let update = |body: &mut Writer<'_>, number: i64| {
        body.string("update", "notes");
        body.int64("number", number);
        body.string("$db", "test");
    };
    for round in 0..400 {
        let mut client = Wire::connect(port);
        client.ask(Flags::empty(), |body| update(body, round * 2));
        client.leave(round % 2 == 1);
        let mut again = Wire::connect(port);
        assert!(again.call(|body| update(body, round * 2 + 1)).is_ok());
        again.leave(false);
    }
    // Time for what would come late.
    std::thread::sleep(Duration::from_millis(200));
    let arrived = arrived.lock().expect("the numbers").clone();
    arrived.windows(2).filter(|pair| pair[0] > pair[1]).count()
}

/// Directly the server reads two connections, and may read the later one first. Behind the gateway these are two connections as well, so it
/// happens too, and not always less often: the case bounds how often.
#[test]
fn s5_a_client_that_comes_back_at_once_is_not_overtaken_by_itself_more_than_directly() {
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&arrived);
    let server = Fake::start(move |asked: &Asked<'_>| {
        if let Some(number) = asked.body.get(b"number").ok().flatten().and_then(|number| number.as_integer()) {
            noted.lock().expect("the numbers").push(number);
        }
        honest(asked)
    });
    let directly = late_writes(server.address.tcp().port(), &arrived);
    let gateway = Gateway::start(before(&server.address, "", "pool_size = 4").workers(2));
    let through = late_writes(port(&gateway), &arrived);
    assert!(through <= 2 * directly + 40, "{through} of 400 through the gateway, {directly} directly");
    gateway.finish();
}

#[test]
fn s6_a_restart_of_the_server_costs_idle_clients_two_errors_at_most() {
    let mut server = FerretDb::start();
    let gateway = Gateway::start(before(&server.address, "", "heartbeat_interval = \"500ms\""));
    let mut clients: Vec<Wire> = (0..10).map(|_| Wire::connect(port(&gateway))).collect();
    let ping = |wire: &mut Wire| {
        wire.call(|body| {
            body.string("count", "notes");
            body.string("$db", "test");
        })
    };
    clients.iter_mut().for_each(|client| assert!(ping(client).is_ok()));
    server.kill();
    server.start_again();
    let mut errors = Vec::new();
    for client in &mut clients {
        until("a client is served", Duration::from_secs(20), || {
            let reply = ping(client);
            if !reply.is_ok() {
                errors.push(format!("{reply:?}"));
            }
            reply.is_ok().then_some(())
        });
    }
    assert!(errors.len() <= 2, "{errors:#?}");
    assert_eq!(gateway.metric("weir_connections_open"), 10.0);
    drop(clients);
    gateway.finish();
}

/// The members of a set restart one after another. The first read behind each restart may reach a primary of before, which says so.
#[test]
fn s6_members_that_restart_one_after_another_cost_an_error_each_at_most() {
    let mut members = Scripted::set(3);
    let config = before(&members[0].address, "", "replica_set = \"rs\"\nheartbeat_interval = \"500ms\"");
    let gateway = Gateway::start(config);
    let mut clients: Vec<Wire> = (0..6).map(|_| Wire::connect(port(&gateway))).collect();
    let mut errors = Vec::new();
    for (round, restarted) in [0, 1, 2].into_iter().enumerate() {
        // Another one is the primary before the primary goes.
        Scripted::elect(&members, Some((restarted + 1) % 3), round as i64 + 2);
        members[restarted].kill();
        members[restarted].start_again();
        Scripted::elect(&members, Some((restarted + 1) % 3), round as i64 + 2);
        for client in &mut clients {
            until("a client is served", Duration::from_secs(20), || {
                let reply = client.call(|body| find(body, "notes", 2));
                if !reply.is_ok() {
                    errors.push(format!("{reply:?}"));
                }
                reply.is_ok().then_some(())
            });
        }
    }
    assert!(errors.len() <= members.len(), "{errors:#?}");
    drop(clients);
    gateway.finish();
}

/// The sizes around which the path of a message may change.
fn sizes() -> impl Iterator<Item = usize> {
    let around = |kib: usize| [kib * 1024 - 1, kib * 1024, kib * 1024 + 1];
    [4, 16, 64, 128, 256, 1024, 4096].into_iter().flat_map(around)
}

#[test]
fn s7_messages_of_all_sizes_keep_their_bytes_and_their_order() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let server = Fake::start(move |asked| match asked.name {
        "update" => {
            noted.lock().expect("the messages").push(asked.bytes.to_vec());
            let read = Message::read(asked.bytes).expect("a message that was read before");
            let beside = read.sequences().flat_map(|sequence| sequence.documents()).flatten().next();
            let text = beside.unwrap_or(asked.body).get(b"text").ok().flatten().and_then(|text| text.as_string());
            Act::reply(|body| body.string("text", text.unwrap_or_default()))
        }
        _ => honest(asked),
    });
    let gateway = Gateway::start(before(&server.address, "", "pool_size = 2"));
    let mut wire = Wire::connect(port(&gateway));
    for whole in sizes().flat_map(|size| [request(size), request_beside(size)]) {
        let size = whole.len();
        let small = message(2, Flags::empty(), |body| find(body, "notes", 2));
        wire.send(&[small.clone(), whole.clone(), small].concat()).expect("sent");
        assert_eq!(wire.reply().expect("a reply").batch(), [1, 2], "{size}");
        let reply = wire.reply().expect("a reply");
        let text = reply.text(&["text"]);
        assert!(text.bytes().all(|byte| byte == b'x') && size - text.len() < 100, "{size}: {} bytes", text.len());
        assert_eq!(wire.reply().expect("a reply").batch(), [1, 2], "{size}");
        let arrived = seen.lock().expect("the messages").pop().expect("a message");
        assert!(arrived == whole, "{size}: other bytes arrived");
    }
    drop(wire);
    gateway.finish();
}

#[test]
fn s8_a_refusal_within_a_sequence_leaves_no_state() {
    let server = sizes_server();
    let gateway = Gateway::start(before(&server.address, "queue_wait_timeout = \"300ms\"", "pool_size = 1"));
    let start = |body: &mut Writer<'_>, number: i64, is_first: bool| {
        body.string("insert", "notes");
        body.document("lsid", |lsid| lsid.binary("id", 4, &[3; 16]));
        body.int64("txnNumber", number);
        if is_first {
            body.bool("startTransaction", true);
        }
        body.bool("autocommit", false);
        body.string("$db", "test");
    };
    let mut refused = Wire::connect(port(&gateway));
    for number in 1..4 {
        let mut holder = Wire::connect(port(&gateway));
        ask(&mut holder, SIZE_LATE);
        until_true("the server is held", || gateway.metric("weir_requests_in_flight") == 1.0);
        // Each request of a pipeline is refused in its place.
        let first = message(10, Flags::empty(), |body| start(body, number, true));
        let second = message(11, Flags::empty(), |body| find(body, "notes", 2));
        refused.send(&[first, second].concat()).expect("sent");
        for id in [10, 11] {
            let reply = refused.reply().expect("a reply");
            assert_eq!((reply.code(), reply.response_to), (462, id), "{reply:?}");
            let labels = reply.labels();
            for label in ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"] {
                assert!(labels.iter().any(|one| one == label), "{label} is not in {labels:?}");
            }
        }
        assert!(holder.reply().expect("a reply").is_ok());
        drop(holder);
        // Once more, as a driver does.
        assert!(refused.call(|body| start(body, number, true)).is_ok());
        assert!(refused.call(|body| start(body, number, false)).is_ok());
    }
    assert!(gateway.metric("weir_shed_total") >= 6.0);
    until_true("one client is left", || gateway.metric("weir_connections_open") == 1.0);
    assert_eq!(shown(&gateway), 1);
    drop(refused);
    gateway.finish();
}
