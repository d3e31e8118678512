//! The byte counters move while a large value is on its way, on both sides, and count each byte once.

use std::io::Read as _;

use weir_tests::byte_counts::{ByteCounts, assert_moved_on_the_way, assert_sums, read_slowly, wait_since, wait_start};
use weir_tests::client::Client;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::stream::Stream;
use weir_tests::wire::encode;

/// Far more than all buffers between a server and a client hold.
const VALUE_BYTES: usize = 48 << 20;

/// The counters must show each part before the client reads or sends the next one.
const PART_BYTES: usize = 4 << 20;

/// Bytes that a gateway and a server exchange besides: the first commands on a connection.
const BESIDES_BYTES: usize = 4 << 10;

/// A server, a gateway that has a connection to it, a client, and the counters so far.
fn stand() -> (Server, Gateway, Client, ByteCounts) {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).upstream("[upstream.health]\nenabled = false"));
    let mut client = gateway.connect();
    if let Stream::Tcp(stream) = client.stream() {
        read_slowly(stream);
    }
    let (request, reply) = (["GET", "none"], b"$-1\r\n");
    client.expect(&request, reply);
    let start = wait_start(&gateway, encode(&request).len(), reply.len());
    (server, gateway, client, start)
}

#[test]
fn a_value_that_is_read_slowly_moves_the_counters_of_both_sides_on_its_way() {
    let (server, gateway, mut client, start) = stand();
    server.connect().expect(&[b"SET".as_slice(), b"large", &vec![b'v'; VALUE_BYTES]], b"+OK\r\n");
    let request = encode(&["GET", "large"]);
    client.send(&request);
    let whole = format!("${VALUE_BYTES}\r\n").len() + VALUE_BYTES + 2;
    let (mut received, mut part, mut scrapes) = (0, vec![0; PART_BYTES], Vec::new());
    while received < whole {
        let length = PART_BYTES.min(whole - received);
        client.stream().read_exact(&mut part[..length]).expect("a part of the value");
        received += length;
        scrapes.push(wait_since(&gateway, start, ByteCounts::through(request.len(), received)));
    }
    assert_moved_on_the_way(&scrapes, whole);
    assert_sums(&gateway, start, (request.len(), whole), BESIDES_BYTES);
    drop(client);
    gateway.finish();
}

#[test]
fn a_value_that_is_sent_slowly_moves_the_counters_of_both_sides_on_its_way() {
    let (server, gateway, mut client, start) = stand();
    let head = format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${VALUE_BYTES}\r\n");
    client.send(head.as_bytes());
    let (mut sent, part) = (head.len(), vec![b'v'; PART_BYTES]);
    for _ in 0..VALUE_BYTES / PART_BYTES {
        client.send(&part);
        sent += PART_BYTES;
        let so_far = ByteCounts { client_read: sent, upstream_written: sent, ..ByteCounts::default() };
        let moved = wait_since(&gateway, start, so_far);
        assert_eq!((moved.client_read, moved.client_written), (sent, 0));
    }
    client.send(b"\r\n");
    let reply = client.reply();
    assert_eq!(reply, b"+OK\r\n");
    assert_sums(&gateway, start, (sent + 2, reply.len()), BESIDES_BYTES);
    let length = server.connect().call(&["STRLEN", "large"]);
    assert_eq!(length, format!(":{VALUE_BYTES}\r\n").into_bytes());
    drop(client);
    gateway.finish();
}
