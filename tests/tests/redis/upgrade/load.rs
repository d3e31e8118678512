//! Upgrades under load, over every kind of listener and with every change of the worker count. `WEIR_SOAK_SECONDS` makes a soak of
//! each.

use std::time::Instant;

use weir_tests::certificate::Certificates;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::soak;
use weir_tests::traffic::{Traffic, TrafficCounts, Way};

use super::{END_WAIT, ProgramFile, ends};

const CLIENTS: u64 = 6;

/// Upgrades twice or more under load, from the second time on with `change` applied to the configuration.
fn under_load(
    place: &ProgramFile,
    config: Config,
    tls: Option<&Certificates>,
    change: impl Fn(String) -> String,
) -> TrafficCounts {
    let mut gateway = Gateway::start(config);
    let way = Way { address: gateway.address.clone(), tls: tls.map(Certificates::client_config) };
    let traffic = Traffic::start(&way, CLIENTS);
    gateway.wait_metric("weir_requests_total", &[], 2_000.0);
    let (begun, mut round) = (Instant::now(), 0);
    while !soak::is_over(round >= 2, begun.elapsed()) {
        round += 1;
        place.install();
        let old = gateway.upgrade();
        ends(old, END_WAIT);
        // The new process has all clients now.
        gateway.wait_metric("weir_requests_total", &[], 2_000.0);
        assert_eq!(gateway.metric("weir_restart_epoch"), f64::from(round));
        let text = std::fs::read_to_string(&gateway.file).expect("the configuration");
        std::fs::write(&gateway.file, change(text)).expect("the configuration");
    }
    let seen = traffic.stop();
    eprintln!("upgrade under load: {seen:?}");
    gateway.finish();
    assert!(seen.errors.is_empty(), "{seen:?}");
    assert!(seen.right > 4_000, "{seen:?}");
    seen
}

/// No connection ended, and no client waited for a new one.
fn unnoticed(seen: &TrafficCounts) {
    assert_eq!(seen.crossed, 0, "{seen:?}");
}

#[test]
fn pipelined_clients_and_newcomers_notice_nothing() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    unnoticed(&under_load(&place, place.config(&server), None, |text| text));
}

/// Each of the five sockets has a queue of its own: one worker has to accept from all of them.
#[test]
fn fewer_workers_accept_from_all_sockets() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let config = place.config(&server).workers(5);
    unnoticed(&under_load(&place, config, None, |text| text.replace("workers = 5", "workers = 1")));
}

#[test]
fn more_workers_bind_sockets_of_their_own() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    unnoticed(&under_load(&place, place.config(&server), None, |text| text.replace("workers = 1", "workers = 4")));
}

#[test]
fn a_socket_file_is_handed_over_and_stays_where_it_is() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let mut config = place.config(&server).workers(2);
    config.unix = true;
    unnoticed(&under_load(&place, config, None, |text| text));
}

/// The state of TLS cannot cross to another process, so these connections end, each between two commands. Commands that a client
/// had sent by then were not executed: it may send them again.
#[test]
fn clients_with_tls_reconnect_and_lose_nothing() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let files = Certificates::create(&place.folder.path().join("certificates"));
    let lines = format!(
        "[listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"",
        files.server.display(),
        files.server_key.display()
    );
    let config = place.config(&server).listener(&lines);
    under_load(&place, config, Some(&files), |text| text);
}
