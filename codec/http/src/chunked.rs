//! The chunked transfer coding (RFC 9112 section 7.1).

use crate::{
    body::Piece,
    error::WireError,
    fields::{Field, Fields},
    known::Known,
    limits::{BodyLimits, CHUNK_SIZE_DIGITS_MAX},
    line,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    /// In the digits of a size, so many so far.
    #[default]
    Size,
    /// In extensions behind a size.
    Extension,
    /// At the LF behind a size.
    SizeEnd,
    Data,
    /// At the CR and at the LF behind the data.
    DataEnd,
    DataEndLf,
    Trailers,
    Done,
}

/// Finds the data in a chunked body.
#[derive(Debug, Default)]
pub struct Chunked {
    at: ChunkState,
    /// Digits of the size so far.
    digits: usize,
    /// Size of the chunk, then what is left of it.
    left: u64,
    extension_bytes: usize,
    trailer_bytes: usize,
    /// A trailer line that is not whole yet.
    partial: Vec<u8>,
    pub(crate) trailers: Fields,
}

impl Chunked {
    pub(crate) fn is_done(&self) -> bool {
        self.at == ChunkState::Done
    }

    /// Up to the end of the next piece of data.
    pub(crate) fn decode<'a>(&mut self, input: &'a [u8], limits: &BodyLimits) -> Result<Piece<'a>, WireError> {
        let mut taken = 0;
        while taken < input.len() {
            let rest = &input[taken..];
            match self.at {
                ChunkState::Data => {
                    let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                    self.left -= count as u64;
                    if self.left == 0 {
                        self.at = ChunkState::DataEnd;
                    }
                    return Ok(Piece { taken: taken + count, data: &rest[..count], is_last: false });
                }
                ChunkState::Trailers => {
                    taken += self.trailer_bytes_of(rest, limits)?;
                    if self.is_done() {
                        break;
                    }
                }
                ChunkState::Done => break,
                _ => match self.plain_size(rest) {
                    Some(bytes) => taken += bytes,
                    None => {
                        self.step(rest[0], limits)?;
                        taken += 1;
                    }
                },
            }
        }
        Ok(Piece { taken, data: &[], is_last: self.is_done() })
    }

    /// Takes the end of a chunk and the size of the next one, if both are whole, and written as nearly all peers do. Bytes of both; `None`: the
    /// next byte decides.
    fn plain_size(&mut self, input: &[u8]) -> Option<usize> {
        let line = match self.at {
            ChunkState::DataEnd => input.strip_prefix(b"\r\n")?,
            ChunkState::Size if self.digits == 0 => input,
            _ => return None,
        };
        let (mut size, mut digits) = (0, 0);
        while let Some(digit) = line.get(digits).and_then(|&byte| char::from(byte).to_digit(16)).filter(|_| digits < 7)
        {
            (size, digits) = (size << 4 | digit, digits + 1);
        }
        if size == 0 || !line[digits..].starts_with(b"\r\n") {
            return None;
        }
        (self.at, self.digits, self.left) = (ChunkState::Data, digits, size.into());
        Some(input.len() - line.len() + digits + 2)
    }

    /// One byte of what surrounds the data.
    fn step(&mut self, byte: u8, limits: &BodyLimits) -> Result<(), WireError> {
        self.at = match (self.at, byte) {
            (ChunkState::Size, _) if byte.is_ascii_hexdigit() => {
                self.digits += 1;
                if self.digits > CHUNK_SIZE_DIGITS_MAX {
                    return Err(WireError::Chunk);
                }
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.left = self.left << 4 | u64::from(digit);
                ChunkState::Size
            }
            (ChunkState::Size, b'\r') if self.digits > 0 => ChunkState::SizeEnd,
            // Blanks before an extension are allowed to none but old peers, and used by none.
            (ChunkState::Size, b';') if self.digits > 0 => ChunkState::Extension,
            (ChunkState::Extension, b'\r') => ChunkState::SizeEnd,
            (ChunkState::Extension, b'\t' | b' '..=b'~' | 0x80..) => {
                self.extension_bytes += 1;
                if self.extension_bytes > limits.extension_bytes {
                    return Err(WireError::ChunkExtensions);
                }
                ChunkState::Extension
            }
            (ChunkState::SizeEnd, b'\n') if self.left == 0 => ChunkState::Trailers,
            (ChunkState::SizeEnd, b'\n') => ChunkState::Data,
            (ChunkState::DataEnd, b'\r') => ChunkState::DataEndLf,
            (ChunkState::DataEndLf, b'\n') => {
                self.digits = 0;
                ChunkState::Size
            }
            _ => return Err(WireError::Chunk),
        };
        Ok(())
    }

    /// Takes one trailer line, or what is there of it.
    fn trailer_bytes_of(&mut self, input: &[u8], limits: &BodyLimits) -> Result<usize, WireError> {
        let end = memchr::memchr(b'\n', input).map_or(input.len(), |at| at + 1);
        self.trailer_bytes += end;
        if self.trailer_bytes > limits.trailer_bytes {
            return Err(WireError::TrailersTooLong);
        }
        self.partial.extend_from_slice(&input[..end]);
        let Some(line) = line::next(&self.partial)? else { return Ok(end) };
        if line.is_empty() {
            self.at = ChunkState::Done;
            self.trailers.retain(is_trailer);
        } else if self.trailers.len() >= limits.trailer_fields {
            return Err(WireError::TrailersTooLong);
        } else {
            line::push_field(line, &mut self.trailers)?;
        }
        self.partial.clear();
        Ok(end)
    }
}

/// A trailer must not change how the message was framed, routed or judged: that has been decided (RFC 9110 section 6.5.1).
pub fn is_trailer(field: Field<'_>) -> bool {
    let is_forbidden = matches!(
        field.known,
        Known::TransferEncoding
            | Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::Upgrade
            | Known::Te
            | Known::Trailer
            | Known::Host
            | Known::Expect
            | Known::Authorization
            | Known::ProxyAuthorization
            | Known::WwwAuthenticate
            | Known::XRequestId
            | Known::Traceparent
            | Known::Cookie
            | Known::SetCookie
            | Known::CacheControl
            | Known::Age
            | Known::Date
            | Known::Location
            | Known::RetryAfter
            | Known::Vary
            | Known::Range
            | Known::Forwarded
            | Known::XForwardedFor
            | Known::XForwardedHost
            | Known::XForwardedPort
            | Known::XForwardedProto
            | Known::XForwardedClientCert
            | Known::Via
    );
    let is_content = field.name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"content-"));
    !is_forbidden && !is_content
}
