use std::sync::Arc;

use weir_policy::redis::User;
use weir_redis_session::{
    settings::RedisListenerSettings,
    users::{UserSettings, Users},
};

use super::scene::{Scene, bulk};

use crate::End;

const NO_KEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n";

fn users(list: &[(&str, &str)]) -> Arc<Users> {
    let user = |(name, rules): &(&str, &str)| UserSettings::new(User::from_rules(name, rules).expect("valid rules"));
    Arc::new(Users::new(list.iter().map(user)))
}

fn scene(list: &[(&str, &str)]) -> Scene {
    Scene::with(RedisListenerSettings { users: Some(users(list)), ..Default::default() })
}

fn no_command(name: &str) -> String {
    format!("-NOPERM this user has no permissions to run the '{name}' command\r\n")
}

/// True if the session has to end for it.
fn follow(scene: &mut Scene, list: Option<&[(&str, &str)]>) -> bool {
    let users = list.map(users);
    scene.0.session.follow_users(users.as_ref(), &scene.0.world)
}

#[test]
fn a_pipeline_is_judged_command_by_command_and_stays_in_order() {
    let mut scene = scene(&[("default", "on nopass ~a* +get +mget")]);
    let reply = scene.says("GET a\nGET b\nDEL a\nGET a2\nMGET a b\nGET a3");
    let wanted = [
        bulk("GET a|0|1"),
        NO_KEY.to_owned(),
        no_command("del"),
        bulk("GET a2|0|2"),
        NO_KEY.to_owned(),
        bulk("GET a3|0|3"),
    ];
    assert_eq!(reply, wanted.concat());
}

#[test]
fn nothing_passes_before_the_login_and_all_after_it() {
    let mut scene = scene(&[("alice", "on >x ~* &* +@all"), ("off", "off >x ~* +@all")]);
    assert_eq!(scene.says("GET a"), "-NOAUTH Authentication required.\r\n");
    assert!(scene.says("AUTH off x").starts_with("-WRONGPASS"));
    scene.0.world.set(|policy| policy.is_trusted = true);
    assert_eq!(scene.says("AUTH alice x\nGET a\nACL WHOAMI"), format!("+OK\r\n{}{}", bulk("GET a|0|1"), bulk("alice")));
    scene.0.world.set(|policy| policy.is_trusted = false);
    assert_eq!(scene.says("RESET\nGET a"), "+RESET\r\n-NOAUTH Authentication required.\r\n");
}

#[test]
fn a_denied_command_spoils_its_transaction() {
    let mut scene = scene(&[("default", "on nopass ~a* +get +multi +exec")]);
    let reply = scene.says("MULTI\nGET a\nGET b\nEXEC");
    assert_eq!(
        reply,
        format!("+OK\r\n+QUEUED\r\n{NO_KEY}-EXECABORT Transaction discarded because of previous errors.\r\n")
    );
    let mut scene = scene_without_exec();
    let reply = scene.says("MULTI\nGET a\nEXEC\nGET a");
    assert_eq!(
        reply,
        format!(
            "+OK\r\n+QUEUED\r\n-EXECABORT Transaction discarded because of: {}{}",
            &no_command("exec")[1..],
            bulk("GET a|0|1")
        )
    );
}

fn scene_without_exec() -> Scene {
    scene(&[("default", "on nopass ~a* +get +multi")])
}

#[test]
fn new_rules_hold_for_connected_clients_and_queued_commands() {
    let mut scene = scene(&[("default", "on nopass ~* &* +@all")]);
    assert_eq!(scene.says("MULTI\nSET a 1\nGET a"), "+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    assert!(!follow(&mut scene, Some(&[("default", "on nopass ~a* +get +multi +exec")])));
    let reply = scene.says("EXEC");
    assert!(reply.starts_with("-EXECABORT Transaction discarded because of: NOPERM ACLs rules changed"), "{reply}");
    assert!(reply.ends_with("no permission to execute the command or subcommand\r\n"), "{reply}");
    assert_eq!(scene.says("MULTI\nGET a"), "+OK\r\n+QUEUED\r\n");
    assert!(!follow(&mut scene, Some(&[("default", "on nopass ~a* +get +exec")])));
    assert!(scene.says("EXEC").starts_with('*'), "what is queued is still allowed");
    assert_eq!(scene.says("GET b"), NO_KEY);
}

#[test]
fn removed_or_disabled_users_have_to_go() {
    let start: &[(&str, &str)] = &[("default", "on nopass ~* &* +@all"), ("alice", "on nopass ~* &* +@all")];
    let alice = || {
        let mut scene = scene(start);
        assert_eq!(scene.says("AUTH alice x"), "+OK\r\n");
        scene
    };
    for (list, ends) in [
        (Some(&[("alice", "on nopass +get")][..]), false),
        (Some(&[("alice", "off nopass ~* &* +@all")]), true),
        (Some(&[("bob", "on nopass ~* &* +@all")]), true),
        (None, true),
    ] {
        assert_eq!(follow(&mut alice(), list), ends, "{list:?}");
    }
    assert!(!follow(&mut scene(start), None), "whom nobody knows may do everything again");
    let mut fresh = Scene::new();
    assert!(!follow(&mut fresh, Some(&[("default", "on nopass ~a* +get")])));
    assert_eq!(fresh.says("GET b"), NO_KEY);
    assert!(follow(&mut Scene::new(), Some(&[("alice", "on >x")])));
}

/// Without users its old settings ask for no password: a client that waits with an open connection must not get in by them.
#[test]
fn restricted_users_do_not_stay_when_the_users_go() {
    let mut nobody = scene(&[("alice", "on >x ~* +@all")]);
    assert!(follow(&mut nobody, None));
    let mut restricted = scene(&[("default", "on nopass ~pub:* +@read")]);
    assert!(follow(&mut restricted, None));
    let settings = RedisListenerSettings { password: Some("secret".to_owned().into()), ..Default::default() };
    let mut never_any = Scene::with(settings);
    assert!(!follow(&mut never_any, None), "a reload is no reason to go");
}

#[test]
fn a_large_command_in_disguise_is_refused() {
    let mut scene = scene(&[("default", "on nopass ~mine:* +@all -config")]);
    let padding = format!("\0{}", "x".repeat(100_000));
    for words in ["XINFO STREAM%\nPING", "XGROUP CREATE% other g $ MKSTREAM\nPING", "CONFIG SET% maxmemory 1\nPING"] {
        let reply = scene.says(&words.replace('%', &padding));
        assert_eq!(reply, "-ERR weir: command too large\r\n+PONG\r\n", "{words}");
    }
    let settings = RedisListenerSettings {
        users: Some(users(&[("default", "on nopass ~* &* +@all")])),
        admin_commands: true,
        ..Default::default()
    };
    let rules = "+get ".repeat(30_000);
    let reply = Scene::with(settings).says(&format!("ACL SETUSER evil on nopass {rules}\nPING"));
    assert_eq!(reply, "-ERR weir: command too large\r\n+PONG\r\n");
}

#[test]
fn a_subscriber_ends_with_its_channels() {
    let mut scene = scene_of_subscriber();
    scene.says("SUBSCRIBE a");
    assert!(!follow(&mut scene, Some(&[("default", "on nopass &a &b &c +subscribe")])));
    assert!(follow(&mut scene, Some(&[("default", "on nopass &a +subscribe")])));
    // It is not confirmed yet.
    let mut asking = scene_of_subscriber();
    asking.blurts("SUBSCRIBE b");
    assert!(follow(&mut asking, Some(&[("default", "on nopass &a +subscribe")])));
}

fn scene_of_subscriber() -> Scene {
    scene(&[("default", "on nopass &a &b +subscribe")])
}

#[test]
fn large_commands_wait_until_their_keys_are_known() {
    let mut scene = scene(&[("default", "on nopass ~a* +mset +set")]);
    let value = "v".repeat(100_000);
    assert_eq!(scene.says(&format!("MSET a1 {value} b x")), NO_KEY);
    assert_eq!(scene.says(&format!("SET b {value}")), NO_KEY);
    assert!(!scene.says(&format!("MSET a1 {value} a2 x")).starts_with('-'));
}

#[test]
fn an_http_request_ends_the_connection_whoever_sends_it() {
    let mut scene = scene(&[("default", "on nopass ~a* +get")]);
    assert_eq!(scene.sends(b"POST / HTTP/1.1\r\nHost: x\r\n"), "");
    assert_eq!(scene.0.end(), Some(&End::Violation("cross_protocol")));
}
