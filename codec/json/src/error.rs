//! Rules that a sender of JSON can break. Each has one stable label and one text.

use std::fmt;

use weir_base::{error::Culprit, violation::Violation};

/// A rule of the grammar, or a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A byte that cannot stand there (sections 2 to 5).
    Syntax,
    /// The text ends within a value, or has none.
    End,
    /// A number with a form that the grammar does not have (section 6).
    Number,
    /// A byte below 0x20 in a string (section 7).
    Control,
    /// A backslash in front of a character without a meaning, or `\u` without four hexadecimal digits (section 7).
    Escape,
    /// Half of a surrogate pair: not a character (section 8.2).
    Surrogate,
    /// Bytes that are not UTF-8 (section 8.1).
    Utf8,
    /// More open objects and arrays than [`DEPTH_MAX`](crate::limits::DEPTH_MAX).
    Depth,
    /// A watched member occurs a second time in its object: readers disagree about the one that counts (section 4).
    Duplicate,
    /// A key differs from a watched one in case alone: readers such as Go's `encoding/json` take it for that one.
    Case,
}

impl Rule {
    /// Every one.
    pub const ALL: &'static [Self] = &[
        Self::Syntax,
        Self::End,
        Self::Number,
        Self::Control,
        Self::Escape,
        Self::Surrogate,
        Self::Utf8,
        Self::Depth,
        Self::Duplicate,
        Self::Case,
    ];

    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Syntax => "json_syntax",
            Self::End => "json_end",
            Self::Number => "json_number",
            Self::Control => "json_control",
            Self::Escape => "json_escape",
            Self::Surrogate => "json_surrogate",
            Self::Utf8 => "json_utf8",
            Self::Depth => "json_depth",
            Self::Duplicate => "json_duplicate",
            Self::Case => "json_key_case",
        }
    }

    /// The rule, never the bytes that broke it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Syntax => "unexpected character",
            Self::End => "unexpected end",
            Self::Number => "invalid number",
            Self::Control => "control character in a string",
            Self::Escape => "invalid escape in a string",
            Self::Surrogate => "half of a surrogate pair in a string",
            Self::Utf8 => "invalid UTF-8",
            Self::Depth => "too many nested objects and arrays",
            Self::Duplicate => "duplicate key",
            Self::Case => "a key in the wrong case",
        }
    }
}

/// A sender broke a rule. The scanner is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JsonError {
    /// The rule.
    pub rule: Rule,
    /// The first byte of the text that cannot belong to a valid one. For a mistake about keys, where the key begins.
    pub offset: u64,
}

impl JsonError {
    /// The violation that `culprit` committed with it.
    pub fn violation(self, culprit: Culprit) -> Violation {
        Violation::rule(self.rule.reason(), culprit, self.rule.text())
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid JSON at byte {}: {}", self.offset, self.rule.text())
    }
}

impl std::error::Error for JsonError {}
