//! HTTP/2 in clear text, by prior knowledge: a stream with a GET for each request.

use super::http::{self, GetPlanner};
use super::{Common, Count, Family, Protocol, Seat, Work};
use crate::requests::Planner;
use crate::scenario::Scenario;
use crate::scenario::table::Table;
use crate::shard::Shard;
use crate::url::{Scheme, Url};
use crate::wire::Wire;

mod wire;

/// Static table of HPACK: `:method: GET` and `:scheme: http` whole, the names of `:path` and `:authority` (RFC 7541
/// appendix A).
const METHOD_GET: u8 = 0x82;
const SCHEME_HTTP: u8 = 0x86;
const PATH: u8 = 0x04;
const AUTHORITY: u8 = 0x01;

/// See the module.
pub(super) struct Http2;

impl Protocol for Http2 {
    fn word(&self) -> &'static str {
        "http2"
    }

    fn title(&self) -> &'static str {
        "HTTP/2"
    }

    fn is_multiplexed(&self) -> bool {
        true
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(Scheme { name: "h2c", port: Some(80), has_path: true })
    }

    fn lines_of(&self, url: &Url) -> String {
        http::lines_of(url)
    }

    fn family(&self) -> &'static Family {
        &http::FAMILY
    }

    fn read(&self, root: &Table<'_>, common: &Common<'_>) -> Option<Work> {
        http::read_get(root, common)
    }

    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a> {
        Box::new(GetPlanner::new(scenario, shard, write_header_block))
    }

    fn wire(&self, scenario: &Scenario, _seat: Seat) -> Box<dyn Wire> {
        Box::new(wire::Frames::new(scenario.payload.bytes_max()))
    }

    fn count(&self) -> Option<Count> {
        Some(http::COUNT)
    }

    fn mix(&self, scenario: &Scenario) -> String {
        http::mix("HTTP/2 GET", scenario)
    }
}

/// A header block that needs no state of the connection: nothing in it goes into the table of the server.
fn write_header_block(path: &str, host: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&[METHOD_GET, SCHEME_HTTP]);
    for (name, value) in [(PATH, path), (AUTHORITY, host)] {
        out.push(name);
        write_length(value.len(), out);
        out.extend_from_slice(value.as_bytes());
    }
}

/// An integer of HPACK behind one bit that says that no Huffman code follows (RFC 7541 section 5.1).
fn write_length(length: usize, out: &mut Vec<u8>) {
    const PREFIX: usize = 127;
    if length < PREFIX {
        return out.push(length as u8);
    }
    out.push(PREFIX as u8);
    let mut left = length - PREFIX;
    while left >= 128 {
        out.push(0x80 | (left & 127) as u8);
        left >>= 7;
    }
    out.push(left as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_block_is_plain_hpack() {
        let block = http::tests::requests("http2", "request.host = \"h\"\n").bytes(0).to_vec();
        assert_eq!(block[..3], [0x82, 0x86, 0x04]);
        let path = usize::from(block[3]);
        assert_eq!(block[4], b'/');
        assert_eq!(&block[4 + path..], b"\x01\x01h");
        let mut long = Vec::new();
        write_length(127 + 128 + 5, &mut long);
        assert_eq!(long, [127, 0x85, 1]);
    }
}
