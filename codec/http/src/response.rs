//! Response heads.

use crate::{
    body::{BodyLength, content_length, length_of_response},
    connection::ConnectionOptions,
    error::WireError,
    fields::Fields,
    limits::HeadLimits,
    line,
    request::Version,
    token::is_field_value,
};

/// The head of a response, whatever version it came in.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    version: Version,
    status: u16,
    reason: Vec<u8>,
    options: ConnectionOptions,
    /// Body length by the fields alone, whatever the request was.
    length: BodyLength,
    /// The header fields.
    pub fields: Fields,
}

impl ResponseHead {
    /// A head that the gateway or another version of HTTP makes; `length` is that of a body if there is one.
    pub fn from_parts(version: Version, status: u16, length: BodyLength) -> Self {
        Self { version, status, length, ..Self::default() }
    }

    /// A head as another version of HTTP carries it; `is_whole`: no body follows.
    ///
    /// # Errors
    /// Its status or its Content-Length is none, or there are several of the latter.
    pub fn from_message(version: Version, status: u16, fields: Fields, is_whole: bool) -> Result<Self, WireError> {
        if !(100..=599).contains(&status) {
            return Err(WireError::StatusLine);
        }
        let length = match content_length(&fields)? {
            Some(length) => BodyLength::Exact(length),
            None if is_whole => BodyLength::Exact(0),
            None => BodyLength::Chunked,
        };
        Ok(Self { version, status, length, fields, ..Self::default() })
    }

    /// The status code, 100 to 599.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The words behind the status code; empty if there are none.
    pub fn reason(&self) -> &[u8] {
        &self.reason
    }

    /// The version it came in.
    pub fn version(&self) -> Version {
        self.version
    }

    /// True for 1xx.
    pub fn is_interim(&self) -> bool {
        self.status < 200
    }

    /// Options of its Connection fields.
    pub fn options(&self) -> ConnectionOptions {
        self.options
    }

    /// Length of its body, as a response to HEAD or to another method (RFC 9112 section 6.3).
    pub fn body(&self, is_head: bool) -> BodyLength {
        match self.has_body(is_head) {
            true => self.length,
            false => BodyLength::Exact(0),
        }
    }

    /// Length of the body by the fields, even where no body follows.
    pub fn announced(&self) -> BodyLength {
        self.length
    }

    /// A body may follow.
    pub fn has_body(&self, is_head: bool) -> bool {
        !is_head && !self.is_interim() && !matches!(self.status, 204 | 304)
    }

    /// The server may serve another request on the connection.
    pub fn is_persistent(&self) -> bool {
        match self.version {
            Version::Http10 => self.options.keep_alive && !self.options.close,
            Version::Http11 | Version::Http2 => !self.options.close,
        }
    }

    fn clear(&mut self) {
        (self.options, self.length) = Default::default();
        self.reason.clear();
        self.fields.clear();
    }
}

/// Reads response heads, line by line as they come.
#[derive(Debug, Default)]
pub struct ResponseParser {
    head: ResponseHead,
    taken: usize,
    has_line: bool,
}

impl ResponseParser {
    /// At the beginning of a response.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`crate::RequestParser::parse`].
    ///
    /// # Errors
    /// The response is refused; the parser is of no more use.
    pub fn parse(&mut self, input: &[u8], limits: &HeadLimits) -> Result<Option<usize>, WireError> {
        loop {
            let rest = &input[self.taken..];
            let Some(line) = line::next(rest)? else {
                let is_too_long = self.taken + rest.len() > limits.bytes;
                return if is_too_long { Err(WireError::HeadTooLong) } else { Ok(None) };
            };
            self.taken += line.len() + 2;
            if self.taken > limits.bytes {
                return Err(WireError::HeadTooLong);
            }
            if !self.has_line {
                self.status_line(line)?;
                self.has_line = true;
            } else if line.is_empty() {
                self.finish()?;
                return Ok(Some(std::mem::take(&mut self.taken)));
            } else {
                if self.head.fields.len() >= limits.fields {
                    return Err(WireError::FieldsTooMany);
                }
                line::push_field(line, &mut self.head.fields)?;
            }
        }
    }

    /// The head that [`ResponseParser::parse`] has found; the parser is ready for the next one.
    pub fn take(&mut self) -> ResponseHead {
        self.has_line = false;
        std::mem::take(&mut self.head)
    }

    /// Gives the memory of a head back for the next one.
    pub fn reuse(&mut self, head: ResponseHead) {
        self.head = head;
        self.reset();
    }

    /// Bytes of memory that the parser has for a head.
    pub fn room(&self) -> usize {
        self.head.reason.capacity() + self.head.fields.room()
    }

    /// At the beginning of a response again, wherever the last one ended.
    pub fn reset(&mut self) {
        self.head.clear();
        (self.taken, self.has_line) = (0, false);
    }

    /// `HTTP-version SP status-code SP [reason-phrase]`; the last blank may be missing (RFC 9112 section 4).
    fn status_line(&mut self, line: &[u8]) -> Result<(), WireError> {
        let Some((version, rest)) = line.split_at_checked(9) else { return Err(WireError::StatusLine) };
        self.head.version = match version {
            b"HTTP/1.1 " => Version::Http11,
            b"HTTP/1.0 " => Version::Http10,
            _ => return Err(WireError::Version),
        };
        let (code, reason) = match rest {
            code if code.len() == 3 => (code, &b""[..]),
            [_, _, _, b' ', reason @ ..] => (&rest[..3], reason),
            _ => return Err(WireError::StatusLine),
        };
        let is_code = matches!(code[0], b'1'..=b'5') && code.iter().all(u8::is_ascii_digit);
        if !is_code || !is_field_value(reason) {
            return Err(WireError::StatusLine);
        }
        self.head.status = code.iter().fold(0, |code, digit| code * 10 + u16::from(digit & 15));
        self.head.reason.extend_from_slice(reason);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WireError> {
        let head = &mut self.head;
        head.options = ConnectionOptions::of(&head.fields);
        head.length = length_of_response(head.version, &head.fields)?;
        Ok(())
    }
}
