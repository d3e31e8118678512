//! Clients that leave while their filter wants the rest of the response: it is read within limits, and goes nowhere.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use weir_base::error::Culprit;
use weir_http::filter::{
    BodyAborted, Caller, ExchangeSummary, FilterFactory, HoldLimits, HttpFilter, RemainderLimits, ReplacedResponse, Tap,
};
use weir_http_codec::{Fields, RequestHead};

use crate::{
    http2::Http2Client,
    support::{Gateway, OriginEnd, PATIENCE, Setup},
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";

/// Its filters want the rest within these limits, and note what they get.
#[derive(Clone, Debug)]
struct Reading {
    limits: RemainderLimits,
    tap: Tap,
    notes: Arc<Mutex<Notes>>,
}

#[derive(Debug, Default)]
struct Notes {
    body: Vec<u8>,
    is_whole: bool,
    has_left: bool,
    /// Status, end and side of each exchange.
    ends: Vec<(u16, String, Option<Culprit>)>,
}

impl Reading {
    fn new(tap: Tap) -> Self {
        let limits = RemainderLimits { timeout: PATIENCE, bytes_max: 1_000 };
        Self { limits, tap, notes: Arc::default() }
    }

    fn gateway(&self) -> Gateway {
        let own = self.clone();
        Gateway::start(Setup::plain(|action| action.filter = Some(Arc::new(own))))
    }

    fn note<T>(&self, note: impl FnOnce(&mut Notes) -> T) -> T {
        note(&mut self.notes.lock().expect("no panic"))
    }

    /// Waits until the filter knows that the client has left.
    fn until_left(&self) {
        let begun = Instant::now();
        while !self.note(|notes| notes.has_left) {
            assert!(begun.elapsed() < PATIENCE, "the filter does not learn that its client has left");
            std::thread::yield_now();
        }
    }

    /// The body that was read, and whether its end was.
    fn read(&self) -> (String, bool) {
        self.note(|notes| (String::from_utf8_lossy(&notes.body).into_owned(), notes.is_whole))
    }

    fn ends(&self) -> Vec<(u16, String, Option<Culprit>)> {
        self.note(|notes| std::mem::take(&mut notes.ends))
    }
}

impl FilterFactory for Reading {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        Box::new(ReadingFilter(self.clone()))
    }
}

struct ReadingFilter(Reading);

impl HttpFilter for ReadingFilter {
    fn tap(&mut self, _: u16, _: &mut Fields) -> Tap {
        self.0.tap
    }

    fn follow(&mut self, piece: &[u8]) -> Result<(), BodyAborted> {
        self.0.note(|notes| notes.body.extend_from_slice(piece));
        Ok(())
    }

    fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        out.extend_from_slice(piece);
        self.follow(piece)
    }

    fn replace_response(&mut self, status: u16, _: &mut Fields, body: &[u8]) -> ReplacedResponse {
        self.0.note(|notes| notes.is_whole = body.len() == 10);
        ReplacedResponse { status, body: body.to_vec().into() }
    }

    fn response_end(&mut self, _: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.0.note(|notes| notes.is_whole = true);
        Ok(())
    }

    fn client_left(&mut self) -> Option<RemainderLimits> {
        self.0.note(|notes| notes.has_left = true);
        Some(self.0.limits)
    }

    fn on_complete(&mut self, facts: &ExchangeSummary<'_>) {
        let ExchangeSummary { status, end, culprit, .. } = *facts;
        self.0.note(|notes| notes.ends.push((status, format!("{end:?}"), culprit)));
    }
}

fn gone(status: u16) -> Vec<(u16, String, Option<Culprit>)> {
    vec![(status, "ClientGone".to_owned(), Some(Culprit::Client))]
}

/// A request whose origin has sent `before` when the client leaves.
fn left(filter: &Reading, gateway: &Gateway, before: &str) -> OriginEnd {
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(before);
    if !before.is_empty() && !matches!(filter.tap, Tap::Replace(_)) {
        client.0.until("\r\n\r\n");
    }
    drop(client);
    filter.until_left();
    origin
}

#[test]
fn the_rest_of_a_body_is_read_without_its_client() {
    let held = Tap::Replace(HoldLimits { bytes_max: 100, memory_per_byte: 1, may_be_cut: false });
    for (tap, before, after, status) in [
        (Tap::Follow, format!("{HEAD}abc"), "defghij".to_owned(), 200),
        (Tap::Edit, format!("{HEAD}abc"), "defghij".to_owned(), 200),
        (Tap::Follow, String::new(), format!("{HEAD}abcdefghij"), 0),
        (held, format!("{HEAD}abc"), "defghij".to_owned(), 0),
    ] {
        let filter = Reading::new(tap);
        let gateway = filter.gateway();
        let mut origin = left(&filter, &gateway, &before);
        origin.send(&after);
        assert_eq!(origin.0.rest(), "", "the connection ends behind the response");
        gateway.rests();
        assert_eq!(filter.read(), ("abcdefghij".to_owned(), true), "{tap:?} {before:?}");
        assert_eq!(filter.ends(), gone(status), "{tap:?} {before:?}");
    }
}

#[test]
fn the_rest_of_a_stream_that_is_reset_is_read() {
    let filter = Reading::new(Tap::Follow);
    let gateway = filter.gateway();
    let mut client = Http2Client::new(gateway.client());
    client.request(1, &[(":method", "GET"), (":path", "/")]);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(&format!("{HEAD}abc"));
    client.0.0.until("abc");
    client.reset(1);
    filter.until_left();
    origin.send("defghij");
    assert_eq!(origin.0.rest(), "");
    drop(client);
    gateway.rests();
    assert_eq!((filter.read(), filter.ends()), (("abcdefghij".to_owned(), true), gone(200)));
}

#[test]
fn its_time_and_its_bytes_are_bounded() {
    let mut filter = Reading::new(Tap::Follow);
    filter.limits.timeout = Duration::from_millis(50);
    let gateway = filter.gateway();
    let mut origin = left(&filter, &gateway, &format!("{HEAD}abc"));
    assert_eq!(origin.0.rest(), "", "the time is over");
    gateway.rests();
    assert_eq!((filter.read(), filter.ends()), (("abc".to_owned(), false), gone(200)));
    filter.limits = RemainderLimits { timeout: PATIENCE, bytes_max: 3 };
    filter.notes = Arc::default();
    let gateway = filter.gateway();
    let mut origin = left(&filter, &gateway, &format!("{HEAD}abc"));
    origin.send("def");
    assert_eq!(origin.0.rest(), "", "no more is read");
    gateway.rests();
    assert_eq!((filter.read(), filter.ends()), (("abcdef".to_owned(), false), gone(200)));
}

#[test]
fn an_origin_that_fails_meanwhile_leaves_the_client_the_one_that_left() {
    let filter = Reading::new(Tap::Follow);
    let gateway = filter.gateway();
    drop(left(&filter, &gateway, &format!("{HEAD}abc")));
    gateway.rests();
    assert_eq!((filter.read(), filter.ends()), (("abc".to_owned(), false), gone(200)));
}

#[test]
fn the_end_of_a_drain_ends_the_reading() {
    let filter = Reading::new(Tap::Follow);
    let gateway = filter.gateway();
    let mut origin = left(&filter, &gateway, &format!("{HEAD}abc"));
    gateway.cut();
    assert_eq!(origin.0.rest(), "");
    gateway.rests();
    assert_eq!(filter.ends(), [(200, "Aborted".to_owned(), None)]);
}

#[test]
fn the_side_that_breaks_a_response_off_is_known() {
    let filter = Reading::new(Tap::Follow);
    let gateway = filter.gateway();
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(&format!("{HEAD}abc"));
    drop(origin);
    client.0.rest();
    gateway.rests();
    assert_eq!(filter.ends(), [(200, "Aborted".to_owned(), Some(Culprit::Upstream))]);
}

#[test]
fn a_held_body_that_may_be_cut_is_replaced_by_its_beginning() {
    let (limits, whole) =
        (HoldLimits { bytes_max: 5, memory_per_byte: 1, may_be_cut: true }, format!("{HEAD}abcdefghij"));
    for (sent, wanted) in [(whole.as_str(), "abcde"), (&whole[..whole.len() - 8], "ab")] {
        let filter = Reading::new(Tap::Replace(limits));
        let gateway = filter.gateway();
        let mut client = gateway.client();
        client.send(GET);
        let mut origin = gateway.origin.accept();
        origin.request();
        origin.send(sent);
        if wanted == "ab" {
            drop(origin);
        } else {
            assert_eq!(origin.0.rest(), "", "the connection ends: the rest is on it");
        }
        assert!(client.response().ends_with(&format!("\r\n\r\n{wanted}")));
        drop(client);
        gateway.rests();
        assert_eq!(filter.ends(), [(200, "Completed".to_owned(), None)]);
    }
}
