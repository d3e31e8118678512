//! The tests that run with the second I/O driver too. Every test runs with the driver that the machine gives; data moves in
//! the same way with both (see ARCHITECTURE.md), so the other one is tested where it does something itself.

use anyhow::Result;

use super::products;
use crate::lane::{Report, Run};

/// A difference between the drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriverDifference {
    /// Connections are accepted, and spread over workers.
    Accept,
    /// Connections are made to servers.
    Connect,
    /// Deadlines and pauses end.
    Timers,
    /// A peer's disconnect is noticed though neither side reads or writes.
    HangUp,
    /// Listeners and connections pass to another process, or to other settings.
    HandOver,
    /// A process comes to its end with work under way.
    Drain,
}

impl DriverDifference {
    fn text(self) -> &'static str {
        match self {
            Self::Accept => "accept and spread",
            Self::Connect => "connect",
            Self::Timers => "timers",
            Self::HangUp => "a peer that goes",
            Self::HandOver => "hand-over",
            Self::Drain => "drain",
        }
    }
}

/// Program, beginning of the tests' names, and why these.
const TAGGED: [(&str, &str, DriverDifference); 29] = [
    ("e2e", "workers::", DriverDifference::Accept),
    ("e2e", "proxy_protocol::", DriverDifference::Accept),
    ("e2e", "transport::", DriverDifference::Accept),
    ("e2e", "tls::tls_on_both_sides", DriverDifference::Connect),
    ("e2e", "upstream::", DriverDifference::Connect),
    ("e2e", "pins::blocking_outlasts_the_request_timeout", DriverDifference::Timers),
    ("e2e", "clients::a_pause_of_all_ends_by_itself", DriverDifference::Timers),
    ("e2e", "pins::a_blocked_client_that_leaves", DriverDifference::HangUp),
    ("e2e", "pipelining::a_half_closed_client", DriverDifference::HangUp),
    ("e2e", "reload::", DriverDifference::HandOver),
    ("e2e", "upgrade::", DriverDifference::HandOver),
    ("e2e", "drain::", DriverDifference::Drain),
    ("hostile", "abuse::", DriverDifference::Accept),
    ("hostile", "resources::x1_", DriverDifference::Accept),
    ("hostile", "upstreams::x5_", DriverDifference::Connect),
    ("hostile", "pressure::", DriverDifference::Timers),
    ("hostile", "sessions::r20_", DriverDifference::HangUp),
    ("hostile", "reconnects::", DriverDifference::HangUp),
    ("http", "service::connections_past_the_limit", DriverDifference::Accept),
    ("http", "blackholes::", DriverDifference::Connect),
    ("http", "http2_origins::an_idle_connection", DriverDifference::Connect),
    ("http", "restarts::", DriverDifference::Connect),
    ("http", "refusals::h1_11_", DriverDifference::Timers),
    ("http", "refusals::h1_12_", DriverDifference::Timers),
    ("http", "websocket::w6_silence", DriverDifference::Timers),
    ("http", "leaving::", DriverDifference::HangUp),
    ("http", "tcp::", DriverDifference::HangUp),
    ("http", "changes::", DriverDifference::HandOver),
    ("http", "service::a_drain", DriverDifference::Drain),
];

/// One problem for each tag of `program` that no test has.
pub fn stale(program: &str, names: &[String]) -> Vec<String> {
    let tags =
        TAGGED.iter().filter(|(of, tests, _)| *of == program && !names.iter().any(|name| name.starts_with(tests)));
    tags.map(|(_, tests, _)| format!("{program}: no test begins with {tests}, of those for the polling driver"))
        .collect()
}

/// All tagged tests of one program with the polling driver.
pub fn polling(run: &Run<'_>, program: &str) -> Result<Report> {
    let names = products::names(run.programs()?.test("weir-tests", program)?)?;
    let mut filters = Vec::new();
    for (_, tests, because) in TAGGED.into_iter().filter(|(of, ..)| *of == program) {
        let count = names.iter().filter(|name| name.starts_with(tests)).count();
        println!("{program} {tests:<50} {count:>3}  {}", because.text());
        filters.push(tests);
    }
    let mut report = products::some(run, program, &filters, "polling")?;
    report.expect_tests(&format!("polling:{program}"));
    report.problems.extend(stale(program, &names));
    Ok(report)
}
