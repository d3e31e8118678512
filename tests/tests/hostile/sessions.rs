//! R9, R10, R16, R19, R20: sessions that try to reach each other.

use std::time::{Duration, Instant};

use weir_tests::client::{Client, End};
use weir_tests::deadline;
use weir_tests::gateway::secret_file;
use weir_tests::stream::Address;
use weir_tests::wire::{encode, shown};

use crate::scene::Scene;

/// R9: blocked clients have connections of their own, a limit, and a refusal past it.
#[test]
fn r9_blocked_clients_are_bounded_and_neighbours_unaffected() {
    let mut scene = Scene::set_with(|config| config.listener("[listener.redis]\nblocking_max = 10"));
    let mut clients: Vec<Client> = (0..15).map(|_| scene.gateway.connect()).collect();
    let mut refused = 0;
    for client in &mut clients {
        client.command(&["BLPOP", "never", "0"]);
    }
    scene.gateway.wait_metric("weir_shed_total", &[], 5.0);
    for client in &mut clients {
        if let Ok(reply) = client.try_reply(Duration::from_millis(50)) {
            assert_eq!(reply, b"-ERR weir: too many blocked clients\r\n", "{}", shown(&reply));
            client.expect(&["PING"], b"+PONG\r\n");
            refused += 1;
        }
    }
    assert_eq!(refused, 5);
    drop(clients);
    deadline::until_true("the server to forget the pops", || scene.server.info("clients", "blocked_clients") == "0");
    scene.unharmed();
}

/// R10: a subscriber that does not read is evicted; the others get everything, in order.
#[test]
fn r10_a_slow_subscriber_is_evicted_alone() {
    const MESSAGES: usize = 400;
    let mut scene =
        Scene::set_with(|config| config.listener("output_high_water = \"256KiB\"\noutput_hard_cap = \"4MiB\""));
    let mut slow = scene.gateway.connect();
    slow.call(&["SUBSCRIBE", "news"]);
    let mut good = scene.gateway.connect();
    good.call(&["SUBSCRIBE", "news"]);
    let reader = std::thread::spawn(move || {
        for number in 0..MESSAGES {
            let message = good.reply();
            let wanted = format!("{number:06}");
            let at = message.windows(6).any(|part| part == wanted.as_bytes());
            assert!(at, "message {number}: {}", shown(&message));
        }
        good
    });
    let mut publisher = scene.gateway.connect();
    for number in 0..MESSAGES {
        let message = format!("{number:06}{}", "m".repeat(100_000));
        let receivers = publisher.call(&["PUBLISH", "news", &message]);
        assert!(receivers == b":2\r\n" || receivers == b":1\r\n", "{}", shown(&receivers));
    }
    let good = reader.join().expect("the good subscriber gets every message");
    drop((good, publisher));
    scene.unharmed();
    drop(slow);
}

/// R10: pushes stand between replies, never inside one.
#[test]
fn r10_pushes_inside_a_pipeline_keep_the_order() {
    let mut scene = Scene::set();
    let mut client = scene.gateway.connect();
    client.call(&["HELLO", "3"]);
    client.call(&["SUBSCRIBE", "own"]);
    let mut bytes = Vec::new();
    for number in 0..500 {
        bytes.extend(encode(&["ECHO", &format!("e{number}")]));
        bytes.extend(encode(&["PUBLISH", "own", &format!("p{number}")]));
    }
    client.send(&bytes);
    let (mut pushes, mut replies) = (Vec::new(), Vec::new());
    while replies.len() < 1_000 || pushes.len() < 500 {
        let frame = client.reply();
        if frame.starts_with(b">") {
            pushes.push(frame);
        } else {
            replies.push(frame);
        }
    }
    for number in 0..500 {
        let echo = format!("e{number}");
        let wanted = format!("${}\r\n{echo}\r\n", echo.len());
        assert_eq!(replies[2 * number], wanted.as_bytes());
        assert_eq!(replies[2 * number + 1], b":1\r\n");
        let message = format!("p{number}");
        let wanted = format!(">3\r\n$7\r\nmessage\r\n$3\r\nown\r\n${}\r\n{message}\r\n", message.len());
        assert_eq!(shown(&pushes[number]), shown(wanted.as_bytes()));
    }
    drop(client);
    scene.unharmed();
}

/// R16: guessing passwords over many connections; the server never hears of it.
#[test]
fn r16_password_guessing_reaches_no_server_and_harms_nobody() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = secret_file(folder.path(), "password", "secret-word");
    let closed = Address::port(weir_tests::port::free());
    let mut scene = Scene::set_with(|config| {
        config.tables(&format!(
            "[[listener]]\nname = \"closed\"\nprotocol = \"redis\"\nbind = \"{}\"\n\
             upstream = \"server\"\n[listener.redis]\npassword = {{ file = \"{file}\" }}",
            closed.text()
        ))
    });
    let lanes = scene.gateway.metric("weir_lane_connects_total");
    let mut guessers: Vec<Client> = (0..300).map(|_| Client::connect(&closed)).collect();
    let started = Instant::now();
    for client in &mut guessers {
        client.send(&encode(&["AUTH", "guess"]).repeat(3));
    }
    for client in &mut guessers {
        for _ in 0..3 {
            let reply = client.reply();
            assert!(reply.starts_with(b"-WRONGPASS"), "{}", shown(&reply));
        }
        client.expect(&["GET", "k"], b"-NOAUTH Authentication required.\r\n");
    }
    assert!(started.elapsed() >= Duration::from_millis(290), "each failure waits 100 ms");
    assert_eq!(scene.server.calls("auth"), 0);
    assert_eq!(
        scene.gateway.metric("weir_lane_connects_total"),
        lanes,
        "no upstream connection is made before authentication"
    );
    assert_eq!(scene.gateway.metric("weir_auth_failures_total"), 900.0);
    drop(guessers);
    scene.unharmed();
}

/// R19: keys and channels of any bytes; labels and logs carry none of them.
#[test]
fn r19_binary_keys_are_safe_and_reach_no_label() {
    let mut scene = Scene::set_with(|config| {
        config.tables("[telemetry]\nlog_level = \"debug\"\n[telemetry.access_log]\ntarget = \"stdout\"\nsample = 1.0")
    });
    let mut client = scene.gateway.connect();
    let keys: [&[u8]; 5] =
        [b"evil\r\n+INJECTED\r\n", b"evil\0nul", b"evil\x1b[31mcolour", b"evil\"quote\",\"x\":\"y", b"evil\xff\xfe"];
    for key in keys {
        client.expect(&[b"SET" as &[u8], key, b"v"], b"+OK\r\n");
        client.expect(&[b"GET" as &[u8], key], b"$1\r\nv\r\n");
        let reply = client.call(&[b"NOSUCH" as &[u8], key]);
        assert!(reply.starts_with(b"-ERR unknown command 'NOSUCH'"), "{}", shown(&reply));
        // One line: CR and LF of the client's text became blanks.
        assert_eq!(reply.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
    let long = vec![b'k'; 3 << 20];
    client.expect(&[b"SET" as &[u8], &long, b"v"], b"+OK\r\n");
    client.expect(&[b"DEL" as &[u8], &long], b":1\r\n");
    let metrics = scene.gateway.metrics();
    let leaked = metrics.label_values().find(|value| value.contains("evil"));
    assert_eq!(leaked, None, "a key became a label");
    let log = scene.gateway.process().log();
    assert!(!log.contains("\u{1b}[31m"), "control characters reach the log");
    assert!(!log.contains("+INJECTED\r"), "a line of the log can be forged");
    drop(client);
    scene.victim_unharmed();
}

/// R20: clients that leave between the request and its reply; the lane stays in step.
#[test]
fn r20_replies_to_clients_that_left_are_dropped_in_step() {
    let mut scene = Scene::set();
    for round in 0..150 {
        let mut leaver = scene.gateway.connect();
        let key = format!("left-{round}");
        leaver.send(&encode(&["SET", &key, &"L".repeat(2_000)]));
        leaver.send(&encode(&["GET", &key]).repeat(30));
        if round % 3 == 0 {
            leaver.send(&encode(&["EVAL", "return string.rep('L', 300000)", "0"]));
        }
        drop(leaver);
        let mut stayer = scene.gateway.connect();
        let own = format!("stayer-{round}");
        stayer.expect(&["SET", "own", &own], b"+OK\r\n");
        let wanted = format!("${}\r\n{own}\r\n", own.len());
        stayer.expect(&["GET", "own"], wanted.as_bytes());
    }
    scene.gateway.wait_metric("weir_connections_closed_total", &[], 300.0);
    scene.unharmed();
}

#[test]
fn a_client_killed_through_the_admin_commands_is_only_its_own() {
    let mut scene = Scene::set();
    let mut client = scene.gateway.connect();
    // The ids of the server's connections mean nothing here; killing by them is refused.
    let reply = client.call(&["CLIENT", "KILL", "ID", "3"]);
    assert!(reply.starts_with(b"-ERR") || reply == b":0\r\n", "{}", shown(&reply));
    let list = client.call(&["CLIENT", "LIST"]);
    assert!(list.starts_with(b"$") || list.starts_with(b"-ERR"), "{}", shown(&list));
    client.expect(&["PING"], b"+PONG\r\n");
    drop(client);
    scene.unharmed();
}

#[test]
fn quit_and_close_in_every_state_leave_nothing() {
    let mut scene = Scene::set();
    let states: [&[&[&str]]; 7] = [
        &[],
        &[&["MULTI"]],
        &[&["MULTI"], &["SET", "k", "v"]],
        &[&["WATCH", "k"]],
        &[&["WATCH", "k"], &["MULTI"], &["SET", "k", "v"]],
        &[&["SUBSCRIBE", "c"]],
        &[&["HELLO", "3"], &["SUBSCRIBE", "c"]],
    ];
    for state in states {
        for ending in 0..4 {
            let mut client = scene.gateway.connect();
            for words in state {
                client.call(words);
            }
            match ending {
                0 => {
                    client.command(&["QUIT"]);
                    assert_eq!(client.read_to_end(deadline::WAIT), (b"+OK\r\n".to_vec(), End::Closed));
                }
                1 => client.send(b"*2\r\n$4\r\nECHO\r\n$100\r\nhalf"),
                2 => client.stream().half_close().expect("the write side closes"),
                _ => {}
            }
        }
    }
    assert_eq!(scene.server.connect().call(&["EXISTS", "k"]), b":0\r\n");
    scene.unharmed();
}
