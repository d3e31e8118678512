//! R1 to R4b, R14, R17: bytes that are no RESP. Texts are those of Redis 7.0.

use std::time::Duration;

use weir_tests::client::{Client, End};
use weir_tests::deadline;
use weir_tests::gateway::secret_file;
use weir_tests::stream::Address;
use weir_tests::wire::{encode, shown};

use crate::scene::Scene;

fn error(text: &str) -> Vec<u8> {
    format!("-ERR Protocol error: {text}\r\n").into_bytes()
}

/// A scene with a second listener, which asks for a password; its address; the secret's folder.
fn with_password() -> (Scene, Address, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = secret_file(folder.path(), "password", "secret-word");
    // The victim flow needs a way in, so the first listener stays open.
    let closed = Address::port(weir_tests::port::free());
    let scene = Scene::set_with(|config| {
        config.tables(&format!(
            "[[listener]]\nname = \"closed\"\nprotocol = \"redis\"\nbind = \"{}\"\n\
             upstream = \"server\"\n[listener.redis]\npassword = {{ file = \"{file}\" }}",
            closed.text()
        ))
    });
    (scene, closed, folder)
}

#[test]
fn r1_a_claimed_length_costs_no_memory() {
    let mut scene = Scene::set();
    scene.refused(b"*1\r\n$9223372036854775807\r\n", &error("invalid bulk length"), "invalid_bulk_length");
    // The largest length that is allowed, claimed by many and sent by none.
    let mut claimers: Vec<_> = (0..200).map(|_| scene.gateway.connect()).collect();
    for client in &mut claimers {
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nfirst bytes");
        client.send(b" and no more");
    }
    let mut counters: Vec<_> = (0..50).map(|_| scene.gateway.connect()).collect();
    for client in &mut counters {
        client.send(b"*1048576\r\n$3\r\nSET\r\n");
    }
    scene.gateway.wait_metric("weir_connections_open", &[], 250.0);
    scene.unharmed();
    assert_eq!(scene.server.connect().call(&["EXISTS", "k"]), b":0\r\n");
}

#[test]
fn r2_before_authentication_little_is_taken() {
    let (mut scene, address, _folder) = with_password();
    for (bytes, text, reason) in [
        (&b"*11\r\n"[..], "unauthenticated multibulk length", "unauthenticated_multibulk_length"),
        (b"*1\r\n$16385\r\n", "unauthenticated bulk length", "unauthenticated_bulk_length"),
        (b"*1\r\n$9223372036854775807\r\n", "invalid bulk length", "invalid_bulk_length"),
    ] {
        let before = scene.closes(reason);
        let mut client = Client::connect(&address);
        client.send(bytes);
        let (reply, end) = client.read_to_end(deadline::WAIT);
        assert_eq!((shown(&reply), end), (shown(&error(text)), End::Closed));
        scene.closed_once_more(before, reason);
    }
    let mut client = Client::connect(&address);
    client.expect(&["GET", "k"], b"-NOAUTH Authentication required.\r\n");
    // After authentication the same sizes are ordinary.
    client.expect(&["AUTH", "secret-word"], b"+OK\r\n");
    client.expect(&["SET", "k", &"x".repeat(20_000)], b"+OK\r\n");
    drop(client);
    scene.unharmed();
}

#[test]
fn r3_endless_lines_end() {
    let mut scene = Scene::set();
    let long = vec![b'a'; 70_000];
    scene.refused(&long, &error("too big inline request"), "inline_too_big");
    let header = [b"*", vec![b'1'; 70_000].as_slice()].concat();
    scene.refused(&header, &error("too big mbulk count string"), "multibulk_header_too_big");
    let header = [b"*1\r\n$", vec![b'1'; 70_000].as_slice()].concat();
    scene.refused(&header, &error("too big bulk count string"), "bulk_header_too_big");
    scene.unharmed();
}

#[test]
fn r4_lengths_that_are_no_lengths() {
    let mut scene = Scene::set();
    for bulk in ["-2", "+4", "04", "4 ", "", "x", "536870913", "4x", "0x4"] {
        scene.refused(format!("*1\r\n${bulk}\r\n").as_bytes(), &error("invalid bulk length"), "invalid_bulk_length");
    }
    for count in ["+1", "01", "x", "2147483648", "1 ", "99999999999999999999"] {
        scene.refused(
            format!("*{count}\r\n").as_bytes(),
            &error("invalid multibulk length"),
            "invalid_multibulk_length",
        );
    }
    for (byte, shown) in [(b'+', "+"), (b':', ":"), (b'*', "*"), (b'P', "P")] {
        scene.refused(
            &[b"*1\r\n", &[byte][..], b"4\r\n"].concat(),
            &error(&format!("expected '$', got '{shown}'")),
            "expected_bulk",
        );
    }
    // Empty and negative counts are skipped in silence.
    let mut client = scene.gateway.connect();
    client.send(b"*0\r\n*-5\r\n*-1\r\nPING\r\n");
    assert_eq!(client.reply(), b"+PONG\r\n");
    drop(client);
    scene.unharmed();
}

/// Redis waits on a bare line feed and does not look at the two bytes behind a payload; two parsers
/// in a row that differ there can be made to disagree, so the gateway refuses both.
#[test]
fn r4b_input_that_two_parsers_could_read_in_two_ways_is_refused() {
    let mut scene = Scene::set();
    let set_calls = scene.server.calls("append");
    scene.refused(b"*1\n$4\nPING\n", &error("expected CRLF after length"), "header_line_end");
    scene.refused(
        b"*3\r\n$6\r\nAPPEND\r\n$1\r\nk\r\n$1\r\nvXX*1\r\n$4\r\nPING\r\n",
        &error("expected CRLF after bulk"),
        "bulk_end",
    );
    assert_eq!(scene.server.calls("append"), set_calls, "nothing was sent on");
    scene.unharmed();
}

#[test]
fn replies_to_good_commands_come_before_the_refusal_of_a_bad_one() {
    let mut scene = Scene::set();
    let mut bytes = encode(&["SET", "k", "v"]).repeat(100);
    bytes.extend(b"*1\r\n$bad\r\n");
    let mut wanted = b"+OK\r\n".repeat(100);
    wanted.extend(error("invalid bulk length"));
    scene.refused(&bytes, &wanted, "invalid_bulk_length");
    scene.unharmed();
}

#[test]
fn r14_http_is_closed_without_a_reply() {
    let mut scene = Scene::set();
    let before = scene.server.calls("post");
    for request in [
        &b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET k stolen\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: localhost:6379\r\n\r\n",
        b"host: somewhere\r\n",
    ] {
        let counted = scene.closes("cross_protocol");
        let mut client = scene.gateway.connect();
        client.send(request);
        let (reply, end) = client.read_to_end(Duration::from_secs(8));
        assert_ne!(end, End::Silent, "{}", shown(request));
        // `GET / HTTP/1.1` itself is a GET with three words: an arity error, as Redis answers it.
        let is_arity = reply.starts_with(b"-ERR wrong number of arguments for 'get' command\r\n");
        assert!(reply.is_empty() || is_arity, "{}", shown(&reply));
        scene.closed_once_more(counted, "cross_protocol");
    }
    assert_eq!(scene.server.calls("post"), before);
    assert_eq!(scene.server.connect().call(&["EXISTS", "k"]), b":0\r\n");
    scene.unharmed();
}

#[test]
fn r17_unbalanced_quotes() {
    let mut scene = Scene::set();
    for line in ["SET k \"open", "SET k 'open", "SET k \"a\"b", "SET k 'a'b"] {
        scene.refused(format!("{line}\r\n").as_bytes(), &error("unbalanced quotes in request"), "unbalanced_quotes");
    }
    scene.unharmed();
}

#[test]
fn random_bytes_end_in_a_reply_or_a_close() {
    let mut scene = Scene::set();
    let mut rng = weir_tests::seed::seeded();
    for _ in 0..150 {
        let length = 1 + rng.below(3_000) as usize;
        let alphabet = b"*$\r\n0123456789+-:PINGSETab\"' \0\xff";
        let bytes: Vec<u8> = (0..length).map(|_| alphabet[rng.below(alphabet.len() as u64) as usize]).collect();
        let mut client = scene.gateway.connect();
        client.send(&bytes);
        // Whatever it was, the end of our side is answered by the end of theirs.
        client.stream().half_close().expect("the write side closes");
        let (reply, end) = client.read_to_end(Duration::from_secs(10));
        assert_ne!(end, End::Silent, "{} left {}", shown(&bytes), shown(&reply));
    }
    scene.unharmed();
}
