//! The reply to EXEC, element by element, while it arrives in pieces.

use weir_resp::{ReplyFramer, ReplyLimits};

/// Where in the reply the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    Type,
    Count,
    Elements,
    /// No array: a watched key prevented it, or it failed.
    Nothing,
}

/// A piece of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// The head of the array, or a reply that is none.
    Outside(&'a [u8]),
    /// Bytes of the reply to the command at `place`, counted from 0. `end`: set with the last bytes, true for an error.
    Inside { place: u32, bytes: &'a [u8], end: Option<bool> },
}

/// A reply to EXEC on its way.
#[derive(Debug)]
pub(crate) struct ExecReply {
    head: Head,
    framer: ReplyFramer,
    place: u32,
}

impl Default for ExecReply {
    fn default() -> Self {
        Self { head: Head::Type, framer: ReplyFramer::new(ReplyLimits::default()), place: 0 }
    }
}

impl ExecReply {
    /// Takes the next piece off the front of `bytes`; `None` if nothing is left.
    pub(crate) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Piece<'a>> {
        let first = *bytes.first()?;
        match self.head {
            Head::Type => {
                self.head = if first == b'*' { Head::Count } else { Head::Nothing };
                Some(Piece::Outside(take(bytes, 1)))
            }
            Head::Count => {
                if first == b'\n' {
                    self.head = Head::Elements;
                }
                Some(Piece::Outside(take(bytes, 1)))
            }
            Head::Nothing => Some(Piece::Outside(take(bytes, usize::MAX))),
            Head::Elements => {
                // The lane has framed the reply already; what it took for whole cannot be broken here.
                let Ok(scan) = self.framer.advance(bytes) else {
                    self.head = Head::Nothing;
                    return self.next(bytes);
                };
                let (place, end) = (self.place, scan.end.map(|kind| kind.is_error()));
                self.place += u32::from(end.is_some());
                Some(Piece::Inside { place, bytes: take(bytes, scan.taken), end })
            }
        }
    }
}

/// Splits so many off the front, or all that is there.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (piece, rest) = bytes.split_at(count.min(bytes.len()));
    *bytes = rest;
    piece
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element, and whether it is an error, if it has come to its end.
    type Element = (Vec<u8>, Option<bool>);

    /// The bytes outside the elements, and each element.
    fn taken_apart(reply: &[u8], size: usize) -> (Vec<u8>, Vec<Element>) {
        let (mut outside, mut elements) = (Vec::new(), Vec::<Element>::new());
        let mut exec = ExecReply::default();
        for mut part in reply.chunks(size) {
            while let Some(piece) = exec.next(&mut part) {
                match piece {
                    Piece::Outside(bytes) => outside.extend_from_slice(bytes),
                    Piece::Inside { place, bytes, end } => {
                        elements.resize(place as usize + 1, Default::default());
                        elements[place as usize].0.extend_from_slice(bytes);
                        elements[place as usize].1 = end;
                    }
                }
            }
        }
        (outside, elements)
    }

    #[test]
    fn elements_are_found_however_the_reply_is_cut() {
        let reply = b"*4\r\n+OK\r\n*2\r\n$1\r\nx\r\n*0\r\n-ERR DB\r\n%1\r\n+a\r\n:1\r\n";
        for size in 1..reply.len() {
            let (outside, elements) = taken_apart(reply, size);
            let wanted: [(&[u8], _); 4] = [
                (b"+OK\r\n", Some(false)),
                (b"*2\r\n$1\r\nx\r\n*0\r\n", Some(false)),
                (b"-ERR DB\r\n", Some(true)),
                (b"%1\r\n+a\r\n:1\r\n", Some(false)),
            ];
            assert_eq!(outside, b"*4\r\n");
            assert!(elements.iter().map(|(bytes, end)| (&bytes[..], *end)).eq(wanted), "{size}");
        }
    }

    #[test]
    fn a_reply_that_is_no_array_has_no_elements() {
        for reply in [&b"*-1\r\n"[..], b"_\r\n", b"-EXECABORT no\r\n", b"*0\r\n"] {
            for size in 1..reply.len() {
                assert_eq!(taken_apart(reply, size), (reply.to_vec(), Vec::new()));
            }
        }
    }
}
