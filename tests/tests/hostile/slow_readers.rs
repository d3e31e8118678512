//! S1: what one client's large reply costs the others of its worker.
//!
//! `proof_of_reader_speeds` measures the table of reader speeds and sizes.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_tests::certificate::Certificates;
use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::slow_reader::{KINDS, PacedReader, Waits, prepare, request, waits_beside};
use weir_tests::stream::Address;

const MB: u64 = 1_000_000;
/// The promise is 100 ms; a build without optimisation on a busy machine gets room. The mistakes took seconds.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A reader of `kind` at `rate`, and what four others wait beside it for `time`.
fn beside(gateway: &Gateway, kind: &str, mebibytes: usize, rate: u64, time: Duration) -> Waits {
    let started = Instant::now();
    let others = std::thread::scope(|scope| {
        let others = scope.spawn(|| waits_beside(&gateway.address, 4, || started.elapsed() > time));
        // They are there before it, and some of their requests stand behind its own.
        deadline::until_true("the others to be served", || gateway.metric("weir_requests_total") > 50.0);
        let reader = PacedReader::start(gateway.connect(), &request(kind, mebibytes), rate);
        let waits = others.join().expect("the others end in order");
        assert!(reader.bytes() > 0, "the reader got nothing");
        waits
    });
    gateway.wait_at_rest();
    others
}

#[test]
fn a_slow_reader_of_a_large_value_stops_nobody_else() {
    let server = Server::start(Kind::Redis);
    prepare(&mut server.connect(), 16);
    let gateway = Gateway::start(Config::to(&server.address).listener("output_hard_cap = \"4MiB\""));
    let waits = beside(&gateway, "GET", 16, 3 * MB, Duration::from_millis(2_500));
    assert!(waits.worst < WAIT_MAX, "{waits:?}");
    assert_eq!(gateway.metric("weir_defensive_closes_total"), 0.0, "there is memory for it");
}

#[test]
fn large_replies_of_every_kind_stop_nobody_else() {
    let server = Server::start(Kind::Redis);
    prepare(&mut server.connect(), 16);
    for kind in KINDS.iter().filter(|kind| **kind != "GET") {
        let gateway = Gateway::start(Config::to(&server.address).listener("output_hard_cap = \"4MiB\""));
        let waits = beside(&gateway, kind, 16, 3 * MB, Duration::from_millis(1_500));
        assert!(waits.worst < WAIT_MAX, "{kind}: {waits:?}");
    }
}

#[test]
fn a_slow_reader_over_tls_stops_nobody_else() {
    let server = Server::start(Kind::Redis);
    prepare(&mut server.connect(), 16);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let (cert, key) = (files.server.display(), files.server_key.display());
    let port = weir_tests::port::free();
    let tls = format!(
        "[[listener]]\nname = \"tls\"\nprotocol = \"redis\"\nbind = \"127.0.0.1:{port}\"\nupstream = \"server\"\n\
         output_hard_cap = \"4MiB\"\n[listener.tls]\ncert_file = \"{cert}\"\nkey_file = \"{key}\""
    );
    let gateway = Gateway::start(Config::to(&server.address).tables(&tls));
    let started = Instant::now();
    let client = Client::connect_tls(Address::port(port).tcp(), files.client_config());
    let reader = PacedReader::start(client, &request("GET", 16), 3 * MB);
    let waits = waits_beside(&gateway.address, 4, || started.elapsed() > Duration::from_secs(2));
    assert!(waits.worst < WAIT_MAX, "{waits:?}");
    deadline::until_true("the reader to get on", || reader.bytes() > 3 * MB);
}

/// Without memory for what it does not read it goes, by name, before the others have waited long.
#[test]
fn a_slow_reader_is_cut_when_memory_is_short() {
    let server = Server::start(Kind::Redis);
    prepare(&mut server.connect(), 24);
    let config = Config::to(&server.address).listener("output_hard_cap = \"4MiB\"");
    let gateway = Gateway::start(config.tables("[limits]\nbuffered_bytes = \"8MiB\""));
    let (is_over, begun) = (AtomicBool::new(false), Instant::now());
    let is_enough = || is_over.load(Ordering::Relaxed) || begun.elapsed() > Duration::from_secs(30);
    let in_flight = |count: f64| {
        deadline::until_true("the requests to wait", || gateway.metric("weir_requests_in_flight") == count);
    };
    let waits = std::thread::scope(|scope| {
        let others = scope.spawn(|| waits_beside(&gateway.address, 4, is_enough));
        deadline::until_true("the others to be served", || gateway.metric("weir_requests_total") > 50.0);
        // A request of another client stands behind its own, whatever the machine does: the server takes both at once.
        let frozen = server.freeze();
        in_flight(4.0);
        let reader = PacedReader::start(gateway.connect(), &request("GET", 24), 3 * MB);
        in_flight(5.0);
        let mut behind = gateway.connect();
        behind.command(&["GET", "no-such-key"]);
        in_flight(6.0);
        drop(frozen);
        let started = Instant::now();
        assert_eq!(behind.reply(), b"$-1\r\n");
        assert!(started.elapsed() < WAIT_MAX, "the one behind it waited {:?}", started.elapsed());
        std::thread::sleep(Duration::from_millis(2_500).saturating_sub(started.elapsed()));
        assert!(reader.bytes() > 0, "the reader got nothing");
        is_over.store(true, Ordering::Relaxed);
        others.join().expect("the others end in order")
    });
    gateway.wait_at_rest();
    assert!(waits.worst < WAIT_MAX, "{waits:?}");
    let metrics = gateway.metrics();
    for counter in ["weir_defensive_closes_total", "weir_violations_total"] {
        assert_eq!(metrics.sum_where(counter, &[("reason", "slow_reader")]), 1.0, "{counter}");
    }
    gateway.wait_log("slow_reader");
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
}

/// A pipeline of values, none of them large, is as much of a load on its lane as one large value.
#[test]
fn a_slow_reader_of_many_values_stops_nobody_else() {
    let server = Server::start(Kind::Redis);
    prepare(&mut server.connect(), 1);
    let gateway = Gateway::start(Config::to(&server.address).listener("output_hard_cap = \"4MiB\""));
    let started = Instant::now();
    let reader = PacedReader::start(gateway.connect(), &request("GET", 1).repeat(16), 3 * MB);
    let waits = waits_beside(&gateway.address, 4, || started.elapsed() > Duration::from_secs(2));
    assert!(waits.worst < WAIT_MAX, "{waits:?}");
    assert!(!reader.is_over(), "it reads");
}

/// 64 clients of a worker may read large replies at their own pace. With more of them the first ones have a second in all, however
/// much they read in between; a little now and then was enough to stay.
#[test]
fn slow_readers_hold_no_more_connections_than_they_may() {
    const LANES_MAX: usize = 64 + 1;
    /// A reader that comes before its predecessor has much of its reply shares the lane: a few may.
    const READERS: usize = LANES_MAX + 8;
    let server = Server::start(Kind::Redis);
    prepare(&mut server.connect(), 16);
    let gateway = Gateway::start(Config::to(&server.address).workers(1));
    let lanes = || gateway.metrics().sum_where("weir_lanes_open", &[("kind", "shared")]) as usize;
    let read = || {
        let reader = PacedReader::start(gateway.connect(), &request("GET", 16), MB / 4);
        deadline::until_true("the reader to begin", || reader.bytes() > 0);
        // So that the lane is its own.
        std::thread::sleep(Duration::from_millis(30));
        reader
    };
    let _readers: Vec<PacedReader> = (0..READERS).map(|_| read()).collect();
    deadline::until_true("the first ones to have had their second", || lanes() <= LANES_MAX);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(lanes(), LANES_MAX, "and no others");
    let closed = gateway.metrics().sum_where("weir_violations_total", &[("reason", "slow_reader")]) as usize;
    assert!((1..=READERS - LANES_MAX).contains(&closed), "{closed} of {READERS} were closed");
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
}

/// Memory of what was taken in for a slow reader comes back while it reads, and all of it when it leaves.
#[test]
fn memory_of_a_slow_reader_comes_back() {
    let server = Server::start(Kind::Redis);
    prepare(&mut server.connect(), 64);
    let mut gateway = Gateway::start(Config::to(&server.address).listener("output_hard_cap = \"4MiB\""));
    let before = gateway.process().resident();
    for _ in 0..3 {
        let waits = beside(&gateway, "GET", 64, 20 * MB, Duration::from_millis(700));
        assert!(waits.worst < 3 * WAIT_MAX, "{waits:?}");
    }
    deadline::until_true("memory to be back", || gateway.process().resident() < before + (32 << 20));
    assert!(gateway.process().resident_peak() < before + (128 << 20), "one reply at a time");
}

fn listed(name: &str, default: &str) -> Vec<u64> {
    let text = std::env::var(name).unwrap_or_else(|_| default.to_owned());
    text.split(',').map(|number| number.trim().parse().expect("a list of numbers")).collect()
}

/// Prints the table, with a release build in `WEIR_BIN`:
/// `WEIR_PROOF_SIZES=1,20,100,500 WEIR_PROOF_SPEEDS=0,1,5,20,60,100` (MiB, MB/s) are the defaults.
#[test]
#[ignore = "a measurement of minutes"]
fn proof_of_reader_speeds() {
    let time = Duration::from_secs_f64(listed("WEIR_PROOF_MILLIS", "4000")[0] as f64 / 1e3);
    let server = Server::start(Kind::Redis);
    let mut table = String::from("| reply | MiB | reader MB/s | Weir: worst wait, ms | direct, ms | cut |\n");
    table += "|---|---:|---:|---:|---:|---:|\n";
    for size in listed("WEIR_PROOF_SIZES", "1,20,100,500") {
        prepare(&mut server.connect(), size as usize);
        for kind in KINDS.iter().filter(|kind| **kind == "GET" || size == 100) {
            for speed in listed("WEIR_PROOF_SPEEDS", "0,1,5,20,60,100") {
                if *kind != "GET" && ![5, 60].contains(&speed) {
                    continue;
                }
                let gateway = Gateway::start(Config::to(&server.address));
                let mut worst = [Duration::ZERO; 2];
                for (address, worst) in [&gateway.address, &server.address].into_iter().zip(&mut worst) {
                    *worst = measured(address, kind, size as usize, speed * MB, time).worst;
                }
                let cut = gateway.metric("weir_defensive_closes_total");
                let [weir, direct] = worst.map(|wait| wait.as_secs_f64() * 1e3);
                let _ = writeln!(table, "| {kind} | {size} | {speed} | {weir:.1} | {direct:.1} | {cut} |");
            }
        }
    }
    println!("{table}");
}

/// Eight victims for `time`, or until the reader has its reply, and the reader from a fifth of a second on.
fn measured(address: &Address, kind: &str, mebibytes: usize, rate: u64, time: Duration) -> Waits {
    let started = Instant::now();
    std::thread::scope(|scope| {
        let victims = scope.spawn(|| waits_beside(address, 8, || started.elapsed() > time));
        // The pace of the measurement.
        std::thread::sleep(Duration::from_millis(200));
        let _reader = PacedReader::start(Client::connect(address), &request(kind, mebibytes), rate);
        victims.join().expect("the victims end in order")
    })
}
