//! Requests that are refused: the cases H1.1 to H1.17 of the abuse catalogue, each with the status it gets, its counter, and
//! an origin that has seen nothing of it.

use std::time::Duration;

use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;

struct Scene {
    origin: Faulty,
    gateway: Gateway,
}

impl Scene {
    fn new(lines: &str) -> Self {
        let origin = Faulty::http(|_| Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()));
        let gateway = Gateway::start(Config::http(&origin.address).listener(lines));
        Self { origin, gateway }
    }

    fn client(&self) -> HttpClient {
        HttpClient::connect(&self.gateway.address)
    }

    /// The bytes are refused with this status, the connection closes, the origin sees nothing, and it is counted once.
    fn refused(&self, input: &[u8], status: u16) {
        let shown = String::from_utf8_lossy(&input[..input.len().min(120)]).into_owned();
        let before = self.gateway.metric("weir_defensive_closes_total");
        let (seen, mut client) = (self.origin.seen().len(), self.client());
        client.try_send(input);
        let text = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{shown:?}: {text}");
        assert!(text.contains("Connection: close\r\n"), "{shown:?}: {text}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "one response to {shown:?}: {text}");
        assert_eq!(self.origin.seen().len(), seen, "the origin saw something of {shown:?}");
        self.gateway.wait_metric("weir_defensive_closes_total", &[], before + 1.0);
        assert_eq!(self.gateway.metric("weir_defensive_closes_total"), before + 1.0, "{shown:?}");
    }
}

#[test]
fn h1_1_to_h1_10_malformed_heads() {
    let scene = Scene::new("");
    let with = |lines: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    for (case, lines, status) in [
        ("H1.1", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        ("H1.1", "Content-Length: 5, 5\r\n", 400),
        ("H1.1", "Content-Length: 5\r\nContent-Length: 5\r\n", 400),
        ("H1.1", "Content-Length: +5\r\n", 400),
        ("H1.1", "Content-Length: 0x5\r\n", 400),
        ("H1.1", "Content-Length: 18446744073709551616\r\n", 400),
        ("H1.2", "Transfer-Encoding : chunked\r\n", 400),
        ("H1.2", "Transfer-Encoding:\x0bchunked\r\n", 400),
        ("H1.2", "Transfer-Encoding: xchunked\r\n", 400),
        ("H1.2", "Transfer-Encoding: chunked, identity\r\n", 400),
        ("H1.2", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        ("H1.2", "Transfer-Encoding: gzip, chunked\r\n", 501),
        ("H1.8", "X: a\r\n b\r\n", 400),
        ("H1.8", "X: a\rb\r\n", 400),
        ("H1.8", "X: a\0b\r\n", 400),
        ("H1.8", "X : a\r\n", 400),
        ("H1.9", "Host: a\r\n", 400),
    ] {
        println!("{case}: {lines:?}");
        scene.refused(with(lines).as_bytes(), status);
    }
    for (case, input, status) in [
        ("H1.2", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("H1.8", "GET / HTTP/1.1\nHost: a\n\n", 400),
        ("H1.8", "G\u{e9}T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("H1.8", "GET /\r\n", 400),
        ("H1.9", "GET / HTTP/1.1\r\n\r\n", 400),
        ("H1.9", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("H1.9", "GET / HTTP/1.1\r\nHost: a:0\r\n\r\n", 400),
        ("H1.9", "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n", 400),
        ("H1.17", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("H1.17", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("2.1", "PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n", 400),
        ("2.2", "GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        ("2.2", "GET / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", 417),
    ] {
        println!("{case}: {input:?}");
        scene.refused(input.as_bytes(), status);
    }
    let many: String = (0..10_000).map(|number| format!("X-{number}: a\r\n")).collect();
    scene.refused(with(&many).as_bytes(), 431);
    scene.refused(with(&format!("X: {}\r\n", "a".repeat(1 << 20))).as_bytes(), 431);
    scene.refused(format!("GET /{} HTTP/1.1\r\n", "a".repeat(9000)).as_bytes(), 414);
    scene.gateway.finish();
}

#[test]
fn h1_3_malformed_chunks_break_the_request_off() {
    let scene = Scene::new("");
    for body in ["00000000000000001\r\n", "5 \r\n", "-1\r\n", "5\nhello", "5\r\nhelloX", "0\r\nbad line\r\n\r\n"] {
        let mut client = scene.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        let text = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(text.starts_with("HTTP/1.1 400 ") && text.matches("HTTP/1.1").count() == 1, "{body:?}: {text}");
    }
    let mut bomb = scene.client();
    bomb.try_send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;{}", "x".repeat(9000)));
    assert!(String::from_utf8_lossy(&bomb.rest()).starts_with("HTTP/1.1 400 "));
    assert_eq!(scene.origin.seen().len(), 0, "none of them was a whole request");
    scene.gateway.finish();
}

#[test]
fn h1_4_nothing_behind_an_upgrade_is_taken_for_the_other_protocol() {
    let scene = Scene::new("");
    let mut client = scene.client();
    client.send(
        "GET /first HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_eq!((client.response().status, client.response().status), (200, 200));
    let heads: Vec<String> =
        scene.origin.seen().iter().map(|words| String::from_utf8_lossy(&words[0]).to_lowercase()).collect();
    assert!(heads[0].starts_with("get /first") && heads[1].starts_with("get /second"), "{heads:?}");
    assert!(!heads.concat().contains("upgrade"), "{heads:?}");
}

#[test]
fn h1_5_a_body_without_a_length_is_none() {
    let scene = Scene::new("");
    let mut client = scene.client();
    client.send("POST / HTTP/1.0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    let text = String::from_utf8_lossy(&client.rest()).into_owned();
    assert_eq!(text.matches("HTTP/1.1 200").count(), 1, "{text}");
    assert_eq!(scene.origin.seen().len(), 1, "what follows is nobody's request");
}

#[test]
fn h1_11_a_head_has_a_deadline_that_progress_does_not_extend() {
    let scene = Scene::new("head_timeout = \"500ms\"");
    let mut client = scene.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n");
    let begun = std::time::Instant::now();
    while client.try_send("X") && begun.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(begun.elapsed() < Duration::from_millis(2500), "{:?}", begun.elapsed());
    assert!(String::from_utf8_lossy(&client.rest()).starts_with("HTTP/1.1 408 "), "it was told why");
    assert_eq!(scene.origin.seen().len(), 0);
    scene.gateway.finish();
}

#[test]
fn h1_12_a_body_may_not_pause_for_ever() {
    let scene = Scene::new("[listener.http]\nbody_idle_timeout = \"300ms\"");
    let mut client = scene.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
    assert!(String::from_utf8_lossy(&client.rest()).starts_with("HTTP/1.1 408 "));
    scene.gateway.finish();
}

#[test]
fn h1_13_a_client_that_does_not_read_its_responses_is_not_read_from() {
    let mut scene = Scene::new("");
    let mut client = scene.client();
    client.stream().set_write_timeout(Duration::from_millis(500)).expect("a time limit can be set");
    let before = scene.gateway.process().resident();
    // A refusal needs no origin, and is larger than its request.
    let requests = "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1_000);
    let mut sent = 0_usize;
    while sent < 64 << 20 && client.try_send(&requests) {
        sent += requests.len();
    }
    assert!(sent < 64 << 20, "it took {sent} bytes of requests whose responses nobody reads");
    let grown = scene.gateway.process().resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes for one client that does not read");
    assert_eq!(scene.client().get("/").status, 200, "others are served");
    drop(client);
    scene.gateway.finish();
}

#[test]
fn h1_15_protected_fields_are_not_removed_by_connection() {
    let scene = Scene::new("[listener.http]\nforwarded = \"append\"");
    let mut client = scene.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Forwarded-For, Authorization, X-Own\r\nX-Forwarded-For: 10.0.0.1\r\n\
         Authorization: x\r\nX-Own: y\r\n\r\n",
    );
    assert_eq!(client.response().status, 200);
    let head = String::from_utf8_lossy(&scene.origin.seen()[0][0]).to_lowercase();
    assert!(head.contains("x-forwarded-for: 10.0.0.1, 127.0.0.1\r\n") && head.contains("authorization: x"), "{head}");
    assert!(!head.contains("x-own"), "{head}");
}

#[test]
fn a_client_that_leaves_frees_its_resources() {
    let origin = Faulty::http(|_| Act::Hang);
    let gateway = Gateway::start(Config::http(&origin.address));
    for _ in 0..20 {
        let mut client = HttpClient::connect(&gateway.address);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\nab");
    }
    gateway.wait_at_rest();
    gateway.finish();
}

#[test]
fn grpc_over_http_1_gets_a_response_that_names_its_need() {
    let scene = Scene::new("");
    let mut client = scene.client();
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status, 426);
    assert_eq!(client.get("/").status, 200, "the connection goes on");
}

/// Whether it is a date as RFC 9110 section 5.6.7 has it: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn is_http_date(text: &str) -> bool {
    let form = "Aaa, 00 Aaa 0000 00:00:00 GMT";
    let fits = |(byte, form): (u8, u8)| match form {
        b'0' => byte.is_ascii_digit(),
        b'A' => byte.is_ascii_uppercase(),
        b'a' => byte.is_ascii_lowercase(),
        form => byte == form,
    };
    text.len() == form.len() && text.ends_with(" GMT") && text.bytes().zip(form.bytes()).take(25).all(fits)
}

#[test]
fn responses_of_the_gateways_own_have_one_date() {
    let origin = Faulty::http(|_| Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()));
    let tables = "[[route]]\nname = \"own\"\npath = \"/own\"\nresponse = { status = 200, body = \"hi\" }\n\
         [[route]]\nname = \"moved\"\npath = \"/moved\"\nredirect = { path = \"/own\" }\n\
         [[route]]\nname = \"dated\"\npath = \"/dated\"\nresponse = { status = 204 }\n\
         response_header = [{ name = \"Date\", value = \"Thu, 01 Jan 1970 00:00:00 GMT\" }]";
    let gateway = Gateway::start(Config::http(&origin.address).tables(tables));
    for (request, status) in [
        ("GET /own HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("GET /moved HTTP/1.1\r\nHost: a\r\n\r\n", 302),
        ("GET /a%2Fb HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET /dated HTTP/1.1\r\nHost: a\r\n\r\n", 204),
    ] {
        let mut client = HttpClient::connect(&gateway.address);
        client.send(request);
        let response = client.response();
        assert_eq!(response.status, status, "{request:?}");
        let date = response.field("date").unwrap_or_default();
        assert!(is_http_date(&date), "{request:?}: {date:?}");
        assert_eq!(date.contains("1970"), status == 204, "{request:?}: {date:?}");
    }
    gateway.finish();
}
