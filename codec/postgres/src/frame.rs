//! Messages in a stream: a type byte, a length that counts itself, a body.

use crate::error::FrameError;
use crate::limits::MESSAGE_BYTES_MAX;

/// Bytes of the head of a message.
pub const HEAD_BYTES: usize = 5;

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The type byte.
    pub tag: u8,
    /// Bytes of the body: the length field less its own 4.
    pub body: usize,
}

impl Head {
    /// Bytes of the message with its head.
    pub const fn whole(self) -> usize {
        HEAD_BYTES + self.body
    }
}

/// The head that `input` begins with; `None`: its five bytes are not there yet.
///
/// # Errors
/// The length is below 4, or its body has more than [`MESSAGE_BYTES_MAX`] bytes.
#[inline]
pub fn head(input: &[u8]) -> Result<Option<Head>, FrameError> {
    let Some(&[tag, a, b, c, d]) = input.first_chunk() else { return Ok(None) };
    let claimed = i32::from_be_bytes([a, b, c, d]);
    // A length below 4 or with its sign set becomes a huge body.
    let body = (claimed as u32).wrapping_sub(4) as usize;
    if body > MESSAGE_BYTES_MAX {
        return Err(FrameError { tag, claimed });
    }
    Ok(Some(Head { tag, body }))
}

/// The next bytes of a direction: they belong to one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The type byte of the message.
    pub tag: u8,
    /// Bytes at the front of the input that belong to it, the head included if the piece starts it.
    pub bytes: usize,
    /// The message starts with this piece.
    pub is_start: bool,
    /// The message ends with this piece.
    pub is_end: bool,
    /// Bytes of the message that follow this piece.
    pub body_left: usize,
}

impl Piece {
    /// The piece is the message.
    pub const fn is_whole(&self) -> bool {
        self.is_start && self.is_end
    }

    /// Where the body begins in the piece.
    pub const fn body_start(&self) -> usize {
        if self.is_start { HEAD_BYTES } else { 0 }
    }
}

/// Follows one direction of a connection and stores none of it.
///
/// The caller takes the bytes of each piece off its input and calls again with the rest. A message of which the head is not whole gives
/// no piece: its up to 4 bytes stay with the caller, and nothing of a message goes on before its length is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framer {
    tag: u8,
    /// Bytes of the present message that are still to come.
    left: usize,
}

impl Framer {
    /// The next piece of `input`; `None`: the head of the next message is not whole, or there is no input.
    ///
    /// # Errors
    /// As [`head`]. The framer is of no more use.
    #[inline]
    pub fn next(&mut self, input: &[u8]) -> Result<Option<Piece>, FrameError> {
        if self.left > 0 {
            return Ok(self.more(input));
        }
        let Some(head) = head(input)? else { return Ok(None) };
        let bytes = head.whole().min(input.len());
        self.tag = head.tag;
        self.left = head.whole() - bytes;
        Ok(Some(Piece { tag: head.tag, bytes, is_start: true, is_end: self.left == 0, body_left: self.left }))
    }

    /// The next message starts with the next byte.
    #[inline]
    pub const fn is_between_messages(&self) -> bool {
        self.left == 0
    }

    /// Bytes of the present message that are still to come.
    pub const fn body_left(&self) -> usize {
        self.left
    }

    fn more(&mut self, input: &[u8]) -> Option<Piece> {
        if input.is_empty() {
            return None;
        }
        let bytes = self.left.min(input.len());
        self.left -= bytes;
        Some(Piece { tag: self.tag, bytes, is_start: false, is_end: self.left == 0, body_left: self.left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_found_with_its_last_byte_and_not_before() {
        let input = [b'D', 0, 0, 1, 4, 9, 9];
        for cut in 0..HEAD_BYTES {
            assert_eq!(head(&input[..cut]), Ok(None), "cut at {cut}");
        }
        assert_eq!(head(&input[..HEAD_BYTES]), Ok(Some(Head { tag: b'D', body: 256 })));
        assert_eq!(head(&input), Ok(Some(Head { tag: b'D', body: 256 })));
    }

    #[test]
    fn p19_lengths_that_are_none_are_refused_with_the_head() {
        for claimed in [i32::MIN, -1, 0, 1, 3, MESSAGE_BYTES_MAX as i32 + 5, i32::MAX] {
            let mut input = vec![b'D'];
            input.extend_from_slice(&claimed.to_be_bytes());
            assert_eq!(head(&input), Err(FrameError { tag: b'D', claimed }));
            assert_eq!(Framer::default().next(&input), Err(FrameError { tag: b'D', claimed }));
        }
        for body in [0, 1, MESSAGE_BYTES_MAX] {
            let mut input = vec![b'D'];
            input.extend_from_slice(&(body as i32 + 4).to_be_bytes());
            assert_eq!(head(&input), Ok(Some(Head { tag: b'D', body })));
        }
    }

    /// The hot path of the gateway: it is copied with each connection and fits two words.
    #[test]
    fn a_framer_is_two_words() {
        assert!(size_of::<Framer>() <= 16);
    }

    #[test]
    fn a_message_in_pieces_is_named_by_each() {
        let input = [b'd', 0, 0, 0, 7, 1, 2, 3, b'c', 0, 0, 0, 4];
        let mut framer = Framer::default();
        let first = Piece { tag: b'd', bytes: 6, is_start: true, is_end: false, body_left: 2 };
        assert_eq!(framer.next(&input[..6]), Ok(Some(first)));
        assert!(!framer.is_between_messages());
        assert_eq!(framer.next(&[]), Ok(None));
        let second = Piece { tag: b'd', bytes: 2, is_start: false, is_end: true, body_left: 0 };
        assert_eq!(framer.next(&input[6..]), Ok(Some(second)));
        assert!(framer.is_between_messages());
        assert_eq!(framer.next(&input[8..12]), Ok(None));
        assert!(framer.next(&input[8..]).unwrap().unwrap().is_whole());
    }
}
