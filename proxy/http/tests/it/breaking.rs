//! Responses that break off behind a filter that has the last word.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use weir_http::{
    compression::{Coding, Compression},
    filter::{BodyAborted, BrokenEnd, Caller, Deadlines, ExchangeSummary, FilterFactory, HttpFilter, Tap},
};
use weir_http_codec::{Fields, RequestHead};

use crate::{
    http2::Http2Client,
    support::{Gateway, PATIENCE, Setup},
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Its filters pass bodies on, and end those that break off with an event.
#[derive(Clone, Debug)]
struct Ending {
    end: BrokenEnd,
    deadlines: Deadlines,
    ends: Arc<Mutex<Vec<String>>>,
}

impl Ending {
    fn new(end: BrokenEnd) -> Self {
        Self { end, deadlines: Deadlines::default(), ends: Arc::default() }
    }

    fn setup(&self) -> Setup {
        Setup::plain(|action| action.filter = Some(Arc::new(self.clone())))
    }

    fn ended(&self) -> String {
        let begun = Instant::now();
        loop {
            if let Some(end) = self.ends.lock().expect("no panic").pop() {
                return end;
            }
            assert!(begun.elapsed() < PATIENCE, "no end");
            std::thread::yield_now();
        }
    }
}

impl FilterFactory for Ending {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        Box::new(self.clone())
    }
}

impl HttpFilter for Ending {
    fn deadlines(&mut self) -> Deadlines {
        self.deadlines
    }

    fn tap(&mut self, _: u16, _: &mut Fields) -> Tap {
        Tap::Edit
    }

    fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        out.extend_from_slice(piece);
        if piece.starts_with(b"too long") { Err(BodyAborted) } else { Ok(()) }
    }

    fn broken_off(&mut self, reason: &str, out: &mut Vec<u8>) -> BrokenEnd {
        out.extend_from_slice(event(reason).as_bytes());
        self.end
    }

    fn response_end(&mut self, out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        out.extend_from_slice(b"whole");
        Ok(())
    }

    fn on_complete(&mut self, facts: &ExchangeSummary<'_>) {
        let ExchangeSummary { status, end, reason, broken_end, .. } = *facts;
        self.ends.lock().expect("no panic").push(format!("{status} {end:?} {reason} {broken_end:?}"));
    }
}

fn event(reason: &str) -> String {
    format!("data: {reason}\n\n")
}

fn chunk(text: &str) -> String {
    format!("{:X}\r\n{text}\r\n", text.len())
}

/// The response to one request whose origin sends `part` behind the head and closes, up to `end`.
fn broken(setup: Setup, part: &str, end: &str) -> (Gateway, crate::support::Client, String) {
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(HEAD);
    origin.send(part);
    drop(origin);
    let got = client.0.until(end);
    (gateway, client, got)
}

#[test]
fn a_filter_ends_a_response_that_its_origin_breaks_off_and_the_connection_goes_on() {
    let filter = Ending::new(BrokenEnd::Finish);
    let (gateway, mut client, got) = broken(filter.setup(), "2\r\nab\r\n", "0\r\n\r\n");
    assert!(got.ends_with(&format!("\r\n\r\n2\r\nab\r\n{}0\r\n\r\n", chunk(&event("origin_closed")))), "{got}");
    assert_eq!(filter.ended(), "200 Aborted origin_closed Some(Finish)");
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(OK);
    assert!(client.0.until("0\r\n\r\n").ends_with("whole\r\n0\r\n\r\n"));
    assert_eq!(filter.ended(), "200 Completed ok None");
}

#[test]
fn a_filter_cuts_a_response_behind_its_last_piece() {
    let filter = Ending::new(BrokenEnd::Cut);
    let (_gateway, mut client, got) = broken(filter.setup(), "2\r\nab\r\n", "closed\n\n\r\n");
    assert!(got.ends_with(&chunk(&event("origin_closed"))), "{got}");
    assert_eq!(client.0.rest(), "", "no last chunk");
    assert_eq!(filter.ended(), "200 Aborted origin_closed Some(Cut)");
}

#[test]
fn a_malformed_body_and_one_that_the_filter_gives_up_have_a_last_piece() {
    let filter = Ending::new(BrokenEnd::Finish);
    let (_gateway, _client, got) = broken(filter.setup(), "2\r\nab\r\nno chunk\r\n", "0\r\n\r\n");
    assert!(got.contains(&event("origin_malformed")), "{got}");
    let filter = Ending::new(BrokenEnd::Finish);
    let (_gateway, _client, got) = broken(filter.setup(), "2\r\nab\r\n8\r\ntoo long\r\n", "0\r\n\r\n");
    assert!(got.ends_with(&format!("ab\r\n{}0\r\n\r\n", chunk(&event("tap_broke_off")))), "{got}");
    assert_eq!(filter.ended(), "200 Aborted tap_broke_off Some(Finish)");
}

#[test]
fn a_pause_and_the_deadline_of_the_whole_have_a_last_piece() {
    let short = Some(Duration::from_millis(60));
    let idle = Deadlines { idle: short, ..Deadlines::default() };
    let total = Deadlines { total: short, ..Deadlines::default() };
    for (deadlines, reason) in [(idle, "idle_timeout"), (total, "call_expired")] {
        let mut filter = Ending::new(BrokenEnd::Finish);
        filter.deadlines = deadlines;
        let gateway = Gateway::start(filter.setup());
        let mut client = gateway.client();
        client.send(GET);
        let mut origin = gateway.origin.accept();
        origin.request();
        origin.send(HEAD);
        origin.send("2\r\nab\r\n");
        let got = client.0.until("0\r\n\r\n");
        assert!(got.ends_with(&format!("{}0\r\n\r\n", chunk(&event(reason)))), "{got}");
        assert_eq!(filter.ended(), format!("200 Aborted {reason} Some(Finish)"));
        assert_eq!(origin.0.rest(), "", "its connection ends");
    }
}

#[test]
fn the_last_piece_passes_the_compression() {
    let filter = Ending::new(BrokenEnd::Finish);
    let mut setup = filter.setup();
    let compression = Compression { codings: vec![Coding::Gzip], bytes_min: 1, types: vec!["text/*".into()] };
    setup.change = Box::new(move |settings| settings.compression = Some(Arc::new(compression)));
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send(&GET.replace("\r\n\r\n", "\r\nAccept-Encoding: gzip\r\n\r\n"));
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(&HEAD.replace("event-stream", "plain"));
    origin.send("2\r\nab\r\n");
    drop(origin);
    assert!(client.head().contains("content-encoding: gzip\r\n"));
    let mut coded = Vec::new();
    while let Some(chunk) = client.0.chunk() {
        coded.extend(chunk);
    }
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&*coded), &mut text).expect("whole gzip");
    assert_eq!(text, format!("ab{}", event("origin_closed")));
}

#[test]
fn a_stream_ends_as_the_filter_says() {
    for (end, is_reset) in [(BrokenEnd::Finish, false), (BrokenEnd::Cut, true)] {
        let filter = Ending::new(end);
        let gateway = Gateway::start(filter.setup());
        let mut client = Http2Client::new(gateway.client());
        client.request(1, &[(":method", "GET"), (":path", "/")]);
        let mut origin = gateway.origin.accept();
        origin.request();
        origin.send(HEAD);
        origin.send("2\r\nab\r\n");
        drop(origin);
        let response = client.response(1);
        let (body, whole) = (String::from_utf8_lossy(&response.body), format!("ab{}", event("origin_closed")));
        // A reset overtakes bytes that were not sent yet.
        assert!(body == whole || (is_reset && whole.starts_with(&*body)), "{body}");
        assert_eq!((response.status, response.is_reset), (200, is_reset));
    }
}

#[test]
fn a_client_that_has_left_has_no_last_piece() {
    let filter = Ending::new(BrokenEnd::Finish);
    let gateway = Gateway::start(filter.setup());
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(HEAD);
    origin.send("2\r\nab\r\n");
    client.0.until("ab\r\n");
    drop(client);
    assert_eq!(filter.ended(), "200 ClientGone client_reset None");
}

#[test]
fn a_client_of_http_1_0_sees_the_end_of_its_connection() {
    let filter = Ending::new(BrokenEnd::Finish);
    let gateway = Gateway::start(filter.setup());
    let mut client = gateway.client();
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(HEAD);
    origin.send("2\r\nab\r\n");
    drop(origin);
    assert!(client.0.rest().ends_with(&format!("\r\n\r\nab{}", event("origin_closed"))));
}
