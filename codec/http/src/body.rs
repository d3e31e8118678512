//! The length of a body, and its end.

use crate::{
    chunked::Chunked, error::WireError, fields::Fields, known::Known, limits::BodyLimits, request::Version, token::list,
};

/// Length of a body by its head (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// Bytes, below 2^63; 0: none.
    Exact(u64),
    /// In chunks, with trailers at the end.
    Chunked,
    /// Until the connection closes. Only for responses.
    UntilClose,
}

impl Default for BodyLength {
    fn default() -> Self {
        Self::Exact(0)
    }
}

/// The one Content-Length of `fields`: digits and nothing else. Several are refused even if they agree, since not everybody
/// behind would agree on which one counts.
pub(crate) fn content_length(fields: &Fields) -> Result<Option<u64>, WireError> {
    let mut values = fields.all(Known::ContentLength);
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value,
        (Some(_), Some(_)) => return Err(WireError::ContentLength),
    };
    if !(1..=19).contains(&value.len()) || !value.iter().all(u8::is_ascii_digit) {
        return Err(WireError::ContentLength);
    }
    let length = value.iter().fold(0_u64, |length, digit| length * 10 + u64::from(digit & 15));
    if length > i64::MAX as u64 {
        return Err(WireError::ContentLength);
    }
    Ok(Some(length))
}

/// True if the body is chunked; any doubt is an error.
fn is_chunked(version: Version, fields: &Fields) -> Result<bool, WireError> {
    let mut values = fields.all(Known::TransferEncoding);
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(false),
        (Some(value), None) => value,
        (Some(_), Some(_)) => return Err(WireError::TransferEncoding),
    };
    if version == Version::Http10 || fields.has(Known::ContentLength) {
        return Err(WireError::TransferEncoding);
    }
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(true);
    }
    // A coding that could be taken off, were it implemented; all else is a trick or a mistake.
    let is_coding = |coding: &[u8]| {
        [&b"gzip"[..], b"x-gzip", b"deflate", b"compress", b"x-compress"]
            .iter()
            .any(|it| coding.eq_ignore_ascii_case(it))
    };
    let mut codings = list(value).collect::<Vec<_>>();
    let last = codings.pop();
    let is_honest = last.is_some_and(|last| last.eq_ignore_ascii_case(b"chunked")) && !codings.is_empty();
    Err(match is_honest && codings.iter().all(|coding| is_coding(coding)) {
        true => WireError::TransferCoding,
        false => WireError::TransferEncoding,
    })
}

/// The length of a request body: chunked, or by Content-Length, else none. Never until the connection closes.
pub(crate) fn length_of_request(version: Version, fields: &Fields) -> Result<BodyLength, WireError> {
    if is_chunked(version, fields)? {
        return Ok(BodyLength::Chunked);
    }
    Ok(BodyLength::Exact(content_length(fields)?.unwrap_or(0)))
}

/// The length of the body of a response that has one.
pub(crate) fn length_of_response(version: Version, fields: &Fields) -> Result<BodyLength, WireError> {
    if is_chunked(version, fields)? {
        return Ok(BodyLength::Chunked);
    }
    Ok(content_length(fields)?.map_or(BodyLength::UntilClose, BodyLength::Exact))
}

/// The result of [`BodyDecoder::decode`]: the front of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Bytes of the input that are spent.
    pub taken: usize,
    /// Bytes of the body among them; often all of them.
    pub data: &'a [u8],
    /// The body ends with it.
    pub is_last: bool,
}

/// Finds the bytes of one body in what the connection brings.
#[derive(Debug)]
pub enum BodyDecoder {
    /// Bytes that are still to come.
    Exact(u64),
    /// See [`BodyLength::Chunked`].
    Chunked(Box<Chunked>),
    /// See [`BodyLength::UntilClose`].
    UntilClose,
}

impl BodyDecoder {
    /// At the front of a body.
    pub fn new(length: BodyLength) -> Self {
        match length {
            BodyLength::Exact(length) => Self::Exact(length),
            BodyLength::Chunked => Self::Chunked(Box::default()),
            BodyLength::UntilClose => Self::UntilClose,
        }
    }

    /// The body is over.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Exact(left) => *left == 0,
            Self::Chunked(chunked) => chunked.is_done(),
            Self::UntilClose => false,
        }
    }

    /// The next piece of the body; call it again with what is left until that is empty or the body done.
    ///
    /// # Errors
    /// The peer broke a rule; where the body ends is not certain any more.
    pub fn decode<'a>(&mut self, input: &'a [u8], limits: &BodyLimits) -> Result<Piece<'a>, WireError> {
        match self {
            Self::Exact(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= taken as u64;
                Ok(Piece { taken, data: &input[..taken], is_last: *left == 0 })
            }
            Self::Chunked(chunked) => chunked.decode(input, limits),
            Self::UntilClose => Ok(Piece { taken: input.len(), data: input, is_last: false }),
        }
    }

    /// The connection has ended: whether that is where the body does too. If not, it was cut short.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self, Self::UntilClose) || self.is_done()
    }

    /// The trailers, once the body is done.
    pub fn trailers(&self) -> Option<&Fields> {
        match self {
            Self::Chunked(chunked) if chunked.is_done() && !chunked.trailers.is_empty() => Some(&chunked.trailers),
            _ => None,
        }
    }
}
