//! One reply as a tree, for control traffic (HELLO, INFO, CLUSTER SLOTS) and tests. Never on the hot path.

use crate::encode::{self, Version};
use crate::error::ProtocolError;
use crate::length;
use crate::limits::ValueLimits;

/// A decoded reply. Attributes are checked and dropped.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `+`
    Simple(Vec<u8>),
    /// `-` and `!`, code included.
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1`, `*-1`, `_`
    Null,
    /// `,`
    Double(f64),
    /// `#`
    Boolean(bool),
    /// `(`, as its digits.
    BigNumber(Vec<u8>),
    /// `=`
    Verbatim {
        /// Three letters such as `txt`.
        format: [u8; 3],
        /// The text after the colon.
        text: Vec<u8>,
    },
    /// `*`
    Array(Vec<Value>),
    /// `~`
    Set(Vec<Value>),
    /// `%`
    Map(Vec<(Value, Value)>),
    /// `>`
    Push(Vec<Value>),
}

/// An aggregate whose values are still being read.
struct Open {
    kind: u8,
    left: u64,
    values: Vec<Value>,
}

impl Value {
    /// Decodes the value at the front of `input`; gives it with its length in bytes, or `None` if more are needed.
    /// Decoding starts over on each call, so wait for the end of the frame (see [`ReplyFramer`](crate::ReplyFramer)).
    ///
    /// # Errors
    /// Wrong bytes, or a tree beyond `limits`.
    pub fn decode(input: &[u8], limits: &ValueLimits) -> Result<Option<(Self, usize)>, ProtocolError> {
        let mut decoder = Decoder { input, at: 0, nodes_left: limits.nodes_max, bytes_left: limits.bytes_max };
        let mut open: Vec<Open> = Vec::new();
        loop {
            let Some(item) = decoder.item()? else {
                return Ok(None);
            };
            let mut value = match item {
                Item::Scalar(value) => value,
                Item::Aggregate { kind, values } => {
                    if open.len() >= limits.depth_max as usize {
                        return Err(ProtocolError::ReplyDepth);
                    }
                    // Not reserved: the count is only a claim.
                    open.push(Open { kind, left: values, values: Vec::new() });
                    match close_if_done(&mut open) {
                        Some(value) => value,
                        None => continue,
                    }
                }
            };
            loop {
                let Some(parent) = open.last_mut() else {
                    return Ok(Some((value, decoder.at)));
                };
                parent.values.push(value);
                parent.left -= 1;
                match close_if_done(&mut open) {
                    Some(closed) => value = closed,
                    None => break,
                }
            }
        }
    }

    /// Appends the value in the form `version` has for it.
    pub fn encode(&self, out: &mut Vec<u8>, version: Version) {
        enum Todo<'a> {
            Value(&'a Value),
            Pair(&'a (Value, Value)),
        }
        let mut todo = vec![Todo::Value(self)];
        while let Some(next) = todo.pop() {
            let value = match next {
                Todo::Value(value) => value,
                Todo::Pair((key, value)) => {
                    todo.push(Todo::Value(value));
                    key
                }
            };
            match value {
                Self::Simple(text) => encode::simple_bytes(out, text),
                Self::Error(text) => encode::error(out, text),
                Self::Integer(value) => encode::integer(out, *value),
                Self::Bulk(bytes) => encode::bulk(out, bytes),
                Self::Null => encode::null_bulk(out, version),
                Self::Double(value) => encode::double(out, *value, version),
                Self::Boolean(value) => encode::boolean(out, *value, version),
                Self::BigNumber(digits) => encode::big_number(out, digits, version),
                Self::Verbatim { format, text } => encode::verbatim(out, *format, text, version),
                Self::Array(values) | Self::Set(values) | Self::Push(values) => {
                    match value {
                        Self::Array(_) => encode::array(out, values.len()),
                        Self::Set(_) => encode::set(out, values.len(), version),
                        _ => encode::push(out, values.len(), version),
                    }
                    todo.extend(values.iter().rev().map(Todo::Value));
                }
                Self::Map(pairs) => {
                    encode::map(out, pairs.len(), version);
                    todo.extend(pairs.iter().rev().map(Todo::Pair));
                }
            }
        }
    }

    /// Bytes of a string of any kind: simple, bulk, verbatim or big number; `None` for everything else.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(bytes) | Self::Bulk(bytes) | Self::BigNumber(bytes) => Some(bytes),
            Self::Verbatim { text, .. } => Some(text),
            _ => None,
        }
    }

    /// An integer, or a string that is one.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value),
            other => length::number(other.as_bytes()?),
        }
    }

    /// The text of an error reply.
    pub fn as_error(&self) -> Option<&[u8]> {
        match self {
            Self::Error(text) => Some(text),
            _ => None,
        }
    }

    /// Elements of an array, set or push.
    pub fn as_elements(&self) -> Option<&[Value]> {
        match self {
            Self::Array(values) | Self::Set(values) | Self::Push(values) => Some(values),
            _ => None,
        }
    }

    /// The value of `key` in a map, or in the flat array that RESP2 has instead.
    pub fn field(&self, key: &[u8]) -> Option<&Value> {
        match self {
            Self::Map(pairs) => pairs.iter().find(|(k, _)| k.as_bytes() == Some(key)).map(|(_, v)| v),
            Self::Array(values) => {
                values.chunks_exact(2).find(|pair| pair[0].as_bytes() == Some(key)).map(|pair| &pair[1])
            }
            _ => None,
        }
    }
}

/// One item of the input.
enum Item {
    Scalar(Value),
    Aggregate { kind: u8, values: u64 },
}

struct Decoder<'a> {
    input: &'a [u8],
    at: usize,
    nodes_left: u32,
    bytes_left: u32,
}

impl<'a> Decoder<'a> {
    fn item(&mut self) -> Result<Option<Item>, ProtocolError> {
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or(ProtocolError::ReplyTooBig)?;
        let Some((kind, text)) = self.line()? else {
            return Ok(None);
        };
        let scalar = match kind {
            b'+' => Value::Simple(text.to_vec()),
            b'-' => Value::Error(text.to_vec()),
            b':' => Value::Integer(integer(text)?),
            b',' => Value::Double(double(text)?),
            b'#' if text == b"t" => Value::Boolean(true),
            b'#' if text == b"f" => Value::Boolean(false),
            b'_' if text.is_empty() => Value::Null,
            b'(' if is_big_number(text) => Value::BigNumber(text.to_vec()),
            b'$' | b'*' if text == b"-1" => Value::Null,
            b'$' | b'!' | b'=' => return self.bulk(kind, text),
            b'*' | b'~' | b'>' => {
                return Ok(Some(Item::Aggregate { kind, values: count(text)? }));
            }
            b'%' | b'|' => {
                let values = count(text)?.checked_mul(2).ok_or(ProtocolError::ReplyElements)?;
                return Ok(Some(Item::Aggregate { kind, values }));
            }
            b'#' | b'_' | b'(' => return Err(ProtocolError::ReplyScalar),
            got => return Err(ProtocolError::ReplyType { got }),
        };
        Ok(Some(Item::Scalar(scalar)))
    }

    /// Type byte and the rest of its line.
    fn line(&mut self) -> Result<Option<(u8, &'a [u8])>, ProtocolError> {
        let rest = &self.input[self.at..];
        let [kind, text @ ..] = rest else {
            return Ok(None);
        };
        let Some(end) = memchr::memchr2(b'\r', b'\n', text) else {
            return Ok(None);
        };
        match text[end..] {
            [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => {}
            _ => return Err(ProtocolError::ReplyLineEnd),
        }
        self.spend(end as u64)?;
        self.at += 1 + end + 2;
        Ok(Some((*kind, &text[..end])))
    }

    fn bulk(&mut self, kind: u8, text: &[u8]) -> Result<Option<Item>, ProtocolError> {
        let len = count(text)?;
        self.spend(len)?;
        let end = self.at + len as usize;
        let payload = match self.input.get(end..end + 2) {
            Some(b"\r\n") => self.input[self.at..end].to_vec(),
            Some(_) => return Err(ProtocolError::ReplyBulkEnd),
            None => return Ok(None),
        };
        self.at = end + 2;
        let value = match (kind, payload.as_slice()) {
            (b'$', _) => Value::Bulk(payload),
            (b'!', _) => Value::Error(payload),
            (_, &[a, b, c, b':', ref text @ ..]) => Value::Verbatim { format: [a, b, c], text: text.to_vec() },
            _ => return Err(ProtocolError::ReplyScalar),
        };
        Ok(Some(Item::Scalar(value)))
    }

    fn spend(&mut self, bytes: u64) -> Result<(), ProtocolError> {
        let bytes = u32::try_from(bytes).map_err(|_| ProtocolError::ReplyTooBig)?;
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(ProtocolError::ReplyTooBig)?;
        Ok(())
    }
}

/// Takes the innermost aggregate off the stack if all its values are there. A finished attribute just disappears.
fn close_if_done(open: &mut Vec<Open>) -> Option<Value> {
    if open.last().is_none_or(|last| last.left > 0) {
        return None;
    }
    let Open { kind, values, .. } = open.pop()?;
    match kind {
        b'*' => Some(Value::Array(values)),
        b'~' => Some(Value::Set(values)),
        b'>' => Some(Value::Push(values)),
        b'%' => Some(Value::Map(pairs(values))),
        _ => None,
    }
}

fn pairs(values: Vec<Value>) -> Vec<(Value, Value)> {
    let mut values = values.into_iter();
    let mut pairs = Vec::new();
    while let (Some(key), Some(value)) = (values.next(), values.next()) {
        pairs.push((key, value));
    }
    pairs
}

fn count(text: &[u8]) -> Result<u64, ProtocolError> {
    match length::number(text).map(u64::try_from) {
        Some(Ok(count)) => Ok(count),
        _ if text.starts_with(b"?") => Err(ProtocolError::ReplyStreamed),
        _ => Err(ProtocolError::ReplyLength),
    }
}

/// RESP3 allows a sign in front of integers, so `:+5` is one.
fn integer(text: &[u8]) -> Result<i64, ProtocolError> {
    let text = match text {
        [b'+', digits @ ..] if digits.first().is_some_and(u8::is_ascii_digit) => digits,
        _ => text,
    };
    length::number(text).ok_or(ProtocolError::ReplyScalar)
}

fn double(text: &[u8]) -> Result<f64, ProtocolError> {
    // Rust also reads "infinity" and the like; RESP3 has these three words.
    let allowed = |b: &u8| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E');
    match text {
        b"inf" => Ok(f64::INFINITY),
        b"-inf" => Ok(f64::NEG_INFINITY),
        b"nan" | b"-nan" => Ok(f64::NAN),
        _ if text.iter().all(allowed) => {
            std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).ok_or(ProtocolError::ReplyScalar)
        }
        _ => Err(ProtocolError::ReplyScalar),
    }
}

fn is_big_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8]) -> Result<Option<(Value, usize)>, ProtocolError> {
        Value::decode(input, &ValueLimits::default())
    }

    #[test]
    fn hello_replies_have_the_same_fields_in_both_versions() {
        let resp3 = b"%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n$7\r\nmodules\r\n*0\r\n";
        let resp2 = b"*6\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:2\r\n$7\r\nmodules\r\n*0\r\n";
        for (input, proto) in [(&resp3[..], 3), (resp2, 2)] {
            let (hello, len) = decode(input).unwrap().unwrap();
            assert_eq!(len, input.len());
            assert_eq!(hello.field(b"server").and_then(Value::as_bytes), Some(&b"redis"[..]));
            assert_eq!(hello.field(b"proto").and_then(Value::as_integer), Some(proto));
            assert_eq!(hello.field(b"modules").and_then(Value::as_elements), Some(&[][..]));
            assert_eq!(hello.field(b"role"), None);
        }
    }

    #[test]
    fn attributes_are_dropped() {
        let input = b"|1\r\n+ttl\r\n*1\r\n:1\r\n*2\r\n|0\r\n:1\r\n|1\r\n+a\r\n+b\r\n:2\r\n";
        let want = Value::Array(vec![Value::Integer(1), Value::Integer(2)]);
        assert_eq!(decode(input), Ok(Some((want, input.len()))));
    }

    #[test]
    fn scalars_are_judged_when_decoded() {
        for input in [
            &b":\r\n"[..],
            b":x\r\n",
            b":01\r\n",
            b":9223372036854775808\r\n",
            b"#x\r\n",
            b"#\r\n",
            b"_x\r\n",
            b",\r\n",
            b",infinity\r\n",
            b",1,5\r\n",
            b"(1x\r\n",
            b"(\r\n",
            b"=3\r\ntxt\r\n",
            b"=4\r\ntext\r\n",
        ] {
            assert_eq!(decode(input), Err(ProtocolError::ReplyScalar), "{}", input.escape_ascii());
        }
        assert_eq!(decode(b",-inf\r\n"), Ok(Some((Value::Double(f64::NEG_INFINITY), 7))));
        assert_eq!(decode(b":+5\r\n"), Ok(Some((Value::Integer(5), 5))));
    }

    #[test]
    fn wrong_bytes_are_refused_as_in_the_framer() {
        for (input, want) in [
            (&b"$?\r\n"[..], ProtocolError::ReplyStreamed),
            (b"*?\r\n", ProtocolError::ReplyStreamed),
            (b"$-2\r\n", ProtocolError::ReplyLength),
            (b"%-1\r\n", ProtocolError::ReplyLength),
            (b"$01\r\n", ProtocolError::ReplyLength),
            (b"$1\r\nab\r\n", ProtocolError::ReplyBulkEnd),
            (b"+a\nb\r\n", ProtocolError::ReplyLineEnd),
            (b"?\r\n", ProtocolError::ReplyType { got: b'?' }),
        ] {
            assert_eq!(decode(input), Err(want), "{}", input.escape_ascii());
        }
    }

    #[test]
    fn trees_are_bounded() {
        assert_eq!(decode(&b"*1\r\n".repeat(33)), Err(ProtocolError::ReplyDepth));
        assert_eq!(decode(&b"|1\r\n".repeat(100_000)), Err(ProtocolError::ReplyDepth));
        assert_eq!(decode(b"$536870912\r\n"), Err(ProtocolError::ReplyTooBig));
        assert_eq!(decode(b"*9223372036854775807\r\n"), Ok(None));
        let many = [b"*70000\r\n".to_vec(), b":1\r\n".repeat(70_000)].concat();
        assert_eq!(decode(&many), Err(ProtocolError::ReplyTooBig));
        // Empty attributes hold nothing, yet they count: a peer cannot keep the decoder busy with them for ever.
        assert_eq!(decode(&b"|0\r\n".repeat(70_000)), Err(ProtocolError::ReplyTooBig));
    }
}
