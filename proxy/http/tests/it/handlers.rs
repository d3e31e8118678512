//! Responses of handlers, in real exchanges.

use std::{
    collections::VecDeque,
    net::IpAddr,
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
    fault::Fault,
    filter::{
        BodyAborted, BodyStream, Caller, CompletionStatus, Handler, HandlerRequest, HandlerResponse, WholeResponse,
    },
    routes::{Action, Target},
    settings::Upgrades,
};
use weir_http_codec::Fields;

use crate::{
    filters::recording,
    http2::{Http2Client, Http2Response},
    policies::with_a_key,
    support::{Gateway, PATIENCE, Setup, route},
};

/// Echoes bodies, streams for `/stream`, and never responds to `/never`.
#[derive(Debug)]
struct Echo {
    pieces: mpsc::Sender<Arc<Control>>,
    waits: mpsc::Sender<bool>,
    callers: mpsc::Sender<Caller>,
}

/// The events of a handler for a test.
struct HandlerEvents {
    streams: mpsc::Receiver<Arc<Control>>,
    /// True: a request waits for a response that never comes. False: it waits no more.
    waits: mpsc::Receiver<bool>,
    callers: mpsc::Receiver<Caller>,
}

/// Sends false when it is dropped.
struct WaitGuard(mpsc::Sender<bool>);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let _ = self.0.send(false);
    }
}

/// Control of a stream by a test.
#[derive(Debug, Default)]
struct Control {
    pieces: Mutex<VecDeque<Option<Bytes>>>,
    is_dropped: AtomicBool,
}

impl Handler for Echo {
    fn body_bytes_max(&self) -> usize {
        8
    }

    fn handle(self: Arc<Self>, request: HandlerRequest) -> Pin<Box<dyn Future<Output = HandlerResponse>>> {
        Box::pin(async move {
            weir_engine::sleep(Duration::from_millis(1)).await;
            let mut fields = Fields::new();
            fields.push(b"x-target", request.head.target());
            match request.head.target() {
                b"/stream" => {
                    let control = Arc::<Control>::default();
                    let _ = self.pieces.send(control.clone());
                    let body_stream = Box::new(Scripted { control, look: weir_engine::deadline() });
                    HandlerResponse::Stream { status: 200, fields, body_stream }
                }
                // No response ever comes.
                b"/never" => {
                    let _waits = WaitGuard(self.waits.clone());
                    let _ = self.waits.send(true);
                    std::future::pending().await
                }
                b"/caller" => {
                    let _ = self.callers.send(request.caller);
                    HandlerResponse::Whole(WholeResponse { status: 204, fields, body: Bytes::new() })
                }
                _ => HandlerResponse::Whole(WholeResponse { status: 201, fields, body: request.body }),
            }
        })
    }
}

/// Pieces as the test gives them; looked for every 10 ms.
struct Scripted {
    control: Arc<Control>,
    look: Deadline,
}

impl BodyStream for Scripted {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyAborted>>> {
        if let Some(piece) = self.control.pieces.lock().expect("no panic").pop_front() {
            return Poll::Ready(match piece {
                Some(piece) if piece == "break" => Some(Err(BodyAborted)),
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

fn setup(change: impl FnOnce(&mut Action)) -> (Setup, HandlerEvents) {
    let ((pieces, streams), (waits, waited), (callers, called)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
    let target = Target::Handler(Arc::new(Echo { pieces, waits, callers }));
    (Setup::of(vec![route("/", target, change)]), HandlerEvents { streams, waits: waited, callers: called })
}

fn handled(change: impl FnOnce(&mut Action)) -> (Gateway, HandlerEvents) {
    let (setup, events) = setup(change);
    (Gateway::start(setup), events)
}

#[test]
fn a_handler_gives_a_whole_response() {
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
    let (gateway, events) = handled(|_| {});
    let mut client = gateway.client();
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    let control = events.streams.recv_timeout(PATIENCE).expect("a stream");
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
    let (gateway, events) = handled(|_| {});
    let mut client = gateway.client();
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    let control = events.streams.recv_timeout(PATIENCE).expect("a stream");
    control.give(Some("first"));
    client.0.until("first\r\n");
    control.give(Some("break"));
    assert_eq!(client.0.rest(), "");
}

#[test]
fn the_stream_of_a_client_that_disconnects_is_dropped_and_reported() {
    let (filter, calls) = recording();
    let (gateway, events) = handled(|action| filter.install(action));
    let mut client = gateway.client();
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    let control = events.streams.recv_timeout(PATIENCE).expect("a stream");
    control.give(Some("first"));
    client.0.until("first\r\n");
    drop(client);
    let fact = calls.settled();
    assert_eq!((fact.status, fact.end, &*fact.reason), (200, CompletionStatus::ClientGone, "client_reset"));
    gateway.rests();
    assert!(control.is_dropped.load(Ordering::SeqCst));
}

#[test]
fn a_stream_that_the_end_of_a_drain_cuts_is_not_blamed_on_its_client() {
    let (filter, calls) = recording();
    let (gateway, events) = handled(|action| filter.install(action));
    let mut client = gateway.client();
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    let control = events.streams.recv_timeout(PATIENCE).expect("a stream");
    control.give(Some("first"));
    client.0.until("first\r\n");
    gateway.cut();
    let fact = calls.settled();
    assert_eq!((fact.status, fact.end, &*fact.reason), (200, CompletionStatus::Aborted, "drain_cut"));
    gateway.rests();
    let count = |class| gateway.counter("weir_http_listener_responses_total", &[("class", class)]);
    assert_eq!((count("broken"), count("aborted")), (1, 0));
}

/// Sends a request, and checks the status of the response that the gateway gives.
fn assert_response(gateway: &Gateway, request: &str, status: u16) {
    let mut client = gateway.client();
    client.send(request);
    let response = client.response();
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
}

const NEVER: &str = "GET /never HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_handler_has_the_time_of_its_route() {
    let short = Some(Duration::from_millis(50));
    let (gateway, events) = handled(|action| action.request_timeout = short);
    assert_response(&gateway, NEVER, 504);
    assert_eq!(events.waits.iter().take(2).collect::<Vec<_>>(), [true, false]);
    // A stream has no more.
    let mut client = gateway.client();
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    let control = events.streams.recv_timeout(PATIENCE).expect("a stream");
    assert!(!client.0.rest().ends_with("0\r\n\r\n"));
    gateway.rests();
    assert!(control.is_dropped.load(Ordering::SeqCst));
    // Nor has a body that does not come.
    assert_response(&gateway, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na", 408);

    let (gateway, _heard) = handled(|action| action.response_timeout = short);
    assert_response(&gateway, NEVER, 504);
    let (gateway, _heard) = handled(|action| action.body_idle_timeout = short);
    assert_response(&gateway, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na", 408);
    let (gateway, events) = handled(|action| action.response_idle_timeout = short);
    let mut client = gateway.client();
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    let control = events.streams.recv_timeout(PATIENCE).expect("a stream");
    control.give(Some("first"));
    assert!(client.0.rest().ends_with("5\r\nfirst\r\n"));
}

#[test]
fn a_fault_is_injected_into_requests_of_a_handler() {
    let fault = Fault { delay: None, abort: Some((418, 1.0)), field: None };
    let (gateway, _heard) = handled(|action| action.fault = Some(Box::new(fault)));
    assert_response(&gateway, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 418);
}

#[test]
fn the_body_limit_of_a_route_holds_for_its_handler() {
    let (gateway, _heard) = handled(|action| action.request_body_bytes_max = Some(4));
    let chunked = "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n";
    assert_response(&gateway, &format!("POST / HTTP/1.1\r\nHost: a\r\n{chunked}"), 413);
    let denied = || gateway.counter("weir_http_denied_total", &[("listener", "test"), ("reason", "body_too_long")]);
    let before = denied();
    assert_response(&gateway, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde", 413);
    assert_eq!(denied() - before, 1);
}

#[test]
fn a_body_is_charged_until_its_handler_has_responded() {
    let (gateway, events) = handled(|_| {});
    let mut client = gateway.client();
    client.send("POST /never HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(events.waits.recv_timeout(PATIENCE), Ok(true));
    assert!(gateway.held().1 >= 5, "{:?}", gateway.held());
    // The client does not wait for the response.
    drop(client);
    assert_eq!(events.waits.recv_timeout(PATIENCE), Ok(false));
    gateway.rests();
}

#[test]
fn a_body_without_memory_for_it_is_shed() {
    let (setup, _heard) = setup(|_| {});
    let gateway = Gateway::start(Setup { buffered_bytes: 0, ..setup });
    // Bytes that have arrived stay buffered all the same.
    assert_response(&gateway, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell", 503);
    let shed = gateway.counter("weir_shed_total", &[("listener", "test"), ("reason", "body_no_room")]);
    assert_eq!(shed, 1);
}

#[test]
fn a_handler_responds_on_a_stream_and_makes_no_websocket() {
    let (gateway, events) = handled(|action| action.upgrades = Some(Upgrades { websocket: true }));
    let mut client = Http2Client::new(gateway.client());
    client.post(1, "/", "hello");
    assert_eq!(client.response(1), Http2Response { status: 201, body: b"hello".into(), is_reset: false });
    client.request(3, &[(":method", "CONNECT"), (":protocol", "websocket"), (":path", "/stream")]);
    assert_eq!(client.response(3).status, 501);
    client.request(5, &[(":method", "GET"), (":path", "/stream")]);
    let control = events.streams.recv_timeout(PATIENCE).expect("one stream, and no other before it");
    control.give(Some("first"));
    control.give(Some("last"));
    control.give(None);
    assert_eq!(client.response(5), Http2Response { status: 200, body: b"firstlast".into(), is_reset: false });
    client.request(7, &[(":method", "GET"), (":path", "/stream")]);
    let control = events.streams.recv_timeout(PATIENCE).expect("a stream");
    control.give(Some("break"));
    assert!(client.response(7).is_reset);
    client.request(9, &[(":method", "GET"), (":path", "/never")]);
    assert_eq!(events.waits.recv_timeout(PATIENCE), Ok(true));
    client.reset(9);
    assert_eq!(events.waits.recv_timeout(PATIENCE), Ok(false));
}

#[test]
fn a_handler_knows_its_caller() {
    let (mut setup, events) = setup(|action| action.policies = Some(Box::new(with_a_key())));
    setup.change = Box::new(|settings| settings.request_id = true);
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send("GET /caller HTTP/1.1\r\nHost: a\r\nX-Key: secret\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 204 "));
    let Caller { route, client, identity, request_id } = events.callers.recv_timeout(PATIENCE).expect("a caller");
    assert_eq!((&*route, client), ("of /", IpAddr::from([192, 0, 2, 1])));
    assert_eq!((identity.as_deref(), request_id.map(|id| id.len())), (Some("owner"), Some(36)));
}
