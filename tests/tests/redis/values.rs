//! Values of every size pass unchanged, and a large one passes without being held.

use std::io::{Read, Write};

use weir_tests::client::Client;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{encode, shown};

const MIB: usize = 1 << 20;

/// Bytes that show when a piece is lost, doubled or moved.
fn patterned(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + (at >> 8) * 7 + (at >> 16)) % 251) as u8).collect()
}

fn bulk(value: &[u8]) -> Vec<u8> {
    let mut reply = format!("${}\r\n", value.len()).into_bytes();
    reply.extend_from_slice(value);
    reply.extend_from_slice(b"\r\n");
    reply
}

fn set_and_get(client: &mut Client, key: &str, value: &[u8]) {
    client.expect(&[b"SET", key.as_bytes(), value], b"+OK\r\n");
    let came = client.call(&["GET", key]);
    assert!(came == bulk(value), "{} bytes came back as {}", value.len(), shown(&came));
}

#[test]
fn sizes_around_every_boundary_come_back_unchanged() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    for center in [0, 1 << 10, 16 << 10, 64 << 10, 256 << 10, MIB] {
        for offset in -3_i64..=3 {
            let Ok(length) = usize::try_from(center as i64 + offset) else {
                continue;
            };
            set_and_get(&mut client, "k", &patterned(length));
        }
    }
}

#[test]
fn large_values_pass_between_small_commands_in_order() {
    let server = Server::start(Kind::Valkey);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    let large = patterned(3 * MIB);
    let mut sent = Vec::new();
    let mut expected = Vec::new();
    for round in 0..4 {
        let small = format!("small-{round}");
        sent.extend(encode(&["SET", "s", &small]));
        expected.push(b"+OK\r\n".to_vec());
        sent.extend(encode(&[b"SET" as &[u8], b"l", &large]));
        expected.push(b"+OK\r\n".to_vec());
        sent.extend(encode(&["PING"]));
        expected.push(b"+PONG\r\n".to_vec());
        sent.extend(encode(&["GET", "l"]));
        expected.push(bulk(&large));
        sent.extend(encode(&["GET", "s"]));
        expected.push(bulk(small.as_bytes()));
    }
    // Both directions at once: replies must be read while commands are still being written.
    let mut writer = client.stream().duplicate();
    let sender = std::thread::spawn(move || writer.write_all(&sent));
    for (number, reply) in expected.iter().enumerate() {
        let came = client.reply();
        assert!(came == *reply, "reply {number}: {}", shown(&came));
    }
    sender.join().expect("the sender ends").expect("everything is sent");
}

#[test]
fn a_value_of_64_mib_passes_both_ways() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    set_and_get(&mut gateway.connect(), "k", &patterned(64 * MIB));
}

/// The largest value that Redis takes, written and read in pieces; the gateway never holds it.
#[test]
fn a_value_of_512_mib_is_streamed_with_bounded_memory() {
    const LENGTH: usize = 512 * MIB;
    const GROWTH_MAX: u64 = 64 << 20;
    let server = Server::start(Kind::Redis);
    // The server copies the value before it answers, which takes seconds on a busy machine.
    let mut gateway = Gateway::start(Config::to(&server.address).upstream("request_timeout = \"60s\""));
    let mut client = gateway.connect();
    client.expect(&["PING"], b"+PONG\r\n");
    let before = gateway.process().resident();
    let piece = patterned(MIB);
    client.send(format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${LENGTH}\r\n").as_bytes());
    for _ in 0..LENGTH / MIB {
        client.send(&piece);
    }
    client.send(b"\r\n");
    assert_eq!(client.reply(), b"+OK\r\n");
    client.command(&["GET", "big"]);
    read_pieces(&mut client, LENGTH, &piece);
    let growth = gateway.process().resident_peak().saturating_sub(before);
    assert!(growth < GROWTH_MAX, "resident memory grew by {} MiB for a 512 MiB value", growth >> 20);
    // The connection is in step afterwards.
    client.expect(&["STRLEN", "big"], format!(":{LENGTH}\r\n").as_bytes());
    client.expect(&["DEL", "big"], b":1\r\n");
}

/// Reads a bulk string of `length` bytes made of `piece` again and again, without keeping it.
fn read_pieces(client: &mut Client, length: usize, piece: &[u8]) {
    let stream = client.stream();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a reply head");
        head.push(byte[0]);
    }
    assert_eq!(head, format!("${length}\r\n").as_bytes());
    let mut chunk = vec![0; piece.len()];
    for number in 0..length / piece.len() {
        stream.read_exact(&mut chunk).expect("a piece of the value");
        assert!(chunk == piece, "piece {number} came back changed");
    }
    let mut end = [0; 2];
    stream.read_exact(&mut end).expect("the end of the value");
    assert_eq!(&end, b"\r\n");
}

fn lines(reply: Vec<u8>) -> Vec<Vec<u8>> {
    reply.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect()
}

#[test]
fn wide_replies_pass_whole() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    let mut direct = server.connect();
    let script = "for n = 1, 20000 do redis.call('RPUSH', KEYS[1], n .. ':' .. string.rep('x', n % 50)) end return 1";
    client.expect(&["EVAL", script, "1", "list"], b":1\r\n");
    for words in
        [&["LRANGE", "list", "0", "-1"][..], &["LRANGE", "list", "100", "10000"], &["COMMAND"], &["COMMAND", "DOCS"]]
    {
        let (mut came, mut wanted) = (lines(client.call(words)), lines(direct.call(words)));
        if words[0] == "COMMAND" {
            // The server walks its table of commands, whose order changes while it is being rehashed.
            came.sort();
            wanted.sort();
        }
        assert!(came == wanted, "{words:?}: {} lines, {} wanted", came.len(), wanted.len());
    }
    // Hundreds of keys in one command, and as many replies in one array.
    let mut set = vec!["MSET".to_owned()];
    let mut get = vec!["MGET".to_owned()];
    for number in 0..5_000 {
        set.extend([format!("k{number}"), format!("v{number}")]);
        get.push(format!("k{number}"));
    }
    client.expect(&set, b"+OK\r\n");
    assert!(client.call(&get) == direct.call(&get));
}
