//! A cluster behind one listener: nodes that send requests elsewhere. With three of them `a` is in group 1, `b` in 2 and
//! `c` in 0, and each group is at home on the node of its number.

use weir_base::exchange::{LossCause, Refusal};
use weir_redis_session::{io::Topology as _, settings::RedisListenerSettings};

use super::scene::{Scene, bulk, wire};

#[test]
fn a_moved_key_is_followed() {
    let mut scene = Scene::cluster(3);
    scene.0.world.server().homes.insert(1, 2);
    assert_eq!(scene.says("SET a 1\nGET a\nGET b"), bulk("SET a 1|0|4") + &bulk("GET a|0|5") + &bulk("GET b|0|3"));
    // From now on it is known.
    assert_eq!(scene.says("GET a"), bulk("GET a|0|6"));
    assert_eq!(scene.0.world.lane_count(), 2, "nobody asked the third");
}

#[test]
fn a_migrating_key_is_tried_at_its_target_once() {
    let mut scene = Scene::cluster(3);
    scene.0.world.server().moving.insert(1, 0);
    assert_eq!(scene.says("GET a"), bulk("GET a|0|3"), "ASK, ASKING, GET");
    assert_eq!(scene.says("GET a"), bulk("GET a|0|6"), "and again: the map did not change");
    assert_eq!(scene.says("MGET a b c"), "*3\r\n".to_owned() + &["a@0", "b@2", "c@0"].map(bulk).concat());
}

#[test]
fn nothing_overtakes_a_redirected_request() {
    let mut scene = Scene::cluster(3);
    scene.0.world.server().homes.insert(1, 2);
    scene.blurts("SET a 1");
    scene.serves_one();
    // MOVED has come, SET is on its way to the new home.
    assert_eq!(scene.blurts("GET a\nGET c"), "");
    assert_eq!(scene.0.world.lane_count(), 2, "GET c waits: GET a stands in front of it");
    assert_eq!(scene.reads(), bulk("SET a 1|0|2") + &bulk("GET a|0|3") + &bulk("GET c|0|4"));
}

#[test]
fn a_redirection_to_nobody_ends() {
    let mut scene = Scene::cluster(3);
    scene.0.world.server().homes.insert(1, 7);
    // No node is there: the address is unknown, so the request is retried until its attempts are used up.
    scene.blurts("GET a");
    let mut tries = 0;
    loop {
        let read = scene.reads();
        if !read.is_empty() {
            assert_eq!(read, "-ERR weir: the key is being moved to another node, try again\r\n");
            break;
        }
        assert!(scene.0.retry());
        tries += 1;
    }
    assert_eq!(tries, 30);
    assert!(scene.0.world.refreshes() >= 30);
    assert_eq!(scene.says("GET b"), bulk("GET b|0|32"));
}

#[test]
fn a_busy_slot_is_tried_again() {
    let mut scene = Scene::cluster(3);
    scene.0.world.server().busy.insert(1);
    assert_eq!(scene.says("MGET a d\nGET b"), "");
    scene.0.world.server().busy.clear();
    assert!(scene.0.retry());
    assert_eq!(scene.reads(), "*2\r\n".to_owned() + &bulk("a@1") + &bulk("d@1") + &bulk("GET b|0|2"));
}

#[test]
fn a_refused_redirection_wakes_its_waiter() {
    let mut scene = Scene::cluster(3);
    scene.0.world.server().homes.insert(1, 2);
    scene.blurts("GET a\nSELECT 0\nPING");
    scene.0.world.set(|policy| policy.refusal = Some(Refusal::BreakerOpen));
    assert_eq!(scene.reads(), "-ERR weir: upstream unavailable, breaker open\r\n+OK\r\n+PONG\r\n");
}

#[test]
fn an_error_text_of_a_script_moves_no_slot() {
    let mut scene = Scene::cluster(3);
    scene.0.world.server().homes.insert(1, 0);
    // The key is of group 1, so what is said of another one is a reply.
    scene.0.world.server().claims.insert(1, 2);
    assert_eq!(scene.says("GET a"), "-ERR weir: the key is being moved to another node, try again\r\n");
    assert_eq!(scene.0.world.place(b"b").shard, 2);
}

#[test]
fn later_commands_are_not_overtaken_by_a_retry() {
    let mut scene = Scene::cluster(3);
    scene.0.world.server().busy.insert(1);
    let told = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
    assert_eq!(scene.says("MSET a 1 d 1\nSET a 2"), told.to_owned() + &bulk("SET a 2|0|2"));
}

#[test]
fn a_transaction_follows_its_keys() {
    let mut scene = Scene::cluster(3);
    scene.0.world.server().homes.insert(1, 2);
    assert_eq!(scene.says("MULTI\nSET a 1\nEXEC"), "+OK\r\n+QUEUED\r\n");
    scene.0.world.learn();
    assert!(scene.0.retry());
    assert_eq!(scene.reads(), "*1\r\n".to_owned() + &bulk("SET a 1|0|6"));
}

#[test]
fn a_lost_node_costs_the_requests_sent_there() {
    let mut scene = Scene::cluster(3);
    scene.blurts("GET a\nGET b");
    scene.0.flush(0);
    scene.0.lose(0, LossCause::Closed);
    assert_eq!(scene.reads(), "-ERR weir: upstream connection lost\r\n".to_owned() + &bulk("GET b|0|1"));
}

/// They went to the first node, which said that the slots of all others are empty.
#[test]
fn the_node_of_a_slot_answers_for_its_keys() {
    let mut scene = Scene::cluster(3);
    let read =
        scene.says("CLUSTER COUNTKEYSINSLOT 2\nCLUSTER GETKEYSINSLOT 1 10\nMULTI\nCLUSTER COUNTKEYSINSLOT 1\nEXEC");
    assert!(read.contains("CLUSTER COUNTKEYSINSLOT 2|0|"), "{read}");
    let lanes = scene.0.world.lane_count();
    let shards = (0..lanes).map(|lane| scene.0.world.with_lane(lane, |lane, _| lane.key.shard));
    assert_eq!(shards.collect::<Vec<_>>(), [2, 1], "nobody asked the first");
}

#[test]
fn clients_that_know_clusters_see_one_node() {
    let mut scene = Scene::cluster(3);
    assert!(scene.says("CLUSTER SLOTS").starts_with("*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n"));
    assert!(scene.says("CLUSTER NODES").contains("myself,master - 0 0 1 connected 0-16383\n"));
    assert!(scene.says("CLUSTER SHARDS").starts_with("*1\r\n*4\r\n$5\r\nslots\r\n"));
    assert!(scene.says("CLUSTER INFO").contains("cluster_state:ok\r\n"));
    assert_eq!(scene.says("CLUSTER KEYSLOT {foo}bar"), ":12182\r\n");
    assert_eq!(scene.says("READONLY\nREADWRITE\nSELECT 0"), "+OK\r\n+OK\r\n+OK\r\n");
    assert_eq!(scene.says("SELECT 1"), "-ERR SELECT is not allowed in cluster mode\r\n");
}

#[test]
fn a_script_is_not_run_twice_for_its_error_text() {
    let mut scene = Scene::cluster(3);
    let said = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
    scene.0.world.server().script_error = Some("TRYAGAIN Multiple keys request during rehashing of slot".to_owned());
    assert_eq!(scene.says("EVAL x 1 a"), said);
    assert!(!scene.0.retry());
    // A redirection is followed for this request, but does not move the slot for others.
    scene.0.world.server().script_error = Some("MOVED 1 node:2".to_owned());
    scene.says("EVAL x 1 a");
    assert_eq!(scene.0.world.place(b"a").shard, 1);
}

#[test]
fn a_subscriber_of_a_shard_channel_can_unsubscribe() {
    let mut scene = Scene::cluster(3);
    assert!(scene.says("SSUBSCRIBE a").contains("ssubscribe"));
    assert_eq!(scene.0.world.feeds().shards(), [1], "the shard of the channel");
    assert!(scene.says("SUNSUBSCRIBE").contains("sunsubscribe"));
    assert_eq!(scene.0.world.feeds().dirt(), None);
}

#[test]
fn a_shard_channel_is_followed_to_where_its_slot_is() {
    let mut scene = Scene::cluster(3);
    scene.0.world.server().homes.insert(1, 2);
    scene.blurts("SSUBSCRIBE a");
    assert_eq!(scene.reads(), "");
    scene.0.look_at_feeds();
    assert_eq!(scene.reads(), "*3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n");
    assert!(scene.0.world.refreshes() > 0);
    scene.publishes("a", "1");
    assert_eq!(scene.reads().matches("smessage").count(), 1);
}

#[test]
fn a_shard_channel_whose_slot_moves_stays_subscribed() {
    let mut scene = Scene::cluster(3);
    scene.says("SSUBSCRIBE a");
    scene.0.world.server().homes.insert(1, 0);
    scene.0.world.feeds().speak(1, |server, out| server.drop_shard_channel(b"a", out));
    assert_eq!(scene.reads(), "", "the client is told nothing");
    // The gateway does not know where the slot is, so it asks at the old place first.
    for _ in 0..2 {
        scene.0.look_at_feeds();
        scene.reads();
    }
    assert_eq!(scene.0.world.feeds().gaps(), 1);
    scene.publishes("a", "1");
    assert_eq!(scene.reads().matches("smessage").count(), 1);
    assert!(scene.says("SUNSUBSCRIBE a").ends_with(":0\r\n"));
    assert_eq!(scene.0.world.feeds().dirt(), None);
}

#[test]
fn key_events_are_subscribed_on_every_primary() {
    let mut scene = Scene::cluster(3);
    let read = scene.says("SUBSCRIBE __keyevent@0__:set news\nPSUBSCRIBE __keyspace@0__:*");
    assert_eq!(read.matches("subscribe\r\n").count(), 3);
    assert!(read.ends_with(":3\r\n"));
    assert_eq!(scene.0.world.feeds().shards(), [0, 1, 2]);
    for shard in 0..3 {
        scene.0.world.feeds().speak(shard, |server, out| server.publish(b"__keyevent@0__:set", b"1", out));
    }
    assert_eq!(scene.reads().matches("$7\r\nmessage").count(), 3, "each speaks of its own keys");
    scene.publishes("news", "1");
    assert_eq!(scene.reads().matches("$7\r\nmessage").count(), 1, "the others are heard once");
    assert!(scene.says("UNSUBSCRIBE").contains("unsubscribe"));
    assert!(scene.says("PUNSUBSCRIBE").ends_with(":0\r\n"));
    assert_eq!(scene.0.world.feeds().dirt(), None);
}

const TRY_AGAIN: &str = "-ERR weir: the key is being moved to another node, try again\r\n";

/// A large SET of `a` in a cluster of three, for a limit of 100 bytes.
fn large() -> (Scene, Vec<u8>) {
    let scene = Scene::with(RedisListenerSettings { stream_bytes: 100, ..Default::default() });
    scene.0.world.set_shards(3);
    scene.0.world.set_cluster();
    (scene, wire(&format!("SET a {}", "v".repeat(400))))
}

/// Every sequence with state or a lane of its own, refused because its slot has moved: the refusal leaves nothing behind, and the
/// same commands succeed at once. The map has not been refreshed in between.
#[test]
fn commands_refused_for_a_migration_succeed_when_retried() {
    let big = "v".repeat(400);
    for (words, good) in [
        ("WATCH a", "+OK".to_owned()),
        ("WATCH a d", "+OK".to_owned()),
        ("BLPOP a 0", String::new()),
        (&*format!("SET a {big}"), "$".to_owned()),
        (&*format!("EVAL {big} 1 a"), "$".to_owned()),
        ("SSUBSCRIBE a", "*3".to_owned()),
        ("MULTI\nSET a 1\nEXEC", "+OK\r\n+QUEUED\r\n*1".to_owned()),
        ("SELECT 0\nGET a", "+OK\r\n$".to_owned()),
    ] {
        let (mut scene, _) = large();
        scene.0.world.server().homes.insert(1, 2);
        let first = scene.drips(&wire(words), 150);
        if first.contains(TRY_AGAIN) {
            assert!(!scene.is_pinned(), "{words}: the refusal left a lane");
            assert!(scene.0.world.refreshes() > 0 || scene.0.world.place(b"a").shard == 2, "{words}: the map is new");
        } else if words.starts_with("SSUB") {
            scene.0.look_at_feeds();
        } else if words.starts_with("MULTI") {
            scene.0.world.learn();
            scene.0.retry();
        }
        let again = if first.contains(TRY_AGAIN) { scene.drips(&wire(words), 150) } else { first + &scene.reads() };
        // A script may say anything: it moves no slot for others, but triggers a refresh of the map.
        if words.starts_with("EVAL") {
            scene.0.world.learn();
            assert!(scene.drips(&wire(words), 150).starts_with('$'));
            continue;
        }
        assert!(again.starts_with(&good) && !again.contains("-ERR"), "{words}: {again}");
        if good.is_empty() {
            scene.releases();
            assert!(scene.reads().starts_with('*'), "{words} waits at the new node");
        }
        assert!(scene.0.world.place(b"a").shard == 2 || words.starts_with("SSUB"), "{words}");
    }
}

#[test]
fn a_refused_watch_is_no_state() {
    let (mut scene, _) = large();
    scene.0.world.server().homes.insert(1, 2);
    assert_eq!(scene.says("WATCH a"), TRY_AGAIN);
    assert_eq!(scene.given_back(), (1, 0), "the lane is not kept");
    assert!(scene.says("WATCH a").starts_with("+OK"));
    assert!(scene.says("MULTI\nSET a 1\nEXEC").contains("*1\r\n"));
    // The first of two is kept: its key is watched.
    assert!(scene.says("WATCH b").starts_with("+OK"));
    scene.0.world.server().homes.insert(0, 1);
    scene.0.world.server().homes.insert(1, 2);
    scene.0.world.learn();
    scene.0.world.server().homes.insert(1, 0);
    assert_eq!(scene.says("WATCH a"), TRY_AGAIN);
    assert!(scene.is_pinned());
    scene.0.world.server().touch(b"b");
    assert!(scene.says("MULTI\nGET b\nEXEC").ends_with("*-1\r\n"));
}

#[test]
fn a_large_value_follows_the_redirection_of_an_earlier_command() {
    let (mut scene, value) = large();
    scene.0.world.server().homes.insert(1, 2);
    let wire = [wire("SET a 1"), value].concat();
    scene.0.send(&wire);
    while scene.0.arrive(150) {}
    let read = scene.reads();
    assert!(!read.contains("-ERR") && read.matches("$").count() == 2, "{read}");
    assert_eq!(scene.0.world.pinned_to(), [2]);
}

#[test]
fn a_transaction_whose_watched_slot_moves_is_tried_again_by_its_client() {
    // The map is known to be new before EXEC.
    let (mut scene, _) = large();
    scene.says("WATCH a");
    scene.0.world.server().homes.insert(1, 2);
    scene.0.world.learn();
    assert_eq!(scene.says("MULTI\nSET a 1\nEXEC"), "+OK\r\n+QUEUED\r\n*-1\r\n");
    assert!(!scene.is_pinned());
    assert!(scene.says("WATCH a\nMULTI\nSET a 1\nEXEC").contains("*1\r\n"));
    // It is not: EXEC is aborted, and answered when it is known why.
    scene.says("WATCH a\nMULTI\nSET a 1");
    scene.0.world.server().homes.insert(1, 0);
    assert_eq!(scene.says("EXEC"), "");
    assert_eq!(scene.blurts("GET b"), "");
    scene.0.world.learn();
    assert!(scene.0.retry());
    assert_eq!(scene.reads(), "*-1\r\n".to_owned() + &bulk("GET b|0|11"));
    assert!(scene.says("WATCH a\nMULTI\nSET a 1\nEXEC").contains("*1\r\n"));
}

/// Only the slot of the latest WATCH was known: the transaction was refused as one over several nodes, and so was the next WATCH.
#[test]
fn the_slot_of_any_watched_key_may_move() {
    for (moved, group) in [("a", 1), ("b", 2)] {
        let mut scene = Scene::cluster(3);
        scene.0.world.server().homes.insert(2, 1);
        scene.0.world.learn();
        assert!(!scene.says("WATCH a\nWATCH b\nWATCH b").contains("-ERR"));
        scene.0.world.server().homes.insert(group, 0);
        scene.0.world.learn();
        let exec = format!("MULTI\nSET {moved} 1\nEXEC");
        assert_eq!(scene.says(&exec), "+OK\r\n+QUEUED\r\n*-1\r\n", "{moved}");
        assert!(scene.says(&format!("WATCH {moved}\n{exec}")).contains("*1\r\n"), "{moved}");
    }
}

/// The slots of watched keys were forgotten with the lane of the large value: the transaction was refused as one over several nodes.
#[test]
fn a_lost_lane_of_a_large_value_leaves_the_watched_slots_alone() {
    let (mut scene, value) = large();
    assert!(scene.says("WATCH b").starts_with("+OK"));
    scene.0.send(&value);
    while scene.0.arrive(150) {
        scene.0.resolve_pin(Ok(()));
    }
    assert_eq!(scene.0.world.pinned_to(), [2, 1]);
    scene.0.lose(scene.0.world.lane_count() - 1, LossCause::Closed);
    assert_eq!(scene.reads(), "-ERR weir: upstream connection lost\r\n");
    assert!(scene.is_pinned(), "the keys are watched still");
    scene.0.world.server().homes.insert(2, 0);
    scene.0.world.learn();
    assert_eq!(scene.says("MULTI\nSET b 1\nEXEC"), "+OK\r\n+QUEUED\r\n*-1\r\n");
}

#[test]
fn keys_watched_before_reset_are_watched_no_more() {
    let says_after = |before: &str| {
        let mut scene = Scene::cluster(3);
        scene.says(before);
        assert!(scene.says("WATCH a").starts_with("+OK"));
        scene.0.world.server().homes.insert(2, 0);
        scene.0.world.learn();
        scene.says("MULTI\nSET b 1\nEXEC")
    };
    assert_eq!(says_after("WATCH b\nRESET"), says_after("PING"), "a's slot has not moved");
}

#[test]
fn a_transaction_aborted_for_another_reason_says_so_after_a_moment() {
    let (mut scene, _) = large();
    scene.says("WATCH a\nMULTI\nSET a 1");
    scene.0.world.server().homes.insert(1, 2);
    assert_eq!(scene.says("EXEC"), "");
    let waits = (0..10).take_while(|_| scene.0.retry()).count();
    assert_eq!(waits, 3, "a bounded wait");
    assert_eq!(scene.reads(), "-EXECABORT Transaction discarded because of previous errors.\r\n");
    assert!(!scene.is_pinned());
}

#[test]
fn a_request_that_is_redirected_to_the_clients_own_lane_takes_it() {
    let (mut scene, _) = large();
    assert!(scene.says("WATCH b").starts_with("+OK"));
    scene.0.world.server().homes.insert(1, 2);
    assert_eq!(scene.says("SET a 1"), bulk("SET a 1|0|3"));
    assert_eq!(scene.0.world.lane_count(), 2, "no shared lane beside it");
}

#[test]
fn keys_can_be_watched_again_where_their_slot_is_now() {
    for words in ["WATCH a", "BLPOP a 0"] {
        let (mut scene, _) = large();
        scene.says("WATCH a");
        scene.0.world.server().homes.insert(1, 2);
        scene.0.world.learn();
        let read = scene.says(words);
        assert!(!read.contains("-ERR"), "{words}: {read}");
        scene.releases();
        scene.reads();
        assert!(scene.says("MULTI\nSET a 1\nEXEC").ends_with("*-1\r\n"), "{words}: what was watched first is lost");
        assert!(scene.says("WATCH a\nMULTI\nSET a 1\nEXEC").contains("*1\r\n"), "{words}");
    }
}

#[test]
fn a_lane_that_comes_when_the_slot_has_moved_is_given_back() {
    for words in [wire("WATCH a"), large().1] {
        let (mut scene, _) = large();
        scene.0.send(&words);
        scene.0.arrive(150);
        scene.0.world.server().homes.insert(1, 2);
        scene.0.world.learn();
        let read = scene.reads();
        assert!(!read.contains("-ERR"), "{read}");
        assert_eq!(scene.0.world.pinned_to(), [1, 2]);
        assert_eq!(scene.given_back().0, if scene.is_pinned() { 1 } else { 2 });
    }
}
