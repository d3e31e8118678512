//! Reads tables key by key: unknown keys, missing keys, wrong kinds. Every mistake is reported and reading goes on.

use std::cell::LazyCell;
use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::Value as Json;
use toml::de::{DeTable, DeValue};

use weir_base::nearest;

use crate::diagnostic::{Problems, Span};
use crate::document::{At, Node};
use crate::section::Section;
use crate::surroundings::Surroundings;
use crate::value::{Shape, TableInfo, Value};

/// Tables in a list of tables. Default 1,024; each listener is a socket per worker.
const TABLES_MAX: usize = 1_024;

/// State that readers of all tables share.
pub(crate) struct Reader<'a> {
    pub(crate) surroundings: &'a dyn Surroundings,
    /// Relative paths in the file start here.
    pub(crate) directory: &'a Path,
    pub(crate) problems: Problems<'a>,
    /// The declaration of the whole file, to say where a misplaced key belongs: most files have none.
    pub(crate) root: LazyCell<TableInfo>,
    /// See [`Snapshot::unread`](crate::snapshot::Snapshot).
    pub(crate) unread: Vec<(String, Json)>,
}

impl Reader<'_> {
    /// "expected this, found that".
    pub(crate) fn wrong_kind(&mut self, node: &Node<'_>, shape: &Shape) {
        let message = format!("`{}` must be {}, not {}", node.path, shape.what(), node.kind());
        let bare = matches!(shape, Shape::Boolean | Shape::Integer | Shape::Ratio);
        let help = match (bare, node.text()) {
            (true, Some(_)) => format!("write it without quotes, for example {}", shape.example()),
            _ => format!("write for example {}", shape.example()),
        };
        self.problems.error(&node.span, node.path, message, help);
    }

    /// "the value is of the right kind, but".
    pub(crate) fn wrong_value(&mut self, node: &Node<'_>, message: String, help: impl Into<String>) {
        self.problems.error(&node.span, node.path, message, help);
    }

    /// "this is not here, so it is not checked": for what a configuration refers to, when it is checked away from its machine.
    pub(crate) fn not_here(&mut self, node: &Node<'_>, what: &str) {
        let shown = match node.value {
            DeValue::Table(table) => {
                table.iter().map(|(key, value)| (key.get_ref().to_string(), value.get_ref().as_str())).collect()
            }
            _ => Json::from(node.text().map(|path| self.directory.join(path).display().to_string())),
        };
        self.unread.push((node.path.to_owned(), shown));
        let message = format!("`{}`: {what}, so it was not checked", node.path);
        self.problems.note(
            &node.span,
            node.path,
            message,
            "weir check without --offline checks it where the gateway runs",
        );
    }

    /// True if `key` of the table at `path`, whose value this is, is not written. One that is written and cannot be read was
    /// reported, and is not missed besides.
    pub(crate) fn lacks<T>(&self, value: Option<&At<T>>, path: &str, key: &str) -> bool {
        value.is_none() && !self.problems.is_known_wrong(&format!("{path}.{key}"))
    }

    /// Reads a value and checks its range.
    pub(crate) fn ranged<T: Value + PartialOrd>(
        &mut self,
        node: &Node<'_>,
        value: T,
        range: Option<&RangeInclusive<T>>,
    ) -> Option<T> {
        match range {
            Some(range) if !range.contains(&value) => {
                self.out_of_range(node, &value.show().to_string(), range);
                None
            }
            _ => Some(value),
        }
    }

    /// "must be from low to high".
    pub(crate) fn out_of_range<T: Value>(&mut self, node: &Node<'_>, found: &str, range: &RangeInclusive<T>) {
        let (low, high) = (range.start().show(), range.end().show());
        let message = format!("`{}` is out of range: {found}", node.path);
        self.problems.error(&node.span, node.path, message, format!("it must be from {low} to {high}"));
    }
}

/// One table of the file; absent tables are read as empty ones, which gives the defaults.
pub(crate) struct TableReader<'r, 'n, 'a> {
    reader: &'r mut Reader<'a>,
    table: Option<&'n DeTable<'n>>,
    span: Span,
    path: String,
}

impl<'r, 'n, 'a> TableReader<'r, 'n, 'a> {
    /// The table of the whole file.
    pub(crate) fn root(reader: &'r mut Reader<'a>, table: &'n DeTable<'n>) -> Self {
        Self { reader, table: Some(table), span: 0..0, path: String::new() }
    }

    /// The place of the table's header.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Reports keys that the declaration does not have.
    pub(crate) fn refuse_unknown(&mut self, names: &[&str]) {
        let Some(table) = self.table else { return };
        for key in table.keys() {
            let word: &str = key.get_ref();
            if names.contains(&word) {
                continue;
            }
            let path = join(&self.path, word);
            let place = if self.path.is_empty() { "the file".to_owned() } else { format!("`{}`", self.path) };
            let message = format!("unknown key `{}` in {place}", printable(word));
            let help = unknown_help(word, names, &self.reader.root);
            self.reader.problems.error_cut(&key.span(), &path, message, help);
        }
    }

    /// A key with a default.
    pub(crate) fn default_value<T: Value>(
        &mut self,
        key: &'static str,
        default: T,
        range: Option<RangeInclusive<T>>,
    ) -> At<T> {
        let absent = At { value: default, span: self.span.clone(), is_given: false };
        self.optional_value(key, range).unwrap_or(absent)
    }

    /// A key that may be absent.
    pub(crate) fn optional_value<T: Value>(
        &mut self,
        key: &'static str,
        range: Option<RangeInclusive<T>>,
    ) -> Option<At<T>> {
        let (value, span) = self.find(key)?;
        let path = join(&self.path, key);
        let node = Node { value, span: span.clone(), path: &path };
        let value = T::read(&node, range.as_ref(), self.reader)?;
        Some(At { value, span, is_given: true })
    }

    /// A key that must be there.
    pub(crate) fn required_value<T: Value>(
        &mut self,
        key: &'static str,
        range: Option<RangeInclusive<T>>,
    ) -> Option<At<T>> {
        if self.find(key).is_none() {
            let path = join(&self.path, key);
            let message = format!("`{path}` is missing: {}", T::shape().what());
            let help = format!("add {key} = {}", T::shape().example());
            self.reader.problems.error(&self.span, &path, message, help);
            return None;
        }
        self.optional_value(key, range)
    }

    /// A table; absent, every key of it has its default.
    pub(crate) fn section<S: Section>(&mut self, key: &'static str) -> S {
        match self.optional_section(key) {
            Some(section) => section,
            None => S::read(&mut TableReader {
                span: self.span.clone(),
                path: join(&self.path, key),
                table: None,
                reader: self.reader,
            }),
        }
    }

    /// A table whose absence means something of its own.
    pub(crate) fn optional_section<S: Section>(&mut self, key: &'static str) -> Option<S> {
        let (value, span) = self.find(key)?;
        let path = join(&self.path, key);
        match value {
            DeValue::Table(table) => Some(self.one_section(table, span, path)),
            _ => {
                let message = format!("`{path}` must be a table, not {}", kind(value, &span, &path));
                let help = format!("write [{}] and its keys below", header(&path));
                self.reader.problems.error_cut(&span, &path, message, help);
                None
            }
        }
    }

    /// A list of tables.
    pub(crate) fn sections<S: Section>(&mut self, key: &'static str) -> Vec<S> {
        let Some((value, span)) = self.find(key) else {
            return Vec::new();
        };
        let path = join(&self.path, key);
        let DeValue::Array(items) = value else {
            let message = format!("`{path}` must be a list of tables, not {}", kind(value, &span, &path));
            let help = format!("write [[{path}]], with two brackets");
            self.reader.problems.error_cut(&span, &path, message, help);
            return Vec::new();
        };
        if items.len() > TABLES_MAX {
            let message = format!("{} tables in `{path}`", items.len());
            self.reader.problems.error(&span, &path, message, format!("at most {TABLES_MAX} are allowed"));
        }
        let mut sections = Vec::new();
        for (index, item) in items.iter().take(TABLES_MAX).enumerate() {
            let path = format!("{path}[{index}]");
            let span = item.span();
            match item.get_ref() {
                DeValue::Table(table) => sections.push(self.one_section(table, span, path)),
                other => {
                    let message = format!("`{path}` must be a table, not {}", kind(other, &span, &path));
                    let help = format!("write [[{key}]] and its keys below");
                    self.reader.problems.error_cut(&span, &path, message, help);
                }
            }
        }
        sections
    }

    fn one_section<S: Section>(&mut self, table: &DeTable<'_>, span: Span, path: String) -> S {
        S::read(&mut TableReader { reader: self.reader, table: Some(table), span, path })
    }

    fn find(&self, key: &str) -> Option<(&'n DeValue<'n>, Span)> {
        let (_, value) = self.table?.iter().find(|(name, _)| name.get_ref() == key)?;
        Some((value.get_ref(), value.span()))
    }
}

/// `limits` and `connections` to `limits.connections`.
fn join(path: &str, key: &str) -> String {
    let key = printable(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// A quoted key may hold anything; the terminal gets letters, and not too many of them.
fn printable(key: &str) -> String {
    let shown: String = key.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect();
    if shown.len() < key.len() { format!("{shown}...") } else { shown }
}

/// `listener[0].tls` to `listener.tls`, as it stands in a header.
pub(crate) fn header(path: &str) -> String {
    path.split('.').map(|part| part.split('[').next().unwrap_or(part)).collect::<Vec<_>>().join(".")
}

fn kind(value: &DeValue<'_>, span: &Span, path: &str) -> &'static str {
    let node = Node { value, span: span.clone(), path };
    node.kind()
}

/// Keys of other programs, and the one that does the same here. Looked up only if nothing is nearly spelled the same.
pub(crate) const OTHER_WORDS: &[(&str, &str)] = &[
    ("listen", "bind"),
    ("address", "bind"),
    ("port", "bind"),
    ("servers", "endpoints"),
    ("endpoint", "endpoints"),
    ("hosts", "endpoints"),
    ("backend", "upstream"),
    ("cluster", "upstream"),
    ("maxclients", "connections_max"),
    ("max_connections", "connections_max"),
    ("requirepass", "password"),
    ("timeout", "idle_timeout"),
    ("threads", "workers"),
    ("cert", "cert_file"),
    ("key", "key_file"),
    ("ca", "ca_file"),
];

/// Where the key belongs, what was meant, or what there is.
fn unknown_help(word: &str, names: &[&str], root: &TableInfo) -> String {
    if let Some(meant) = nearest(word, names.iter().copied()) {
        return format!("did you mean `{meant}`?");
    }
    let alike = OTHER_WORDS.iter().filter(|(other, _)| *other == word);
    if let Some(key) = alike.map(|(_, key)| *key).find(|key| names.contains(key)) {
        return format!("did you mean `{key}`?");
    }
    let mut homes = Vec::new();
    homes_of(word, "", root, &mut homes);
    if !homes.is_empty() {
        return format!("`{word}` belongs in {}", homes.join(" or "));
    }
    format!("known keys: {}", names.join(", "))
}

/// Headers of the tables that have a key `word`. The declarations nest three deep, so does this.
fn homes_of(word: &str, path: &str, info: &TableInfo, homes: &mut Vec<String>) {
    for field in &info.fields {
        let path = join(path, field.key);
        let (table, brackets) = match &field.shape {
            Shape::Table(table) => (table, ("[", "]")),
            Shape::Tables(table) => (table, ("[[", "]]")),
            _ => continue,
        };
        if table.fields.iter().any(|field| field.key == word) {
            homes.push(format!("{}{path}{}", brackets.0, brackets.1));
        }
        homes_of(word, &path, table, homes);
    }
}
