//! Hostile load: while clients misbehave, another one is served as before, and afterwards all is given back.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::http2::{Http2Peer, block, flag, frame, get, kind};
use weir_tests::nginx::Nginx;
use weir_tests::stream::Address;

/// How long each kind of hostility lasts.
const LASTS: Duration = Duration::from_millis(1_500);
/// Clients that are hostile at once.
const ATTACKERS: usize = 6;
/// What may be left of it in memory: allocators and pools keep some of what they had.
const LEFT_BYTES_MAX: u64 = 48 << 20;

/// What a hostile client does until it is told to stop. It may be thrown out at any moment, and comes again.
type Hostility = fn(&Address, &AtomicBool);

fn resets(address: &Address, stop: &AtomicBool) {
    let mut client = Http2Peer::connect(address);
    let mut stream = 1;
    while !stop.load(Ordering::Relaxed) && client.request(stream, &get("/")) {
        client.send(frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        stream += 2;
    }
}

fn refused_streams(address: &Address, stop: &AtomicBool) {
    let mut client = Http2Peer::connect(address);
    let mut stream = 1;
    // The gateway is made to reset them: a window update of nothing is an error of the stream (CVE-2025-8671).
    while !stop.load(Ordering::Relaxed) && client.request(stream, &get("/")) {
        client.send(frame(kind::WINDOW_UPDATE, 0, stream, &0_u32.to_be_bytes()));
        stream += 2;
    }
}

fn repeated(address: &Address, stop: &AtomicBool, bytes: &[u8]) {
    let mut client = Http2Peer::connect(address);
    while !stop.load(Ordering::Relaxed) && client.send(bytes) {}
}

fn pings(address: &Address, stop: &AtomicBool) {
    repeated(address, stop, &frame(kind::PING, 0, 0, b"12345678").repeat(100));
}

fn settings(address: &Address, stop: &AtomicBool) {
    repeated(address, stop, &frame(kind::SETTINGS, 0, 0, b"").repeat(100));
}

fn empty_data(address: &Address, stop: &AtomicBool) {
    let mut client = Http2Peer::connect(address);
    let head = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
    client.send(frame(kind::HEADERS, flag::END_HEADERS, 1, &head));
    let nothing = frame(kind::DATA, 0, 1, b"").repeat(100);
    while !stop.load(Ordering::Relaxed) && client.send(&nothing) {}
}

fn continuations(address: &Address, stop: &AtomicBool) {
    let mut client = Http2Peer::connect(address);
    client.send(frame(kind::HEADERS, 0, 1, &get("/")));
    let more = frame(kind::CONTINUATION, 0, 1, &block(&[("x-more", "of the same")])).repeat(20);
    while !stop.load(Ordering::Relaxed) && client.send(&more) {}
}

fn shut_windows(address: &Address, stop: &AtomicBool) {
    let mut client = Http2Peer::connect(address);
    // SETTINGS_INITIAL_WINDOW_SIZE = 0: nothing of any answer can be sent.
    client.send(frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    for number in 0..99 {
        client.request(2 * number + 1, &get("/large"));
    }
    wait(stop);
}

fn slow_heads(address: &Address, stop: &AtomicBool) {
    let mut clients: Vec<_> = (0..50).map(|_| HttpClient::connect(address)).collect();
    while !stop.load(Ordering::Relaxed) {
        for client in &mut clients {
            client.try_send("G");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn slow_bodies(address: &Address, stop: &AtomicBool) {
    let mut clients: Vec<_> = (0..20).map(|_| HttpClient::connect(address)).collect();
    for client in &mut clients {
        client.try_send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    }
    while !stop.load(Ordering::Relaxed) {
        for client in &mut clients {
            client.try_send("x");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn slow_readers(address: &Address, stop: &AtomicBool) {
    let mut clients: Vec<_> = (0..20).map(|_| HttpClient::connect(address)).collect();
    for client in &mut clients {
        client.try_send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    wait(stop);
    // One byte, so that the answers had begun.
    clients.iter_mut().for_each(|client| drop(client.stream().read(&mut [0])));
}

fn garbage(address: &Address, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        HttpClient::connect(address)
            .try_send("\0\r\n\r\nGET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 7\r\n\r\n");
    }
}

fn wait(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks again and again; how long answers took, sorted.
fn victim(client: &mut HttpClient, lasts: Duration) -> Vec<Duration> {
    let (begun, mut took) = (Instant::now(), Vec::new());
    while begun.elapsed() < lasts {
        let asked = Instant::now();
        let answer = client.get("/");
        assert_eq!((answer.status, answer.text().as_str()), (200, "small"));
        took.push(asked.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    took.sort();
    took
}

#[test]
fn a_victim_is_served_during_each_kind_of_hostility_and_all_is_given_back() {
    let kinds: [(&str, Hostility); 11] = [
        ("resets", resets),
        ("refused streams", refused_streams),
        ("pings", pings),
        ("settings", settings),
        ("empty data", empty_data),
        ("continuations", continuations),
        ("shut windows", shut_windows),
        ("slow heads", slow_heads),
        ("slow bodies", slow_bodies),
        ("slow readers", slow_readers),
        ("garbage", garbage),
    ];
    let origin = Nginx::start("", "location / { return 200 \"small\"; } location = /large { try_files /file =404; }");
    std::fs::write(origin.folder().join("file"), vec![b'x'; 2_000_000]).expect("written");
    let mut gateway = Gateway::start(Config::http(&origin.address).workers(2));
    let mut client = HttpClient::connect(&gateway.address);
    let quiet = victim(&mut client, LASTS);
    let at = |took: &[Duration], share: f64| took[(took.len() as f64 * share) as usize].as_micros();
    println!("quiet: p50 {} us, p99 {} us of {}", at(&quiet, 0.5), at(&quiet, 0.99), quiet.len());
    let (descriptors, resident) = (gateway.process().descriptors(), gateway.process().resident());
    for (name, hostility) in kinds {
        let stop = Arc::<AtomicBool>::default();
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|_| {
                let (address, stop) = (gateway.address.clone(), stop.clone());
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        hostility(&address, &stop);
                    }
                })
            })
            .collect();
        let took = victim(&mut client, LASTS);
        stop.store(true, Ordering::Relaxed);
        attackers.into_iter().for_each(|attacker| attacker.join().expect("it ends"));
        // How long it took is told and judged by nobody: the machine is shared.
        println!("{name}: p50 {} us, p99 {} us of {}", at(&took, 0.5), at(&took, 0.99), took.len());
        until_true(format!("the connections of {name} to be closed"), || {
            gateway.metric("weir_connections_open") == 1.0
        });
    }
    // Connections to the origin may stay; those of clients may not.
    until_true("descriptors to be given back", || gateway.process().descriptors() <= descriptors + 256);
    let left = gateway.process().resident().saturating_sub(resident);
    assert!(left < LEFT_BYTES_MAX, "{left} bytes are left");
    drop(client);
    gateway.finish();
}
