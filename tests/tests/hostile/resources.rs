//! X1, X4, X8, X9, X10: descriptors, memory and log sinks that run out, and kills.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::soak;
use weir_tests::stream::Stream;
use weir_tests::victim::Victim;
use weir_tests::wire::{encode, shown};

use crate::scene::Scene;

/// X1: with few descriptors the gateway refuses or waits, does not spin, answers on its admin port,
/// and takes clients again when there is room.
#[test]
fn x1_running_out_of_descriptors() {
    let server = Server::start(Kind::Redis);
    let limits = ["prlimit", "--nofile=160:160"];
    let mut gateway = Gateway::start_behind(&limits, Config::to(&server.address));
    let mut early = gateway.connect();
    deadline::until_true("the server to be reached", || early.call(&["SET", "k", "v"]) == b"+OK\r\n");
    let crowd: Vec<Stream> = (0..300).filter_map(|_| Stream::connect(&gateway.address).ok()).collect();
    assert!(crowd.len() > 160, "the kernel's queue takes more than the process can");
    let metric = |gateway: &Gateway| {
        let metrics = gateway.metrics();
        metrics.sum("weir_accept_errors_total") + metrics.sum("weir_connections_refused_total")
    };
    deadline::until_true("the lack to be noticed", || metric(&gateway) > 0.0);
    // Existing clients go on, the admin port answers, and the CPU is not burnt by a spinning accept.
    let cpu = gateway.process().cpu_time();
    let started = Instant::now();
    let mut responses = 0;
    while started.elapsed() < Duration::from_secs(1) {
        early.expect(&["GET", "k"], b"$1\r\nv\r\n");
        assert_eq!(gateway.admin.get("/livez").status, 200);
        responses += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    let burnt = gateway.process().cpu_time().saturating_sub(cpu);
    assert!(responses > 5 && burnt < Duration::from_millis(700), "{responses} responses, {burnt:?} of CPU");
    drop(crowd);
    deadline::until_true("new clients to be taken", || {
        let Ok(stream) = Stream::connect(&gateway.address) else {
            return false;
        };
        let mut client = Client::over(stream);
        client.try_send(b"PING\r\n").is_ok() && client.try_reply(Duration::from_secs(2)) == Ok(b"+PONG\r\n".to_vec())
    });
}

/// X4: the byte budget is reached and released; what is past it is shed, and all of it comes back.
#[test]
fn x4_the_byte_budget_sheds_and_recovers() {
    let scene = Scene::set_with(|config| config.tables("[limits]\nbuffered_bytes = \"8MiB\""));
    // Each queues almost what a transaction may hold.
    let value = "v".repeat(60_000);
    let mut hoarders: Vec<Client> = (0..12).map(|_| scene.gateway.connect()).collect();
    let mut shed = 0;
    for client in &mut hoarders {
        client.expect(&["MULTI"], b"+OK\r\n");
        for _ in 0..30 {
            let reply = client.call(&["SET", "k", &value]);
            if reply != b"+QUEUED\r\n" {
                assert!(reply.starts_with(b"-ERR weir: "), "{}", shown(&reply));
                shed += 1;
            }
        }
    }
    assert!(shed > 0, "20 MiB were queued under a budget of 8 MiB");
    assert!(scene.gateway.metric("weir_shed_total") >= 1.0);
    let metrics = scene.gateway.metrics();
    assert!(metrics.sum("weir_buffered_bytes") <= metrics.sum("weir_buffered_limit_bytes"), "the budget is kept");
    drop(hoarders);
    deadline::until_true("the budget to be free again", || scene.gateway.metric("weir_buffered_bytes") == 0.0);
    let mut after = scene.gateway.connect();
    after.expect(&["MULTI"], b"+OK\r\n");
    for _ in 0..30 {
        after.expect(&["SET", "k", &value], b"+QUEUED\r\n");
    }
    after.call(&["EXEC"]);
    drop(after);
    // The victim may have been shed as well while the budget was full; it was never disconnected.
    scene.gateway.wait_metric("weir_requests_total", &[], 400.0);
}

#[test]
fn requests_in_flight_are_limited_and_shed_in_words() {
    let server = Server::start(Kind::Redis);
    let config = Config::to(&server.address).tables("[limits]\nin_flight_per_core = 50");
    let gateway = Gateway::start(config);
    let mut clients: Vec<Client> = (0..40).map(|_| gateway.connect()).collect();
    let mut busy = gateway.connect();
    busy.expect(&["INCR", "n"], b":1\r\n");
    let _asleep = server.sleep(Duration::from_secs(2));
    busy.command(&["INCR", "n"]);
    gateway.wait_metric("weir_requests_in_flight", &[], 1.0);
    for client in &mut clients {
        client.send(&encode(&["GET", "k"]).repeat(5));
    }
    let (mut replies, mut shed) = (0, 0);
    for client in &mut clients {
        for _ in 0..5 {
            let reply = client.reply();
            if reply == b"-ERR weir: too many requests in flight\r\n" {
                shed += 1;
            } else {
                assert_eq!(reply, b"$-1\r\n", "{}", shown(&reply));
                replies += 1;
            }
        }
    }
    assert_eq!(busy.reply(), b":2\r\n");
    assert!(replies >= 40 && shed >= 100, "{replies} replies, {shed} shed");
    assert_eq!(gateway.metric("weir_shed_total"), f64::from(shed));
    for client in &mut clients {
        client.expect(&["GET", "k"], b"$-1\r\n");
    }
}

/// All the room that one pipeline frees at once is used at once.
#[test]
fn room_freed_by_a_pipeline_goes_to_as_many_as_wait() {
    // Sixteen replies in one piece, once the test says so; to anybody else, none.
    let goes = Arc::new(AtomicBool::new(false));
    let may_go = goes.clone();
    let upstream = Faulty::start(move |words| match words[1].as_slice() {
        b"last" => {
            deadline::until_true("the test to go on", || may_go.load(Relaxed));
            Act::Reply(b"$-1\r\n".repeat(16))
        }
        _ => Act::Silence,
    });
    let gateway = Gateway::start(Config::to(&upstream.address).tables("[limits]\nin_flight_per_core = 16"));
    let mut first = gateway.connect();
    let mut others: Vec<Client> = (0..16).map(|_| gateway.connect()).collect();
    first.send(&[encode(&["GET", "k"]).repeat(15), encode(&["GET", "last"])].concat());
    gateway.wait_metric("weir_requests_in_flight", &[], 16.0);
    others.iter_mut().for_each(|client| client.command(&["HGET", "other", "field"]));
    // Long enough to arrive, and well before a held command is refused.
    std::thread::sleep(Duration::from_millis(100));
    goes.store(true, Relaxed);
    let begun = Instant::now();
    for _ in 0..16 {
        assert_eq!(first.reply(), b"$-1\r\n");
    }
    deadline::until_true("the others to be let in", || upstream.count("HGET") == 16);
    // A command that is held looks again by itself within a second.
    assert!(begun.elapsed() < Duration::from_millis(800), "{:?}", begun.elapsed());
}

/// X8: killed without warning; a new process serves at once on the same address.
#[test]
fn x8_kill_9_and_a_restart() {
    let server = Server::start(Kind::Redis);
    let config = Config::to(&server.address);
    let mut first = Gateway::start(config.clone());
    let mut clients: Vec<Client> = (0..50).map(|_| first.connect()).collect();
    for client in &mut clients {
        client.expect(&["WATCH", "k"], b"+OK\r\n");
    }
    first.process().kill();
    first.ended();
    let started = Instant::now();
    let second = Gateway::start(config);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?} from start to ready");
    second.connect().expect(&["SET", "k", "v"], b"+OK\r\n");
    deadline::until_true("the server to drop what the dead gateway held", || {
        let count: u32 = server.info("clients", "connected_clients").parse().unwrap_or(99);
        count < 10
    });
    drop(clients);
}

/// X9: the longest times that can be written do not overflow anything.
#[test]
fn x9_huge_timeouts_are_saturated() {
    let server = Server::start(Kind::Redis);
    let config = Config::to(&server.address)
        .listener("head_timeout = \"1h\"\nidle_timeout = \"30d\"\nhalf_close_timeout = \"1h\"")
        .upstream("request_timeout = \"1h\"\nconnect_timeout = \"1h\"\nlane_wait_timeout = \"10m\"");
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    // Far past what a timer may hold; the server decides what is too long.
    client.expect(
        &["BLPOP", "k2", "99999999999999999999"],
        &server.connect().call(&["BLPOP", "k2", "99999999999999999999"]),
    );
    client.command(&["BLPOP", "k2", "9999999"]);
    server.connect().expect(&["RPUSH", "k2", "x"], b":1\r\n");
    assert_eq!(client.reply(), b"*2\r\n$2\r\nk2\r\n$1\r\nx\r\n");
}

/// X10: the log has no reader; the data path does not notice.
#[test]
fn x10_a_blocked_log_stops_no_request() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipe = folder.path().join("log.pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo can be started").success());
    // Opened for reading and never read: the pipe takes 64 KiB, then blocks its writer; 4 MiB of lines may wait besides.
    let holder = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).expect("the pipe opens");
    let config = Config::to(&server.address)
        .tables("[telemetry]\nlog_level = \"debug\"\n[telemetry.access_log]\ntarget = \"stdout\"\nsample = 1.0");
    let words = ["sh", "-c", "exec \"$@\" > \"$0\" 2>&1", pipe.to_str().unwrap_or_default()];
    let gateway = Gateway::start_behind(&words, config);
    deadline::until_true("the gateway to be ready", || gateway.admin.is_ready());
    let victim = Victim::start(&gateway.address);
    let mut client = gateway.connect();
    for _ in 0..400 {
        client.stream().write_all(&encode(&["SET", "k", "v"]).repeat(200)).expect("sent");
        for _ in 0..200 {
            assert_eq!(client.reply(), b"+OK\r\n");
        }
    }
    victim.stop_unharmed();
    deadline::until_true("what the log could not take to be counted", || {
        gateway.metrics().sum("weir_log_events_dropped_total") > 0.0
    });
    assert!(gateway.admin.get("/livez").elapsed < Duration::from_secs(1));
    drop(client);
    // The end must come as well, log or no log.
    gateway.finish();
    drop(holder);
}

/// Memory per idle connection, and all of it back afterwards, twice: what the last round needs beyond the first is a leak, whatever the
/// allocator keeps between them. `WEIR_SOAK_SECONDS` makes a soak of it, with more connections.
#[test]
fn thousands_of_idle_connections_cost_little_and_go() {
    /// Twice the goal of a release build. The buffers of sockets belong to the kernel and are not in it.
    const BYTES_EACH_MAX: u64 = 8 << 10;
    /// Spare buffers of the workers, and noise of the allocator.
    const LEFT_BYTES_MAX: u64 = 4 << 20;
    let count = if soak::requested_duration().is_some() { 10_000 } else { 2_000 };
    let server = Server::start(Kind::Redis);
    let tables = format!("[limits]\nconnections = {}\nconnections_per_source = {}", count + 100, count + 100);
    let mut gateway = Gateway::start(Config::to(&server.address).tables(&tables));
    println!("{} bytes of resident memory at rest", gateway.process().resident());
    gateway.connect().expect(&["SET", "k", "v"], b"+OK\r\n");
    gateway.wait_at_rest();
    let descriptors = gateway.descriptors_besides_lanes();
    let (begun, mut peaks) = (Instant::now(), Vec::new());
    while !soak::is_over(peaks.len() >= 2, begun.elapsed()) {
        let before = gateway.process().resident();
        let each = |gateway: &mut Gateway, what: &str| {
            let each = gateway.process().resident().saturating_sub(before) / count;
            println!("{count} connections that {what}: {each} bytes of resident memory each");
            assert!(each < BYTES_EACH_MAX, "{each} bytes for each of {count} connections that {what}");
        };
        let mut idle: Vec<Client> = (0..count).map(|_| gateway.connect()).collect();
        gateway.wait_metric("weir_connections_open", &[], count as f64);
        each(&mut gateway, "said nothing");
        for client in &mut idle {
            client.expect(&["PING"], b"+PONG\r\n");
        }
        each(&mut gateway, "spoke once");
        peaks.push(gateway.process().resident());
        drop(idle);
        gateway.wait_at_rest();
        deadline::until_true("descriptors to be back", || gateway.descriptors_besides_lanes() <= descriptors);
    }
    println!("resident memory with all connections, each round: {peaks:?}");
    let (first, last) = (peaks[0], peaks[peaks.len() - 1]);
    assert!(last.saturating_sub(first) < LEFT_BYTES_MAX, "a leak: {peaks:?}");
}
