//! Several shards behind one listener. With three of them `a` is on shard 1, `b` on 2 and `c` on 0.

use weir_base::exchange::{LossCause, Refusal};
use weir_redis_session::settings::RedisListenerSettings;

use super::scene::{Scene, bulk, wire};

const CROSS_SLOT: &str = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";

/// The number of the lane to `shard`.
fn lane_to(scene: &Scene, shard: u16) -> usize {
    let world = &scene.0.world;
    (0..world.lane_count()).find(|&lane| world.with_lane(lane, |lane, _| lane.key.shard) == shard).expect("a lane")
}

/// The server of `shard` executes and answers what has arrived there.
fn serve(scene: &mut Scene, shard: u16) -> String {
    let lane = lane_to(scene, shard);
    scene.0.flush(lane);
    while scene.0.execute(lane) {}
    scene.0.deliver(lane, usize::MAX);
    scene.arrives()
}

#[test]
fn replies_keep_the_order_of_the_commands() {
    let mut scene = Scene::sharded(3);
    assert_eq!(scene.blurts("GET a\nGET b\nPING\nGET c\nGET b"), "");
    assert_eq!(scene.0.world.lane_count(), 3);
    assert_eq!(serve(&mut scene, 2), "", "both of b wait for a");
    assert_eq!(serve(&mut scene, 1), bulk("GET a|0|3") + &bulk("GET b|0|1") + "+PONG\r\n");
    assert_eq!(serve(&mut scene, 0), bulk("GET c|0|4") + &bulk("GET b|0|2"));
    assert_eq!(scene.says("GET a"), bulk("GET a|0|5"));
}

#[test]
fn half_an_early_reply_is_continued() {
    let mut scene = Scene::sharded(3);
    scene.blurts("GET a\nGET b");
    let early = lane_to(&scene, 2);
    scene.0.flush(early);
    scene.0.execute(early);
    scene.0.deliver(early, 5);
    assert_eq!(scene.arrives(), "");
    assert_eq!(serve(&mut scene, 1), bulk("GET a|0|2") + "$9\r\nG");
    assert_eq!(serve(&mut scene, 2), "ET b|0|1\r\n");
}

#[test]
fn keys_of_several_shards_are_requested_and_put_together() {
    let mut scene = Scene::sharded(3);
    let values = ["c@0", "a@1", "b@2", "a@1"].map(bulk).concat();
    assert_eq!(scene.says("MGET c a b a"), format!("*4\r\n{values}"));
    assert_eq!(scene.says("MSET a 1 b 2"), "+OK\r\n");
    assert_eq!(scene.says("DEL a b c d"), ":4\r\n");
    assert_eq!(scene.says("EXISTS a d"), ":2\r\n", "both on one shard: sent as it is");
    assert_eq!(scene.says("DBSIZE"), ":111\r\n");
    assert_eq!(scene.says("FLUSHALL"), "+OK\r\n");
    assert_eq!(scene.says("KEYS *"), "*3\r\n".to_owned() + &["key@0", "key@1", "key@2"].map(bulk).concat());
    assert_eq!(scene.says("MSETNX a 1 b 2"), CROSS_SLOT);
    assert_eq!(scene.says("RENAME a b"), CROSS_SLOT);
    assert_eq!(scene.says("RENAME a d"), bulk("RENAME a d|0|19"));
}

#[test]
fn a_key_without_a_value_is_refused_whole() {
    let mut scene = Scene::sharded(3);
    let arity = "-ERR wrong number of arguments for 'mset' command\r\n";
    assert_eq!(scene.says("MSET a 1 b"), arity);
    assert_eq!(scene.0.world.lane_count(), 0, "nothing was sent");
    let foreign = "-ERR weir: SORT with BY or GET reads keys of other shards\r\n";
    assert_eq!(scene.says("SORT a BY w_*"), foreign);
}

/// They went to the first shard: its server says what is wrong, if the gateway did not merely misread them.
#[test]
fn a_command_whose_keys_cannot_be_read_has_no_shard() {
    let mut scene = Scene::sharded(3);
    let negative = "-ERR Number of keys can't be negative\r\n";
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    assert_eq!(scene.says("EVAL x -1 a"), negative);
    assert_eq!(scene.says("BLMPOP 0 9 a LEFT"), "-ERR syntax error\r\n");
    assert_eq!(scene.says("XREAD COUNT 1 a"), "-ERR syntax error\r\n");
    assert_eq!(scene.says("MULTI\nEVAL x -1 a\nEXEC"), format!("+OK\r\n{negative}{aborted}"));
    let unknown = "-ERR weir: the keys of 'stralgo' are not known, so it has no shard\r\n";
    assert_eq!(scene.says("STRALGO LCS KEYS a b"), unknown);
    assert_eq!(scene.0.world.lane_count(), 0, "nothing was sent");
}

#[test]
fn an_optional_key_that_is_absent_leaves_the_others_where_they_are() {
    let mut scene = Scene::sharded(3);
    assert_eq!(scene.says("PFMERGE b"), bulk("PFMERGE b|0|1"));
    assert_eq!(lane_to(&scene, 2), 0, "the shard of b");
    assert_eq!(scene.says("MULTI\nPFMERGE a\nEXEC"), format!("+OK\r\n+QUEUED\r\n*1\r\n{}", bulk("PFMERGE a|0|4")));
    assert_eq!(lane_to(&scene, 1), 1);
    assert_eq!(scene.0.world.lane_count(), 2, "nobody asked the first");
}

#[test]
fn a_client_that_was_stopped_by_early_replies_goes_on() {
    let settings = RedisListenerSettings { pipeline_bytes: 30, ..Default::default() };
    let mut scene = Scene::with(settings);
    scene.0.world.set_shards(3);
    scene.blurts("GET a\nGET b\nGET b\nGET b\nGET b");
    assert_eq!(serve(&mut scene, 2), "");
    scene.blurts("GET c");
    assert_eq!(scene.0.world.lane_count(), 2, "GET c is not taken: too much waits");
    let read = serve(&mut scene, 1);
    assert!(read.starts_with(&bulk("GET a|0|5")), "{read}");
    assert!(scene.reads().ends_with(&bulk("GET c|0|6")));
}

#[test]
fn a_transaction_waits_for_a_pin_that_passes() {
    let mut scene = Scene::sharded(3);
    scene.blurts("BLPOP a 0");
    scene.reads();
    assert_eq!(scene.blurts("MULTI\nSET b 1\nEXEC"), "");
    scene.releases();
    let read = scene.reads();
    assert!(read.contains("+OK\r\n+QUEUED\r\n*1\r\n"), "{read}");
}

#[test]
fn a_scan_visits_every_shard() {
    let mut scene = Scene::sharded(3);
    let mut cursor = "0".to_owned();
    let mut pages = Vec::new();
    loop {
        let reply = scene.says(&format!("SCAN {cursor} COUNT 10"));
        let lines: Vec<&str> = reply.split("\r\n").collect();
        cursor = lines[2].to_owned();
        pages.push(lines[5].to_owned());
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(pages, ["from 0@0", "from 7@0", "from 0@1", "from 7@1", "from 0@2", "from 7@2"]);
    assert!(scene.says("SCAN x").contains("from x@0"), "a server says what is wrong with it");
}

#[test]
fn a_lost_shard_fails_its_own_part() {
    let mut scene = Scene::sharded(3);
    scene.blurts("GET a\nMGET a b c\nGET b\nDEL a b");
    let lane = lane_to(&scene, 2);
    scene.0.flush(lane);
    scene.0.lose(lane, LossCause::Closed);
    let lost = "-ERR weir: upstream connection lost\r\n";
    let values = bulk("a@1") + lost + &bulk("c@0");
    let partly = "-ERR weir: done on 1 of 2 shards; another said: ERR weir: upstream connection lost\r\n";
    assert_eq!(scene.reads(), bulk("GET a|0|1") + "*3\r\n" + &values + lost + partly);
    assert_eq!(scene.says("GET b"), bulk("GET b|0|5"));
}

#[test]
fn a_shard_that_takes_nothing_is_an_error_in_its_place() {
    let mut scene = Scene::sharded(3);
    scene.says("GET a");
    scene.0.world.set(|policy| policy.refusal = Some(Refusal::BreakerOpen));
    let refused = "-ERR weir: upstream unavailable, breaker open\r\n";
    assert_eq!(scene.says("MGET a b"), format!("*2\r\n{refused}{refused}"));
    assert_eq!(scene.says("DEL a b"), refused);
    scene.0.world.set(|policy| policy.refusal = None);
    assert_eq!(scene.says("DEL a b"), ":2\r\n");
}

#[test]
fn unwanted_replies_are_not_sent() {
    let mut scene = Scene::sharded(3);
    assert_eq!(scene.says("CLIENT REPLY SKIP\nMGET a b\nGET c"), bulk("GET c|0|3"));
    assert_eq!(scene.says("CLIENT REPLY OFF\nDEL a b\nCLIENT REPLY ON\nDEL a b"), "+OK\r\n:2\r\n");
}

#[test]
fn a_transaction_stays_on_one_shard() {
    let mut scene = Scene::sharded(3);
    assert_eq!(
        scene.says("MULTI\nGET a\nGET d\nPING\nEXEC"),
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n".to_owned()
            + &bulk("GET a|0|5")
            + &bulk("GET d|0|5")
            + "+PONG\r\n"
    );
    assert_eq!(lane_to(&scene, 1), 0, "the shard of a and d");
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    assert_eq!(scene.says("MULTI\nGET a\nGET b\nEXEC"), format!("+OK\r\n+QUEUED\r\n{CROSS_SLOT}{aborted}"));
    let everywhere = "-ERR weir: a command for all shards cannot be part of a transaction\r\n";
    assert_eq!(scene.says("MULTI\nDBSIZE\nEXEC"), format!("+OK\r\n{everywhere}{aborted}"));
}

#[test]
fn watched_keys_bind_the_transaction_to_their_shard() {
    let mut scene = Scene::sharded(3);
    assert!(scene.says("WATCH b").starts_with("+OK"));
    assert!(scene.is_pinned());
    assert_eq!(scene.says("GET a"), bulk("GET a|0|2"), "other shards are still there");
    assert_eq!(scene.says("MULTI\nGET a"), format!("+OK\r\n{CROSS_SLOT}"));
    scene.says("DISCARD");
    assert!(scene.says("WATCH b\nMULTI\nGET e\nEXEC").ends_with(&("*1\r\n".to_owned() + &bulk("GET e|0|7"))));
    assert!(!scene.is_pinned());
    assert_eq!(scene.says("WATCH a b"), CROSS_SLOT);
}

#[test]
fn a_second_pin_must_be_on_the_same_shard() {
    let mut scene = Scene::sharded(3);
    scene.says("WATCH b");
    let elsewhere = "-ERR weir: the session holds state on another shard; RESET first\r\n";
    assert_eq!(scene.says("BLPOP a 0"), elsewhere);
    assert_eq!(scene.says("UNWATCH"), "+OK\r\n");
    assert_eq!(scene.says("BLPOP a 0"), "");
    scene.releases();
    assert!(scene.reads().starts_with("*3\r\n"));
}

#[test]
fn commands_that_cannot_be_split_are_refused() {
    let mut scene = Scene::sharded(3);
    assert_eq!(scene.says("MONITOR"), "-ERR weir: command is not supported over several shards\r\n");
    assert!(scene.says("NO.SUCH a").starts_with("-ERR unknown command 'NO.SUCH'"));
}

#[test]
fn a_large_command_for_several_shards_is_held_until_it_is_whole() {
    let settings = RedisListenerSettings { stream_bytes: 1_000, transaction_bytes_max: 5_000, ..Default::default() };
    let mut scene = Scene::with(settings);
    scene.0.world.set_shards(3);
    let value = "v".repeat(1_500);
    let large = wire(&format!("MSET a {value} b {value}"));
    assert_eq!(scene.drips(&large, 700), "+OK\r\n");
    assert_eq!(scene.0.world.pins(), [0; 4], "it needed no lane of its own");
    // A command that is not split is forwarded as before, and one that is too large is refused.
    assert!(scene.drips(&wire(&format!("SET a {value}")), 700).starts_with('$'));
    assert_eq!(scene.0.world.pins(), [1, 1, 0, 0]);
    let value = "v".repeat(4_000);
    assert_eq!(scene.drips(&wire(&format!("MSET a {value} b {value}")), 700), "-ERR weir: command too large\r\n");
    assert_eq!(scene.says("GET b"), bulk("GET b|0|4"));
}

#[test]
fn a_pin_that_passes_makes_way_for_one_elsewhere() {
    let mut scene = Scene::sharded(3);
    scene.blurts("BLPOP a 0");
    scene.reads();
    assert_eq!(scene.blurts("BLPOP b 0"), "");
    scene.releases();
    assert!(scene.reads().starts_with("*3\r\n$1\r\na\r\n"));
    scene.releases();
    assert!(scene.reads().starts_with("*3\r\n$1\r\nb\r\n"));
}

/// Values beyond `stream_bytes` over three shards.
fn scene_of_large_values() -> (Scene, String) {
    let scene = Scene::with(RedisListenerSettings { stream_bytes: 100, ..Default::default() });
    scene.0.world.set_shards(3);
    (scene, "v".repeat(400))
}

#[test]
fn a_large_value_is_no_state_of_the_session() {
    for piece in [1, 60, 150, usize::MAX] {
        let (mut scene, value) = scene_of_large_values();
        // All of it is on the wire at once: the second begins before the first is answered.
        let wire = wire(&format!("SET a {value}\nSET b {value}\nGET c\nSET c {value}\nSET c {value}\nGET a"));
        scene.0.send(&wire);
        while scene.0.arrive(piece.min(200)) {
            scene.0.resolve_pin(Ok(()));
        }
        let read = scene.reads();
        let said: Vec<&str> =
            read.split("\r\n").filter_map(|line| line.split_once("|0|")).map(|(said, _)| said).collect();
        let set = |key: &str| format!("SET {key} {value}");
        let wanted = [set("a"), set("b"), "GET c".to_owned(), set("c"), set("c"), "GET a".to_owned()];
        assert_eq!(said, wanted, "in pieces of {piece}");
        assert!(!scene.is_pinned());
    }
}

#[test]
fn large_values_of_other_shards_pass_while_keys_are_watched() {
    for piece in [1, 60, 150] {
        let (mut scene, value) = scene_of_large_values();
        scene.says("WATCH b");
        let read = scene.drips(&wire(&format!("SET a {value}\nGET a\nGET b\nSET c {value}\nSET b {value}")), piece);
        assert!(!read.contains("-ERR"), "in pieces of {piece}: {read}");
        assert_eq!(read.matches("SET").count(), 3);
        assert!(scene.is_pinned(), "the keys are watched still");
        assert_eq!(scene.0.world.pins(), [3, 2, 0, 0], "a lane for each of the others, and given back");
        assert!(scene.says("MULTI\nGET e\nEXEC").contains("*1\r\n"));
        assert_eq!(scene.0.world.pins(), [3, 3, 0, 0]);
    }
    // A watched key stays watched all the while.
    let (mut scene, value) = scene_of_large_values();
    scene.says("WATCH b");
    scene.drips(&wire(&format!("SET a {value}")), 150);
    scene.0.world.server().touch(b"b");
    assert!(scene.says("MULTI\nGET e\nEXEC").ends_with("*-1\r\n"));
}

#[test]
fn a_large_value_without_a_lane_leaves_the_watched_keys_alone() {
    let (mut scene, value) = scene_of_large_values();
    scene.says("WATCH b");
    let large = wire(&format!("SET a {value}\nGET b"));
    scene.0.send(&large);
    scene.0.arrive(200);
    scene.0.resolve_pin(Err(Refusal::Unreachable));
    assert_eq!(scene.reads(), "-ERR weir: upstream unreachable\r\n".to_owned() + &bulk("GET b|0|2"));
    scene.0.send(&large);
    scene.0.arrive(200);
    scene.0.resolve_pin(Ok(()));
    scene.0.wake();
    scene.0.lose(scene.0.world.lane_count() - 1, LossCause::Closed);
    assert_eq!(scene.reads(), "-ERR weir: upstream connection lost\r\n");
}

#[test]
fn watched_keys_that_are_lost_meanwhile_are_lost() {
    let (mut scene, value) = scene_of_large_values();
    scene.says("WATCH b");
    let large = wire(&format!("SET a {value}"));
    scene.0.send(&large[..300]);
    scene.0.arrive(300);
    scene.0.resolve_pin(Ok(()));
    scene.0.wake();
    scene.0.lose_parked();
    assert!(scene.sends(&large[300..]).starts_with('$'));
    assert!(!scene.is_pinned());
    assert!(scene.says("MULTI\nGET e\nEXEC").ends_with("*-1\r\n"));
}

#[test]
fn a_large_message_goes_where_small_ones_go() {
    let (mut scene, value) = scene_of_large_values();
    scene.0.send(&wire(&format!("SET b {value}\nPUBLISH news {value}")));
    while scene.0.arrive(150) {
        scene.0.resolve_pin(Ok(()));
    }
    scene.reads();
    assert_eq!(scene.0.world.pinned_to(), [2, 0], "to the first shard, though the value before it went to the third");
}

#[test]
fn a_large_command_for_keys_of_several_shards_is_refused_like_a_small_one() {
    let (mut scene, value) = scene_of_large_values();
    assert_eq!(scene.drips(&wire(&format!("EVAL {value} 2 a b")), 150), CROSS_SLOT);
    assert_eq!(scene.says("EVAL x 2 a b"), CROSS_SLOT);
    // Its keys come behind the script, so it is held until they are here.
    assert!(scene.drips(&wire(&format!("EVAL {value} 2 a d")), 150).starts_with('$'));
    let key = "k".repeat(300);
    assert!(scene.drips(&wire(&format!("SET {key} {value}")), 150).starts_with('$'), "and so is one with a large key");
}
