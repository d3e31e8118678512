//! Taps on response bodies, in real exchanges.

use std::sync::Arc;

use weir_http::{
    compression::{Coding, Compression},
    filter::{BodyAborted, Caller, CompletionStatus, FilterFactory, HttpFilter, Tap},
};
use weir_http_codec::{Fields, RequestHead};
use weir_telemetry::catalog;

use crate::{
    filters::{Call, recording},
    http2::{Http2Client, Http2Response},
    support::{Gateway, Setup},
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Makes letters upper case, and keeps what follows the last blank until more comes.
#[derive(Debug)]
struct Upper;

#[derive(Default)]
struct HoldingFilter(Vec<u8>);

impl FilterFactory for Upper {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        Box::<HoldingFilter>::default()
    }
}

impl HttpFilter for HoldingFilter {
    fn tap(&mut self, status: u16, fields: &mut Fields) -> Tap {
        fields.push(b"x-tapped", b"1");
        if status == 200 { Tap::Edit } else { Tap::No }
    }

    fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.0.extend(piece.to_ascii_uppercase());
        let whole = self.0.iter().rposition(|byte| *byte == b' ').map_or(0, |at| at + 1);
        out.extend(self.0.drain(..whole));
        if out.starts_with(b"FAIL") { Err(BodyAborted) } else { Ok(()) }
    }

    fn response_end(&mut self, out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        out.append(&mut self.0);
        out.extend_from_slice(b"!");
        Ok(())
    }
}

fn tapped() -> Setup {
    Setup::plain(|action| action.filter = Some(Arc::new(Upper)))
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
    assert_eq!(client.0.until("0\r\n\r\n"), "a\r\nTWO THREE!\r\n0\r\n\r\n", "what came together");
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
fn a_short_response_is_not_compressed_because_it_is_edited() {
    let mut setup = tapped();
    let compression = Compression { codings: vec![Coding::Gzip], bytes_min: 1000, types: vec!["text/*".into()] };
    setup.change = Box::new(move |settings| settings.compression = Some(Arc::new(compression)));
    let short = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
    let request = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
    let response = Gateway::start(setup).exchange(request, short);
    assert!(response.ends_with("\r\n\r\n3\r\nOK!\r\n0\r\n\r\n"), "{response}");
}

#[test]
fn a_tap_edits_a_response_on_a_stream() {
    let gateway = Gateway::start(tapped());
    let mut client = Http2Client::new(gateway.client());
    client.request(1, &[(":method", "GET"), (":path", "/")]);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\none two\r\n0\r\n\r\n");
    assert_eq!(client.response(1), Http2Response { status: 200, body: b"ONE TWO!".into(), is_reset: false });
}

#[test]
fn an_edit_removes_fields_that_describe_the_original_bytes() {
    let fields =
        "ETag: \"1\"\r\nAccept-Ranges: bytes\r\nContent-MD5: x\r\nDigest: x\r\nRepr-Digest: x\r\nContent-Digest: x";
    let response =
        Gateway::start(tapped()).exchange(GET, &OK.replace("Content-Length", &format!("{fields}\r\nContent-Length")));
    let head = response.to_lowercase();
    assert!(head.contains("etag: w/\"1\"\r\n"), "{head}");
    assert!(["ranges", "md5", "digest", "content-length"].iter().all(|word| !head.contains(word)), "{head}");
}

#[test]
fn the_head_of_a_response_to_head_is_as_it_came() {
    let gateway = Gateway::start(tapped());
    let mut client = gateway.client();
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 2\r\n\r\n");
    let head = client.head();
    assert!(head.contains("ETag: \"1\"\r\nContent-Length: 2\r\n") && !head.contains("x-tapped"), "{head}");
    // Its lane is not used again: the origin may send a body after all.
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(OK);
    assert!(client.response().ends_with("3\r\nOK!\r\n0\r\n\r\n"));
}

#[test]
fn a_response_without_a_length_is_edited_to_its_end() {
    let gateway = Gateway::start(tapped());
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\n\r\none");
    drop(origin);
    assert!(client.response().ends_with("4\r\nONE!\r\n0\r\n\r\n"));
}

#[test]
fn a_response_that_is_only_followed_keeps_its_bytes_and_its_length() {
    let (mut filter, heard) = recording();
    filter.tap = Tap::Follow;
    let gateway = Gateway::start(Setup::plain(|action| filter.install(action)));
    let origins = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 2\r\n\r\nok";
    assert_eq!(gateway.exchange(GET, origins).to_lowercase(), origins.to_lowercase());
    let (tap, data) = (Call::Tap { status: 200 }, Call::Follow(b"ok".to_vec()));
    assert_eq!(heard.before_the_end(), [Call::Enter, Call::Inspect, tap.clone(), data, Call::ResponseEnd]);
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n";
    assert!(gateway.exchange(GET, chunked).contains("\r\n\r\n3\r\nabc\r\n0\r\n"));
    assert_eq!(
        heard.before_the_end(),
        [Call::Enter, Call::Inspect, tap, Call::Follow(b"abc".to_vec()), Call::ResponseEnd]
    );
}

#[test]
fn a_filter_cannot_change_the_framing_of_a_response_that_it_does_not_tap() {
    let (filter, heard) = recording();
    let gateway = Gateway::start(Setup::plain(|action| filter.install(action)));
    assert_eq!(gateway.exchange(GET, OK).to_lowercase(), OK.to_lowercase());
    assert_eq!(heard.before_the_end(), [Call::Enter, Call::Inspect, Call::Tap { status: 200 }]);
}

/// Gives up every response.
#[derive(Debug)]
struct Failing(crate::filters::Recording);

struct Failed(Box<dyn HttpFilter>);

impl FilterFactory for Failing {
    fn create(&self, head: &RequestHead, caller: &Caller) -> Box<dyn HttpFilter> {
        Box::new(Failed(self.0.create(head, caller)))
    }
}

impl HttpFilter for Failed {
    fn tap(&mut self, _: u16, _: &mut Fields) -> Tap {
        Tap::Follow
    }

    fn follow(&mut self, _: &[u8]) -> Result<(), BodyAborted> {
        Err(BodyAborted)
    }

    fn on_complete(&mut self, facts: &weir_http::filter::ExchangeSummary<'_>) {
        self.0.on_complete(facts);
    }
}

#[test]
fn a_tap_that_fails_is_no_fault_of_the_origin() {
    let (filter, heard) = recording();
    let gateway = Gateway::start(Setup::plain(|action| action.filter = Some(Arc::new(Failing(filter)))));
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(OK);
    assert!(client.0.rest().ends_with("\r\n\r\n"), "nothing of the body");
    let fact = heard.settled();
    assert_eq!((fact.status, fact.end, &*fact.reason), (200, CompletionStatus::Aborted, "tap_broke_off"));
    let endpoint = gateway.origin.address.to_string();
    let errors = || {
        let labels = [("upstream", "a"), ("endpoint", &*endpoint), ("reason", "closed")];
        gateway.counter(catalog::UPSTREAM_ERRORS.name, &labels)
    };
    assert_eq!(errors(), 0);
    // That of one that closes is counted.
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    let mut origin = gateway.origin.accept();
    origin.request();
    drop(origin);
    assert!(client.response().starts_with("HTTP/1.1 502 "));
    assert_eq!(errors(), 1);
}
