//! S6: servers restart one after another.

use std::time::Duration;

use weir_tests::gateway::Gateway;
use weir_tests::isolation::{Cell, Extent, Link, Protocol, Victim, Waits, every, to};
use weir_tests::stream::Address;

/// Errors that a restart may cost.
const ERRORS_MAX: usize = 2;
/// Clients at a time.
const CLIENTS: usize = 4;

#[test]
fn s6_servers_that_restart_one_after_another_cost_next_to_nothing() {
    every("S6", |protocol, extent| {
        let servers = extent.pick(&[2][..], &[2, 3, 5]);
        let mut rows = Vec::new();
        for count in servers {
            for is_checked in [true, false] {
                let checks = if is_checked { "with" } else { "without" };
                let name = format!("{count} servers restart in turn, {checks} active checks");
                let cell = match protocol.name() {
                    "Redis" => Cell::None("each server has keys of its own, which no other could answer for"),
                    _ => restarted(protocol, extent, *count, is_checked),
                };
                rows.push((name, cell));
            }
        }
        rows
    });
}

fn restarted(protocol: &'static dyn Protocol, extent: Extent, count: usize, is_checked: bool) -> Cell {
    let origins: Vec<_> = (0..count).map(|_| protocol.origin()).collect();
    let links: Vec<_> = origins.iter().map(|origin| Link::before(&origin.address(), Duration::ZERO)).collect();
    let addresses: Vec<Address> = links.iter().map(|link| link.address.clone()).collect();
    let mut config = protocol.config(&addresses);
    if !is_checked {
        config = config.upstream("[upstream.health]\nenabled = false");
    }
    let gateway = Gateway::start(config);
    // The table of the issue: 2 s down, 4 s later the next one.
    let (down, between) = extent.pick((Duration::from_millis(400), Duration::from_millis(400)), (secs(2), secs(4)));
    let connect = || to(protocol, &gateway.address);
    // A connection that goes through whole is cut with its server: what counts is that another one is to be had.
    let is_cut = matches!(protocol.name(), "TCP" | "WebSocket");
    let victims: Vec<_> =
        (0..CLIENTS).map(|_| if is_cut { Victim::fresh(connect()) } else { Victim::steady(connect()) }).collect();
    std::thread::sleep(between);
    for link in &links {
        link.down();
        std::thread::sleep(down);
        link.up();
        std::thread::sleep(between);
    }
    let waits = victims.into_iter().map(Victim::stop).fold(Waits::default(), Waits::join);
    let text = format!("{} errors of {}", waits.failed, waits.served + waits.failed);
    let mut faults = Vec::new();
    if waits.failed > ERRORS_MAX {
        faults.push(format!("{text}: {:?}", &waits.errors[..waits.errors.len().min(5)]));
    }
    Cell::figure(text, faults)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
