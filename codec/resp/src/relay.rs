//! The rest of a command that is too large to keep: only its framing is checked while the bytes pass through.

use crate::error::ProtocolError;
use crate::length::{self, Length, LengthLine};

/// Content of one chunk of a streamed command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relay {
    /// Bytes at the front of the chunk that belong to the command and are valid.
    pub taken: usize,
    /// Whether the command ends there. Until then `taken` is the whole chunk.
    pub done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// At the `$` of an argument.
    Dollar,
    /// Inside a length line.
    Header,
    /// Inside a payload with `left` bytes to come.
    Payload,
    /// At the CR after a payload.
    Cr,
    /// At the LF after a payload.
    Lf,
}

/// Where the relay stands. Small: it lives inside every parser.
#[derive(Debug)]
pub(crate) struct RelayState {
    phase: Phase,
    args_left: u32,
    left: u32,
    bulk_cap: u32,
    line: LengthLine,
}

impl RelayState {
    pub(crate) const fn new() -> Self {
        Self { phase: Phase::Dollar, args_left: 0, left: 0, bulk_cap: 0, line: LengthLine::START }
    }

    /// The next byte is the `$` of the first of `args_left` arguments.
    pub(crate) fn start_at_header(&mut self, args_left: u32, bulk_cap: u32) {
        debug_assert!(args_left > 0);
        *self = Self { phase: Phase::Dollar, args_left, left: 0, bulk_cap, line: LengthLine::START };
    }

    /// The next byte is the first of a payload of `left` bytes; `args_left` counts that argument.
    pub(crate) fn start_at_payload(&mut self, args_left: u32, left: u32, bulk_cap: u32) {
        debug_assert!(args_left > 0);
        *self = Self { phase: Phase::Payload, args_left, left, bulk_cap, line: LengthLine::START };
    }

    /// Checks the framing of `chunk` and says how much of it belongs to the command.
    pub(crate) fn advance(&mut self, chunk: &[u8]) -> Result<Relay, ProtocolError> {
        let mut at = 0;
        while self.args_left > 0 {
            if self.phase == Phase::Payload {
                let step = (self.left as usize).min(chunk.len() - at);
                at += step;
                self.left -= step as u32;
                if self.left > 0 {
                    break;
                }
                self.phase = Phase::Cr;
            }
            let Some(&byte) = chunk.get(at) else { break };
            at += match self.phase {
                Phase::Dollar if byte == b'$' => self.header(&chunk[at..])?,
                Phase::Dollar => return Err(ProtocolError::ExpectedBulk { got: byte }),
                Phase::Header => self.header_byte(byte)?,
                Phase::Cr if byte == b'\r' => {
                    self.phase = Phase::Lf;
                    1
                }
                Phase::Lf if byte == b'\n' => {
                    self.phase = Phase::Dollar;
                    self.args_left -= 1;
                    1
                }
                Phase::Cr | Phase::Lf => return Err(ProtocolError::BulkEnd),
                Phase::Payload => 0,
            };
        }
        Ok(Relay { taken: at, done: self.args_left == 0 })
    }

    /// At a `$`: the whole header if it is there, else the first byte of it.
    fn header(&mut self, rest: &[u8]) -> Result<usize, ProtocolError> {
        if let Some((len, used)) = length::whole(&rest[1..]) {
            self.payload(u64::from(len))?;
            return Ok(1 + used);
        }
        self.phase = Phase::Header;
        self.line = LengthLine::START;
        Ok(1)
    }

    fn header_byte(&mut self, byte: u8) -> Result<usize, ProtocolError> {
        if byte == b'-' {
            return Err(ProtocolError::InvalidBulkLength);
        }
        match self.line.push(byte) {
            Ok(None) => {}
            Ok(Some(Length::Count(len))) => self.payload(len)?,
            Err(_) if byte == b'\n' => return Err(ProtocolError::HeaderLineEnd),
            Ok(Some(Length::Null)) | Err(_) => return Err(ProtocolError::InvalidBulkLength),
        }
        Ok(1)
    }

    fn payload(&mut self, len: u64) -> Result<(), ProtocolError> {
        match u32::try_from(len) {
            Ok(len) if len <= self.bulk_cap => {
                self.left = len;
                self.phase = Phase::Payload;
                Ok(())
            }
            _ => Err(ProtocolError::InvalidBulkLength),
        }
    }
}
