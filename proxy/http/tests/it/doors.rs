//! The doors of a route, in real exchanges.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use weir_engine::Deadline;
use weir_http::{
    compression::{Coding, Compression},
    doors::{
        BodyTap, BrokenOff, Choice, End, Handler, HandlerRequest, Inspect, Inspection, Pieces, Response, Settle,
        Settled, Tap, Whole,
    },
    policies::Policies,
    routes::{Action, DirectResponse, Target},
};
use weir_http_codec::{Fields, RequestHead};
use weir_policy::http::{AddressRules, Effect, Source};

use crate::support::{Gateway, Origin, PATIENCE, Setup, route};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn whole(status: u16, body: &'static str) -> Whole {
    Whole { status, fields: Fields::new(), body: Bytes::from_static(body.as_bytes()) }
}

/// Refuses bodies with `bad` in them, and sends bodies with `other` in them to the second upstream.
#[derive(Clone, Debug)]
struct Words {
    bytes_kept: usize,
}

impl Inspect for Words {
    fn bytes_kept(&self) -> usize {
        self.bytes_kept
    }

    fn begin(&self, head: &RequestHead) -> Option<Box<dyn Inspection>> {
        (head.target() != b"/unseen").then(|| Box::new(Seen::default()) as Box<dyn Inspection>)
    }
}

#[derive(Default)]
struct Seen(Vec<u8>);

impl Seen {
    fn has(&self, word: &str) -> bool {
        self.0.windows(word.len()).any(|window| window == word.as_bytes())
    }
}

impl Inspection for Seen {
    fn data(&mut self, piece: &[u8]) -> Result<(), Whole> {
        self.0.extend_from_slice(piece);
        if self.has("bad") { Err(whole(422, "no")) } else { Ok(()) }
    }

    fn choose(&mut self, head: &mut RequestHead, is_whole: bool) -> Result<Choice, Whole> {
        head.fields.push(b"x-seen", format!("{} {is_whole}", self.0.len()).as_bytes());
        Ok(match self.has("other") {
            true => Choice::Upstream { name: "b".into(), host: Some(b"b.example"[..].into()) },
            false => Choice::Stay,
        })
    }

    fn end(&mut self) -> Result<(), Whole> {
        if self.has("late") { Err(whole(409, "late")) } else { Ok(()) }
    }
}

fn inspected(bytes_kept: usize) -> Setup {
    Setup::plain(|action| {
        action.request_buffer_bytes = Some(0);
        action.doors.inspect = Some(Arc::new(Words { bytes_kept }));
    })
}

#[test]
fn a_body_is_refused_midway_and_its_origin_never_gets_the_end() {
    let gateway = Gateway::start(inspected(0));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\ngood ");
    let mut origin = gateway.origin.accept();
    assert!(origin.0.until("good ").starts_with("POST / "));
    client.send("bad..");
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 422 ") && response.ends_with("\r\n\r\nno"), "{response}");
    assert_eq!(origin.0.rest(), "");
}

#[test]
fn a_body_is_refused_at_its_end() {
    let gateway = Gateway::start(inspected(0));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nlate\r\n");
    let mut origin = gateway.origin.accept();
    origin.0.until("late\r\n");
    client.send("0\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 409 "));
    assert_eq!(origin.0.rest(), "");
}

#[test]
fn a_body_that_is_kept_is_refused_before_an_origin_sees_it() {
    let gateway = Gateway::start(inspected(1000));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nbadGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 422 "));
    // The connection goes on.
    let mut origin = gateway.origin.accept();
    assert!(origin.request().starts_with("GET / "));
    origin.send(OK);
    assert!(client.response().ends_with("ok"));
}

#[test]
fn an_inspection_chooses_the_upstream_by_the_body() {
    let other = Origin::new();
    let mut setup = inspected(1000);
    setup.upstreams = vec![Vec::new(), vec![other.address]];
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nother");
    let mut origin = other.accept();
    let request = origin.request();
    assert!(request.contains("Host: b.example\r\n") && request.contains("x-seen: 5 true\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\nother"), "{request}");
    origin.send(OK);
    assert!(client.response().ends_with("ok"));
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_body_beyond_what_is_kept_is_chosen_for_by_its_beginning_and_looked_at_to_its_end() {
    let gateway = Gateway::start(inspected(4));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nmuch longer");
    let mut origin = gateway.origin.accept();
    let request = origin.request();
    assert!(request.contains("x-seen: ") && request.ends_with("much longer"), "{request}");
    origin.send(OK);
    assert!(client.response().ends_with("ok"));
}

#[test]
fn a_request_that_an_inspection_leaves_out_passes() {
    let gateway = Gateway::start(inspected(1000));
    let request = "POST /unseen HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nbad";
    assert!(gateway.exchange(request, OK).ends_with("ok"));
}

/// Echoes bodies, and streams for `/stream`.
#[derive(Debug)]
struct Echo {
    pieces: mpsc::Sender<Arc<Control>>,
}

/// What a test knows of a stream.
#[derive(Debug, Default)]
struct Control {
    pieces: Mutex<VecDeque<Option<Bytes>>>,
    is_dropped: AtomicBool,
}

impl Handler for Echo {
    fn body_bytes_max(&self) -> usize {
        8
    }

    fn handle(self: Arc<Self>, request: HandlerRequest) -> Pin<Box<dyn Future<Output = Response>>> {
        Box::pin(async move {
            weir_engine::sleep(Duration::from_millis(1)).await;
            let mut fields = Fields::new();
            fields.push(b"x-target", request.head.target());
            match request.head.target() {
                b"/stream" => {
                    let control = Arc::<Control>::default();
                    let _ = self.pieces.send(control.clone());
                    let pieces = Box::new(Scripted { control, look: weir_engine::deadline() });
                    Response::Stream { status: 200, fields, pieces }
                }
                _ => Response::Whole(Whole { status: 201, fields, body: request.body }),
            }
        })
    }
}

/// Pieces as the test gives them; looked for every 10 ms.
struct Scripted {
    control: Arc<Control>,
    look: Deadline,
}

impl Pieces for Scripted {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        if let Some(piece) = self.control.pieces.lock().expect("no panic").pop_front() {
            return Poll::Ready(match piece {
                Some(piece) if piece == "break" => Some(Err(BrokenOff)),
                Some(piece) => Some(Ok(piece)),
                None => None,
            });
        }
        self.look.set(weir_base::time::turn::now().saturating_add(Duration::from_millis(10)));
        let _ = self.look.poll_expired(context);
        Poll::Pending
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.control.is_dropped.store(true, Ordering::SeqCst);
    }
}

impl Control {
    fn give(&self, piece: Option<&'static str>) {
        self.pieces.lock().expect("no panic").push_back(piece.map(|text| Bytes::from_static(text.as_bytes())));
    }
}

fn handled(change: impl FnOnce(&mut Action)) -> (Gateway, mpsc::Receiver<Arc<Control>>) {
    let (pieces, streams) = mpsc::channel();
    (Gateway::start(Setup::of(vec![route("/", Target::Handler(Arc::new(Echo { pieces })), change)])), streams)
}

#[test]
fn a_handler_answers_as_a_whole() {
    let (gateway, _) = handled(|_| {});
    let mut client = gateway.client();
    client.send("POST /echo//x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 201 ") && response.ends_with("\r\n\r\nhello"), "{response}");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert!(client.response().ends_with("\r\n\r\nabc"));
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789");
    assert!(client.response().starts_with("HTTP/1.1 413 "));
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_handler_streams_and_the_connection_goes_on() {
    let (gateway, streams) = handled(|_| {});
    let mut client = gateway.client();
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    let control = streams.recv_timeout(PATIENCE).expect("a stream");
    control.give(Some("first"));
    assert!(client.0.until("first\r\n").contains("5\r\nfirst"));
    control.give(Some("last"));
    control.give(None);
    assert_eq!(client.0.until("0\r\n\r\n"), "4\r\nlast\r\n0\r\n\r\n");
    client.send("HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    client.send("GET /again HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 201 "));
}

#[test]
fn a_handler_that_breaks_off_does_not_look_whole() {
    let (gateway, streams) = handled(|_| {});
    let mut client = gateway.client();
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    let control = streams.recv_timeout(PATIENCE).expect("a stream");
    control.give(Some("first"));
    client.0.until("first\r\n");
    control.give(Some("break"));
    assert_eq!(client.0.rest(), "");
}

#[test]
fn the_stream_of_a_client_that_goes_away_is_dropped_and_settled() {
    let (told, settled) = mpsc::channel();
    let (gateway, streams) = handled(|action| action.doors.settle = Some(Arc::new(Told(Mutex::new(told)))));
    let mut client = gateway.client();
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    let control = streams.recv_timeout(PATIENCE).expect("a stream");
    control.give(Some("first"));
    client.0.until("first\r\n");
    drop(client);
    assert_eq!(next(&settled), (200, End::ClientGone, "client_reset".into()));
    gateway.rests();
    assert!(control.is_dropped.load(Ordering::SeqCst));
}

/// Makes letters upper case, and keeps what follows the last blank until more comes.
#[derive(Debug)]
struct Upper;

#[derive(Default)]
struct Held(Vec<u8>);

impl Tap for Upper {
    fn begin(&self, status: u16, fields: &mut Fields) -> Option<Box<dyn BodyTap>> {
        fields.push(b"x-tapped", b"1");
        (status == 200).then(|| Box::<Held>::default() as Box<dyn BodyTap>)
    }
}

impl BodyTap for Held {
    fn data(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        self.0.extend(piece.to_ascii_uppercase());
        let whole = self.0.iter().rposition(|byte| *byte == b' ').map_or(0, |at| at + 1);
        out.extend(self.0.drain(..whole));
        if out.starts_with(b"FAIL") { Err(BrokenOff) } else { Ok(()) }
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        out.append(&mut self.0);
        out.extend_from_slice(b"!");
        Ok(())
    }
}

fn tapped() -> Setup {
    Setup::plain(|action| action.doors.tap = Some(Arc::new(Upper)))
}

#[test]
fn a_tap_edits_a_chunked_response_piece_by_piece() {
    let gateway = Gateway::start(tapped());
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\none two\r\n");
    assert!(client.0.until("\r\n\r\n").contains("x-tapped: 1\r\n"));
    assert_eq!(client.0.until("ONE \r\n"), "4\r\nONE \r\n");
    origin.send("6\r\n three\r\n0\r\n\r\n");
    assert_eq!(client.0.until("0\r\n\r\n"), "4\r\nTWO \r\n6\r\nTHREE!\r\n0\r\n\r\n");
}

#[test]
fn a_tap_takes_the_length_from_a_response() {
    let gateway = Gateway::start(tapped());
    let response = gateway.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n", OK);
    assert!(!response.contains("Content-Length") && response.ends_with("\r\n\r\n3\r\nOK!\r\n0\r\n\r\n"), "{response}");
    let none = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
    let response = gateway.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n", none);
    assert!(response.contains("Content-Length: 2\r\n") && response.ends_with("\r\n\r\nno"), "{response}");
}

#[test]
fn a_tap_that_fails_breaks_the_response_off() {
    let gateway = Gateway::start(tapped());
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nfail x");
    client.0.until("\r\n\r\n");
    assert_eq!(client.0.rest(), "");
}

#[test]
fn a_tap_stands_before_the_compression() {
    let mut setup = tapped();
    let compression = Compression { codings: vec![Coding::Gzip], bytes_min: 1, types: vec!["text/*".into()] };
    setup.change = Box::new(move |settings| settings.compression = Some(Arc::new(compression)));
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.0\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok");
    assert!(client.0.rest().ends_with("\r\n\r\nOK!"), "HTTP/1.0 is not compressed for");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n");
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok");
    let head = client.head();
    assert!(head.contains("content-encoding: gzip\r\n"), "{head}");
    let mut plain = Vec::new();
    while let Some(chunk) = client.0.chunk() {
        plain.extend(chunk);
    }
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&*plain), &mut text).expect("gzip");
    assert_eq!(text, "OK!");
}

#[test]
fn a_tap_edits_a_response_on_a_stream() {
    let gateway = Gateway::start(tapped());
    let mut client = gateway.client();
    client.0.send_bytes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    // GET / with authority `a`: indexed fields 2, 4 and 6, and :authority (1) as a literal.
    client.0.send_bytes(b"\0\0\x06\x01\x05\0\0\0\x01\x82\x84\x86\x41\x01a");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\none two\r\n0\r\n\r\n");
    let mut body = Vec::new();
    loop {
        let frame = client.0.bytes(9);
        let length = usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2]);
        let payload = client.0.bytes(length);
        match (frame[3], frame[8]) {
            (0, 1) => body.extend(payload),
            (1, 1) => assert_eq!(payload[0] & 0x7F, 8, ":status 200"),
            (4, _) if frame[4] & 1 == 0 => client.0.send_bytes(b"\0\0\0\x04\x01\0\0\0\0"),
            (6, _) if frame[4] & 1 == 0 => {
                client.0.send_bytes(b"\0\0\x08\x06\x01\0\0\0\0");
                client.0.send_bytes(&payload);
            }
            _ => {}
        }
        if matches!(frame[3], 0 | 1) && frame[8] == 1 && frame[4] & 1 == 1 {
            break;
        }
    }
    assert_eq!(body, b"ONE TWO!");
}

/// Tells each end.
#[derive(Debug)]
struct Told(Mutex<mpsc::Sender<Fact>>);

type Fact = (u16, u64, u64, End, String, String);

impl Settle for Told {
    fn settled(&self, facts: &Settled<'_>) {
        let Settled { status, request_bytes, response_bytes, end, reason, upstream, .. } = *facts;
        assert!(facts.duration < PATIENCE);
        let fact = (status, request_bytes, response_bytes, end, reason.to_owned(), upstream.to_owned());
        let _ = self.0.lock().expect("no panic").send(fact);
    }
}

fn next(settled: &mpsc::Receiver<Fact>) -> (u16, End, String) {
    let (status, _, _, end, reason, _) = settled.recv_timeout(PATIENCE).expect("the end is told");
    (status, end, reason)
}

/// Runs `script`, whose one exchange must be told of once.
fn settled(change: impl FnOnce(&mut Action), script: impl FnOnce(&Gateway)) -> Fact {
    let (told, settled) = mpsc::channel();
    let gateway = Gateway::start(Setup::plain(|action| {
        change(action);
        action.doors.settle = Some(Arc::new(Told(Mutex::new(told))));
    }));
    script(&gateway);
    let fact = settled.recv_timeout(PATIENCE).expect("the end is told");
    gateway.rests();
    drop(gateway);
    assert!(settled.recv_timeout(Duration::from_millis(1)).is_err(), "told twice");
    fact
}

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";

#[test]
fn an_answered_exchange_is_settled_with_its_bytes() {
    let (status, request, response, end, reason, upstream) = settled(
        |_| {},
        |gateway| {
            gateway.exchange(POST, OK);
        },
    );
    assert_eq!((status, request, end, &*reason, &*upstream), (200, 3, End::Answered, "ok", "a"));
    assert!(response > 2, "{response}");
}

#[test]
fn a_refusal_of_a_policy_is_settled() {
    let nets = ["192.0.2.0/24".parse().expect("a network")];
    let rules = AddressRules::new(Effect::Deny, Source::Client, &nets).expect("rules");
    let policies = Policies { address: Some(Arc::new(rules)), ..Policies::default() };
    let fact = settled(
        |action| action.policies = Some(Box::new(policies)),
        |gateway| {
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client.response();
        },
    );
    assert_eq!((fact.0, fact.3, &*fact.5), (403, End::Refused, ""));
}

#[test]
fn a_refusal_of_an_inspection_is_settled() {
    let fact = settled(
        |action| action.doors.inspect = Some(Arc::new(Words { bytes_kept: 0 })),
        |gateway| {
            let mut client = gateway.client();
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nbad");
            client.response();
        },
    );
    assert_eq!((fact.0, fact.1, fact.3, &*fact.4), (422, 3, End::Refused, "inspected"));
}

#[test]
fn an_origin_that_fails_is_settled_as_a_refusal() {
    let fact = settled(
        |_| {},
        |gateway| {
            let mut client = gateway.client();
            client.send(POST);
            let mut origin = gateway.origin.accept();
            origin.request();
            drop(origin);
            client.response();
        },
    );
    assert_eq!((fact.0, fact.3, &*fact.4), (502, End::Refused, "origin_closed"));
}

#[test]
fn a_response_that_breaks_off_is_settled_so() {
    let fact = settled(
        |_| {},
        |gateway| {
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut origin = gateway.origin.accept();
            origin.request();
            origin.send("HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\n\r\nabc");
            client.0.until("abc");
            drop(origin);
            client.0.rest();
        },
    );
    assert_eq!((fact.0, fact.3, &*fact.4), (206, End::BrokenOff, "origin_closed"));
}

#[test]
fn a_client_that_vanishes_before_its_response_is_settled() {
    let fact = settled(
        |_| {},
        |gateway| {
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            gateway.origin.accept().request();
            drop(client);
        },
    );
    assert_eq!((fact.0, fact.3, &*fact.4), (0, End::ClientGone, "client_reset"));
}

#[test]
fn a_client_that_vanishes_in_its_upload_is_settled() {
    let fact = settled(
        |_| {},
        |gateway| {
            let mut client = gateway.client();
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
            drop(client);
        },
    );
    assert_eq!(fact.0, 400, "{fact:?}");
    assert_eq!((fact.1, fact.3, &*fact.4), (3, End::Refused, "body_cut"));
}

#[test]
fn a_response_of_the_route_is_settled() {
    let response = DirectResponse { status: 204, content_type: String::new(), body: Vec::new() };
    let fact = settled(
        |action| action.target = Target::Response(Arc::new(response)),
        |gateway| {
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client.response();
        },
    );
    assert_eq!((fact.0, fact.3, &*fact.5), (204, End::Answered, ""));
}
