//! Content-Length and Transfer-Encoding: both, none, several, and such that are nearly one.

use super::{Case, post};

/// Name, status, field lines of a POST, and what follows its head.
type Refused = (&'static str, u16, &'static [u8], &'static [u8]);

#[rustfmt::skip]
const REFUSED: &[Refused] = &[
    ("cl-te", 400, b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\nG"),
    ("te-cl", 400, b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", b"25\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n"),
    ("cl-0-te", 400, b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    ("cl-te-that-agree", 400, b"Content-Length: 15\r\nTransfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n"),
    ("cl-te-identity", 400, b"Content-Length: 5\r\nTransfer-Encoding: identity\r\n", b"hello"),
    ("cl-te-unknown", 400, b"Content-Length: 5\r\nTransfer-Encoding: x\r\n", b"hello"),
    ("cl-te-empty", 400, b"Content-Length: 5\r\nTransfer-Encoding:\r\n", b"hello"),
    ("te-xchunked", 400, b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    ("te-chunkedx", 400, b"Transfer-Encoding: chunkedx\r\n", b"0\r\n\r\n"),
    ("te-chunk", 400, b"Transfer-Encoding: chunk\r\n", b"0\r\n\r\n"),
    ("te-empty", 400, b"Transfer-Encoding: \r\n", b"0\r\n\r\n"),
    ("te-comma", 400, b"Transfer-Encoding: ,\r\n", b"0\r\n\r\n"),
    ("te-chunked-comma", 400, b"Transfer-Encoding: chunked,\r\n", b"0\r\n\r\n"),
    ("te-comma-chunked", 400, b"Transfer-Encoding: ,chunked\r\n", b"0\r\n\r\n"),
    ("te-identity", 400, b"Transfer-Encoding: identity\r\n", b"0\r\n\r\n"),
    ("te-identity-chunked", 400, b"Transfer-Encoding: identity, chunked\r\n", b"0\r\n\r\n"),
    ("te-chunked-identity", 400, b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"),
    ("te-chunked-chunked", 400, b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n"),
    ("te-chunked-gzip", 400, b"Transfer-Encoding: chunked, gzip\r\n", b"0\r\n\r\n"),
    ("te-gzip", 400, b"Transfer-Encoding: gzip\r\n", b"0\r\n\r\n"),
    ("te-gzip-chunked", 501, b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
    ("te-deflate-gzip-chunked", 501, b"Transfer-Encoding: deflate, gzip, chunked\r\n", b"0\r\n\r\n"),
    ("te-parameter", 400, b"Transfer-Encoding: chunked;q=1\r\n", b"0\r\n\r\n"),
    ("te-double-quotes", 400, b"Transfer-Encoding: \"chunked\"\r\n", b"0\r\n\r\n"),
    ("te-single-quotes", 400, b"Transfer-Encoding: 'chunked'\r\n", b"0\r\n\r\n"),
    ("te-in-two-words", 400, b"Transfer-Encoding: chunked foo\r\n", b"0\r\n\r\n"),
    ("te-colon-colon", 400, b"Transfer-Encoding:: chunked\r\n", b"0\r\n\r\n"),
    ("te-twice", 400, b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    ("te-twice-identity-first", 400, b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    ("te-twice-identity-last", 400, b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", b"0\r\n\r\n"),
    ("te-twice-unknown-last", 400, b"Transfer-Encoding: chunked\r\ntransfer-encoding: cow\r\n", b"0\r\n\r\n"),
    ("te-blank-before-colon", 400, b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"),
    ("te-tab-before-colon", 400, b"Transfer-Encoding\t: chunked\r\n", b"0\r\n\r\n"),
    ("te-blank-before-name", 400, b" Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    ("te-tab-before-name", 400, b"\tTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    ("te-vertical-tab", 400, b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n"),
    ("te-vertical-tab-behind", 400, b"Transfer-Encoding: chunked\x0b\r\n", b"0\r\n\r\n"),
    ("te-form-feed", 400, b"Transfer-Encoding: \x0cchunked\r\n", b"0\r\n\r\n"),
    ("te-nul", 400, b"Transfer-Encoding: chunked\0\r\n", b"0\r\n\r\n"),
    ("te-nul-within", 400, b"Transfer-Encoding: chu\0nked\r\n", b"0\r\n\r\n"),
    ("te-nul-in-name", 400, b"Transfer-Encoding\0: chunked\r\n", b"0\r\n\r\n"),
    ("te-delete", 400, b"Transfer-Encoding: chunked\x7f\r\n", b"0\r\n\r\n"),
    ("te-no-break-space", 400, b"Transfer-Encoding: \xa0chunked\r\n", b"0\r\n\r\n"),
    ("te-kelvin-sign", 400, b"Transfer-Encoding: chun\xe2\x84\xaaed\r\n", b"0\r\n\r\n"),
    ("te-long-s-in-name", 400, b"Tran\xc5\xbffer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    ("te-folded-value", 400, b"Transfer-Encoding:\r\n chunked\r\n", b"0\r\n\r\n"),
    ("te-folded-list", 400, b"Transfer-Encoding: chunked\r\n , identity\r\n", b"0\r\n\r\n"),
    ("te-folded-name", 400, b"Transfer-Encoding\r\n : chunked\r\n", b"0\r\n\r\n"),
    ("te-behind-lf", 400, b"X: x\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    ("te-behind-cr", 400, b"X: x\rTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    ("te-behind-lf-cr", 400, b"X: x\n\rTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    ("te-ends-in-lf", 400, b"Transfer-Encoding: chunked\n", b"0\r\n\r\n"),
    ("te-ends-in-cr-cr-lf", 400, b"Transfer-Encoding: chunked\r\r\n", b"0\r\n\r\n"),
    ("cl-plus", 400, b"Content-Length: +5\r\n", b"hello"),
    ("cl-minus", 400, b"Content-Length: -5\r\n", b"hello"),
    ("cl-minus-0", 400, b"Content-Length: -0\r\n", b""),
    ("cl-hexadecimal", 400, b"Content-Length: 0x5\r\n", b"hello"),
    ("cl-hexadecimal-digit", 400, b"Content-Length: a\r\n", b"hello"),
    ("cl-octal", 400, b"Content-Length: 0o5\r\n", b"hello"),
    ("cl-fraction", 400, b"Content-Length: 5.0\r\n", b"hello"),
    ("cl-exponent", 400, b"Content-Length: 5e0\r\n", b"hello"),
    ("cl-underscore", 400, b"Content-Length: 0_5\r\n", b"hello"),
    ("cl-semicolon", 400, b"Content-Length: 5;\r\n", b"hello"),
    ("cl-blank-within", 400, b"Content-Length: 0 5\r\n", b"hello"),
    ("cl-quotes", 400, b"Content-Length: \"5\"\r\n", b"hello"),
    ("cl-empty", 400, b"Content-Length:\r\n", b"hello"),
    ("cl-list-equal", 400, b"Content-Length: 5, 5\r\n", b"hello"),
    ("cl-list-different", 400, b"Content-Length: 5, 0\r\n", b"hello"),
    ("cl-list-open", 400, b"Content-Length: 5,\r\n", b"hello"),
    ("cl-twice-equal", 400, b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"),
    ("cl-twice-different", 400, b"Content-Length: 5\r\nContent-Length: 0\r\n", b"hello"),
    ("cl-twice-other-case", 400, b"Content-Length: 0\r\ncontent-length: 5\r\n", b"hello"),
    ("cl-twice-one-empty", 400, b"Content-Length: 5\r\nContent-Length:\r\n", b"hello"),
    ("cl-blank-before-colon", 400, b"Content-Length : 5\r\n", b"hello"),
    ("cl-blank-before-name", 400, b" Content-Length: 5\r\n", b"hello"),
    ("cl-folded", 400, b"Content-Length: 0\r\n 5\r\n", b"hello"),
    ("cl-nul", 400, b"Content-Length: 5\0\r\n", b"hello"),
    ("cl-vertical-tab", 400, b"Content-Length: \x0b5\r\n", b"hello"),
    ("cl-full-width-digit", 400, b"Content-Length: \xef\xbc\x95\r\n", b"hello"),
    ("cl-2-to-63", 400, b"Content-Length: 9223372036854775808\r\n", b"hello"),
    ("cl-2-to-64-and-5", 400, b"Content-Length: 18446744073709551621\r\n", b"hello"),
    ("cl-20-digits", 400, b"Content-Length: 00000000000000000005\r\n", b"hello"),
    ("cl-ends-in-lf", 400, b"Content-Length: 5\n", b"hello"),
    ("cl-behind-cr", 400, b"X: x\rContent-Length: 5\r\n", b"hello"),
];

/// Name, field lines of a POST, what follows its head, and the body that an origin sees.
type Served = (&'static str, &'static [u8], &'static [u8], &'static str);

#[rustfmt::skip]
const SERVED: &[Served] = &[
    ("te-plain", b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n", "hello"),
    ("te-upper-case", b"TRANSFER-ENCODING: CHUNKED\r\n", b"5\r\nhello\r\n0\r\n\r\n", "hello"),
    ("te-no-blank", b"Transfer-Encoding:chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n", "hello"),
    ("te-tab", b"Transfer-Encoding:\tchunked\t\r\n", b"5\r\nhello\r\n0\r\n\r\n", "hello"),
    ("te-nothing-in-it", b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", ""),
    ("te-underscore-is-another-field", b"Transfer_Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n", "0\r\n\r\n"),
    ("te-named-content-encoding", b"Content-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n", "0\r\n\r\n"),
    ("te-named-te", b"TE: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n", "0\r\n\r\n"),
    ("te-named-x", b"X-Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n", "0\r\n\r\n"),
    ("cl-plain", b"Content-Length: 5\r\n", b"hello", "hello"),
    ("cl-tabs", b"Content-Length:\t5\t\r\n", b"hello", "hello"),
    ("cl-leading-zeros", b"Content-Length: 0000000000000000005\r\n", b"hello", "hello"),
    ("cl-underscore-is-another-field", b"Content_Length: 0\r\nContent-Length: 5\r\n", b"hello", "hello"),
    ("cl-named-x", b"X-Content-Length: 0\r\nContent-Length: 5\r\n", b"hello", "hello"),
    ("no-length-is-no-body", b"", b"", ""),
    ("cl-body-that-looks-like-a-request", b"Content-Length: 37\r\n", b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\r\n",
        "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\r\n"),
    ("te-body-that-looks-like-a-request", b"Transfer-Encoding: chunked\r\n",
        b"25\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r\n0\r\n\r\n", "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\r\n"),
    ("cl-body-that-looks-chunked", b"Content-Length: 15\r\n", b"5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"),
];

pub(super) fn cases() -> Vec<Case> {
    let refused = REFUSED.iter().map(|(name, status, lines, rest)| Case::refused(name, *status, post(lines, rest)));
    let served =
        SERVED.iter().map(|(name, lines, rest, body)| Case::served(name, post(lines, rest), &[("POST", "/x", body)]));
    let odd = [
        Case::cut("cl-2-to-32-and-5", 400, post(b"Content-Length: 4294967301\r\n", b"hello")),
        Case::cut("cl-2-to-63-less-1", 400, post(b"Content-Length: 9223372036854775807\r\n", b"hello")),
        Case::cut("cl-longer-than-the-body", 400, post(b"Content-Length: 50\r\n", b"GET /smuggled HTTP/1.1\r\n")),
        Case::served(
            "cl-shorter-than-the-bytes",
            post(b"Content-Length: 3\r\n", b"abcGET /y HTTP/1.1\r\nHost: a\r\n\r\n"),
            &[("POST", "/x", "abc"), ("GET", "/y", "")],
        ),
        Case::refused(
            "te-on-http-10",
            400,
            b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
        ),
        Case::refused(
            "te-on-http-10-beside-cl",
            400,
            b"POST /x HTTP/1.0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
        ),
        Case {
            responses: vec![200, 400],
            closes: true,
            ..Case::served(
                "no-length-and-a-body",
                post(b"", b"x=1 is no request\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"),
                &[("POST", "/x", "")],
            )
        },
        Case::served(
            "bodies-of-other-methods",
            b"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab\
              DELETE /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ncd\r\n0\r\n\r\n\
              PUT /c HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\ne\
              HEAD /d HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n\
              OPTIONS /f HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\ng"
                .to_vec(),
            &[
                ("GET", "/a", "ab"),
                ("DELETE", "/b", "cd"),
                ("PUT", "/c", "e"),
                ("HEAD", "/d", ""),
                ("OPTIONS", "/f", "g"),
            ],
        ),
    ];
    refused.chain(served).chain(odd).collect()
}
