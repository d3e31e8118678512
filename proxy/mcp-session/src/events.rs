//! A stream of events whose lists of tools lose those that a client may not use.

use weir_sse_codec::{Kind, Limits, Splitter, SseError, Unit};

use crate::{
    limits::KEPT_BYTES_MAX,
    tools::{ListError, permitted_tools},
};

/// The mark that may stand in front of the first line of a stream.
const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// Why a stream cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolEventsError {
    /// A line or an event beyond its limit.
    Limit(SseError),
    /// A message that could be read in two ways, or is no JSON.
    Message(ListError),
}

/// Follows one stream. Only whole events pass, so that each is judged before a client sees a part of it. All others than lists of tools
/// pass as they came.
///
/// It holds the event that a piece cuts twice: once as bytes, once as fields. Each is at most `Limits::event_bytes`.
#[derive(Clone, Debug)]
pub struct ToolEvents {
    splitter: Splitter,
    /// The beginning of the event under way.
    held: Vec<u8>,
}

impl ToolEvents {
    /// In front of the body of a stream, without its content coding.
    pub fn new(limits: Limits) -> Self {
        Self { splitter: Splitter::new(limits), held: Vec::new() }
    }

    /// Takes the next piece, and appends to `out` the part that may go on.
    ///
    /// # Errors
    /// See [`ToolEventsError`]. All events before it have passed. The stream is of no more use.
    pub fn push(
        &mut self,
        piece: &[u8],
        may_use: &dyn Fn(&str) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<(), ToolEventsError> {
        let mut at = 0;
        while let Some(unit) = self.splitter.next(&piece[at..]).map_err(ToolEventsError::Limit)? {
            let end = at + unit.bytes;
            let raw: &[u8] = if self.held.is_empty() {
                &piece[at..end]
            } else {
                self.held.extend_from_slice(&piece[at..end]);
                &self.held
            };
            match judged(&unit, may_use).map_err(ToolEventsError::Message)? {
                Some(data) => with_data(raw, unit.start == 0, &data, out),
                None => out.extend_from_slice(raw),
            }
            self.held.clear();
            self.held.shrink_to(KEPT_BYTES_MAX);
            at = end;
        }
        self.held.extend_from_slice(&piece[at..]);
        Ok(())
    }

    /// Bytes that are held.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }
}

/// The data that takes the place of that of an event. `None`: it passes as it came.
///
/// Readers skip an event without data, and take only an event named `message`, or without a name, for a message.
fn judged(unit: &Unit<'_>, may_use: &dyn Fn(&str) -> bool) -> Result<Option<Vec<u8>>, ListError> {
    let Some(data) = unit.data.filter(|data| unit.kind == Kind::Event && !data.is_empty()) else { return Ok(None) };
    let is_message = unit.name.is_none_or(|name| name.is_empty() || name == b"message");
    match permitted_tools(data, may_use) {
        Err(_) if !is_message => Ok(None),
        judged => judged,
    }
}

/// Appends an event with other data: in the place of its first line of data, in as many lines as it has.
fn with_data(raw: &[u8], is_first: bool, data: &[u8], out: &mut Vec<u8>) {
    let mut rest = raw;
    if let Some(behind) = raw.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first) {
        out.extend_from_slice(BYTE_ORDER_MARK);
        rest = behind;
    }
    let mut data = Some(data);
    while !rest.is_empty() {
        let (line, terminator, behind) = split_line(rest);
        rest = behind;
        let Some(value) = value_of_data(line) else {
            out.extend_from_slice(line);
            out.extend_from_slice(terminator);
            continue;
        };
        let begin: &[u8] = if value.first() == Some(&b' ') { b"data: " } else { b"data:" };
        for part in data.take().into_iter().flat_map(|data| data.split(|&byte| byte == b'\n')) {
            out.extend_from_slice(begin);
            out.extend_from_slice(part);
            out.extend_from_slice(terminator);
        }
    }
}

/// A line, its end, and the rest. A line ends with CRLF, LF or CR.
fn split_line(text: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let end = text.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(text.len());
    let length = match &text[end..] {
        [b'\r', b'\n', ..] => 2,
        [] => 0,
        _ => 1,
    };
    let (line, rest) = text.split_at(end);
    let (terminator, behind) = rest.split_at(length);
    (line, terminator, behind)
}

/// The part behind the colon of a line of data. `None`: it is another line.
fn value_of_data(line: &[u8]) -> Option<&[u8]> {
    match line.strip_prefix(b"data")? {
        [] => Some(&[]),
        [b':', value @ ..] => Some(value),
        _ => None,
    }
}
