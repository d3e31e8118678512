//! The input of clients: multibulk or inline commands, one at a time, from a buffer the caller owns.
//!
//! The parser remembers offsets, never pointers, so the caller may move unconsumed bytes between buffers. It never
//! looks at a byte twice: a resumed call starts where the last one stopped (a length header of at most a dozen bytes
//! is the only thing read again).

use std::ops::Range;

use crate::args::{ArgRange, ArgTable};
use crate::error::ProtocolError;
use crate::inline;
use crate::length;
use crate::limits::RequestLimits;
use crate::relay::{Relay, RelayState};

/// Result of one call of [`RequestParser::parse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed; keep all of `input` and call again when it has grown.
    Incomplete,
    /// `len` bytes that mean nothing: a blank inline line, `*0`, or a negative count. Drop them; no reply is due.
    Skip {
        /// Bytes to drop.
        len: usize,
    },
    /// A complete command: read it with `arg`, then drop `len` bytes.
    Command {
        /// Bytes of the command.
        len: usize,
        /// It came as a text line, so what is forwarded must be encoded again.
        inline: bool,
    },
    /// A command too large to keep. The arguments complete so far are readable, the first `len` bytes of `input`
    /// are valid; what follows goes through [`RequestParser::relay`] until it says `done`.
    Streaming {
        /// Bytes that belong to the command: all of `input` (up to 4 GiB of it).
        len: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing of the command has been seen, or only a part of its first line.
    Start,
    /// At the header of an argument.
    Header,
    /// `bulk` bytes of payload start at `offset`.
    Payload,
    /// The command is complete or skipped; the next call starts another.
    Done,
    /// The rest goes through `relay`.
    Relaying,
}

/// Resumable parser of one client's commands. See the crate example for the order of calls.
///
/// After an error the connection must be closed; the parser stays memory safe and bounded but its results mean nothing.
#[derive(Debug)]
pub struct RequestParser {
    phase: Phase,
    declared: u32,
    /// First byte not parsed yet, from the start of the command.
    offset: u32,
    /// Bytes from `offset` on that hold no line feed.
    scanned: u32,
    /// Payload length while in `Phase::Payload`.
    bulk: u32,
    table: ArgTable,
    relay: RelayState,
}

/// A connection with half a command holds one parser.
const _: () = assert!(size_of::<RequestParser>() < 200);

impl Default for RequestParser {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestParser {
    /// A parser at the start of a connection.
    pub const fn new() -> Self {
        Self {
            phase: Phase::Start,
            declared: 0,
            offset: 0,
            scanned: 0,
            bulk: 0,
            table: ArgTable::new(),
            relay: RelayState::new(),
        }
    }

    /// Parses one command. `input` starts at the first byte of that command and grows from call to call until the
    /// result is not `Incomplete`.
    ///
    /// `limits` may change between commands, not within one: so a command that may authenticate the client is
    /// answered before the next is parsed.
    ///
    /// # Errors
    /// The client broke the protocol: reply with [`ProtocolError::client_text`], if any, and close.
    #[inline]
    pub fn parse(&mut self, input: &[u8], limits: &RequestLimits) -> Result<Step, ProtocolError> {
        debug_assert!(!self.is_relaying(), "the rest of a streamed command goes through relay");
        // Offsets are 32 bits wide. More than that is past any `stream_bytes`, so it is streamed in parts.
        let input = match input.get(..u32::MAX as usize) {
            Some(clipped) => clipped,
            None => input,
        };
        if matches!(self.phase, Phase::Done | Phase::Start) {
            if self.phase == Phase::Done {
                self.begin();
            }
            match input.first() {
                Some(b'*') => {}
                Some(_) => return self.inline_command(input, limits),
                None => return Ok(Step::Incomplete),
            }
            match length::whole(&input[1..]) {
                Some((count, used)) if count > 0 && count <= limits.args_cap() => self.arguments(count, 1 + used),
                _ => {
                    if let Some(step) = self.multibulk_header(input, limits)? {
                        return Ok(step);
                    }
                }
            }
        }
        self.bulks(input, limits)
    }

    /// Checks the framing of further bytes of a streamed command, without keeping any.
    /// When it says `done`, the next bytes go to [`parse`](Self::parse) again.
    ///
    /// # Errors
    /// The client broke the protocol in the middle of a command that an upstream may hold in part already.
    pub fn relay(&mut self, chunk: &[u8]) -> Result<Relay, ProtocolError> {
        debug_assert!(self.phase == Phase::Relaying, "relay is for streamed commands");
        let relay = self.relay.advance(chunk)?;
        if relay.done {
            self.phase = Phase::Done;
        }
        Ok(relay)
    }

    /// Arguments that are complete and readable; all of them once `Command` was returned.
    #[inline]
    pub fn argc(&self) -> usize {
        self.table.count() as usize
    }

    /// Arguments the command said it has. Only a claim while the command is streamed.
    #[inline]
    pub fn args_declared(&self) -> u32 {
        self.declared
    }

    /// Argument `i`; 0 is the command name. `input` is what `parse` saw, or at least the front of it.
    ///
    /// # Panics
    /// If `i >= argc()`, or `input` is not what was parsed.
    #[inline]
    pub fn arg<'a>(&'a self, i: usize, input: &'a [u8]) -> &'a [u8] {
        self.table.arg(i, input)
    }

    /// Where argument `i` stands in the input; `None` for arguments of a quoted inline command, which stand in the
    /// parser's own scratch buffer.
    ///
    /// # Panics
    /// If `i >= argc()`.
    #[inline]
    pub fn arg_range(&self, i: usize) -> Option<Range<usize>> {
        self.table.input_range(i)
    }

    /// All complete arguments, the command name first.
    #[inline]
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        Args { parser: self, input, next: 0 }
    }

    /// Whether a streamed command is under way, so that bytes go to [`relay`](Self::relay).
    #[inline]
    pub fn is_relaying(&self) -> bool {
        self.phase == Phase::Relaying
    }

    /// Whether no command is under way. Bytes of a first line that has not ended do not count: the caller's buffer
    /// is not empty then.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Done || (self.phase == Phase::Start && self.scanned == 0)
    }

    /// Frees all heap memory. Call it when a batch of commands was handled, and, if the
    /// arguments of a streamed command were read, before relaying the rest. No argument is readable afterwards.
    pub fn release(&mut self) {
        if self.is_idle() {
            self.begin();
            self.table.release();
        } else if self.is_relaying() {
            self.table.release();
        }
    }

    /// Bytes held on the heap now: offsets past the eighth argument and words of a quoted line.
    pub fn heap_bytes(&self) -> usize {
        self.table.heap_bytes()
    }

    #[inline]
    fn begin(&mut self) {
        self.phase = Phase::Start;
        self.declared = 0;
        self.offset = 0;
        self.scanned = 0;
        self.table.clear();
    }

    #[inline]
    fn arguments(&mut self, count: u32, offset: usize) {
        self.declared = count;
        self.offset = offset as u32;
        self.scanned = 0;
        self.phase = Phase::Header;
    }

    /// Arguments from `offset` on, as far as the input reaches.
    #[inline]
    fn bulks(&mut self, input: &[u8], limits: &RequestLimits) -> Result<Step, ProtocolError> {
        let bulk_cap = limits.bulk_cap();
        let mut at = self.offset as usize;
        loop {
            let len = if self.phase == Phase::Payload {
                self.bulk
            } else {
                let header = match input.get(at..) {
                    Some([b'$', rest @ ..]) => length::whole(rest),
                    _ => None,
                };
                match header {
                    Some((len, used)) if len <= bulk_cap => {
                        at += 1 + used;
                        len
                    }
                    _ => match self.bulk_header(input, at, limits)? {
                        Some((len, used)) => {
                            at += used;
                            len
                        }
                        None => return self.unfinished(input, limits),
                    },
                }
            };
            let end = at + len as usize;
            match input.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::BulkEnd),
                None => {
                    self.offset = at as u32;
                    self.bulk = len;
                    self.phase = Phase::Payload;
                    return self.unfinished(input, limits);
                }
            }
            self.table.push(ArgRange { start: at as u32, len });
            self.phase = Phase::Header;
            at = end + 2;
            if self.table.count() == self.declared {
                self.phase = Phase::Done;
                return Ok(Step::Command { len: at, inline: false });
            }
        }
    }

    /// The input ended inside the command: wait, or stream if it is already too large to wait for.
    #[cold]
    fn unfinished(&mut self, input: &[u8], limits: &RequestLimits) -> Result<Step, ProtocolError> {
        let large_argument = self.phase == Phase::Payload && self.bulk > limits.stream_bytes;
        let routable = self.table.count() >= limits.stream_args_min.min(self.declared);
        let large_command = input.len() >= limits.stream_bytes as usize && routable;
        if !(large_argument || large_command) {
            return Ok(Step::Incomplete);
        }
        let args_left = self.declared - self.table.count();
        if self.phase == Phase::Payload {
            self.relay.start_at_payload(args_left, self.bulk, limits.bulk_cap());
        } else {
            self.relay.start_at_header(args_left, limits.bulk_cap());
        }
        self.phase = Phase::Relaying;
        let rest = input.get(self.offset as usize..).unwrap_or_default();
        let relay = self.relay.advance(rest)?;
        debug_assert!(!relay.done && relay.taken == rest.len(), "an unfinished command uses all bytes");
        Ok(Step::Streaming { len: input.len() })
    }

    /// The first line where the quick look failed: unfinished, a count to skip, or wrong.
    #[cold]
    fn multibulk_header(&mut self, input: &[u8], limits: &RequestLimits) -> Result<Option<Step>, ProtocolError> {
        let Some((line, used)) = self.line(input, limits, ProtocolError::MultibulkHeaderTooBig)? else {
            return Ok(Some(Step::Incomplete));
        };
        let count = length::number(header_text(line)?).ok_or(ProtocolError::InvalidMultibulkLength)?;
        if count > i64::from(limits.args_max) {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if count > i64::from(limits.args_cap()) {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        if count <= 0 {
            self.phase = Phase::Done;
            return Ok(Some(Step::Skip { len: used }));
        }
        self.arguments(count as u32, used);
        Ok(None)
    }

    /// An argument's header where the quick look failed. `None` if its line has not ended.
    #[cold]
    fn bulk_header(
        &mut self,
        input: &[u8],
        at: usize,
        limits: &RequestLimits,
    ) -> Result<Option<(u32, usize)>, ProtocolError> {
        if at != self.offset as usize {
            self.offset = at as u32;
            self.scanned = 0;
        }
        match input.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&got) => return Err(ProtocolError::ExpectedBulk { got }),
        }
        let Some((line, used)) = self.line(input, limits, ProtocolError::BulkHeaderTooBig)? else {
            return Ok(None);
        };
        let len = length::number(header_text(line)?).ok_or(ProtocolError::InvalidBulkLength)?;
        if len < 0 || len > i64::from(limits.bulk_bytes_max) {
            return Err(ProtocolError::InvalidBulkLength);
        }
        if len > i64::from(limits.bulk_cap()) {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        self.scanned = 0;
        Ok(Some((len as u32, used)))
    }

    /// The line at `offset` without its LF, and its length with it. `None`, and the place remembered, if the LF is
    /// still to come.
    fn line<'a>(
        &mut self,
        input: &'a [u8],
        limits: &RequestLimits,
        too_big: ProtocolError,
    ) -> Result<Option<(&'a [u8], usize)>, ProtocolError> {
        let rest = input.get(self.offset as usize..).unwrap_or_default();
        let unseen = rest.get(self.scanned as usize..).unwrap_or_default();
        let found = memchr::memchr(b'\n', unseen).map(|i| i + self.scanned as usize);
        // The same line is too long whether or not its line feed came with it.
        let bytes_max = limits.line_bytes_max as usize;
        if found.map_or(rest.len() > bytes_max, |lf| lf > bytes_max) {
            return Err(too_big);
        }
        match found {
            Some(lf) => Ok(Some((&rest[..lf], lf + 1))),
            None => {
                self.scanned = rest.len() as u32;
                Ok(None)
            }
        }
    }

    #[cold]
    fn inline_command(&mut self, input: &[u8], limits: &RequestLimits) -> Result<Step, ProtocolError> {
        let Some((line, len)) = self.line(input, limits, ProtocolError::InlineTooBig)? else {
            return Ok(Step::Incomplete);
        };
        // LF alone is fine here: people type these lines into telnet and netcat.
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if memchr::memchr(0, line).is_some() {
            return Err(ProtocolError::InlineNul);
        }
        if memchr::memchr2(b'"', b'\'', line).is_none() {
            inline::words(line, |range| self.table.push(range));
        } else {
            self.table.unquote(|scratch, found| inline::unquote(line, scratch, found))?;
        }
        self.declared = self.table.count();
        self.phase = Phase::Done;
        if self.table.count() == 0 {
            return Ok(Step::Skip { len });
        }
        if is_http(self.arg(0, input)) {
            return Err(ProtocolError::CrossProtocol);
        }
        Ok(Step::Command { len, inline: true })
    }
}

/// The digits of a header line: without its type byte and CR.
fn header_text(line: &[u8]) -> Result<&[u8], ProtocolError> {
    match line {
        [_, text @ .., b'\r'] => Ok(text),
        _ => Err(ProtocolError::HeaderLineEnd),
    }
}

/// First words by which Redis recognises a browser that was tricked into talking to it (`securityWarningCommand`).
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Iterator over the arguments of a command.
#[derive(Debug, Clone)]
pub struct Args<'a> {
    parser: &'a RequestParser,
    input: &'a [u8],
    next: usize,
}

impl<'a> Iterator for Args<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.next >= self.parser.argc() {
            return None;
        }
        let arg = self.parser.arg(self.next, self.input);
        self.next += 1;
        Some(arg)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.parser.argc() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Args<'_> {}
