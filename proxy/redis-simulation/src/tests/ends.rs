use weir_redis_session::session::Next;

use super::scene::{Scene, bulk, wire};

use crate::End;

#[test]
fn quit_is_answered_behind_all_others_and_ends() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("GET a\nQUIT\nGET b"), bulk("GET a|0|1") + "+OK\r\n");
    assert_eq!(scene.0.end(), Some(&End::Closed));
}

#[test]
fn a_client_that_half_closes_gets_every_reply() {
    let mut scene = Scene::new();
    scene.blurts("GET a\nPING");
    assert!(scene.0.client_ends());
    assert_eq!(scene.reads(), bulk("GET a|0|1") + "+PONG\r\n");
    assert_eq!(scene.0.end(), Some(&End::Closed));
}

/// `printf '…' | nc` closes its side at once: what it sent must be done, held or not.
#[test]
fn commands_that_were_held_when_the_client_half_closed_are_carried_out() {
    let mut scene = Scene::new();
    scene.blurts("GET a\nSELECT 1\nSET k v\nWATCH k\nMULTI\nGET b\nEXEC\nPING");
    assert!(scene.0.client_ends());
    let read = scene.reads();
    assert!(read.contains("SET k v|1|") && read.contains("GET b|1|") && read.ends_with("+PONG\r\n"), "{read}");
    assert_eq!(scene.0.end(), Some(&End::Closed));
}

#[test]
fn a_requested_lane_is_waited_for() {
    let mut scene = Scene::new();
    scene.blurts("WATCH k");
    assert!(scene.0.client_ends());
    assert_eq!(scene.0.end(), None);
    assert_eq!(scene.reads(), "+OK 1\r\n");
    assert_eq!(scene.0.end(), Some(&End::Closed));
}

#[test]
fn the_beginning_of_a_command_keeps_nobody_waiting() {
    let mut scene = Scene::new();
    scene.0.send(&wire("GET a"));
    scene.0.send(b"*2\r\n$3\r\nGE");
    scene.arrives();
    assert!(scene.0.client_ends());
    assert_eq!(scene.reads(), bulk("GET a|0|1"));
    assert_eq!(scene.0.end(), Some(&End::Closed));
}

#[test]
fn a_blocked_or_subscribed_client_that_leaves_has_left() {
    for line in ["BLPOP k 0", "SUBSCRIBE a"] {
        let mut scene = Scene::new();
        scene.says(line);
        assert!(scene.0.client_ends());
        assert_eq!(scene.0.end(), Some(&End::ClientEnd), "{line}");
    }
}

/// No client is left to receive the element.
#[test]
fn a_client_that_has_left_does_not_begin_to_block() {
    let mut scene = Scene::new();
    scene.blurts("GET a\nBLPOP k 0");
    assert!(scene.0.client_ends());
    assert_eq!(scene.reads(), bulk("GET a|0|1"));
    assert_eq!(scene.0.end(), Some(&End::Closed));
    assert_eq!(scene.0.world.pins()[0], 0);
}

#[test]
fn a_client_with_nothing_under_way_ends_at_once() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("PING"), "+PONG\r\n");
    assert!(scene.0.client_ends());
    assert_eq!(scene.0.end(), Some(&End::ClientEnd));
}

#[test]
fn a_held_pipeline_is_not_an_unfinished_command() {
    let settings = weir_redis_session::settings::RedisListenerSettings { pipeline_max: 1, ..Default::default() };
    let mut scene = Scene::with(settings);
    scene.blurts("GET a\nGET b");
    assert_eq!(scene.0.next(), Next::Wait);
    assert_eq!(scene.0.partial_since(), None, "no deadline of an unfinished command applies");
    scene.reads();
    scene.0.send(b"*1\r\n");
    scene.arrives();
    assert!(scene.0.partial_since().is_some());
}
