//! S5: a client disconnects in the middle of a request and reconnects at once, perhaps to another worker. Commands sent before
//! must not take effect after a command whose reply it has received.
//!
//! `proof_of_reconnects` prints how many writes were stale.

use std::io::Read as _;
use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::stream::Address;
use weir_tests::wire::{encode, encode_all};

/// The longest wait for what the connection before left behind. A worker that gets no processor for so long is overtaken.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// `SET key old`, gone without reading, back at once with `SET key new`: how many of `rounds` keys of client `number` end as `old`
/// at the server, of those that waited for less than [`WAIT_MAX`].
fn stale_writes(connect: impl Fn() -> Client, server: &Server, number: usize, rounds: usize) -> usize {
    let key = |round| format!("{number}:{round}");
    let write = |round| {
        let mut first = connect();
        first.send(&encode(&["SET", &key(round), "old"]));
        // A process that another test starts has copies of all descriptors until its exec: up to then a close alone sends no FIN.
        first.stream().half_close().expect("the write side closes");
        drop(first);
        let back_at = Instant::now();
        connect().expect(&["SET", &key(round), "new"], b"+OK\r\n");
        back_at.elapsed()
    };
    let waits: Vec<Duration> = (0..rounds).map(write).collect();
    let overtaken = waits.iter().filter(|wait| **wait >= WAIT_MAX).count();
    assert!(overtaken <= rounds / 20, "{overtaken} of {rounds} waited for {WAIT_MAX:?}");
    let mut reader = server.connect();
    // The last of them may still be under way.
    std::thread::sleep(Duration::from_millis(200));
    let mut is_stale = |round| reader.call(&["GET", &key(round)]) != b"$3\r\nnew\r\n";
    let stale: Vec<_> = waits.iter().enumerate().filter(|(round, _)| is_stale(*round)).collect();
    if !stale.is_empty() {
        println!("client {number}: stale rounds and their waits: {stale:?}");
    }
    stale.iter().filter(|(_, wait)| **wait < WAIT_MAX).count()
}

fn stale_writes_of(address: &Address, server: &Server, clients: usize, rounds: usize) -> usize {
    std::thread::scope(|scope| {
        let run = |number| scope.spawn(move || stale_writes(|| Client::connect(address), server, number, rounds));
        let clients: Vec<_> = (0..clients).map(run).collect();
        clients.into_iter().map(|client| client.join().expect("a client ends in order")).sum()
    })
}

#[test]
fn a_write_from_before_a_reconnect_never_overwrites_a_later_one() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).workers(2));
    assert_eq!(stale_writes_of(&gateway.address, &server, 1, 300), 0, "one client");
    assert_eq!(stale_writes_of(&gateway.address, &server, 3, 100), 0, "three clients at once");
}

/// A client that the proxy at the other end names.
fn behind_proxy(gateway: &Gateway, source: &str) -> Client {
    let mut client = gateway.connect();
    client.send(format!("PROXY TCP4 {source} 127.0.0.1 40000 6379\r\n").as_bytes());
    client
}

#[test]
fn behind_a_proxy_the_clients_that_it_names_are_distinguished() {
    let server = Server::start(Kind::Redis);
    let lines = "proxy_protocol = \"v1\"\nproxy_trusted = [\"127.0.0.0/8\"]";
    let gateway = Gateway::start(Config::to(&server.address).listener(lines).workers(2));
    let stale = std::thread::scope(|scope| {
        let (gateway, server) = (&gateway, &server);
        let run = |number| {
            let source = format!("10.0.0.{number}");
            scope.spawn(move || stale_writes(|| behind_proxy(gateway, &source), server, number, 100))
        };
        let clients: Vec<_> = (0..3).map(run).collect();
        clients.into_iter().map(|client| client.join().expect("a client ends in order")).sum::<usize>()
    });
    assert_eq!(stale, 0);
    one_waits_and_another_does_not(
        &server,
        || behind_proxy(&gateway, "10.0.0.1"),
        || {
            behind_proxy(&gateway, "10.0.0.2").expect(&["PING"], b"+PONG\r\n");
        },
    );
}

/// A client that comes back, with `connect`, waits for the command it left behind, which a frozen server holds up. `other` is somebody
/// else's exchange meanwhile.
fn one_waits_and_another_does_not(server: &Server, connect: impl Fn() -> Client, other: impl FnOnce()) {
    let frozen = server.freeze();
    let mut gone = connect();
    gone.send(&encode(&["SET", "key", "old"]));
    gone.stream().half_close().expect("the write side closes");
    let mut back = connect();
    back.send(&encode(&["PING"]));
    other();
    back.expect_silence(Duration::from_millis(20));
    assert_eq!(back.reply(), b"+PONG\r\n");
    drop(frozen);
    assert_eq!(gone.reply(), b"+OK\r\n");
}

/// All that connect over a Unix socket had one place to wait at.
#[test]
fn over_a_unix_socket_processes_do_not_wait_for_each_other() {
    let server = Server::start(Kind::Redis);
    let mut config = Config::to(&server.address).workers(2);
    config.unix = true;
    let gateway = Gateway::start(config);
    assert_eq!(stale_writes_of(&gateway.address, &server, 1, 100), 0);
    let Address::Unix(path) = &gateway.address else { panic!("a path") };
    one_waits_and_another_does_not(
        &server,
        || gateway.connect(),
        || {
            let other =
                std::process::Command::new("redis-cli").arg("-s").arg(path).arg("PING").output().expect("redis-cli");
            assert_eq!(other.stdout, b"PONG\n");
        },
    );
}

/// The command has been carried out when its reply begins; that its client takes its time to read it is no reason to wait.
#[test]
fn a_reply_that_a_half_closed_client_does_not_read_holds_up_nobody() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).workers(2));
    server.connect().expect(&[b"SET", &b"large"[..], &vec![b'v'; 64 << 20]], b"+OK\r\n");
    let mut gone: Vec<Client> = Vec::new();
    let mut waited = Duration::ZERO;
    for _ in 0..4 {
        let mut client = gateway.connect();
        client.send(&encode(&["GET", "large"]));
        client.stream().half_close().expect("the write side closes");
        client.stream().read_exact(&mut [0; 1]).expect("the beginning of the reply");
        gone.push(client);
        let started = Instant::now();
        gateway.connect().expect(&["PING"], b"+PONG\r\n");
        waited += started.elapsed();
    }
    assert!(waited < Duration::from_millis(1_500), "waited {waited:?} for four");
}

/// A server that takes nothing: requests wait in the gateway, and their client is gone.
#[test]
fn unsent_requests_of_a_reset_client_are_taken_back() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).upstream("request_timeout = \"10s\""));
    let mut other = gateway.connect();
    other.expect(&["SET", "key", "first"], b"+OK\r\n");
    let frozen = server.freeze();
    // More than the sockets on the way to the server take.
    let filling = encode(&["SET", "filling", &"x".repeat(60_000)]).repeat(200);
    let mut fillers: Vec<_> = (0..2).map(|_| gateway.connect()).collect();
    for filler in &mut fillers {
        filler.stream().set_write_timeout(Duration::from_millis(300)).expect("a write timeout");
        let _ = filler.try_send(&filling);
    }
    // The gateway reads no more than it gets rid of: then the way to the server is full.
    let mut read = 0.0;
    weir_tests::deadline::until_true("the gateway to read no more", || {
        std::thread::sleep(Duration::from_millis(300));
        let before = std::mem::replace(&mut read, gateway.metric("weir_client_read_bytes_total"));
        read == before && read > 0.0
    });
    let mut gone = gateway.connect();
    let before = gateway.metric("weir_requests_total");
    gone.send(&encode_all(&[&["PING"], &["SET", "key", "old"]]));
    gateway.wait_metric("weir_requests_total", &[], before + 2.0);
    // It has not read the reply to PING, so this resets the connection.
    drop(gone);
    weir_tests::deadline::until_true("the client to be gone", || gateway.metric("weir_connections_open") == 3.0);
    drop(frozen);
    for filler in &mut fillers {
        assert_eq!(filler.reply(), b"+OK\r\n");
    }
    other.expect(&["GET", "key"], b"$5\r\nfirst\r\n");
}

/// The waiting commands of a paused client are dropped when it disconnects, as at a server.
#[test]
fn commands_held_by_a_pause_go_with_their_client() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).listener("[listener.redis]\nadmin_commands = true"));
    let mut other = gateway.connect();
    other.expect(&["SET", "key", "first"], b"+OK\r\n");
    other.expect(&["CLIENT", "PAUSE", "60000", "WRITE"], b"+OK\r\n");
    let mut gone = gateway.connect();
    gone.send(&encode(&["SET", "key", "old"]));
    weir_tests::deadline::until_true("the client to be there", || gateway.metric("weir_connections_open") == 2.0);
    drop(gone);
    weir_tests::deadline::until_true("the client to be gone", || gateway.metric("weir_connections_open") == 1.0);
    other.expect(&["CLIENT", "UNPAUSE"], b"+OK\r\n");
    other.expect(&["GET", "key"], b"$5\r\nfirst\r\n");
}

/// Unanswered requests of an address hold up its next connection for a second, and no longer.
#[test]
fn a_server_that_does_not_answer_holds_up_a_reconnect_for_a_second_at_most() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).workers(2));
    // One on each worker, so that both have a connection to the server.
    let mut others = [gateway.connect(), gateway.connect()];
    others.iter_mut().for_each(|other| other.expect(&["SET", "key", "first"], b"+OK\r\n"));
    let frozen = server.freeze();
    let mut gone = gateway.connect();
    gone.send(&encode(&["SET", "key", "old"]));
    gone.stream().half_close().expect("the write side closes");
    let started = Instant::now();
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
    assert!(started.elapsed() < Duration::from_secs(3), "waited {:?}", started.elapsed());
    drop(frozen);
    assert_eq!(gone.reply(), b"+OK\r\n", "a half-closed client still gets its reply");
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Prints stale writes, direct and through: `WEIR_PROOF_RECONNECTS` (10,000) by four clients.
#[test]
#[ignore = "a measurement of a minute"]
fn proof_of_reconnects() {
    let rounds = number("WEIR_PROOF_RECONNECTS", 10_000) / 4;
    let server = Server::start(Kind::Redis);
    println!("| | reconnects | stale | seconds |\n|---|---:|---:|---:|");
    let report = |name: &str, address: &Address| {
        let started = Instant::now();
        let stale = stale_writes_of(address, &server, 4, rounds);
        println!("| {name} | {} | {stale} | {:.1} |", 4 * rounds, started.elapsed().as_secs_f64());
    };
    report("direct", &server.address);
    for workers in [1, 2, 4] {
        let gateway = Gateway::start(Config::to(&server.address).workers(workers));
        report(&format!("{workers} workers"), &gateway.address);
    }
}
