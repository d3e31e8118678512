//! Results of the console: columns with types, and rows.

use weir_postgres_codec::backend::{self, Column};

/// A type by its OID and size.
#[derive(Clone, Copy)]
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

    /// Appends RowDescription and the rows.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let column = |(name, kind): &(&'static str, Kind)| match kind {
            Kind::Text => Column::text(name.as_bytes(), 25, -1),
            Kind::Number => Column::text(name.as_bytes(), 20, 8),
        };
        let columns = self.columns.iter().map(column);
        backend::row_description(out, columns);
        for row in &self.rows {
            let text = |cell: &Cell| match cell {
                Cell::Text(text) => Some(text.clone().into_bytes()),
                Cell::Number(number) => Some(number.to_string().into_bytes()),
                Cell::Null => None,
            };
            let texts: Vec<Option<Vec<u8>>> = row.iter().map(text).collect();
            backend::data_row(out, texts.iter().map(Option::as_deref));
        }
    }
}
