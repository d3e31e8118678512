//! Connections that go on in the new process, and what keeps one in the old process for a while.

use weir_tests::client::{Client, End};
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::wire::encode;

use super::{END_WAIT, ProgramFile, ends};

fn start(place: &ProgramFile, server: &Server, change: impl Fn(Config) -> Config) -> Gateway {
    Gateway::start(change(place.config(server)))
}

fn moved(gateway: &Gateway) -> f64 {
    gateway.metric("weir_connections_moved_total")
}

#[test]
fn a_connection_keeps_everything_that_it_has() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let password = |config: Config| config.listener_password(place.folder.path(), "secret").workers(2);
    let mut gateway = start(&place, &server, password);
    let mut client = gateway.connect();
    client.expect(&["AUTH", "secret"], b"+OK\r\n");
    assert!(client.call(&["HELLO", "3", "SETNAME", "reports"]).starts_with(b"%7\r\n"));
    client.expect(&["SELECT", "3"], b"+OK\r\n");
    client.expect(&["CLIENT", "SETINFO", "LIB-NAME", "tester"], b"+OK\r\n");
    let number = client.call(&["CLIENT", "ID"]);
    // A command begun in the old process is finished in the new one.
    let wire = encode(&["SET", "key", "a value"]);
    let (head, tail) = wire.split_at(wire.len() / 2);
    client.send(head);
    // A stranger stays one.
    let mut stranger = gateway.connect();
    assert!(stranger.call(&["GET", "key"]).starts_with(b"-NOAUTH"));

    let old = gateway.upgrade();
    ends(old, END_WAIT);
    gateway.wait_metric("weir_connections_moved_total", &[], 2.0);
    assert_eq!(moved(&gateway), 2.0);
    client.send(tail);
    assert_eq!(client.reply(), b"+OK\r\n");
    client.expect(&["GET", "missing"], b"_\r\n");
    client.expect(&["GET", "key"], b"$7\r\na value\r\n");
    assert_eq!(client.call(&["CLIENT", "ID"]), number);
    let line = String::from_utf8_lossy(&client.call(&["CLIENT", "INFO"])).into_owned();
    for part in ["name=reports", "db=3", "resp=3", "lib-name=tester", "user=default"] {
        assert!(line.contains(part), "`{part}` is not in {line}");
    }
    assert!(stranger.call(&["GET", "key"]).starts_with(b"-NOAUTH"));
    let mut newcomer = gateway.connect();
    newcomer.expect(&["AUTH", "secret"], b"+OK\r\n");
    assert_ne!(newcomer.call(&["CLIENT", "ID"]), number, "numbers are not given twice");
}

/// The process that received the first half of a command has counted it.
#[test]
fn the_bytes_of_a_command_that_crosses_count_once() {
    const READ: &str = "weir_client_read_bytes_total";
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let mut gateway = start(&place, &server, |config| config);
    let mut client = gateway.connect();
    let wire = encode(&["SET", "key", "a value"]);
    let (head, tail) = wire.split_at(wire.len() / 2);
    client.send(head);
    gateway.wait_metric(READ, &[], head.len() as f64);
    let old = gateway.upgrade();
    ends(old, END_WAIT);
    gateway.wait_metric("weir_connections_moved_total", &[], 1.0);
    client.send(tail);
    assert_eq!(client.reply(), b"+OK\r\n");
    assert_eq!(gateway.metric(READ), tail.len() as f64);
}

/// A transaction and a watch cannot cross; their client goes on in the old process, and moves when they are over.
#[test]
fn bound_sessions_move_when_they_become_free() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let drain = |mut config: Config| {
        config.drain = "settle = \"0s\"\ntimeout = \"20s\"".to_owned();
        config
    };
    let mut gateway = start(&place, &server, drain);
    let mut queueing = gateway.connect();
    queueing.expect(&["MULTI"], b"+OK\r\n");
    queueing.expect(&["INCR", "n"], b"+QUEUED\r\n");
    let mut watching = gateway.connect();
    watching.expect(&["WATCH", "n"], b"+OK\r\n");
    let mut subscriber = gateway.connect();
    assert!(subscriber.call(&["SUBSCRIBE", "news"]).ends_with(b":1\r\n"));
    let mut blocked = gateway.connect();
    blocked.command(&["BLPOP", "list", "0"]);
    gateway.wait_metric("weir_pinned_sessions", &[], 2.0);

    let mut old = gateway.upgrade();
    assert_eq!(moved(&gateway), 0.0);
    queueing.expect(&["INCR", "n"], b"+QUEUED\r\n");
    queueing.expect(&["EXEC"], b"*2\r\n:1\r\n:2\r\n");
    gateway.wait_metric("weir_connections_moved_total", &[], 1.0);
    queueing.expect(&["GET", "n"], b"$1\r\n2\r\n");
    // The watch still holds: the key has changed.
    watching.expect(&["MULTI"], b"+OK\r\n");
    watching.expect(&["SET", "n", "0"], b"+QUEUED\r\n");
    watching.expect(&["EXEC"], b"*-1\r\n");
    gateway.wait_metric("weir_connections_moved_total", &[], 2.0);
    watching.expect(&["GET", "n"], b"$1\r\n2\r\n");
    // Messages still come through the old process.
    queueing.expect(&["PUBLISH", "news", "hello"], b":1\r\n");
    assert!(subscriber.reply().ends_with(b"$5\r\nhello\r\n"));
    assert!(subscriber.call(&["UNSUBSCRIBE", "news"]).ends_with(b":0\r\n"));
    gateway.wait_metric("weir_connections_moved_total", &[], 3.0);
    subscriber.expect(&["GET", "n"], b"$1\r\n2\r\n");
    assert_eq!(old.try_wait(), None, "the blocked client is still there");
    queueing.expect(&["RPUSH", "list", "element"], b":1\r\n");
    assert_eq!(blocked.reply(), b"*2\r\n$4\r\nlist\r\n$7\r\nelement\r\n");
    gateway.wait_metric("weir_connections_moved_total", &[], 4.0);
    blocked.expect(&["GET", "n"], b"$1\r\n2\r\n");
    ends(old, END_WAIT);
}

/// Limits are for newcomers: who was let in goes on, as after a reload.
#[test]
fn nobody_is_left_out_of_a_new_process_that_has_less_room() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let limits = |config: Config| {
        let config = config.listener("connections_max = 4\nconnections_per_source_max = 4");
        config.tables("[limits]\nconnections = 4\nconnections_per_source = 4")
    };
    let mut gateway = start(&place, &server, limits);
    let mut clients: Vec<Client> = (0..4).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.expect(&["PING"], b"+PONG\r\n");
    }
    let text = std::fs::read_to_string(&gateway.file).expect("the configuration");
    std::fs::write(&gateway.file, text.replace("= 4\n", "= 1\n")).expect("the configuration");
    let old = gateway.upgrade();
    gateway.wait_metric("weir_connections_moved_total", &[], 4.0);
    ends(old, END_WAIT);
    for client in &mut clients {
        client.expect(&["PING"], b"+PONG\r\n");
    }
    assert!(gateway.connect().reply().starts_with(b"-ERR max number of clients reached"));
    assert_eq!(gateway.metric("weir_connections_open"), 4.0);
    clients.truncate(0);
    deadline::until_true("room for one again", || {
        let mut client = gateway.connect();
        client.try_send(&encode(&["PING"])).is_ok()
            && client.try_reply(deadline::WAIT).is_ok_and(|reply| reply == b"+PONG\r\n")
    });
}

/// State of a session in one protocol means nothing in another: the client ends with the old process.
#[test]
fn nothing_moves_to_a_listener_of_another_protocol() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let drain = "settle = \"0s\"\ntimeout = \"2s\"\n".to_owned();
    let mut gateway = start(&place, &server, |config| Config { drain: drain.clone(), ..config });
    let mut client = gateway.connect();
    client.expect(&["PING"], b"+PONG\r\n");
    let text = std::fs::read_to_string(&gateway.file).expect("the configuration");
    let tcp = text.replacen("protocol = \"redis\"", "protocol = \"tcp\"", 1);
    assert_ne!(tcp, text);
    std::fs::write(&gateway.file, tcp).expect("the configuration");
    let old = gateway.upgrade();
    ends(old, END_WAIT);
    assert_eq!(moved(&gateway), 0.0);
    let (rest, end) = client.read_to_end(deadline::WAIT);
    assert!(rest.is_empty() && matches!(end, End::Closed | End::Reset), "{rest:?} {end:?}");
    // A newcomer is served by the new protocol: the server itself answers.
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
}

/// Names may be longer than what a move carries; such a client is served in the old process until it must go.
#[test]
fn a_client_with_an_endless_name_is_not_kept_waiting() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let mut gateway = start(&place, &server, |config| config);
    let mut client = gateway.connect();
    client.expect(&["CLIENT", "SETNAME", &"n".repeat(10_000)], b"+OK\r\n");
    let old = gateway.upgrade();
    for _ in 0..20 {
        client.expect(&["PING"], b"+PONG\r\n");
    }
    assert_eq!(moved(&gateway), 0.0);
    drop(client);
    ends(old, END_WAIT);
}

/// A reply that the client has not read is not left behind.
#[test]
fn a_reply_that_is_not_read_yet_arrives_whole() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let mut gateway = start(&place, &server, |config| config);
    let value = "v".repeat(8 << 20);
    server.connect().expect(&["SET", "large", &value], b"+OK\r\n");
    let mut client = gateway.connect();
    client.send(&[encode(&["GET", "large"]), encode(&["PING"])].concat());
    gateway.wait_metric("weir_requests_total", &[], 2.0);
    let old = gateway.upgrade();
    let wanted = format!("${}\r\n{value}\r\n", value.len());
    assert!(client.reply() == wanted.as_bytes(), "the reply was damaged");
    assert_eq!(client.reply(), b"+PONG\r\n");
    client.expect(&["PING"], b"+PONG\r\n");
    gateway.wait_metric("weir_connections_moved_total", &[], 1.0);
    ends(old, END_WAIT);
}
