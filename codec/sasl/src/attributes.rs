//! `a=value` pairs of a message, left to right.

use crate::error::Malformed;
use crate::limits::MESSAGE_BYTES_MAX;

/// The rest of a message that is still to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Checks the bounds that every message has.
    pub(crate) fn new(message: &'a [u8]) -> Result<Attributes<'a>, Malformed> {
        match message.len() {
            0 => Err(Malformed::Empty),
            bytes if bytes > MESSAGE_BYTES_MAX => Err(Malformed::TooLong),
            _ if message.contains(&0) => Err(Malformed::ZeroByte),
            _ => Ok(Attributes { rest: message }),
        }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte, without taking it.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Takes one byte.
    pub(crate) fn skip(&mut self) {
        self.rest = self.rest.get(1..).unwrap_or_default();
    }

    /// The value of the attribute `name`, which must be the next one.
    pub(crate) fn value(&mut self, name: u8) -> Result<&'a [u8], Malformed> {
        match self.peek() {
            Some(found) if found == name => Ok(self.any()?.1),
            found => Err(Malformed::OtherAttribute { expected: name, found }),
        }
    }

    /// The next attribute with its value. The comma behind it is taken too.
    pub(crate) fn any(&mut self) -> Result<(u8, &'a [u8]), Malformed> {
        let name = self.peek().filter(u8::is_ascii_alphabetic).ok_or(Malformed::NotAnAttribute(self.peek()))?;
        self.skip();
        if self.peek() != Some(b'=') {
            return Err(Malformed::NoEquals(name));
        }
        self.skip();
        let end = self.rest.iter().position(|byte| *byte == b',').unwrap_or(self.rest.len());
        let value = &self.rest[..end];
        self.rest = self.rest.get(end + 1..).unwrap_or_default();
        Ok((name, value))
    }
}
