//! Replies from upstreams: finds the end of each reply, RESP2 or RESP3, without storing any of it.
//!
//! Bytes may come in any pieces. The content of simple lines is not judged (`:x` passes here and fails in
//! [`Value`](crate::Value)): what counts is that gateway and client agree on where each reply ends.

use crate::error::ProtocolError;
use crate::length::{self, Length, LengthLine};
use crate::limits::ReplyLimits;

/// Marks a level of the stack as an attribute, which annotates the value after it and is none itself.
const ATTRIBUTE: u64 = 1 << 63;

/// Levels kept in memory between replies; deeper stacks are freed when their reply ends.
const LEVELS_KEPT: usize = 16;

/// The type byte of a top-level frame; that of the annotated value if attributes stand before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameKind(u8);

impl FrameKind {
    /// The byte itself, such as `b'$'`.
    #[inline]
    pub fn type_byte(self) -> u8 {
        self.0
    }

    /// `-` or `!`.
    #[inline]
    pub fn is_error(self) -> bool {
        matches!(self.0, b'-' | b'!')
    }

    /// `>`: no reply to any request.
    #[inline]
    pub fn is_push(self) -> bool {
        self.0 == b'>'
    }
}

/// Result of [`ReplyFramer::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// Bytes at the front of the input that belong to the current frame.
    pub taken: usize,
    /// Set if the frame ends after `taken` bytes; otherwise all input was taken.
    pub end: Option<FrameKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// At a type byte.
    Type,
    /// Inside a simple line that has `length` bytes so far.
    Line,
    /// After the CR of a simple line.
    LineLf,
    /// Inside the length line of a value of type `kind`.
    Length,
    /// Inside a payload with `left` bytes to come.
    Payload,
    /// At the CR after a payload.
    PayloadCr,
    /// At the LF after a payload.
    PayloadLf,
}

/// Result of a fast check of the value at the front of some bytes.
enum Leaf {
    /// A scalar, or an empty or null aggregate, that ends there.
    Whole(usize),
    /// Not whole, not a scalar, or wrong: the byte-wise path decides.
    Unclear,
}

/// Incremental delimiter of one upstream connection's replies.
///
/// Call [`advance`](Self::advance) until its `taken` bytes have used up the input; each `end` closes one frame.
/// After an error the connection must be closed.
#[derive(Debug)]
pub struct ReplyFramer {
    phase: Phase,
    /// Type byte of the top frame, 0 before it is known.
    top: u8,
    /// Type of the value whose length line is being read.
    kind: u8,
    /// An attribute stood before the top frame, which therefore is under way even if `top` is unknown.
    annotated: bool,
    /// Bytes of the payload still to come, or bytes of the line seen.
    left: u32,
    line: LengthLine,
    /// Open aggregates: values still to come, the innermost last, with `ATTRIBUTE` where it applies.
    levels: Vec<u64>,
    limits: ReplyLimits,
}

impl Default for ReplyFramer {
    fn default() -> Self {
        Self::new(ReplyLimits::default())
    }
}

impl ReplyFramer {
    /// A framer at the start of a connection.
    pub fn new(limits: ReplyLimits) -> Self {
        Self {
            phase: Phase::Type,
            top: 0,
            kind: 0,
            annotated: false,
            left: 0,
            line: LengthLine::START,
            levels: Vec::new(),
            limits,
        }
    }

    /// Whether the last frame is complete and nothing of the next one has been seen.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Type && self.top == 0 && !self.annotated
    }

    /// Type byte of the frame under way, once it is known: attributes before a frame do not count.
    #[inline]
    pub fn first_byte(&self) -> Option<u8> {
        (self.top != 0).then_some(self.top)
    }

    /// Bytes held on the heap now: eight per open aggregate.
    pub fn heap_bytes(&self) -> usize {
        self.levels.capacity() * size_of::<u64>()
    }

    /// Takes bytes up to the end of one top-level frame, or all of them.
    ///
    /// # Errors
    /// The upstream broke the protocol; where the next reply starts is unknown.
    #[inline]
    pub fn advance(&mut self, input: &[u8]) -> Result<Scan, ProtocolError> {
        if self.is_idle()
            && let Leaf::Whole(taken) = leaf(input, &self.limits)
        {
            return Ok(Scan { taken, end: Some(FrameKind(input[0])) });
        }
        self.advance_pieces(input)
    }

    fn advance_pieces(&mut self, input: &[u8]) -> Result<Scan, ProtocolError> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            let value_ended = match self.phase {
                Phase::Type => {
                    if let Leaf::Whole(len) = leaf(&input[at..], &self.limits) {
                        self.note_top(byte);
                        at += len;
                        true
                    } else {
                        at += 1;
                        self.type_byte(byte)?;
                        false
                    }
                }
                Phase::Line => {
                    at += self.line_bytes(&input[at..])?;
                    false
                }
                Phase::Length => {
                    at += 1;
                    self.length_byte(byte)?
                }
                Phase::Payload => {
                    at += self.payload_bytes(input.len() - at);
                    false
                }
                Phase::PayloadCr => {
                    at += 1;
                    self.expect(byte, b'\r', Phase::PayloadLf, ProtocolError::ReplyBulkEnd)?;
                    false
                }
                Phase::PayloadLf => {
                    at += 1;
                    self.expect(byte, b'\n', Phase::Type, ProtocolError::ReplyBulkEnd)?;
                    true
                }
                Phase::LineLf => {
                    at += 1;
                    self.expect(byte, b'\n', Phase::Type, ProtocolError::ReplyLineEnd)?;
                    true
                }
            };
            if value_ended && self.value_ended() {
                let end = FrameKind(self.top);
                self.top = 0;
                self.annotated = false;
                if self.levels.capacity() > LEVELS_KEPT {
                    self.levels = Vec::new();
                }
                return Ok(Scan { taken: at, end: Some(end) });
            }
        }
        Ok(Scan { taken: at, end: None })
    }

    /// Remembers the type of the top frame. Values inside attributes or aggregates do not change it.
    #[inline]
    fn note_top(&mut self, byte: u8) {
        if self.levels.is_empty() {
            match byte {
                b'|' => self.annotated = true,
                _ => self.top = byte,
            }
        }
    }

    fn type_byte(&mut self, byte: u8) -> Result<(), ProtocolError> {
        self.phase = match byte {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Phase::Line,
            b'$' | b'!' | b'=' | b'*' | b'~' | b'%' | b'>' | b'|' => Phase::Length,
            got => return Err(ProtocolError::ReplyType { got }),
        };
        self.note_top(byte);
        self.kind = byte;
        self.left = 0;
        self.line = LengthLine::START;
        Ok(())
    }

    /// Takes bytes of a simple line up to and with its CR.
    fn line_bytes(&mut self, rest: &[u8]) -> Result<usize, ProtocolError> {
        let found = memchr::memchr2(b'\r', b'\n', rest);
        let text = found.unwrap_or(rest.len());
        match u32::try_from(text).ok().and_then(|text| self.left.checked_add(text)) {
            Some(sum) if sum <= self.limits.line_bytes_max => self.left = sum,
            _ => return Err(ProtocolError::ReplyLineTooLong),
        }
        match found {
            Some(i) if rest[i] == b'\r' => {
                self.phase = Phase::LineLf;
                Ok(i + 1)
            }
            Some(_) => Err(ProtocolError::ReplyLineEnd),
            None => Ok(rest.len()),
        }
    }

    /// Takes one byte of a length line. `true` if the value ends with it.
    fn length_byte(&mut self, byte: u8) -> Result<bool, ProtocolError> {
        let length = match self.line.push(byte) {
            Ok(None) => return Ok(false),
            Ok(Some(length)) => length,
            Err(_) if byte == b'?' => return Err(ProtocolError::ReplyStreamed),
            Err(_) => return Err(ProtocolError::ReplyLength),
        };
        self.phase = Phase::Type;
        match (self.kind, length) {
            (b'$' | b'*', Length::Null) => Ok(true),
            (_, Length::Null) => Err(ProtocolError::ReplyLength),
            (b'$' | b'!' | b'=', Length::Count(bytes)) => {
                match u32::try_from(bytes) {
                    Ok(bytes) if bytes <= self.limits.bulk_bytes_max => self.left = bytes,
                    _ => return Err(ProtocolError::ReplyBulkTooLong),
                }
                self.phase = if bytes == 0 { Phase::PayloadCr } else { Phase::Payload };
                Ok(false)
            }
            (_, Length::Count(elements)) => self.open(elements),
        }
    }

    /// Opens an aggregate. `true` if it is empty and so ends at once.
    fn open(&mut self, elements: u64) -> Result<bool, ProtocolError> {
        // At most ten digits: doubling cannot overflow.
        let values = if matches!(self.kind, b'%' | b'|') { elements * 2 } else { elements };
        if values > self.limits.elements_max {
            return Err(ProtocolError::ReplyElements);
        }
        if self.levels.len() >= self.limits.depth_max as usize {
            return Err(ProtocolError::ReplyDepth);
        }
        let attribute = self.kind == b'|';
        if values > 0 {
            self.levels.push(if attribute { values | ATTRIBUTE } else { values });
        }
        // An empty attribute is nothing at all: its value is still to come.
        Ok(values == 0 && !attribute)
    }

    fn payload_bytes(&mut self, available: usize) -> usize {
        let step = (self.left as usize).min(available);
        self.left -= step as u32;
        if self.left == 0 {
            self.phase = Phase::PayloadCr;
        }
        step
    }

    fn expect(&mut self, got: u8, want: u8, next: Phase, error: ProtocolError) -> Result<(), ProtocolError> {
        if got != want {
            return Err(error);
        }
        self.phase = next;
        Ok(())
    }

    /// A value is complete: closes the aggregates it completes. `true` if that was the top frame.
    #[inline]
    fn value_ended(&mut self) -> bool {
        while let Some(level) = self.levels.last_mut() {
            *level -= 1;
            match *level {
                0 => {
                    self.levels.pop();
                }
                ATTRIBUTE => {
                    // The annotated value comes next; the level below still waits for it.
                    self.levels.pop();
                    return false;
                }
                _ => return false,
            }
        }
        true
    }
}

/// Looks for a whole scalar at the front of `bytes`.
#[inline]
fn leaf(bytes: &[u8], limits: &ReplyLimits) -> Leaf {
    match bytes {
        [b'$', rest @ ..] => bulk_leaf(rest, limits),
        [b'+' | b':' | b'-' | b'_' | b'#' | b',', rest @ ..] => line_leaf(rest, limits),
        _ => Leaf::Unclear,
    }
}

#[inline]
fn bulk_leaf(rest: &[u8], limits: &ReplyLimits) -> Leaf {
    let (end, used) = match length::whole(rest) {
        Some((len, used)) if len <= limits.bulk_bytes_max => (used + len as usize, 1 + used + len as usize + 2),
        None if rest.starts_with(b"-1\r\n") => return Leaf::Whole(5),
        _ => return Leaf::Unclear,
    };
    match rest.get(end..end + 2) {
        Some(b"\r\n") => Leaf::Whole(used),
        _ => Leaf::Unclear,
    }
}

#[inline]
fn line_leaf(rest: &[u8], limits: &ReplyLimits) -> Leaf {
    // Most lines are a few bytes (`+OK`, `:1`), shorter than what a vector search pays for.
    let short = &rest[..rest.len().min(SHORT_LINE)];
    let found = short.iter().position(|b| matches!(b, b'\r' | b'\n'));
    let found = match found {
        Some(i) => i,
        None => match memchr::memchr2(b'\r', b'\n', &rest[short.len()..]) {
            Some(i) => i + short.len(),
            None => return Leaf::Unclear,
        },
    };
    if found <= limits.line_bytes_max as usize && rest[found..].starts_with(b"\r\n") {
        Leaf::Whole(1 + found + 2)
    } else {
        Leaf::Unclear
    }
}

/// Bytes of a line that are looked at one by one.
const SHORT_LINE: usize = 16;

#[cfg(test)]
mod tests;
