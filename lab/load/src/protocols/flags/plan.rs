//! The requests of a shard.

use weir_flagsets::FlagSet;

use super::check::Responses;
use crate::requests::{Expectation, Planner};
use crate::scenario::{CONTEXTS, Flags, FlagsEndpoint, Scenario};
use crate::shard::Shard;

/// A reserved name that no one can register (RFC 2606).
const HOST: &str = "lab.example";
/// The version of the client specification: segments then stand apart from the flags.
const SPECIFICATION: &str = "6.1.0";

/// Plans a request for each context in turn.
pub(super) struct Requests<'a> {
    flags: &'a Flags,
    /// Number of the first context: shards begin at different ones.
    first: u64,
    planned: u64,
}

impl<'a> Requests<'a> {
    pub(super) fn new(scenario: &'a Scenario, shard: Shard) -> Self {
        let first = u64::from(shard.index()) * CONTEXTS / u64::from(shard.of());
        Self { flags: &scenario.flags, first, planned: 0 }
    }
}

impl Planner for Requests<'_> {
    fn plan(&mut self, arena: &mut Vec<u8>) {
        write(self.flags, context_of(self.flags, self.first + self.planned), arena);
        self.planned += 1;
    }

    fn finish(self: Box<Self>) -> Box<dyn Expectation> {
        Box::new(Responses::new(self.flags, self.first))
    }
}

/// The context of request `number`.
pub(super) fn context_of(flags: &Flags, number: u64) -> u64 {
    // A tag belongs to one response.
    if flags.is_conditional { 0 } else { number % CONTEXTS }
}

/// Appends the request for a context.
pub(super) fn write(flags: &Flags, context: u64, out: &mut Vec<u8>) {
    let (user, plan) = FlagSet::visitor_of(context);
    let (line, body) = match (flags.endpoint, flags.is_posted, flags.has_users) {
        (FlagsEndpoint::Client, ..) => ("GET /api/client/features".to_owned(), None),
        (FlagsEndpoint::Frontend, false, false) => ("GET /api/frontend".to_owned(), None),
        (FlagsEndpoint::Frontend, false, true) => {
            (format!("GET /api/frontend?userId={user}&properties%5Bplan%5D={plan}"), None)
        }
        (FlagsEndpoint::Frontend, true, false) => ("POST /api/frontend".to_owned(), Some("{}".to_owned())),
        (FlagsEndpoint::Frontend, true, true) => {
            // Without the wrapper `context`, which Unleash Edge overlooks.
            let body = format!("{{\"userId\":\"{user}\",\"properties\":{{\"plan\":\"{plan}\"}}}}");
            ("POST /api/frontend".to_owned(), Some(body))
        }
    };
    out.extend_from_slice(format!("{line} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: ").as_bytes());
    out.extend_from_slice(flags.token.expose());
    out.extend_from_slice(b"\r\n");
    if flags.endpoint == FlagsEndpoint::Client {
        out.extend_from_slice(format!("Unleash-Client-Spec: {SPECIFICATION}\r\n").as_bytes());
    }
    if flags.is_gzip {
        out.extend_from_slice(b"Accept-Encoding: gzip\r\n");
    }
    if let Some(body) = &body {
        let length = body.len();
        out.extend_from_slice(format!("Content-Type: application/json\r\nContent-Length: {length}\r\n").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body.unwrap_or_default().as_bytes());
}
