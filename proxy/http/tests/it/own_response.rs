//! Responses that filters give themselves, and their waits, in real exchanges.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use weir_http::filter::{
    BodyAborted, BodyStream, Caller, ExchangeSummary, FilterFactory, HandlerResponse, HttpFilter, Inspect, OwnResponse,
    SeenBody, WholeResponse,
};
use weir_http_codec::{Fields, RequestHead};

use crate::{
    http2::Http2Client,
    support::{Gateway, PATIENCE, Setup},
};

const POST: &str = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\norigin";

/// A step of a filter, at a call for its own response.
#[derive(Clone, Debug)]
enum Step {
    None,
    /// Until the gate opens.
    Wait(Arc<Gate>),
    Whole(&'static str),
    Stream(&'static [&'static str]),
    Refuse(u16),
}

#[derive(Debug, Default)]
struct Gate {
    is_open: AtomicBool,
    is_left: AtomicBool,
}

/// Filters that take these steps, one after the other over all requests.
#[derive(Debug)]
struct Steps {
    steps: Arc<Mutex<VecDeque<Step>>>,
    ends: Mutex<mpsc::Sender<String>>,
}

struct StepFilter {
    steps: Arc<Mutex<VecDeque<Step>>>,
    ends: mpsc::Sender<String>,
}

impl FilterFactory for Steps {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        let ends = self.ends.lock().expect("no panic").clone();
        Box::new(StepFilter { steps: self.steps.clone(), ends })
    }
}

impl HttpFilter for StepFilter {
    fn inspect(&mut self, _: &RequestHead, _: &Caller) -> Inspect {
        Inspect::Buffered(1_000)
    }

    fn own_response(&mut self, head: &RequestHead, seen: SeenBody<'_>) -> Result<OwnResponse, WholeResponse> {
        assert!(seen.is_whole && head.target() == b"/a");
        let step = self.steps.lock().expect("no panic").pop_front().unwrap_or(Step::None);
        let whole = |status, body: &'static [u8]| {
            let mut fields = Fields::new();
            fields.push(b"x-own", seen.bytes);
            WholeResponse { status, fields, body: Bytes::from_static(body) }
        };
        Ok(match step {
            Step::None => OwnResponse::None,
            Step::Wait(gate) => OwnResponse::Wait(Box::pin(async move {
                let _left = Left(gate.clone());
                while !gate.is_open.load(Ordering::SeqCst) {
                    weir_engine::sleep(Duration::from_millis(1)).await;
                }
            })),
            Step::Whole(text) => OwnResponse::Respond(HandlerResponse::Whole(whole(200, text.as_bytes()))),
            Step::Stream(pieces) => OwnResponse::Respond(HandlerResponse::Stream {
                status: 200,
                fields: Fields::new(),
                body_stream: Box::new(Pieces(pieces.iter().copied().collect())),
            }),
            Step::Refuse(status) => return Err(whole(status, b"no")),
        })
    }

    fn response_head(&mut self, _: u16, fields: &mut Fields, _: &weir_http::filter::ExchangeTiming) {
        fields.push(b"x-filter", b"1");
    }

    fn on_complete(&mut self, facts: &ExchangeSummary<'_>) {
        let _ = self.ends.send(format!("{} {:?} {} {}", facts.status, facts.end, facts.reason, facts.upstream));
    }
}

struct Pieces(VecDeque<&'static str>);

impl BodyStream for Pieces {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyAborted>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))))
    }
}

/// Notes that a wait is over.
struct Left(Arc<Gate>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.is_left.store(true, Ordering::SeqCst);
    }
}

fn gateway(steps: &[Step], timeout: Option<Duration>) -> (Gateway, mpsc::Receiver<String>) {
    let (ends, ended) = mpsc::channel();
    let steps = Steps { steps: Arc::new(Mutex::new(steps.iter().cloned().collect())), ends: Mutex::new(ends) };
    let setup = Setup::plain(|action| {
        action.filter = Some(Arc::new(steps));
        action.request_timeout = timeout;
    });
    (Gateway::start(setup), ended)
}

fn end(ended: &mpsc::Receiver<String>) -> String {
    ended.recv_timeout(PATIENCE).expect("the exchange ends")
}

#[test]
fn a_filter_responds_itself_and_the_connection_goes_on() {
    let (gateway, ended) = gateway(&[Step::Whole("own"), Step::Stream(&["one", "two"]), Step::None], None);
    let mut client = gateway.client();
    client.send(POST);
    let response = client.response();
    assert!(response.ends_with("\r\n\r\nown") && response.contains("x-own: body\r\n"), "{response}");
    assert!(response.contains("x-filter: 1\r\n"), "{response}");
    assert_eq!(end(&ended), "200 Completed ok ");
    client.send(POST);
    let response = client.response();
    assert!(response.ends_with("3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"), "{response}");
    assert!(response.contains("x-filter: 1\r\n"), "{response}");
    assert_eq!(end(&ended), "200 Completed ok ");
    assert!(gateway.origin.is_untouched());
    client.send(POST);
    let mut origin = gateway.origin.accept();
    assert!(origin.request().ends_with("\r\n\r\nbody"));
    origin.send(OK);
    assert!(client.response().ends_with("origin"));
    assert_eq!(end(&ended), "200 Completed ok a");
}

#[test]
fn behind_a_wait_the_filter_is_called_again() {
    let gate = Arc::<Gate>::default();
    let steps = [Step::Wait(gate.clone()), Step::Wait(gate.clone()), Step::None];
    let (gateway, ended) = gateway(&steps, None);
    let mut client = gateway.client();
    client.send(POST);
    assert!(gateway.origin.is_untouched());
    gate.is_open.store(true, Ordering::SeqCst);
    let mut origin = gateway.origin.accept();
    assert!(origin.request().ends_with("\r\n\r\nbody"), "it was kept");
    origin.send(OK);
    assert!(client.response().ends_with("origin"));
    assert_eq!(end(&ended), "200 Completed ok a");
}

#[test]
fn a_client_that_leaves_ends_the_wait() {
    let gate = Arc::<Gate>::default();
    let (gateway, ended) = gateway(&[Step::Wait(gate.clone())], None);
    let mut client = gateway.client();
    client.send(POST);
    while gateway.held().0 == 0 {
        std::thread::yield_now();
    }
    drop(client);
    assert!(end(&ended).starts_with("0 ClientGone "));
    assert!(gate.is_left.load(Ordering::SeqCst));
    gateway.rests();
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_wait_ends_with_the_time_of_the_request() {
    let gate = Arc::<Gate>::default();
    let (gateway, ended) = gateway(&[Step::Wait(gate.clone())], Some(Duration::from_millis(50)));
    let mut client = gateway.client();
    client.send(POST);
    assert!(client.response().starts_with("HTTP/1.1 504 "));
    assert_eq!(end(&ended), "504 Refused request_timeout ");
    assert!(gate.is_left.load(Ordering::SeqCst) && gateway.origin.is_untouched());
}

#[test]
fn a_filter_refuses_behind_the_whole_body() {
    let (gateway, ended) = gateway(&[Step::Refuse(429)], None);
    let mut client = gateway.client();
    client.send(POST);
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 429 ") && response.ends_with("no"), "{response}");
    assert!(end(&ended).starts_with("429 Refused "));
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_stream_of_http2_gets_the_response_of_a_filter() {
    let (gateway, ended) = gateway(&[Step::Stream(&["one", "two"]), Step::Whole("own")], None);
    let mut client = Http2Client::new(gateway.client());
    for (stream, body) in [(1, "onetwo"), (3, "own")] {
        client.post(stream, "/a", "body");
        let response = client.response(stream);
        assert_eq!((response.status, response.body), (200, body.as_bytes().to_vec()));
        assert_eq!(end(&ended), "200 Completed ok ");
    }
    assert!(gateway.origin.is_untouched());
}
