//! S9: optional parts that are absent, empty, repeated or in unusual case, in what routing, policy and placement read.

use weir_tests::client::Client;
use weir_tests::gateway::Gateway;
use weir_tests::http::HttpClient;
use weir_tests::http2::{Http2Peer, block, flag, frame, kind};
use weir_tests::isolation::{Cell, Protocol, Stand, every};
use weir_tests::server::{Kind, Server};
use weir_tests::websocket::KEY;
use weir_tests::wire::shown;

/// A host whose requests are answered 403, beside the origin's 200.
const GUARD: &str = "[[route]]\nname = \"guard\"\nhosts = [\"guarded.example\"]\nresponse = { status = 403 }\n\
                     [[route]]\nname = \"rest\"\nupstream = \"server\"\n";

#[test]
fn s9_absent_empty_repeated_and_differently_cased_parts_are_read_as_the_server_reads_them() {
    every("S9", |protocol, _| {
        let name = "optional parts absent, empty, repeated, in unusual case".to_owned();
        let (count, faults) = match protocol.name() {
            "Redis" => redis(),
            "HTTP/1.1" => http1(protocol),
            "HTTP/2" => http2(protocol),
            "WebSocket" => websocket(protocol),
            _ => return vec![(name, Cell::None("bytes have no parts"))],
        };
        vec![(name, Cell::figure(format!("{} of {count} as the server", count - faults.len()), faults))]
    });
}

/// Each command at a server, and at the gateway in front of three.
fn redis() -> (usize, Vec<String>) {
    const COMMANDS: &[&str] = &[
        "RPUSH list 3 1 2",
        "sort list",
        "SORT list DESC alpha",
        "SORT list LIMIT 0 1",
        "SORT nothing",
        "PFADD hll a b",
        "PFMERGE hll2",
        "EXISTS hll2",
        "PFMERGE hll",
        "PFCOUNT hll",
        "pfcount hll2",
        "SET k v",
        "GETEX k",
        "getex k PERSIST",
        "set k v ex 100 xx",
        "SET k w GET",
        "SET k v NX",
        "SET  empty-key",
        "EVAL return(1) 0",
        "EVAL return(KEYS[1]) 1 k",
        "eval return(ARGV[1]) 0 arg",
        "EVAL return(1) -1",
        "XADD s * f v",
        "xlen s",
        "XREAD STREAMS s $",
        "XREAD COUNT 1 streams nothing 0",
        "XREAD",
        "XADD n NOMKSTREAM * f v",
        "ZADD z 1 a 2 b",
        "ZUNION 1 z",
        "zunion 1 z WITHSCORES",
        "ZUNION 0",
        "ZMPOP 1 z MIN",
        "ZINTERCARD 1 z LIMIT 1",
        "LMPOP 1 list LEFT",
        "lmpop 1 nothing RIGHT COUNT 2",
        "LMPOP 0 list LEFT",
        "BITFIELD k",
        "BITOP NOT k k",
        "SADD set a",
        "SINTERCARD 1 set",
        "SPOP set",
        "SPOP set 0",
        "HSET h f v",
        "HRANDFIELD h",
        "HRANDFIELD h 1",
        "OBJECT ENCODING k",
        "object encoding k",
        "OBJECT",
        "MEMORY USAGE nothing",
        "COPY k k",
        "EXPIRE k 100 nx",
        "GEOADD g 1 1 a",
        "GEORADIUS g 1 1 1 km",
        "georadius g 1 1 1 km asc",
        "GEOSEARCH g FROMMEMBER a BYRADIUS 1 km",
        "MSET",
        "MGET",
        "DEL",
        "EXISTS",
        "TOUCH k",
        "GET",
        "UNLINK nothing",
        "MIGRATE",
        "SORT",
        "RESTORE",
    ];
    let servers: Vec<Server> = (0..4).map(|_| Server::start(Kind::Redis)).collect();
    let sharding = "[upstream.sharding]\nhash = \"fnv1a_64\"\ndistribution = \"ketama\"";
    let config = weir_tests::gateway::Config::to_all(servers[1..].iter().map(|server| &server.address));
    let gateway = Gateway::start(config.upstream(sharding));
    let (mut direct, mut through): (Client, Client) = (servers[0].connect(), gateway.connect());
    let mut faults = Vec::new();
    for command in COMMANDS {
        // Two spaces: an empty word.
        let words: Vec<&str> = command.split(' ').collect();
        let (one, other) = (direct.call(&words), through.call(&words));
        // An id of a stream has the time in it.
        let is_alike = one == other || (one.len() == other.len() && command.starts_with("XADD s"));
        // An error has the server's words or the gateway's.
        let are_errors = one.starts_with(b"-") && other.starts_with(b"-");
        if !is_alike && !are_errors {
            faults.push(format!("{command}: {} directly, {} through", shown(&one), shown(&other)));
        }
    }
    drop(through);
    (COMMANDS.len(), faults)
}

/// Requests of HTTP/1.1, and the statuses that read them rightly or refuse them.
fn http1(protocol: &'static dyn Protocol) -> (usize, Vec<String>) {
    const SMALL: &str = "GET /small HTTP/1.1\r\n";
    const SINK: &str = "POST /sink HTTP/1.1\r\nHost: a\r\n";
    let cases: Vec<(String, &[u16])> = vec![
        (format!("{SMALL}Host: a\r\n\r\n"), &[200]),
        (format!("{SMALL}hOST: GUARDED.example\r\n\r\n"), &[403]),
        (format!("{SMALL}Host: guarded.example:80\r\n\r\n"), &[403]),
        (format!("{SMALL}Host: guarded.example:\r\n\r\n"), &[403, 400]),
        (format!("{SMALL}Host: guarded.example.\r\n\r\n"), &[403, 400]),
        (format!("{SMALL}Host:\tguarded.example \r\n\r\n"), &[403]),
        (format!("{SMALL}Host: a\r\nHost: guarded.example\r\n\r\n"), &[400]),
        (format!("{SMALL}Host: guarded.example\r\nHost: guarded.example\r\n\r\n"), &[400]),
        ("GET http://guarded.example/small HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), &[403, 400]),
        ("GET HTTP://Guarded.Example/small HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), &[403, 400]),
        (format!("{SMALL}\r\n"), &[400]),
        (format!("{SMALL}Host:\r\n\r\n"), &[200, 400]),
        (format!("{SMALL}Host: a\r\nConnection: \r\n\r\n"), &[200, 400]),
        (format!("{SMALL}Host: a\r\nConnection: CLOSE\r\n\r\n"), &[200]),
        (format!("{SMALL}Host: a\r\nConnection: close, X-Own\r\nX-Own: 1\r\n\r\n"), &[200]),
        (format!("{SMALL}Host: a\r\nExpect:\r\n\r\n"), &[200, 400, 417]),
        (format!("{SMALL}Host: a\r\nUpgrade:\r\nConnection: upgrade\r\n\r\n"), &[200, 400]),
        (format!("{SMALL}Host: a\r\nContent-Length:\r\n\r\n"), &[400]),
        (format!("{SMALL}Host: a\r\nTransfer-Encoding:\r\n\r\n"), &[400, 501]),
        (format!("{SINK}CONTENT-LENGTH: 2\r\n\r\nab"), &[200]),
        (format!("{SINK}Content-Length: 2\r\nContent-Length: 2\r\n\r\nab"), &[200, 400]),
        (format!("{SINK}Content-Length: 2\r\nContent-Length: 3\r\n\r\nab"), &[400]),
        (format!("{SINK}Content-Length: 02\r\n\r\nab"), &[200, 400]),
        (format!("{SINK}Content-Length: 2\r\nTransfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n"), &[400]),
        (format!("{SINK}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"), &[400, 501]),
        ("get /small HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), &[200, 400, 501]),
    ];
    let stand = guarded(protocol);
    let mut faults = Vec::new();
    for (request, allowed) in &cases {
        let mut client = HttpClient::connect(&stand.gateway.address);
        client.send(request);
        let status = client.response().status;
        if !allowed.contains(&status) {
            faults.push(format!("{request:?}: {status}, {allowed:?} would be right"));
        }
    }
    (cases.len(), faults)
}

fn guarded(protocol: &'static dyn Protocol) -> Stand {
    Stand::with(protocol, protocol.origin(), |config| config.tables(GUARD))
}

/// Requests of HTTP/2 by their fields, and whether they may be answered 200.
fn http2(protocol: &'static dyn Protocol) -> (usize, Vec<String>) {
    const METHOD: (&str, &str) = (":method", "GET");
    const SCHEME: (&str, &str) = (":scheme", "http");
    const PATH: (&str, &str) = (":path", "/small");
    const OWN: (&str, &str) = (":authority", "a");
    let cases: [(&[(&str, &str)], bool); 14] = [
        (&[METHOD, SCHEME, PATH, OWN], true),
        (&[METHOD, SCHEME, PATH, (":authority", "GUARDED.example")], false),
        (&[METHOD, SCHEME, PATH, (":authority", "guarded.example:80")], false),
        (&[METHOD, SCHEME, PATH, (":authority", ""), ("host", "guarded.example")], false),
        (&[METHOD, SCHEME, PATH, ("host", "Guarded.example")], false),
        (&[METHOD, SCHEME, PATH, OWN, ("host", "guarded.example")], false),
        (&[METHOD, SCHEME, PATH, OWN, (":authority", "guarded.example")], false),
        (&[METHOD, SCHEME, OWN], false),
        (&[METHOD, SCHEME, (":path", ""), OWN], false),
        (&[METHOD, SCHEME, PATH, (":path", "/hold"), OWN], false),
        (&[SCHEME, PATH, OWN], false),
        (&[METHOD, SCHEME, PATH, OWN, ("Upper", "1")], false),
        (&[METHOD, SCHEME, PATH, OWN, ("connection", "close")], false),
        (&[METHOD, SCHEME, PATH, OWN, ("transfer-encoding", "chunked")], false),
    ];
    let stand = guarded(protocol);
    let mut faults = Vec::new();
    for (fields, is_served) in cases {
        let mut peer = Http2Peer::connect(&stand.gateway.address);
        peer.send(frame(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, 1, &block(fields)));
        let status = loop {
            match peer.next_frame() {
                Some(frame) if frame.stream == 1 && frame.kind == kind::HEADERS => break frame.status(),
                Some(frame) if frame.stream == 1 && frame.kind == kind::RST_STREAM => break None,
                None => break None,
                _ => {}
            }
        };
        if (status == Some(200)) != is_served {
            faults.push(format!("{fields:?}: {status:?}"));
        }
    }
    (cases.len(), faults)
}

/// Fields of a handshake, and the statuses that read them rightly or refuse them.
fn websocket(protocol: &'static dyn Protocol) -> (usize, Vec<String>) {
    let cases: Vec<(String, &[u16])> = vec![
        (
            format!(
                "Connection: UPGRADE\r\nUpgrade: WEBSOCKET\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}"
            ),
            &[101],
        ),
        (
            format!(
                "connection: keep-alive\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: {KEY}"
            ),
            &[101],
        ),
        (
            format!(
                "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol:"
            ),
            &[101, 400],
        ),
        (format!("Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: {KEY}"), &[400, 426]),
        ("Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13".to_owned(), &[400, 426]),
        (
            "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key:".to_owned(),
            &[400, 426],
        ),
        (
            format!(
                "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Key: {KEY}"
            ),
            &[400, 426],
        ),
        (
            format!(
                "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 12\r\nSec-WebSocket-Key: {KEY}"
            ),
            &[400, 426],
        ),
    ];
    let stand = Stand::start(protocol);
    let mut faults = Vec::new();
    for (fields, allowed) in &cases {
        let mut client = HttpClient::connect(&stand.gateway.address);
        client.send(format!("GET /chat HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
        let status = client.response().status;
        if !allowed.contains(&status) {
            faults.push(format!("{fields:?}: {status}, {allowed:?} would be right"));
        }
    }
    (cases.len(), faults)
}
