//! Values and tables of TOML, and their text.

use std::fmt::Write as _;

/// Columns from which a list has one line for each element.
const LINE_COLUMNS: usize = 100;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Fraction(f64),
    Flag(bool),
    List(Vec<Value>),
    /// A table in one line.
    Inline(Vec<(String, Value)>),
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A list of texts.
    pub(crate) fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// A duration of so many microseconds, in its largest whole unit.
    pub(crate) fn micros(micros: u64) -> Self {
        let units = [("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)];
        let whole = units.into_iter().find(|(_, size)| micros != 0 && micros.is_multiple_of(*size));
        Self::Text(match (micros, whole) {
            (0, _) => "0s".to_owned(),
            (_, Some((unit, size))) => format!("{}{unit}", micros / size),
            (_, None) => format!("{micros}us"),
        })
    }

    /// A duration of so many milliseconds.
    pub(crate) fn millis(millis: u64) -> Self {
        Self::micros(millis.saturating_mul(1_000))
    }

    /// A size in bytes.
    pub(crate) fn bytes(bytes: u64) -> Self {
        let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let whole = units.into_iter().find(|(_, size)| bytes != 0 && bytes.is_multiple_of(*size));
        Self::Text(whole.map_or_else(|| format!("{bytes}B"), |(unit, size)| format!("{}{unit}", bytes / size)))
    }

    /// A secret that an environment variable holds.
    pub(crate) fn secret(variable: &str) -> Self {
        Self::inline([("env", Self::text(variable))])
    }

    pub(crate) fn inline<const N: usize>(entries: [(&str, Self); N]) -> Self {
        Self::Inline(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    fn print(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Number(number) => number.to_string(),
            Self::Fraction(number) => format!("{number:?}"),
            Self::Flag(flag) => flag.to_string(),
            Self::List(values) => {
                let all: Vec<String> = values.iter().map(Self::print).collect();
                let line = format!("[{}]", all.join(", "));
                match line.len() > LINE_COLUMNS && all.len() > 1 {
                    true => format!("[\n    {},\n]", all.join(",\n    ")),
                    false => line,
                }
            }
            Self::Inline(entries) => {
                let all: Vec<String> =
                    entries.iter().map(|(key, value)| format!("{key} = {}", value.print())).collect();
                format!("{{ {} }}", all.join(", "))
            }
        }
    }
}

/// A basic string of TOML, or a literal one where a basic one would be full of backslashes.
fn quoted(text: &str) -> String {
    if text.contains(['\\', '"']) && !text.contains('\'') && !text.contains(|c: char| c.is_control()) {
        return format!("'{text}'");
    }
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A table, its keys in the order in which they were set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    keys: Vec<(String, Value)>,
    tables: Vec<(String, Table)>,
    lists: Vec<(String, Vec<Table>)>,
}

impl Table {
    /// Sets `path` (keys with dots between them), in place of what stood there.
    pub(crate) fn set(&mut self, path: &str, value: Value) {
        match path.split_once('.') {
            Some((table, rest)) => self.table(table).set(rest, value),
            None => match self.keys.iter_mut().find(|(key, _)| key == path) {
                Some((_, old)) => *old = value,
                None => self.keys.push((path.to_owned(), value)),
            },
        }
    }

    /// The value at `path`.
    pub(crate) fn get(&self, path: &str) -> Option<&Value> {
        match path.split_once('.') {
            Some((table, rest)) => self.get_table(table)?.get(rest),
            None => self.keys.iter().find(|(key, _)| key == path).map(|(_, value)| value),
        }
    }

    /// The table called `name`, which is made if it is not there.
    pub(crate) fn table(&mut self, name: &str) -> &mut Table {
        let place = self.tables.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.tables.push((name.to_owned(), Table::default()));
            self.tables.len() - 1
        });
        &mut self.tables[place].1
    }

    /// The table called `name`, if it is there.
    pub(crate) fn get_table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|(known, _)| known == name).map(|(_, table)| table)
    }

    /// The texts under `key` in the tables of the list called `name`.
    pub(crate) fn texts_of(&self, name: &str, key: &str) -> Vec<String> {
        let lists = self.lists.iter().filter(|(known, _)| known == name).flat_map(|(_, list)| list);
        let text = |table: &Table| match table.get(key) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        };
        lists.filter_map(text).collect()
    }

    /// Takes the table called `name` away.
    pub(crate) fn remove(&mut self, name: &str) {
        self.tables.retain(|(known, _)| known != name);
    }

    /// Takes a key of this table away.
    pub(crate) fn remove_key(&mut self, name: &str) {
        self.keys.retain(|(known, _)| known != name);
    }

    /// Adds a table to the list of tables called `name`.
    pub(crate) fn push(&mut self, name: &str, table: Table) {
        match self.lists.iter_mut().find(|(known, _)| known == name) {
            Some((_, list)) => list.push(table),
            None => self.lists.push((name.to_owned(), vec![table])),
        }
    }

    /// True if nothing was set.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.tables.is_empty() && self.lists.is_empty()
    }

    /// The keys of the table, then its tables with their headers. `path` is the header of this one, empty at the top.
    pub(crate) fn print(&self, path: &str, out: &mut String) {
        for (key, value) in &self.keys {
            let _ = writeln!(out, "{key} = {}", value.print());
        }
        let path_of = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for (name, table) in &self.tables {
            let path = path_of(name);
            // A header is needed by keys, and by a table that means something while it is empty.
            if !table.keys.is_empty() || table.is_empty() {
                let _ = writeln!(out, "\n[{path}]");
            }
            table.print(&path, out);
        }
        for (name, list) in &self.lists {
            let path = path_of(name);
            for table in list {
                let _ = writeln!(out, "\n[[{path}]]");
                table.print(&path, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_have_their_largest_whole_unit() {
        let printed = |value: Value| value.print();
        assert_eq!(printed(Value::millis(90_000)), "\"90s\"");
        assert_eq!(printed(Value::millis(120_000)), "\"2m\"");
        assert_eq!(printed(Value::micros(1_500)), "\"1500us\"");
        assert_eq!(printed(Value::millis(0)), "\"0s\"");
        assert_eq!(printed(Value::bytes(10 << 20)), "\"10MiB\"");
        assert_eq!(printed(Value::bytes(1_500)), "\"1500B\"");
    }

    #[test]
    fn texts_are_quoted_so_that_toml_reads_them_back() {
        assert_eq!(quoted("plain"), "\"plain\"");
        assert_eq!(quoted(r"a\.b"), r"'a\.b'");
        assert_eq!(quoted("it's \"so\"\n"), "\"it's \\\"so\\\"\\n\"");
    }

    #[test]
    fn tables_follow_the_keys_of_their_parent() {
        let mut table = Table::default();
        table.set("http.balance", Value::text("random"));
        table.set("name", Value::text("a"));
        table.set("name", Value::text("b"));
        table.table("tls");
        let mut limit = Table::default();
        limit.set("requests", Value::Number(5));
        table.table("http").push("rate_limit", limit);
        let mut out = String::new();
        table.print("upstream", &mut out);
        let wanted = "name = \"b\"\n\n[upstream.http]\nbalance = \"random\"\n\n[[upstream.http.rate_limit]]\nrequests = 5\n\n[upstream.tls]\n";
        assert_eq!(out, wanted);
        assert_eq!(table.get("http.balance"), Some(&Value::text("random")));
    }
}
