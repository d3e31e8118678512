//! The same valid frames through this codec and through the `redis-protocol` crate.

use proptest::prelude::*;
use redis_protocol::resp2::types::{OwnedFrame as Frame2, Resp2Frame};
use redis_protocol::resp3::types::{OwnedFrame as Frame3, Resp3Frame, VerbatimStringFormat};
use redis_protocol::{resp2, resp3};
use weir_resp::encode::Version;
use weir_resp::{ReplyFramer, RequestLimits, RequestParser, Step, Value, ValueLimits, encode};

/// Both say the same. Maps and sets have no order there, so their members are looked up.
fn same(theirs: &Frame3, ours: &Value) -> bool {
    match (theirs, ours) {
        (Frame3::SimpleString { data: a, .. }, Value::Simple(b)) => a == b,
        (Frame3::SimpleError { data: a, .. }, Value::Error(b)) => a.as_bytes() == b,
        (Frame3::BlobError { data: a, .. }, Value::Error(b)) => a == b,
        (Frame3::BlobString { data: a, .. }, Value::Bulk(b)) => a == b,
        (Frame3::Number { data: a, .. }, Value::Integer(b)) => a == b,
        (Frame3::Double { data: a, .. }, Value::Double(b)) => a.to_bits() == b.to_bits(),
        (Frame3::Boolean { data: a, .. }, Value::Boolean(b)) => a == b,
        (Frame3::BigNumber { data: a, .. }, Value::BigNumber(b)) => a == b,
        (Frame3::Null, Value::Null) => true,
        (Frame3::VerbatimString { data: a, format, .. }, Value::Verbatim { format: b, text }) => {
            a == text
                && match format {
                    VerbatimStringFormat::Text => b == b"txt",
                    VerbatimStringFormat::Markdown => b == b"mkd",
                }
        }
        (Frame3::Array { data: a, .. }, Value::Array(b)) | (Frame3::Push { data: a, .. }, Value::Push(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Frame3::Set { data: a, .. }, Value::Set(b)) => {
            a.len() == b.len() && b.iter().all(|b| a.iter().any(|a| same(a, b)))
        }
        (Frame3::Map { data: a, .. }, Value::Map(b)) => {
            a.len() == b.len() && b.iter().all(|(k, v)| a.iter().any(|(a, w)| same(a, k) && same(w, v)))
        }
        _ => false,
    }
}

fn framed(input: &[u8]) -> usize {
    let scan = ReplyFramer::default().advance(input).expect("valid");
    assert!(scan.end.is_some());
    scan.taken
}

proptest! {
    #[test]
    fn resp3_frames_of_ours_are_theirs(value in value()) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes, Version::Resp3);
        let (theirs, len) = resp3::decode::complete::decode(&bytes).expect("valid").expect("whole");
        prop_assert_eq!(len, bytes.len());
        prop_assert!(same(&theirs, &value), "{:?} and {:?}", theirs, value);
        prop_assert_eq!(framed(&bytes), len);
    }

    #[test]
    fn resp3_frames_of_theirs_are_ours(value in value()) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes, Version::Resp3);
        let (frame, _) = resp3::decode::complete::decode(&bytes).expect("valid").expect("whole");
        let mut theirs = vec![0; frame.encode_len(false)];
        let len = resp3::encode::complete::encode(&mut theirs, &frame, false).expect("encodes");
        theirs.truncate(len);
        let (ours, len) = Value::decode(&theirs, &ValueLimits::default()).expect("valid").expect("whole");
        prop_assert_eq!(len, theirs.len());
        prop_assert!(same(&frame, &ours), "{:?} and {:?}", frame, ours);
        prop_assert_eq!(framed(&theirs), len);
    }

    #[test]
    fn resp2_commands_and_replies(args in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..20)) {
        let frame = Frame2::Array(args.iter().cloned().map(Frame2::BulkString).collect());
        let mut theirs = vec![0; frame.encode_len(false)];
        resp2::encode::encode(&mut theirs, &frame, false).expect("encodes");
        let mut ours = Vec::new();
        encode::command(&mut ours, &args);
        prop_assert_eq!(&ours, &theirs);

        let mut parser = RequestParser::new();
        let step = parser.parse(&theirs, &RequestLimits::default());
        prop_assert_eq!(step, Ok(Step::Command { len: theirs.len(), inline: false }));
        prop_assert!(parser.args(&theirs).eq(args.iter().map(Vec::as_slice)));
        prop_assert_eq!(framed(&theirs), theirs.len());
    }
}

#[test]
fn resp2_nulls_and_scalars() {
    for bytes in [&b"$-1\r\n"[..], b"*-1\r\n", b"+OK\r\n", b"-ERR x\r\n", b":-5\r\n", b"*2\r\n$-1\r\n*0\r\n"] {
        let (_, len) = resp2::decode::decode(bytes).expect("valid").expect("whole");
        assert_eq!(framed(bytes), len);
        assert_eq!(Value::decode(bytes, &ValueLimits::default()).unwrap().unwrap().1, len);
    }
}

/// Values that both implementations can represent: UTF-8 errors, members of sets and maps that hash and differ.
fn value() -> impl Strategy<Value = Value> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    let scalar = prop_oneof![
        "[ -~]{0,30}".prop_map(|text| Value::Simple(text.into_bytes())),
        "[A-Z]{3,5} [ -~]{0,30}".prop_map(|text| Value::Error(text.into_bytes())),
        any::<i64>().prop_map(Value::Integer),
        bytes().prop_map(Value::Bulk),
        Just(Value::Null),
        prop_oneof![-1e9..1e9, Just(f64::INFINITY), Just(f64::NEG_INFINITY)].prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        "[1-9][0-9]{20,40}".prop_map(|digits| Value::BigNumber(digits.into_bytes())),
        bytes().prop_map(|text| Value::Verbatim { format: *b"txt", text }),
    ];
    scalar.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec(inner.clone(), 1..6).prop_map(Value::Push),
            prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..20), 0..6)
                .prop_map(|set| Value::Set(set.into_iter().map(Value::Bulk).collect())),
            prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..20), inner, 0..4)
                .prop_map(|map| Value::Map(map.into_iter().map(|(k, v)| (Value::Bulk(k), v)).collect())),
        ]
    })
}
