use weir_redis_session::settings::RedisListenerSettings;

use super::scene::{Scene, bulk};

use crate::End;

const LOST: &str = "-ERR weir: upstream connection lost, session state is gone\r\n";

fn confirmation(mark: char, kind: &str, channel: &str, count: u64) -> String {
    format!("{mark}3\r\n{}{}:{count}\r\n", bulk(kind), bulk(channel))
}

/// The refusal of EXEC had no EXECABORT in front.
#[test]
fn the_exec_of_a_subscriber_is_refused_as_every_exec_is() {
    let mut scene = Scene::new();
    let only = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n";
    scene.says("SUBSCRIBE a");
    let refused = format!("-EXECABORT Transaction discarded because of: Can't execute 'exec': {only}");
    assert_eq!(scene.says("EXEC"), refused);
    assert_eq!(scene.says("DISCARD"), format!("-ERR Can't execute 'discard': {only}"));
}

#[test]
fn one_confirmation_per_channel_and_no_sign_of_the_fence() {
    for (mut scene, mark) in [(Scene::new(), '*'), (Scene::resp3(), '>')] {
        let read = scene.says("GET a\nSUBSCRIBE x y\nPSUBSCRIBE p\nSSUBSCRIBE s");
        let want = [
            &bulk("GET a|0|1")[..],
            &confirmation(mark, "subscribe", "x", 1),
            &confirmation(mark, "subscribe", "y", 2),
            &confirmation(mark, "psubscribe", "p", 3),
            &confirmation(mark, "ssubscribe", "s", 1),
        ];
        assert_eq!(read, want.concat());
        let read = scene.says("UNSUBSCRIBE x y\nPUNSUBSCRIBE\nSUNSUBSCRIBE s\nPING");
        let want = [
            confirmation(mark, "unsubscribe", "x", 2),
            confirmation(mark, "unsubscribe", "y", 1),
            confirmation(mark, "punsubscribe", "p", 0),
            confirmation(mark, "sunsubscribe", "s", 0),
            "+PONG\r\n".into(),
        ];
        assert_eq!(read, want.concat());
        assert!(!scene.is_pinned(), "no lane of its own is needed");
        assert_eq!(scene.0.world.feeds().dirt(), None, "the server is asked for nothing any more");
    }
}

#[test]
fn unsubscribing_from_nothing_needs_no_server() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("UNSUBSCRIBE"), "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n");
    assert_eq!(scene.says("PUNSUBSCRIBE p"), confirmation('*', "punsubscribe", "p", 0));
    scene.says("SUBSCRIBE x");
    assert_eq!(scene.says("UNSUBSCRIBE y"), confirmation('*', "unsubscribe", "y", 1));
    assert_eq!(scene.says("SUBSCRIBE x"), confirmation('*', "subscribe", "x", 1));
    let mut scene = Scene::resp3();
    assert_eq!(scene.says("SUNSUBSCRIBE"), ">3\r\n$12\r\nsunsubscribe\r\n_\r\n:0\r\n");
    assert!(scene.0.world.feeds().shards().is_empty());
}

#[test]
fn a_name_given_twice_is_confirmed_twice_and_subscribed_once() {
    for (mut scene, mark) in [(Scene::new(), '*'), (Scene::resp3(), '>')] {
        let read = scene.says("SUBSCRIBE x x y x");
        let counts = [("x", 1), ("x", 1), ("y", 2), ("x", 2)];
        assert_eq!(read, counts.map(|(name, count)| confirmation(mark, "subscribe", name, count)).concat());
        scene.publishes("x", "1");
        assert_eq!(scene.reads().matches("message").count(), 1);
        let read = scene.says("UNSUBSCRIBE x x");
        assert_eq!(read, confirmation(mark, "unsubscribe", "x", 1).repeat(2));
    }
}

#[test]
fn a_subscriber_of_resp2_may_do_little_else() {
    let mut scene = Scene::new();
    scene.says("SUBSCRIBE x");
    let no = "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n";
    assert_eq!(scene.says("GET a"), no);
    assert_eq!(scene.says("PING\nPING hello"), "*2\r\n$4\r\npong\r\n$0\r\n\r\n*2\r\n$4\r\npong\r\n$5\r\nhello\r\n");
    assert!(scene.says("MULTI\nCLIENT ID\nSELECT 1\nBLPOP k 0").matches("-ERR Can't execute").count() == 4);
    assert_eq!(scene.says("MOD.X y"), "-ERR unknown command 'MOD.X', with args beginning with: 'y' \r\n");
    assert_eq!(scene.says("RESET\nPING"), "+RESET\r\n+PONG\r\n");
    assert_eq!(scene.0.world.feeds().dirt(), None);
}

#[test]
fn commands_behind_the_last_unsubscribe_are_allowed_again() {
    let mut scene = Scene::new();
    let read = scene.says("SUBSCRIBE x\nUNSUBSCRIBE x\nGET a");
    assert!(read.ends_with(&bulk("GET a|0|3")), "{read}");
}

#[test]
fn a_reply_that_looks_like_a_confirmation_is_a_reply_in_resp3() {
    let mut scene = Scene::resp3();
    scene.says("SUBSCRIBE x");
    let read = scene.says("LRANGE subscribe 0 1\nLRANGE message x y\nPING");
    assert!(read.starts_with("*4\r\n$9\r\nsubscribe\r\n") && read.ends_with("+PONG\r\n"), "{read}");
    assert!(scene.says("UNSUBSCRIBE x").ends_with(":0\r\n"));
}

#[test]
fn a_push_between_replies_of_an_own_lane_is_the_clients_and_stays_whole() {
    let mut scene = Scene::resp3();
    scene.says("WATCH k");
    scene
        .0
        .world
        .with_lane(0, |lane, _| lane.speak(|_, out| out.extend_from_slice(b">2\r\n+invalidate\r\n*1\r\n+key\r\n")));
    scene.0.deliver(0, 9);
    let mut read = scene.arrives() + &scene.blurts("CLIENT ID");
    read += &scene.reads();
    assert_eq!(read, ">2\r\n+invalidate\r\n*1\r\n+key\r\n:7\r\n");
}

#[test]
fn subscriptions_have_a_limit() {
    let mut scene = Scene::with(RedisListenerSettings { subscriptions_max: 2, ..Default::default() });
    assert_eq!(scene.says("SUBSCRIBE a b c"), "-ERR weir: too many subscriptions\r\n");
    scene.says("SUBSCRIBE a b");
    assert_eq!(scene.says("PSUBSCRIBE c"), "-ERR weir: too many subscriptions\r\n");
    assert_eq!(scene.0.world.shed(), ["subscriptions", "subscriptions"]);
}

#[test]
fn monitor_streams_until_reset() {
    let mut scene = Scene::with(RedisListenerSettings { admin_commands: true, ..Default::default() });
    assert!(scene.says("MONITOR").starts_with("+OK\r\n+"));
    assert!(scene.says("PING").starts_with("+PONG\r\n+"));
    assert_eq!(scene.says("GET a"), "-ERR weir: only QUIT and RESET are possible after MONITOR\r\n");
    assert_eq!(scene.says("RESET\nGET a").matches("GET a|0|").count(), 1);
    assert_eq!(scene.given_back(), (0, 1));
}

#[test]
fn a_refused_monitor_is_over_at_once() {
    let mut scene = Scene::with(RedisListenerSettings { admin_commands: true, ..Default::default() });
    scene.0.world.server().denies_monitor = true;
    assert_eq!(scene.says("MONITOR"), "-NOPERM no MONITOR for you\r\n");
    assert!(scene.says("GET a").contains("GET a|0|"));
    assert!(!scene.is_pinned());
}

#[test]
fn in_resp3_commands_and_messages_mix() {
    let mut scene = Scene::resp3();
    scene.says("SUBSCRIBE x");
    scene.publishes("x", "one");
    let message = format!(">3\r\n{}{}{}", bulk("message"), bulk("x"), bulk("one"));
    let unknown = "-ERR unknown command 'NOPE.\u{e9}', with args beginning with: \r\n";
    let arity = "-ERR wrong number of arguments for 'get' command\r\n";
    assert_eq!(scene.blurts("GET a\nNOPE.\u{e9}\nGET b\nGET"), "");
    assert_eq!(scene.reads(), [&message, &bulk("GET a|0|2"), unknown, &bulk("GET b|0|3"), arity].concat());
}

#[test]
fn a_subscriber_of_resp3_may_do_everything() {
    let mut scene = Scene::resp3();
    scene.says("SUBSCRIBE x");
    assert_eq!(scene.says("SELECT 1\nGET a"), format!("+OK\r\n{}", bulk("GET a|1|2")));
    scene.says("WATCH k");
    assert!(scene.is_pinned(), "for WATCH alone");
    assert_eq!(scene.says("MULTI\nGET b\nEXEC").matches("GET b|1|").count(), 1);
    assert!(!scene.is_pinned());
    scene.publishes("x", "1");
    assert!(scene.reads().starts_with(">3"));
    // From now on in the other version.
    assert!(scene.says("HELLO 2").starts_with("*14"));
    scene.publishes("x", "2");
    assert!(scene.reads().starts_with("*3"));
    assert!(scene.says("GET a").starts_with("-ERR Can't execute"));
}

#[test]
fn its_own_message_comes_before_the_reply_to_its_publisher() {
    let mut scene = Scene::resp3();
    scene.says("SUBSCRIBE x");
    let read = scene.says("SET a b\nPUBLISH x 1\nGET a");
    let message = format!(">3\r\n{}{}{}", bulk("message"), bulk("x"), bulk("1"));
    assert_eq!(read, [&bulk("SET a b|0|2")[..], &message, &bulk("PUBLISH x 1|0|3"), &bulk("GET a|0|4")].concat());
}

#[test]
fn a_refused_subscription_is_the_error_of_the_server() {
    for mut scene in [Scene::new(), Scene::resp3()] {
        let read = scene.says("SUBSCRIBE a denied b\nPING");
        assert_eq!(read, "-NOPERM No permissions to access a channel\r\n+PONG\r\n");
        assert_eq!(scene.0.world.feeds().dirt(), None, "nothing is left");
    }
}

#[test]
fn messages_in_pieces_of_any_size_reach_the_client_whole() {
    for (resp3, mark) in [(false, '*'), (true, '>')] {
        for piece in 1..60 {
            let mut scene = if resp3 { Scene::resp3() } else { Scene::new() };
            scene.says("SUBSCRIBE x");
            let payloads = ["", "some words", "*3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0\r\n"];
            let mut want = String::new();
            for payload in payloads {
                scene.publishes("x", payload);
                want += &format!("{mark}3\r\n{}{}{}", bulk("message"), bulk("x"), bulk(payload));
            }
            scene.blurts("UNSUBSCRIBE x");
            while scene.0.execute_feed(0) {}
            let mut read = String::new();
            while scene.0.deliver_feed(0, piece) {
                read += &scene.arrives();
            }
            assert_eq!(read, want + &confirmation(mark, "unsubscribe", "x", 0));
        }
    }
}

/// A message must not fall into the middle of a reply.
#[test]
fn a_message_waits_for_the_end_of_the_reply_being_delivered() {
    let mut scene = Scene::resp3();
    scene.says("SUBSCRIBE x");
    scene.blurts("LRANGE k y 9\nCLIENT ID");
    scene.0.flush(0);
    scene.0.execute(0);
    scene.0.deliver(0, 9);
    let front = scene.arrives();
    assert!(!front.is_empty());
    scene.publishes("x", "1");
    scene.publishes("x", "2");
    assert!(scene.0.deliver_feed(0, usize::MAX));
    assert_eq!(scene.arrives(), "", "half a reply is with the client");
    let read = front + &scene.reads();
    let (reply, rest) = read.split_at(read.find('>').expect("a message"));
    assert!(reply.starts_with("*4\r\n") && reply.ends_with("|0|2\r\n"), "{read}");
    let message = |text| format!(">3\r\n{}{}{}", bulk("message"), bulk("x"), bulk(text));
    assert_eq!(rest, [&message("1")[..], &message("2"), ":7\r\n"].concat());
}

#[test]
fn a_lost_subscription_lane_costs_messages_and_nothing_else() {
    for (mut scene, mark) in [(Scene::new(), '*'), (Scene::resp3(), '>')] {
        scene.says("SUBSCRIBE x y\nPSUBSCRIBE p");
        scene.0.lose_feed(0);
        scene.publishes("x", "lost");
        assert_eq!(scene.reads(), "", "the client is told nothing");
        assert_eq!(scene.0.world.feeds().gaps(), 1);
        scene.publishes("x", "1");
        scene.publishes("p", "2");
        let read = scene.reads();
        assert!(read.starts_with(&format!("{mark}3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n1")), "{read}");
        assert!(read.contains("$8\r\npmessage\r\n$1\r\np\r\n$1\r\np\r\n$1\r\n2"), "{read}");
        assert_eq!(scene.says("UNSUBSCRIBE x"), confirmation(mark, "unsubscribe", "x", 2));
    }
}

#[test]
fn a_subscription_under_way_outlasts_its_lane() {
    let mut scene = Scene::new();
    scene.blurts("SUBSCRIBE x y");
    scene.0.connect_feed();
    scene.0.execute_feed(0);
    scene.0.deliver_feed(0, 31);
    assert_eq!(scene.arrives(), confirmation('*', "subscribe", "x", 1));
    scene.0.lose_feed(0);
    assert_eq!(scene.reads(), confirmation('*', "subscribe", "y", 2));
    scene.publishes("x", "1");
    assert!(scene.reads().contains("message"));
}

#[test]
fn without_a_server_a_subscription_is_refused() {
    let mut scene = Scene::new();
    scene.blurts("SUBSCRIBE x");
    scene.0.refuse_feeds(weir_base::exchange::Refusal::Unreachable);
    assert_eq!(scene.arrives(), "-ERR weir: upstream unreachable\r\n");
    scene.0.world.set(|policy| policy.refusal = Some(weir_base::exchange::Refusal::BreakerOpen));
    assert!(scene.says("SUBSCRIBE x").starts_with("-ERR weir: upstream unavailable"));
    scene.0.world.set(|policy| policy.refusal = None);
    assert_eq!(scene.says("SUBSCRIBE x"), confirmation('*', "subscribe", "x", 1));
}

#[test]
fn a_subscription_that_the_server_does_not_take_back_ends_the_session() {
    let mut scene = Scene::new();
    scene.says("SUBSCRIBE x y");
    // It says so in its next reply: the names have become forbidden.
    scene.0.world.server().denied = vec![b"y".to_vec()];
    scene.0.lose_feed(0);
    assert_eq!(scene.reads(), LOST);
    assert_eq!(scene.0.end(), Some(&End::Closed));
}

#[test]
fn reset_leaves_everything_without_a_word() {
    let mut scene = Scene::resp3();
    scene.says("SUBSCRIBE x y\nPSUBSCRIBE p\nSSUBSCRIBE s");
    assert_eq!(scene.says("RESET\nGET a").matches("GET a|0|").count(), 1);
    assert_eq!(scene.0.world.feeds().dirt(), None);
    scene.publishes("x", "1");
    assert_eq!(scene.reads(), "");
    assert!(scene.says("SUBSCRIBE x").ends_with(":1\r\n"));
}
