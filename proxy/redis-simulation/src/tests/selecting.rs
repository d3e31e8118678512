use super::scene::{Scene, bulk};

#[test]
fn commands_after_select_go_to_the_other_database() {
    let mut scene = Scene::new();
    let read = scene.says("GET a\nSELECT 3\nGET b\nSELECT 0\nGET c");
    assert_eq!(
        read,
        [bulk("GET a|0|1"), "+OK\r\n".into(), bulk("GET b|3|2"), "+OK\r\n".into(), bulk("GET c|0|3")].concat()
    );
    assert!(!scene.is_pinned());
}

#[test]
fn select_is_judged_as_the_server_does() {
    let mut scene = Scene::new();
    for (text, reply) in [
        ("x", "-ERR value is not an integer or out of range\r\n"),
        ("+1", "-ERR value is not an integer or out of range\r\n"),
        ("01", "-ERR value is not an integer or out of range\r\n"),
        ("-0", "-ERR value is not an integer or out of range\r\n"),
        ("-1", "-ERR DB index is out of range\r\n"),
        ("16", "-ERR DB index is out of range\r\n"),
        ("15", "+OK\r\n"),
        ("0", "+OK\r\n"),
    ] {
        assert_eq!(scene.says(&format!("SELECT {text}")), reply, "{text}");
    }
}

#[test]
fn a_transaction_with_select_changes_the_database_when_it_was_carried_out() {
    let mut scene = Scene::new();
    let read = scene.says("MULTI\nSELECT 5\nGET a\nEXEC\nGET b");
    let exec = format!("*2\r\n+OK\r\n{}", bulk("GET a|5|4"));
    assert_eq!(read, format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n{exec}{}", bulk("GET b|5|5")));
    assert_eq!(scene.given_back(), (0, 1), "its lane is in another database and is closed");
}

#[test]
fn a_transaction_with_select_that_was_not_carried_out_changes_nothing() {
    for (resp3, null) in [(false, "*-1\r\n"), (true, "_\r\n")] {
        for piece in [1, 2, usize::MAX] {
            let mut scene = if resp3 { Scene::resp3() } else { Scene::new() };
            scene.says("WATCH k\nMULTI\nSELECT 5\nGET a");
            scene.0.world.server().touch(b"k");
            scene.blurts("EXEC");
            scene.0.flush(0);
            while scene.0.execute(0) {}
            while scene.is_pinned() && scene.0.deliver(0, piece) {}
            assert_eq!(scene.reads(), null);
            assert!(scene.says("GET b").contains("GET b|0|"), "in pieces of {piece}");
        }
    }
}

#[test]
fn a_discarded_or_spoiled_select_changes_nothing() {
    let mut scene = Scene::new();
    scene.says("MULTI\nSELECT 5\nDISCARD\nMULTI\nSELECT 5\nGET\nEXEC");
    assert!(scene.says("GET b").contains("GET b|0|"));
}

#[test]
fn two_selects_in_pipelined_transactions_both_count() {
    let mut scene = Scene::new();
    scene.says("WATCH k");
    scene.says("MULTI\nSELECT 5\nEXEC\nMULTI\nGET a\nEXEC\nWATCH k\nMULTI\nEXEC");
    assert!(scene.says("GET b").contains("GET b|5|"));
}

/// The server may have more databases than the listener allows: its shared lanes must not follow.
#[test]
fn a_database_out_of_range_is_an_error_at_its_place_in_exec() {
    let mut scene = Scene::new();
    let read = scene.says("MULTI\nSELECT 40\nSET k v\nEXEC\nGET a");
    assert_eq!(
        read,
        format!(
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n-ERR DB index is out of range\r\n{}{}",
            bulk("SET k v|0|4"),
            bulk("GET a|0|5")
        )
    );
}

#[test]
fn select_on_an_own_lane_takes_the_lane_along_and_spoils_it() {
    let mut scene = Scene::new();
    assert!(scene.says("WATCH k\nSELECT 2\nGET a").ends_with(&bulk("GET a|2|3")));
    assert!(scene.says("UNWATCH\nGET b").contains("GET b|2|"));
    assert_eq!(scene.given_back(), (0, 1));
}
