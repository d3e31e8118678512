//! Valid heads, and refused ones: the cases H1.1 to H1.10 of the abuse catalogue.

use weir_http_codec::{
    BodyLength, HeadLimits, RequestHead, RequestParser, ResponseHead, ResponseParser, Version, WireError,
};

fn request(input: &[u8]) -> Result<Option<RequestHead>, WireError> {
    let mut parser = RequestParser::new();
    Ok(parser.parse(input, &HeadLimits::default())?.map(|_| parser.take()))
}

fn parsed(input: &str) -> RequestHead {
    request(input.as_bytes()).expect("valid").expect("whole")
}

fn refusal(input: &str) -> WireError {
    request(input.as_bytes()).expect_err(input)
}

/// A GET with these lines added.
fn with(lines: &str) -> Result<Option<RequestHead>, WireError> {
    request(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes())
}

fn response(input: &[u8]) -> Result<Option<ResponseHead>, WireError> {
    let mut parser = ResponseParser::new();
    Ok(parser.parse(input, &HeadLimits::default())?.map(|_| parser.take()))
}

#[test]
fn a_request_is_read_whole() {
    let head = parsed(
        "\r\nPOST /a/b?c=d HTTP/1.1\r\nHost: Example.org:8080\r\nX-A:  one two \t\r\nx-b:\r\nTransfer-Encoding: CHUNKED\r\n\r\n",
    );
    assert_eq!(
        (head.method(), head.target(), head.authority()),
        (&b"POST"[..], &b"/a/b?c=d"[..], &b"Example.org:8080"[..])
    );
    assert_eq!((head.version(), head.body(), head.is_persistent()), (Version::Http11, BodyLength::Chunked, true));
    assert_eq!(head.fields.all_named(b"x-a").collect::<Vec<_>>(), [b"one two"]);
    assert_eq!(head.fields.all_named(b"X-B").collect::<Vec<_>>(), [b""]);
}

#[test]
fn forms_of_targets() {
    let head = parsed("GET http://Example.org/x?y HTTP/1.1\r\nHost: example.org\r\n\r\n");
    assert_eq!((head.target(), head.authority()), (&b"/x?y"[..], &b"Example.org"[..]));
    assert_eq!(parsed("GET HTTPS://a HTTP/1.1\r\nHost: a\r\n\r\n").target(), b"/");
    assert_eq!(parsed("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").target(), b"*");
    for target in ["*", "a", "http://", "http:///x", "ftp://a/", "/a#b", "/a\x7fb", "/\u{e4}", "a:80"] {
        assert_eq!(refusal(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")), WireError::Target, "{target}");
    }
    assert_eq!(refusal(&format!("GET /{} HTTP/1.1\r\n", "a".repeat(8 * 1024))), WireError::TargetTooLong);
    assert_eq!(refusal(&format!("GET /{}", "a".repeat(9 * 1024))), WireError::TargetTooLong);
}

#[test]
fn h1_1_a_body_length_that_two_parsers_could_read_in_two_ways_is_refused() {
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 9223372036854775808\r\n",
    ] {
        let error = with(lines).expect_err(lines);
        assert_eq!(error.status(), 400, "{lines}");
        assert!(matches!(error, WireError::ContentLength | WireError::TransferEncoding), "{lines}");
    }
    let head = with("Content-Length: 9223372036854775807\r\n").expect("valid").expect("whole");
    assert_eq!(head.body(), BodyLength::Exact(i64::MAX as u64));
    let head = with("Content-Length: 007\r\n").expect("valid").expect("whole");
    assert_eq!(head.body(), BodyLength::Exact(7));
}

#[test]
fn h1_2_a_transfer_encoding_that_is_not_exactly_chunked_is_refused() {
    for lines in [
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
    ] {
        assert_eq!(with(lines).expect_err(lines).status(), 400, "{lines:?}");
    }
    assert_eq!(with("Transfer-Encoding: gzip, chunked\r\n").expect_err("gzip").status(), 501);
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refusal(old), WireError::TransferEncoding);
    let head = with("Transfer-Encoding:\tchunked \r\n").expect("valid").expect("whole");
    assert_eq!(head.body(), BodyLength::Chunked);
}

#[test]
fn h1_5_a_request_body_never_lasts_until_the_connection_closes() {
    let head = parsed("POST / HTTP/1.0\r\n\r\n");
    assert_eq!((head.body(), head.is_persistent()), (BodyLength::Exact(0), false));
    assert!(parsed("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").is_persistent());
    assert!(!parsed("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n").is_persistent());
}

#[test]
fn h1_8_lines_that_are_not_lines_are_refused() {
    for (input, error) in [
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", WireError::LineEnd),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", WireError::LineEnd),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", WireError::FieldValue),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", WireError::FieldValue),
        ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", WireError::FieldFolded),
        ("GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", WireError::FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", WireError::FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\nnothing\r\n\r\n", WireError::FieldName),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\u{e4}: b\r\n\r\n", WireError::FieldName),
        ("G\u{e4}T / HTTP/1.1\r\nHost: a\r\n\r\n", WireError::Method),
        ("GET /\r\n", WireError::RequestLine),
        ("GET  / HTTP/1.1\r\n", WireError::RequestLine),
        ("GET / a HTTP/1.1\r\n", WireError::RequestLine),
        ("GET / HTTP/1.1 \r\n", WireError::RequestLine),
        ("GET / HTTP/0.9\r\n", WireError::Version),
        ("GET / http/1.1\r\n", WireError::Version),
        ("GET / HTTP/1.10\r\n", WireError::Version),
        ("GET / HTTP/2.0\r\n", WireError::VersionUnsupported),
        ("PRI * HTTP/2.0\r\n\r\n", WireError::Method),
        ("\r\n\r\nGET / HTTP/1.1\r\n", WireError::RequestLine),
        ("\x16\x03\x01", WireError::Method),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", WireError::Expectation),
    ] {
        assert_eq!(refusal(input), error, "{input:?}");
    }
}

#[test]
fn h1_9_there_is_exactly_one_host_and_it_is_the_one_of_the_target() {
    for lines in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a, b\r\n",
        "Host: u@a\r\n",
        "Host: a:0\r\n",
        "Host: a:99999\r\n",
        "Host: a:4294967376\r\n",
        "Host: a:99999999999999999999\r\n",
        "Host: a:\r\n",
        "Host:\r\n",
        "Host: [::1\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
    ] {
        assert_eq!(refusal(&format!("GET / HTTP/1.1\r\n{lines}\r\n")), WireError::Host, "{lines}");
    }
    assert_eq!(refusal("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"), WireError::HostMismatch);
    for authority in ["a\\@b", "u@a", "a:0", "a,b@c"] {
        // No Host to check it against.
        assert_eq!(refusal(&format!("GET http://{authority}/ HTTP/1.0\r\n\r\n")), WireError::Host, "{authority}");
    }
    assert_eq!(parsed("GET http://a:80/ HTTP/1.0\r\n\r\n").authority(), b"a:80");
    for host in ["a", "A.b-c_d", "1.2.3.4:65535", "[::1]:80", "[::ffff:1.2.3.4]"] {
        assert_eq!(parsed(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).authority(), host.as_bytes());
    }
}

#[test]
fn h1_10_a_head_has_a_size_whether_or_not_it_is_whole() {
    let fields: String = (0..10_000).map(|number| format!("X-{number}: a\r\n")).collect();
    assert_eq!(with(&fields).expect_err("10,000 fields").status(), 431);
    let long = format!("X: {}\r\n", "a".repeat(1 << 20));
    assert_eq!(with(&long).expect_err("1 MiB").status(), 431);
    let unfinished = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(65 * 1024));
    assert_eq!(refusal(&unfinished), WireError::HeadTooLong);
}

#[test]
fn h1_17_methods_for_proxies_are_refused() {
    assert_eq!(refusal("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n").status(), 405);
    assert_eq!(refusal("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n").status(), 405);
}

#[test]
fn however_a_head_is_cut_the_same_is_read() {
    let input = b"\r\nPUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nX-Long: abcdefghij\r\n\r\nbody";
    let mut whole = RequestParser::new();
    let used = whole.parse(input, &HeadLimits::default()).expect("valid").expect("whole");
    assert_eq!(&input[used..], b"body");
    let mut parser = RequestParser::new();
    for end in 0..used {
        assert_eq!(parser.parse(&input[..end], &HeadLimits::default()), Ok(None), "{end}");
    }
    assert_eq!(parser.parse(input, &HeadLimits::default()), Ok(Some(used)));
    let (cut, whole) = (parser.take(), whole.take());
    assert_eq!((cut.target(), cut.body(), cut.fields.len()), (whole.target(), whole.body(), whole.fields.len()));
}

#[test]
fn a_reused_parser_keeps_no_state() {
    let mut parser = RequestParser::new();
    for round in 0..3 {
        let input = format!("GET /{round} HTTP/1.1\r\nHost: h{round}\r\nX: y\r\n\r\n");
        let used = parser.parse(input.as_bytes(), &HeadLimits::default()).expect("valid");
        assert_eq!(used, Some(input.len()));
        let head = parser.take();
        assert_eq!(head.target(), format!("/{round}").as_bytes());
        assert_eq!(head.fields.len(), 2);
        parser.reuse(head);
    }
}

#[test]
fn a_response_that_failed_leaves_nothing_for_the_next() {
    let mut parser = ResponseParser::new();
    for broken in ["HTTP/1.1 200 OK\r\nX-Other: 1\r\nbad\r\n", "HTTP/1.1 500 No\r\nX-Other: 1\r\nX", "HTTP/1.1 2x0\r\n"]
    {
        let _ = parser.parse(broken.as_bytes(), &HeadLimits::default());
        parser.reset();
        let used = parser.parse(b"HTTP/1.1 204 Fine\r\nX-Own: 2\r\n\r\n", &HeadLimits::default());
        assert_eq!(used, Ok(Some(31)), "{broken:?}");
        let head = parser.take();
        assert_eq!((head.status(), head.reason(), head.fields.len()), (204, &b"Fine"[..], 1), "{broken:?}");
        parser.reuse(head);
    }
}

#[test]
fn a_response_is_read_whole() {
    let head = response(b"HTTP/1.1 200 Very OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n")
        .expect("valid")
        .expect("whole");
    assert_eq!((head.status(), head.reason(), head.is_persistent()), (200, &b"Very OK"[..], false));
    assert_eq!((head.body(false), head.body(true)), (BodyLength::Exact(5), BodyLength::Exact(0)));
    let bare = response(b"HTTP/1.0 204\r\n\r\n").expect("valid").expect("whole");
    assert_eq!((bare.status(), bare.body(false)), (204, BodyLength::Exact(0)));
    let open = response(b"HTTP/1.1 200 \r\n\r\n").expect("valid").expect("whole");
    assert_eq!(open.body(false), BodyLength::UntilClose);
}

#[test]
fn h1_14_a_response_that_could_be_read_in_two_ways_is_refused() {
    for input in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 5\n\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 99 OK\r\n\r\n",
        "HTTP/1.1 +20 OK\r\n\r\n",
        "HTTP/1.1 600 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 O\0K\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
    ] {
        assert!(response(input.as_bytes()).is_err(), "{input:?}");
    }
}
