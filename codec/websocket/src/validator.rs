//! Follows the frames of one direction.

use weir_base::time::Time;

use crate::{
    error::WireError,
    header::{FrameHeader, Opcode},
    limits::{CONTROL_BYTES_MAX, Limits, PING_WINDOW},
};

/// The sender of the frames of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// Its frames are masked.
    Client,
    /// Its frames are not.
    Server,
}

/// Meaning of the reserved bits, by the extensions that the two ends agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserved {
    /// Nothing: there is no extension.
    #[default]
    None,
    /// RSV1 on the first frame of a message: it is compressed (RFC 7692 section 6).
    Compressed,
    /// Anything: an extension that the gateway does not know has given them a meaning.
    Any,
}

impl Reserved {
    /// By the value of the Sec-WebSocket-Extensions that the server chose, one line of several if there are.
    #[must_use]
    pub fn with(self, extensions: &[u8]) -> Self {
        let names = extensions.split(|&byte| byte == b',').map(|one| {
            let end = one.iter().position(|&byte| byte == b';').unwrap_or(one.len());
            one[..end].trim_ascii()
        });
        names.filter(|name| !name.is_empty()).fold(self, |known, name| match known {
            Self::Any => Self::Any,
            _ if name.eq_ignore_ascii_case(b"permessage-deflate") => Self::Compressed,
            _ => Self::Any,
        })
    }
}

/// The bytes of a direction that may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidatedFrames {
    /// Bytes that may go on. The rest, if there is no error and no close frame has passed, is the beginning of a header that is not
    /// whole: only checked bytes go on.
    pub bytes: usize,
    /// Frames that began in them.
    pub frames: u32,
    /// The rule that the next frame breaks. Nothing of that frame goes on, and the validator is of no more use.
    pub error: Option<WireError>,
}

/// Follows the frames of one direction: the payload is skipped, and nothing is held.
#[derive(Clone, Debug)]
pub struct FrameValidator {
    sender: Sender,
    reserved: Reserved,
    limits: Limits,
    /// Payload of the present frame that is still to come.
    left: u64,
    is_closing: bool,
    /// Frames of the message under way; 0 between messages.
    fragments: u32,
    /// Payload of the message under way.
    message: u64,
    pings: u32,
    pings_since: Time,
}

impl FrameValidator {
    /// At the beginning of what `sender` sends.
    pub fn new(sender: Sender, reserved: Reserved, limits: Limits) -> Self {
        Self {
            sender,
            reserved,
            limits,
            left: 0,
            is_closing: false,
            fragments: 0,
            message: 0,
            pings: 0,
            pings_since: Time::from_nanos(0),
        }
    }

    /// Checks these bytes. The next call begins with the rest of them.
    pub fn validate(&mut self, bytes: &[u8], now: Time) -> ValidatedFrames {
        let mut validated = ValidatedFrames { bytes: 0, frames: 0, error: None };
        loop {
            let rest = &bytes[validated.bytes..];
            let skipped = self.left.min(rest.len() as u64);
            self.left -= skipped;
            validated.bytes += skipped as usize;
            // Behind a close frame nothing has a meaning (section 5.5.1).
            if self.left > 0 || self.is_closing {
                return validated;
            }
            match self.header(&bytes[validated.bytes..], now) {
                Ok(Some(length)) => {
                    validated.bytes += length;
                    validated.frames += 1;
                }
                Ok(None) => return validated,
                Err(error) => {
                    validated.error = Some(error);
                    return validated;
                }
            }
        }
    }

    /// A frame that the gateway adds may stand here: none is under way. A message may be.
    pub fn is_between_frames(&self) -> bool {
        self.left == 0
    }

    /// The sender's close frame has gone on, with its payload: there is nothing more to come.
    pub fn is_closed(&self) -> bool {
        self.is_closing && self.left == 0
    }

    /// Judges the next header; its length, once it is whole.
    fn header(&mut self, input: &[u8], now: Time) -> Result<Option<usize>, WireError> {
        let Some(header) = FrameHeader::read(input)? else { return Ok(None) };
        if header.mask.is_some() != (self.sender == Sender::Client) {
            return Err(WireError::Mask);
        }
        let may_be_compressed = matches!(header.opcode, Opcode::Text | Opcode::Binary);
        let is_known = match self.reserved {
            Reserved::None => header.reserved == 0,
            Reserved::Compressed => header.reserved == 0 || (header.reserved == 4 && may_be_compressed),
            Reserved::Any => true,
        };
        if !is_known {
            return Err(WireError::ReservedBits);
        }
        if header.opcode.is_control() {
            self.control(&header, now)?;
        } else {
            self.data(&header)?;
        }
        self.left = header.payload;
        Ok(Some(header.bytes))
    }

    fn control(&mut self, header: &FrameHeader, now: Time) -> Result<(), WireError> {
        if !header.is_final || header.payload > CONTROL_BYTES_MAX {
            return Err(WireError::ControlFrame);
        }
        match header.opcode {
            Opcode::Close => self.is_closing = true,
            Opcode::Ping => {
                if self.pings == 0 || now.since(self.pings_since) >= PING_WINDOW {
                    (self.pings, self.pings_since) = (0, now);
                }
                self.pings += 1;
                if self.pings > self.limits.pings {
                    return Err(WireError::PingsTooMany);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn data(&mut self, header: &FrameHeader) -> Result<(), WireError> {
        let continues = header.opcode == Opcode::Continuation;
        if continues != (self.fragments > 0) {
            return Err(WireError::Fragmentation);
        }
        // Neither can wrap: a payload is below 2^63, and what was added before is within the limit.
        self.message = self.message.saturating_add(header.payload);
        self.fragments += 1;
        if self.message > self.limits.message_bytes {
            return Err(WireError::MessageTooBig);
        }
        if self.fragments > self.limits.fragments {
            return Err(WireError::FragmentsTooMany);
        }
        if header.is_final {
            (self.fragments, self.message) = (0, 0);
        }
        Ok(())
    }
}
