//! At the rate that a listener may not exceed: refused at once, in order, and no state lost.

use weir_redis_session::io::Full;

use super::scene::{Scene, bulk};

const REFUSED: &str = "-ERR weir: too many requests per second\r\n";

fn at_knee(scene: &Scene, admits: u64) {
    scene.0.world.set(|policy| policy.admits = admits);
}

#[test]
fn commands_beyond_the_rate_are_refused_at_their_place_in_the_pipeline() {
    let mut scene = Scene::new();
    at_knee(&scene, 2);
    let replies = scene.says("GET a\nGET b\nGET c\nPING\nGET d");
    assert_eq!(replies, [&bulk("GET a|0|1"), &bulk("GET b|0|2"), REFUSED, "+PONG\r\n", REFUSED].concat());
    assert_eq!(scene.0.world.shed(), ["knee", "knee"]);
    at_knee(&scene, 1);
    assert_eq!(scene.says("GET e"), bulk("GET e|0|3"), "the session goes on");
}

#[test]
fn a_batch_is_no_larger_than_the_rate_allows() {
    let mut scene = Scene::new();
    scene.says("GET a");
    at_knee(&scene, 4);
    let replies = scene.says("GET a\nGET b\nGET c\nGET d\nGET e\nGET f");
    assert_eq!(replies.matches("GET").count(), 4, "{replies}");
    assert!(replies.ends_with(&REFUSED.repeat(2)), "{replies}");
    assert_eq!(scene.0.world.shed().len(), 2);
}

#[test]
fn no_kind_of_request_gets_through_and_none_gets_a_lane() {
    for line in ["GET a", "BLPOP k 0", "WATCH k", "MOD.X y", "SCRIPT KILL"] {
        let mut scene = Scene::new();
        at_knee(&scene, 0);
        assert_eq!(scene.says(line), REFUSED, "{line}");
        assert_eq!(scene.0.world.lane_count(), 0, "{line}");
        assert_eq!(scene.0.world.shed(), ["knee"], "{line}");
    }
}

#[test]
fn local_commands_need_no_rate() {
    let mut scene = Scene::new();
    at_knee(&scene, 0);
    assert_eq!(scene.says("PING\nMULTI\nGET a\nDISCARD\nSELECT 1"), "+PONG\r\n+OK\r\n+QUEUED\r\n+OK\r\n+OK\r\n");
}

#[test]
fn exec_beyond_the_rate_ends_the_transaction() {
    let mut scene = Scene::new();
    at_knee(&scene, 0);
    let replies = scene.says("MULTI\nSET a 1\nEXEC");
    let abort = "-EXECABORT Transaction discarded because of: ERR weir: too many requests per second\r\n";
    assert_eq!(replies, format!("+OK\r\n+QUEUED\r\n{abort}"));
    at_knee(&scene, 1);
    assert_eq!(scene.says("EXEC\nGET a"), format!("-ERR EXEC without MULTI\r\n{}", bulk("GET a|0|1")));
}

#[test]
fn a_transaction_is_one_request() {
    let mut scene = Scene::new();
    at_knee(&scene, 1);
    let replies = scene.says("MULTI\nGET a\nGET b\nEXEC\nGET c");
    assert!(replies.contains("*2\r\n") && replies.ends_with(REFUSED), "{replies}");
}

#[test]
fn watched_keys_can_be_let_go_at_the_knee_and_exec_lets_them_go_itself() {
    let mut scene = Scene::new();
    scene.says("WATCH k");
    at_knee(&scene, 0);
    assert_eq!(scene.says("GET a"), REFUSED);
    assert!(scene.is_pinned(), "the watch is still there");
    assert!(scene.says("UNWATCH").starts_with("+OK"));
    assert!(!scene.is_pinned());
    at_knee(&scene, 1);
    scene.says("WATCH k\nMULTI\nGET a");
    assert!(scene.says("EXEC").starts_with("-EXECABORT"));
    assert!(!scene.is_pinned());
}

/// A command that is held for its lane is looked at twice, and is one request all the same.
#[test]
fn a_command_that_waited_for_its_lane_counts_once() {
    let mut scene = Scene::new();
    at_knee(&scene, 3);
    assert!(scene.says("GET a\nWATCH k\nGET b").ends_with(&bulk("GET b|0|3")));
    assert_eq!(scene.says("GET c"), REFUSED);
}

/// Room is checked first: a command that waits for room has not used up the rate.
#[test]
fn a_command_that_waits_for_room_takes_its_place_when_it_goes() {
    let mut scene = Scene::new();
    scene.0.world.set(|policy| (policy.full, policy.admits) = (Some(Full::InFlight), 1));
    assert_eq!(scene.says("GET a"), "");
    scene.0.world.set(|policy| policy.full = None);
    scene.0.poke();
    assert_eq!(scene.reads(), bulk("GET a|0|1"));
    assert_eq!(scene.says("GET b"), REFUSED);
}

#[test]
fn a_large_command_beyond_the_rate_is_dropped_whole_and_the_next_is_read_right() {
    let mut scene =
        Scene::with(weir_redis_session::settings::RedisListenerSettings { stream_bytes: 64, ..Default::default() });
    at_knee(&scene, 0);
    let large = "x".repeat(4_000);
    let mut wire = Vec::new();
    weir_resp::encode::command(&mut wire, ["SET", "k", &large]);
    assert_eq!(scene.drips(&wire, 500), REFUSED);
    assert_eq!(scene.0.world.lane_count(), 0, "not a byte of it reached the server");
    at_knee(&scene, 2);
    assert_eq!(scene.says("GET a"), bulk("GET a|0|1"));
    let reply = scene.drips(&wire, 500);
    assert!(reply.starts_with('$'), "{reply}");
    assert_eq!(scene.says("GET b"), REFUSED, "the large one was one request");
}
