//! The PROXY protocol in front of a listener: versions 1 and 2, from trusted networks only.

use weir_tests::client::{Client, End};
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};

fn gateway(server: &Server, lines: &str) -> Gateway {
    Gateway::start(Config::to(&server.address).listener(lines))
}

/// A version 2 header for TCP over IPv4.
fn version_2(command: u8, source: [u8; 4], port: u16) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.push(0x20 | command);
    bytes.push(0x11);
    bytes.extend(12_u16.to_be_bytes());
    bytes.extend(source);
    bytes.extend([127, 0, 0, 1]);
    bytes.extend(port.to_be_bytes());
    bytes.extend(6379_u16.to_be_bytes());
    bytes
}

fn peers(gateway: &Gateway) -> String {
    gateway.admin.get("/api/v1/connections").body
}

#[test]
fn version_1_tells_the_source_address() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, "proxy_protocol = \"v1\"\nproxy_trusted = [\"127.0.0.0/8\"]");
    let mut client = gateway.connect();
    client.send(b"PROXY TCP4 203.0.113.7 127.0.0.1 40000 6379\r\nPING\r\n");
    assert_eq!(client.reply(), b"+PONG\r\n");
    assert!(peers(&gateway).contains("203.0.113.7:40000"), "{}", peers(&gateway));
    let mut six = gateway.connect();
    six.send(b"PROXY TCP6 2001:db8::7 ::1 40001 6379\r\n");
    six.expect(&["PING"], b"+PONG\r\n");
    assert!(peers(&gateway).contains("[2001:db8::7]:40001"), "{}", peers(&gateway));
    let mut unknown = gateway.connect();
    unknown.send(b"PROXY UNKNOWN\r\n");
    unknown.expect(&["PING"], b"+PONG\r\n");
}

#[test]
fn version_2_tells_the_source_address() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, "proxy_protocol = \"v2\"\nproxy_trusted = [\"127.0.0.0/8\"]");
    let mut client = gateway.connect();
    let header = version_2(1, [198, 51, 100, 9], 40_002);
    // One byte at a time: the header may come in any number of pieces.
    for byte in header {
        client.send(&[byte]);
    }
    client.expect(&["PING"], b"+PONG\r\n");
    assert!(peers(&gateway).contains("198.51.100.9:40002"), "{}", peers(&gateway));
    let mut local = gateway.connect();
    local.send(&version_2(0, [198, 51, 100, 10], 1));
    local.expect(&["PING"], b"+PONG\r\n");
    assert!(!peers(&gateway).contains("198.51.100.10"), "LOCAL keeps the real address");
}

#[test]
fn any_takes_both_versions() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, "proxy_protocol = \"any\"\nproxy_trusted = [\"127.0.0.1\"]");
    let mut one = gateway.connect();
    one.send(b"PROXY TCP4 203.0.113.7 127.0.0.1 40000 6379\r\n");
    one.expect(&["PING"], b"+PONG\r\n");
    let mut two = gateway.connect();
    two.send(&version_2(1, [198, 51, 100, 9], 40_002));
    two.expect(&["PING"], b"+PONG\r\n");
}

fn ends_without_a_word(mut client: Client, bytes: &[u8]) {
    client.send(bytes);
    let (reply, end) = client.read_to_end(deadline::WAIT);
    assert!(reply.is_empty(), "{}", String::from_utf8_lossy(&reply));
    assert_ne!(end, End::Silent, "the connection stayed open");
}

#[test]
fn a_missing_or_broken_header_ends_the_connection() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, "proxy_protocol = \"any\"\nproxy_trusted = [\"127.0.0.1\"]");
    ends_without_a_word(gateway.connect(), b"*1\r\n$4\r\nPING\r\n");
    ends_without_a_word(gateway.connect(), b"PROXY TCP4 not-an-address 127.0.0.1 1 2\r\n");
    ends_without_a_word(gateway.connect(), b"PROXY TCP4 1.2.3.4 127.0.0.1 99999 2\r\n");
    let mut broken = version_2(1, [1, 2, 3, 4], 5);
    broken[12] = 0x31;
    ends_without_a_word(gateway.connect(), &broken);
    deadline::until_true("the connections to be counted", || gateway.metric("weir_proxy_headers_total") >= 4.0);
}

#[test]
fn a_header_from_an_untrusted_source_is_refused() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, "proxy_protocol = \"any\"\nproxy_trusted = [\"10.0.0.0/8\"]");
    ends_without_a_word(gateway.connect(), b"PROXY TCP4 203.0.113.7 127.0.0.1 40000 6379\r\nPING\r\n");
    assert!(!peers(&gateway).contains("203.0.113.7"));
}
