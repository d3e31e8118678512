use weir_base::exchange::LossCause;

use super::scene::{Scene, bulk};

#[test]
fn watch_takes_a_lane_and_exec_gives_it_back_clean() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("GET a\nWATCH k"), bulk("GET a|0|1") + "+OK 2\r\n");
    assert!(scene.is_pinned());
    assert_eq!(scene.says("GET b"), bulk("GET b|0|3"), "and everything rides it");
    assert_eq!(scene.says("MULTI\nGET c\nEXEC"), format!("+OK\r\n+QUEUED\r\n*1\r\n{}", bulk("GET c|0|6")));
    assert_eq!(scene.given_back(), (1, 0));
}

#[test]
fn a_changed_key_makes_exec_null() {
    for (mut scene, null) in [(Scene::new(), "*-1\r\n"), (Scene::resp3(), "_\r\n")] {
        scene.says("WATCH k");
        scene.0.world.server().touch(b"k");
        assert_eq!(scene.says("MULTI\nGET c\nEXEC"), format!("+OK\r\n+QUEUED\r\n{null}"));
        assert!(!scene.is_pinned());
    }
}

#[test]
fn a_lost_lane_makes_exec_null_in_the_words_of_the_protocol() {
    for (mut scene, null) in [(Scene::new(), "*-1\r\n"), (Scene::resp3(), "_\r\n")] {
        scene.says("WATCH k\nMULTI\nSET k v");
        scene.0.lose(scene.0.world.lane_count() - 1, LossCause::Closed);
        assert_eq!(scene.says("EXEC"), null);
        assert!(scene.says("MULTI\nGET c\nEXEC").contains("*1\r\n"), "the next one is a new one");
    }
}

#[test]
fn a_lost_lane_is_forgotten_with_unwatch_discard_and_reset() {
    for forget in ["UNWATCH\nMULTI", "MULTI\nDISCARD\nMULTI", "RESET\nMULTI"] {
        let mut scene = Scene::new();
        scene.says("WATCH k");
        scene.0.lose(0, LossCause::Closed);
        let read = scene.says(&format!("{forget}\nGET c\nEXEC"));
        assert!(read.contains("*1\r\n"), "{forget}: {read}");
    }
}

#[test]
fn a_new_watch_does_not_make_good_a_lost_one() {
    let mut scene = Scene::new();
    scene.says("WATCH k");
    scene.0.lose(0, LossCause::Timeout);
    assert!(scene.says("WATCH other\nMULTI\nGET c\nEXEC").ends_with("*-1\r\n"));
    assert!(!scene.is_pinned());
}

#[test]
fn unwatch_and_discard_let_the_server_forget() {
    for forget in ["UNWATCH", "MULTI\nDISCARD"] {
        let mut scene = Scene::new();
        scene.says("WATCH k");
        assert!(scene.says(forget).ends_with("+OK\r\n"));
        assert_eq!(scene.given_back(), (1, 0), "{forget}");
    }
    assert_eq!(Scene::new().says("UNWATCH"), "+OK\r\n", "without WATCH the reply is known");
}

#[test]
fn a_spoiled_transaction_forgets_the_watch_before_the_next() {
    let mut scene = Scene::new();
    scene.says("WATCH k");
    scene.0.world.server().touch(b"k");
    let read = scene.says("GET a\nMULTI\nGET\nEXEC\nMULTI\nGET b\nEXEC");
    assert!(read.contains("-EXECABORT") && read.ends_with(&format!("*1\r\n{}", bulk("GET b|0|7"))), "{read}");
    assert_eq!(scene.given_back(), (1, 0));
}

#[test]
fn watch_under_a_subscription_ends_with_it() {
    let mut scene = Scene::resp3();
    scene.says("WATCH k\nSUBSCRIBE a");
    let read = scene.says("MULTI\nGET b\nEXEC\nUNSUBSCRIBE a\nPING");
    assert!(read.contains("*1\r\n$") && read.ends_with("+PONG\r\n"), "{read}");
    assert_eq!(scene.given_back(), (2, 0), "HELLO's lane and this one");
}

#[test]
fn unwatch_and_discard_under_a_subscription_reach_the_server() {
    for forget in ["UNWATCH", "MULTI\nDISCARD"] {
        let mut scene = Scene::resp3();
        scene.says("WATCH k\nSUBSCRIBE a");
        assert!(scene.says(forget).ends_with("+OK\r\n"));
        scene.says("UNSUBSCRIBE a");
        assert_eq!(scene.given_back(), (2, 0), "{forget}");
    }
}
