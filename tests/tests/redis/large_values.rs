//! Values beyond `listener.redis.stream_bytes`, pipelined and mixed with small ones, where keys are on several servers: what is
//! true of a small value is true of a large one.

use std::io::Write;

use weir_base::rng::Rng;
use weir_tests::client::Client;
use weir_tests::cluster::Cluster;
use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::seed::seeded;
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{bulk, bulk_array, encode, shown};

const KIB: usize = 1 << 10;
/// Sizes at which the way of a value changes: an inline buffer of the server, a chunk, `stream_bytes`, what a lane takes at once,
/// and `pipeline_bytes`; and usual ones on either side.
const EDGES: [usize; 5] = [16 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 1024 * KIB];
const ROUNDS: usize = 6;
const CLIENTS: u64 = 4;

/// Servers whose keys are spread, kept for as long as they are used.
enum Servers {
    Shards { _servers: Vec<Server> },
    Cluster { _nodes: Cluster },
}

/// Three shards, and a cluster of three.
fn stages() -> [(&'static str, Servers, Gateway); 2] {
    let servers: Vec<Server> = (0..3).map(|_| Server::start(Kind::Redis)).collect();
    let shards = Config::to_all(servers.iter().map(|server| &server.address))
        .workers(2)
        .upstream("sharding = { distribution = \"ketama\" }");
    let shards = Gateway::start(shards);
    let nodes = Cluster::start(Kind::Redis, 3, 0);
    let cluster = Gateway::before_cluster(&nodes);
    [
        ("three shards", Servers::Shards { _servers: servers }, shards),
        ("a cluster", Servers::Cluster { _nodes: nodes }, cluster),
    ]
}

fn value(length: usize, salt: u64) -> Vec<u8> {
    (0..length).map(|at| ((at as u64 * 31 + (at as u64 >> 8) * 7 + salt) % 251) as u8).collect()
}

/// Sends all at once, as a pipeline does, and reads while it sends.
fn pipeline(client: &mut Client, requests: Vec<u8>, replies: usize) -> Vec<Vec<u8>> {
    let mut writer = client.stream().duplicate();
    let sender = std::thread::spawn(move || writer.write_all(&requests));
    let came = (0..replies).map(|_| client.reply()).collect();
    sender.join().expect("the sender ends").expect("everything is sent");
    came
}

/// A client without any state: SETs of all sizes and GETs of them, in any mixture.
fn speak(mut client: Client, of: u64, mut rng: Rng) -> Result<(), String> {
    let keys: Vec<String> = (0..12).map(|n| format!("{of}:{n}")).collect();
    let mut values: Vec<Vec<u8>> = vec![Vec::new(); keys.len()];
    for key in &keys {
        client.expect(&["SET", key, ""], b"+OK\r\n");
    }
    for round in 0..ROUNDS {
        let mut requests = Vec::new();
        let mut wanted = Vec::new();
        for _ in 0..30 {
            let at = rng.below(keys.len() as u64) as usize;
            if rng.below(3) == 0 {
                requests.extend(encode(&["GET", &keys[at]]));
                wanted.push([format!("${}\r\n", values[at].len()).as_bytes(), &values[at], b"\r\n"].concat());
                continue;
            }
            let length = match rng.below(3) {
                0 => rng.below(100) as usize,
                1 => 64 * KIB - 3 + rng.below(7) as usize,
                _ => 70 * KIB + rng.below(230 * KIB as u64) as usize,
            };
            values[at] = value(length, rng.below(251));
            requests.extend(encode(&[b"SET", keys[at].as_bytes(), &values[at]]));
            wanted.push(b"+OK\r\n".to_vec());
        }
        let came = pipeline(&mut client, requests, wanted.len());
        for (number, (came, wanted)) in came.iter().zip(&wanted).enumerate() {
            if came != wanted {
                return Err(format!("client {of}, round {round}, reply {number}: {}", shown(came)));
            }
        }
        let words: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        if bulk_array(&client.call(&words)) != values {
            return Err(format!("client {of}, round {round}: MGET"));
        }
    }
    Ok(())
}

#[test]
fn pipelines_of_large_values_are_refused_to_nobody() {
    let mut rng = seeded();
    for (stage, _servers, gateway) in stages() {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|of| {
                let (client, rng) = (gateway.connect(), Rng::new(rng.next_u64()));
                std::thread::spawn(move || speak(client, of, rng))
            })
            .collect();
        let faults: Vec<String> =
            clients.into_iter().filter_map(|client| client.join().expect("no panic").err()).collect();
        assert!(faults.is_empty(), "{stage}: {faults:#?}");
    }
}

/// Each edge from three bytes below to three above it, between small values, in one pipeline; alone and in a transaction.
#[test]
fn a_value_of_every_size_at_an_edge_is_like_a_small_one() {
    for (stage, _servers, gateway) in stages() {
        let mut client = gateway.connect();
        for edge in EDGES {
            let lengths: Vec<usize> = (edge - 3..=edge + 3).collect();
            let mut requests = Vec::new();
            for (n, &length) in lengths.iter().enumerate() {
                let (key, tag) = (format!("k{n}"), format!("{{t{n}}}"));
                let value = value(length, n as u64);
                requests.extend(encode(&[b"SET", key.as_bytes(), &value]));
                requests.extend(encode(&["SET", &format!("s{n}"), "small"]));
                requests.extend(encode(&["MULTI"]));
                requests.extend(encode(&[b"SET", tag.as_bytes(), &value]));
                requests.extend(encode(&["STRLEN", &tag]));
                requests.extend(encode(&["EXEC"]));
            }
            let came = pipeline(&mut client, requests, 6 * lengths.len());
            for (n, (came, length)) in came.chunks(6).zip(&lengths).enumerate() {
                let exec = format!("*2\r\n+OK\r\n:{length}\r\n");
                let wanted: [&[u8]; 6] =
                    [b"+OK\r\n", b"+OK\r\n", b"+OK\r\n", b"+QUEUED\r\n", b"+QUEUED\r\n", exec.as_bytes()];
                let texts: Vec<String> = came.iter().map(|reply| shown(reply)).collect();
                assert!(came == wanted, "{stage}, {length} bytes: {texts:?}");
                let key = format!("k{n}");
                assert!(bulk(&client.call(&["GET", &key])) == value(*length, n as u64), "{stage}: {key}");
            }
        }
    }
}

#[test]
fn large_values_of_all_shards_pass_while_keys_are_watched() {
    for (stage, _servers, gateway) in stages() {
        let (mut client, mut other) = (gateway.connect(), gateway.connect());
        for length in [10, 70 * KIB, 300 * KIB] {
            client.expect(&["WATCH", "watched"], b"+OK\r\n");
            let value = value(length, 7);
            let requests: Vec<u8> = (0..8)
                .flat_map(|n| {
                    let key = format!("w{n}");
                    [encode(&[b"SET", key.as_bytes(), &value]), encode(&["STRLEN", &key])].concat()
                })
                .collect();
            let came = pipeline(&mut client, requests, 16);
            for pair in came.chunks(2) {
                let strlen = format!(":{length}\r\n").into_bytes();
                assert!(pair == [b"+OK\r\n".to_vec(), strlen], "{stage}, {length} bytes: {}", shown(&pair.concat()));
            }
            // The watch has lasted through all of it.
            other.expect(&["SET", "watched", &length.to_string()], b"+OK\r\n");
            client.expect(&["MULTI"], b"+OK\r\n");
            client.expect(&["GET", "watched"], b"+QUEUED\r\n");
            client.expect(&["EXEC"], b"*-1\r\n");
        }
        until_true("the lanes to be given back", || gateway.metric("weir_pinned_sessions") == 0.0);
    }
}
