//! Responses that a filter or a handler gives.

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
