//! A thousand clients that read large replies slowly, within the byte budget of the process: case M12 at its full size.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_engine::net::raise_descriptor_limit;
use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::message::Flags;
use weir_tests::deadline::{until, until_true};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::mongodb::fake::{Act, Fake, honest};
use weir_tests::mongodb::wire::{Wire, find, message};
use weir_tests::stream::Stream;

use crate::gateway::before;

const CLIENTS: usize = 1_000;
/// Bytes of a reply.
const LARGE: usize = 16 << 20;
/// `limits.buffered_bytes`.
const BUDGET: u64 = 32 << 20;
/// Bytes that each client may cost besides: the chunk of its server that came when the budget had no room, and the room of its output.
const CLIENT_BYTES_MAX: u64 = 96 * 1024;
/// Bytes that each client reads, and the pause behind it.
const PIECE: usize = 1_000;
const PAUSE: Duration = Duration::from_millis(200);
/// All of them get a server in this time, in a debug build on a busy machine.
const STARTED_WITHIN: Duration = Duration::from_secs(60);

fn on_notes(body: &mut Writer<'_>, command: &str) {
    body.string(command, "notes");
    body.string("$db", "test");
}

/// A server that answers `count` once `is_open`, and `aggregate` with a large reply, of which it has one copy.
fn server(is_open: &Arc<AtomicBool>) -> Fake {
    let whole = message(0, Flags::empty(), |body| {
        body.string("text", "x".repeat(LARGE));
        body.double("ok", 1.0);
    });
    let (large, is_open) = (Arc::<[u8]>::from(&whole[16..]), is_open.clone());
    Fake::start_narrow(move |asked| match asked.name {
        "aggregate" => Act::Shared(large.clone()),
        "count" => {
            while !is_open.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
            }
            honest(asked)
        }
        _ => honest(asked),
    })
}

fn connect(gateway: &Gateway) -> Wire {
    // The kernel holds little of a Unix socket that is not read, and much of a TCP connection to this machine.
    Wire::over(Stream::connect(&gateway.address).expect("connected")).greet(|_| {}).0
}

#[test]
fn m12_a_thousand_slow_readers_of_16_mib_stay_within_the_byte_budget() {
    raise_descriptor_limit().expect("a higher limit");
    let is_open = Arc::new(AtomicBool::new(false));
    let server = server(&is_open);
    let config = before(&server.address, "queue_wait_timeout = \"60s\"", &format!("pool_size = {}", CLIENTS + 1));
    let limits = format!("[limits]\nbuffered_bytes = \"{}MiB\"", BUDGET >> 20);
    let mut gateway = Gateway::start(Config { unix: true, ..config.tables(&limits).workers(2) });
    let mut victim = connect(&gateway);
    let mut readers: Vec<Wire> = (0..CLIENTS).map(|_| connect(&gateway)).collect();
    // Each has had a connection to the server, whose cost is no part of the budget.
    for wire in &mut readers {
        wire.ask(Flags::empty(), |body| on_notes(body, "count"));
    }
    until("each has a server", STARTED_WITHIN, || (server.count("count") == CLIENTS as u64).then_some(()));
    is_open.store(true, Ordering::Relaxed);
    readers.iter_mut().for_each(|wire| assert!(wire.reply().expect("a reply").is_ok()));
    let resident = gateway.process().resident();
    for wire in &mut readers {
        wire.ask(Flags::empty(), |body| on_notes(body, "aggregate"));
    }
    until("all are under way", STARTED_WITHIN, || (server.count("aggregate") == CLIENTS as u64).then_some(()));
    let (mut buffered, mut grown, mut waits) = (0.0_f64, 0, Vec::new());
    let mut piece = [0; PIECE];
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        for wire in &readers[1..] {
            wire.socket().duplicate().read_exact(&mut piece).expect("a piece of the reply");
        }
        let asked = Instant::now();
        assert_eq!(victim.call(|body| find(body, "notes", 2)).batch(), [1, 2]);
        waits.push(asked.elapsed());
        buffered = buffered.max(gateway.metric("weir_buffered_bytes"));
        grown = grown.max(gateway.process().resident().saturating_sub(resident));
        std::thread::sleep(PAUSE);
    }
    let most = BUDGET + CLIENTS as u64 * CLIENT_BYTES_MAX;
    assert!(grown <= most, "{} KiB more for each client, {grown} bytes in all", grown / 1024 / CLIENTS as u64);
    assert!(buffered <= BUDGET as f64, "{buffered} bytes are charged");
    // On a busy machine a single wait says little.
    waits.sort_unstable();
    let usual = waits[waits.len() / 2];
    assert!(usual < Duration::from_secs(1), "another client waited {waits:?}");
    // No client was disconnected, and one that reads at last has all of it.
    assert_eq!(gateway.metric("weir_connections_open"), (CLIENTS + 1) as f64);
    assert_eq!(gateway.metric("weir_defensive_closes_total"), 0.0, "{}", gateway.log());
    let reply = readers[0].reply().expect("a whole reply");
    assert_eq!(reply.text(&["text"]).len(), LARGE);
    println!("{grown} bytes more, {buffered} charged, another client waited {usual:?}");
    // Without the server first: the gateway would read the rest of each reply.
    drop(server);
    drop(readers);
    until_true("nothing is held", || gateway.metric("weir_buffered_bytes") == 0.0);
    drop(victim);
    gateway.finish();
}

/// With a small pool most of them wait in line. Where the budget has room, the rest of a reply is taken for them, and the others are
/// refused in their time.
#[test]
fn m12_slow_readers_of_a_small_pool_stay_within_the_byte_budget() {
    const READERS: usize = 200;
    const POOL: usize = 8;
    let server = server(&Arc::new(AtomicBool::new(true)));
    let config = before(&server.address, "queue_wait_timeout = \"3s\"", &format!("pool_size = {POOL}"));
    let limits = format!("[limits]\nbuffered_bytes = \"{}MiB\"", BUDGET >> 20);
    let mut gateway = Gateway::start(Config { unix: true, ..config.tables(&limits).workers(2) });
    let mut readers: Vec<Wire> = (0..READERS).map(|_| connect(&gateway)).collect();
    for wire in &mut readers {
        assert!(wire.call(|body| on_notes(body, "count")).is_ok());
    }
    let resident = gateway.process().resident();
    for wire in &mut readers {
        wire.ask(Flags::empty(), |body| on_notes(body, "aggregate"));
    }
    until("the pool is theirs", STARTED_WITHIN, || (server.count("aggregate") >= POOL as u64).then_some(()));
    let (mut buffered, mut grown) = (0.0_f64, 0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        buffered = buffered.max(gateway.metric("weir_buffered_bytes"));
        grown = grown.max(gateway.process().resident().saturating_sub(resident));
        std::thread::sleep(PAUSE);
    }
    assert!(grown <= BUDGET + READERS as u64 * CLIENT_BYTES_MAX, "{grown} bytes in all");
    assert!(buffered <= BUDGET as f64, "{buffered} bytes are charged");
    let (mut served, mut refused) = (0, 0);
    for wire in &mut readers {
        let reply = wire.reply().expect("a reply");
        if reply.code() == 462 {
            refused += 1;
        } else {
            assert_eq!(reply.text(&["text"]).len(), LARGE);
            served += 1;
        }
    }
    assert!(served >= POOL && refused > 0, "{served} are served, {refused} refused");
    println!("{grown} bytes more, {buffered} charged, {served} served, {refused} refused");
    drop(readers);
    until_true("nothing is held", || gateway.metric("weir_buffered_bytes") == 0.0);
    gateway.finish();
}
