//! Servers that change their roles, or die, under a driver that writes.

use std::time::Duration;

use weir_tests::gateway::{Config, Gateway};
use weir_tests::mongodb::{FerretDb, Load, Scripted, url};

use crate::gateway::before;

const THREADS: u32 = 4;

fn before_set(members: &[Scripted]) -> Config {
    let seeds = members.iter().map(|member| &member.address);
    Config { protocol: "mongodb", ..Config::to_all(seeds) }
        .workers(2)
        .listener("[listener.mongodb]\nauth = \"none\"")
        .upstream("[upstream.mongodb]\nreplica_set = \"rs\"\nheartbeat_interval = \"500ms\"")
}

fn inserted(members: &[Scripted]) -> u64 {
    members.iter().map(|member| member.counts().number(&["inserted"]).unwrap_or(0) as u64).sum()
}

/// A driver repeats a write that a primary refused because it steps down.
#[test]
fn a_step_down_costs_a_driver_no_error() {
    let members = Scripted::set(3);
    let gateway = Gateway::start(before_set(&members));
    let load = Load::start(&url(&gateway.address), THREADS);
    for (election, primary) in [(2, 1), (3, 2), (4, 0)] {
        std::thread::sleep(Duration::from_millis(700));
        Scripted::elect(&members, None, election - 1);
        std::thread::sleep(Duration::from_millis(300));
        Scripted::elect(&members, Some(primary), election);
    }
    let report = load.stop_after(Duration::from_secs(1));
    assert_eq!(report.error_count, 0, "{report:?}\n{}", gateway.log());
    assert!(report.acknowledged > 100 && report.longest < 5.0, "{report:?}");
    let inserted = inserted(&members);
    assert!(inserted >= report.acknowledged, "{inserted} inserted, {report:?}");
    gateway.finish();
}

/// The primary dies, and another member is elected.
#[test]
fn a_dead_primary_costs_a_driver_no_error() {
    let mut members = Scripted::set(3);
    let gateway = Gateway::start(before_set(&members));
    let load = Load::start(&url(&gateway.address), THREADS);
    std::thread::sleep(Duration::from_millis(700));
    let dead = members.remove(0);
    drop(dead);
    Scripted::elect(&members, Some(0), 2);
    let report = load.stop_after(Duration::from_secs(3));
    assert_eq!(report.error_count, 0, "{report:?}\n{}", gateway.log());
    assert!(report.acknowledged > 100 && report.longest < 10.0, "{report:?}");
    gateway.finish();
}

/// A server without a set: its clients may not repeat a write, so those under way fail, and no other.
#[test]
fn a_killed_server_that_comes_back_loses_nothing_that_was_acknowledged() {
    let mut server = FerretDb::start();
    let gateway = Gateway::start(before(&server.address, "", "heartbeat_interval = \"500ms\"").workers(2));
    let load = Load::start(&url(&gateway.address), THREADS);
    std::thread::sleep(Duration::from_secs(1));
    server.kill();
    std::thread::sleep(Duration::from_millis(500));
    server.start_again();
    let report = load.stop_after(Duration::from_secs(3));
    assert!(report.error_count <= u64::from(THREADS), "{report:?}\n{}", gateway.log());
    assert!(report.lost.is_empty() && report.acknowledged > 50, "{report:?}");
    gateway.finish();
}
