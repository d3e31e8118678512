//! Responses of an origin that two parsers could read in two ways. The same bytes are seeds of the fuzz target `http_response`.

/// Response that the client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedResponse {
    /// This status with this body.
    Relayed(u16, &'static str),
    /// 502 from the gateway, and nothing of the response.
    Refused,
    /// The start of a response, which no client can take for the whole.
    BrokenOff,
}

/// An origin's response to one request.
#[derive(Clone, Debug)]
pub struct OriginResponse {
    /// Says what is odd about it.
    pub name: &'static str,
    /// The method of the request.
    pub method: &'static str,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The origin closes behind it.
    pub closes: bool,
    /// Comes later, when the client has its response.
    pub late: &'static [u8],
    /// Expected response at the client.
    pub expected: ExpectedResponse,
}

use ExpectedResponse::{BrokenOff, Refused, Relayed};

/// Bytes that must not be taken for the next response.
const POISON: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";

/// Name, the whole response to a GET, and what is made of it. The origin does not close.
#[rustfmt::skip]
const RESPONSES: &[(&str, &[u8], ExpectedResponse)] = &[
    ("plain", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("chunked", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\n\r\n", Relayed(200, "hi")),
    ("chunked-trailers", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\nContent-Length: 9\r\n\r\n", Relayed(200, "hi")),
    ("cl-leading-zeros", b"HTTP/1.1 200 OK\r\nContent-Length: 0002\r\n\r\nhi", Relayed(200, "hi")),
    ("no-reason", b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("status-299", b"HTTP/1.1 299 Odd\r\nContent-Length: 2\r\n\r\nhi", Relayed(299, "hi")),
    ("status-599", b"HTTP/1.1 599 Odd\r\nContent-Length: 2\r\n\r\nhi", Relayed(599, "hi")),
    ("http-10-with-a-length", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("http-10-keep-alive", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("close", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("named-content-length", b"HTTP/1.1 200 OK\r\nConnection: Content-Length\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("upgrade-not-switched", b"HTTP/1.1 200 OK\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("interim-100", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("interim-with-a-length", b"HTTP/1.1 103 Early Hints\r\nContent-Length: 45\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("interim-chunked", b"HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("interim-199", b"HTTP/1.1 199 Odd\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("204", b"HTTP/1.1 204 No Content\r\n\r\n", Relayed(204, "")),
    ("204-with-a-length", b"HTTP/1.1 204 No Content\r\nContent-Length: 45\r\n\r\n", Relayed(204, "")),
    ("204-chunked", b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", Relayed(204, "")),
    ("204-with-a-body", b"HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\npoison", Relayed(204, "")),
    ("304-with-a-length", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 45\r\n\r\n", Relayed(304, "")),
    ("304-with-a-body", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\npoison", Relayed(304, "")),
    ("more-bytes", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhipoison", Relayed(200, "hi")),
    ("two-responses", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", Relayed(200, "hi")),
    ("chunked-two-responses", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", Relayed(200, "")),
    ("line-end-behind", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi\r\n", Relayed(200, "hi")),
    ("cl-te", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Refused),
    ("te-cl", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", Refused),
    ("cl-te-identity", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: identity\r\n\r\nhi", Refused),
    ("cl-twice-equal", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("cl-twice-different", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("cl-list", b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi", Refused),
    ("cl-plus", b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi", Refused),
    ("cl-minus", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhi", Refused),
    ("cl-hexadecimal", b"HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nhi", Refused),
    ("cl-empty", b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhi", Refused),
    ("cl-2-to-64-and-2", b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551618\r\n\r\nhi", Refused),
    ("cl-blank-before-colon", b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nhi", Refused),
    ("cl-on-204-twice", b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n", Refused),
    ("te-twice", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Refused),
    ("te-unknown", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", Refused),
    ("te-gzip-chunked", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Refused),
    ("te-identity", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhi", Refused),
    ("te-empty", b"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\r\nhi", Refused),
    ("te-on-http-10", b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Refused),
    ("te-vertical-tab", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", Refused),
    ("interim-flood", b"HTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\nHTTP/1.1 103 A\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        Refused),
    ("interim-cl-te", b"HTTP/1.1 103 A\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("101-unasked", b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", Refused),
    ("lf", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", Refused),
    ("lf-in-the-fields", b"HTTP/1.1 200 OK\r\nX: y\nContent-Length: 2\r\n\r\nhi", Refused),
    ("cr-in-a-value", b"HTTP/1.1 200 OK\r\nX: y\rContent-Length: 2\r\n\r\nhi", Refused),
    ("nul-in-a-value", b"HTTP/1.1 200 OK\r\nX: y\0\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("folded", b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("no-colon", b"HTTP/1.1 200 OK\r\nX\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("line-end-before", b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("status-two-digits", b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("status-four-digits", b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("status-plus", b"HTTP/1.1 +20 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("status-000", b"HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("status-099", b"HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("status-600", b"HTTP/1.1 600 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("status-a-word", b"HTTP/1.1 two OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("two-blanks", b"HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("version-20", b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("version-12", b"HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("version-lower-case", b"http/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("http-09", b"<html>hi</html>\r\n", Refused),
    ("nul-first", b"\0HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Refused),
    ("chunk-size-lf", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n", BrokenOff),
    ("chunk-size-blank", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 \r\nhi\r\n0\r\n\r\n", BrokenOff),
    ("chunk-size-minus", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nhi\r\n0\r\n\r\n", BrokenOff),
    ("chunk-size-prefix", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n", BrokenOff),
    ("chunk-size-17-digits", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000002\r\nhi\r\n0\r\n\r\n", BrokenOff),
    ("chunk-data-too-long", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhiX\r\n0\r\n\r\n", BrokenOff),
    ("chunk-last-x", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX\r\n\r\n", BrokenOff),
    ("trailer-folded", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n z\r\n\r\n", BrokenOff),
];

/// Name, a response behind which the origin closes, and what is made of it.
#[rustfmt::skip]
const ENDING: &[(&str, &[u8], ExpectedResponse)] = &[
    ("until-close", b"HTTP/1.1 200 OK\r\n\r\nhi", Relayed(200, "hi")),
    ("until-close-http-10", b"HTTP/1.0 200 OK\r\n\r\nhi", Relayed(200, "hi")),
    ("until-close-looks-like-more", b"HTTP/1.1 200 OK\r\n\r\nhi\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        Relayed(200, "hi\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")),
    ("ends-behind-its-length", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Relayed(200, "hi")),
    ("ends-before-its-length", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhi", BrokenOff),
    ("ends-before-a-huge-length", b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nhi", BrokenOff),
    ("ends-before-the-last-chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", BrokenOff),
    ("ends-within-a-chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhi", BrokenOff),
    ("ends-within-the-trailers", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n", BrokenOff),
    ("ends-within-its-head", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", Refused),
    ("ends-within-its-first-line", b"HTTP/1.1 20", Refused),
    ("ends-behind-an-interim-response", b"HTTP/1.1 100 Continue\r\n\r\n", Refused),
    ("ends-without-a-word", b"", Refused),
];

/// All of them.
pub fn responses() -> Vec<OriginResponse> {
    let response = |(name, bytes, expected): &(&'static str, &'static [u8], ExpectedResponse), closes| OriginResponse {
        name,
        method: "GET",
        bytes: bytes.to_vec(),
        closes,
        late: b"",
        expected: *expected,
    };
    let head_too_long = [b"HTTP/1.1 200 OK\r\nX: ", &[b'y'; 70_000][..], b"\r\n\r\n"].concat();
    let too_many = [b"HTTP/1.1 200 OK\r\n", &b"X: y\r\n".repeat(101)[..], b"\r\n"].concat();
    let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    let get = |name, bytes: &[u8], expected| response(&(name, b"", expected), false).with(bytes);
    let to_head = |name, bytes: &[u8]| OriginResponse { method: "HEAD", ..get(name, bytes, Relayed(200, "")) };
    let late = |one: OriginResponse, late| OriginResponse { late, ..one };
    let odd = [
        get("head-too-long", &head_too_long, Refused),
        get("fields-too-many", &too_many, Refused),
        to_head("to-head", plain),
        to_head("to-head-chunked", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        to_head("to-head-with-a-body", &[&plain[..], b"hi"].concat()),
        to_head("to-head-with-a-response-as-its-body", &[&plain[..], POISON].concat()),
        late(get("late-response", &[&plain[..], b"hi"].concat(), Relayed(200, "hi")), POISON),
        late(get("late-bytes", &[&plain[..], b"hi"].concat(), Relayed(200, "hi")), b"x"),
        late(get("late-body-of-204", b"HTTP/1.1 204 No Content\r\n\r\n", Relayed(204, "")), POISON),
        late(to_head("late-body-to-head", plain), POISON),
    ];
    let responses = RESPONSES.iter().map(|one| response(one, false));
    responses.chain(ENDING.iter().map(|one| response(one, true))).chain(odd).collect()
}

impl OriginResponse {
    fn with(self, bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..self }
    }
}
