//! TOML text to a spanned tree. All syntax errors that the parser can recover from are reported at once.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Problems, Span};

/// Parses `source`. For a text with syntax errors no tree is returned: the guesses of the parser while it recovered
/// would only lead to mistakes that are not in the file.
pub(crate) fn parse<'s>(source: &'s str, problems: &mut Problems<'_>) -> Option<Spanned<DeTable<'s>>> {
    let (document, errors) = DeTable::parse_recoverable(source);
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        let help = syntax_help(error.message());
        problems.error(&span, "", format!("not TOML: {}", error.message()), help);
    }
    errors.is_empty().then_some(document)
}

/// The usual remedy for what the parser says. Which words it has for a mistake is its own affair, so the last one fits all.
fn syntax_help(message: &str) -> &'static str {
    let has = |words: &str| message.contains(words);
    if has("duplicate key") {
        "write each key and table once; further listeners and upstreams are [[listener]] and [[upstream]]"
    } else if has("must be quoted") || has("string values") {
        "write text in double quotes: key = \"value\""
    } else if has("escape") {
        "write \\\\ for a backslash, or put the text in single quotes, where a backslash is an ordinary character"
    } else if has("quote") || has("string") {
        "close the quotes: key = \"value\", on one line"
    } else if has("`]`") || has("array") || has("table header") {
        "close the brackets: [table], [[list of tables]], key = [\"one\", \"two\"]"
    } else if has("inline table") || has("`}`") {
        "write it on one line: key = { env = \"NAME\" }"
    } else if has("`=`") || has("missing value") || has("key with no value") {
        "write key = value, with text in double quotes"
    } else {
        "write one key = value per line, text in double quotes, tables as [name] and lists of tables as [[name]]"
    }
}

/// One value of the tree and its place.
#[derive(Clone)]
pub(crate) struct Node<'n> {
    pub(crate) value: &'n DeValue<'n>,
    pub(crate) span: Span,
    /// The key, for example `limits.connections`.
    pub(crate) path: &'n str,
}

impl Node<'_> {
    /// The kind of the value, with its article.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        }
    }

    /// The text of a string.
    pub(crate) fn text(&self) -> Option<&str> {
        self.value.as_str()
    }

    /// The number, if it is a whole one. TOML numbers are 64 bit; what does not fit is beyond every range anyway.
    pub(crate) fn integer(&self) -> Option<i128> {
        let integer = self.value.as_integer()?;
        Some(match i128::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => number,
            Err(_) if integer.as_str().starts_with('-') => i128::MIN,
            Err(_) => i128::MAX,
        })
    }
}

/// A value and where it stands. Two are equal if their values are, wherever they stand.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    /// The value's own place, or that of its table when the value is a default.
    pub(crate) span: Span,
    /// False: a default.
    pub(crate) is_given: bool,
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}
