//! Floods: connections, handshakes, names. Past each limit there is one refusal and one counter.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use weir_tests::certificate::Certificates;
use weir_tests::client::{Client, End};
use weir_tests::deadline;
use weir_tests::gateway::Gateway;
use weir_tests::stream::{Address, Stream};
use weir_tests::wire::shown;

use crate::scene::Scene;

const FULL: &[u8] = b"-ERR max number of clients reached\r\n";

/// Opens connections until one is refused; returns those that were let in.
fn fill(gateway: &Gateway, most: usize) -> Vec<Client> {
    let mut inside = Vec::new();
    for _ in 0..most {
        let mut client = gateway.connect();
        let _ = client.try_send(b"PING\r\n");
        match client.try_reply(Duration::from_secs(5)) {
            Ok(reply) if reply == b"+PONG\r\n" => inside.push(client),
            Ok(reply) => {
                assert_eq!(shown(&reply), shown(FULL));
                return inside;
            }
            Err(end) => panic!("neither let in nor refused in words: {end:?}"),
        }
    }
    panic!("{most} connections were let in");
}

#[test]
fn connections_per_listener_are_limited() {
    let mut scene = Scene::set_with(|config| config.listener("connections_max = 20"));
    // The victim holds one.
    let inside = fill(&scene.gateway, 40);
    assert_eq!(inside.len(), 19);
    let refused = |scene: &Scene| {
        scene.gateway.metrics().sum_where("weir_connections_refused_total", &[("reason", "listener_connections")])
    };
    assert_eq!(refused(&scene), 1.0);
    let mut late = scene.gateway.connect();
    assert_eq!(late.read_to_end(deadline::WAIT), (FULL.to_vec(), End::Closed));
    assert_eq!(refused(&scene), 2.0);
    drop(inside);
    deadline::until_true("room again", || {
        let mut client = scene.gateway.connect();
        let _ = client.try_send(b"PING\r\n");
        client.try_reply(Duration::from_secs(5)) == Ok(b"+PONG\r\n".to_vec())
    });
    scene.unharmed();
}

#[test]
fn connections_per_source_and_per_process_are_limited() {
    for (lines, reason) in [
        ("[limits]\nconnections_per_source = 10", "source_connections"),
        ("[limits]\nconnections = 10\nconnections_per_source = 10", "process_connections"),
    ] {
        let mut scene = Scene::set_with(|config| config.tables(lines));
        let inside = fill(&scene.gateway, 30);
        assert_eq!(inside.len(), 9, "{reason}");
        let counted = scene.gateway.metrics();
        let total = counted.sum("weir_connections_refused_total");
        assert_eq!(total, 1.0, "{:?}", counted.by("weir_connections_refused_total", "reason"));
        drop(inside);
        scene.unharmed();
    }
}

#[test]
fn a_thousand_connections_that_come_and_go_leave_nothing() {
    let mut scene = Scene::set();
    let descriptors = scene.gateway.process().descriptors();
    for round in 0..20 {
        let clients: Vec<Client> = (0..100).map(|_| scene.gateway.connect()).collect();
        for (number, mut client) in clients.into_iter().enumerate() {
            match (round + number) % 3 {
                0 => client.expect(&["PING"], b"+PONG\r\n"),
                1 => client.send(b"*1\r\n$"),
                _ => {}
            }
        }
    }
    deadline::until_true("all connections to be closed", || scene.gateway.metric("weir_connections_open") <= 1.0);
    deadline::until_true("descriptors to be back at the baseline", || {
        scene.gateway.process().descriptors() <= descriptors + 1
    });
    assert_eq!(scene.gateway.metric("weir_connections_total"), 2_001.0);
    scene.unharmed();
}

/// X11: command names, client names and channels of any kind; the number of series stays bounded.
#[test]
fn x11_attackers_choose_no_labels() {
    let mut scene = Scene::set();
    let mut client = scene.gateway.connect();
    client.call(&["NOSUCH"]);
    client.expect(&["CLIENT", "SETNAME", "first"], b"+OK\r\n");
    let before = scene.gateway.metrics().series();
    for number in 0..3_000 {
        client.command(&[&format!("NOSUCH{number}"), "x"]);
        client.command(&["CLIENT", "SETNAME", &format!("name{number}")]);
    }
    for _ in 0..6_000 {
        client.reply();
    }
    let mut subscriber = scene.gateway.connect();
    for number in 0..200 {
        subscriber.call(&["SUBSCRIBE", &format!("channel{number}")]);
    }
    let metrics = scene.gateway.metrics();
    let grown = metrics.series() - before;
    assert!(grown < 200, "{grown} series more");
    let labels: BTreeSet<&str> = metrics.label_values().collect();
    for word in ["NOSUCH7", "nosuch7", "name7", "channel7"] {
        assert!(!labels.contains(word), "{word} became a label");
    }
    assert!(metrics.sum_where("weir_command_calls_total", &[("command", "unknown")]) >= 3_000.0);
    drop((client, subscriber));
    scene.unharmed();
}

/// A listener with TLS, as tables of the configuration.
fn tls_listener((name, port, timeout): (&str, u16, &str), files: &Certificates) -> String {
    format!(
        "[[listener]]\nname = \"{name}\"\nprotocol = \"redis\"\nbind = \"127.0.0.1:{port}\"\nupstream = \"server\"\n\
         [listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"\nhandshake_timeout = \"{timeout}\"\n",
        files.server.display(),
        files.server_key.display()
    )
}

/// Clients that send `bytes` and then nothing.
fn stopped(port: u16, bytes: &[u8], count: usize) -> Vec<Stream> {
    let connect = |_| {
        let mut client = Stream::connect(&Address::port(port)).expect("the listener accepts");
        client.write_all(bytes).expect("the connection stands");
        client
    };
    (0..count).map(connect).collect()
}

/// X3 in short: handshakes that never finish are bounded in number and in time.
#[test]
fn x3_handshakes_that_never_finish() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let [patient, port] = [(); 2].map(|()| weir_tests::port::free());
    let mut scene = Scene::set_with(|config| {
        let tables = [("patient", patient, "1m"), ("tls", port, "5s")].map(|one| tls_listener(one, &files)).concat();
        config.tables(&format!("[limits]\nhandshakes_per_core = 8\n{tables}"))
    });
    let hello = files.client_hello();
    let in_flight = |scene: &Scene| scene.gateway.metrics().sum("weir_tls_handshakes_in_flight");
    let served = |port| {
        Client::connect_tls(Address::port(port).tcp(), files.client_config()).expect(&["PING"], b"+PONG\r\n");
    };
    // Clients without a whole hello have no turn: others are served meanwhile.
    let early = [0, 1, hello.len() - 1].map(|length| stopped(patient, &hello[..length], 50));
    served(patient);
    assert_eq!(in_flight(&scene), 0.0);
    drop(early);
    // Nor do those whose bytes cannot become one, though a session would wait for the rest of these records.
    let begun = [&hello[..3], &[0, 1, hello[5], 0x15]].concat();
    let no_hellos: [&[u8]; 4] = [&[0x15], &[0x17], &[0x17, 3, 3, 64, 0], &begun];
    let mut refused = no_hellos.map(|bytes| stopped(patient, bytes, 50));
    scene.gateway.wait_metric(
        "weir_tls_handshake_failures_total",
        &[("listener", "patient"), ("reason", "tls")],
        200.0,
    );
    for clients in &mut refused {
        let mut alert = Vec::new();
        clients[0].read_to_end(&mut alert).expect("the gateway closes in good order");
        assert_eq!(alert, [21, 3, 3, 0, 2, 2, 10]);
    }
    served(patient);
    drop(refused);
    let late = stopped(port, &hello, 50);
    deadline::until_true("as many handshakes as there may be", || {
        let now = in_flight(&scene);
        assert!(now <= 8.0, "{now} handshakes at a time");
        now == 8.0
    });
    scene.gateway.wait_metric("weir_tls_handshake_failures_total", &[("listener", "tls")], 50.0);
    let failures = scene.gateway.metrics().by("weir_tls_handshake_failures_total", "reason");
    assert!(failures["timeout"] >= 8.0 && failures["handshakes_in_flight"] > 0.0, "{failures:?}");
    deadline::until_true("all that hang to be given up", || {
        in_flight(&scene) == 0.0 && scene.gateway.metrics().sum("weir_connections_open") <= 1.0
    });
    served(port);
    drop(late);
    scene.unharmed();
}

/// X3: the wait for the hello and the wait for a turn have one deadline.
#[test]
fn x3_a_late_hello_does_not_prolong_the_wait_for_a_turn() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let port = weir_tests::port::free();
    let mut scene = Scene::set_with(|config| {
        let listener = tls_listener(("tls", port, "6s"), &files);
        config.tables(&format!("[limits]\nhandshakes_per_core = 1\n{listener}"))
    });
    let hello = files.client_hello();
    let mut slow = stopped(port, b"", 1);
    let first = stopped(port, &hello, 1);
    scene.gateway.wait_metric("weir_tls_handshakes_in_flight", &[], 1.0);
    std::thread::sleep(Duration::from_millis(1_500));
    // It has the turn for a second and a half when that of the first is over.
    let second = stopped(port, &hello, 1);
    std::thread::sleep(Duration::from_secs(2));
    slow[0].write_all(&hello).expect("the connection stands");
    // At 6 s. Another 6 s would have been enough for a turn.
    scene.gateway.wait_metric("weir_tls_handshake_failures_total", &[("reason", "handshakes_in_flight")], 1.0);
    drop((slow, first, second));
    scene.unharmed();
}
