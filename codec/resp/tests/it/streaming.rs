//! Commands too large to keep.

use crate::support::{Event, run};
use weir_resp::{ProtocolError, RequestLimits, RequestParser, Step, encode};

fn small() -> RequestLimits {
    RequestLimits { stream_bytes: 1000, ..RequestLimits::default() }
}

fn command(args: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::command(&mut out, args);
    out
}

#[test]
fn a_large_value_is_streamed_as_soon_as_its_header_is_read() {
    let mut parser = RequestParser::new();
    let input = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$536870912\r\n";
    assert_eq!(parser.parse(input, &RequestLimits::default()), Ok(Step::Streaming { len: input.len() }));
    assert_eq!(parser.args(input).collect::<Vec<_>>(), [&b"SET"[..], b"key"]);
    assert_eq!((parser.argc(), parser.args_declared()), (2, 3));

    let chunk = vec![b'\n'; 1 << 20];
    for _ in 0..512 {
        let relay = parser.relay(&chunk).unwrap();
        assert!(relay.taken == chunk.len() && !relay.done);
    }
    assert_eq!(parser.heap_bytes(), 0);
    let relay = parser.relay(b"\r\n*1\r\n").unwrap();
    assert!(relay.taken == 2 && relay.done);
    assert!(!parser.is_relaying() && parser.is_idle());
    let next = parser.parse(b"*1\r\n$4\r\nPING\r\n", &RequestLimits::default());
    assert_eq!(next, Ok(Step::Command { len: 14, inline: false }));
}

#[test]
fn r8_many_small_arguments_are_streamed_past_the_buffer() {
    let value = [b'v'; 1024];
    let keys: Vec<String> = (0..1000).map(|i| format!("key:{i}")).collect();
    let mut args: Vec<&[u8]> = vec![b"MSET"];
    args.extend(keys.iter().flat_map(|key| [key.as_bytes(), &value]));
    let input = [command(&args), command(&[b"PING"])].concat();
    let limits = RequestLimits { stream_bytes: 64 * 1024, ..RequestLimits::default() };
    for size in [1, 1000, 16 * 1024, 100_000] {
        let outcome = run(input.chunks(size), &limits);
        let [Event::Streamed { args: seen, declared: 2001, len }, Event::Command { .. }] = &outcome.events[..] else {
            panic!("pieces of {size}: {:?}", outcome.events.len());
        };
        assert_eq!(*len, input.len() - 14);
        assert!(seen.len() >= 2 && seen.iter().zip(&args).all(|(seen, arg)| seen == arg));
        assert!(outcome.kept_max <= 64 * 1024 + size, "kept {} with pieces of {size}", outcome.kept_max);
    }
}

#[test]
fn name_and_first_key_are_complete_unless_they_are_large_themselves() {
    let long = [b'x'; 5000];
    let middle = [b'y'; 900];
    for (args, want) in [
        (&[&b"SET"[..], b"k", &long][..], 2),
        (&[b"SET", &long, b"v"], 1),
        (&[&long, b"k", b"v"], 0),
        (&[&middle, &middle, &middle], 2),
    ] {
        let input = command(args);
        let outcome = run(input.chunks(1), &small());
        let [Event::Streamed { args: seen, len, .. }] = &outcome.events[..] else { panic!("{:?}", outcome.events) };
        assert_eq!((seen.len(), *len), (want, input.len()));
        assert!(outcome.kept_max <= 3 * 1000, "kept {}", outcome.kept_max);
    }
    // One large argument of an otherwise argument-free command.
    let input = command(&[&middle]);
    assert!(matches!(run(input.chunks(1), &small()).events[..], [Event::Command { .. }]));
}

#[test]
fn a_command_that_is_whole_already_is_not_streamed() {
    let input = command(&[b"SET", b"k", &[b'x'; 5000]]);
    assert!(matches!(run([&input[..]], &small()).events[..], [Event::Command { .. }]));
}

#[test]
fn every_cut_of_a_streamed_command_gives_the_same_end() {
    let long = [b'x'; 1200];
    let input = [command(&[b"MSET", b"a", &long, b"b", b"", b"c", &long]), command(&[b"PING"])].concat();
    for cut in 0..input.len() {
        let outcome = run([&input[..cut], &input[cut..]], &small());
        let first = match &outcome.events[..] {
            [Event::Streamed { len, .. } | Event::Command { len, .. }, Event::Command { .. }] => *len,
            other => panic!("cut at {cut}: {other:?}"),
        };
        assert_eq!(first, input.len() - 14, "cut at {cut}");
    }
}

#[test]
fn relayed_framing_is_as_strict_as_parsed_framing() {
    use ProtocolError::*;
    let head = b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1500\r\n";
    let payload = [b'x'; 1500];
    let cases: &[(&[u8], ProtocolError)] = &[
        (b"xx", BulkEnd),
        (b"\rx", BulkEnd),
        (b"\n", BulkEnd),
        (b"\r\n:1\r\n", ExpectedBulk { got: b':' }),
        (b"\r\n$-1\r\n", InvalidBulkLength),
        (b"\r\n$01\r\n", InvalidBulkLength),
        (b"\r\n$+1\r\n", InvalidBulkLength),
        (b"\r\n$1 \r\n", InvalidBulkLength),
        (b"\r\n$\r\n", InvalidBulkLength),
        (b"\r\n$536870913\r\n", InvalidBulkLength),
        (b"\r\n$99999999999\r\n", InvalidBulkLength),
        (b"\r\n$1\n", HeaderLineEnd),
        (b"\r\n$1\r\nab", BulkEnd),
    ];
    for (tail, want) in cases {
        let input = [&head[..], &payload, tail].concat();
        // Up to the payload first, so that the tail is relayed and not parsed.
        for size in [1, 7, input.len()] {
            let (early, late) = input.split_at(head.len() + 10);
            let outcome = run(std::iter::once(early).chain(late.chunks(size)), &small());
            assert_eq!(outcome.events, [Event::Failed(*want)], "{}", tail.escape_ascii());
        }
    }
}
