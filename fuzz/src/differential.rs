//! The same reply through this codec and through the `redis-protocol` crate.

use redis_protocol::resp3;
use redis_protocol::resp3::types::{OwnedFrame, Resp3Frame, VerbatimStringFormat};
use weir_resp::{Value, ValueLimits};

/// Theirs is recursive and may reserve what a header claims; it only sees input within these bounds.
const LIMITS: ValueLimits = ValueLimits { depth_max: 16, nodes_max: 4096, bytes_max: 1 << 20 };

/// Any reply: if ours decodes it, theirs gives the same value and length; if theirs decodes it and would write it the
/// same way, ours takes it too.
pub fn redis_differential_reply(data: &[u8]) {
    match Value::decode(data, &LIMITS) {
        Ok(Some((value, len))) if is_comparable(&data[..len], &value) => {
            let theirs = resp3::decode::complete::decode(data);
            let Ok(Some((frame, their_len))) = theirs else {
                panic!("{} is {value:?} here and {theirs:?} there", data[..len].escape_ascii());
            };
            assert_eq!(their_len, len, "{}", data[..len].escape_ascii());
            assert!(is_same(&frame, &value), "{value:?} here and {frame:?} there");
        }
        Err(error) if claims_are_small(data) => {
            let Ok(Some((frame, len))) = resp3::decode::complete::decode(data) else { return };
            let mut written = vec![0; frame.encode_len(false)];
            let is_canonical = is_plain(&frame)
                && resp3::encode::complete::encode(&mut written, &frame, false).is_ok()
                && written == data[..len];
            assert!(!is_canonical, "{error}, yet {} is {frame:?} there", data[..len].escape_ascii());
        }
        _ => {}
    }
}

/// Whether theirs can say it: attributes and RESP2 nulls are kept there, errors are UTF-8, hashed keys, and its own rules for
/// the text of numbers.
fn is_comparable(bytes: &[u8], value: &Value) -> bool {
    let has_null_bulk = bytes.windows(4).any(|w| w == b"$-1\r" || w == b"*-1\r");
    !bytes.contains(&b'|') && !has_null_bulk && is_sayable(value)
}

fn is_sayable(value: &Value) -> bool {
    match value {
        Value::Error(text) => std::str::from_utf8(text).is_ok(),
        Value::Double(number) => number.is_finite(),
        Value::BigNumber(_) | Value::Bulk(_) | Value::Integer(_) | Value::Null | Value::Boolean(_) => true,
        Value::Simple(text) => std::str::from_utf8(text).is_ok(),
        Value::Verbatim { format, .. } => matches!(format, b"txt" | b"mkd"),
        Value::Array(values) => values.iter().all(is_sayable),
        Value::Push(values) => !values.is_empty() && values.iter().all(is_sayable),
        Value::Set(values) => {
            values.iter().all(is_key) && values.iter().enumerate().all(|(i, v)| !values[..i].contains(v))
        }
        Value::Map(pairs) => {
            pairs.iter().all(|(key, value)| is_key(key) && is_sayable(value))
                && pairs.iter().enumerate().all(|(i, (key, _))| pairs[..i].iter().all(|(other, _)| other != key))
        }
    }
}

/// Whether both sides hash the value in the same way.
fn is_key(value: &Value) -> bool {
    matches!(value, Value::Bulk(_) | Value::Integer(_) | Value::Boolean(_))
}

/// Frames without what is refused here by design: HELLO, which is a command; streamed strings; a CR or LF inside a
/// line; and big numbers that are none.
fn is_plain(frame: &OwnedFrame) -> bool {
    let is_line = |text: &[u8]| !text.iter().any(|b| matches!(b, b'\r' | b'\n'));
    match frame {
        OwnedFrame::Hello { .. } | OwnedFrame::ChunkedString(_) => false,
        OwnedFrame::SimpleString { data, .. } => is_line(data),
        OwnedFrame::SimpleError { data, .. } => is_line(data.as_bytes()),
        OwnedFrame::BigNumber { data, .. } => !data.is_empty() && data.iter().all(u8::is_ascii_digit),
        OwnedFrame::Array { data, .. } | OwnedFrame::Push { data, .. } => data.iter().all(is_plain),
        OwnedFrame::Set { data, .. } => data.iter().all(is_plain),
        OwnedFrame::Map { data, .. } => data.iter().all(|(key, value)| is_plain(key) && is_plain(value)),
        _ => true,
    }
}

/// No run of more than three digits, and few aggregates, so that neither a claim nor nesting can hurt theirs; and no
/// attributes, whose own content `is_plain` does not see.
fn claims_are_small(data: &[u8]) -> bool {
    let long_run = data.split(|b| !b.is_ascii_digit()).any(|run| run.len() > 3);
    let aggregates = data.iter().filter(|b| matches!(b, b'*' | b'%' | b'~' | b'>')).count();
    !long_run && aggregates <= 16 && !data.contains(&b'|')
}

fn is_same(theirs: &OwnedFrame, ours: &Value) -> bool {
    match (theirs, ours) {
        (OwnedFrame::SimpleString { data: a, .. }, Value::Simple(b)) => a == b,
        (OwnedFrame::SimpleError { data: a, .. }, Value::Error(b)) => a.as_bytes() == b,
        (OwnedFrame::BlobError { data: a, .. }, Value::Error(b)) => a == b,
        (OwnedFrame::BlobString { data: a, .. }, Value::Bulk(b)) => a == b,
        (OwnedFrame::Number { data: a, .. }, Value::Integer(b)) => a == b,
        (OwnedFrame::Double { data: a, .. }, Value::Double(b)) => a.to_bits() == b.to_bits(),
        (OwnedFrame::Boolean { data: a, .. }, Value::Boolean(b)) => a == b,
        (OwnedFrame::BigNumber { data: a, .. }, Value::BigNumber(b)) => a == b,
        (OwnedFrame::Null, Value::Null) => true,
        (OwnedFrame::VerbatimString { data: a, format, .. }, Value::Verbatim { format: b, text }) => {
            let format = match format {
                VerbatimStringFormat::Text => b"txt",
                VerbatimStringFormat::Markdown => b"mkd",
            };
            a == text && format == b
        }
        (OwnedFrame::Array { data: a, .. }, Value::Array(b)) | (OwnedFrame::Push { data: a, .. }, Value::Push(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (OwnedFrame::Set { data: a, .. }, Value::Set(b)) => {
            a.len() == b.len() && b.iter().all(|b| a.iter().any(|a| is_same(a, b)))
        }
        (OwnedFrame::Map { data: a, .. }, Value::Map(b)) => {
            let holds = |key, value| a.iter().any(|(k, v)| is_same(k, key) && is_same(v, value));
            a.len() == b.len() && b.iter().all(|(key, value)| holds(key, value))
        }
        _ => false,
    }
}
