//! The requirements of a type for the value of a key.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use serde_json::Value as Json;

use crate::document::Node;
use crate::reader::Reader;

/// A type that a key can have.
pub(crate) trait Value: Clone + PartialEq {
    /// Its form in the file.
    fn shape() -> Shape;

    /// Reads it, or reports why not. `range` binds types that have an order; others ignore it.
    fn read(node: &Node<'_>, range: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self>;

    /// The value as it could stand in the file. A secret shows where it comes from.
    fn show(&self) -> Json;
}

/// Form of a value in the file: for messages, the schema and the reference page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    Boolean,
    Integer,
    Ratio,
    Size,
    Period,
    /// Text of a certain form: what it is (with article), and an example.
    Text {
        what: &'static str,
        example: &'static str,
    },
    /// One of these words.
    Choice(Vec<&'static str>),
    List(Box<Shape>),
    Secret,
    Table(TableInfo),
    Tables(TableInfo),
}

impl Shape {
    /// The expected form, with its article.
    pub(crate) fn what(&self) -> String {
        match self {
            Self::Boolean => "true or false".to_owned(),
            Self::Integer => "a whole number".to_owned(),
            Self::Ratio => "a number from 0.0 to 1.0".to_owned(),
            Self::Size => "a size".to_owned(),
            Self::Period => "a duration".to_owned(),
            Self::Text { what, .. } => (*what).to_owned(),
            Self::Choice(words) => format!("one of {}", quoted(words)),
            Self::List(inner) => format!("a list (each entry is {})", inner.what()),
            Self::Secret => "a reference to a secret".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Tables(_) => "a list of tables".to_owned(),
        }
    }

    /// How to write it.
    pub(crate) fn example(&self) -> String {
        match self {
            Self::Boolean => "true".to_owned(),
            Self::Integer => "16".to_owned(),
            Self::Ratio => "0.01".to_owned(),
            Self::Size => "\"64KiB\" (B, KiB, MiB, GiB), or a number of bytes".to_owned(),
            Self::Period => "\"500ms\" (us, ms, s, m, h, d)".to_owned(),
            Self::Text { example, .. } => format!("\"{example}\""),
            Self::Choice(words) => format!("\"{}\"", words.first().unwrap_or(&"")),
            Self::List(inner) => format!("[{}]", inner.example()),
            Self::Secret => "{ env = \"NAME\" } or { file = \"/path\" }".to_owned(),
            Self::Table(_) | Self::Tables(_) => "a table header".to_owned(),
        }
    }
}

/// `"a", "b", "c"`.
pub(crate) fn quoted(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    words.join(", ")
}

/// A table: what it is for and its keys, in the order of their declaration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableInfo {
    pub(crate) doc: &'static str,
    pub(crate) fields: Vec<FieldInfo>,
}

/// A key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldInfo {
    pub(crate) key: &'static str,
    pub(crate) doc: Cow<'static, str>,
    pub(crate) shape: Shape,
    pub(crate) presence: Presence,
    /// Lowest and highest value, as they would stand in the file.
    pub(crate) range: Option<(Json, Json)>,
}

/// The meaning of an absent key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Presence {
    /// A mistake.
    Required,
    /// As the key's text says.
    Optional,
    /// This value.
    Default(Json),
}

/// The lines of a doc comment as one text.
pub(crate) fn prose(doc: &str) -> String {
    let lines: Vec<&str> = doc.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}
