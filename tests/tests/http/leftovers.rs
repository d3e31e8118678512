//! Bytes that an origin sends behind the end of its response, in a second write: the next exchange must not get them, where that
//! can be proven.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::stream::Address;

/// Stray bytes that any receiver takes for a response.
const STRAY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";

/// Responds to `/plain/N` with the head of number `N`, to `/stray/N` likewise with [`STRAY`] behind it after a pause; repeats other
/// paths.
struct Origin {
    address: Address,
    connections: Arc<AtomicU64>,
}

impl Origin {
    fn start(heads: &'static [&'static str], pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Tcp(listener.local_addr().expect("an address"));
        let connections = Arc::<AtomicU64>::default();
        let counted = connections.clone();
        // Its threads end with the connections, and all with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || speak(stream, heads, pause));
            }
        });
        Self { address, connections }
    }
}

fn speak(mut stream: TcpStream, heads: &[&str], pause: Duration) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut head = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&std::mem::take(&mut head)).into_owned();
        let (method, path) = (text.split(' ').next()?, text.split(' ').nth(1)?);
        let (kind, number) = path[1..].split_once('/').unwrap_or_default();
        match (kind, number.parse().ok().and_then(|number: usize| heads.get(number))) {
            ("plain", Some(head)) => stream.write_all(head.as_bytes()).ok()?,
            ("stray", Some(head)) => {
                stream.write_all(head.as_bytes()).ok()?;
                sleep(pause);
                stream.write_all(STRAY.as_bytes()).ok()?;
            }
            _ => {
                let body = if method == "HEAD" { "" } else { path };
                let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", path.len());
                stream.write_all(response.as_bytes()).ok()?;
            }
        }
    }
}

/// Health checks would be connections of their own.
fn before(origin: &Origin) -> Gateway {
    Gateway::start(Config::http(&origin.address).upstream("[upstream.health]\nenabled = false"))
}

/// One request that leaves something behind, and others at once.
fn assert_unharmed(gateway: &Gateway, method: &str, target: &str, round: usize) {
    let mut client = HttpClient::connect(&gateway.address);
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client.response_to(method == "HEAD");
    for victim in 0..3 {
        let path = format!("/victim/{round}/{victim}");
        let response = HttpClient::connect(&gateway.address).get(&path);
        assert_eq!(response.text(), path, "{method} {target}: the response to something else");
    }
}

#[test]
fn a_body_behind_a_response_that_has_none_reaches_nobody() {
    const HEADS: &[&str] = &[
        "HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 45\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 45\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
    ];
    // One gateway each: what it learns of the origin from one of them must not help with the next.
    for (number, head) in HEADS.iter().enumerate() {
        let origin = Origin::start(HEADS, Duration::from_millis(2));
        let gateway = before(&origin);
        let method = if head.contains(" 200 ") { "HEAD" } else { "GET" };
        (0..3).for_each(|round| assert_unharmed(&gateway, method, &format!("/stray/{number}"), round));
        gateway.finish();
    }
}

#[test]
fn an_origin_that_was_seen_to_write_behind_a_response_gets_no_second_victim() {
    const HEADS: &[&str] = &["HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"];
    let origin = Origin::start(HEADS, Duration::from_millis(5));
    let gateway = before(&origin);
    assert_eq!(HttpClient::connect(&gateway.address).get("/stray/0").status, 200);
    // The stray bytes arrive while the connection is idle.
    sleep(Duration::from_millis(50));
    let path = "/first";
    assert_eq!(HttpClient::connect(&gateway.address).get(path).text(), path);
    (0..10).for_each(|round| assert_unharmed(&gateway, "GET", "/stray/0", round));
    let closes = gateway.metrics().sum_where("weir_lane_closes_total", &[("reason", "violation")]);
    assert!(closes >= 1.0, "{closes}");
    gateway.finish();
}

#[test]
fn a_connection_rests_only_where_a_body_may_follow_and_serves_afterwards() {
    const HEADS: &[&str] = &[
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
    ];
    let origin = Origin::start(HEADS, Duration::ZERO);
    let gateway = before(&origin);
    let mut client = HttpClient::connect(&gateway.address);
    let connections = || origin.connections.load(Ordering::SeqCst);
    for round in 0..20 {
        ["/some", "/plain/0", "/plain/1", "/plain/2"].iter().for_each(|path| drop(client.get(path)));
        assert_eq!(connections(), 1, "nothing can follow in round {round}");
    }
    let head = |client: &mut HttpClient| {
        client.send("HEAD /some HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response_to(true).status, 200);
    };
    head(&mut client);
    assert_eq!(client.get("/some").status, 200);
    assert_eq!(connections(), 2, "the first one rests");
    head(&mut client);
    // Longer than connections rest.
    sleep(Duration::from_millis(300));
    (0..20).for_each(|_| assert_eq!(client.get("/some").status, 200));
    assert_eq!(connections(), 2, "both serve again");
    drop(client);
    gateway.finish();
}

#[test]
fn resting_connections_give_way_at_the_limit() {
    let origin = Origin::start(&[], Duration::ZERO);
    let config = Config::http(&origin.address).upstream("[upstream.health]\nenabled = false");
    let gateway = Gateway::start(config.upstream("[upstream.http]\nconnections_max = 1\nidle_connections_max = 1"));
    let mut client = HttpClient::connect(&gateway.address);
    for _ in 0..20 {
        client.send("HEAD /some HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response_to(true).status, 200);
        assert_eq!(client.get("/some").status, 200);
    }
    drop(client);
    gateway.finish();
}
