//! Responses that a filter holds whole and replaces, in real exchanges.

use std::sync::{Arc, Mutex};

use weir_http::filter::{
    AfterFailure, BodyAborted, Caller, ExchangeSummary, FailedAttempt, FilterFactory, HoldLimits, HttpFilter, Inspect,
    ReplacedResponse, RequestChoice, SeenBody, Tap, UpstreamChoice, WholeResponse,
};
use weir_http_codec::{Fields, RequestHead};
use weir_telemetry::catalog;

use crate::{
    http2::Http2Client,
    support::{Gateway, Origin, Setup},
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const BYTES_MAX: usize = 200_000;

/// Its filters turn bodies round, with the status 299, and count what they follow.
#[derive(Clone, Debug)]
struct Turning {
    memory_per_byte: u32,
    followed: Arc<Mutex<Vec<u8>>>,
    ends: Arc<Mutex<Vec<String>>>,
}

impl Turning {
    fn new() -> Self {
        Self { memory_per_byte: 2, followed: Arc::default(), ends: Arc::default() }
    }

    fn setup(&self) -> Setup {
        Setup::plain(|action| action.filter = Some(Arc::new(self.clone())))
    }
}

impl FilterFactory for Turning {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        Box::new(TurningFilter { of: self.clone(), made: 0 })
    }
}

struct TurningFilter {
    of: Turning,
    made: u32,
}

impl HttpFilter for TurningFilter {
    fn inspect(&mut self, _: &RequestHead, _: &Caller) -> Inspect {
        Inspect::Buffered(100)
    }

    fn choose_upstream(&mut self, _: &mut RequestHead, seen: SeenBody<'_>) -> Result<RequestChoice, WholeResponse> {
        assert!(seen.room(10).is_some() && seen.room(u64::MAX).is_none());
        self.made += 1;
        let other = UpstreamChoice::Upstream { name: "b".into(), host: None };
        Ok(if self.made == 1 { UpstreamChoice::Route } else { other }.into())
    }

    fn attempts_max(&self) -> u32 {
        2
    }

    fn attempt_failed(&mut self, failed: &FailedAttempt<'_>) -> AfterFailure {
        if failed.may_go_on && failed.status == 0 { AfterFailure::Next } else { AfterFailure::Respond }
    }

    fn tap(&mut self, _: u16, fields: &mut Fields) -> Tap {
        fields.push(b"x-tapped", b"1");
        Tap::Replace(HoldLimits { bytes_max: BYTES_MAX, memory_per_byte: self.of.memory_per_byte, may_be_cut: false })
    }

    fn follow(&mut self, piece: &[u8]) -> Result<(), BodyAborted> {
        self.of.followed.lock().expect("no panic").extend_from_slice(piece);
        if piece == b"abort" { Err(BodyAborted) } else { Ok(()) }
    }

    fn replace_response(&mut self, status: u16, fields: &mut Fields, body: &[u8]) -> ReplacedResponse {
        fields.push(b"x-was", status.to_string().as_bytes());
        ReplacedResponse { status: 299, body: body.iter().rev().copied().collect::<Vec<u8>>().into() }
    }

    fn on_complete(&mut self, facts: &ExchangeSummary<'_>) {
        let ExchangeSummary { status, end, reason, .. } = *facts;
        self.of.ends.lock().expect("no panic").push(format!("{status} {end:?} {reason}"));
    }
}

fn chunked(body: &str) -> String {
    let chunks: String = body
        .as_bytes()
        .chunks(1000)
        .map(|piece| format!("{:x}\r\n{}\r\n", piece.len(), std::str::from_utf8(piece).expect("ASCII")))
        .collect();
    format!("HTTP/1.1 200 OK\r\nETag: \"e\"\r\nDigest: d\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
}

#[test]
fn a_body_is_replaced_with_its_length_and_its_status_and_the_connections_go_on() {
    for size in [1, 5, 150_000] {
        let filter = Turning::new();
        let gateway = Gateway::start(filter.setup());
        let body: String = (0..size).map(|at: u32| char::from(b'a' + (at % 26) as u8)).collect();
        let turned: String = body.chars().rev().collect();
        let mut client = gateway.client();
        client.send(GET);
        let mut origin = gateway.origin.accept();
        origin.request();
        origin.send(&chunked(&body));
        let response = client.response();
        let (head, got) = response.split_once("\r\n\r\n").expect("a head");
        assert!(got == turned && head.starts_with("HTTP/1.1 299 "), "{head}");
        assert!(head.contains(&format!("ontent-length: {size}")) || head.contains(&format!("Content-Length: {size}")));
        assert!(head.contains("x-tapped: 1") && head.contains("x-was: 200") && head.contains("W/\"e\""), "{head}");
        assert!(!head.contains("Digest") && !head.to_lowercase().contains("chunked"), "{head}");
        assert_eq!(filter.followed.lock().expect("no panic").as_slice(), body.as_bytes());
        client.send(GET);
        origin.request();
        origin.send("HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nab");
        assert!(client.response().ends_with("\r\n\r\nba"));
        drop((client, origin));
        gateway.rests();
        assert_eq!(filter.ends.lock().expect("no panic")[0], "299 Completed ok");
        // An endpoint is judged by its own status.
        let responses = |class| gateway.counter(catalog::HTTP_UPSTREAM_RESPONSES.name, &[("class", class)]);
        assert_eq!((responses("2xx"), responses("5xx")), (1, 1));
    }
}

#[test]
fn a_body_is_replaced_on_a_stream() {
    let gateway = Gateway::start(Turning::new().setup());
    let mut client = Http2Client::new(gateway.client());
    client.post(1, "/", "x");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
    let response = client.response(1);
    assert_eq!(response.body, b"cba");
}

#[test]
fn a_body_beyond_its_limit_or_without_memory_is_refused_and_no_attempt_follows() {
    let long = "x".repeat(BYTES_MAX + 1);
    let declared = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", long.len());
    for (response, memory_per_byte, status, reason) in [
        (declared, 2, 502, "response_too_long"),
        (chunked(&long), 2, 502, "response_too_long"),
        (chunked(&long[..1000]), 1_000_000, 503, "response_no_room"),
        (chunked("abort"), 2, 502, "tap_broke_off"),
    ] {
        let (filter, other) = (Turning { memory_per_byte, ..Turning::new() }, Origin::new());
        let mut setup = filter.setup();
        setup.upstreams = vec![Vec::new(), vec![other.address]];
        let gateway = Gateway::start(setup);
        let mut client = gateway.client();
        client.send(GET);
        let mut origin = gateway.origin.accept();
        origin.request();
        let _ = std::io::Write::write_all(&mut origin.0.stream, response.as_bytes());
        let got = client.response();
        assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{reason}: {got}");
        drop((client, origin));
        gateway.rests();
        assert_eq!(*filter.ends.lock().expect("no panic"), [format!("{status} Refused {reason}")]);
        assert!(other.is_untouched());
    }
}

#[test]
fn a_held_body_that_breaks_off_is_a_failed_attempt_and_another_choice_follows() {
    let (filter, other) = (Turning::new(), Origin::new());
    let mut setup = filter.setup();
    setup.upstreams = vec![Vec::new(), vec![other.address]];
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    drop(origin);
    let mut origin = other.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert!(client.response().ends_with("\r\n\r\nko"));
    drop((client, origin));
    gateway.rests();
}

#[test]
fn a_client_that_leaves_while_a_body_is_held_frees_its_memory() {
    let filter = Turning::new();
    let gateway = Gateway::start(filter.setup());
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    while filter.followed.lock().expect("no panic").is_empty() {
        std::thread::yield_now();
    }
    drop(client);
    gateway.rests();
    assert_eq!(*filter.ends.lock().expect("no panic"), ["0 ClientGone client_reset"]);
}

#[test]
fn an_empty_body_is_replaced_and_a_response_that_has_none_is_not() {
    let gateway = Gateway::start(Turning::new().setup());
    let response = gateway.exchange(GET, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 299 ") && response.contains("x-was: 503"), "{response}");
    let gateway = Gateway::start(Turning::new().setup());
    let response = gateway.exchange(GET, "HTTP/1.1 204 No\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 204 ") && !response.contains("x-tapped"), "{response}");
}
