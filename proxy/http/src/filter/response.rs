//! Responses that a filter or a handler gives, and the end of one that breaks off.

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

/// The end of a response that breaks off after its head, behind the last piece of its filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenEnd {
    /// It does not look complete: HTTP/1.1 has no last chunk, HTTP/2 resets the stream.
    Cut,
    /// It ends as a complete one does: the last piece says that it is not. The connection of the client may go on.
    Finish,
}
