//! Echo: lines through the program, their limits, and the end of a connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use weir_tests::gateway::{Config, Gateway};
use weir_tests::stream::Address;

/// Repeats what it reads.
fn origin() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Tcp(listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A gateway that is gone is no fault.
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    address
}

fn start(lines: &str) -> Gateway {
    let config = Config { protocol: "echo", ..Config::to(&origin()) };
    Gateway::start(config.listener(lines))
}

fn connect(gateway: &Gateway) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(gateway.address.tcp()).expect("the gateway accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit can be set");
    BufReader::new(stream)
}

fn send(client: &mut BufReader<TcpStream>, text: &str) {
    client.get_mut().write_all(text.as_bytes()).expect("open");
}

fn line(client: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    client.read_line(&mut line).expect("an answer");
    line
}

#[test]
fn lines_of_two_clients_come_back_over_one_lane_and_a_drain_ends_both() {
    let mut gateway = start("");
    let mut clients = [connect(&gateway), connect(&gateway)];
    for number in 0..3 {
        for (client, name) in clients.iter_mut().zip(["a", "b"]) {
            send(client, &format!("{name} {number}\n"));
            assert_eq!(line(client), format!("{name} {number}\n"));
        }
    }
    let page = gateway.admin.get("/api/v1/connections").json();
    let rows = page["connections"].as_array().expect("a list");
    let protocols: Vec<&str> = rows.iter().filter_map(|row| row["protocol_version"].as_str()).collect();
    assert_eq!(protocols, ["ECHO", "ECHO"], "{page}");
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("weir_lanes_open"), 1.0, "one after the other they need one");
    gateway.process().signal("TERM");
    for client in &mut clients {
        assert_eq!(client.read_to_end(&mut Vec::new()).expect("an orderly end"), 0);
    }
    let status = gateway.process().wait(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    gateway.ended();
}

#[test]
fn lines_sent_at_once_are_answered_in_order() {
    let gateway = start("");
    let mut client = connect(&gateway);
    send(&mut client, "1\n2\n\n3\n4");
    assert_eq!(
        [line(&mut client), line(&mut client), line(&mut client), line(&mut client)],
        ["1\n", "2\n", "\n", "3\n"]
    );
    send(&mut client, "5\n");
    assert_eq!(line(&mut client), "45\n");
    drop(client);
    gateway.wait_metric("weir_connections_closed_total", &[("reason", "client_closed")], 1.0);
    gateway.finish();
}

#[test]
fn a_line_past_the_limit_is_refused_and_ends_its_connection() {
    let gateway = start("echo = { line_bytes_max = 16 }");
    let mut client = connect(&gateway);
    send(&mut client, "0123456789abcdef\n0123456789abcdefg");
    assert_eq!(line(&mut client), "0123456789abcdef\n");
    assert_eq!([line(&mut client), line(&mut client)], ["!line_too_long\n", ""]);
    gateway.wait_metric("weir_connections_closed_total", &[("reason", "line_too_long")], 1.0);
    gateway.finish();
}

#[test]
fn an_upstream_that_is_away_is_an_answer_and_the_connection_goes_on() {
    let away = Address::port(weir_tests::port::free());
    let gateway = Gateway::start_unready(Config { protocol: "echo", ..Config::to(&away) });
    let mut client = connect(&gateway);
    for _ in 0..2 {
        send(&mut client, "x\n");
        let answer = line(&mut client);
        assert!(["!upstream_unreachable\n", "!breaker_open\n"].contains(&&*answer), "{answer}");
    }
    drop(client);
    gateway.finish();
}
