//! Reasons why a body has no facts.

use std::borrow::Cow;
use std::fmt;

use weir_json_codec::{IntegerError, JsonError, Rule};

use super::field::Field;

/// A body that a gateway with a policy must refuse, with status 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The body is no JSON, or has a member twice that decides something.
    Json(JsonError),
    /// The body is JSON, but no object.
    NotAnObject,
    /// A value of another type than the member has.
    Type(Field),
    /// A number that limits nothing: below zero, too large, or with a fraction.
    Number(Field, IntegerError),
    /// A name of more than 4 KiB.
    TooLong(Field),
    /// More tools, texts or calls than the budget of a body.
    TooMany(Field),
    /// A body of 4 GiB or more.
    TooLarge,
}

impl BodyError {
    /// The `code` of OpenAI's error, which clients branch on.
    pub const fn code(self) -> Option<&'static str> {
        match self {
            Self::Json(JsonError { rule: Rule::Duplicate | Rule::Case, .. }) => Some("duplicate_key"),
            Self::Json(_) | Self::NotAnObject => Some("invalid_json"),
            _ => None,
        }
    }

    /// The `param` of OpenAI's error: the member at fault.
    pub const fn param(self) -> Option<&'static str> {
        match self {
            Self::Type(field) | Self::Number(field, _) | Self::TooLong(field) | Self::TooMany(field) => {
                Some(field.name())
            }
            _ => None,
        }
    }

    /// Stable snake_case label for counters and logs.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Json(error) => error.rule.reason(),
            Self::NotAnObject => "body_no_object",
            Self::Type(_) => "body_type",
            Self::Number(..) => "body_number",
            Self::TooLong(_) => "body_name_too_long",
            Self::TooMany(_) => "body_too_many",
            Self::TooLarge => "body_too_large",
        }
    }

    /// The text for the client. It quotes nothing of the body.
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Self::Json(error) => format!("The body could not be read: {error}.").into(),
            Self::NotAnObject => "The body is not a JSON object.".into(),
            Self::Type(field) => format!("Invalid type for '{}'.", field.name()).into(),
            Self::Number(field, error) => format!("Invalid value for '{}': {error}.", field.name()).into(),
            Self::TooLong(field) => format!("Invalid value for '{}': the text is too long.", field.name()).into(),
            Self::TooMany(field) => format!("Invalid value for '{}': it has too many items.", field.name()).into(),
            Self::TooLarge => "The body is too large.".into(),
        }
    }
}

impl From<JsonError> for BodyError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl std::error::Error for BodyError {}
