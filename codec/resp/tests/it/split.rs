//! Where a read ends must not matter, and no bytes may do harm.

use crate::support::{Event, run};
use proptest::prelude::*;
use weir_resp::{ReplyFramer, ReplyLimits, RequestLimits, Value, ValueLimits, encode};

/// Never streams because of size alone, so that events do not depend on how much came in one piece.
fn unstreamed() -> RequestLimits {
    RequestLimits { stream_bytes: 1 << 20, ..RequestLimits::default() }
}

/// Bytes that a parser of RESP can trip over.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop::sample::select(&b"*$\r\n0123456789-+:_#,(!=%~>|? \"'\\xaPOST\0\xff"[..]), 0..40),
        prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn args() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop_oneof![prop::collection::vec(any::<u8>(), 0..30), garbage()], 1..20)
}

/// A stretch of a client's stream: mostly well formed.
fn stretch() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => args().prop_map(|args| { let mut out = Vec::new(); encode::command(&mut out, args); out }),
        2 => "[ -~\t]{0,40}\r?\n".prop_map(String::into_bytes),
        1 => prop::sample::select(&["\r\n", "*0\r\n", "*-5\r\n", "\n", "  \r\n"][..]).prop_map(|s| s.into()),
        1 => garbage(),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(stretch(), 1..6).prop_map(|stretches| stretches.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn commands_read_back_as_sent(sent in prop::collection::vec(args(), 1..5)) {
        let mut input = Vec::new();
        sent.iter().for_each(|args| encode::command(&mut input, args));
        let got: Vec<_> = run([&input[..]], &unstreamed()).events.into_iter().map(|event| match event {
            Event::Command { args, .. } => args,
            other => panic!("{other:?}"),
        }).collect();
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn requests_split_at_every_byte_boundary(input in stream(), authenticated: bool) {
        let limits = RequestLimits { authenticated, ..unstreamed() };
        let whole = run([&input[..]], &limits);
        let single = run(input.chunks(1), &limits);
        prop_assert_eq!(&single.events, &whole.events);
        prop_assert_eq!(single.left, whole.left);
        for cut in 0..input.len() {
            let pair = run([&input[..cut], &input[cut..]], &limits);
            prop_assert_eq!(&pair.events, &whole.events, "cut at {}", cut);
            prop_assert_eq!(pair.left, whole.left, "cut at {}", cut);
        }
        prop_assert!(whole.heap_max <= 512 + 10 * input.len());
    }

    #[test]
    fn streaming_changes_no_boundary(input in stream(), size in 1usize..50) {
        let lengths = |events: &[Event]| -> Vec<usize> {
            events.iter().filter_map(|event| match event {
                Event::Command { len, .. } | Event::Skip { len } | Event::Streamed { len, .. } => Some(*len),
                Event::Failed(_) => None,
            }).collect()
        };
        let whole = run([&input[..]], &unstreamed());
        let limits = RequestLimits { stream_bytes: 20, ..RequestLimits::default() };
        let streamed = run(input.chunks(size), &limits);
        prop_assert_eq!(lengths(&streamed.events), lengths(&whole.events));
        // A relayed header fails at its first wrong byte, a parsed one at its line end: never the other way round.
        let failed = |events: &[Event]| matches!(events.last(), Some(Event::Failed(_)));
        prop_assert!(failed(&streamed.events) || !failed(&whole.events));
        for (streamed, whole) in streamed.events.iter().zip(&whole.events) {
            if let (Event::Streamed { args, declared, .. }, Event::Command { args: all, .. }) = (streamed, whole) {
                prop_assert_eq!(*declared as usize, all.len());
                prop_assert_eq!(&all[..args.len()], &args[..]);
                let large = all.get(args.len()).is_some_and(|arg| arg.len() > 20);
                prop_assert!(args.len() >= 2.min(all.len()) || large);
            }
        }
    }

    #[test]
    fn replies_split_at_every_byte_boundary(values in prop::collection::vec(value(), 1..4), tail in garbage()) {
        let mut input = Vec::new();
        values.iter().for_each(|value| value.encode(&mut input, encode::Version::Resp3));
        let valid = input.len();
        input.extend_from_slice(&tail);
        let whole = frames([&input[..]]);
        prop_assert!(whole.0.len() >= values.len());
        prop_assert_eq!(whole.0.iter().take(values.len()).sum::<usize>(), valid);
        prop_assert_eq!(&frames(input.chunks(1)), &whole);
        for cut in 0..input.len() {
            prop_assert_eq!(&frames([&input[..cut], &input[cut..]]), &whole, "cut at {}", cut);
        }
    }

    #[test]
    fn values_read_back_as_written(value in value()) {
        let mut input = Vec::new();
        value.encode(&mut input, encode::Version::Resp3);
        for cut in 0..input.len() {
            prop_assert_eq!(Value::decode(&input[..cut], &ValueLimits::default()), Ok(None));
        }
        let len = input.len();
        input.extend_from_slice(b"+next\r\n");
        prop_assert_eq!(Value::decode(&input, &ValueLimits::default()), Ok(Some((value.clone(), len))));
        // The RESP2 form has another shape but is one frame too.
        let mut flat = Vec::new();
        value.encode(&mut flat, encode::Version::Resp2);
        prop_assert_eq!(frames([&flat[..]]), (vec![flat.len()], None));
    }

    #[test]
    fn a_decoded_value_is_framed_the_same(input in garbage()) {
        if let Ok(Some((_, len))) = Value::decode(&input, &ValueLimits::default()) {
            prop_assert_eq!(frames([&input[..]]).0.first().copied(), Some(len));
        }
    }
}

/// Lengths of the frames in `pieces`, and the reason it stopped, if it did.
fn frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<usize>, Option<&'static str>) {
    let mut framer = ReplyFramer::new(ReplyLimits::default());
    let mut lengths = Vec::new();
    let mut len = 0;
    for mut piece in pieces {
        while !piece.is_empty() {
            let scan = match framer.advance(piece) {
                Ok(scan) => scan,
                Err(error) => return (lengths, Some(error.reason())),
            };
            len += scan.taken;
            piece = &piece[scan.taken..];
            if scan.end.is_some() {
                lengths.push(std::mem::take(&mut len));
            } else {
                assert!(piece.is_empty());
            }
        }
    }
    (lengths, None)
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>().prop_filter("no line end", |b| !matches!(b, b'\r' | b'\n')), 0..40)
}

/// A reply of any type, a few levels deep.
fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        line().prop_map(Value::Simple),
        line().prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        prop::collection::vec(any::<u8>(), 0..150).prop_map(Value::Bulk),
        Just(Value::Null),
        any::<f64>().prop_filter("nan equals nothing", |f| !f.is_nan()).prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        "-?[0-9]{1,40}".prop_map(|digits| Value::BigNumber(digits.into_bytes())),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|text| Value::Verbatim { format: *b"txt", text }),
    ];
    scalar.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Set),
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Push),
            prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
}
