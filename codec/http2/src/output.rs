//! Frames that wait to be sent.

use crate::{
    error_code::ErrorCode,
    frame::{FRAME_HEADER_BYTES, flags, write},
};

/// Fewer bytes are copied: a buffer that stays is worth more than a copy that is saved.
const SWAPPED_BYTES_MIN: usize = 4 * 1024;

/// Memory that an idle connection keeps.
const KEPT_BYTES: usize = 512;

/// The last frame of data in the buffer, as long as nothing stands behind it: what follows on its stream can still go into it.
#[derive(Clone, Copy, Debug)]
struct Tail {
    number: u32,
    start: usize,
    end: usize,
}

/// The buffer of a connection.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    tail: Option<Tail>,
    /// Bytes of control frames that the frames of the peer require, and that wait: acknowledgements, resets, window updates.
    control_bytes: usize,
}

impl Output {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// As the field of this name.
    #[inline]
    pub(crate) fn control_bytes(&self) -> usize {
        self.control_bytes
    }

    /// Appends control frames in reply to one of the peer's.
    pub(crate) fn control(&mut self, frames: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        frames(&mut self.bytes);
        self.control_bytes += self.bytes.len() - before;
    }

    pub(crate) fn reset(&mut self, number: u32, code: ErrorCode) {
        self.control(|into| write::rst_stream(into, number, code));
    }

    /// Appends the header block of a stream that `encode` makes.
    pub(crate) fn headers(
        &mut self,
        number: u32,
        is_end: bool,
        frame_bytes_max: u32,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        write::headers(&mut self.bytes, number, is_end, frame_bytes_max, encode);
    }

    /// The last frame, if it has data of the stream.
    #[inline]
    fn tail_of(&mut self, number: u32) -> Option<&mut Tail> {
        let end = self.bytes.len();
        self.tail.as_mut().filter(|tail| tail.number == number && tail.end == end)
    }

    /// Appends data of a stream, in the last frame if that is one of it and has room. `frame_bytes_max`: what a frame may have.
    pub(crate) fn data(&mut self, number: u32, mut data: &[u8], is_end: bool, frame_bytes_max: usize) {
        let end = self.bytes.len();
        if let Some(tail) = self.tail_of(number) {
            let start = tail.start;
            let before = end - start - FRAME_HEADER_BYTES;
            let (joined, rest) = data.split_at(data.len().min(frame_bytes_max.saturating_sub(before)));
            tail.end += joined.len();
            let length = ((before + joined.len()) as u32).to_be_bytes();
            self.bytes[start..start + 3].copy_from_slice(&length[1..]);
            self.bytes.extend_from_slice(joined);
            data = rest;
            if data.is_empty() {
                if is_end {
                    self.bytes[start + 4] |= flags::END_STREAM;
                }
                return;
            }
        }
        let mut pieces = data.chunks(frame_bytes_max).peekable();
        while let Some(piece) = pieces.next() {
            let start = self.bytes.len();
            let is_last = pieces.peek().is_none();
            write::data(&mut self.bytes, number, piece, is_end && is_last);
            self.tail = Some(Tail { number, start, end: self.bytes.len() });
        }
    }

    /// Ends a stream behind its last frame of data. A head is left as it is: a request of gRPC without a message ends with an empty frame of
    /// data (gRPC over HTTP/2, "Requests"), and grpc-go waits for it.
    pub(crate) fn end(&mut self, number: u32) {
        match self.tail_of(number) {
            Some(tail) => {
                let start = tail.start;
                self.bytes[start + 4] |= flags::END_STREAM;
            }
            None => write::data(&mut self.bytes, number, b"", true),
        }
    }

    /// Moves all to the end of `into`. `is_idle`: the connection has no stream, and keeps little memory.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>, is_idle: bool) {
        if into.is_empty() && self.bytes.len() >= SWAPPED_BYTES_MIN {
            std::mem::swap(into, &mut self.bytes);
        } else {
            into.extend_from_slice(&self.bytes);
            self.bytes.clear();
        }
        (self.tail, self.control_bytes) = (None, 0);
        if is_idle {
            self.rest();
        }
    }

    /// The connection has no stream: an empty buffer keeps little memory.
    pub(crate) fn rest(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_stream_share_frames_up_to_the_limit_and_the_last_one_ends_it() {
        let mut output = Output::default();
        output.data(1, b"abc", false, 5);
        output.data(1, b"defg", false, 5);
        output.data(3, b"x", false, 5);
        output.data(1, b"h", false, 5);
        output.end(1);
        output.end(3);
        let mut expected = Vec::new();
        write::data(&mut expected, 1, b"abcde", false);
        write::data(&mut expected, 1, b"fg", false);
        write::data(&mut expected, 3, b"x", false);
        write::data(&mut expected, 1, b"h", true);
        write::data(&mut expected, 3, b"", true);
        assert_eq!(output.bytes, expected);
        let mut into = vec![9];
        output.take(&mut into, true);
        assert_eq!((into[0], &into[1..], output.len()), (9, &expected[..], 0));
        output.end(3);
        assert_eq!(output.bytes.len(), 9, "the frame before has left");
    }

    #[test]
    fn a_head_whose_body_turns_out_to_be_empty_is_followed_by_an_empty_frame() {
        let (mut output, mut expected) = (Output::default(), Vec::new());
        output.headers(1, false, 16, |into| into.extend_from_slice(b"block"));
        output.end(1);
        write::headers(&mut expected, 1, false, 16, |into| into.extend_from_slice(b"block"));
        write::data(&mut expected, 1, b"", true);
        assert_eq!(output.bytes, expected);
    }
}
