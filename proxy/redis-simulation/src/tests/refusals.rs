//! Every refusal of the gateway's own in the middle of every sequence that has state: nothing is left of it, and the same words
//! succeed when what was missing is there.

use weir_base::exchange::{LossCause, Refusal};
use weir_redis_session::{
    io::{Full, Pinning},
    settings::RedisListenerSettings,
};

use super::scene::{Scene, wire};

use crate::Policy;

/// Its name, and what the world does for it.
type Cause = (&'static str, fn(&mut Policy));

/// Why something is refused.
const CAUSES: [Cause; 8] = [
    ("in flight", |policy| policy.full = Some(Full::InFlight)),
    ("buffered", |policy| policy.full = Some(Full::Buffered)),
    ("no primary", |policy| policy.full = Some(Full::NoPrimary)),
    ("knee", |policy| policy.admits = 0),
    ("breaker", |policy| policy.refusal = Some(Refusal::BreakerOpen)),
    ("queue of lanes", |policy| policy.pinning = Pinning::Refused(Refusal::QueueFull)),
    ("blocked clients", |policy| policy.pinning = Pinning::TooManyBlocked),
    // The lane is requested, and fails.
    ("lane", |_| {}),
];

/// Sequences, as a client says them at once; `LARGE` is a value beyond `stream_bytes`.
const SEQUENCES: [&str; 13] = [
    "GET a",
    "WATCH a",
    "WATCH a\nMULTI\nSET a 1\nEXEC",
    "MULTI\nSET a 1\nEXEC",
    "MULTI\nSELECT 2\nSET a 1\nEXEC\nSELECT 0",
    "BLPOP a 0",
    "SUBSCRIBE news\nUNSUBSCRIBE",
    "SELECT 3\nGET a\nSELECT 0",
    "HELLO 3\nHELLO 2",
    "SET a LARGE",
    "WATCH a\nSET a LARGE\nUNWATCH",
    "MULTI\nSET a LARGE\nEXEC",
    "MONITOR",
];

fn settings() -> RedisListenerSettings {
    RedisListenerSettings { stream_bytes: 100, ..Default::default() }
}

fn words(line: &str) -> Vec<u8> {
    wire(&line.replace("LARGE", &"v".repeat(300)))
}

/// Says it while the cause is there, until nothing waits any more.
fn says_refused(scene: &mut Scene, cause: &str, wire: &[u8]) -> String {
    scene.0.send(wire);
    let mut read = String::new();
    for _ in 0..20 {
        while scene.0.arrive(150) {}
        read += &scene.arrives();
        if cause == "lane" {
            scene.0.resolve_pin(Err(Refusal::QueueTimeout));
            read += &scene.arrives();
        }
        if scene.0.world.is_pin_requested() {
            continue;
        }
        scene.0.refuse_held();
        read += &scene.reads();
    }
    read
}

#[test]
fn a_refusal_leaves_nothing_behind_and_the_same_words_succeed_later() {
    let mut refused = 0;
    for (cause, apply) in CAUSES {
        for sequence in SEQUENCES {
            for shards in [1, 3] {
                if shards > 1 && sequence == "MONITOR" {
                    continue;
                }
                let mut scene = Scene::with(settings());
                scene.0.world.set_shards(shards);
                let before = scene.0.world.policy();
                scene.0.world.set(apply);
                let first = says_refused(&mut scene, cause, &words(sequence));
                scene.0.world.set(|policy| *policy = before);
                scene.0.poke();
                let what = format!("{cause}, {sequence}, {shards} shards: {first}");
                if !first.contains("-ERR weir") && !first.contains("-EXECABORT") {
                    continue;
                }
                refused += 1;
                assert!(scene.0.is_at_rest(), "{what}");
                assert!(!scene.is_pinned() && !scene.0.world.is_parked(), "a lane is left: {what}");
                assert!(scene.says("EXEC").starts_with("-ERR EXEC without MULTI"), "a transaction is left: {what}");
                let again = scene.drips(&words(sequence), 150);
                assert!(!again.contains("-ERR") && !again.contains("-EXECABORT"), "{what}; again: {again}");
                assert!(!again.contains("*-1\r\n"), "{what}; a broken watch is left: {again}");
            }
        }
    }
    assert!(refused > 50, "only {refused} were refused");
}

/// The server refuses a WATCH: it watches nothing, and its lane goes back. The others of the client are still there.
#[test]
fn a_watch_that_the_server_refuses_holds_no_lane() {
    let mut scene = Scene::new();
    scene.0.world.server().denied.push(b"secret".to_vec());
    assert!(scene.says("WATCH secret").starts_with("-NOPERM"));
    assert_eq!((scene.is_pinned(), scene.given_back()), (false, (1, 0)));
    assert!(scene.says("WATCH a\nWATCH secret").contains("-NOPERM"));
    assert!(scene.is_pinned(), "the first is watched");
    scene.0.world.server().touch(b"a");
    assert!(scene.says("MULTI\nGET b\nEXEC").ends_with("*-1\r\n"));
    // Refused in a pipeline that has gone on: EXEC has ended it before its reply was here.
    assert!(scene.says("WATCH secret\nMULTI\nGET b\nEXEC").contains("*1\r\n"));
    assert!(!scene.is_pinned());
}

/// With its reply lost with the lane, it is unknown whether the client watches.
#[test]
fn a_watch_whose_reply_is_lost_is_a_lost_watch() {
    let mut scene = Scene::new();
    scene.blurts("WATCH a");
    scene.0.resolve_pin(Ok(()));
    scene.arrives();
    scene.0.lose(0, LossCause::Closed);
    assert_eq!(scene.reads(), "-ERR weir: upstream connection lost\r\n");
    assert!(scene.says("MULTI\nGET b\nEXEC").ends_with("*-1\r\n"));
}
