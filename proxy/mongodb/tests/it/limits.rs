//! Bounds: waits, slow readers, drains.

use std::{
    io::Write as _,
    sync::{Mutex, mpsc},
    time::{Duration, Instant},
};

use weir_listener::Drain;
use weir_mongodb_codec::{
    bson::{self, Document, Writer},
    compressed::{self, Compressor},
    message::{self, Flags, Ids, Message},
};

use crate::support::{
    Client, Gateway, MARKS, Setup, command, greeted, inner, integer, is_ok,
    server::{Act, Server},
    until,
};

#[test]
fn one_that_waits_too_long_for_a_server_is_told_to_come_back() {
    let server = Server::standalone(|seen| if seen.name == "find" { Act::Silence } else { Act::ok() });
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    setup.listener.queue_wait_timeout = Duration::from_millis(100);
    let gateway = Gateway::start(setup);
    let mut first = greeted(&gateway);
    let id = first.next_id();
    first.send(&command(id, Flags::empty(), |body| {
        body.string("find", "orders");
        body.string("$db", "shop");
    }));
    until("the first has the server", || server.count("find") == 1);
    let mut second = greeted(&gateway);
    let reply = second.find();
    assert_eq!(integer(&reply, "code"), Some(462));
    let text = String::from_utf8_lossy(&reply).into_owned();
    assert!(text.contains("SystemOverloadedError") && text.contains("RetryableError"), "{text}");
    let shed = [("listener", "test"), ("reason", "upstream_queue_timeout")];
    assert_eq!(gateway.counter("weir_shed_total", &shed), 1);
}

#[test]
fn m12_slow_readers_of_long_replies_stay_within_the_budget() {
    const CLIENTS: usize = 40;
    let mut reply = Vec::new();
    message::write(&mut reply, Ids { request: 1, response_to: 0 }, Flags::empty(), |body| {
        body.string("text", "z".repeat(16 << 20));
        body.double("ok", 1.0);
    });
    let server = Server::standalone(move |_| Act::Raw(reply.clone()));
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| greeted(&gateway)).collect();
    for client in &mut clients {
        let id = client.next_id();
        client.send(&command(id, Flags::empty(), |body| {
            body.string("find", "orders");
            body.string("$db", "shop");
        }));
    }
    until("all replies have begun", || server.count("find") == CLIENTS);
    std::thread::sleep(Duration::from_millis(300));
    // At its mark an output may have one piece more.
    let most = CLIENTS * (MARKS.high + (64 << 10));
    let (held, _) = gateway.held();
    assert!(held > 0 && held <= most as u64, "{held} bytes of at most {most}");
    for client in &mut clients {
        assert_eq!(client.message().expect("the whole reply").len() >> 20, 16);
    }
}

#[test]
fn m7_monitors_that_wait_hold_no_server() {
    let server = Server::standalone(|_| Act::ok());
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    let gateway = Gateway::start(setup);
    let mut monitors: Vec<_> = (0..50).map(|_| gateway.client()).collect();
    for monitor in &mut monitors {
        let first = monitor.hello(false);
        let topology = Message::read(&first).unwrap().body.get(b"topologyVersion").unwrap().unwrap();
        let topology = topology.as_document().unwrap().unwrap();
        let process = topology.get(b"processId").unwrap().unwrap().as_object_id().unwrap();
        let counter = topology.get(b"counter").unwrap().unwrap().as_integer().unwrap();
        let id = monitor.next_id();
        monitor.send(&command(id, Flags::EXHAUST_ALLOWED, |body: &mut Writer<'_>| {
            body.int32("hello", 1);
            body.document("topologyVersion", |version| {
                version.object_id("processId", process);
                version.int64("counter", counter);
            });
            body.int64("maxAwaitTimeMS", 60_000);
            body.string("$db", "admin");
        }));
    }
    assert!(is_ok(&greeted(&gateway).find()), "the one connection is free");
    // A change reaches all of them at once.
    let begun = Instant::now();
    server.change(|says| says.wire = 17);
    for monitor in &mut monitors {
        let news = monitor.message().expect("a reply");
        assert_eq!(integer(&news, "maxWireVersion"), Some(17));
        assert!(Message::read(&news).unwrap().flags.contains(Flags::MORE_TO_COME));
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn m7_a_monitor_that_reads_nothing_gets_no_more_of_its_stream() {
    const HELLOS: usize = 260;
    let server = Server::standalone(|_| Act::ok());
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut monitor = gateway.client();
    let first = monitor.hello(false);
    let version = |name| inner(&first, "topologyVersion", name).expect("a version");
    let (process, counter) = (version("processId").as_object_id(), version("counter").as_integer());
    let hello = |id: usize, flags: Flags| {
        command(id as i32, flags, |body| {
            body.int32("hello", 1);
            if flags.contains(Flags::EXHAUST_ALLOWED) {
                body.document("topologyVersion", |version| {
                    version.object_id("processId", process.expect("an id"));
                    version.int64("counter", counter.expect("a number"));
                });
                body.int64("maxAwaitTimeMS", 1);
            }
            body.string("$db", "admin");
        })
    };
    // All of it is read at once.
    let mut all: Vec<u8> = (1..=HELLOS).flat_map(|id| hello(id, Flags::empty())).collect();
    all.extend(hello(HELLOS + 1, Flags::EXHAUST_ALLOWED));
    assert!(all.len() < 16 << 10, "{} bytes", all.len());
    monitor.send(&all);
    until("the replies are there", || gateway.held().0 > MARKS.low as u64);
    std::thread::sleep(Duration::from_millis(100));
    let held = gateway.held().0;
    std::thread::sleep(Duration::from_millis(1_300));
    assert_eq!(gateway.held().0, held, "two more replies were due");
    let has_more = |reply: &[u8]| Message::read(reply).unwrap().flags.contains(Flags::MORE_TO_COME);
    for _ in 0..HELLOS {
        assert!(!has_more(&monitor.message().expect("a reply")));
    }
    for _ in 0..2 {
        assert!(has_more(&monitor.message().expect("the stream goes on")));
    }
}

#[test]
fn a_drain_ends_idle_clients_and_lets_an_exchange_end() {
    let server = Server::standalone(|seen| {
        if seen.name == "find" {
            std::thread::sleep(Duration::from_millis(200));
        }
        Act::ok()
    });
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let (mut idle, mut busy) = (greeted(&gateway), greeted(&gateway));
    let id = busy.next_id();
    busy.send(&command(id, Flags::empty(), |body| {
        body.string("find", "orders");
        body.string("$db", "shop");
    }));
    until("the exchange has begun", || server.count("find") == 1);
    gateway.drain(Drain::Gentle);
    assert!(idle.message().is_none());
    assert!(is_ok(&busy.message().expect("its reply")));
    assert!(busy.message().is_none(), "then it ends as well");
    until("none is left", || gateway.held().1 == 0);
}

#[test]
fn m13_a_message_that_comes_drop_by_drop_ends_at_its_time() {
    let server = Server::standalone(|_| Act::ok());
    let mut setup = Setup::new(&[server.address]);
    setup.listener.message_timeout = Duration::from_millis(150);
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    client.send(&[60, 0, 0]);
    assert!(client.message().is_none());
    let labels = [("listener", "test"), ("reason", "mongodb_message_timeout"), ("culprit", "client")];
    assert_eq!(gateway.counter("weir_violations_total", &labels), 1);
}

#[test]
fn m1_impossible_lengths_end_the_connection() {
    let server = Server::standalone(|_| Act::ok());
    let gateway = Gateway::start(Setup::new(&[server.address]));
    for length in [0_i32, 15, -1, 48_000_001, i32::MAX] {
        let mut client = gateway.client();
        client.send(&length.to_le_bytes());
        assert!(client.message().is_none(), "{length}");
    }
    let mut http = gateway.client();
    http.send(b"GET / HTTP/1.1\r\n\r\n");
    assert!(http.message().is_none());
    until("none is left", || gateway.held() == (0, 0));
}

#[test]
fn m12_what_clients_send_is_within_the_budget() {
    let server = Server::standalone(|_| Act::ok());
    let mut setup = Setup::new(&[server.address]);
    setup.listener.compressors = vec![Compressor::Snappy];
    setup.buffered_bytes = 2 << 20;
    let gateway = Gateway::start(setup);
    let head = |op_code: i32, rest: &[u8]| {
        let numbers: Vec<u8> = [16 << 20, 1, 0, op_code].into_iter().flat_map(i32::to_le_bytes).collect();
        [&numbers, rest].concat()
    };
    // A compressed message, and a plain one whose body is its first section.
    let body = [&[0; 4][..], &[0], &(15_i32 << 20).to_le_bytes()].concat();
    for (shed, head) in [head(2012, &[]), head(2013, &body)].into_iter().enumerate() {
        let mut client = greeted(&gateway);
        client.send(&head);
        // The gateway may close before all of it is there.
        let is_taken = client.stream.write_all(&vec![1; 8 << 20]).is_ok();
        assert!(!is_taken && client.message().is_none(), "the budget has 2 MiB");
        let labels = [("listener", "test"), ("reason", "buffered_bytes")];
        assert_eq!(gateway.counter("weir_shed_total", &labels), shed as u64 + 1);
        until("nothing of it is left", || gateway.held() == (0, 0));
    }
    assert!(is_ok(&greeted(&gateway).find()));
}

#[test]
fn s4_the_operation_of_a_client_that_vanishes_gives_its_place_up() {
    let server = Server::standalone(|seen| if seen.name == "find" { Act::Silence } else { Act::ok() });
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    let gateway = Gateway::start(setup);
    let mut first = greeted(&gateway);
    let id = first.next_id();
    first.send(&command(id, Flags::empty(), |body| {
        body.string("find", "orders");
        body.string("$db", "shop");
    }));
    until("the first has the server", || server.count("find") == 1);
    drop(first);
    let begun = Instant::now();
    let reply = greeted(&gateway).ask(|body| {
        body.string("count", "orders");
        body.string("$db", "shop");
    });
    assert!(is_ok(&reply) && begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[test]
fn a_large_compressed_reply_that_nobody_waits_for_is_not_read() {
    let mut reply = Vec::new();
    // Random bytes stay as long as they are.
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(12 << 20)
    .collect();
    message::write(&mut reply, Ids { request: 1, response_to: 0 }, Flags::empty(), |body| {
        body.binary("noise", 0, &noise);
        body.double("ok", 1.0);
    });
    let (sent, sending) = mpsc::channel::<()>();
    let sending = Mutex::new(sending);
    let server = Server::standalone(move |seen| match &*seen.name {
        "find" => {
            // The client is gone when the reply begins.
            let _ = sending.lock().unwrap().recv_timeout(Duration::from_secs(5));
            Act::Raw(reply.clone())
        }
        _ => Act::ok(),
    });
    server.change(|says| says.compressors = vec![Compressor::Snappy]);
    let mut setup = Setup::new(&[server.address]);
    setup.listener.compressors = vec![Compressor::Snappy];
    setup.upstream.compressors = vec![Compressor::Snappy];
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    let id = client.next_id();
    let plain = command(id, Flags::empty(), |body| {
        body.string("find", "orders");
        body.string("$db", "shop");
    });
    let mut packed = Vec::new();
    compressed::write(&mut packed, &plain, Compressor::Snappy).expect("a message");
    client.send(&packed);
    until("the find has come", || server.count("find") == 1);
    drop(client);
    until("the gateway knows that", || gateway.held().1 == 0);
    sent.send(()).expect("the server waits");
    until("its connection is closed before the end of the reply", || server.broken() == 1);
}

#[test]
fn m13_the_rest_of_a_refused_message_has_its_time_as_well() {
    let server = Server::standalone(|_| Act::ok());
    let mut setup = Setup::new(&[server.address]);
    setup.listener.message_timeout = Duration::from_millis(150);
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    // The body is whole, and a second section of 8 MiB behind it does not come.
    let mut request = command(9, Flags::empty(), |body| {
        body.int64("getMore", 4_712);
        body.string("collection", "orders");
        body.string("$db", "shop");
    });
    let claimed = request.len() as i32 + (8 << 20);
    request[..4].copy_from_slice(&claimed.to_le_bytes());
    client.send(&request);
    assert_eq!(integer(&client.message().expect("a refusal"), "code"), Some(43));
    assert!(client.message().is_none());
    let labels = [("listener", "test"), ("reason", "mongodb_message_timeout"), ("culprit", "client")];
    assert_eq!(gateway.counter("weir_violations_total", &labels), 1);
}

#[test]
fn a_server_that_reads_no_more_is_not_its_clients_fault() {
    let server = Server::standalone(|_| Act::ok());
    let mut setup = Setup::new(&[server.address]);
    setup.listener.message_timeout = Duration::from_millis(500);
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    assert!(is_ok(&client.find()));
    server.be_deaf(true);
    let mut document = Vec::new();
    bson::document(&mut document, |body| body.string("text", "x".repeat(1 << 20)));
    let documents = std::iter::repeat_n(Document::read(&document).unwrap(), 40);
    let mut request = Vec::new();
    let body = |body: &mut Writer<'_>| {
        body.string("insert", "orders");
        body.string("$db", "shop");
    };
    message::write_with_sequence(
        &mut request,
        Ids { request: 9, response_to: 0 },
        Flags::empty(),
        body,
        "documents",
        documents,
    );
    client.send(&request);
    assert_eq!(integer(&client.message().expect("an error"), "code"), Some(6));
    let labels = [("listener", "test"), ("reason", "mongodb_message_timeout"), ("culprit", "client")];
    assert_eq!(gateway.counter("weir_violations_total", &labels), 0);
    server.be_deaf(false);
    assert!(is_ok(&client.find()), "the connection goes on");
}

#[test]
fn an_idle_client_keeps_nothing_of_a_request_that_waited() {
    let server = Server::standalone(|_| Act::ok());
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    // The first request waits for the first connection.
    let reply = client.ask(|body| {
        body.string("insert", "orders");
        body.string("comment", "x".repeat(900_000));
        body.string("$db", "shop");
    });
    assert!(is_ok(&reply));
    until("nothing is charged", || gateway.held() == (0, 1));
}

#[test]
fn s12_refused_commands_are_in_the_access_log() {
    let server = Server::standalone(|seen| if seen.name == "find" { Act::Silence } else { Act::ok() });
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    setup.listener.queue_wait_timeout = Duration::from_millis(100);
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    let ask = |client: &mut Client, name: &'static str| {
        integer(
            &client.ask(|body| {
                body.string(name, "orders");
                body.string("$db", "shop");
            }),
            "code",
        )
    };
    assert_eq!(ask(&mut client, "shutdown"), Some(13), "a rule");
    assert_eq!(ask(&mut client, "count"), None);
    let mut busy = greeted(&gateway);
    let id = busy.next_id();
    busy.send(&command(id, Flags::empty(), |body| {
        body.string("find", "orders");
        body.string("$db", "shop");
    }));
    until("the one connection is busy", || server.count("find") == 1);
    assert_eq!(ask(&mut client, "distinct"), Some(462));
    let lines = gateway.access_lines();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, words) in lines.iter().zip([["shutdown", "refused"], ["count", "ok"], ["distinct", "no_server"]]) {
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
}

#[test]
fn a_server_that_answers_nothing_behind_a_write_without_a_reply_keeps_nobody() {
    let server = Server::standalone(|seen| match &*seen.name {
        "insert" | "ping" => Act::Silence,
        _ => Act::ok(),
    });
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    setup.listener.settle_timeout = Duration::from_millis(200);
    let gateway = Gateway::start(setup);
    let mut writer = greeted(&gateway);
    let id = writer.next_id();
    writer.send(&command(id, Flags::MORE_TO_COME, |body| {
        body.string("insert", "orders");
        body.string("$db", "shop");
    }));
    let begun = Instant::now();
    assert!(writer.message().is_none(), "its next request would overtake the write");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(is_ok(&greeted(&gateway).find()), "the place in the pool is free");
}

#[test]
fn m12_the_server_of_a_slow_reader_is_free_where_the_budget_has_room_for_its_reply() {
    for (buffered_bytes, is_free) in [(256 << 20, true), (3 << 20, false)] {
        let mut reply = Vec::new();
        message::write(&mut reply, Ids { request: 1, response_to: 0 }, Flags::empty(), |body| {
            body.string("text", "z".repeat(4 << 20));
            body.double("ok", 1.0);
        });
        let server = Server::standalone(move |seen| match &*seen.name {
            "find" => Act::Raw(reply.clone()),
            _ => Act::ok(),
        });
        let mut setup = Setup::new(&[server.address]);
        setup.upstream.pool.pool_size = 1;
        setup.listener.queue_wait_timeout = Duration::from_secs(3);
        setup.buffered_bytes = buffered_bytes;
        let gateway = Gateway::start(setup);
        let mut slow = greeted(&gateway);
        let id = slow.next_id();
        slow.send(&command(id, Flags::empty(), |body| {
            body.string("find", "orders");
            body.string("$db", "shop");
        }));
        until("the reply has begun", || server.count("find") == 1);
        let other = greeted(&gateway).ask(|body| {
            body.string("count", "orders");
            body.string("$db", "shop");
        });
        assert_eq!(is_ok(&other), is_free, "with {buffered_bytes} bytes");
        assert!(gateway.held().0 <= buffered_bytes);
        assert_eq!(slow.message().expect("the whole reply").len() >> 20, 4);
        until("nothing is charged", || gateway.held().0 == 0);
    }
}

/// The next request of a client that reads slowly waits for it, even if its bytes are here.
#[test]
fn m12_requests_behind_a_reply_that_waits_cost_no_server() {
    let mut reply = Vec::new();
    message::write(&mut reply, Ids { request: 1, response_to: 0 }, Flags::empty(), |body| {
        body.string("text", "z".repeat(4 << 20));
        body.double("ok", 1.0);
    });
    let server = Server::standalone(move |seen| match &*seen.name {
        "find" => Act::Raw(reply.clone()),
        _ => Act::ok(),
    });
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    let gateway = Gateway::start(setup);
    let mut slow = greeted(&gateway);
    let find = |id| {
        command(id, Flags::empty(), |body| {
            body.string("find", "orders");
            body.string("$db", "shop");
        })
    };
    slow.send(&(100..105).flat_map(find).collect::<Vec<u8>>());
    until("the first reply has begun", || server.count("find") == 1);
    let mut other = greeted(&gateway);
    for _ in 0..5 {
        let reply = other.ask(|body| {
            body.string("count", "orders");
            body.string("$db", "shop");
        });
        assert!(is_ok(&reply));
    }
    assert_eq!(server.count("find"), 1, "the others wait");
    for id in 100..105 {
        let reply = slow.message().expect("a reply");
        assert_eq!(Message::read(&reply).unwrap().header.response_to, id);
    }
}
