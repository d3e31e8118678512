//! Servers that change their roles, or die, under a driver that writes; the member that a read goes to.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_mongodb_codec::bson::Writer;
use weir_tests::deadline::until;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::mongodb::wire::{Wire, find};
use weir_tests::mongodb::{FerretDb, Load, Scripted, url};

use crate::gateway::{before, port};

const THREADS: u32 = 4;
/// Writes between two events.
const WRITES: u64 = 50;
/// They come in this time, in a debug build on a busy machine, behind an election as well.
const WRITTEN_WITHIN: Duration = Duration::from_secs(30);
/// Writes between the last look at a server and its end, at most: each thread writes every 5 ms.
const WRITES_UNSEEN_MAX: u64 = 50;

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

/// Waits until there are so many writes more.
fn more_writes(members: &[Scripted]) {
    let least = inserted(members) + WRITES;
    until("more writes", WRITTEN_WITHIN, || (inserted(members) >= least).then_some(()));
}

/// One member is listed, and operators see all of them, with the one that is lost.
#[test]
fn operators_see_the_members_that_the_set_has_named() {
    let mut members = Scripted::set(3);
    let gateway = Gateway::start(before_set(&members[..1]));
    let shown = || {
        let list = gateway.admin.get("/api/v1/upstreams").json();
        let endpoints = list["upstreams"][0]["endpoints"].as_array().cloned().unwrap_or_default();
        endpoints.iter().filter_map(|one| one["address"].as_str().map(str::to_owned)).collect::<BTreeSet<_>>()
    };
    let all: BTreeSet<_> = members.iter().map(|member| member.address.text()).collect();
    until("all members are listed", WRITTEN_WITHIN, || (shown() == all).then_some(()));
    members[2].kill();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(shown(), all, "a member that is lost is one still");
    gateway.finish();
}

/// A driver repeats a write that a primary refused because it steps down.
#[test]
fn a_step_down_costs_a_driver_no_error() {
    let members = Scripted::set(3);
    let gateway = Gateway::start(before_set(&members));
    let load = Load::start(&url(&gateway.address), THREADS);
    for (election, primary) in [(2, 1), (3, 2), (4, 0)] {
        more_writes(&members);
        Scripted::elect(&members, None, election - 1);
        std::thread::sleep(Duration::from_millis(300));
        Scripted::elect(&members, Some(primary), election);
    }
    more_writes(&members);
    let report = load.stop_after(Duration::ZERO);
    assert_eq!(report.error_count, 0, "{report:?}\n{}", gateway.log());
    assert!(report.acknowledged >= 4 * WRITES && report.longest < 5.0, "{report:?}");
    let inserted = inserted(&members);
    assert!(inserted >= report.acknowledged, "{inserted} inserted, {report:?}");
    gateway.finish();
}

/// The primary dies, and another member is elected. Writes that the dead one has acknowledged are lost in this set, and no others.
#[test]
fn a_dead_primary_costs_a_driver_no_error() {
    let mut members = Scripted::set(3);
    let gateway = Gateway::start(before_set(&members));
    let load = Load::start(&url(&gateway.address), THREADS);
    more_writes(&members);
    let dead = members.remove(0);
    let before_its_end = inserted(std::slice::from_ref(&dead));
    drop(dead);
    Scripted::elect(&members, Some(0), 2);
    more_writes(&members);
    let report = load.stop_after(Duration::ZERO);
    assert_eq!(report.error_count, 0, "{report:?}\n{}", gateway.log());
    assert!(report.acknowledged >= 2 * WRITES && report.longest < 10.0, "{report:?}");
    let had = before_its_end + WRITES_UNSEEN_MAX + inserted(&members);
    assert!(report.acknowledged <= had, "{} were acknowledged, and the members had {had}", report.acknowledged);
    gateway.finish();
}

/// Finds that reached each member.
fn finds(members: &[Scripted]) -> Vec<i64> {
    members.iter().map(|member| member.counts().number(&["commands", "find"]).unwrap_or(0)).collect()
}

#[test]
fn a_read_preference_chooses_the_members_that_a_read_may_have() {
    let members = Scripted::set(3);
    let gateway = Gateway::start(before_set(&members));
    let mut wire = Wire::connect(port(&gateway));
    let read = |body: &mut Writer<'_>, mode: Option<&str>| {
        body.string("find", "notes");
        body.int32("batchSize", 1_000);
        if let Some(mode) = mode {
            body.document("$readPreference", |preference| preference.string("mode", mode));
        }
        body.string("$db", "test");
    };
    assert!(wire.call(|body| find(body, "notes", 1_000)).is_ok());
    // All members are known.
    until("a secondary", WRITTEN_WITHIN, || {
        wire.call(|body| read(body, Some("secondary")));
        finds(&members)[1..].iter().all(|count| *count > 0).then_some(())
    });
    let cases = [
        (None, [true, false, false]),
        (Some("primary"), [true, false, false]),
        (Some("primaryPreferred"), [true, false, false]),
        (Some("secondary"), [false, true, true]),
        (Some("secondaryPreferred"), [false, true, true]),
    ];
    for (mode, may) in cases {
        let before = finds(&members);
        for _ in 0..20 {
            let reply = wire.call(|body| read(body, mode));
            assert!(reply.is_ok() && reply.batch().len() == 500, "{mode:?}: {reply:?}");
        }
        let came: Vec<i64> = finds(&members).iter().zip(before).map(|(now, before)| now - before).collect();
        assert_eq!(came.iter().sum::<i64>(), 20, "{mode:?}: {came:?}");
        assert!(came.iter().zip(may).all(|(count, may)| may || *count == 0), "{mode:?}: {came:?}");
    }
    drop(wire);
    gateway.finish();
}

/// A server without a set: its clients may not repeat a write, so those under way fail, and no other.
#[test]
fn a_killed_server_that_comes_back_loses_nothing_that_was_acknowledged() {
    let mut server = FerretDb::start();
    let gateway = Gateway::start(before(&server.address, "", "heartbeat_interval = \"500ms\"").workers(2));
    let load = Load::start(&url(&gateway.address), THREADS);
    let written = || gateway.metrics().sum_where("weir_mongodb_commands_total", &[("class", "write")]) as u64;
    let more = || {
        let least = written() + WRITES;
        until("more writes", WRITTEN_WITHIN, || (written() >= least).then_some(()));
    };
    more();
    server.kill();
    std::thread::sleep(Duration::from_millis(500));
    server.start_again();
    more();
    let report = load.stop_after(Duration::from_secs(1));
    assert!(report.error_count <= u64::from(THREADS), "{report:?}\n{}", gateway.log());
    assert!(report.lost.is_empty() && report.acknowledged > 50, "{report:?}");
    gateway.finish();
}
