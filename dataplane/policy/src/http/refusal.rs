//! A no, in the words of HTTP.

use weir_http_codec::Fields;

/// The gateway's own response instead of the origin's.
#[derive(Clone, Debug)]
#[must_use = "a refusal that is not sent lets the request through"]
pub struct Refusal {
    /// Status code.
    pub status: u16,
    /// Stable snake_case word for metrics, logs and the access record. Never derived from input.
    pub reason: &'static str,
    /// Fields that belong to the response, such as `WWW-Authenticate`.
    pub fields: Fields,
}

impl Refusal {
    /// A refusal without fields.
    pub fn new(status: u16, reason: &'static str) -> Self {
        Self { status, reason, fields: Fields::new() }
    }

    /// The same with one more field.
    pub(crate) fn with(mut self, name: &str, value: &[u8]) -> Self {
        self.fields.push(name.as_bytes(), value);
        self
    }
}
