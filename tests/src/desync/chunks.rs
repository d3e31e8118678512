//! Chunked bodies that are not quite, and trailers that would be fields of a head.

use super::{Case, SMUGGLED, post};

/// Name and body.
#[rustfmt::skip]
const CUT: &[(&str, &[u8])] = &[
    ("chunk-size-17-digits", b"00000000000000005\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-2-to-64-and-5", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-of-all-bits", b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-2-to-63", b"8000000000000000\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-2-to-32-and-5", b"100000005\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-plus", b"+5\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-minus", b"-5\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-prefix", b"0x5\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-underscore", b"0_5\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-no-digit", b"g\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-empty", b"\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-only-extension", b";x\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-blank-before", b" 5\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-blank-behind", b"5 \r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-tab-behind", b"5\t\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-nul", b"5\0\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-comma", b"5,\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-blank-extension", b"5 ;x\r\nhello\r\n0\r\n\r\n"),
    ("chunk-size-lf", b"5\nhello\r\n0\r\n\r\n"),
    ("chunk-size-cr", b"5\rhello\r\n0\r\n\r\n"),
    ("chunk-size-cr-cr-lf", b"5\r\r\nhello\r\n0\r\n\r\n"),
    ("chunk-extension-lf", b"5;x\nhello\r\n0\r\n\r\n"),
    ("chunk-extension-lf-and-a-chunk", b"2;\nxx\r\n4c\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("chunk-extension-cr", b"5;x\ry\r\nhello\r\n0\r\n\r\n"),
    ("chunk-extension-nul", b"5;\0\r\nhello\r\n0\r\n\r\n"),
    ("chunk-extension-quoted-line-end", b"5;x=\"\r\n\"\r\nhello\r\n0\r\n\r\n"),
    ("chunk-data-too-long", b"5\r\nhelloX\r\n0\r\n\r\n"),
    ("chunk-data-too-short", b"5\r\nhell\r\n0\r\n\r\n"),
    ("chunk-data-ends-in-lf", b"5\r\nhello\n0\r\n\r\n"),
    ("chunk-data-ends-in-cr", b"5\r\nhello\r0\r\n\r\n"),
    ("chunk-data-without-an-end", b"5\r\nhello0\r\n\r\n"),
    ("chunk-data-any-two-bytes-behind", b"5\r\nhelloXX0\r\n\r\n"),
    ("chunk-last-lf", b"0\n\n"),
    ("chunk-last-mixed-lf", b"0\r\n\n"),
    ("chunk-last-cr", b"0\r\n\rGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("chunk-last-one-line-end", b"0\r\n"),
    ("chunk-last-missing", b"5\r\nhello\r\n"),
    ("chunk-last-then-a-request-line", b"0\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("chunk-last-then-an-x", b"0\r\nX\r\n\r\n"),
    ("chunk-last-minus-0", b"-0\r\n\r\n"),
    ("trailer-folded", b"0\r\nX: a\r\n b\r\n\r\n"),
    ("trailer-blank-before-colon", b"0\r\nX : a\r\n\r\n"),
    ("trailer-nul", b"0\r\nX: a\0\r\n\r\n"),
    ("trailer-cr", b"0\r\nX: a\rb\r\n\r\n"),
    ("trailer-lf", b"0\r\nX: a\nY: b\r\n\r\n"),
    ("trailer-no-name", b"0\r\n: a\r\n\r\n"),
];

/// Name, body, and what an origin sees of it.
#[rustfmt::skip]
const SERVED: &[(&str, &[u8], &str)] = &[
    ("chunk-size-16-digits", b"0000000000000005\r\nhello\r\n0\r\n\r\n", "hello"),
    ("chunk-size-upper-case", b"A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
    ("chunk-size-lower-case", b"a\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
    ("chunk-last-many-zeros", b"5\r\nhello\r\n0000000000000000\r\n\r\n", "hello"),
    ("chunk-extension", b"5;x=y\r\nhello\r\n0;z\r\n\r\n", "hello"),
    ("chunk-extension-quoted", b"5;x=\"0;\\\"\"\r\nhello\r\n0\r\n\r\n", "hello"),
    ("chunk-extension-of-blanks", b"5; \t \r\nhello\r\n0\r\n\r\n", "hello"),
    ("chunk-extension-latin-1", b"5;\xe9\r\nhello\r\n0\r\n\r\n", "hello"),
    ("chunk-extension-that-looks-like-a-chunk", b"5;0\r\nhello\r\n0\r\n\r\n", "hello"),
    ("chunks-of-one-byte", b"1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", "hi"),
    ("chunk-that-looks-like-the-last", b"5\r\n0\r\n\r\n\r\n0\r\n\r\n", "0\r\n\r\n"),
    ("trailer", b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", "hello"),
    ("trailer-empty-value", b"5\r\nhello\r\n0\r\nX-Sum:\r\n\r\n", "hello"),
    ("trailer-content-length", b"5\r\nhello\r\n0\r\nContent-Length: 50\r\n\r\n", "hello"),
    ("trailer-transfer-encoding", b"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", "hello"),
    ("trailer-host", b"5\r\nhello\r\n0\r\nHost: b\r\n\r\n", "hello"),
    ("trailer-connection", b"5\r\nhello\r\n0\r\nConnection: close\r\nUpgrade: h2c\r\n\r\n", "hello"),
    ("trailer-authorization", b"5\r\nhello\r\n0\r\nAuthorization: Basic eDp5\r\nCookie: a=b\r\n\r\n", "hello"),
    ("trailer-forwarded", b"5\r\nhello\r\n0\r\nX-Forwarded-For: 10.0.0.1\r\nForwarded: for=b\r\n\r\n", "hello"),
    ("trailer-content-encoding", b"5\r\nhello\r\n0\r\nContent-Encoding: gzip\r\nContent-Type: x/y\r\n\r\n", "hello"),
];

pub(super) fn cases() -> Vec<Case> {
    const LINES: &[u8] = b"Transfer-Encoding: chunked\r\n";
    // No request follows a body that is cut short: it would be read as the rest of the body.
    let cut = CUT.iter().map(|(name, body)| Case::cut(name, 400, post(LINES, body)));
    let served = SERVED.iter().map(|(name, body, seen)| Case::served(name, post(LINES, body), &[("POST", "/x", seen)]));
    let bomb = [b"1;", &[b'x'; 9_000][..], b"\r\na\r\n0\r\n\r\n"].concat();
    let many = [&b"1;xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\na\r\n".repeat(300)[..], b"0\r\n\r\n"].concat();
    let trailers = [&b"0\r\n"[..], &b"X: y\r\n".repeat(101), b"\r\n"].concat();
    let odd = [
        Case::cut("chunk-extension-bomb", 400, post(LINES, &bomb)),
        Case::cut("chunk-extensions-of-many-chunks", 400, post(LINES, &many)),
        Case::cut("trailers-too-many", 431, post(LINES, &trailers)),
        Case::served(
            "chunks-then-a-request",
            post(LINES, b"5\r\nhello\r\n0\r\n\r\nGET /y HTTP/1.1\r\nHost: a\r\n\r\n"),
            &[("POST", "/x", "hello"), ("GET", "/y", "")],
        ),
        Case::served(
            "trailers-then-a-request",
            post(LINES, b"0\r\nX-Sum: GET\r\n\r\nGET /y HTTP/1.1\r\nHost: a\r\n\r\n"),
            &[("POST", "/x", ""), ("GET", "/y", "")],
        ),
        Case {
            responses: vec![200, 400],
            closes: true,
            ..Case::served(
                "chunks-then-more-bytes",
                post(LINES, &[b"5\r\nhello\r\n0\r\n\r\n0\r\n\r\n", SMUGGLED].concat()),
                &[("POST", "/x", "hello")],
            )
        },
    ];
    cut.chain(served).chain(odd).collect()
}
