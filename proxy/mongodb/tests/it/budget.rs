//! The byte budget, where it is the client that sends or does not read.

use std::{
    io::Write as _,
    sync::{Mutex, mpsc},
    time::Duration,
};

use weir_mongodb_codec::{
    compressed::{self, Compressor},
    message::{Flags, Message},
};

use crate::support::{
    Client, Gateway, MARKS, Setup, command, greeted, is_ok,
    server::{Act, Server},
    until,
};

/// A compressed request that waits is here as it came and inflated, and each byte of it is charged.
#[test]
fn m12_compressed_requests_that_wait_are_within_the_budget() {
    const CLIENTS: usize = 20;
    let (reply, replying) = mpsc::channel::<()>();
    let replying = Mutex::new(replying);
    let server = Server::standalone(move |seen| {
        if seen.name == "find" {
            let _ = replying.lock().unwrap().recv_timeout(Duration::from_secs(30));
        }
        Act::ok()
    });
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    setup.listener.compressors = vec![Compressor::Zlib];
    setup.listener.queue_wait_timeout = Duration::from_secs(30);
    setup.buffered_bytes = 8 << 20;
    let gateway = Gateway::start(setup);
    let mut busy = greeted(&gateway);
    let id = busy.next_id();
    busy.send(&command(id, Flags::empty(), |body| {
        body.string("find", "orders");
        body.string("$db", "shop");
    }));
    until("the one connection is busy", || server.count("find") == 1);
    // 3 MiB of which each KiB has some letters of its own: it shrinks, and not beyond the ratio.
    let text: String = (0..3_u32 << 10)
        .map(|piece| format!("{:08x}{}", piece.wrapping_mul(2_654_435_761), "y".repeat(1_016)))
        .collect();
    let plain = command(7, Flags::empty(), |body| {
        body.string("insert", "orders");
        body.string("comment", &*text);
        body.string("$db", "shop");
    });
    let mut packed = Vec::new();
    compressed::write(&mut packed, &plain, Compressor::Zlib).expect("a message");
    assert!(packed.len() < plain.len() / 20, "{} bytes", packed.len());
    let labels = [("listener", "test"), ("reason", "buffered_bytes")];
    let shed = || gateway.counter("weir_shed_total", &labels) as usize;
    let waiting = || gateway.gauge("gateway_lane_pool_waiters", &[]) as usize;
    let mut clients = Vec::new();
    for number in 1..=CLIENTS {
        let mut client = greeted(&gateway);
        // The gateway may close before all of it is there.
        let _ = client.stream.write_all(&packed);
        until("it waits, or is refused", || waiting() + shed() == number);
        clients.push(client);
        assert!(gateway.held().0 <= 8 << 20);
    }
    assert_eq!((waiting(), shed()), (2, CLIENTS - 2), "each has 3 MiB");
    reply.send(()).expect("the server waits");
    let served = clients.iter_mut().filter_map(Client::message).filter(|reply| is_ok(reply)).count();
    assert_eq!(served, 2);
    until("nothing is charged", || gateway.held().0 == 0);
}

/// Replies of the gateway's own wait for their client as those of servers do.
#[test]
fn m12_hellos_that_come_together_are_answered_as_their_client_reads() {
    const HELLOS: usize = 1_000;
    let server = Server::standalone(|_| Act::ok());
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    let hello = |id| {
        command(id, Flags::empty(), |body| {
            body.int32("hello", 1);
            body.string("$db", "admin");
        })
    };
    let all: Vec<u8> = (0..HELLOS as i32).flat_map(hello).collect();
    client.send(&all);
    until("replies are there", || gateway.held().0 > MARKS.low as u64);
    std::thread::sleep(Duration::from_millis(200));
    let held = gateway.held().0;
    assert!(held < (MARKS.high + all.len() + (16 << 10)) as u64, "{held} bytes");
    for id in 0..HELLOS as i32 {
        let reply = client.message().expect("a reply");
        assert_eq!(Message::read(&reply).unwrap().header.response_to, id);
    }
    until("nothing is charged", || gateway.held().0 == 0);
}
