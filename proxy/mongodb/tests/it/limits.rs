//! Bounds: waits, slow readers, drains.

use std::time::{Duration, Instant};

use weir_listener::Drain;
use weir_mongodb_codec::{
    bson::Writer,
    message::{self, Flags, Ids, Message},
};

use crate::support::{
    Gateway, MARKS, Setup, command, greeted, integer, is_ok,
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
