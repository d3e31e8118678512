use weir_base::exchange::Refusal;
use weir_redis_session::settings::RedisListenerSettings;

use super::scene::{Scene, bulk};

use crate::End;

const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

fn greeting(proto: u8) -> String {
    let head = if proto == 3 { "%7" } else { "*14" };
    let words = [bulk("server"), bulk("redis"), bulk("version"), bulk("5.0.0"), bulk("proto")].concat();
    let rest = [bulk("mode"), bulk("standalone"), bulk("role"), bulk("master"), bulk("modules")].concat();
    format!("{head}\r\n{words}:{proto}\r\n{}:7\r\n{rest}*0\r\n", bulk("id"))
}

#[test]
fn hello_answers_in_the_protocol_it_asks_for() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("HELLO"), greeting(2));
    assert_eq!(scene.says("HELLO 3"), greeting(3));
    assert_eq!(scene.says("HELLO"), greeting(3));
    assert_eq!(scene.says("HELLO 3 SETNAME me\nCLIENT GETNAME"), greeting(3) + &bulk("me"));
    assert_eq!(scene.says("HELLO 2\nGET a"), greeting(2) + &bulk("GET a|0|1"));
}

#[test]
fn hello_refuses_in_the_words_of_the_server() {
    for (line, reply) in [
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO 9", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"),
        ("HELLO 3 FOO", "-ERR Syntax error in HELLO option 'FOO'\r\n"),
        ("HELLO 3 AUTH a", "-ERR Syntax error in HELLO option 'AUTH'\r\n"),
        ("HELLO 3 AUTH a b", WRONG),
        ("HELLO 3 SETNAME \u{e9}", "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"),
    ] {
        let mut scene = Scene::new();
        assert_eq!(scene.says(line), reply, "{line}");
        assert_eq!(scene.says("HELLO"), greeting(2), "{line} changed the protocol");
    }
}

#[test]
fn hello_before_login_needs_a_login() {
    let mut scene = Scene::guarded();
    assert!(scene.says("HELLO 3").starts_with("-NOAUTH HELLO must be called with the client already authenticated"));
    assert_eq!(scene.says("HELLO 3 AUTH default guess"), WRONG);
    assert_eq!(scene.0.world.pins()[0], 0, "a guess costs no upstream connection");
    scene.0.world.set(|policy| policy.is_trusted = true);
    assert_eq!(scene.says("HELLO 3 AUTH default secret\nGET a"), greeting(3) + &bulk("GET a|0|1"));
}

#[test]
fn a_server_without_resp3_makes_hello_an_unknown_command() {
    let mut scene = Scene::new();
    scene.blurts("HELLO 3");
    scene.0.resolve_pin(Err(Refusal::Greeting));
    assert_eq!(scene.reads(), "-ERR unknown command 'HELLO', with args beginning with: '3' \r\n");
    assert_eq!(scene.says("GET a"), bulk("GET a|0|1"));
}

/// A server that lets the gateway in with no version must not be queried again and again.
#[test]
fn a_refused_login_of_the_gateway_is_an_error() {
    let mut scene = Scene::new();
    scene.blurts("HELLO 2");
    scene.0.resolve_pin(Err(Refusal::Greeting));
    assert_eq!(scene.arrives(), "-ERR weir: upstream refused the gateway's login\r\n");
    assert!(!scene.0.world.is_pin_requested());
}

#[test]
fn hello_cannot_change_the_protocol_of_an_own_lane() {
    let mut scene = Scene::new();
    scene.says("WATCH k");
    assert!(scene.says("HELLO 3").starts_with("-ERR weir: HELLO cannot change the protocol"));
    assert_eq!(scene.says("HELLO 2"), greeting(2));
}

#[test]
fn auth_is_judged_as_the_server_does() {
    let mut scene = Scene::new();
    let none = "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n";
    assert_eq!(scene.says("AUTH secret"), none);
    assert_eq!(scene.says("AUTH default anything"), "+OK\r\n");
    assert_eq!(scene.says("AUTH other anything"), WRONG);
    assert_eq!(scene.says("AUTH a b c"), "-ERR syntax error\r\n");
    let mut scene = Scene::guarded();
    assert_eq!(scene.says("AUTH guess"), WRONG);
    assert_eq!(scene.says("AUTH other secret"), WRONG);
    scene.0.world.set(|policy| policy.is_trusted = true);
    assert_eq!(scene.says("AUTH secret\nGET a"), "+OK\r\n".to_owned() + &bulk("GET a|0|1"));
    assert_eq!(scene.says("AUTH guess\nGET b"), WRONG.to_owned() + &bulk("GET b|0|2"), "it keeps its login");
}

#[test]
fn unknown_commands_and_arity_come_before_the_login() {
    let mut scene = Scene::guarded();
    for (line, reply) in [
        ("GET a", "-NOAUTH Authentication required.\r\n"),
        ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("NOPE x", "-ERR unknown command 'NOPE', with args beginning with: 'x' \r\n"),
        ("CONFIG NOPE", "-ERR unknown subcommand 'NOPE'. Try CONFIG HELP.\r\n"),
        ("MULTI", "-NOAUTH Authentication required.\r\n"),
        ("PING", "-NOAUTH Authentication required.\r\n"),
        ("SUBSCRIBE a", "-NOAUTH Authentication required.\r\n"),
        ("SHUTDOWN", "-NOAUTH Authentication required.\r\n"),
        ("RESET", "+RESET\r\n"),
        ("QUIT", "+OK\r\n"),
    ] {
        assert_eq!(scene.says(line), reply, "{line}");
    }
    assert_eq!(scene.0.end(), Some(&End::Closed));
}

#[test]
fn a_wrong_password_costs_time_and_too_many_the_connection() {
    let settings = RedisListenerSettings {
        password: Some("secret".to_owned().into()),
        auth_failures_max: 2,
        ..Default::default()
    };
    let mut scene = Scene::with(settings);
    assert_eq!(scene.blurts("AUTH one\nAUTH two\nAUTH secret"), WRONG, "the second guess waits");
    scene.0.pass_delay();
    assert_eq!(scene.reads(), WRONG);
    assert_eq!(scene.0.end(), Some(&End::Closed));
}

#[test]
fn reset_makes_a_stranger_of_every_client() {
    for state in [
        "GET a",
        "MULTI\nGET a",
        "MULTI\nGET",
        "WATCH k",
        "SELECT 3",
        "HELLO 3",
        "HELLO 3\nSUBSCRIBE a",
        "WAIT 0 0",
        "CLIENT REPLY OFF",
        "CLIENT SETNAME me",
    ] {
        let mut scene = Scene::guarded();
        scene.0.world.set(|policy| policy.is_trusted = true);
        scene.says("AUTH secret");
        scene.says(state);
        assert!(scene.says("RESET").ends_with("+RESET\r\n"), "{state}");
        assert!(!scene.is_pinned(), "{state}");
        assert_eq!(scene.says("GET a"), "-NOAUTH Authentication required.\r\n", "{state}");
        let read = scene.says("AUTH secret\nCLIENT GETNAME\nEXEC\nHELLO\nGET a");
        assert!(read.starts_with("+OK\r\n$-1\r\n-ERR EXEC without MULTI\r\n*14\r\n"), "{state}: {read}");
        assert!(read.contains("GET a|0|"), "{state}: {read}");
    }
}

#[test]
fn a_blocked_client_resets_when_its_command_is_over() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("BLPOP k 0\nRESET"), "");
    scene.releases();
    assert!(scene.reads().ends_with("+RESET\r\n"));
}
