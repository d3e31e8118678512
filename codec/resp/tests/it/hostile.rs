//! Hostile clients, by case id. Texts are those of Redis 7.0.15 on the wire.

use crate::support::{Event, run};
use weir_resp::{ProtocolError, RequestLimits, RequestParser, Step, encode};

/// The error `input` ends in, the same in one piece and byte by byte.
fn refused(input: &[u8], limits: &RequestLimits) -> ProtocolError {
    let whole = run([input], limits);
    let pieces = run(input.chunks(1), limits);
    assert_eq!(whole.events, pieces.events, "{}", input[..input.len().min(60)].escape_ascii());
    assert!(whole.heap_max <= 1024, "{} heap bytes for {} received", whole.heap_max, input.len());
    match whole.events.last() {
        Some(Event::Failed(error)) => *error,
        other => panic!("{} was not refused: {other:?}", input[..input.len().min(60)].escape_ascii()),
    }
}

fn text(input: &[u8]) -> String {
    refused(input, &RequestLimits::default()).client_text().expect("a reply before the close").into_owned()
}

fn commands(input: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let whole = run([input], &RequestLimits::default());
    assert_eq!(whole.events, run(input.chunks(1), &RequestLimits::default()).events);
    assert_eq!(whole.left, 0);
    whole
        .events
        .into_iter()
        .filter_map(|event| match event {
            Event::Command { args, .. } => Some(args),
            Event::Skip { .. } => None,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn r1_claimed_giant_bulk_is_refused_before_authentication() {
    for limits in [RequestLimits::unauthenticated(), RequestLimits::default()] {
        let error = refused(b"*1\r\n$9223372036854775807\r\n", &limits);
        assert_eq!(error.client_text().unwrap(), "ERR Protocol error: invalid bulk length");
        assert_eq!(error.reason(), "invalid_bulk_length");
    }
    assert_eq!(text(b"*1\r\n$536870913\r\n"), "ERR Protocol error: invalid bulk length");
}

#[test]
fn r1_claimed_counts_hold_no_memory() {
    let outcome = run([&b"*1048576\r\n$4\r\nMGET\r\n$1\r\na\r\n"[..]], &RequestLimits::default());
    assert_eq!((outcome.events.len(), outcome.heap_max), (0, 0));
    // Offsets follow the arguments received: eight bytes each, at most doubled by growth, for six on the wire.
    let many = [b"*1048576\r\n".to_vec(), b"$0\r\n\r\n".repeat(10_000)].concat();
    let outcome = run([&many[..]], &RequestLimits::default());
    assert!(outcome.heap_max <= 3 * many.len(), "{} for {}", outcome.heap_max, many.len());
}

#[test]
fn r2_small_limits_before_authentication() {
    let limits = RequestLimits::unauthenticated();
    let error = refused(b"*11\r\n", &limits);
    assert_eq!(error.client_text().unwrap(), "ERR Protocol error: unauthenticated multibulk length");
    assert_eq!(error.reason(), "unauthenticated_multibulk_length");
    let error = refused(b"*1\r\n$16385\r\n", &limits);
    assert_eq!(error.client_text().unwrap(), "ERR Protocol error: unauthenticated bulk length");
    assert_eq!(error.reason(), "unauthenticated_bulk_length");
    for fits in [&b"*10\r\n"[..], b"*1\r\n$16384\r\n"] {
        assert_eq!(run([fits], &limits).events, []);
    }
    for input in [&b"*11\r\n"[..], b"*1\r\n$16385\r\n"] {
        assert_eq!(run([input], &RequestLimits::default()).events, []);
    }
}

#[test]
fn r3_lines_without_end() {
    let digits = "1".repeat(65_537);
    for (input, want) in [
        ("a".repeat(65_537), "too big inline request"),
        (format!("*{digits}"), "too big mbulk count string"),
        (format!("*1\r\n${digits}"), "too big bulk count string"),
        // Redis lets these pass when the line end comes in the same read; here the verdict does not depend on that.
        ("a".repeat(65_537) + "\r\n", "too big inline request"),
        (format!("*{digits}\r\n"), "too big mbulk count string"),
    ] {
        assert_eq!(text(input.as_bytes()), format!("ERR Protocol error: {want}"));
    }
    assert_eq!(run(["a".repeat(65_536).as_bytes()], &RequestLimits::default()).events, []);
    let longest = "a".repeat(65_535) + "\r\n";
    assert_eq!(commands(longest.as_bytes())[0][0].len(), 65_535);
}

#[test]
fn r4_lengths_are_canonical() {
    for bulk in ["$-2", "$-1", "$+4", "$04", "$4 ", "$ 4", "$", "$x", "$4x", "$0x4", "$00", "$-0", "$4294967300"] {
        let input = format!("*1\r\n{bulk}\r\nPING\r\n");
        assert_eq!(text(input.as_bytes()), "ERR Protocol error: invalid bulk length", "{bulk}");
    }
    for count in ["*+1", "*01", "*x", "*", "*1 ", "* 1", "*-0", "*-01", "*2147483648", "*1048577", "*1x"] {
        let input = format!("{count}\r\n$4\r\nPING\r\n");
        assert_eq!(text(input.as_bytes()), "ERR Protocol error: invalid multibulk length", "{count}");
    }
    assert_eq!(text(b"*-9223372036854775809\r\n"), "ERR Protocol error: invalid multibulk length");
    assert_eq!(text(b"*1\r\n+PING\r\n"), "ERR Protocol error: expected '$', got '+'");
    assert_eq!(text(b"*2\r\n$4\r\nECHO\r\n:1\r\n"), "ERR Protocol error: expected '$', got ':'");
    assert_eq!(text(b"*1\r\n\r\n"), "ERR Protocol error: expected '$', got ' '");
}

#[test]
fn r4_empty_counts_and_blank_lines_are_skipped() {
    let input = b"*0\r\n*-5\r\n\r\n\n  \r\n*-9223372036854775808\r\n*1\r\n$4\r\nPING\r\n";
    assert_eq!(commands(input), [[b"PING"]]);
    let outcome = run([&input[..]], &RequestLimits::default());
    assert_eq!(outcome.events.iter().filter(|event| matches!(event, Event::Skip { .. })).count(), 6);
}

#[test]
fn r4b_line_feed_alone_ends_no_header() {
    for input in [&b"*1\n$4\nPING\n"[..], b"*1\r\n$4\nPING\r\n", b"*\n", b"*1\r\n$\n", b"*1\r\n$4\r4\n"] {
        assert_eq!(refused(input, &RequestLimits::default()), ProtocolError::HeaderLineEnd);
    }
    // A CR that is not followed by LF is part of the number, and no number has one.
    assert_eq!(refused(b"*1\r$4\r\n", &RequestLimits::default()), ProtocolError::InvalidMultibulkLength);
}

#[test]
fn r4b_payload_ends_with_cr_lf() {
    for end in ["xx", "\n\r", "\n\n", "\r\r", "x\n", "\rx", "  "] {
        let input = format!("*1\r\n$4\r\nPING{end}");
        assert_eq!(refused(input.as_bytes(), &RequestLimits::default()), ProtocolError::BulkEnd, "{end:?}");
    }
    // Redis would take the `$` of a length that is one too small for a terminator and go on.
    assert_eq!(refused(b"*2\r\n$3\r\nECHO\r\n$1\r\na\r\n", &RequestLimits::default()), ProtocolError::BulkEnd);
}

/// Bytes that were scanned are spoilt before the next call: reading them again would change the result.
#[test]
fn r4b_nothing_is_scanned_twice() {
    let limits = RequestLimits::default();
    let mut parser = RequestParser::new();
    let mut header = [b"*".to_vec(), vec![b'1'; 100]].concat();
    assert_eq!(parser.parse(&header, &limits), Ok(Step::Incomplete));
    header[50] = b'\n';
    header.resize(60_000, b'1');
    assert_eq!(parser.parse(&header, &limits), Ok(Step::Incomplete));
    header[55_000] = b'\n';
    header.resize(65_537, b'1');
    assert_eq!(parser.parse(&header, &limits), Err(ProtocolError::MultibulkHeaderTooBig));

    let mut parser = RequestParser::new();
    let mut command = Vec::new();
    encode::command(&mut command, [&b"SET"[..], b"k", &[b'v'; 1000]]);
    for len in [22, 30, 500, command.len() - 1] {
        assert_eq!(parser.parse(&command[..len], &limits), Ok(Step::Incomplete));
        let seen = if len < 30 { 20 } else { len - 1 };
        command[..seen].fill(b'#');
    }
    assert_eq!(parser.parse(&command, &limits), Ok(Step::Command { len: command.len(), inline: false }));
}

#[test]
fn r14_http_is_recognised_by_its_first_words() {
    for input in [&b"POST / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"Host: 127.0.0.1:6379\r\n", b"post\n", b"  hOsT: x\r\n"]
    {
        let error = refused(input, &RequestLimits::default());
        assert_eq!(error, ProtocolError::CrossProtocol);
        assert_eq!((error.reason(), error.client_text()), ("cross_protocol", None));
    }
    // A GET request line is a legal inline command; its Host header is not.
    let outcome = run([&b"GET / HTTP/1.1\r\nHost: x\r\n"[..]], &RequestLimits::default());
    assert!(matches!(outcome.events[..], [Event::Command { .. }, Event::Failed(ProtocolError::CrossProtocol)]));
    assert_eq!(commands(b"POSTS\r\nGET Host:\r\n").len(), 2);
}

#[test]
fn r17_unbalanced_quotes() {
    for input in [&b"SET k \"v\r\n"[..], b"SET k 'v\n", b"SET k \"v\"x\r\n"] {
        assert_eq!(text(input), "ERR Protocol error: unbalanced quotes in request");
    }
    assert_eq!(refused(b"PI\0NG\r\n", &RequestLimits::default()), ProtocolError::InlineNul);
}

#[test]
fn inline_commands_as_typed_into_netcat() {
    let got = commands(b"PING\nset  k\t\"a\\x20b\" \r\nGET 'k'\r\n*1\r\n$4\r\nQUIT\r\n");
    let want: Vec<Vec<Vec<u8>>> = [&[&b"PING"[..]][..], &[b"set", b"k", b"a b"], &[b"GET", b"k"], &[b"QUIT"]]
        .iter()
        .map(|args| args.iter().map(|arg| arg.to_vec()).collect())
        .collect();
    assert_eq!(got, want);
}

#[test]
fn r19_arguments_are_binary_safe() {
    let key: Vec<u8> = (0..=255).chain(*b"\r\n*1\r\n$4\r\nPING\r\n").collect();
    let mut input = Vec::new();
    encode::command(&mut input, [&b"SET"[..], &key, b""]);
    assert_eq!(commands(&input), [[b"SET".to_vec(), key, Vec::new()]]);
}
