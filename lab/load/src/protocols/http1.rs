//! HTTP/1.1 with connections that are kept: a GET for each request.

use super::http::{self, GetPlanner};
use super::{Common, Count, Family, Protocol, Seat, Work};
use crate::requests::Planner;
use crate::scenario::Scenario;
use crate::scenario::table::Table;
use crate::shard::Shard;
use crate::url::{Scheme, Url};
use crate::wire::Wire;

pub(super) mod wire;

/// See the module.
pub(super) struct Http1;

impl Protocol for Http1 {
    fn word(&self) -> &'static str {
        "http1"
    }

    fn title(&self) -> &'static str {
        "HTTP/1.1"
    }

    fn is_served_by_files(&self) -> bool {
        true
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(Scheme { name: "http", port: Some(80), has_path: true })
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
        Box::new(GetPlanner::new(scenario, shard, write_get))
    }

    fn wire(&self, scenario: &Scenario, _seat: Seat) -> Box<dyn Wire> {
        Box::new(wire::ResponseReader::new(scenario.payload.bytes_max()))
    }

    fn count(&self) -> Option<Count> {
        Some(http::COUNT)
    }

    fn mix(&self, scenario: &Scenario) -> String {
        http::mix("HTTP/1.1 GET", scenario)
    }
}

fn write_get(path: &str, host: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
}
