//! Replies come in the order of the commands, whether the gateway or a server gives them.

use std::io::Write;

use weir_base::rng::Rng;
use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::seed::seeded;
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{encode, shown};

/// One step of a random session and its reply: local, shared and pinned commands mixed.
fn step(rng: &mut Rng, number: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let text = format!("v{number}");
    let bulk = format!("${}\r\n{text}\r\n", text.len()).into_bytes();
    let one = |words: &[&str], reply: &[u8]| (encode(words), reply.to_vec());
    match rng.below(9) {
        0 => vec![one(&["ECHO", &text], &bulk)],
        1 => vec![one(&["SET", "k", &text], b"+OK\r\n"), one(&["GET", "k"], &bulk)],
        2 => vec![one(&["CLIENT", "SETNAME", &text], b"+OK\r\n"), one(&["CLIENT", "GETNAME"], &bulk)],
        3 => vec![
            one(&["MULTI"], b"+OK\r\n"),
            one(&["SET", "m", &text], b"+QUEUED\r\n"),
            one(&["GET", "m"], b"+QUEUED\r\n"),
            one(&["EXEC"], &[b"*2\r\n+OK\r\n", bulk.as_slice()].concat()),
        ],
        4 => vec![
            one(&["WATCH", "w"], b"+OK\r\n"),
            one(&["MULTI"], b"+OK\r\n"),
            one(&["ECHO", &text], b"+QUEUED\r\n"),
            one(&["EXEC"], &[b"*1\r\n", bulk.as_slice()].concat()),
        ],
        5 => vec![
            one(&["RPUSH", "l", &text], b":1\r\n"),
            one(&["BLPOP", "l", "0"], &[b"*2\r\n$1\r\nl\r\n", bulk.as_slice()].concat()),
        ],
        6 => vec![
            one(&["SELECT", "3"], b"+OK\r\n"),
            one(&["SET", "d", &text], b"+OK\r\n"),
            one(&["GET", "d"], &bulk),
            one(&["SELECT", "0"], b"+OK\r\n"),
            one(&["GET", "d"], b"$-1\r\n"),
        ],
        7 => vec![(b"PING\r\n".to_vec(), b"+PONG\r\n".to_vec())],
        _ => vec![
            one(&["GET"], b"-ERR wrong number of arguments for 'get' command\r\n"),
            one(&["INCR", "text"], b"-ERR value is not an integer or out of range\r\n"),
        ],
    }
}

#[test]
fn a_long_mixed_pipeline_keeps_order() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    server.connect().expect(&["SET", "text", "abc"], b"+OK\r\n");
    let mut rng = seeded();
    let steps: Vec<_> = (0..3_000).flat_map(|n| step(&mut rng, n)).collect();
    let mut client = gateway.connect();
    let mut writer = client.stream().duplicate();
    let bytes: Vec<u8> = steps.iter().flat_map(|(sent, _)| sent.clone()).collect();
    // Written in pieces of any length, so that commands are cut everywhere.
    let sender = std::thread::spawn(move || {
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let length = (1 + rng.below(700) as usize).min(rest.len());
            writer.write_all(&rest[..length])?;
            rest = &rest[length..];
        }
        Ok::<(), std::io::Error>(())
    });
    for (number, (sent, wanted)) in steps.iter().enumerate() {
        let came = client.reply();
        assert!(came == *wanted, "command {number} {}: {}, wanted {}", shown(sent), shown(&came), shown(wanted));
    }
    sender.join().expect("the sender ends").expect("all is sent");
}

#[test]
fn commands_cut_at_every_byte_are_understood() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    let mut bytes = encode(&["SET", "key\r\n", "value"]);
    bytes.extend(b"GET \"key\\r\\n\"\r\n");
    bytes.extend(encode(&["ECHO", ""]));
    for cut in 1..bytes.len() {
        client.send(&bytes[..cut]);
        client.send(&bytes[cut..]);
        for wanted in [&b"+OK\r\n"[..], b"$5\r\nvalue\r\n", b"$0\r\n\r\n"] {
            let came = client.reply();
            assert!(came == wanted, "cut at {cut}: {}", shown(&came));
        }
    }
}

/// Deeper than the gateway holds in flight: it stops reading, then goes on.
#[test]
fn a_pipeline_deeper_than_the_limit_is_answered_whole() {
    const COMMANDS: usize = 20_000;
    let server = Server::start(Kind::Redis);
    let config = Config::to(&server.address).listener("[listener.redis]\npipeline_max = 64");
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    let mut writer = client.stream().duplicate();
    let sender = std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..COMMANDS).flat_map(|n| encode(&["ECHO", &n.to_string()])).collect();
        writer.write_all(&bytes)
    });
    for number in 0..COMMANDS {
        let text = number.to_string();
        let wanted = format!("${}\r\n{text}\r\n", text.len());
        assert_eq!(client.reply(), wanted.as_bytes(), "command {number}");
    }
    sender.join().expect("the sender ends").expect("all is sent");
}

#[test]
fn many_clients_share_few_upstream_connections() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut clients: Vec<Client> = (0..200).map(|_| gateway.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.command(&["SET", &format!("k{number}"), &number.to_string()]);
    }
    for client in &mut clients {
        assert_eq!(client.reply(), b"+OK\r\n");
    }
    let upstream: u64 = server.info("clients", "connected_clients").trim().parse().expect("a number");
    assert!(upstream < 10, "200 clients hold {upstream} connections to the server");
    assert_eq!(gateway.metric("weir_connections_open"), 200.0);
    drop(clients);
    deadline::until_true("the connections to go", || gateway.metric("weir_connections_open") == 0.0);
}

/// A client that half-closes after its last command still gets every reply.
#[test]
fn a_half_closed_client_gets_its_replies() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    let commands: Vec<u8> = (0..500).flat_map(|n| encode(&["INCRBY", "n", &n.to_string()])).collect();
    client.send(&commands);
    client.stream().half_close().expect("the write side closes");
    let mut sum = 0;
    for number in 0..500 {
        sum += number;
        assert_eq!(client.reply(), format!(":{sum}\r\n").as_bytes());
    }
    let (rest, end) = client.read_to_end(deadline::WAIT);
    assert_eq!((rest, end), (Vec::new(), weir_tests::client::End::Closed));
}
