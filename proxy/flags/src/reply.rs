//! The responses of the API.

use bytes::Bytes;
use weir_flags_codec::etag::EntityTag;
use weir_http::{compression::Coding, filter::WholeResponse};
use weir_http_codec::{Fields, Known};

use crate::{
    edge::random_in,
    limits::{RETRY_AFTER_SECONDS, STREAM_RETRY_AFTER_SECONDS},
};

/// A status and nothing else.
pub(crate) fn empty(status: u16) -> WholeResponse {
    WholeResponse { status, fields: Fields::new(), body: Bytes::new() }
}

/// The state that the request needs is not there yet.
pub(crate) fn later() -> WholeResponse {
    let mut response = empty(503);
    response.fields.add(Known::RetryAfter, random_in(RETRY_AFTER_SECONDS).to_string().as_bytes());
    response
}

/// There are too many streams.
pub(crate) fn too_many_streams() -> WholeResponse {
    let mut response = empty(429);
    response.fields.add(Known::RetryAfter, random_in(STREAM_RETRY_AFTER_SECONDS).to_string().as_bytes());
    response
}

/// A document.
pub(crate) fn json(status: u16, body: impl Into<Bytes>) -> WholeResponse {
    let mut fields = Fields::with_room(4, 160);
    fields.add(Known::ContentType, b"application/json");
    WholeResponse { status, fields, body: body.into() }
}

/// An error in words. The text never has a part of a token.
pub(crate) fn error(status: u16, text: &str) -> WholeResponse {
    json(status, serde_json::json!({ "error": text }).to_string())
}

/// A text.
pub(crate) fn text(status: u16, content_type: &str, body: impl Into<Bytes>) -> WholeResponse {
    let mut fields = Fields::new();
    fields.add(Known::ContentType, content_type.as_bytes());
    WholeResponse { status, fields, body: body.into() }
}

/// A page that loads nothing but what stands beside it.
pub(crate) fn page(body: &'static [u8]) -> WholeResponse {
    const POLICY: &[u8] =
        b"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'";
    let mut response = text(200, "text/html; charset=utf-8", body);
    response.fields.push(b"content-security-policy", POLICY);
    response
}

/// A document with its entity tag, and with a coding that is on it already.
pub(crate) fn tagged(body: Bytes, tag: &str, coding: Option<Coding>) -> WholeResponse {
    let mut response = json(200, body);
    response.fields.add(Known::Etag, tag.as_bytes());
    response.fields.add(Known::Vary, b"Accept-Encoding");
    if let Some(coding) = coding {
        response.fields.add(Known::ContentEncoding, coding.name().as_bytes());
    }
    response
}

/// The client has the document of this tag. The fields are those of the document for caches (RFC 9110 section 15.4.5).
pub(crate) fn not_modified(tag: &str) -> WholeResponse {
    let mut response = empty(304);
    response.fields.add(Known::Etag, tag.as_bytes());
    response.fields.add(Known::Vary, b"Accept-Encoding");
    response
}

/// Whether a request names the tag (RFC 9110 section 13.1.2).
pub(crate) fn has(fields: &Fields, tag: EntityTag) -> bool {
    fields.all_named(b"if-none-match").any(|value| std::str::from_utf8(value).is_ok_and(|value| tag.is_in(value)))
}

/// The text of a field.
pub(crate) fn field<'a>(fields: &'a Fields, name: &'a str) -> Option<&'a str> {
    std::str::from_utf8(fields.all_named(name.as_bytes()).next()?).ok()
}
