use weir_base::exchange::Refusal;
use weir_redis_session::io::Pinning;

use super::scene::{Scene, bulk};

#[test]
fn a_blocking_command_gets_a_lane_once_all_before_it_is_answered() {
    let mut scene = Scene::new();
    scene.blurts("GET a\nBLPOP k 0\nGET b");
    assert!(!scene.0.world.is_pin_requested(), "it could overtake");
    assert_eq!(scene.reads(), bulk("GET a|0|1"));
    assert!(scene.is_pinned());
    scene.releases();
    let popped = format!("*3\r\n$1\r\nk\r\n$1\r\n0\r\n{}", bulk("BLPOP k 0|0|3"));
    assert_eq!(scene.reads(), popped + &bulk("GET b|0|4"), "the next one waited on the same lane");
    assert_eq!(scene.given_back(), (1, 0));
}

#[test]
fn the_next_client_may_have_the_lane() {
    let mut scene = Scene::new();
    scene.says("BLPOP k 0");
    scene.releases();
    scene.reads();
    scene.says("BLPOP k 0");
    scene.releases();
    scene.reads();
    assert_eq!(scene.given_back(), (2, 0));
}

#[test]
fn a_refused_lane_is_an_error_and_the_session_goes_on() {
    let mut scene = Scene::new();
    assert_eq!(scene.blurts("BLPOP k 0\nGET a"), "");
    scene.0.resolve_pin(Err(Refusal::QueueTimeout));
    assert_eq!(scene.reads(), format!("-ERR weir: timed out waiting for an upstream lane\r\n{}", bulk("GET a|0|1")));
    assert_eq!(scene.0.world.shed(), ["upstream_queue_timeout"]);
    assert_eq!(scene.says("WATCH k"), "+OK 2\r\n", "the refusal was that command's alone");
}

#[test]
fn too_many_blocked_clients_get_an_error() {
    let mut scene = Scene::new();
    scene.0.world.set(|policy| policy.pinning = Pinning::TooManyBlocked);
    assert_eq!(scene.blurts("BLPOP k 0\nPING"), "-ERR weir: too many blocked clients\r\n+PONG\r\n");
    assert_eq!(scene.0.world.shed(), ["blocked_clients"]);
}

#[test]
fn xread_pins_only_with_block() {
    let mut scene = Scene::new();
    scene.says("XREAD COUNT 1 STREAMS s 0");
    assert_eq!(scene.0.world.pins()[0], 0);
    scene.says("XREAD BLOCK 0 STREAMS s 0");
    assert_eq!(scene.0.world.pins()[0], 1);
}

#[test]
fn script_kill_uses_a_lane_without_a_database_and_later_commands_do_not() {
    let mut scene = Scene::new();
    scene.says("SELECT 3");
    let read = scene.says("SCRIPT KILL\nGET a\nSCRIPT KILL\nSELECT 4\nGET b");
    assert!(read.contains("SCRIPT KILL|0|") && read.contains("GET a|3|") && read.contains("GET b|4|"), "{read}");
    assert!(!read.contains("SCRIPT KILL|3|"), "{read}");
    assert_eq!(scene.given_back(), (2, 0));
}

#[test]
fn wait_keeps_its_lane_until_the_end() {
    let mut scene = Scene::new();
    scene.says("WAIT 0 0\nSET k v");
    assert!(scene.is_pinned());
    assert_eq!(scene.says("RESET"), "+RESET\r\n");
    assert_eq!(scene.given_back(), (0, 1));
}

#[test]
fn an_unknown_command_gets_a_lane_that_nobody_else_gets_after_it() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("MOD.STATE x\nGET a"), bulk("MOD.STATE x|0|1") + &bulk("GET a|0|2"));
    assert_eq!(scene.given_back(), (0, 1));
}

#[test]
fn a_lane_granted_for_a_greeting_is_given_back() {
    let mut scene = Scene::resp3();
    assert!(!scene.is_pinned());
    assert_eq!(scene.given_back(), (1, 0));
    scene.says("GET a");
    assert!(!scene.is_pinned());
}
