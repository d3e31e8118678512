//! The fields that go along with a session that moves to another process.

use weir_redis_session::settings::RedisListenerSettings;

use super::scene::Scene;

/// A scene whose session moves as often as it can.
fn moving(mut scene: Scene) -> Scene {
    scene.0.moves_every(1);
    scene
}

fn moves(scene: &Scene) -> u32 {
    scene.0.movable_moments()
}

#[test]
fn protocol_version_database_name_and_password_go_along() {
    let mut scene = moving(Scene::guarded());
    assert!(scene.says("GET a").starts_with("-NOAUTH"));
    scene.0.world.set(|policy| policy.is_trusted = true);
    assert!(scene.says("HELLO 3 AUTH default secret SETNAME reports").starts_with("%7\r\n"));
    assert_eq!(scene.says("SELECT 2"), "+OK\r\n");
    let before = moves(&scene);
    assert_eq!(scene.says("CLIENT GETNAME"), "$7\r\nreports\r\n");
    let info = scene.says("CLIENT INFO");
    assert!(info.contains(" db=2 ") && info.contains(" resp=3 "), "{info}");
    assert!(scene.says("GET missing").starts_with('_') || moves(&scene) > before);
    assert!(moves(&scene) > before + 1, "it moved in between");
}

#[test]
fn a_command_begun_is_finished_in_the_other_process() {
    let mut scene = moving(Scene::new());
    let wire = super::scene::wire("SET key value\nGET key");
    let whole = Scene::new().sends(&wire);
    for cut in 1..wire.len() {
        let mut scene = moving(Scene::new());
        let came = scene.sends(&wire[..cut]) + &scene.sends(&wire[cut..]);
        assert_eq!(came, whole, "cut at {cut}");
        assert!(moves(&scene) > 0, "cut at {cut}");
    }
    assert_eq!(scene.drips(&wire, 1), whole);
}

#[test]
fn state_bound_to_a_process_keeps_its_session_there() {
    for lines in ["MULTI", "MULTI\nSET a 1", "WATCH a", "SUBSCRIBE news", "MONITOR", "BLPOP never 0"] {
        let mut scene = Scene::new();
        scene.says(lines);
        scene.0.moves_every(1);
        scene.0.poke();
        scene.reads();
        assert_eq!(moves(&scene), 0, "{lines}");
    }
}

#[test]
fn it_moves_once_nothing_binds_it_any_more() {
    for lines in ["MULTI\nSET a 1\nEXEC", "WATCH a\nUNWATCH", "SUBSCRIBE news\nUNSUBSCRIBE news"] {
        let mut scene = moving(Scene::new());
        scene.says(lines);
        assert!(moves(&scene) > 0, "{lines}");
        assert_eq!(scene.says("PING"), "+PONG\r\n", "{lines}");
    }
}

#[test]
fn replies_that_are_not_wanted_stay_unwanted() {
    let mut scene = moving(Scene::new());
    assert_eq!(scene.says("CLIENT REPLY OFF"), "");
    assert_eq!(scene.says("PING"), "");
    assert_eq!(scene.says("CLIENT REPLY ON"), "+OK\r\n");
    assert_eq!(scene.says("CLIENT REPLY SKIP"), "");
    assert_eq!(scene.says("PING"), "");
    assert_eq!(scene.says("PING"), "+PONG\r\n");
}

#[test]
fn wrong_passwords_are_counted_across_a_move() {
    let settings = RedisListenerSettings {
        password: Some("secret".to_owned().into()),
        auth_failures_max: 3,
        auth_failure_delay: std::time::Duration::ZERO,
        ..Default::default()
    };
    let mut scene = moving(Scene::with(settings));
    for _ in 0..3 {
        assert!(scene.says("AUTH wrong").starts_with("-WRONGPASS"));
    }
    assert!(scene.0.end().is_some(), "the third one ends it");
}
