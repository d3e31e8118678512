//! The header in front of every message: four numbers, little endian.

use crate::error::MessageError;
use crate::limits::MESSAGE_BYTES_MAX;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;

/// Where the ids of a header are: its request, and the request that it answers.
const REQUEST_AT: usize = 4;
const RESPONSE_TO_AT: usize = 8;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpCode {
    /// OP_MSG: everything since 3.6.
    Msg,
    /// OP_COMPRESSED: another message, compressed.
    Compressed,
    /// OP_QUERY: the first message of drivers that may meet an old server.
    Query,
    /// OP_REPLY: the reply to OP_QUERY.
    Reply,
    /// OP_UPDATE, OP_INSERT, OP_GET_MORE, OP_DELETE, OP_KILL_CURSORS, and those between servers (2010, 2011). Servers since 5.1 have
    /// none of them.
    Retired(i32),
}

impl OpCode {
    /// From its number on the wire.
    pub const fn of(number: i32) -> Option<Self> {
        match number {
            2013 => Some(Self::Msg),
            2012 => Some(Self::Compressed),
            2004 => Some(Self::Query),
            1 => Some(Self::Reply),
            2001 | 2002 | 2005..=2007 | 2010 | 2011 => Some(Self::Retired(number)),
            _ => None,
        }
    }

    /// Its number on the wire.
    pub const fn number(self) -> i32 {
        match self {
            Self::Msg => 2013,
            Self::Compressed => 2012,
            Self::Query => 2004,
            Self::Reply => 1,
            Self::Retired(number) => number,
        }
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the message with this header.
    pub bytes: usize,
    /// The sender's id of the message. It may be any number, and may be repeated.
    pub request: i32,
    /// The id of the message that this one replies to; 0 in requests.
    pub response_to: i32,
    /// The kind of the message.
    pub op_code: OpCode,
}

impl Header {
    /// The header that `input` begins with; `None`: its bytes are not there yet. A wrong length is found with its four bytes.
    ///
    /// # Errors
    /// [`MessageError::Length`], [`MessageError::CrossProtocol`] and [`MessageError::OpCode`].
    #[inline]
    pub fn read(input: &[u8]) -> Result<Option<Self>, MessageError> {
        let Some(&first) = input.first_chunk::<4>() else { return Ok(None) };
        let claimed = i32::from_le_bytes(first);
        // A negative length becomes a huge one.
        let bytes = claimed as u32 as usize;
        if !(HEADER_BYTES..=MESSAGE_BYTES_MAX).contains(&bytes) {
            return Err(if is_foreign(first) { MessageError::CrossProtocol } else { MessageError::Length { claimed } });
        }
        let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let number = |at: usize| i32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let op_code = OpCode::of(number(12)).ok_or(MessageError::OpCode(number(12)))?;
        Ok(Some(Self { bytes, request: number(REQUEST_AT), response_to: number(RESPONSE_TO_AT), op_code }))
    }

    /// Appends the header.
    pub fn write(&self, out: &mut Vec<u8>) {
        debug_assert!(self.bytes <= MESSAGE_BYTES_MAX, "callers own the size of a message");
        let numbers = [self.bytes as i32, self.request, self.response_to, self.op_code.number()];
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }
}

/// The first bytes of a request of HTTP, or of a command of Redis. As a length each is beyond the limit.
const fn is_foreign(first: [u8; 4]) -> bool {
    matches!(
        &first,
        b"GET " | b"HEAD" | b"POST" | b"PUT " | b"DELE" | b"CONN" | b"OPTI" | b"TRAC" | b"PATC" | b"PRI " | b"PING"
    ) || matches!(first, [b'*', b'0'..=b'9', ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: i32, op_code: i32) -> Vec<u8> {
        [length, 7, 9, op_code].iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn a_header_is_found_with_its_last_byte_and_not_before() {
        let input = bytes(21, 2013);
        for cut in 0..HEADER_BYTES {
            assert_eq!(Header::read(&input[..cut]), Ok(None), "cut at {cut}");
        }
        let header = Header { bytes: 21, request: 7, response_to: 9, op_code: OpCode::Msg };
        assert_eq!(Header::read(&input), Ok(Some(header)));
        let mut out = Vec::new();
        header.write(&mut out);
        assert_eq!(out, input);
    }

    #[test]
    fn m1_lengths_that_are_none_are_refused_with_their_four_bytes() {
        for claimed in [i32::MIN, -1, 0, 1, 15, MESSAGE_BYTES_MAX as i32 + 1, i32::MAX] {
            let input = bytes(claimed, 2013);
            assert_eq!(Header::read(&input[..4]), Err(MessageError::Length { claimed }));
        }
        for length in [16, MESSAGE_BYTES_MAX as i32] {
            assert!(Header::read(&bytes(length, 2013)).is_ok_and(|header| header.is_some()));
        }
    }

    #[test]
    fn m1_requests_of_http_and_redis_are_recognised() {
        for foreign in [&b"GET / HTTP/1.1\r\n"[..], b"POST", b"*1\r\n$4\r\nPING\r\n", b"PRI * HTTP/2.0"] {
            assert_eq!(Header::read(foreign), Err(MessageError::CrossProtocol));
        }
        // A ClientHello of TLS has a possible length, and no opcode.
        let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefgh";
        assert!(matches!(Header::read(hello), Err(MessageError::OpCode(_))));
    }

    #[test]
    fn each_opcode_is_its_number() {
        for number in [1, 2001, 2002, 2004, 2005, 2006, 2007, 2010, 2011, 2012, 2013] {
            assert_eq!(OpCode::of(number).map(OpCode::number), Some(number));
        }
        for number in [0, -1, 1000, 2000, 2003, 2008, 2009, 2014] {
            assert_eq!(OpCode::of(number), None);
            assert_eq!(Header::read(&bytes(16, number)), Err(MessageError::OpCode(number)));
        }
    }
}
