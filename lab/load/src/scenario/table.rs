//! Reads tables key by key. Keys that were not read are unknown; every mistake is noted and reading goes on.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::{DeTable, DeValue};
use weir_base::ByteSize;
use weir_base::secret::Secret;

use super::mistake::{Problems, Span};

/// In front of the name of an environment variable.
const FROM_ENVIRONMENT: &str = "env:";

/// One table of the file. An absent table reads as an empty one.
pub struct Table<'a> {
    table: Option<&'a DeTable<'a>>,
    /// Span of the table, or of the value in its place.
    pub(crate) span: Span,
    path: String,
    problems: &'a Problems<'a>,
    read: RefCell<Vec<&'static str>>,
}

/// A value and its place.
pub struct Node<'a> {
    pub(crate) value: &'a DeValue<'a>,
    pub(crate) span: Span,
    pub(crate) path: String,
    problems: &'a Problems<'a>,
}

impl<'a> Table<'a> {
    pub(crate) fn root(table: &'a DeTable<'a>, problems: &'a Problems<'a>) -> Self {
        Self { table: Some(table), span: 0..0, path: String::new(), problems, read: RefCell::default() }
    }

    /// Path of a key of this table.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of a key that may be absent.
    pub(crate) fn get(&self, key: &'static str) -> Option<Node<'a>> {
        self.read.borrow_mut().push(key);
        let (_, value) = self.table?.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(Node { value: value.get_ref(), span: value.span(), path: self.path(key), problems: self.problems })
    }

    /// The value of a key that must be there.
    pub(crate) fn need(&self, key: &'static str, example: &str) -> Option<Node<'a>> {
        let found = self.get(key);
        if found.is_none() {
            self.problems.add(&self.span, format!("`{}` is missing", self.path(key)), format!("add {key} = {example}"));
        }
        found
    }

    /// The value of a key that does not fit to what stands elsewhere.
    pub(crate) fn refuse(&self, key: &'static str, why: &str, remedy: &str) {
        if let Some(node) = self.get(key) {
            node.wrong(why, remedy);
        }
    }

    /// Place of a key, or of the table if it is absent.
    pub(crate) fn span_of(&self, key: &'static str) -> Span {
        self.get(key).map_or(self.span.clone(), |node| node.span)
    }

    /// A table that may be absent; `None` if something else stands there.
    pub(crate) fn table(&self, key: &'static str) -> Option<Table<'a>> {
        match self.get(key) {
            Some(node) => node.into_table(),
            None => Some(Table {
                table: None,
                span: self.span.clone(),
                path: self.path(key),
                problems: self.problems,
                read: RefCell::default(),
            }),
        }
    }

    /// Notes every key that was never read.
    pub(crate) fn finish(self) {
        let read = self.read.into_inner();
        for key in self.table.into_iter().flat_map(DeTable::keys) {
            let word: &str = key.get_ref();
            if !read.contains(&word) {
                let mut known: Vec<&str> = read.clone();
                known.sort_unstable();
                known.dedup();
                let place = if self.path.is_empty() { "the file".into() } else { format!("`{}`", self.path) };
                let remedy = format!("known keys here: {}", known.join(", "));
                self.problems.add(&key.span(), format!("unknown key `{word}` in {place}"), remedy);
            }
        }
    }
}

impl<'a> Node<'a> {
    /// Notes a mistake in this value.
    pub(crate) fn wrong(&self, why: impl Display, remedy: impl Into<String>) {
        self.problems.add(&self.span, format!("`{}` {why}", self.path), remedy);
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        let text = self.value.as_str();
        if text.is_none() {
            self.wrong("is no text", "write it in double quotes");
        }
        text
    }

    /// A secret, or `env:` and the variable that holds it. `noun` names it in messages.
    pub(crate) fn secret(&self, noun: &str) -> Option<Secret> {
        self.secret_text(noun).map(Secret::from)
    }

    /// A secret of visible ASCII, which goes into requests as it stands.
    pub(crate) fn visible_secret(&self, noun: &str) -> Option<Secret> {
        let value = self.secret_text(noun)?;
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.wrong(format!("has characters that no {noun} has"), "write visible characters without blanks");
            return None;
        }
        Some(Secret::from(value))
    }

    fn secret_text(&self, noun: &str) -> Option<String> {
        let text = self.text()?;
        let Some(variable) = text.strip_prefix(FROM_ENVIRONMENT) else { return Some(text.to_owned()) };
        let value = std::env::var(variable).ok();
        if value.is_none() {
            self.wrong(format!("is \"{text}\", and ${variable} is not set"), format!("set it, or write the {noun}"));
        }
        value
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        let boolean = self.value.as_bool();
        if boolean.is_none() {
            self.wrong("is neither true nor false", "write true or false, without quotes");
        }
        boolean
    }

    pub(crate) fn whole<T>(&self, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<u64> + Into<u64> + Copy + PartialOrd + Display,
    {
        let remedy = format!("it is a whole number from {} to {}", range.start(), range.end());
        let integer = self.value.as_integer();
        let number = integer.and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok());
        let number = number.and_then(|number| T::try_from(number).ok()).filter(|number| range.contains(number));
        if number.is_none() {
            self.wrong(format!("is {}", self.shown()), remedy);
        }
        number
    }

    pub(crate) fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let number = match self.value {
            DeValue::Integer(integer) => {
                i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|number| number as f64)
            }
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let remedy = format!("it is a number from {} to {}", range.start(), range.end());
            self.wrong(format!("is {}", self.shown()), remedy);
        }
        number
    }

    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let chosen = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
        if chosen.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.wrong(format!("is \"{text}\""), format!("it is one of {}", words.join(", ")));
        }
        chosen
    }

    pub(crate) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let example = "write a whole number and a unit: \"500us\", \"20ms\", \"30s\", \"5m\"";
        let Some(duration) = self.value.as_str().and_then(parse_duration) else {
            self.wrong("is no duration", example);
            return None;
        };
        if !range.contains(&duration) {
            self.wrong(format!("is {duration:?}"), format!("it is from {:?} to {:?}", range.start(), range.end()));
            return None;
        }
        Some(duration)
    }

    /// Bytes, from 1 to `most`.
    pub(crate) fn size(&self, most: usize) -> Option<usize> {
        if self.value.as_integer().is_some() {
            return self.whole(1..=most as u64).map(|bytes| bytes as usize);
        }
        match self.text()?.parse::<ByteSize>() {
            Ok(size) if (1..=most as u64).contains(&size.bytes()) => Some(size.as_usize()),
            Ok(size) => {
                self.wrong(format!("is {size}"), format!("it is from 1B to {}", ByteSize::new(most as u64)));
                None
            }
            Err(error) => {
                self.wrong("is no size", error.to_string());
                None
            }
        }
    }

    /// The entries of a list.
    pub(crate) fn list(&self) -> Option<Vec<Node<'a>>> {
        let DeValue::Array(items) = self.value else {
            self.wrong("is no list", "write it in square brackets");
            return None;
        };
        let node = |(at, item): (usize, &'a toml::Spanned<DeValue<'a>>)| Node {
            value: item.get_ref(),
            span: item.span(),
            path: format!("{}[{at}]", self.path),
            problems: self.problems,
        };
        Some(items.iter().enumerate().map(node).collect())
    }

    /// The table that this value is.
    pub(crate) fn into_table(self) -> Option<Table<'a>> {
        let DeValue::Table(table) = self.value else {
            self.wrong("is no table", "write its keys below a header in square brackets");
            return None;
        };
        let (span, path, problems) = (self.span, self.path, self.problems);
        Some(Table { table: Some(table), span, path, problems, read: RefCell::default() })
    }

    /// The value as a message shows it.
    fn shown(&self) -> String {
        match self.value {
            DeValue::String(text) => format!("the text \"{text}\""),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Datetime(_) => "a date".to_owned(),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        }
    }
}

/// A whole number and a unit: `500us`, `20ms`, `30s`, `5m`, `1h`. `None` for anything else.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, u64); 5] =
        [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000)];
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    Some(Duration::from_nanos(number.parse::<u64>().ok()?.checked_mul(*nanos)?))
}
