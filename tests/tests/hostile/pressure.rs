//! R6, R7, R8, X2: clients that are slow on purpose.

use std::io::Write;
use std::time::{Duration, Instant};

use weir_tests::client::End;
use weir_tests::deadline;
use weir_tests::gateway::Config;
use weir_tests::wire::encode;

use crate::scene::Scene;

/// R6: the deadline is of the whole head; one more byte now and then does not extend it.
#[test]
fn r6_a_head_that_trickles_in_runs_into_its_deadline() {
    let mut scene = Scene::set_with(|config| config.listener("head_timeout = \"500ms\""));
    let head = encode(&["SET", "k", "a-longer-value-that-never-gets-there"]);
    let mut client = scene.gateway.connect();
    let started = Instant::now();
    let mut ended = None;
    for byte in &head[..head.len() - 2] {
        if client.try_send(&[*byte]).is_err() {
            break;
        }
        // The pace of the attack.
        if let Err(end) = client.try_reply(Duration::from_millis(60)) {
            if end != End::Silent {
                ended = Some(end);
                break;
            }
        } else {
            break;
        }
    }
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(3), "closed after {took:?} ({ended:?})");
    assert_eq!(scene.server.connect().call(&["EXISTS", "k"]), b":0\r\n");
    scene.unharmed();
}

#[test]
fn an_idle_client_is_not_a_slow_one() {
    let scene = Scene::set_with(|config| config.listener("head_timeout = \"200ms\""));
    let mut client = scene.gateway.connect();
    client.expect_silence(Duration::from_millis(700));
    client.expect(&["PING"], b"+PONG\r\n");
    // A deadline that was met is over.
    client.expect_silence(Duration::from_millis(700));
    client.expect(&["PING"], b"+PONG\r\n");
}

/// R7: a million PINGs from a client that never reads. Reading stops at the high-water mark.
#[test]
fn r7_a_client_that_never_reads_is_not_read_any_more() {
    let mut scene = Scene::set();
    let mut client = scene.gateway.connect();
    client.stream().set_write_timeout(Duration::from_secs(2)).expect("a write timeout");
    let batch = b"PING\r\n".repeat(10_000);
    let mut written = 0;
    for _ in 0..2_000 {
        match client.stream().write(&batch) {
            Ok(length) => written += length,
            Err(_) => break,
        }
    }
    assert!(written < 60_000_000, "the gateway took all {written} bytes of a client that never reads");
    scene.unharmed();
    // It still is in step once it reads.
    let mut seen = 0;
    while seen < 1_000 {
        assert_eq!(client.reply(), b"+PONG\r\n");
        seen += 1;
    }
}

#[test]
fn r7_the_same_with_commands_of_the_server() {
    let mut scene = Scene::set();
    scene.server.connect().expect(&["SET", "k", &"v".repeat(4_000)], b"+OK\r\n");
    let mut client = scene.gateway.connect();
    client.stream().set_write_timeout(Duration::from_secs(2)).expect("a write timeout");
    let batch = encode(&["GET", "k"]).repeat(5_000);
    let mut blocked = false;
    // The sockets on both sides take some megabytes by themselves.
    for _ in 0..600 {
        if client.stream().write_all(&batch).is_err() {
            blocked = true;
            break;
        }
    }
    assert!(blocked, "a client that never reads was read without end");
    scene.unharmed();
}

/// A small cap, and a server that has time: it makes replies of 80 MB, several at once, and small ones behind them.
fn patient(config: Config) -> Config {
    let timeouts = "connect_timeout = \"15s\"\nrequest_timeout = \"15s\"\nlane_wait_timeout = \"15s\"";
    config.listener("output_hard_cap = \"4MiB\"").upstream(timeouts)
}

fn with_little_memory(config: Config) -> Config {
    patient(config.tables("[limits]\nbuffered_bytes = \"8MiB\""))
}

/// R8: huge replies to readers that do not read. The memory held for each is bounded. Past the bound the gateway closes the slow
/// one, not its neighbours.
#[test]
fn r8_a_huge_reply_to_a_client_that_does_not_read_is_bounded() {
    let mut scene = Scene::set_with(with_little_memory);
    let script = "for n = 1, 40 do redis.call('RPUSH', KEYS[1], string.rep('x', 2000000)) end return 1";
    scene.server.connect().expect(&["EVAL", script, "1", "huge"], b":1\r\n");
    // There is no memory for what they do not read, so they are cut.
    let mut slow: Vec<_> = (0..2).map(|_| scene.gateway.connect()).collect();
    for client in &mut slow {
        client.command(&["LRANGE", "huge", "0", "-1"]);
    }
    // Every chance to buffer: the victim makes 300 more requests meanwhile.
    let before = scene.gateway.metric("weir_requests_total");
    scene.gateway.wait_metric("weir_requests_total", &[], before + 300.0);
    scene.unharmed();
    drop(slow);
    scene.gateway.wait_at_rest();
}

#[test]
fn r8_a_huge_reply_reaches_a_client_that_reads() {
    let mut scene = Scene::set_with(patient);
    let script = "for n = 1, 40 do redis.call('RPUSH', KEYS[1], string.rep('x', 2000000)) end return 1";
    scene.server.connect().expect(&["EVAL", script, "1", "huge"], b":1\r\n");
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let mut client = scene.gateway.connect();
            std::thread::spawn(move || {
                let reply = client.call(&["LRANGE", "huge", "0", "-1"]);
                assert_eq!(reply.len(), 5 + 40 * (10 + 2_000_000 + 2), "a whole reply");
                client.expect(&["PING"], b"+PONG\r\n");
            })
        })
        .collect();
    for reader in readers {
        reader.join().expect("a reader gets everything");
    }
    // The gateway buffered the huge replies, so the requests behind them were not held up; it has enough memory for that.
    scene.victim_unharmed();
}

#[test]
fn r8_a_slow_writer_of_a_large_value_holds_nobody_up() {
    let mut scene = Scene::set();
    let mut slow: Vec<_> = (0..10).map(|_| scene.gateway.connect()).collect();
    for (number, client) in slow.iter_mut().enumerate() {
        client.send(format!("*3\r\n$3\r\nSET\r\n$2\r\nk{number}\r\n$8000000\r\n").as_bytes());
        client.send(&vec![b'x'; 1_000_000]);
    }
    // Other clients write through the same gateway meanwhile.
    let mut other = scene.gateway.connect();
    for number in 0..200 {
        let reply = other.call(&["SET", "other", &number.to_string()]);
        assert_eq!(reply, b"+OK\r\n");
    }
    for client in &mut slow {
        client.send(&vec![b'x'; 7_000_000]);
        client.send(b"\r\n");
    }
    for client in &mut slow {
        assert_eq!(client.reply(), b"+OK\r\n");
    }
    drop((slow, other));
    scene.victim_unharmed();
}

/// X2: half-closed and silent, many of them.
#[test]
fn x2_half_closed_connections_do_not_stay() {
    let mut scene = Scene::set_with(|config| config.listener("half_close_timeout = \"300ms\""));
    let descriptors = scene.gateway.process().descriptors();
    let mut halves: Vec<_> = (0..300).map(|_| scene.gateway.connect()).collect();
    for (number, client) in halves.iter_mut().enumerate() {
        if number % 2 == 0 {
            client.send(b"*2\r\n$3\r\nGET\r\n$10\r\nhalf");
        }
        client.stream().half_close().expect("the write side closes");
    }
    deadline::until_true("the half-closed connections to go", || scene.gateway.metric("weir_connections_open") <= 2.0);
    for client in &mut halves {
        let (_, end) = client.read_to_end(Duration::from_secs(5));
        assert_ne!(end, End::Silent);
    }
    deadline::until_true("descriptors to be back at the baseline", || {
        scene.gateway.process().descriptors() <= descriptors + 2
    });
    scene.unharmed();
}

#[test]
fn x2_a_half_closed_client_that_never_reads_its_replies_is_cut() {
    let mut scene = Scene::set_with(|config| with_little_memory(config.listener("half_close_timeout = \"500ms\"")));
    scene.server.connect().expect(&["SET", "k", &"v".repeat(4_000_000)], b"+OK\r\n");
    let mut client = scene.gateway.connect();
    client.send(&encode(&["GET", "k"]).repeat(10));
    client.stream().half_close().expect("the write side closes");
    deadline::until_true("the connection to be cut", || scene.gateway.metric("weir_connections_open") <= 1.0);
    scene.unharmed();
}
