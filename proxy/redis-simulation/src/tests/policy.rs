use weir_redis_session::settings::{RedisListenerSettings, UnknownCommands};

use super::scene::{Scene, bulk, wire};

use crate::End;

fn admin() -> Scene {
    Scene::with(RedisListenerSettings { admin_commands: true, ..Default::default() })
}

#[test]
fn administrative_commands_stay_here_unless_the_listener_allows_them() {
    for line in [
        "CONFIG SET a b",
        "CONFIG GET *",
        "SHUTDOWN",
        "DEBUG SLEEP 1",
        "cOnFiG gEt requirepass",
        "MIGRATE h 1 k 0 1",
        "CLIENT KILL ID 1",
    ] {
        let mut scene = Scene::new();
        let read = scene.says(line);
        assert!(read.starts_with("-ERR weir: administrative command '"), "{line}: {read}");
        assert_eq!(scene.0.world.lane_count(), 0, "{line}");
    }
    assert!(admin().says("CONFIG GET *").contains("CONFIG GET *|0|1"));
    assert!(Scene::new().says("CONFIG GET maxmemory").contains("CONFIG GET maxmemory|0|1"), "harmless");
}

#[test]
fn commands_that_no_gateway_can_forward_are_refused_even_to_administrators() {
    for line in ["SYNC", "PSYNC a 1", "REPLCONF a b", "SCRIPT DEBUG YES"] {
        let mut scene = admin();
        let read = scene.says(line);
        assert!(read.starts_with("-ERR weir: command '") && read.contains("not supported"), "{line}: {read}");
        assert_eq!(scene.0.world.lane_count(), 0);
    }
}

#[test]
fn unknown_subcommands_of_administrative_containers_stay_here() {
    assert_eq!(Scene::new().says("CONFIG NOPE"), "-ERR unknown subcommand 'NOPE'. Try CONFIG HELP.\r\n");
    assert_eq!(admin().says("CONFIG NOPE"), bulk("CONFIG NOPE|0|1"));
    assert_eq!(admin().says("CLIENT NOPE"), "-ERR unknown subcommand 'NOPE'. Try CLIENT HELP.\r\n");
    let settings = RedisListenerSettings { unknown_commands: UnknownCommands::Refuse, ..Default::default() };
    assert_eq!(Scene::with(settings).says("OBJECT NOPE"), "-ERR unknown subcommand 'NOPE'. Try OBJECT HELP.\r\n");
}

#[test]
fn names_that_no_server_has_are_not_forwarded() {
    let mut scene = Scene::new();
    let mut wire = Vec::new();
    weir_resp::encode::command(&mut wire, [&b"get\0x"[..], b"k"]);
    assert!(scene.sends(&wire).starts_with("-ERR unknown command"));
    assert_eq!(scene.0.world.pins()[0], 0);
}

#[test]
fn inline_commands_are_forwarded_as_arrays() {
    let mut scene = Scene::new();
    assert_eq!(scene.sends(b"SET k \"a b\"\r\n\r\nping\r\n"), bulk("SET k a b|0|1") + "+PONG\r\n");
}

#[test]
fn a_protocol_error_comes_behind_the_replies_that_are_due() {
    let mut scene = Scene::new();
    let mut bytes = wire("GET a\nPING");
    bytes.extend_from_slice(b"*1\r\n+GET\r\n*1\r\n$4\r\nPING\r\n");
    scene.0.send(&bytes);
    assert_eq!(scene.arrives(), "");
    assert_eq!(scene.0.end(), None, "a reply is due");
    let error = "-ERR Protocol error: expected '$', got '+'\r\n";
    assert_eq!(scene.reads(), format!("{}+PONG\r\n{error}", bulk("GET a|0|1")));
    assert_eq!(scene.0.end(), Some(&End::Violation("expected_bulk")));
}

#[test]
fn a_protocol_error_alone_ends_at_once() {
    for (bytes, reason) in [
        (&b"*x\r\n"[..], "invalid_multibulk_length"),
        (b"*1\r\n$-2\r\n", "invalid_bulk_length"),
        (b"SET \"a\r\n", "unbalanced_quotes"),
        (b"*1\r\n$4\r\nPINGxx", "bulk_end"),
    ] {
        let mut scene = Scene::new();
        assert!(scene.sends(bytes).starts_with("-ERR Protocol error: "));
        assert_eq!(scene.0.end(), Some(&End::Violation(reason)));
    }
}

#[test]
fn before_the_login_little_is_read() {
    let mut scene = Scene::guarded();
    assert_eq!(scene.sends(b"*11\r\n"), "-ERR Protocol error: unauthenticated multibulk length\r\n");
    let mut scene = Scene::guarded();
    assert_eq!(scene.sends(b"*2\r\n$3\r\nGET\r\n$16385\r\n"), "-ERR Protocol error: unauthenticated bulk length\r\n");
}

#[test]
fn an_http_request_is_closed_without_a_word() {
    let mut scene = Scene::new();
    assert_eq!(scene.sends(b"POST / HTTP/1.1\r\n"), "");
    assert_eq!(scene.0.end(), Some(&End::Violation("cross_protocol")));
    let mut scene = Scene::new();
    assert_eq!(scene.says("POST x"), "");
    assert_eq!((scene.0.end(), &scene.0.world.violations()[..]), (Some(&End::Closed), &["cross_protocol"][..]));
}
