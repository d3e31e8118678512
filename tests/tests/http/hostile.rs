//! Hostile load: while clients misbehave, another one is served as before, and afterwards all is given back.
//!
//! `WEIR_HOSTILITY_ROUNDS=N` repeats each kind, with a quiet time before each, and `WEIR_BIN` names a release build: what is
//! printed then says how much of a flood the other client feels.

use std::io::Read as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
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
/// Memory that may remain in use afterwards: allocators and pools keep some of what they had.
const LEFT_BYTES_MAX: u64 = 48 << 20;

/// The attack of a hostile client until it gets the order to stop. It may be thrown out at any moment, and comes again.
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
    let head = block(&[(":method", "POST"), (":scheme", "http"), (":authority", FLOODED), (":path", "/")]);
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
    // SETTINGS_INITIAL_WINDOW_SIZE = 0: nothing of any response can be sent.
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
        client.try_send("POST / HTTP/1.1\r\nHost: test.example\r\nContent-Length: 100000\r\n\r\n");
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
        client.try_send("GET /large HTTP/1.1\r\nHost: test.example\r\n\r\n");
    }
    wait(stop);
    // One byte, so that the responses had begun.
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

/// Where attackers and the other client's requests go: what floods one application is not to be felt by another.
const FLOODED: &str = "test.example";
const VICTIM: &str = "GET / HTTP/1.1\r\nHost: victim.example\r\n\r\n";

/// Asks again and again; how long responses took, sorted.
fn victim(client: &mut HttpClient, lasts: Duration) -> Vec<Duration> {
    let (begun, mut took) = (Instant::now(), Vec::new());
    while begun.elapsed() < lasts {
        let asked = Instant::now();
        client.send(VICTIM);
        let response = client.response();
        assert_eq!((response.status, response.text().as_str()), (200, "small"));
        took.push(asked.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    took.sort();
    took
}

/// The value below which 99 of 100 stay, of a sorted list.
fn p99(took: &[Duration]) -> Duration {
    took[took.len() * 99 / 100]
}

/// The middle one.
fn median<T: Copy + PartialOrd>(mut values: Vec<T>) -> T {
    values.sort_by(|one, other| one.partial_cmp(other).expect("numbers"));
    values[values.len() / 2]
}

/// Moves this thread, and what it starts, to the last CPU; gives the number of the first, which is the gateway's. Otherwise
/// clients and origins would wait for each other's and the gateway's time slices, and that would be all that is seen.
fn stand_aside() -> usize {
    let allowed = sched_getaffinity(None).expect("the CPUs of this thread");
    let numbers: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let mut own = CpuSet::new();
    own.set(numbers[numbers.len() - 1]);
    sched_setaffinity(None, &own).expect("a CPU of this thread");
    numbers[0]
}

/// Lets the thread with this number run only when no other wants its CPU: attackers, and the application that they flood, have machines of
/// their own.
fn stand_back(id: impl ToString) {
    let done =
        Command::new("chrt").args(["--idle", "--pid", "0", &id.to_string()]).output().expect("chrt can be started");
    assert!(done.status.success(), "{done:?}");
}

/// Has `hostility` done by several clients while `meanwhile` runs.
fn during<T>(hostility: Hostility, address: &Address, meanwhile: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..ATTACKERS {
            scope.spawn(|| {
                stand_back(gettid().as_raw_nonzero());
                while !stop.load(Ordering::Relaxed) {
                    hostility(address, &stop);
                }
            });
        }
        // However it ends, they end too.
        let _stop = Stop(&stop);
        meanwhile()
    })
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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
    let rounds = std::env::var("WEIR_HOSTILITY_ROUNDS").map_or(1, |rounds| rounds.parse().expect("a number of rounds"));
    let gateway_cpu = stand_aside().to_string();
    let flooded = Nginx::start("", "location / { return 200 \"small\"; } location = /large { try_files /file =404; }");
    stand_back(flooded.worker());
    std::fs::write(flooded.folder().join("file"), vec![b'x'; 2_000_000]).expect("written");
    let origin = Nginx::start("", "location / { return 200 \"small\"; }");
    let route = format!(
        "[[upstream]]\nname = \"flooded\"\nendpoints = [\"{}\"]\n\
         [[route]]\nname = \"flooded\"\nhosts = [\"{FLOODED}\"]\nupstream = \"flooded\"\n",
        flooded.address.text()
    );
    let config = Config::http(&origin.address).tables(&route);
    let mut gateway = Gateway::start_behind(&["taskset", "--cpu-list", &gateway_cpu], config);
    until_true("both upstreams to be up", || gateway.admin.is_ready());
    let address = gateway.address.clone();
    let mut client = HttpClient::connect(&address);
    victim(&mut client, LASTS);
    let (descriptors, resident) = (gateway.process().descriptors(), gateway.process().resident());
    for (name, hostility) in kinds {
        let times: Vec<_> = (0..rounds)
            .map(|_| {
                let quiet = p99(&victim(&mut client, LASTS));
                let flooded = p99(&during(hostility, &address, || victim(&mut client, LASTS)));
                until_true(format!("the connections of {name} to be closed"), || {
                    gateway.metric("weir_connections_open") == 1.0
                });
                (quiet, flooded)
            })
            .collect();
        // Its duration is printed and not judged: the machine is shared.
        let ratios = times.iter().map(|(quiet, flooded)| flooded.as_secs_f64() / quiet.as_secs_f64());
        let of = |of: fn(&(Duration, Duration)) -> Duration| median(times.iter().map(of).collect()).as_micros();
        println!(
            "{name}: p99 {} us quiet, {} us flooded; of their ratios the median {:.2}, {:.2} to {:.2}",
            of(|times| times.0),
            of(|times| times.1),
            median(ratios.clone().collect()),
            ratios.clone().fold(f64::INFINITY, f64::min),
            ratios.fold(0.0, f64::max),
        );
    }
    // Connections to the origin may stay; those of clients may not.
    until_true("descriptors to be given back", || gateway.process().descriptors() <= descriptors + 256);
    let left = gateway.process().resident().saturating_sub(resident);
    assert!(left < LEFT_BYTES_MAX, "{left} bytes are left");
    drop(client);
    gateway.finish();
}
