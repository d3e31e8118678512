//! A document that is refused.

use std::fmt;

/// A document is no JSON, or lacks a field, or a field has the wrong type. The text names the place, never a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// Line and column, both from 1.
    pub place: (usize, usize),
    /// Whether the text is JSON of another form.
    pub is_json: bool,
}

impl From<serde_json::Error> for DocumentError {
    fn from(error: serde_json::Error) -> Self {
        Self { place: (error.line(), error.column()), is_json: error.is_data() }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_json { "a field is missing or has the wrong type" } else { "no JSON" };
        write!(f, "{what} at line {}, column {}", self.place.0, self.place.1)
    }
}

impl std::error::Error for DocumentError {}
