//! The rows of the table of HTTP: how large a reply is, over how many connections.

use crate::bench::row::{Row, long_size, short_size};

/// One row: GET over HTTP/1.1 connections that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpRow {
    /// Bytes of the body of a reply.
    pub(crate) bytes: usize,
    /// Client connections.
    pub(crate) connections: u32,
}

impl HttpRow {
    /// Every row of the table, in its order.
    pub(crate) fn all() -> Vec<Self> {
        let row = |bytes, connections| Self { bytes, connections };
        vec![row(128, 64), row(128, 256), row(1 << 10, 64), row(1 << 10, 256), row(64 << 10, 64)]
    }

    /// Sizes that an origin has to know.
    pub(crate) fn sizes() -> Vec<usize> {
        let mut sizes: Vec<usize> = Self::all().iter().map(|row| row.bytes).collect();
        sizes.dedup();
        sizes
    }

    /// Whether it is one that the targets of the design are for.
    pub(crate) fn is_small(&self) -> bool {
        self.bytes <= 1 << 10
    }
}

impl Row for HttpRow {
    fn id(&self) -> String {
        format!("h1-{}-c{}", short_size(self.bytes), self.connections)
    }

    fn title(&self) -> String {
        format!("HTTP/1.1 keep-alive, {}, {} connections", long_size(self.bytes), self.connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_names_of_the_design_and_each_size_is_known_once() {
        let ids: Vec<String> = HttpRow::all().iter().map(Row::id).collect();
        assert_eq!(ids, ["h1-128-c64", "h1-128-c256", "h1-1k-c64", "h1-1k-c256", "h1-64k-c64"]);
        assert_eq!(HttpRow::sizes(), [128, 1_024, 65_536]);
    }
}
