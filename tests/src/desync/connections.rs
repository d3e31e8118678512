//! Cases about the connection: its lifetime, its upgrades, and the fields of a message that belong to it.

use super::{Case, ExpectedRequest, SMUGGLED};

/// Name, all that is sent, and what an origin sees of it.
#[rustfmt::skip]
const SERVED: &[(&str, &[u8], &[ExpectedRequest])] = &[
    ("pipelined", b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nPOST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET /c HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("GET", "/a", ""), ("POST", "/b", "hi"), ("GET", "/c", "")]),
    ("pipelined-behind-a-head-request", b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("HEAD", "/a", ""), ("GET", "/b", "")]),
    ("pipelined-with-empty-lines", b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("GET", "/a", ""), ("GET", "/b", "")]),
    ("pipelined-for-other-hosts", b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: b\r\n\r\n",
        &[("GET", "/a", ""), ("GET", "/b", "")]),
    ("close-then-more", b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("GET", "/a", "")]),
    ("close-and-keep-alive-then-more",
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", &[("GET", "/a", "")]),
    ("close-in-a-second-field",
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: CLOSE\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("GET", "/a", "")]),
    ("http-10-then-more", b"GET /a HTTP/1.0\r\nHost: a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", &[("GET", "/a", "")]),
    ("http-10-keep-alive",
        b"GET /a HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("GET", "/a", ""), ("GET", "/b", "")]),
    ("http-10-body", b"POST /a HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.0\r\nHost: a\r\n\r\n",
        &[("POST", "/a", "hi"), ("GET", "/b", "")]),
    ("http-10-body-without-a-length", b"POST /a HTTP/1.0\r\nHost: a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", &[("POST", "/a", "")]),
    ("http-10-expect", b"POST /a HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", &[("POST", "/a", "hi")]),
    ("http-10-upgrade", b"GET /a HTTP/1.0\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", &[("GET", "/a", "")]),
    ("proxy-connection", b"GET /a HTTP/1.1\r\nHost: a\r\nProxy-Connection: close\r\nKeep-Alive: timeout=0\r\n\r\n", &[("GET", "/a", "")]),
    ("named-content-length", b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: Content-Length\r\nContent-Length: 37\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\r\n",
        &[("POST", "/a", "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\r\n")]),
    ("named-transfer-encoding", b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        &[("POST", "/a", "hi")]),
    ("named-host", b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Host, close\r\n\r\n", &[("GET", "/a", "")]),
    ("named-connection", b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: connection, keep-alive\r\n\r\n", &[("GET", "/a", "")]),
    ("named-expect", b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: Expect\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
        &[("POST", "/a", "hi")]),
    ("named-trailer", b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n\r\n",
        &[("POST", "/a", "")]),
    ("named-identity", b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: X-Forwarded-For, Authorization, Cookie\r\nCookie: a=b\r\n\r\n", &[("GET", "/a", "")]),
    ("named-nothing", b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: ,, ,\r\n\r\n", &[("GET", "/a", "")]),
    ("named-odd", b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: x y, \"close\", close;q=1\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("GET", "/a", ""), ("GET", "/b", "")]),
    ("upgrade-h2c", b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
        &[("GET", "/a", "")]),
    ("upgrade-h2c-not-named", b"GET /a HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
        &[("GET", "/a", "")]),
    ("upgrade-h2c-in-a-list", b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("GET", "/a", ""), ("GET", "/b", "")]),
    ("upgrade-h2c-with-a-body", b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("POST", "/a", "hi"), ("GET", "/b", "")]),
    ("upgrade-websocket-not-enabled",
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("GET", "/a", ""), ("GET", "/b", "")]),
    ("upgrade-unknown", b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("GET", "/a", ""), ("GET", "/b", "")]),
    ("upgrade-tls", b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2\r\n\r\n", &[("OPTIONS", "*", "")]),
    ("te-trailers-kept", b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: TE\r\nTE: trailers, deflate;q=0.5\r\n\r\n", &[("GET", "/a", "")]),
    ("expect-with-a-body", b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", &[("POST", "/a", "hi")]),
    ("expect-upper-case", b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-CONTINUE\r\nContent-Length: 2\r\n\r\nhi", &[("POST", "/a", "hi")]),
    ("expect-chunked", b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        &[("POST", "/a", "hi")]),
    ("expect-without-a-body", b"GET /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("GET", "/a", ""), ("GET", "/b", "")]),
    ("expect-an-empty-body", b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("POST", "/a", ""), ("GET", "/b", "")]),
    ("expect-then-more", b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &[("POST", "/a", "hi"), ("GET", "/b", "")]),
];

/// Name, status, and all that is sent.
#[rustfmt::skip]
const REFUSED: &[(&str, u16, &[u8])] = &[
    ("expect-unknown", 417, b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 2\r\n\r\nhi"),
    ("expect-list", 417, b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue, x\r\nContent-Length: 2\r\n\r\nhi"),
    ("expect-digits", 417, b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100\r\nContent-Length: 2\r\n\r\nhi"),
    ("expect-y", 417, b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: y 100-continue\r\nContent-Length: 2\r\n\r\nhi"),
    ("connection-control-byte", 400, b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: \x01close\r\n\r\n"),
    ("connection-folded", 400, b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: keep-alive,\r\n close\r\n\r\n"),
];

pub(super) fn cases() -> Vec<Case> {
    let served = SERVED.iter().map(|(name, input, seen)| Case::served(name, input.to_vec(), seen));
    let refused = REFUSED.iter().map(|(name, status, input)| Case::refused(name, *status, input.to_vec()));
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let behind = |name, rest: &[u8]| Case {
        responses: vec![200, 400],
        closes: true,
        ..Case::served(name, [&get("/a"), rest, SMUGGLED].concat(), &[("GET", "/a", "")])
    };
    let odd = [
        Case::served("pipelined-50", get("/a").repeat(50), &[("GET", "/a", ""); 50]),
        behind("pipelined-then-the-preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        behind("pipelined-then-a-chunk", b"5\r\nhello\r\n0\r\n\r\n"),
        behind("pipelined-then-tls", b"\x16\x03\x01\x02\x00"),
        behind("pipelined-then-nul", b"\0"),
        behind(
            "pipelined-then-cl-te",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        Case::served(
            "pipelined-then-half-a-head",
            [get("/a"), b"GET /smuggled HTTP/1.1\r\nHo".to_vec()].concat(),
            &[("GET", "/a", "")],
        ),
    ];
    served.chain(refused).chain(odd).collect()
}
