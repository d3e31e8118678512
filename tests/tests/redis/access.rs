//! Access to the listener and the gateway's own login at the server are independent.

use std::time::{Duration, Instant};

use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Options, Server};

const OURS: &str = "the-listeners-own";
const THEIRS: &str = "the-servers-own";

fn closed_server(kind: Kind) -> Server {
    let options = Options { password: Some(THEIRS.to_owned()), ..Options::default() };
    Server::start_with(kind, options)
}

#[test]
fn the_gateway_logs_in_for_clients_that_bring_no_password() {
    for kind in Kind::ALL {
        let server = closed_server(kind);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = Config::to(&server.address).upstream_password(folder.path(), None, THEIRS);
        let gateway = Gateway::start(config);
        let mut client = gateway.connect();
        client.expect(&["SET", "k", "v"], b"+OK\r\n");
        client.expect(&["GET", "k"], b"$1\r\nv\r\n");
        client.expect(
            &["AUTH", THEIRS],
            b"-ERR AUTH <password> called without any password configured for the default user. \
              Are you sure your configuration is correct?\r\n",
        );
    }
}

#[test]
fn a_named_user_logs_in_at_the_server() {
    let options = Options {
        password: Some("unused-by-the-gateway".to_owned()),
        user: Some(("gateway".to_owned(), THEIRS.to_owned())),
        ..Options::default()
    };
    let server = Server::start_with(Kind::Redis, options);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = Config::to(&server.address).upstream_password(folder.path(), Some("gateway"), THEIRS);
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    let list = server.connect().call(&["CLIENT", "LIST"]);
    let list = String::from_utf8_lossy(&list).into_owned();
    assert!(list.contains("user=gateway"), "{list}");
    assert!(list.contains("name=weir"), "{list}");
}

#[test]
fn listener_and_server_have_passwords_of_their_own() {
    let server = closed_server(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = Config::to(&server.address).listener_password(folder.path(), OURS).upstream_password(
        folder.path(),
        None,
        THEIRS,
    );
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    client.expect(&["GET", "k"], b"-NOAUTH Authentication required.\r\n");
    client.expect(&["AUTH", THEIRS], b"-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client.expect(&["AUTH", OURS], b"+OK\r\n");
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    // Pinned lanes log in as well.
    client.expect(&["WATCH", "k"], b"+OK\r\n");
    client.expect(&["UNWATCH"], b"+OK\r\n");
}

#[test]
fn a_listener_user_must_be_named() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = weir_tests::gateway::secret_file(folder.path(), "password", OURS);
    let lines = format!("[listener.redis]\nuser = \"alice\"\npassword = {{ file = \"{file}\" }}");
    let gateway = Gateway::start(Config::to(&server.address).listener(&lines));
    let wrong = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let mut client = gateway.connect();
    client.expect(&["AUTH", OURS], wrong);
    client.expect(&["AUTH", "bob", OURS], wrong);
    client.expect(&["AUTH", "alice", OURS], b"+OK\r\n");
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    let mut third = gateway.connect();
    let hello = third.call(&["HELLO", "3", "AUTH", "alice", OURS]);
    assert!(hello.starts_with(b"%7\r\n"));
    third.expect(&["GET", "absent"], b"_\r\n");
}

#[test]
fn a_wrong_upstream_password_is_reported_and_mended_by_a_reload() {
    let server = closed_server(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = Config::to(&server.address).upstream_password(folder.path(), None, "wrong");
    let gateway = Gateway::start_unready(config);
    let mut client = gateway.connect();
    let reply = client.call(&["GET", "k"]);
    assert!(reply.starts_with(b"-ERR weir: "), "{}", String::from_utf8_lossy(&reply));
    client.expect(&["PING"], b"+PONG\r\n");
    weir_tests::gateway::secret_file(folder.path(), "upstream-password", THEIRS);
    let reload = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reload.status, 200, "{}", reload.body);
    deadline::until_true("the right password to be used", || client.call(&["GET", "k"]) == b"$-1\r\n");
}

#[test]
fn guessing_is_slowed_counted_and_ended() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = weir_tests::gateway::secret_file(folder.path(), "password", OURS);
    let lines = format!(
        "[listener.redis]\npassword = {{ file = \"{file}\" }}\nauth_failures_max = 3\nauth_failure_delay = \"50ms\""
    );
    let gateway = Gateway::start(Config::to(&server.address).listener(&lines));
    let mut client = gateway.connect();
    let started = Instant::now();
    for _ in 0..2 {
        let reply = client.call(&["AUTH", "guess"]);
        assert!(reply.starts_with(b"-WRONGPASS"));
    }
    client.command(&["AUTH", "guess"]);
    let (last, end) = client.read_to_end(Duration::from_secs(5));
    assert!(last.starts_with(b"-WRONGPASS"), "{}", String::from_utf8_lossy(&last));
    assert_eq!(end, weir_tests::client::End::Closed);
    // The last guess ends the connection, so no client is left to slow down.
    assert!(started.elapsed() >= Duration::from_millis(95), "two delays of 50 ms");
    assert_eq!(gateway.metric("weir_auth_failures_total"), 3.0);
    // Nothing of it reached the server.
    assert_eq!(server.calls("auth"), 0);
}

#[test]
fn a_killed_client_is_not_listed_and_not_killed_again() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).listener("[listener.redis]\nadmin_commands = true"));
    let mut victim = gateway.connect();
    victim.expect(&["CLIENT", "SETNAME", "victim"], b"+OK\r\n");
    let mut killer = gateway.connect();
    // At once, before the victim's worker has seen to it, as with a server.
    killer.command(&["CLIENT", "KILL", "SKIPME", "yes"]);
    killer.command(&["CLIENT", "LIST"]);
    killer.command(&["CLIENT", "KILL", "SKIPME", "yes"]);
    assert_eq!(killer.reply(), b":1\r\n");
    let list = killer.reply();
    assert!(!String::from_utf8_lossy(&list).contains("name=victim"), "{}", String::from_utf8_lossy(&list));
    assert_eq!(killer.reply(), b":0\r\n");
}
