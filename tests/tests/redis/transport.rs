//! Unix sockets on both sides.

use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Options, Server};
use weir_tests::stream::Address;

fn unix_server() -> Server {
    let options = Options { unix: true, ..Options::default() };
    Server::start_with(Kind::Redis, options)
}

#[test]
fn the_server_is_reached_through_a_socket_file() {
    let server = unix_server();
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    client.expect(&["WATCH", "k"], b"+OK\r\n");
    client.expect(&["UNWATCH"], b"+OK\r\n");
}

#[test]
fn clients_come_through_a_socket_file() {
    let server = Server::start(Kind::Redis);
    let mut config = Config::to(&server.address);
    config.unix = true;
    let gateway = Gateway::start(config);
    let Address::Unix(path) = gateway.address.clone() else {
        panic!("the listener has a socket file");
    };
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    client.expect(&["GET", "k"], b"$1\r\nv\r\n");
    drop(client);
    assert!(path.exists());
}

#[test]
fn both_sides_are_socket_files_and_large_values_pass() {
    let server = unix_server();
    let mut config = Config::to(&server.address).workers(2);
    config.unix = true;
    let gateway = Gateway::start(config);
    let mut clients: Vec<_> = (0..8).map(|_| gateway.connect()).collect();
    let value = "z".repeat(5 << 20);
    for (number, client) in clients.iter_mut().enumerate() {
        client.command(&["SET", &format!("k{number}"), &value]);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.reply(), b"+OK\r\n");
        let wanted = format!("${}\r\n{value}\r\n", value.len());
        assert!(client.call(&["GET", &format!("k{number}")]) == wanted.as_bytes());
    }
}

#[test]
fn a_stale_socket_file_is_replaced_and_a_live_one_is_not() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("listener.sock");
    // A stale socket file, without a listener.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket file"));
    let mut config = Config::to(&server.address);
    config.bind = Address::Unix(path.clone());
    let gateway = Gateway::start(config.clone());
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
    // A second gateway must not take the first one's clients away.
    let file = folder.path().join("second.toml");
    std::fs::write(&file, config.text(weir_tests::port::free())).expect("a file");
    let output = std::process::Command::new(weir_tests::gateway::program())
        .args(["run", "--config"])
        .arg(&file)
        .output()
        .expect("the gateway can be started");
    assert!(!output.status.success(), "a second gateway on the same socket file");
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
    gateway.finish();
    assert!(!path.exists(), "the file goes with the gateway");
}
