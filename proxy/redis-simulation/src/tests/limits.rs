use weir_redis_session::io::Full;

use super::scene::{Scene, bulk};

#[test]
fn a_command_waits_for_room_and_goes_when_there_is_some() {
    for line in ["GET a", "BLPOP k 0", "WATCH k", "MOD.X y", "MULTI\nGET a\nEXEC"] {
        let mut scene = Scene::new();
        scene.0.world.set(|policy| policy.full = Some(Full::InFlight));
        scene.says(line);
        assert_eq!(scene.0.world.lane_count(), 0, "{line}");
        scene.0.world.set(|policy| policy.full = None);
        scene.0.poke();
        scene.reads();
        assert!(scene.0.world.server().clock > 0, "{line}");
    }
}

#[test]
fn a_command_that_waited_in_vain_is_refused_and_the_next_is_not() {
    let mut scene = Scene::new();
    scene.0.world.set(|policy| policy.full = Some(Full::InFlight));
    assert_eq!(scene.says("GET a\nGET b"), "");
    scene.0.refuse_held();
    assert_eq!(scene.reads(), "-ERR weir: too many requests in flight\r\n", "GET b waits its own time");
    scene.0.world.set(|policy| policy.full = None);
    scene.0.poke();
    assert_eq!(scene.reads(), bulk("GET b|0|1"));
    assert_eq!(scene.0.world.shed(), ["in_flight"]);
}

/// Room came at the last moment: the refusal that was meant for the command must not hit another one.
#[test]
fn a_refusal_that_came_too_late_is_forgotten() {
    let mut scene = Scene::new();
    scene.0.world.set(|policy| policy.full = Some(Full::InFlight));
    scene.says("GET a");
    scene.0.world.set(|policy| policy.full = None);
    scene.0.refuse_held();
    assert_eq!(scene.says("WATCH k"), bulk("GET a|0|1") + "+OK 2\r\n");
}

#[test]
fn commands_on_an_own_lane_wait_for_room_too() {
    let mut scene = Scene::new();
    scene.says("WATCH k");
    for line in ["GET a", "SELECT 1", "BLPOP k 0", "MOD.X y", "UNWATCH"] {
        scene.0.world.set(|policy| policy.full = Some(Full::Buffered));
        assert_eq!(scene.says(line), "", "{line}");
        scene.0.refuse_held();
        assert_eq!(scene.reads(), "-ERR weir: buffered bytes limit reached\r\n", "{line}");
        scene.0.world.set(|policy| policy.full = None);
    }
    assert!(scene.is_pinned());
}

#[test]
fn a_full_core_still_answers_by_itself() {
    let mut scene = Scene::new();
    scene.0.world.set(|policy| policy.full = Some(Full::InFlight));
    assert_eq!(scene.says("PING\nMULTI\nDISCARD\nSELECT 1"), "+PONG\r\n+OK\r\n+OK\r\n+OK\r\n");
}
