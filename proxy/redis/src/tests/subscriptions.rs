use weir_upstream::LossCause;

use super::scene::{Scene, bulk, wire};
use crate::{settings::RedisListenerSettings, simulation::End};

const LOST: &str = "-ERR weir: upstream connection lost, session state is gone\r\n";

fn confirmation(mark: char, kind: &str, channel: &str, count: u64) -> String {
    format!("{mark}3\r\n{}{}:{count}\r\n", bulk(kind), bulk(channel))
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
        assert!(!scene.is_pinned());
        assert_eq!(scene.given_back().1, 0, "the lane is clean");
    }
}

#[test]
fn unsubscribe_without_a_subscription_is_confirmed_by_the_server() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("UNSUBSCRIBE"), "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n");
    assert!(!scene.is_pinned());
}

#[test]
fn a_subscriber_of_resp2_may_do_little_else() {
    let mut scene = Scene::new();
    scene.says("SUBSCRIBE x");
    let no = "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n";
    assert_eq!(scene.says("GET a"), no);
    assert_eq!(scene.says("PING\nPING hello"), "*2\r\n$4\r\npong\r\n$0\r\n\r\n*2\r\n$4\r\npong\r\n$5\r\nhello\r\n");
    assert!(scene.says("MULTI\nCLIENT ID\nSELECT 1\nBLPOP k 0").matches("-ERR Can't execute").count() == 4);
    assert_eq!(scene.says("RESET\nPING"), "+RESET\r\n+PONG\r\n");
    assert_eq!(scene.given_back(), (0, 1));
}

#[test]
fn what_is_pipelined_behind_the_last_unsubscribe_is_allowed_again() {
    let mut scene = Scene::new();
    let read = scene.says("SUBSCRIBE x\nUNSUBSCRIBE x\nGET a");
    assert!(read.ends_with(&bulk("GET a|0|5")), "{read}");
}

#[test]
fn in_resp3_commands_and_messages_mix_in_the_servers_order() {
    let mut scene = Scene::resp3();
    scene.says("SUBSCRIBE x");
    scene.publishes("x", "one");
    assert_eq!(scene.blurts("GET a\nNOPE.\u{e9}\nGET b\nGET"), "");
    let message = format!(">3\r\n{}{}{}", bulk("message"), bulk("x"), bulk("one"));
    let unknown = "-ERR unknown command 'NOPE.\u{e9}', with args beginning with: \r\n";
    let arity = "-ERR wrong number of arguments for 'get' command\r\n";
    assert_eq!(scene.reads(), [&message, &bulk("GET a|0|3"), unknown, &bulk("GET b|0|4"), arity].concat());
}

#[test]
fn a_reply_that_looks_like_a_confirmation_is_a_reply_in_resp3() {
    let mut scene = Scene::resp3();
    scene.says("SUBSCRIBE x");
    let read = scene.says("LRANGE subscribe 0 1\nLRANGE message x y\nPING");
    assert!(read.starts_with("*4\r\n$9\r\nsubscribe\r\n") && read.ends_with("+PONG\r\n"), "{read}");
    scene.says("UNSUBSCRIBE x");
    assert_eq!(scene.given_back(), (2, 0), "the count was not taken from data");
}

#[test]
fn a_refused_subscription_is_told_and_its_fence_is_not() {
    for mut scene in [Scene::new(), Scene::resp3()] {
        let read = scene.says("SUBSCRIBE denied\nPING");
        assert_eq!(read, "-NOPERM No permissions to access a channel\r\n+PONG\r\n");
        assert!(!scene.is_pinned());
        assert_eq!(scene.given_back().1, 0, "nothing is left on the lane");
    }
}

#[test]
fn messages_in_pieces_of_any_size_reach_the_client_whole() {
    for (resp3, mark) in [(false, '*'), (true, '>')] {
        for piece in 1..60 {
            let mut scene = if resp3 { Scene::resp3() } else { Scene::new() };
            scene.blurts("SUBSCRIBE x\nUNSUBSCRIBE x");
            scene.0.answer_pin(Ok(()));
            scene.arrives();
            let mut read = String::new();
            for payload in ["", "some words", "*3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0\r\n"] {
                scene.0.flush(0);
                while scene.0.execute(0) {}
                scene.publishes("x", payload);
            }
            while scene.is_pinned() && scene.0.deliver(0, piece) {
                read += &scene.arrives();
            }
            read += &scene.reads();
            let head = confirmation(mark, "subscribe", "x", 1);
            assert!(read.starts_with(&head) && read.ends_with(&confirmation(mark, "unsubscribe", "x", 0)), "{read}");
            assert_eq!(read.matches("$7\r\nmessage\r\n").count(), 3);
            assert!(!read.contains("PONG") && !read.contains("pong"), "{read}");
            assert!(!scene.is_pinned());
        }
    }
}

/// A reply of the gateway's own, or a RESET, must not fall into the middle of a message.
#[test]
fn nothing_is_said_in_the_middle_of_a_message() {
    for (said, answer) in [
        ("CLIENT ID", ":7\r\n"),
        ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("RESET", "+RESET\r\n"),
        ("QUIT", "+OK\r\n"),
    ] {
        let mut scene = Scene::resp3();
        scene.says("SUBSCRIBE x");
        scene.publishes("x", &"m".repeat(100));
        scene.0.deliver(0, 60);
        let mut read = scene.arrives();
        read += &scene.blurts(said);
        assert!(!read.contains(answer), "{said}: {read}");
        read += &scene.reads();
        assert_eq!(read, format!(">3\r\n{}{}{}{answer}", bulk("message"), bulk("x"), bulk(&"m".repeat(100))));
    }
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
fn a_lost_subscription_is_the_last_thing_a_client_hears() {
    for lines in ["SUBSCRIBE x", "SUBSCRIBE x\nPING"] {
        let mut scene = Scene::new();
        scene.says(lines);
        scene.0.lose(0, LossCause::Closed);
        assert_eq!(scene.reads(), LOST);
        assert_eq!(scene.0.end(), Some(&End::Closed));
    }
}

#[test]
fn a_message_cut_by_the_loss_of_its_lane_is_followed_by_nothing() {
    let mut scene = Scene::new();
    scene.says("SUBSCRIBE x");
    scene.publishes("x", &"m".repeat(100));
    scene.0.deliver(0, 60);
    scene.0.lose(0, LossCause::Closed);
    let read = scene.reads();
    assert!(read.ends_with('m') && scene.0.end().is_some(), "{read}");
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
fn pipelined_commands_of_a_subscriber_are_bounded_like_all_others() {
    let settings = RedisListenerSettings { pipeline_max: 3, ..Default::default() };
    let mut scene = Scene::with(settings);
    scene.says("HELLO 3\nSUBSCRIBE x");
    scene.0.send(&wire(&"GET a\n".repeat(50)));
    scene.arrives();
    assert_eq!(scene.0.next(), crate::session::Next::Wait);
    assert_eq!(scene.reads().matches("GET a|0|").count(), 50);
}

#[test]
fn a_reply_that_nobody_asked_for_ends_the_subscription() {
    let mut scene = Scene::resp3();
    scene.says("SUBSCRIBE x");
    scene.0.world.with_lane(0, |lane, _| lane.speak(|_, out| out.extend_from_slice(b"+STRAY\r\n")));
    assert_eq!(scene.reads(), LOST);
    assert_eq!(scene.0.world.violations(), ["unsolicited_reply"]);
    assert_eq!(scene.given_back(), (1, 1));
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
