use weir_base::exchange::{LossCause, Refusal};

use super::scene::{Scene, bulk};

use crate::End;

#[test]
fn lost_exchanges_are_answered_in_their_order() {
    let mut scene = Scene::new();
    scene.blurts("GET a\nPING\nGET b");
    scene.0.flush(0);
    scene.0.lose(0, LossCause::Timeout);
    let timeout = "-ERR weir: upstream timeout\r\n";
    assert_eq!(scene.reads(), format!("{timeout}+PONG\r\n{timeout}"));
    assert!(scene.says("GET c").contains("GET c|0|"), "and the session goes on");
}

#[test]
fn unsent_requests_go_to_the_next_lane_in_order() {
    let mut scene = Scene::new();
    scene.blurts("GET a");
    scene.0.flush(0);
    scene.blurts("PING\nGET b\nGET c");
    scene.0.lose(0, LossCause::Closed);
    let read = scene.reads();
    assert_eq!(
        read,
        format!("-ERR weir: upstream connection lost\r\n+PONG\r\n{}{}", bulk("GET b|0|1"), bulk("GET c|0|2"))
    );
}

#[test]
fn requests_that_no_lane_would_take_are_answered_in_their_order() {
    let mut scene = Scene::new();
    scene.blurts("GET a\nPING\nGET b");
    scene.0.refuse_oldest(0, Refusal::Unreachable);
    assert_eq!(scene.reads(), format!("-ERR weir: upstream unreachable\r\n+PONG\r\n{}", bulk("GET b|0|1")));
}

#[test]
fn a_refused_request_is_an_error_at_its_place() {
    let mut scene = Scene::new();
    scene.blurts("GET a");
    scene.0.world.set(|policy| policy.refusal = Some(Refusal::QueueFull));
    scene.blurts("GET b");
    scene.0.world.set(|policy| policy.refusal = None);
    let read = scene.says("GET c");
    assert_eq!(read, [&bulk("GET a|0|1"), "-ERR weir: upstream queue full\r\n", &bulk("GET c|0|2")].concat());
}

/// The client has half a reply: whatever followed would be read as its rest.
#[test]
fn a_reply_cut_in_the_middle_is_followed_by_nothing() {
    let mut scene = Scene::new();
    scene.blurts("GET a\nPING\nGET b");
    scene.0.flush(0);
    scene.0.execute(0);
    scene.0.deliver(0, 6);
    scene.0.lose(0, LossCause::Closed);
    assert_eq!(scene.reads(), "$9\r\nGE");
    assert_eq!(scene.0.end(), Some(&End::Closed));
}

#[test]
fn a_reply_cut_before_its_first_byte_is_an_error() {
    let mut scene = Scene::new();
    scene.blurts("CLIENT REPLY SKIP\nGET a\nGET b");
    scene.0.flush(0);
    scene.0.execute(0);
    scene.0.deliver(0, 6);
    scene.0.lose(0, LossCause::Closed);
    assert_eq!(
        scene.reads(),
        "-ERR weir: upstream connection lost\r\n",
        "the skipped one was not begun for the client"
    );
}

#[test]
fn a_lost_lane_with_unrecoverable_state_ends_the_session() {
    let mut scene = Scene::new();
    scene.says("WAIT 0 0");
    scene.0.lose(0, LossCause::Closed);
    assert_eq!(scene.reads(), "-ERR weir: upstream connection lost, session state is gone\r\n");
    assert_eq!(scene.0.end(), Some(&End::Closed));
}

#[test]
fn a_blocked_client_gets_the_loss_and_goes_on() {
    let mut scene = Scene::new();
    scene.says("BLPOP k 0\nGET a");
    scene.0.lose(0, LossCause::Closed);
    let lost = "-ERR weir: upstream connection lost\r\n";
    assert_eq!(scene.reads(), lost.repeat(2), "the command behind it was on the same lane");
    assert!(scene.says("GET b").contains("GET b|0|"));
}

#[test]
fn a_lane_lost_before_its_command_was_reexamined_is_requested_again() {
    let mut scene = Scene::new();
    scene.blurts("BLPOP k 0");
    scene.0.resolve_pin(Ok(()));
    scene.0.lose(0, LossCause::Closed);
    scene.arrives();
    assert!(scene.0.world.is_pin_requested());
    scene.reads();
    scene.releases();
    assert!(scene.reads().contains("BLPOP k 0|0|"));
}

/// The requests of a client ride one connection at a time, or replies could overtake each other.
#[test]
fn a_lane_that_takes_no_more_requests_is_left_when_it_has_answered() {
    for line in ["GET b", "MULTI\nGET b\nEXEC"] {
        let mut scene = Scene::new();
        scene.blurts("GET a");
        scene.0.world.retire_lane(0);
        scene.blurts(line);
        assert_eq!(scene.0.world.lane_count(), 1, "{line} waits");
        let read = scene.reads();
        assert!(read.contains(&bulk("GET a|0|1")) && read.contains("GET b|0|"), "{line}: {read}");
    }
}
