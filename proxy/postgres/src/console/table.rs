//! Results of the console: columns with types, and rows.

use weir_postgres_codec::backend::{self, Column};

/// A type by its OID and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
}

/// A value.
pub(crate) enum Cell {
    Text(String),
    Number(u64),
    Null,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The forms of the columns of a result, as a Bind has them: none for text, one for all, or one each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forms(Vec<i16>);

impl Forms {
    pub(crate) fn new(codes: impl IntoIterator<Item = i16>) -> Self {
        Self(codes.into_iter().collect())
    }

    fn of(&self, column: usize) -> i16 {
        let at = if self.0.len() == 1 { 0 } else { column };
        self.0.get(at).copied().unwrap_or_default()
    }

    fn is_binary(&self, column: usize) -> bool {
        self.of(column) == 1
    }
}

/// A result.
pub(crate) struct Table {
    columns: Vec<(&'static str, Kind)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Without rows. `columns` are names; those in `texts` are texts, all others numbers.
    pub(crate) fn new(columns: &[&'static str], texts: &[&str]) -> Self {
        let kind = |name: &&'static str| (*name, if texts.contains(name) { Kind::Text } else { Kind::Number });
        Self { columns: columns.iter().map(kind).collect(), rows: Vec::new() }
    }

    /// One more row, as long as the columns.
    pub(crate) fn row(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// Appends RowDescription.
    pub(crate) fn describe(&self, forms: &Forms, out: &mut Vec<u8>) {
        let column = |(at, (name, kind)): (usize, &(&'static str, Kind))| {
            let column = match kind {
                Kind::Text => Column::text(name.as_bytes(), 25, -1),
                Kind::Number => Column::text(name.as_bytes(), 20, 8),
            };
            Column { format: forms.of(at), ..column }
        };
        let columns = self.columns.iter().enumerate().map(column);
        backend::row_description(out, columns);
    }

    /// Appends the rows.
    pub(crate) fn encode(&self, forms: &Forms, out: &mut Vec<u8>) {
        for row in &self.rows {
            let bytes = |(at, cell): (usize, &Cell)| match cell {
                Cell::Text(text) => Some(text.clone().into_bytes()),
                Cell::Number(number) if forms.is_binary(at) => Some((*number as i64).to_be_bytes().to_vec()),
                Cell::Number(number) => Some(number.to_string().into_bytes()),
                Cell::Null => None,
            };
            let values: Vec<Option<Vec<u8>>> = row.iter().enumerate().map(bytes).collect();
            backend::data_row(out, values.iter().map(Option::as_deref));
        }
    }
}
