//! Streams of events, whole and cut at every byte, against a plain reading of the specification.

use proptest::prelude::*;
use weir_sse_codec::{Kind, Limits, Splitter, SseError, write};

/// A unit with its bytes and fields, as owned values. An LF that came apart from its CR is put back to the unit before
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    kind: Kind,
    bytes: Vec<u8>,
    name: Option<Vec<u8>>,
    data: Option<Vec<u8>>,
}

impl Seen {
    fn new(kind: Kind, bytes: &[u8], name: Option<&[u8]>, data: Option<&[u8]>) -> Self {
        Self { kind, bytes: bytes.to_vec(), name: name.map(<[u8]>::to_vec), data: data.map(<[u8]>::to_vec) }
    }

    fn event(bytes: &[u8], name: Option<&[u8]>, data: Option<&[u8]>) -> Self {
        Self::new(Kind::Event, bytes, name, data)
    }

    fn other(kind: Kind, bytes: &[u8]) -> Self {
        Self::new(kind, bytes, None, None)
    }
}

/// Units of `stream` in pieces that end at `cuts`, the bytes behind the last unit, and the error.
fn split(stream: &[u8], cuts: &[usize], limits: Limits) -> (Vec<Seen>, Vec<u8>, Option<SseError>) {
    let mut splitter = Splitter::new(limits);
    let (mut seen, mut at, mut end_of_last): (Vec<Seen>, usize, u64) = (Vec::new(), 0, 0);
    for end in cuts.iter().copied().chain([stream.len()]) {
        let end = end.clamp(at, stream.len());
        let mut piece = &stream[at..end];
        at = end;
        loop {
            let unit = match splitter.next(piece) {
                Ok(Some(unit)) => unit,
                Ok(None) => break,
                Err(error) => return (seen, stream[end_of_last as usize..].to_vec(), Some(error)),
            };
            assert_eq!(unit.start, end_of_last, "units follow each other without a gap");
            assert!(unit.bytes > 0 && unit.bytes <= piece.len() && unit.end > unit.start);
            end_of_last = unit.end;
            let bytes = &stream[unit.start as usize..unit.end as usize];
            match (unit.kind, seen.last_mut()) {
                (Kind::LineFeed, Some(before)) => before.bytes.extend_from_slice(bytes),
                _ => seen.push(Seen::new(unit.kind, bytes, unit.name, unit.data)),
            }
            piece = &piece[unit.bytes..];
        }
        assert_eq!(splitter.offset(), end as u64);
        assert_eq!(splitter.pending_bytes(), end as u64 - end_of_last);
        assert_eq!(splitter.is_between_units(), end as u64 == end_of_last);
    }
    (seen, stream[end_of_last as usize..].to_vec(), None)
}

/// The same for the whole stream, line by line as the specification reads it, without limits.
fn reference(stream: &[u8]) -> (Vec<Seen>, Vec<u8>) {
    let (mut seen, mut unit) = (Vec::new(), Vec::new());
    let (mut name, mut data): (Option<Vec<u8>>, Option<Vec<u8>>) = (None, None);
    let (mut is_in_event, mut rest) = (false, stream);
    while let Some(length) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        let terminator = if rest[length..].starts_with(b"\r\n") { 2 } else { 1 };
        let mut line = &rest[..length];
        if rest.len() == stream.len() {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        unit.extend_from_slice(&rest[..length + terminator]);
        rest = &rest[length + terminator..];
        let kind = match (line, is_in_event) {
            ([], true) => Some(Kind::Event),
            ([], false) => Some(Kind::Blank),
            ([b':', ..], false) => Some(Kind::Comment),
            ([b':', ..], true) => None,
            _ => {
                let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
                let value = line.get(colon + 1..).unwrap_or_default();
                let value = value.strip_prefix(b" ").unwrap_or(value).to_vec();
                match &line[..colon] {
                    b"event" => name = Some(value),
                    b"data" => data = Some(data.map_or(value.clone(), |before| [&before[..], b"\n", &value].concat())),
                    _ => {}
                }
                is_in_event = true;
                None
            }
        };
        if let Some(kind) = kind {
            seen.push(Seen::new(kind, &unit, name.take().as_deref(), data.take().as_deref()));
            unit.clear();
            is_in_event = false;
        }
    }
    unit.extend_from_slice(rest);
    (seen, unit)
}

/// Units of `stream`, which are the same wherever it is cut once, and in pieces of one byte.
fn units(stream: &[u8]) -> Vec<Seen> {
    let whole = split(stream, &[], Limits::default());
    let (seen, rest) = reference(stream);
    assert_eq!(whole, (seen, rest, None));
    for cut in 0..=stream.len() {
        assert_eq!(split(stream, &[cut], Limits::default()), whole, "cut at {cut}");
    }
    let bytes: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(split(stream, &bytes, Limits::default()), whole, "byte by byte");
    whole.0
}

#[test]
fn an_event_has_its_bytes_its_name_and_its_data() {
    let stream = b"data: {\"a\":1}\n\nevent: message_stop\ndata: {}\n\ndata: [DONE]\n\n";
    let wanted = [
        Seen::event(&stream[..15], None, Some(b"{\"a\":1}")),
        Seen::event(&stream[15..45], Some(b"message_stop"), Some(b"{}")),
        Seen::event(&stream[45..], None, Some(b"[DONE]")),
    ];
    assert_eq!(units(stream), wanted);
}

#[test]
fn line_ends_of_all_three_kinds_and_a_mark_are_accepted() {
    for end in ["\n", "\r", "\r\n"] {
        let stream = format!("\u{feff}event: a{end}data: \u{e9}{end}{end}: c{end}data: b{end}{end}");
        let seen = units(stream.as_bytes());
        let kinds: Vec<Kind> = seen.iter().map(|unit| unit.kind).collect();
        assert_eq!(kinds, [Kind::Event, Kind::Comment, Kind::Event], "{end:?}");
        assert_eq!(seen[0].name.as_deref(), Some(&b"a"[..]));
        assert_eq!(seen[0].data.as_deref(), Some("\u{e9}".as_bytes()));
    }
    units(b"data: a\r\r\ndata: b\n\r\r\n\n\r");
}

#[test]
fn values_follow_the_rules_of_the_format() {
    let seen =
        units(b"data\ndata:a\ndata:  b\nevent: x\nevent: y\nid: 7\nretry: 1\nData: no\n data: no\ndatas: no\n\n");
    assert_eq!(seen[0].data.as_deref(), Some(&b"\na\n b"[..]), "no colon, no blank, one of two blanks, joined by LF");
    assert_eq!(seen[0].name.as_deref(), Some(&b"y"[..]), "the last name wins");
    let seen = units(b"event: ping\n\nid: 1\n\ndata:\n\n");
    assert_eq!(seen[0], Seen::event(b"event: ping\n\n", Some(b"ping"), None));
    assert_eq!(seen[1], Seen::event(b"id: 1\n\n", None, None));
    assert_eq!(seen[2], Seen::event(b"data:\n\n", None, Some(b"")), "empty data is data");
}

#[test]
fn comments_and_blank_lines_outside_of_events_are_units_of_their_own() {
    let seen = units(b"\n: ping\n\n:\ndata: a\n: within\ndata: b\n\n");
    let wanted = [
        Seen::other(Kind::Blank, b"\n"),
        Seen::other(Kind::Comment, b": ping\n"),
        Seen::other(Kind::Blank, b"\n"),
        Seen::other(Kind::Comment, b":\n"),
        Seen::event(b"data: a\n: within\ndata: b\n\n", None, Some(b"a\nb")),
    ];
    assert_eq!(seen, wanted);
}

#[test]
fn values_of_an_event_within_a_piece_are_borrowed_from_it() {
    let stream = b"event: delta\ndata: {}\n\n";
    let mut splitter = Splitter::default();
    let unit = splitter.next(stream).expect("within limits").expect("whole");
    let borrowed = stream.as_ptr_range();
    assert!(
        borrowed.contains(&unit.data.expect("data").as_ptr()) && borrowed.contains(&unit.name.expect("name").as_ptr())
    );
}

#[test]
fn an_event_does_not_wait_for_the_line_feed_of_its_last_cr() {
    let mut splitter = Splitter::default();
    let unit = splitter.next(b"data: a\r\n\r").expect("within limits").expect("its last line is blank");
    assert_eq!((unit.kind, unit.end), (Kind::Event, 10));
    let unit = splitter.next(b"\ndata: b").expect("within limits").expect("the line feed");
    assert_eq!((unit.kind, unit.bytes, unit.start, unit.end), (Kind::LineFeed, 1, 10, 11));
}

#[test]
fn a3_a_line_without_an_end_is_refused_at_its_limit_wherever_it_is_cut() {
    let limits = Limits { line_bytes: 10, event_bytes: 16 };
    let verdict = |stream: &[u8]| {
        let whole = split(stream, &[], limits);
        for cut in 0..=stream.len() {
            assert_eq!(split(stream, &[cut], limits), whole, "cut at {cut}");
        }
        whole.2
    };
    assert_eq!(verdict(b"data: 1234\n\n"), None);
    assert_eq!(verdict(b"data: 12345\n\n"), Some(SseError::LineTooLong));
    assert_eq!(verdict(b"data: 12345"), Some(SseError::LineTooLong));
    assert_eq!(verdict(b": 123456789"), Some(SseError::LineTooLong));
    assert_eq!(verdict(b"data: 12\n: 45678\n\n"), None, "9 and 7 bytes");
    assert_eq!(verdict(b"data: 12\n: 456789\n\n"), Some(SseError::EventTooLong));
    assert_eq!(verdict(b"data: 1\n\n".repeat(9).as_slice()), None, "the limit is one of each event");
}

#[test]
fn a3_a_gibibyte_without_a_line_end_costs_the_limit_and_no_more() {
    let mut splitter = Splitter::default();
    let piece = [b'x'; 64 * 1024];
    for _ in 0..16 {
        assert_eq!(splitter.next(&piece), Ok(None));
    }
    assert_eq!(splitter.next(&piece), Err(SseError::LineTooLong));
}

#[test]
fn written_events_are_read_as_they_were_given() {
    let mut stream = Vec::new();
    write::event(&mut stream, Some("delta"), b"a\nb\r\nc\rd\n");
    write::comment(&mut stream, b"still\nhere");
    write::error(&mut stream, br#"{"message":"late"}"#);
    write::event(&mut stream, None, b"");
    let seen = units(&stream);
    assert_eq!((seen[0].name.as_deref(), seen[0].data.as_deref()), (Some(&b"delta"[..]), Some(&b"a\nb\nc\nd\n"[..])));
    assert!(seen[1..4].iter().all(|unit| unit.kind != Kind::Event) && seen[1].bytes == b": still\n");
    assert_eq!(seen[4].data.as_deref(), Some(&br#"{"error":{"message":"late"}}"#[..]));
    assert_eq!(seen[5].data.as_deref(), Some(&b""[..]));
}

/// Pieces of lines that a stream is put together from.
const TEXTS: [&[u8]; 13] = [
    b"data: {\"a\":1}",
    b"data:x",
    b"data",
    b"event: name",
    b"event",
    b": c",
    b":",
    b"id: 1",
    b"",
    b"",
    b"\xef\xbb\xbf",
    b"dat",
    b"\xf0\x9f",
];
const ENDS: [&[u8]; 4] = [b"\n", b"\r", b"\r\n", b""];

fn line() -> impl Strategy<Value = Vec<u8>> {
    let texts = prop::sample::select(TEXTS.to_vec());
    (texts, prop::sample::select(ENDS.to_vec())).prop_map(|(text, end)| [text, end].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn cuts_change_no_unit(
        lines in prop::collection::vec(line(), 0..16),
        cuts in prop::collection::vec(0..200_usize, 0..12),
    ) {
        let stream = lines.concat();
        let mut cuts = cuts;
        cuts.sort_unstable();
        let (seen, rest) = reference(&stream);
        prop_assert_eq!(split(&stream, &[], Limits::default()), (seen.clone(), rest.clone(), None));
        prop_assert_eq!(split(&stream, &cuts, Limits::default()), (seen, rest, None));
    }

    #[test]
    fn cuts_change_no_verdict(
        lines in prop::collection::vec(line(), 0..12),
        cuts in prop::collection::vec(0..120_usize, 0..12),
    ) {
        let stream = lines.concat();
        let mut cuts = cuts;
        cuts.sort_unstable();
        let limits = Limits { line_bytes: 12, event_bytes: 20 };
        prop_assert_eq!(split(&stream, &cuts, limits), split(&stream, &[], limits));
    }
}
