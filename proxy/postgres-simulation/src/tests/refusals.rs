//! Messages that the gateway refuses, at any place of a batch.

use std::rc::Rc;
use std::time::Duration;

use weir_postgres_codec::frontend;
use weir_postgres_session::{Judge, Next, Refusal, Session};

use super::scene::{Scene, tags};
use super::{bytes, prepare, query, scene};

/// A rule against all texts that name a word, and against function calls.
struct Rule;

impl Judge for Rule {
    fn text(&self, text: &[u8]) -> Option<Refusal> {
        text.windows(9).any(|part| part == b"forbidden").then(|| Refusal::error("42501", "a rule denies it"))
    }

    fn unread(&self) -> Option<Refusal> {
        None
    }

    fn function_call(&self) -> Option<Refusal> {
        Some(Refusal::error("42501", "a rule denies it"))
    }
}

fn judged() -> Scene {
    let mut scene = scene();
    let share = scene.share.clone();
    scene.session = Session::new([], scene.settings.clone(), share, scene.io.now.get())
        .with_pool("pool")
        .with_judge(Some(Rc::new(Rule)));
    scene
}

/// Parse, Bind, Execute and Flush.
fn flushed(text: &str) -> Vec<u8> {
    bytes(|out| {
        frontend::parse(out, b"", text.as_bytes(), &[]);
        frontend::bind(out, b"", b"", []);
        frontend::execute(out, b"", 0);
        frontend::flush(out);
    })
}

fn is_denied(reply: &[u8]) -> bool {
    reply.windows(5).any(|part| part == b"42501")
}

/// The error ends the transaction, as one of the server does: what the batch has done before it does not stay.
#[test]
fn a_parse_that_is_refused_in_an_open_batch_fails_the_batch_at_the_server() {
    let denied = bytes(|out| frontend::parse(out, b"", b"SELECT 'forbidden'", &[]));
    for ends in [frontend::sync as fn(&mut Vec<u8>), frontend::flush] {
        for begin in ["SELECT 'a'", "BEGIN"] {
            let mut scene = judged();
            assert_eq!(tags(&scene.ask(&flushed(begin))).replace('D', ""), "12C");
            let error = scene.ask(&denied);
            assert!(tags(&error) == "E" && is_denied(&error), "a server sends an error without a Flush");
            let mut ready = scene.ask(&bytes(ends));
            if ready.is_empty() {
                ready = scene.ask(&bytes(frontend::sync));
            }
            let status = if begin == "BEGIN" { b'E' } else { b'I' };
            assert_eq!((tags(&ready).as_str(), ready.last()), ("Z", Some(&status)));
            assert_eq!(tags(&scene.ask(&query("ROLLBACK"))).replace('N', ""), "CZ", "server and session are alive");
            assert!(!scene.is_attached);
        }
    }
}

/// A Query ends the batch, also one that is refused.
#[test]
fn a_query_that_is_refused_in_an_open_batch_gets_its_error_and_ends_the_batch() {
    let messages = [query("SELECT 'forbidden'"), bytes(|out| frontend::function_call(out, 952, []))];
    for message in messages {
        let mut scene = judged();
        assert_eq!(tags(&scene.ask(&flushed("SELECT 'a'"))), "12DC");
        let reply = scene.ask(&message);
        assert!(tags(&reply) == "EZ" && is_denied(&reply));
        assert!(!scene.is_attached && scene.model.state().is_pristine(), "the implicit transaction is over");
        // In one piece with the batch, without a Flush.
        let batch = flushed("SELECT 'a'");
        let reply = scene.ask(&[&batch[..batch.len() - 5], &message].concat());
        assert!(tags(&reply) == "12DCEZ" && is_denied(&reply), "{}", tags(&reply));
        assert!(!scene.is_attached);
        // The error ends the block that the batch has begun.
        let reply = scene.ask(&[flushed("BEGIN"), message].concat());
        assert_eq!((tags(&reply).as_str(), reply.last()), ("12CEZ", Some(&b'E')));
        assert_eq!(tags(&scene.ask(&query("ROLLBACK"))).replace('N', ""), "CZ");
        assert!(!scene.is_attached);
    }
}

/// The server would skip it up to the Sync.
#[test]
fn a_query_that_is_refused_behind_a_batch_that_fails_is_skipped() {
    let mut scene = judged();
    let batch = flushed("SELECT 1/0");
    let reply = scene.ask(&[&batch[..batch.len() - 5], &query("SELECT 'forbidden'"), &query("SELECT 'b'")].concat());
    assert!(tags(&reply) == "1E" && !is_denied(&reply), "{}", tags(&reply));
    assert_eq!(scene.send(&bytes(frontend::sync)), Next::More);
    assert_eq!(tags(&scene.turn(usize::MAX)), "Z");
    assert!(!scene.is_attached);
}

/// Another client has the statement prepared while this one waits: its Parse needs no server any more.
#[test]
fn a_refusal_of_the_pool_is_for_the_message_that_waited() {
    let mut scene = scene();
    let parse = prepare("s", "SELECT 'a'");
    assert!(matches!(scene.send_unserved(&parse), Next::NeedServer(_)));
    let other = Session::new([], scene.settings.clone(), scene.share.clone(), scene.io.now.get()).with_pool("pool");
    let waiting = std::mem::replace(&mut scene.session, other);
    scene.next_client(&[]);
    assert_eq!(tags(&scene.ask(&parse)), "1Z");
    scene.session = waiting;
    let refusal = Refusal::wait_timeout("app", 3, Duration::from_secs(10));
    assert_eq!(scene.session.on_acquire_failed(refusal, &scene.io), Next::More);
    assert_eq!(scene.send_unserved(&parse), Next::More);
    assert_eq!(tags(&scene.io.to_client.take()), "1Z");
    assert!(
        matches!(scene.send_unserved(&query("SELECT 'b'")), Next::NeedServer(_)),
        "it waits for a server of its own"
    );
    assert_eq!(tags(&scene.ask(b"")), "TDCZ");
}

/// The rules change while a Query waits for its server, and deny it: its facts are not those of the next one.
#[test]
fn a_query_that_is_denied_after_its_wait_leaves_no_facts_to_the_next() {
    let mut scene = scene();
    assert!(matches!(scene.send_unserved(&query("SELECT 'forbidden'")), Next::NeedServer(_)));
    scene.session.set_judge(Some(Rc::new(Rule)));
    let reply = scene.ask(b"");
    assert!(tags(&reply) == "EZ" && is_denied(&reply), "{}", tags(&reply));
    scene.ask(&query("SELECT pg_advisory_lock(1)"));
    assert!(scene.is_attached, "the lock keeps the server with its client");
}
