use weir_redis_session::{session::Next, settings::RedisListenerSettings};

use super::scene::{Scene, bulk};

#[test]
fn local_replies_stand_between_the_replies_they_were_sent_between() {
    let mut scene = Scene::new();
    let read = scene.says("GET a\nPING one\nNOPE.\u{e9}\nECHO two\nGET b\nCLIENT ID\nSTRLEN c");
    let unknown = "-ERR unknown command 'NOPE.\u{e9}', with args beginning with: \r\n";
    let upstream = [bulk("GET a|0|1"), bulk("GET b|0|2")];
    assert_eq!(
        read,
        [&upstream[0], &bulk("one"), unknown, &bulk("two"), &upstream[1], ":7\r\n", "-WRONGTYPE STRLEN c|0|3\r\n"]
            .concat()
    );
}

#[test]
fn a_local_reply_waits_for_the_whole_of_the_reply_before_it() {
    let mut scene = Scene::new();
    assert_eq!(scene.blurts("GET a\nPING"), "");
    scene.0.flush(0);
    scene.0.execute(0);
    scene.0.deliver(0, 7);
    assert_eq!(scene.arrives(), "$7\r\nGET".replace('7', "9"));
    scene.0.deliver(0, usize::MAX);
    assert_eq!(scene.arrives(), " a|0|1\r\n+PONG\r\n");
}

#[test]
fn every_cut_of_a_pipeline_gives_the_same_replies() {
    let wire =
        super::scene::wire("GET a\nSELECT 1\nSET k v\nMULTI\nGET b\nEXEC\nECHO x\nSUBSCRIBE s\nUNSUBSCRIBE s\nGET c");
    let whole = Scene::new().sends(&wire);
    for cut in 1..wire.len() {
        let mut scene = Scene::new();
        let front = scene.sends(&wire[..cut]);
        assert_eq!(front + &scene.sends(&wire[cut..]), whole, "cut at {cut}");
    }
    let mut scene = Scene::new();
    let single: String = wire.iter().map(|&byte| scene.sends(&[byte])).collect();
    assert_eq!(single, whole);
}

#[test]
fn the_memory_of_one_client_serves_the_next_without_a_trace() {
    let wire = super::scene::wire("GET a\nMGET a b c d e f g h i j\nECHO x\nGET c");
    let whole = Scene::new().sends(&wire);
    let many = super::scene::wire("MSET a 1 b 2 c 3 d 4 e 5 f 6");
    let first = Scene::new();
    for bytes in [&many[..], b"ECHO \"a b\"\r\n", b"*3\r\n$3\r\nSET\r\n$1\r\n", b"PIN", b"SET \"a\r\n"] {
        let mut before = Scene(first.0.beside());
        before.sends(bytes);
        assert_eq!(Scene(first.0.beside()).sends(&wire), whole, "beside {}", bytes.escape_ascii());
        drop(before);
        assert_eq!(Scene(first.0.beside()).sends(&wire), whole, "after {}", bytes.escape_ascii());
    }
}

#[test]
fn reading_stops_at_the_pipeline_limit_and_goes_on_with_each_reply() {
    let settings = RedisListenerSettings { pipeline_max: 2, ..Default::default() };
    let mut scene = Scene::with(settings);
    scene.blurts("GET a\nGET b\nGET c\nGET d");
    assert_eq!(scene.0.next(), Next::Wait);
    assert_eq!(scene.0.world.with_lane(0, |lane, _| lane.in_flight()), 2);
    assert_eq!(scene.serves_one(), bulk("GET a|0|1"));
    assert_eq!(scene.0.world.with_lane(0, |lane, _| lane.in_flight()), 2);
    assert_eq!(scene.reads(), [bulk("GET b|0|2"), bulk("GET c|0|3"), bulk("GET d|0|4")].concat());
    assert_eq!(scene.0.next(), Next::Read);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let mut scene = Scene::new();
    scene.0.world.set(|policy| policy.is_stalled = true);
    let echo = format!("ECHO {}\n", "x".repeat(1000));
    scene.0.send(&super::scene::wire(&echo.repeat(40)));
    scene.reads();
    assert_eq!(scene.0.next(), Next::Wait);
    assert!(scene.0.world.unread() < 8000, "the replies are bounded");
    scene.0.world.set(|policy| policy.is_stalled = false);
    assert_eq!(scene.reads().len(), 40 * 1009);
}

#[test]
fn local_replies_behind_a_slow_exchange_are_bounded() {
    let settings = RedisListenerSettings { pipeline_bytes: 2000, ..Default::default() };
    let mut scene = Scene::with(settings);
    let echo = format!("ECHO {}\n", "x".repeat(100));
    scene.blurts(&format!("GET slow\n{}", echo.repeat(400)));
    assert_eq!(scene.0.next(), Next::Wait, "enough waits");
    assert_eq!(scene.reads(), bulk("GET slow|0|1") + &bulk(&"x".repeat(100)).repeat(400));
}

#[test]
fn a_full_input_is_read_from_again_when_its_hold_is_over() {
    let settings = RedisListenerSettings { pipeline_bytes: 100, stream_bytes: 90, ..Default::default() };
    let mut scene = Scene::with(settings);
    scene.blurts(&format!("GET a\nSELECT 1\n{}", "GET k\n".repeat(10)));
    assert_eq!(scene.0.next(), Next::Wait, "SELECT waits for the reply, and enough is held");
    assert_eq!(scene.reads().matches("GET k|1|").count(), 10);
}

#[test]
fn a_sampled_command_is_logged_itself_and_not_the_batch_before_it() {
    let mut scene = Scene::new();
    scene.0.world.set(|policy| policy.logs_every = 3);
    scene.says("GET a\nGET b\nSET c v\nGET d\nGET e\nPING\nGET f\nGET g\nNOPE.\u{e9}\nGET h");
    assert_eq!(scene.0.world.logged(), [("set", 1), ("ping", 1)]);
}

#[test]
fn neighbours_leave_as_one_and_each_gets_its_reply() {
    let settings = RedisListenerSettings { pipeline_max: 5, ..RedisListenerSettings::default() };
    let mut scene = Scene::with(settings);
    let lines: Vec<String> = (0..13).map(|number| format!("GET {number}")).collect();
    let replies: String = (0..13).map(|number| bulk(&format!("GET {number}|0|{}", number + 1))).collect();
    assert_eq!(scene.says(&lines.join("\n")), replies);
}
