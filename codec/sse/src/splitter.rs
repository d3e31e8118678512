//! Follows a stream of events (section 9.2.6, "Interpreting an event stream").

use crate::error::SseError;
use crate::field::Field;
use crate::limits::{KEPT_BYTES_MAX, Limits};

/// The mark that may stand in front of the first line, without meaning.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// The kind of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An event: from its first field to the blank line behind it. Comments between its lines are a part of it.
    Event,
    /// A line of comment outside of an event, with its end.
    Comment,
    /// A blank line outside of an event.
    Blank,
    /// The LF of a CRLF of which the CR ended the unit before, and the piece with it. A unit does not wait for a byte
    /// that a sender with bare CRs would not send. The LF shares the fate of the unit before it.
    LineFeed,
}

/// The next unit of a stream. All units together are the stream, byte for byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// The kind.
    pub kind: Kind,
    /// Bytes at the front of the given piece that belong to it.
    pub bytes: usize,
    /// Where it begins in the stream.
    pub start: u64,
    /// Behind its last byte in the stream.
    pub end: u64,
    /// The name of an event: the value of its last `event` field. `None`: it has none, and readers take it for
    /// `message`.
    pub name: Option<&'a [u8]>,
    /// The data of an event: its `data` fields, joined by LF. `None`: it has none, and readers skip it.
    pub data: Option<&'a [u8]>,
}

/// Splits a stream into units. It holds the beginning of a line that a piece cuts, and the fields of an event that a
/// piece cuts.
#[derive(Clone, Debug, Default)]
pub struct Splitter {
    limits: Limits,
    /// Bytes in front of the present piece.
    offset: u64,
    /// Where the present unit begins.
    start: u64,
    /// Where the present line begins.
    line_start: u64,
    /// The beginning of the present line in earlier pieces.
    line: Vec<u8>,
    /// A field of an event has been seen.
    is_in_event: bool,
    /// The last byte was a CR: an LF belongs to it.
    is_behind_cr: bool,
    name: Field,
    data: Field,
}

impl Splitter {
    /// At the beginning of a stream.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// The next unit that ends in `piece`. The next call takes the bytes behind it.
    ///
    /// `None`: no further unit ends in the piece, and the splitter has taken all of its bytes. The next call takes the
    /// next piece.
    ///
    /// # Errors
    /// A line or an event beyond its limit. The splitter is of no more use.
    pub fn next<'a>(&'a mut self, piece: &'a [u8]) -> Result<Option<Unit<'a>>, SseError> {
        if !self.is_in_event {
            self.name.clear();
            self.data.clear();
        }
        let mut at = 0;
        if self.is_behind_cr && !piece.is_empty() {
            self.is_behind_cr = false;
            if piece[0] == b'\n' {
                at = 1;
                if self.line_start == self.start {
                    return Ok(Some(self.unit(Kind::LineFeed, at, piece)));
                }
                self.line_start += 1;
            }
        }
        loop {
            let rest = &piece[at..];
            let Some(length) = line_end(rest) else {
                self.keep(rest, piece)?;
                return Ok(None);
            };
            self.check(self.line.len() + length)?;
            let end = at + length;
            let kind = self.line(at, end, piece);
            at = end + self.terminator(&piece[end..]);
            self.line_start = self.offset + at as u64;
            if let Some(kind) = kind {
                return Ok(Some(self.unit(kind, at, piece)));
            }
        }
    }

    /// The next byte begins a unit: nothing is under way. Behind a bare CR an LF may still come.
    pub fn is_between_units(&self) -> bool {
        !self.is_in_event && self.line.is_empty() && self.line_start == self.start
    }

    /// Bytes of the unit under way that [`next`](Self::next) has taken.
    pub fn pending_bytes(&self) -> u64 {
        self.offset - self.start
    }

    /// Bytes of the stream that [`next`](Self::next) has taken.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Takes the line `start..end` of the piece. The kind of the unit that ends with it, if one does.
    fn line(&mut self, start: usize, end: usize, piece: &[u8]) -> Option<Kind> {
        if self.line.is_empty() {
            let skipped = if self.line_start == 0 && piece[start..end].starts_with(&BYTE_ORDER_MARK) { 3 } else { 0 };
            return self.whole_line(start + skipped, end, piece);
        }
        self.line.extend_from_slice(&piece[start..end]);
        let line = std::mem::take(&mut self.line);
        let skipped = if self.line_start == 0 && line.starts_with(&BYTE_ORDER_MARK) { 3 } else { 0 };
        let kind = self.cut_line(&line[skipped..], piece);
        if line.capacity() <= KEPT_BYTES_MAX {
            self.line = line;
            self.line.clear();
        }
        kind
    }

    /// A line that is whole in the piece.
    #[inline]
    fn whole_line(&mut self, start: usize, end: usize, piece: &[u8]) -> Option<Kind> {
        let line = &piece[start..end];
        match field(line) {
            Line::Field(Name::Data, skipped) if self.data.is_absent() => self.data.set(start + skipped..end),
            Line::Field(Name::Data, skipped) => self.data.join(&line[skipped..], piece),
            Line::Field(Name::Event, skipped) => self.name.set(start + skipped..end),
            Line::Field(Name::Other, _) => {}
            other => return self.no_field(&other),
        }
        self.is_in_event = true;
        None
    }

    /// A line that began in an earlier piece.
    fn cut_line(&mut self, line: &[u8], piece: &[u8]) -> Option<Kind> {
        match field(line) {
            Line::Field(Name::Data, skipped) if self.data.is_absent() => self.data.set_held(&line[skipped..]),
            Line::Field(Name::Data, skipped) => self.data.join(&line[skipped..], piece),
            Line::Field(Name::Event, skipped) => self.name.set_held(&line[skipped..]),
            Line::Field(Name::Other, _) => {}
            other => return self.no_field(&other),
        }
        self.is_in_event = true;
        None
    }

    fn no_field(&self, line: &Line) -> Option<Kind> {
        match (line, self.is_in_event) {
            (Line::Blank, true) => Some(Kind::Event),
            (Line::Blank, false) => Some(Kind::Blank),
            (_, true) => None,
            (_, false) => Some(Kind::Comment),
        }
    }

    /// Bytes of the end of a line.
    fn terminator(&mut self, end: &[u8]) -> usize {
        match end {
            [b'\r', b'\n', ..] => 2,
            [b'\r'] => {
                self.is_behind_cr = true;
                1
            }
            _ => 1,
        }
    }

    /// The unit that ends behind `bytes` of the piece. The next begins there.
    fn unit<'a>(&'a mut self, kind: Kind, bytes: usize, piece: &'a [u8]) -> Unit<'a> {
        let (start, end) = (self.start, self.offset + bytes as u64);
        (self.offset, self.start, self.line_start) = (end, end, end);
        self.is_in_event = false;
        let (name, data) = match kind {
            Kind::Event => (self.name.value(piece), self.data.value(piece)),
            _ => (None, None),
        };
        Unit { kind, bytes, start, end, name, data }
    }

    /// The piece ends within a unit: its parts that are still needed are held.
    fn keep(&mut self, rest: &[u8], piece: &[u8]) -> Result<(), SseError> {
        self.check(self.line.len() + rest.len())?;
        self.line.extend_from_slice(rest);
        self.name.hold(piece);
        self.data.hold(piece);
        self.offset += piece.len() as u64;
        Ok(())
    }

    /// Whether a line of so many bytes is within the limits. The limit that the line reaches first decides, wherever
    /// pieces are cut.
    fn check(&self, line: usize) -> Result<(), SseError> {
        let before = (self.line_start - self.start) as usize;
        let room = self.limits.event_bytes.saturating_sub(before);
        if line <= room.min(self.limits.line_bytes) {
            return Ok(());
        }
        Err(if self.limits.line_bytes <= room { SseError::LineTooLong } else { SseError::EventTooLong })
    }
}

/// Where the line at the front of `input` ends. A blank line, which ends each event, is found without a search.
#[inline]
fn line_end(input: &[u8]) -> Option<usize> {
    match input.first()? {
        b'\n' | b'\r' => Some(0),
        _ => memchr::memchr2(b'\n', b'\r', input),
    }
}

/// Fields that have a meaning here. `id` and `retry` concern only readers that connect again.
#[derive(Clone, Copy)]
enum Name {
    Data,
    Event,
    Other,
}

enum Line {
    Blank,
    Comment,
    /// The field, and the bytes in front of its value.
    Field(Name, usize),
}

#[inline]
fn field(line: &[u8]) -> Line {
    let (name, rest) = match line {
        [] => return Line::Blank,
        [b':', ..] => return Line::Comment,
        [b'd', b'a', b't', b'a', rest @ ..] => (Name::Data, rest),
        [b'e', b'v', b'e', b'n', b't', rest @ ..] => (Name::Event, rest),
        _ => return Line::Field(Name::Other, 0),
    };
    let value = match rest {
        [b':', b' ', value @ ..] | [b':', value @ ..] => value,
        // A name without a colon has an empty value.
        [] => rest,
        _ => return Line::Field(Name::Other, 0),
    };
    Line::Field(name, line.len() - value.len())
}
