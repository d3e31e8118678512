//! R5, R13, X5: servers that break the protocol. Their callers get an error, never the reply of another client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_tests::client::{Client, End};
use weir_tests::deadline;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::wire::shown;

const GROWTH_MAX: u64 = 24 << 20;

/// The reply to a request whose upstream reply was broken.
fn is_weir_error(reply: &[u8]) -> bool {
    reply.starts_with(b"-ERR weir: ")
}

/// Replies to ECHO with its argument and to everything else as the case wants.
fn echoing(other: impl Fn(&[Vec<u8>]) -> Act + Send + Sync + 'static) -> Faulty {
    Faulty::start(move |words| {
        if words[0].eq_ignore_ascii_case(b"GET") && words[1].starts_with(b"echo:") {
            let text = &words[1];
            let mut reply = format!("${}\r\n", text.len()).into_bytes();
            reply.extend_from_slice(text);
            reply.extend_from_slice(b"\r\n");
            Act::Reply(reply)
        } else {
            other(words)
        }
    })
}

/// Many clients ask for their own key while one provokes the fault; none may receive the reply of another.
fn nobody_is_shifted(gateway: &Gateway, provoke: &[&str], rounds: usize) {
    let mut bystanders: Vec<Client> = (0..8).map(|_| gateway.connect()).collect();
    let mut attacker = gateway.connect();
    for round in 0..rounds {
        for (number, client) in bystanders.iter_mut().enumerate() {
            client.command(&["GET", &format!("echo:{round}:{number}")]);
            if number == 4 {
                attacker.command(provoke);
            }
        }
        attacker.reply();
        for (number, client) in bystanders.iter_mut().enumerate() {
            let key = format!("echo:{round}:{number}");
            let wanted = format!("${}\r\n{key}\r\n", key.len());
            let came = client.reply();
            assert!(
                came == wanted.as_bytes() || is_weir_error(&came),
                "round {round}, client {number}: {}",
                shown(&came)
            );
        }
        attacker.expect(&["PING"], b"+PONG\r\n");
    }
}

/// An unexpected reply makes the gateway give up the lane. (While other requests wait on the same lane, nothing in RESP shows
/// which of them a reply belongs to; each exchange here is the only one.)
#[test]
fn r13_one_reply_too_many() {
    let upstream = echoing(|_| Act::Reply(b"+OK\r\n$9\r\nnot-yours\r\n".to_vec()));
    let gateway = Gateway::start(Config::to(&upstream.address));
    let before = upstream.connections();
    let (mut attacker, mut bystander) = (gateway.connect(), gateway.connect());
    for round in 0..10 {
        attacker.expect(&["SET", "k", "v"], b"+OK\r\n");
        let key = format!("echo:{round}");
        let wanted = format!("${}\r\n{key}\r\n", key.len());
        let came = bystander.call(&["GET", &key]);
        assert!(came == wanted.as_bytes() || is_weir_error(&came), "round {round}: {}", shown(&came));
    }
    assert!(upstream.connections() >= before + 5, "lanes out of step were given up");
    assert!(gateway.metric("weir_lane_closes_total") >= 5.0);
}

#[test]
fn r13_one_reply_too_few() {
    let upstream = echoing(|_| Act::Silence);
    let config = Config::to(&upstream.address).upstream("request_timeout = \"300ms\"");
    let gateway = Gateway::start(config);
    // The next reply would take the place of the missing one: only the timeout shows the fault. A late reply must not go to
    // another client.
    let mut client = gateway.connect();
    for _ in 0..3 {
        let reply = client.call(&["SET", "k", "v"]);
        assert!(is_weir_error(&reply), "{}", shown(&reply));
        client.expect(&["GET", "echo:x"], b"$6\r\necho:x\r\n");
    }
}

#[test]
fn r13_replies_that_are_no_replies() {
    let wrong: &[(&str, &[u8])] = &[
        ("reply_type", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ("reply_type", b"!oops\r\n"),
        ("reply_length", b"$abc\r\n"),
        ("reply_length", b"$-7\r\nx\r\n"),
        ("reply_length", b"*-2\r\n"),
        ("reply_streamed", b"$?\r\n;4\r\nabcd\r\n;0\r\n"),
        ("reply_bulk_end", b"$3\r\nabcXX"),
        ("reply_line_end", b"+OK\n+OK\n"),
        ("reply_bulk_too_long", b"$99999999999\r\n"),
    ];
    for (reason, bytes) in wrong {
        let bytes = bytes.to_vec();
        let broken = bytes.clone();
        let upstream = echoing(move |_| Act::Reply(broken.clone()));
        let gateway = Gateway::start(Config::to(&upstream.address));
        let mut client = gateway.connect();
        let reply = client.call(&["SET", "k", "v"]);
        assert!(is_weir_error(&reply), "{}: {}", shown(&bytes), shown(&reply));
        nobody_is_shifted(&gateway, &["SET", "k", "v"], 3);
        let by_reason = gateway.metrics().by("weir_violations_total", "reason");
        assert!(
            by_reason.contains_key(*reason) || by_reason.keys().any(|key| key.starts_with("reply_")),
            "{}: wanted {reason}, counted {by_reason:?}",
            shown(&bytes)
        );
    }
}

#[test]
fn r13_an_unsolicited_push() {
    let upstream = echoing(|_| Act::Reply(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n+OK\r\n".to_vec()));
    let gateway = Gateway::start(Config::to(&upstream.address));
    nobody_is_shifted(&gateway, &["SET", "k", "v"], 5);
}

/// R5: nesting and giant aggregates cost neither stack nor memory.
#[test]
fn r5_deep_nesting_and_giant_aggregates() {
    let cases: [(&str, Vec<u8>); 6] = [
        ("100,000 levels", b"*1\r\n".repeat(100_000)),
        ("100,000 levels of maps", b"%1\r\n+k\r\n".repeat(100_000)),
        ("100,000 attributes", b"|1\r\n+k\r\n+v\r\n".repeat(100_000)),
        ("a giant array", b"*2147483647\r\n".to_vec()),
        ("a giant map", b"%9223372036854775807\r\n".to_vec()),
        ("a giant set in an array", b"*1\r\n~99999999999999999999\r\n".to_vec()),
    ];
    for (what, bytes) in cases {
        let upstream = echoing(move |_| Act::Reply(bytes.clone()));
        let config = Config::to(&upstream.address).upstream("request_timeout = \"1s\"");
        let mut gateway = Gateway::start(config);
        let mut bystander = gateway.connect();
        let resident = gateway.process().resident();
        for protocol in ["2", "3"] {
            let mut client = gateway.connect();
            client.call(&["HELLO", protocol]);
            client.command(&["SET", "k", "v"]);
            // Bytes forwarded before the fault was detected cannot be taken back: then the client's connection ends too.
            // Otherwise it gets an error and stays.
            let (reply, _) = client.read_to_end(Duration::from_secs(3));
            assert!(!reply.is_empty(), "{what}: nothing came");
            bystander.expect(&["GET", "echo:y"], b"$6\r\necho:y\r\n");
        }
        let growth = gateway.process().resident_peak().saturating_sub(resident);
        assert!(growth < GROWTH_MAX, "{what}: {} MiB", growth >> 20);
    }
}

/// X5: half a reply, then nothing more, or a close. Bytes forwarded before the fault was detected cannot be taken back, so the
/// client gets an error instead of a reply or is closed in the middle of one; never an error inside of a reply.
#[test]
fn x5_half_replies() {
    const HALF: &[u8] = b"$100\r\nonly the beginning";
    for (what, act) in [("close", Act::ReplyThenClose as fn(Vec<u8>) -> Act), ("hang", Act::Reply)] {
        let upstream = echoing(move |_| act(HALF.to_vec()));
        let config = Config::to(&upstream.address).upstream("request_timeout = \"400ms\"");
        let gateway = Gateway::start(config);
        for round in 0..3 {
            let mut attacker = gateway.connect();
            attacker.command(&["SET", "k", "v"]);
            match attacker.try_reply(deadline::WAIT) {
                Ok(reply) => {
                    assert!(is_weir_error(&reply), "{what}: {}", shown(&reply));
                    attacker.expect(&["PING"], b"+PONG\r\n");
                }
                Err(end) => {
                    assert_ne!(end, End::Silent, "{what}: the client waits for ever");
                    let (rest, _) = attacker.read_to_end(deadline::WAIT);
                    assert!(HALF.starts_with(&rest), "{what}: {}", shown(&rest));
                }
            }
            let key = format!("echo:{round}");
            let wanted = format!("${}\r\n{key}\r\n", key.len());
            gateway.connect().expect(&["GET", &key], wanted.as_bytes());
        }
        // I8: a connection interrupted in a reply is never used again.
        assert!(upstream.connections() >= 3, "{what}: {}", upstream.connections());
    }
}

#[test]
fn x5_half_of_a_streamed_reply_ends_the_clients_connection() {
    let upstream = echoing(|_| {
        let mut bytes = b"$8000000\r\n".to_vec();
        bytes.extend(vec![b'x'; 3_000_000]);
        Act::ReplyThenClose(bytes)
    });
    let gateway = Gateway::start(Config::to(&upstream.address));
    let mut client = gateway.connect();
    client.command(&["GET", "big"]);
    let (reply, end) = client.read_to_end(deadline::WAIT);
    // Bytes that have left cannot be recalled; a made-up end would be a lie.
    assert_ne!(end, End::Silent);
    assert!(reply.len() <= 3_000_100, "{} bytes", reply.len());
    gateway.connect().expect(&["GET", "echo:z"], b"$6\r\necho:z\r\n");
}

#[test]
fn x5_a_black_hole_runs_into_the_connect_deadline() {
    // A listening socket whose queue is full drops what comes: connecting hangs.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    let mut filling = Vec::new();
    let full = Instant::now();
    while full.elapsed() < Duration::from_secs(20) {
        match std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            Ok(stream) => filling.push(stream),
            Err(_) => break,
        }
    }
    let address = weir_tests::stream::Address::Tcp(address);
    let config = Config::to(&address).upstream("connect_timeout = \"300ms\"");
    let gateway = Gateway::start_unready(config);
    let mut client = gateway.connect();
    let started = Instant::now();
    let reply = client.call(&["GET", "k"]);
    assert!(is_weir_error(&reply), "{}", shown(&reply));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    client.expect(&["PING"], b"+PONG\r\n");
    drop(filling);
}

#[test]
fn x5_a_server_that_resets_on_accept() {
    let upstream = Faulty::start(|_| Act::Reset);
    let gateway = Gateway::start_unready(Config::to(&upstream.address));
    let mut client = gateway.connect();
    for _ in 0..20 {
        let reply = client.call(&["SET", "k", "v"]);
        assert!(is_weir_error(&reply), "{}", shown(&reply));
        client.expect(&["PING"], b"+PONG\r\n");
    }
}

#[test]
fn x5_a_server_that_stops_reading_is_bounded() {
    let upstream = Faulty::start(|_| Act::Hang);
    let config = Config::to(&upstream.address).upstream("request_timeout = \"1s\"");
    let mut gateway = Gateway::start(config);
    let resident = gateway.process().resident();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let address = gateway.address.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(&address);
                let value = "v".repeat(50_000);
                let mut errors = 0;
                for _ in 0..20 {
                    let reply = client.call(&["SET", "k", &value]);
                    assert!(is_weir_error(&reply), "{}", shown(&reply));
                    errors += 1;
                    if errors > 2 {
                        break;
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("each request is answered");
    }
    let growth = gateway.process().resident_peak().saturating_sub(resident);
    assert!(growth < 2 * GROWTH_MAX, "{} MiB", growth >> 20);
}

/// A server that is wrong once is not wrong for ever.
#[test]
fn a_mended_server_is_used_again() {
    static BROKEN: AtomicBool = AtomicBool::new(true);
    let upstream = echoing(|_| {
        if BROKEN.load(Ordering::Relaxed) {
            Act::Reply(b"?broken\r\n".to_vec())
        } else {
            Act::Reply(b"+OK\r\n".to_vec())
        }
    });
    let gateway = Gateway::start(Config::to(&upstream.address));
    let mut client = gateway.connect();
    for _ in 0..10 {
        assert!(is_weir_error(&client.call(&["SET", "k", "v"])));
    }
    BROKEN.store(false, Ordering::Relaxed);
    deadline::until_true("the mended server to be used", || client.call(&["SET", "k", "v"]) == b"+OK\r\n");
}
