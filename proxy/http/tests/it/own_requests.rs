//! Requests that filters make themselves, in real exchanges.

use std::{
    net::TcpListener,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_http::filter::{
    Caller, ExchangeSummary, FilterFactory, FilterRequest, FilterRequestOutcome, HandlerResponse, HttpFilter, Inspect,
    OWN_REQUESTS_MAX, OwnResponse, SeenBody, WholeResponse,
};
use weir_http_codec::{Fields, RequestHead};

use crate::support::{Client, Gateway, Origin, PATIENCE, Setup, route, upstream};

const POST: &str = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";

/// A request of a filter: the upstream, and the endpoint there.
type Wanted = (&'static str, Option<usize>);

/// Filters that make these requests, once for each round, and respond with their outcomes.
#[derive(Clone, Debug)]
struct Sending {
    rounds: Arc<[Vec<Wanted>]>,
    timeout: Duration,
    response_bytes_max: usize,
    /// In place of the body of the client.
    body: Option<Bytes>,
    ends: mpsc::Sender<String>,
}

struct SendingFilter {
    sending: Sending,
    round: usize,
    seen: String,
}

/// A factory may be used by each worker.
#[derive(Debug)]
struct Factory(std::sync::Mutex<Sending>);

impl FilterFactory for Factory {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        let sending = self.0.lock().expect("no panic").clone();
        Box::new(SendingFilter { sending, round: 0, seen: String::new() })
    }
}

impl HttpFilter for SendingFilter {
    fn inspect(&mut self, _: &RequestHead, _: &Caller) -> Inspect {
        Inspect::Buffered(1_000)
    }

    fn own_response(&mut self, head: &RequestHead, seen: SeenBody<'_>) -> Result<OwnResponse, WholeResponse> {
        let Some(wanted) = self.sending.rounds.get(self.round) else {
            let body = Bytes::from(self.seen.clone());
            return Ok(OwnResponse::Respond(HandlerResponse::Whole(WholeResponse {
                status: 200,
                fields: Fields::new(),
                body,
            })));
        };
        self.round += 1;
        let request = |(number, (upstream, endpoint)): (usize, &Wanted)| FilterRequest {
            upstream: (*upstream).into(),
            endpoint: *endpoint,
            host: Some((*b"own.example").into()),
            head: head.clone(),
            body: match &self.sending.body {
                Some(body) => body.clone(),
                None => Bytes::from([seen.bytes, number.to_string().as_bytes()].concat()),
            },
            is_repeatable: true,
            timeout: self.sending.timeout,
            response_bytes_max: self.sending.response_bytes_max,
        };
        Ok(OwnResponse::Send(wanted.iter().enumerate().map(request).collect()))
    }

    fn own_requests_done(&mut self, outcomes: Vec<FilterRequestOutcome>) {
        for outcome in outcomes {
            self.seen += &match outcome {
                Ok(response) => {
                    let (body, is_whole) = (String::from_utf8_lossy(&response.body), response.is_whole);
                    format!("{} {} {body:?} {is_whole}\n", response.endpoint, response.status)
                }
                Err(error) => format!("{error:?}\n"),
            };
        }
    }

    fn on_complete(&mut self, facts: &ExchangeSummary<'_>) {
        let _ = self.sending.ends.send(format!("{} {:?} {}", facts.status, facts.end, facts.reason));
    }
}

/// A gateway whose upstream `a` has its origin and `more` as endpoints, and whose upstream `b` has `other`.
fn gateway(
    rounds: &[&[Wanted]],
    more: &[&Origin],
    other: &Origin,
    change: impl FnOnce(&mut Setup),
) -> (Gateway, mpsc::Receiver<String>) {
    gateway_with(|_| {}, rounds, more, other, change)
}

/// The same with other requests.
fn gateway_with(
    sends: impl FnOnce(&mut Sending),
    rounds: &[&[Wanted]],
    more: &[&Origin],
    other: &Origin,
    change: impl FnOnce(&mut Setup),
) -> (Gateway, mpsc::Receiver<String>) {
    let (ends, ended) = mpsc::channel();
    let rounds = rounds.iter().map(|round| round.to_vec()).collect();
    let mut sending = Sending { rounds, timeout: Duration::from_millis(500), response_bytes_max: 10, body: None, ends };
    sends(&mut sending);
    let filter = Arc::new(Factory(std::sync::Mutex::new(sending)));
    let mut setup = Setup::of(vec![
        route("/", upstream(0), |action| action.filter = Some(filter)),
        route("/b", upstream(1), |_| {}),
    ]);
    setup.upstreams = vec![more.iter().map(|origin| origin.address).collect(), vec![other.address]];
    change(&mut setup);
    (Gateway::start(setup), ended)
}

/// The body of the next response, which is in order.
fn outcomes(client: &mut Client) -> String {
    let response = client.response();
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    body.to_owned()
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn requests_go_out_at_once_and_outcomes_keep_their_order() {
    let other = Origin::new();
    let rounds: &[&[Wanted]] = &[&[("a", None), ("b", None)], &[("b", None)]];
    let (gateway, ended) = gateway(rounds, &[], &other, |_| {});
    let mut client = gateway.client();
    client.send(POST);
    let (mut first, mut second) = (gateway.origin.accept(), other.accept());
    let seen = second.request();
    assert!(seen.starts_with("POST /a HTTP/1.1\r\n") && seen.ends_with("\r\n\r\nbody1"), "{seen}");
    assert!(seen.to_ascii_lowercase().contains("host: own.example\r\n"), "{seen}");
    second.send(&ok("two"));
    assert!(first.request().ends_with("\r\n\r\nbody0"));
    first.send(&ok("one"));
    // The second round, on the connection of the first.
    assert!(second.request().ends_with("\r\n\r\nbody0"));
    second.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(outcomes(&mut client), "0 200 \"one\" true\n0 200 \"two\" true\n0 404 \"\" true\n");
    assert_eq!(ended.recv_timeout(PATIENCE).expect("an end"), "200 Completed ok");
    drop(client);
    gateway.rests();
}

#[test]
fn a_request_keeps_to_its_endpoint_and_failures_have_names() {
    let (second, other) = (Origin::new(), Origin::new());
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let wanted: &[Wanted] = &[("a", Some(1)), ("a", Some(2)), ("a", Some(7)), ("b", None), ("c", None)];
    let (gateway, _) = gateway(&[wanted], &[&second], &other, |setup| setup.upstreams[0].push(gone));
    let mut client = gateway.client();
    client.send(POST);
    let mut end = second.accept();
    end.request();
    end.send(&ok("second"));
    let mut end = other.accept();
    end.request();
    end.send(&ok("eleven byte"));
    let (unreachable, is_longer) = ("Unreachable\n", "TooLong\n");
    let wanted = format!("1 200 \"second\" true\n{unreachable}{unreachable}{is_longer}{unreachable}");
    assert_eq!(outcomes(&mut client), wanted);
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_response_that_breaks_off_or_never_comes_ends_with_the_time() {
    let other = Origin::new();
    let (gateway, _) = gateway(&[&[("a", None), ("b", None)]], &[], &other, |_| {});
    let mut client = gateway.client();
    client.send(POST);
    let (mut half, mut silent) = (gateway.origin.accept(), other.accept());
    half.request();
    half.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    silent.request();
    assert_eq!(outcomes(&mut client), "0 200 \"half\" false\nFailed\n");
}

#[test]
fn bodies_are_charged_while_they_are_held() {
    let other = Origin::new();
    let rounds: &[&[Wanted]] = &[&[("a", None), ("b", None)]];
    let most = |sending: &mut Sending| sending.response_bytes_max = 60_000;
    let (gateway, _) = gateway_with(most, rounds, &[], &other, |setup| setup.buffered_bytes = 64 << 10);
    let mut client = gateway.client();
    client.send(POST);
    let (mut first, mut second) = (gateway.origin.accept(), other.accept());
    first.request();
    second.request();
    first.send(&ok(&"1".repeat(40_000)));
    let begun = Instant::now();
    while gateway.held().1 < 40_000 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", gateway.held());
    }
    second.send(&ok(&"2".repeat(40_000)));
    let outcomes = outcomes(&mut client);
    assert!(outcomes.starts_with("0 200 \"1111") && outcomes.ends_with("1\" true\nNoRoom\n"), "{outcomes}");
    drop(client);
    gateway.rests();
}

#[test]
fn a_long_body_for_slow_origins_waits_in_pieces_that_are_charged() {
    // More than the sockets of both sides hold.
    let body = Bytes::from(vec![b'x'; 24 << 20]);
    let other = Origin::new();
    let long = body.clone();
    let sends = |sending: &mut Sending| (sending.body, sending.timeout) = (Some(long), PATIENCE);
    let (gateway, _) = gateway_with(sends, &[&[("a", None), ("b", None)]], &[], &other, |_| {});
    let mut client = gateway.client();
    client.send(POST);
    let ends = [gateway.origin.accept(), other.accept()];
    let (begun, mut most) = (Instant::now(), 0);
    // Each lane is congested from 256 KiB on.
    while most < 512 << 10 {
        most = most.max(gateway.held().1);
        assert!(begun.elapsed() < PATIENCE, "{most}");
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(100) {
        most = most.max(gateway.held().1);
    }
    assert!(most < 1 << 20, "{most}");
    for mut end in ends {
        end.0.until("\r\n\r\n");
        assert!(end.0.bytes(body.len()) == body);
        end.send(&ok("all"));
    }
    assert_eq!(outcomes(&mut client), "0 200 \"all\" true\n0 200 \"all\" true\n");
    drop(client);
    gateway.rests();
}

#[test]
fn a_client_that_leaves_ends_the_requests() {
    let other = Origin::new();
    let (gateway, ended) = gateway(&[&[("a", None)]], &[], &other, |_| {});
    let mut client = gateway.client();
    client.send(POST);
    let mut end = gateway.origin.accept();
    end.request();
    drop(client);
    assert!(ended.recv_timeout(PATIENCE).expect("an end").starts_with("0 ClientGone "));
    gateway.rests();
}

#[test]
fn too_many_requests_break_a_rule() {
    let other = Origin::new();
    let many = [("a", None); OWN_REQUESTS_MAX + 1];
    let (gateway, _) = gateway(&[&many], &[], &other, |_| {});
    let mut client = gateway.client();
    client.send(POST);
    assert!(client.response().starts_with("HTTP/1.1 500 "));
    assert!(gateway.origin.is_untouched());
}
