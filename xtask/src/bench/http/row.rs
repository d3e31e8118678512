//! The rows of the tables of HTTP: what clients speak, how large a reply is, over how many connections.

use super::front::Front;
use crate::bench::row::{Row, long_size, short_size};

/// One row: requests over connections that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpRow {
    /// What clients speak.
    pub(crate) front: Front,
    /// Bytes of the body of a reply, or of a message.
    pub(crate) bytes: usize,
    /// Client connections.
    pub(crate) connections: u32,
    /// Requests under way on each of them.
    pub(crate) streams: u32,
}

impl HttpRow {
    /// Every row of the table of a front, in its order.
    pub(crate) fn all(front: Front) -> Vec<Self> {
        let row = |bytes, connections, streams| Self { front, bytes, connections, streams };
        match front {
            Front::Plain => {
                vec![row(128, 64, 1), row(128, 256, 1), row(1 << 10, 64, 1), row(1 << 10, 256, 1), row(64 << 10, 64, 1)]
            }
            Front::Routes => vec![row(128, 64, 1), row(1 << 10, 64, 1), row(1 << 10, 256, 1)],
            Front::Tls => vec![row(1 << 10, 64, 1), row(64 << 10, 64, 1)],
            Front::Http2 => vec![row(128, 8, 8), row(1 << 10, 32, 8)],
            Front::WebSocket => vec![row(128, 64, 1), row(1 << 10, 256, 1)],
        }
    }

    /// Sizes that an origin has to know.
    pub(crate) fn sizes() -> Vec<usize> {
        let mut sizes: Vec<usize> = Self::all(Front::Plain).iter().map(|row| row.bytes).collect();
        sizes.dedup();
        sizes
    }

    /// The largest ratio of CPU time to nginx, HAProxy and Envoy that the design aims at.
    pub(crate) fn targets(&self) -> [Option<f64>; 3] {
        let is_small = self.bytes <= 1 << 10;
        match self.front {
            Front::Plain | Front::Routes if is_small => [Some(0.80), Some(0.72), Some(0.25)],
            Front::Plain | Front::Routes | Front::Tls => [None; 3],
            Front::Http2 => [None, Some(0.95), Some(0.30)],
            Front::WebSocket => [Some(0.60), None, None],
        }
    }
}

impl Row for HttpRow {
    fn id(&self) -> String {
        let word = match self.front {
            Front::Plain => "h1",
            Front::Routes => "h1-routes",
            Front::Tls => "h1-tls",
            Front::Http2 => "h2",
            Front::WebSocket => "ws",
        };
        let streams = if self.streams > 1 { format!("s{}", self.streams) } else { String::new() };
        format!("{word}-{}-c{}{streams}", short_size(self.bytes), self.connections)
    }

    fn title(&self) -> String {
        let what = match self.front {
            Front::Plain => "HTTP/1.1 keep-alive",
            Front::Routes => "HTTP/1.1 keep-alive, 100 routes and an access log",
            Front::Tls => "HTTP/1.1 keep-alive in TLS",
            Front::Http2 => "HTTP/2 by prior knowledge, HTTP/1.1 behind",
            Front::WebSocket => "WebSocket echo",
        };
        let streams = if self.streams > 1 { format!(" with {} streams each", self.streams) } else { String::new() };
        format!("{what}, {}, {} connections{streams}", long_size(self.bytes), self.connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_names_of_the_design_and_each_size_is_known_once() {
        let ids = |front| HttpRow::all(front).iter().map(Row::id).collect::<Vec<String>>();
        assert_eq!(ids(Front::Plain), ["h1-128-c64", "h1-128-c256", "h1-1k-c64", "h1-1k-c256", "h1-64k-c64"]);
        assert_eq!(ids(Front::Http2), ["h2-128-c8s8", "h2-1k-c32s8"]);
        assert_eq!(HttpRow::sizes(), [128, 1_024, 65_536]);
    }
}
