//! The same over HTTP/2, whose messages an origin gets in HTTP/1.1.

use super::ExpectedRequest;
use crate::http2::{block, flag, frame, kind};

/// A stream of HTTP/2, and what comes of it.
pub struct Stream {
    /// Says what is odd about it.
    pub name: &'static str,
    /// The frames of stream 1.
    pub frames: Vec<u8>,
    /// The forwarded request; `None`: it is refused, by a status, a reset or the end of the connection.
    pub seen: Option<ExpectedRequest>,
    /// A request may begin upstream, and never ends there.
    pub is_cut: bool,
}

/// Name, field lines besides those of a plain request, or in their place, and what goes on.
type Fields = (&'static str, &'static [(&'static str, &'static str)], Option<ExpectedRequest>);

#[rustfmt::skip]
const HEADS: &[Fields] = &[
    ("te-chunked", &[("transfer-encoding", "chunked")], None),
    ("te-identity", &[("transfer-encoding", "identity")], None),
    ("te-in-upper-case", &[("Transfer-Encoding", "chunked")], None),
    ("te-with-a-line-end", &[("x", "y\r\ntransfer-encoding: chunked")], None),
    ("te-in-a-name", &[("x: y\r\ntransfer-encoding", "chunked")], None),
    ("te-blank-before-colon", &[("transfer-encoding ", "chunked")], None),
    ("te-gzip", &[("te", "gzip")], None),
    ("te-trailers", &[("te", "trailers")], Some(("GET", "/x", ""))),
    ("connection", &[("connection", "transfer-encoding")], None),
    ("keep-alive", &[("keep-alive", "timeout=1")], None),
    ("proxy-connection", &[("proxy-connection", "close")], None),
    ("upgrade", &[("upgrade", "h2c")], None),
    ("http2-settings", &[("http2-settings", "AAMAAABk")], Some(("GET", "/x", ""))),
    ("value-cr-lf", &[("x", "y\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a")], None),
    ("value-lf", &[("x", "y\nz: w")], None),
    ("value-cr", &[("x", "y\rz: w")], None),
    ("value-nul", &[("x", "y\0")], None),
    ("name-colon", &[("x:y", "z")], None),
    ("name-cr-lf", &[("x\r\ny", "z")], None),
    ("name-blank", &[("x y", "z")], None),
    ("name-empty", &[("", "z")], None),
    ("name-upper-case", &[("X", "y")], None),
    ("path-blank", &[(":path", "/x HTTP/1.1")], None),
    ("path-a-whole-head", &[(":path", "/x HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled")], None),
    ("path-lf", &[(":path", "/x\ny")], None),
    ("path-nul", &[(":path", "/x\0")], None),
    ("path-tab", &[(":path", "/x\ty")], None),
    ("path-no-slash", &[(":path", "x")], None),
    ("path-empty", &[(":path", "")], None),
    ("path-absolute", &[(":path", "http://b/x")], None),
    ("path-escaped-slash", &[(":path", "/x%2fy")], None),
    ("path-dots", &[(":path", "/a/../x")], Some(("GET", "/x", ""))),
    ("path-above-the-root", &[(":path", "/../x")], None),
    ("path-question-mark", &[(":path", "?x")], None),
    ("path-asterisk", &[(":path", "*")], None),
    ("path-asterisk-of-options", &[(":method", "OPTIONS"), (":path", "*")], Some(("OPTIONS", "*", ""))),
    ("path-fragment", &[(":path", "/x#/smuggled")], None),
    ("path-fragment-in-query", &[(":path", "/x?y#z")], None),
    ("path-twice", &[(":path", "/x"), (":path", "/y")], None),
    ("method-blank", &[(":method", "GET /smuggled HTTP/1.1\r\nX:")], None),
    ("method-empty", &[(":method", "")], None),
    ("method-connect", &[(":method", "CONNECT")], None),
    ("method-trace", &[(":method", "TRACE")], None),
    ("method-twice", &[(":method", "GET"), (":method", "POST")], None),
    ("scheme-odd", &[(":scheme", "http://b/?")], None),
    ("scheme-twice", &[(":scheme", "http"), (":scheme", "https")], None),
    ("protocol", &[(":method", "CONNECT"), (":protocol", "websocket")], None),
    ("status", &[(":status", "200")], None),
    ("authority-and-another-host", &[("host", "b")], None),
    ("authority-and-the-same-host", &[("host", "a")], Some(("GET", "/x", ""))),
    ("authority-and-two-hosts", &[("host", "a"), ("host", "b")], None),
    ("authority-twice", &[(":authority", "a"), (":authority", "b")], None),
    ("authority-empty", &[(":authority", "")], None),
    ("authority-user", &[(":authority", "u@a")], None),
    ("authority-path", &[(":authority", "a/b")], None),
    ("authority-blank", &[(":authority", "a b")], None),
    ("authority-cr-lf", &[(":authority", "a\r\nX: y")], None),
    ("authority-port-0", &[(":authority", "a:0")], None),
    ("authority-port-20-digits", &[(":authority", "a:99999999999999999999")], None),
    ("authority-port", &[(":authority", "a:8080")], Some(("GET", "/x", ""))),
    ("pseudo-field-behind-a-field", &[("x", "y"), (":path", "/y")], None),
    ("cl-without-a-body", &[("content-length", "5")], None),
    ("cl-0", &[("content-length", "0")], Some(("GET", "/x", ""))),
    ("cl-plus", &[("content-length", "+0")], None),
    ("cl-twice", &[("content-length", "0"), ("content-length", "0")], None),
    ("cl-list", &[("content-length", "0, 0")], None),
    ("cookies", &[("cookie", "a=1"), ("cookie", "b=2")], Some(("GET", "/x", ""))),
    ("expect", &[("expect", "100-continue")], Some(("GET", "/x", ""))),
    ("expect-unknown", &[("expect", "x")], None),
];

/// Name, Content-Length, DATA frames, and the body that goes on.
type Body = (&'static str, Option<&'static str>, &'static [&'static str], Option<&'static str>);

#[rustfmt::skip]
const BODIES: &[Body] = &[
    ("body", None, &["hello"], Some("hello")),
    ("body-in-frames", None, &["he", "", "llo"], Some("hello")),
    ("body-with-a-length", Some("5"), &["he", "llo"], Some("hello")),
    ("body-that-looks-like-a-request", None, &["0\r\n\r\n", "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"],
        Some("0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")),
    ("body-empty", None, &[""], Some("")),
    ("body-longer-than-its-length", Some("0"), &["GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"], None),
    ("body-much-longer-than-its-length", Some("3"), &["abc", "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"], None),
    ("body-shorter-than-its-length", Some("50"), &["hello"], None),
    ("body-with-a-length-that-is-none", Some("5x"), &["hello"], None),
];

/// All of them.
pub fn streams() -> Vec<Stream> {
    let head = |of: &[(&'static str, &'static str)], method| {
        let plain = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", "/x")];
        let kept = plain.into_iter().filter(|(name, _)| of.iter().all(|(own, _)| own != name));
        let (pseudo, fields): (Vec<_>, Vec<_>) = of.iter().copied().partition(|(name, _)| {
            // One that comes too late stays where it is.
            name.starts_with(':') && of[0].0.starts_with(':')
        });
        kept.chain(pseudo).chain(fields).collect::<Vec<_>>()
    };
    let heads = HEADS.iter().map(|(name, fields, seen)| Stream {
        name,
        frames: frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block(&head(fields, "GET"))),
        seen: *seen,
        is_cut: false,
    });
    let bodies = BODIES.iter().map(|(name, length, pieces, body)| {
        let fields: Vec<_> = length.iter().map(|length| ("content-length", *length)).collect();
        let mut frames = frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&head(&fields, "POST")));
        for (at, piece) in pieces.iter().enumerate() {
            let flags = if at + 1 == pieces.len() { flag::END_STREAM } else { 0 };
            frames.extend(frame(kind::DATA, flags, 1, piece.as_bytes()));
        }
        Stream { name, frames, seen: body.map(|body| ("POST", "/x", body)), is_cut: body.is_none() }
    });
    let trailers = |name, fields: &[(&str, &str)], is_fine: bool| {
        let mut frames = frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&head(&[], "POST")));
        frames.extend(frame(kind::DATA, 0, 1, b"hello"));
        frames.extend(frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block(fields)));
        Stream { name, frames, seen: is_fine.then_some(("POST", "/x", "hello")), is_cut: !is_fine }
    };
    let trailers = [
        trailers("trailers", &[("x-sum", "1")], true),
        trailers("trailers-content-length", &[("content-length", "50")], true),
        trailers("trailers-host", &[("host", "b"), ("authorization", "x")], true),
        trailers("trailers-transfer-encoding", &[("transfer-encoding", "chunked")], false),
        trailers("trailers-pseudo-field", &[(":path", "/smuggled")], false),
        trailers("trailers-cr-lf", &[("x", "y\r\n\r\nGET /smuggled HTTP/1.1")], false),
    ];
    heads.chain(bodies).chain(trailers).collect()
}
