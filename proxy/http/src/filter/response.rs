//! Responses that a filter or a handler gives, and the end of one that breaks off.

use std::time::Duration;

use bytes::Bytes;
use weir_http_codec::Fields;

/// A response that is there as a whole.
#[derive(Clone, Debug)]
pub struct WholeResponse {
    /// 200 to 599.
    pub status: u16,
    /// Fields besides Date and those of the framing.
    pub fields: Fields,
    /// The body. Empty for a status that has none.
    pub body: Bytes,
}

/// Bounds of a response body that is held for [`Tap::Replace`](super::Tap::Replace). Its bytes are charged to `limits.buffered_bytes`
/// while they are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// Bytes that it may have. A longer one is refused with a 502 `response_too_long`.
    pub bytes_max: usize,
    /// Bytes of memory for each of its bytes while the filter replaces it, the body itself included. Charged for that time: without
    /// room the response is a 503 `response_no_room`.
    pub memory_per_byte: u32,
    /// The filter needs no whole body. One that is longer, breaks off, pauses for too long or finds no memory is cut there, and the filter
    /// replaces what has come; the connection to the origin ends. For errors, whose status must not be lost.
    pub may_be_cut: bool,
}

/// Bounds within which the remainder of a response is read whose client has left. The deadlines of the exchange hold, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainderLimits {
    /// From the moment at which the client left.
    pub timeout: Duration,
    /// Bytes of the body that would have been sent from then on. Those of a body that is held have limits of their own.
    pub bytes_max: u64,
}

/// The response in the place of one that was held. Its fields are those of the held one, as the filter has left them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedResponse {
    /// 200 to 599, and neither 204 nor 304.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

/// The end of a response that breaks off after its head, behind the last piece of its filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenEnd {
    /// It does not look complete: HTTP/1.1 has no last chunk, HTTP/2 resets the stream.
    Cut,
    /// It ends as a complete one does: the last piece says that it is not. The connection of the client may go on.
    Finish,
}
