//! Fields of the head that repeat a part of the message (MCP 2026-07-28, "Request Metadata"): `Mcp-Method` and `Mcp-Name`.
//!
//! A server may look at the field alone, and a gateway judges the message. So a request in which they differ is refused.

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::message::Message;

/// The marks around a value that no field can have as it is.
const ENCODED: (&[u8], &[u8]) = (b"=?base64?", b"?=");

/// Whether a field with the name of a tool, a prompt or a resource says the same as the message ("Value Encoding").
pub fn says(field: &[u8], value: &str) -> bool {
    let (begin, end) = ENCODED;
    match field.strip_prefix(begin).and_then(|rest| rest.strip_suffix(end)) {
        Some(encoded) => BASE64_STANDARD.decode(encoded).is_ok_and(|decoded| decoded == value.as_bytes()),
        None => field == value.as_bytes(),
    }
}

/// Whether the fields of a request say the same as its message. `methods` and `names`: all fields of these names.
pub fn agree<'a>(
    message: &Message,
    methods: impl IntoIterator<Item = &'a [u8]>,
    names: impl IntoIterator<Item = &'a [u8]>,
) -> bool {
    let name = if &*message.method == "resources/read" { &message.uri } else { &message.name };
    let is_method = |field: &[u8]| field == message.method.as_bytes();
    let is_name = |field: &[u8]| name.as_deref().is_some_and(|name| says(field, name));
    methods.into_iter().all(is_method) && names.into_iter().all(is_name)
}
