//! The bytes of server-sent events in chunks of HTTP/1.1, with whatever line ends and cuts a test wants.

use weir_http_codec::encode;

use super::directive::one_of;

/// Ends of lines (WHATWG HTML, section 9.2.6: any of the three).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnds {
    /// `lf`.
    #[default]
    Lf,
    /// `crlf`.
    CrLf,
    /// `cr`.
    Cr,
    /// `mixed`: each event has the next of the three.
    Mixed,
}

impl LineEnds {
    /// Those of a word.
    pub fn of(word: &str) -> Option<Self> {
        one_of(word, &[("lf", Self::Lf), ("crlf", Self::CrLf), ("cr", Self::Cr), ("mixed", Self::Mixed)])
    }

    fn at(self, event: usize) -> &'static [u8] {
        match (self, event % 3) {
            (Self::Lf, _) | (Self::Mixed, 0) => b"\n",
            (Self::CrLf, _) | (Self::Mixed, 1) => b"\r\n",
            (Self::Cr, _) | (Self::Mixed, _) => b"\r",
        }
    }
}

/// Chunks of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// `events`: one for each event.
    #[default]
    Events,
    /// `utf8`: each ends behind the first byte of a character of several bytes.
    Utf8,
    /// `bytes`: one for each byte.
    Bytes,
}

impl Split {
    /// That of a word.
    pub fn of(word: &str) -> Option<Self> {
        one_of(word, &[("events", Self::Events), ("utf8", Self::Utf8), ("bytes", Self::Bytes)])
    }
}

/// Writes events.
#[derive(Debug)]
pub struct Framer {
    lines: LineEnds,
    split: Split,
    has_comments: bool,
    events: usize,
    /// The event before its chunks.
    event: Vec<u8>,
}

impl Framer {
    /// At the front of a body.
    pub fn new(lines: LineEnds, split: Split, has_comments: bool) -> Self {
        Self { lines, split, has_comments, events: 0, event: Vec::new() }
    }

    /// An event goes out in pieces that have to arrive apart.
    pub fn is_split(&self) -> bool {
        self.split != Split::Events
    }

    /// Appends an event with its name, if it has one, and its data.
    pub fn event(&mut self, name: Option<&str>, data: &[u8], out: &mut Vec<u8>) {
        let end = self.lines.at(self.events);
        self.events += 1;
        self.event.clear();
        if self.has_comments {
            self.event.extend_from_slice(b": weir");
            self.event.extend_from_slice(end);
        }
        if let Some(name) = name {
            self.event.extend_from_slice(b"event: ");
            self.event.extend_from_slice(name.as_bytes());
            self.event.extend_from_slice(end);
        }
        if !data.is_empty() {
            self.event.extend_from_slice(b"data: ");
            self.event.extend_from_slice(data);
            self.event.extend_from_slice(end);
        }
        self.event.extend_from_slice(end);
        self.chunks(out);
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.event.clear();
        self.event.extend_from_slice(bytes);
        self.chunks(out);
    }

    fn chunks(&self, out: &mut Vec<u8>) {
        match self.split {
            Split::Events => encode::chunk(&self.event, out),
            Split::Bytes => self.event.chunks(1).for_each(|byte| encode::chunk(byte, out)),
            Split::Utf8 => {
                let mut begin = 0;
                for (at, byte) in self.event.iter().enumerate() {
                    if *byte >= 0xc0 {
                        encode::chunk(&self.event[begin..=at], out);
                        begin = at + 1;
                    }
                }
                encode::chunk(&self.event[begin..], out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_http_codec::{BodyDecoder, BodyLength, BodyLimits};

    use super::*;

    /// The chunks, and their number.
    fn bodies(wire: &[u8]) -> (Vec<u8>, usize) {
        let (mut decoder, mut rest, mut body, mut count) = (BodyDecoder::new(BodyLength::Chunked), wire, Vec::new(), 0);
        loop {
            let piece = decoder.decode(rest, &BodyLimits::default()).expect("chunks");
            if piece.taken == 0 {
                return (body, count);
            }
            count += usize::from(!piece.data.is_empty());
            body.extend_from_slice(piece.data);
            rest = &rest[piece.taken..];
        }
    }

    #[test]
    fn an_event_is_the_same_in_whatever_chunks() {
        for (split, least) in [(Split::Events, 1), (Split::Utf8, 3), (Split::Bytes, 20)] {
            let (mut framer, mut wire) = (Framer::new(LineEnds::Lf, split, true), Vec::new());
            framer.event(Some("a"), "x\u{e9}y\u{1f600}z".as_bytes(), &mut wire);
            let (body, count) = bodies(&wire);
            assert_eq!(String::from_utf8(body).expect("whole"), ": weir\nevent: a\ndata: x\u{e9}y\u{1f600}z\n\n");
            assert!(count >= least, "{split:?}: {count}");
        }
    }

    #[test]
    fn line_ends_are_those_of_the_word() {
        let all = |lines| {
            let (mut framer, mut wire) = (Framer::new(lines, Split::Events, false), Vec::new());
            (0..3).for_each(|_| framer.event(None, b"1", &mut wire));
            String::from_utf8(bodies(&wire).0).expect("text")
        };
        assert_eq!(all(LineEnds::Mixed), "data: 1\n\ndata: 1\r\n\r\ndata: 1\r\r");
        assert_eq!(all(LineEnds::Cr), "data: 1\r\r".repeat(3));
        assert_eq!(all(LineEnds::CrLf), "data: 1\r\n\r\n".repeat(3));
    }
}
