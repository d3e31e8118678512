//! Messages that are forwarded, byte for byte.

use std::time::Duration;

use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::{HttpClient, Response, field, unchunked};
use weir_tests::nginx::Nginx;

/// An origin with the same response to everything, and a gateway in front of it.
fn scene(response: &'static str) -> (Faulty, Gateway, HttpClient) {
    let origin = Faulty::http(move |_| Act::Reply(response.as_bytes().to_vec()));
    let gateway = Gateway::start(Config::http(&origin.address));
    let client = HttpClient::connect(&gateway.address);
    (origin, gateway, client)
}

fn head_of(request: &[Vec<u8>]) -> String {
    String::from_utf8_lossy(&request[0]).into_owned()
}

/// Bodies are not held back.
const AS_IT_COMES: &str = "[listener.http]\nrequest_buffer_bytes = 0";

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

#[test]
fn a_slow_client_gets_all_of_the_last_response_of_its_connection() {
    use std::io::Read as _;
    let origin = Faulty::http(move |request| {
        let words: Vec<&[u8]> = request[0].split(|byte| *byte == b' ').collect();
        let length: usize = String::from_utf8_lossy(&words[1][1..]).parse().expect("a length");
        Act::Reply([format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into(), vec![b'x'; length]].concat())
    });
    let gateway = Gateway::start(Config::http(&origin.address));
    // How much the kernel holds is not known; with one of these lengths a part of the rest is still in the gateway.
    let clients = (1..=24).map(|number| {
        let (address, length) = (gateway.address.clone(), number * 250_000);
        std::thread::spawn(move || {
            let mut client = HttpClient::connect(&address);
            client.send(format!("GET /{length} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
            // Longer than a gateway lingers.
            std::thread::sleep(Duration::from_millis(3_500));
            let mut received = Vec::new();
            client.stream().set_read_timeout(Duration::from_secs(20)).expect("a time limit can be set");
            client.stream().read_to_end(&mut received).expect("it is not cut");
            assert!(received.len() > length, "{} of {length}", received.len());
        })
    });
    let clients: Vec<_> = clients.collect();
    clients.into_iter().for_each(|client| client.join().expect("a whole response"));
    gateway.finish();
}

#[test]
fn a_request_reaches_the_origin_as_it_was_except_for_connection_fields() {
    let (origin, _gateway, mut client) = scene(OK);
    client.send(
        "GET /a/b?c=%20d HTTP/1.1\r\nHost: Test.example:81\r\nX-One: 1\r\nconnection: keep-alive, X-Own\r\nX-Own: secret\r\n\
         TE: trailers\r\nX-Forwarded-For: 6.6.6.6\r\nx-one: 2\r\n\r\n",
    );
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (200, "hi"));
    let seen = origin.seen();
    assert_eq!(
        head_of(&seen[0]),
        "GET /a/b?c=%20d HTTP/1.1\r\nHost: Test.example:81\r\nX-One: 1\r\nx-one: 2\r\nte: trailers\r\n\
         x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: Test.example:81\r\n\r\n"
    );
}

#[test]
fn bodies_of_both_framings_arrive_whole() {
    let (origin, _gateway, mut client) = scene(OK);
    client.send("POST /len HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().status, 200);
    client.send("PUT /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in ["3;ext=1\r\nabc", "\r\n", "2\r", "\nde\r\n0\r\n", "X-Sum: 5\r\nHost: evil\r\n\r\n"] {
        client.send(piece);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.response().status, 200);
    let seen = origin.seen();
    assert_eq!(field(&seen[0][0], "content-length").as_deref(), Some("5"));
    assert_eq!(seen[0][1], b"hello");
    assert_eq!(field(&seen[1][0], "transfer-encoding").as_deref(), Some("chunked"));
    assert_eq!(unchunked(&seen[1][1]), b"abcde");
    let end = String::from_utf8_lossy(&seen[1][1]).into_owned();
    assert!(
        end.ends_with("0\r\nX-Sum: 5\r\n\r\n"),
        "trailers go on, but not those that decide on the message: {end:?}"
    );
}

#[test]
fn responses_of_every_framing_reach_the_client_and_the_connection_goes_on() {
    let origin = Faulty::http(|request| {
        let head = head_of(request);
        let response = match head.split(' ').nth(1) {
            Some("/len") => {
                "HTTP/1.1 200 Fine\r\nContent-Length: 3\r\nX-A: b\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\nabc"
            }
            Some("/chunks") => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
            Some("/none") => "HTTP/1.1 204 No Content\r\n\r\n",
            Some("/same") => "HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\nETag: \"x\"\r\n\r\n",
            Some("/empty") => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            _ => return Act::ReplyThenClose(b"HTTP/1.1 200 OK\r\n\r\nuntil the end".to_vec()),
        };
        Act::Reply(response.as_bytes().to_vec())
    });
    let gateway = Gateway::start(Config::http(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    let length = client.get("/len");
    assert_eq!(
        String::from_utf8_lossy(&length.head),
        "HTTP/1.1 200 Fine\r\nContent-Length: 3\r\nX-A: b\r\n\r\n",
        "what is between the gateway and the origin stays there"
    );
    assert_eq!(length.text(), "abc");
    assert_eq!(unchunked(&client.get("/chunks").body), b"abc");
    assert_eq!(unchunked(&client.get("/close").body), b"until the end");
    assert_eq!(client.get("/none").status, 204);
    let same = client.get("/same");
    assert_eq!((same.status, same.field("content-length").as_deref()), (304, Some("10")));
    assert_eq!(unchunked(&client.get("/empty").body), b"");
    client.send("HEAD /len HTTP/1.1\r\nHost: a\r\n\r\n");
    // The scripted origin sends a body with its response to HEAD, which must not be taken for one.
    assert_eq!(client.response_to(true).field("content-length").as_deref(), Some("3"));
    assert_eq!(client.get("/len").text(), "abc");
    drop(client);
    gateway.finish();
}

#[test]
fn http_1_0_clients_get_a_response_that_they_understand() {
    let origin = Faulty::http(|_| {
        Act::Reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_vec())
    });
    let gateway = Gateway::start(Config::http(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("GET / HTTP/1.0\r\n\r\n");
    let text = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(text.ends_with("\r\n\r\nabc") && !text.contains("chunked"), "{text}");
    let (_origin, _gateway, mut client) = scene(OK);
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let response = client.response();
    assert_eq!(response.field("connection").as_deref(), Some("keep-alive"));
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert!(String::from_utf8_lossy(&client.rest()).contains("Connection: close"));
}

#[test]
fn interim_responses_go_through_and_expect_is_answered_by_the_origin() {
    let origin = Faulty::http(|request| {
        let early = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
        let go_on = if head_of(request).contains("100-continue") { "HTTP/1.1 100 Continue\r\n\r\n" } else { "" };
        Act::Reply(format!("{early}{go_on}{OK}").into_bytes())
    });
    let gateway = Gateway::start(Config::http(&origin.address).listener(AS_IT_COMES));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc");
    let statuses: Vec<u16> = (0..3).map(|_| client.response().status).collect();
    assert_eq!(statuses, [103, 100, 200]);
    client.send("GET / HTTP/1.0\r\n\r\n");
    let text = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "an old client knows nothing of interim responses: {text}");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Faulty::http(|request| {
        let path = head_of(request).split(' ').nth(1).unwrap_or_default().to_owned();
        Act::Reply(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()).into_bytes())
    });
    let gateway = Gateway::start(Config::http(&origin.address).listener("[listener.http]\nhalf_close = true"));
    let mut client = HttpClient::connect(&gateway.address);
    let requests: String = (0..500).map(|number| format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(&requests);
    client.stream().half_close().expect("half closed");
    for number in 0..500 {
        assert_eq!(client.response().text(), format!("/{number}"));
    }
    assert!(client.rest().is_empty(), "the end of the client's direction is no end of its wishes");
    drop(client);
    gateway.finish();
}

#[test]
fn connections_to_the_origin_are_used_again() {
    let (origin, gateway, mut client) = scene(OK);
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
    }
    let mut other = HttpClient::connect(&gateway.address);
    assert_eq!(other.get("/").status, 200);
    // One is the health check's.
    assert!(origin.connections() <= 3, "{}", origin.connections());
    assert_eq!(gateway.metric("weir_http_responses_total"), 21.0);
    assert_eq!(gateway.metrics().sum_where("weir_requests_total", &[("class", "get")]), 21.0);
}

#[test]
fn a_response_before_the_end_of_the_request_is_passed_on_at_once() {
    let origin = Faulty::http(|_| Act::Silence);
    // This origin answers when it has seen the head.
    let early = early_origin();
    let gateway = Gateway::start(Config::http(&early).listener(AS_IT_COMES));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nabc");
    let response: Response = client.response();
    assert_eq!(response.status, 401);
    assert!(client.rest().is_empty(), "with so much to come the connection ends");
    drop(origin);
    gateway.finish();
}

#[test]
fn h1_7_a_final_response_before_the_body_that_was_expected_ends_the_connection() {
    let gateway = Gateway::start(Config::http(&early_origin()).listener(AS_IT_COMES));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.field("connection").as_deref()), (401, Some("close")));
    // Were it kept, this could be a body or a request.
    client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.rest().is_empty());
    drop(client);
    gateway.finish();
}

/// Responds with 401 to each head, whatever follows it.
fn early_origin() -> weir_tests::stream::Address {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind(("127.0.0.1", weir_tests::port::free())).expect("bound");
    let address = weir_tests::stream::Address::Tcp(listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let (mut seen, mut chunk, mut has_responded) = (Vec::new(), [0; 4096], false);
                while let Ok(count @ 1..) = stream.read(&mut chunk) {
                    seen.extend_from_slice(&chunk[..count]);
                    if !has_responded && seen.windows(4).any(|window| window == b"\r\n\r\n") {
                        has_responded = true;
                        let _ = stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_large_body_flows_both_ways_in_bounded_memory() {
    const SIZE: usize = 48 << 20;
    let origin = Faulty::http(|request| {
        let sum = request[1].iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let mut response =
            format!("HTTP/1.1 200 OK\r\nX-Sum: {sum}\r\nContent-Length: {}\r\n\r\n", request[1].len()).into_bytes();
        response.extend_from_slice(&request[1]);
        Act::Reply(response)
    });
    let mut gateway = Gateway::start(Config::http(&origin.address));
    let body: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
    let mut client = HttpClient::connect(&gateway.address);
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n"));
    client.send(&body);
    let response = client.response();
    let sum = body.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    assert_eq!(response.field("x-sum"), Some(sum.to_string()));
    assert!(response.body == body, "every byte came back");
    let resident = gateway.process().resident();
    assert!(resident < 64 << 20, "{resident} bytes for a body of {SIZE}");
}

#[test]
fn responses_are_compressed_for_clients_that_accept_it() {
    let text = "all work and no play makes Jack a dull boy\n".repeat(2_000);
    let nginx = Nginx::start(
        "",
        "types { text/html html; text/event-stream events; } default_type application/octet-stream; etag on; location / { }",
    );
    for name in ["page.html", "file.bin", "stream.events"] {
        std::fs::write(nginx.folder().join(name), &text).expect("written");
    }
    std::fs::write(nginx.folder().join("short.html"), "short").expect("written");
    let lines = "[listener.http.compression]\nbytes_min = \"100B\"";
    let gateway = Gateway::start(Config::http(&nginx.address).listener(lines));
    let curl = |path: &str, words: &[&str]| {
        let url = format!("http://{}/{path}", gateway.address.text());
        let mut curl = std::process::Command::new("curl");
        let output = curl.args(["-sS", "--max-time", "20"]).args(words).arg(url).output().expect("curl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let fields = |path: &str, accept: &str, version: &str| {
        let accept = format!("Accept-Encoding: {accept}");
        let head = curl(path, &["-H", &accept, version, "-D", "-", "-o", "/dev/null"]);
        let own = |name| field(&head, name);
        (
            own("content-encoding"),
            own("vary"),
            own("content-length"),
            own("etag").is_some_and(|tag| tag.starts_with("W/")),
        )
    };
    let some = |text: &str| Some(text.to_owned());
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for coding in ["gzip", "br", "zstd"] {
            let expected = (some(coding), some("Accept-Encoding"), None, true);
            assert_eq!(fields("page.html", coding, version), expected, "{version}");
        }
        let plain = (None, some("Accept-Encoding"), Some(text.len().to_string()), false);
        assert_eq!(fields("page.html", "identity", version), plain, "caches must know that it may differ");
        assert_eq!(fields("file.bin", "gzip", version).0, None);
        assert_eq!(fields("stream.events", "gzip", version).0, None);
        assert_eq!(fields("short.html", "gzip", version).0, None);
        // curl undoes what it knows; gzip always, the others where it was built so.
        assert_eq!(curl("page.html", &["-H", "Accept-Encoding: gzip", "--compressed", version]), text.as_bytes());
        let short = curl("page.html", &["-H", "Accept-Encoding: zstd", version]);
        assert!(short.len() < text.len() / 10, "{} bytes", short.len());
    }
    gateway.finish();
}

#[test]
fn other_programs_decompress_the_compressed_bodies() {
    let python = weir_tests::tools::python();
    let text = "the quick brown fox\n".repeat(5_000);
    let nginx = Nginx::start("", "types { text/html html; } location / { }");
    std::fs::write(nginx.folder().join("page.html"), &text).expect("written");
    let gateway = Gateway::start(Config::http(&nginx.address).listener("[listener.http.compression]"));
    let script = "import gzip, sys, urllib.request, brotli, zstandard\n\
                  undo = {'gzip': gzip.decompress, 'br': brotli.decompress,\n\
                  'zstd': lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body)}\n\
                  for coding in undo:\n\
                  \x20   request = urllib.request.Request(sys.argv[1], headers={'Accept-Encoding': coding})\n\
                  \x20   with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:\n\
                  \x20       assert response.headers['Content-Encoding'] == coding\n\
                  \x20       assert undo[coding](response.read()) == b'the quick brown fox\\n' * 5000, coding\n\
                  print('ok')\n";
    let url = format!("http://{}/page.html", gateway.address.text());
    let output = std::process::Command::new(python).args(["-c", script, &url]).output().expect("python runs");
    assert_eq!(output.stdout, b"ok\n", "{}", String::from_utf8_lossy(&output.stderr));
    gateway.finish();
}
