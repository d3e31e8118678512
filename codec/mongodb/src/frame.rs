//! A direction of a connection, message by message.

use crate::error::MessageError;
use crate::header::{HEADER_BYTES, Header};

/// The next bytes of a direction: they belong to one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The header of the message.
    pub header: Header,
    /// Bytes at the front of the input that belong to it, the header included if the piece starts it.
    pub bytes: usize,
    /// The message starts with this piece.
    pub is_start: bool,
    /// Bytes of the message that follow this piece.
    pub left: usize,
}

impl Piece {
    /// The message ends with this piece.
    pub const fn is_end(&self) -> bool {
        self.left == 0
    }

    /// The piece is the message.
    pub const fn is_whole(&self) -> bool {
        self.is_start && self.left == 0
    }

    /// Where the part behind the header begins in the piece.
    pub const fn body_start(&self) -> usize {
        if self.is_start { HEADER_BYTES } else { 0 }
    }
}

/// Follows one direction of a connection and stores none of it.
///
/// The caller takes the bytes of each piece off its input and calls again with the rest. A message of which the header is not whole
/// gives no piece: its up to 15 bytes stay with the caller, and nothing of a message goes on before its length is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framer {
    /// The message that has begun and not ended.
    present: Option<Header>,
    /// Bytes of it that are still to come.
    left: usize,
}

impl Framer {
    /// The next piece of `input`; `None`: the header of the next message is not whole, or there is no input.
    ///
    /// # Errors
    /// As [`Header::read`]. The framer is of no more use.
    #[inline]
    pub fn next(&mut self, input: &[u8]) -> Result<Option<Piece>, MessageError> {
        let (header, due) = match self.present {
            Some(_) if input.is_empty() => return Ok(None),
            Some(header) => (header, self.left),
            None => match Header::read(input)? {
                Some(header) => (header, header.bytes),
                None => return Ok(None),
            },
        };
        let is_start = self.present.is_none();
        let bytes = due.min(input.len());
        self.left = due - bytes;
        self.present = (self.left > 0).then_some(header);
        Ok(Some(Piece { header, bytes, is_start, left: self.left }))
    }

    /// The next message starts with the next byte.
    #[inline]
    pub const fn is_between_messages(&self) -> bool {
        self.present.is_none()
    }

    /// Bytes of the present message that are still to come.
    pub const fn left(&self) -> usize {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::OpCode;

    fn message(request: i32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Header { bytes: HEADER_BYTES + body.len(), request, response_to: 0, op_code: OpCode::Msg }.write(&mut out);
        out.extend_from_slice(body);
        out
    }

    /// The hot path of the gateway: it is a part of each connection.
    #[test]
    fn a_framer_is_small() {
        assert!(size_of::<Framer>() <= 48);
    }

    #[test]
    fn a_message_in_pieces_is_named_by_each() {
        let input = [message(1, &[1, 2, 3]), message(2, &[])].concat();
        let mut framer = Framer::default();
        assert_eq!(framer.next(&input[..15]), Ok(None));
        let first = framer.next(&input[..17]).unwrap().unwrap();
        assert_eq!((first.header.request, first.bytes, first.is_start, first.left), (1, 17, true, 2));
        assert_eq!((first.body_start(), first.is_whole()), (16, false));
        assert!(!framer.is_between_messages());
        assert_eq!(framer.next(&[]), Ok(None));
        let second = framer.next(&input[17..]).unwrap().unwrap();
        assert_eq!((second.header.request, second.bytes, second.is_start, second.is_end()), (1, 2, false, true));
        assert_eq!(second.body_start(), 0);
        assert!(framer.is_between_messages() && framer.left() == 0);
        assert!(framer.next(&input[19..]).unwrap().unwrap().is_whole());
    }

    #[test]
    fn m1_a_length_that_is_none_stops_the_framer() {
        let mut framer = Framer::default();
        assert_eq!(framer.next(&15_i32.to_le_bytes()), Err(MessageError::Length { claimed: 15 }));
    }
}
