//! Requests and their replies, also when a side leaves.

use std::{
    net::Shutdown,
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use weir_mongodb_codec::{
    bson::{self, Document},
    compressed::{self, Compressor},
    message::{self, Flags, Ids, Message},
};

use crate::support::{
    Client, Gateway, Setup, command, greeted, inner, integer, is_ok,
    server::{Act, Says, Server},
    until,
};

const LSID: [u8; 16] = [7; 16];

#[test]
fn a_find_and_its_reply_pass_as_they_are() {
    let server = Server::standalone(|_| Act::batch("firstBatch", 0));
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    let request = command(77, Flags::empty(), |body| {
        body.string("find", "orders");
        body.string("comment", "of a client");
        body.string("$db", "shop");
    });
    client.send(&request);
    let reply = client.message().expect("a reply");
    assert_eq!(Message::read(&reply).unwrap().header.response_to, 77);
    assert_eq!(inner(&reply, "cursor", "ns").unwrap().as_string(), Some(&b"shop.orders"[..]));
    assert_eq!(server.seen()[0].bytes, request, "not a byte was changed");
    let labels = [("listener", "test"), ("database", "shop"), ("class", "read")];
    assert_eq!(gateway.counter("weir_mongodb_commands_total", &labels), 1);
}

#[test]
fn hello_is_the_gateways_own_and_shows_nothing_of_a_set() {
    let says = Says { set_name: Some("rs0"), hosts: vec!["secret.test:1".to_owned()], ..Says::default() };
    let server = Server::new(says, |_| Act::ok());
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let reply = gateway.client().hello(false);
    let body = Message::read(&reply).unwrap().body;
    assert_eq!(body.get(b"msg").unwrap().unwrap().as_string(), Some(&b"isdbgrid"[..]));
    assert_eq!(integer(&reply, "maxWireVersion"), Some(21), "that of the server");
    for hidden in ["setName", "hosts", "me", "primary", "serviceId"] {
        assert!(body.get(hidden.as_bytes()).unwrap().is_none(), "{hidden}");
    }
    assert!(!reply.windows(6).any(|window| window == b"secret"));
    let balanced = gateway.client().hello(true);
    assert!(Message::read(&balanced).unwrap().body.get(b"serviceId").unwrap().is_some());
}

#[test]
fn requests_that_come_together_are_answered_in_order() {
    let server = Server::standalone(|_| Act::batch("firstBatch", 0));
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    let find = |id| {
        command(id, Flags::empty(), |body| {
            body.string("find", "orders");
            body.string("$db", "shop");
        })
    };
    let many: Vec<u8> = (100..150).flat_map(find).collect();
    client.send(&many);
    for id in 100..150 {
        let reply = client.message().expect("a reply");
        assert_eq!(Message::read(&reply).unwrap().header.response_to, id);
    }
}

#[test]
fn a_long_insert_goes_on_while_it_comes() {
    let server = Server::standalone(|_| Act::ok());
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    let mut document = Vec::new();
    bson::document(&mut document, |body| body.string("text", "x".repeat(16_000)));
    let documents = std::iter::repeat_n(Document::read(&document).unwrap(), 500);
    let mut request = Vec::new();
    let ids = Ids { request: 9, response_to: 0 };
    let body = |body: &mut bson::Writer<'_>| {
        body.string("insert", "orders");
        body.string("$db", "shop");
    };
    message::write_with_sequence(&mut request, ids, Flags::empty(), body, "documents", documents);
    assert!(request.len() > 7 << 20);
    client.send(&request);
    let reply = client.message().expect("a reply");
    assert!(is_ok(&reply));
    assert!(server.seen()[0].bytes == request, "not a byte was changed");
    assert!(is_ok(&client.find()), "the connection goes on");
}

#[test]
fn a_long_reply_comes_in_pieces_and_opens_its_cursor() {
    let mut reply = Vec::new();
    message::write(&mut reply, Ids { request: 1, response_to: 0 }, Flags::empty(), |body| {
        body.document("cursor", |cursor| {
            cursor.string("text", "x".repeat(5 << 20));
            cursor.int64("id", 4_711);
        });
        body.double("ok", 1.0);
    });
    let expected = reply.clone();
    let server = Server::standalone(move |seen| match &*seen.name {
        "find" => Act::Raw(reply.clone()),
        _ => Act::batch("nextBatch", 0),
    });
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    let got = client.find();
    assert!(got[16..] == expected[16..]);
    // Another connection may go on with the cursor.
    let more = greeted(&gateway).ask(|body| {
        body.int64("getMore", 4_711);
        body.string("collection", "orders");
        body.string("$db", "shop");
    });
    assert!(is_ok(&more));
    let unknown = client.ask(|body| {
        body.int64("getMore", 4_712);
        body.string("collection", "orders");
        body.string("$db", "shop");
    });
    assert_eq!((integer(&unknown, "code"), server.count("getMore")), (Some(43), 1));
}

#[test]
fn m9_a_client_at_its_bound_of_cursors_gets_an_overload_until_one_ends() {
    let ids = AtomicI64::new(0);
    let server = Server::standalone(move |seen| match &*seen.name {
        "find" => Act::batch("firstBatch", ids.fetch_add(1, Relaxed) + 1),
        _ => Act::batch("nextBatch", 0),
    });
    let mut setup = Setup::new(&[server.address]);
    setup.listener.shared_pins.cursors_max = 3;
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    for _ in 0..3 {
        assert!(is_ok(&client.find()));
    }
    assert_eq!(integer(&client.find(), "code"), Some(462));
    assert_eq!(integer(&greeted(&gateway).find(), "code"), Some(462), "all clients without a login are one owner");
    let more = client.ask(|body| {
        body.int64("getMore", 2);
        body.string("collection", "orders");
        body.string("$db", "shop");
    });
    assert!(is_ok(&more) && is_ok(&client.find()), "one of them has ended");
    assert_eq!((server.count("find"), server.count("killCursors")), (4, 0));
}

#[test]
fn writes_without_a_reply_leave_the_connection_free() {
    let server = Server::standalone(|seen| if seen.name == "insert" { Act::Silence } else { Act::ok() });
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    for _ in 0..200 {
        let id = client.next_id();
        client.send(&command(id, Flags::MORE_TO_COME, |body| {
            body.string("insert", "orders");
            body.string("$db", "shop");
        }));
    }
    assert!(is_ok(&client.find()));
    until("all writes have come", || server.count("insert") == 200);
}

#[test]
fn a_cursor_of_a_client_that_vanishes_is_killed_in_load_balanced_mode() {
    let server = Server::standalone(|seen| match &*seen.name {
        "find" => Act::batch("firstBatch", 99),
        _ => Act::ok(),
    });
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = gateway.client();
    client.hello(true);
    assert!(is_ok(&client.find()));
    drop(client);
    until("the cursor is killed", || server.count("killCursors") == 1);
    let labels = [("listener", "test"), ("kind", "cursor"), ("outcome", "done")];
    until("it is counted", || gateway.counter("weir_mongodb_cleanups_total", &labels) == 1);
}

#[test]
fn a_transaction_of_a_client_that_vanishes_is_aborted_in_load_balanced_mode() {
    let server = Server::member(true, |_| Act::ok());
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = gateway.client();
    client.hello(true);
    let reply = client.ask(|body| {
        body.string("insert", "orders");
        body.document("lsid", |lsid| lsid.binary("id", 4, &LSID));
        body.int64("txnNumber", 1);
        body.bool("startTransaction", true);
        body.bool("autocommit", false);
        body.string("$db", "shop");
    });
    assert!(is_ok(&reply));
    drop(client);
    until("it is aborted", || server.count("abortTransaction") == 1);
}

#[test]
fn a_reply_that_breaks_off_tells_a_driver_whether_to_try_again() {
    let server = Server::standalone(|_| Act::Close);
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    let read = client.find();
    assert_eq!(integer(&read, "code"), Some(6));
    let write = client.ask(|body| {
        body.string("insert", "orders");
        body.document("lsid", |lsid| lsid.binary("id", 4, &LSID));
        body.int64("txnNumber", 1);
        body.string("$db", "shop");
    });
    assert_eq!(integer(&write, "code"), Some(6));
    let text = String::from_utf8_lossy(&write).into_owned();
    assert!(text.contains("RetryableWriteError"), "{text}");
}

#[test]
fn m8_a_reply_to_nothing_ends_the_servers_connection_alone() {
    let server = Server::standalone(|seen| match &*seen.name {
        "find" => {
            let mut out = Vec::new();
            let ids = Ids { request: 1, response_to: 0 };
            message::write(&mut out, ids, Flags::empty(), |body| body.double("ok", 1.0));
            // A second message behind the reply.
            let mut twice = out.clone();
            twice.extend_from_slice(&out);
            Act::Raw(twice)
        }
        _ => Act::ok(),
    });
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    assert!(is_ok(&client.find()));
    let reply = client.ask(|body| {
        body.string("count", "orders");
        body.string("$db", "shop");
    });
    assert!(is_ok(&reply), "another connection serves it");
    assert_eq!(server.count("count"), 1);
}

#[test]
fn compressed_requests_are_inflated_and_plain_ones_pass() {
    let server = Server::standalone(|_| Act::ok());
    let mut setup = Setup::new(&[server.address]);
    setup.listener.compressors = vec![Compressor::Zstd, Compressor::Snappy];
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    for compressor in [Compressor::Snappy, Compressor::Zstd] {
        let id = client.next_id();
        let plain = command(id, Flags::empty(), |body| {
            body.string("find", "orders");
            body.string("comment", "y".repeat(3_000));
            body.string("$db", "shop");
        });
        let mut request = Vec::new();
        compressed::write(&mut request, &plain, compressor).expect("a message");
        assert!(request.len() < plain.len());
        client.send(&request);
        let reply = client.message().expect("a reply");
        assert!(is_ok(&reply));
        assert!(server.seen().last().unwrap().bytes == plain);
    }
    let plain = command(1, Flags::empty(), |body| body.string("find", "orders"));
    let mut foreign = Vec::new();
    compressed::write(&mut foreign, &plain, Compressor::Zlib).expect("a message");
    client.send(&foreign);
    assert!(client.message().is_none(), "zlib was not offered");
}

#[test]
fn a_compressed_request_passes_as_it_came_where_the_server_has_its_compressor() {
    let server = Server::standalone(|_| Act::batch("firstBatch", 0));
    server.change(|says| says.compressors = vec![Compressor::Snappy]);
    let mut setup = Setup::new(&[server.address]);
    setup.listener.compressors = vec![Compressor::Snappy, Compressor::Zstd];
    setup.upstream.compressors = vec![Compressor::Zstd, Compressor::Snappy];
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    let mut ask = |compressor| {
        let id = client.next_id();
        let plain = command(id, Flags::empty(), |body| {
            body.string("find", "orders");
            body.string("comment", "y".repeat(3_000));
            body.string("$db", "shop");
        });
        let mut request = Vec::new();
        compressed::write(&mut request, &plain, compressor).expect("a message");
        client.send(&request);
        let reply = client.message().expect("a reply");
        assert_eq!(&reply[8..12], &id.to_le_bytes(), "it names its request");
        compressed::Compressed::read(&reply).map(|packed| packed.compressor).ok()
    };
    assert_eq!(ask(Compressor::Snappy), Some(Compressor::Snappy));
    assert_eq!(server.packed(), 1);
    assert_eq!(ask(Compressor::Zstd), None, "the server does not have it");
    assert_eq!((server.packed(), server.count("find")), (1, 2));
}

#[test]
fn m8_a_stream_that_nothing_called_for_is_an_error_for_its_client() {
    let server = Server::standalone(|seen| match &*seen.name {
        "count" => {
            let mut out = Vec::new();
            let ids = Ids { request: 1, response_to: 0 };
            message::write(&mut out, ids, Flags::MORE_TO_COME, |body| body.double("ok", 1.0));
            Act::Raw(out)
        }
        _ => Act::ok(),
    });
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    let reply = client.ask(|body| {
        body.string("count", "orders");
        body.string("$db", "shop");
    });
    assert_eq!(integer(&reply, "code"), Some(6));
    assert!(is_ok(&client.find()), "another connection serves the next request");
}

#[test]
fn a_server_that_answers_a_write_without_a_reply_harms_no_other_client() {
    let server = Server::standalone(|_| Act::ok());
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    let gateway = Gateway::start(setup);
    let (mut writer, mut reader) = (greeted(&gateway), greeted(&gateway));
    for _ in 0..20 {
        let id = writer.next_id();
        writer.send(&command(id, Flags::MORE_TO_COME, |body| {
            body.string("insert", "orders");
            body.string("$db", "shop");
        }));
        assert!(is_ok(&reader.find()));
    }
    until("all writes have come", || server.count("insert") == 20);
    drop(writer);
    assert!(is_ok(&reader.find()));
}

#[test]
fn writes_without_a_reply_go_on_when_their_client_has_closed() {
    let server = Server::standalone(|seen| {
        if seen.name == "find" {
            std::thread::sleep(Duration::from_millis(300));
        }
        if seen.name == "insert" { Act::Silence } else { Act::ok() }
    });
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    let gateway = Gateway::start(setup);
    let (mut busy, mut writer) = (greeted(&gateway), greeted(&gateway));
    let id = busy.next_id();
    busy.send(&command(id, Flags::empty(), |body| {
        body.string("find", "orders");
        body.string("$db", "shop");
    }));
    until("the one connection is busy", || server.count("find") == 1);
    for _ in 0..3 {
        let id = writer.next_id();
        writer.send(&command(id, Flags::MORE_TO_COME, |body| {
            body.string("insert", "orders");
            body.string("$db", "shop");
        }));
    }
    writer.stream.shutdown(Shutdown::Write).expect("an open socket");
    until("all writes have come", || server.count("insert") == 3);
    assert!(writer.message().is_none(), "then its connection ends");
}

#[test]
fn a_write_with_a_reply_is_not_sent_for_a_client_that_has_closed() {
    let server = Server::standalone(|seen| {
        if seen.name == "find" {
            std::thread::sleep(Duration::from_millis(300));
        }
        Act::ok()
    });
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    let gateway = Gateway::start(setup);
    let (mut busy, mut writer) = (greeted(&gateway), greeted(&gateway));
    let id = busy.next_id();
    busy.send(&command(id, Flags::empty(), |body| {
        body.string("find", "orders");
        body.string("$db", "shop");
    }));
    until("the one connection is busy", || server.count("find") == 1);
    let id = writer.next_id();
    writer.send(&command(id, Flags::empty(), |body| {
        body.string("insert", "orders");
        body.string("$db", "shop");
    }));
    drop(writer);
    assert!(is_ok(&busy.message().expect("its reply")) && is_ok(&busy.find()));
    assert_eq!(server.count("insert"), 0);
}

#[test]
fn writes_without_a_reply_behind_replies_that_wait_go_on_when_their_client_has_closed() {
    const HELLOS: i32 = 2_000;
    let server = Server::standalone(|seen| if seen.name == "insert" { Act::Silence } else { Act::ok() });
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    let hello = |id| {
        command(id, Flags::empty(), |body| {
            body.int32("hello", 1);
            body.string("$db", "admin");
        })
    };
    let mut all: Vec<u8> = (100..100 + HELLOS).flat_map(hello).collect();
    all.extend(command(99, Flags::MORE_TO_COME, |body| {
        body.string("insert", "orders");
        body.string("$db", "shop");
    }));
    client.send(&all);
    client.stream.shutdown(Shutdown::Write).expect("an open socket");
    // The gateway sees the end while the replies are in the way.
    std::thread::sleep(Duration::from_millis(100));
    let replies = std::iter::from_fn(|| client.message()).count();
    assert_eq!(replies, HELLOS as usize);
    until("the write has come", || server.count("insert") == 1);
}

#[test]
fn s5_a_request_that_has_waited_is_not_sent_for_a_client_that_has_just_left() {
    let (reply, replying) = mpsc::channel::<()>();
    let replying = Mutex::new(replying);
    let server = Server::standalone(move |seen| {
        if seen.name == "find" {
            let _ = replying.lock().unwrap().recv_timeout(Duration::from_secs(5));
        }
        Act::ok()
    });
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    let gateway = Gateway::start(setup);
    let (mut busy, mut writer) = (greeted(&gateway), greeted(&gateway));
    let send = |client: &mut Client, name: &'static str| {
        let id = client.next_id();
        client.send(&command(id, Flags::empty(), |body| {
            body.string(name, "orders");
            body.string("$db", "shop");
        }));
    };
    send(&mut busy, "find");
    until("the one connection is busy", || server.count("find") == 1);
    send(&mut writer, "insert");
    until("the write waits", || gateway.gauge("gateway_lane_pool_waiters", &[]) == 1);
    // One look at all sockets finds the reply, and the client leaves behind it, before its request has the connection.
    let before = gateway.stall();
    before.has_begun();
    reply.send(()).expect("the server waits");
    // Time for the reply to come.
    std::thread::sleep(Duration::from_millis(50));
    let behind = gateway.pause();
    drop(before);
    behind.has_begun();
    drop(writer);
    drop(behind);
    assert!(is_ok(&busy.message().expect("its reply")));
    send(&mut busy, "count");
    assert!(is_ok(&busy.message().expect("the connection is free")));
    assert_eq!(server.count("insert"), 0);
}

#[test]
fn cursors_are_given_back_when_their_listener_moves_to_another_upstream() {
    let of = |id| {
        Server::standalone(move |seen| match &*seen.name {
            "find" => Act::batch("firstBatch", id),
            _ => Act::ok(),
        })
    };
    for is_load_balanced in [false, true] {
        let (old, new) = (of(98), of(99));
        let gateway = Gateway::start(Setup::new(&[old.address]));
        let mut client = gateway.client();
        client.hello(is_load_balanced);
        assert!(is_ok(&client.find()));
        gateway.move_to(&[new.address]);
        until("the cursor is killed where it is", || old.count("killCursors") == 1);
        let more = client.ask(|body| {
            body.int64("getMore", 98);
            body.string("collection", "orders");
            body.string("$db", "shop");
        });
        assert_eq!(integer(&more, "code"), Some(43));
        assert!(is_ok(&client.find()));
        assert_eq!((old.count("find"), new.count("find"), new.count("killCursors")), (1, 1, 0));
    }
}

/// The cursor of an exchange that was under way is one that all clients share, or its client's own.
#[test]
fn a_cursor_of_an_exchange_under_way_is_given_back_when_its_listener_moves() {
    for is_load_balanced in [false, true] {
        let (reply, replying) = mpsc::channel::<()>();
        let replying = Mutex::new(replying);
        let old = Server::standalone(move |seen| {
            if seen.name == "find" {
                let _ = replying.lock().unwrap().recv_timeout(Duration::from_secs(5));
                return Act::batch("firstBatch", 98);
            }
            Act::ok()
        });
        let new = Server::standalone(|_| Act::ok());
        let gateway = Gateway::start(Setup::new(&[old.address]));
        let mut client = gateway.client();
        client.hello(is_load_balanced);
        let id = client.next_id();
        client.send(&command(id, Flags::empty(), |body| {
            body.string("find", "orders");
            body.string("$db", "shop");
        }));
        until("the find is under way", || old.count("find") == 1);
        gateway.move_to(&[new.address]);
        // The new server is known, so that the listener has moved.
        until("the listener has moved", || new.looks() > 0);
        std::thread::sleep(Duration::from_millis(100));
        reply.send(()).expect("the server waits");
        assert!(is_ok(&client.message().expect("its reply")));
        until("the cursor is killed where it is", || old.count("killCursors") == 1);
        let labels = [("listener", "test"), ("kind", "cursor"), ("outcome", "done")];
        until("it is counted", || gateway.counter("weir_mongodb_cleanups_total", &labels) == 1);
        let more = client.ask(|body| {
            body.int64("getMore", 98);
            body.string("collection", "orders");
            body.string("$db", "shop");
        });
        assert_eq!((integer(&more, "code"), new.count("killCursors")), (Some(43), 0));
    }
}

#[test]
fn a_request_that_waits_moves_with_its_listener_to_another_upstream() {
    let old = Server::member(false, |_| Act::ok());
    let new = Server::member(true, |_| Act::ok());
    let gateway = Gateway::start(Setup::new(&[old.address]));
    let mut client = greeted(&gateway);
    let id = client.next_id();
    client.send(&command(id, Flags::empty(), |body| {
        body.string("insert", "orders");
        body.string("$db", "shop");
    }));
    until("it waits for a primary", || gateway.gauge("weir_requests_in_flight", &[("listener", "test")]) == 1);
    gateway.move_to(&[new.address]);
    assert!(is_ok(&client.message().expect("a reply")));
    assert_eq!((old.count("insert"), new.count("insert")), (0, 1));
    assert!(is_ok(&client.find()), "and so does the client");
    assert_eq!(new.count("find"), 1);
}
