//! PAUSE over a reload that renames the listener, and over binary upgrades.

use std::process::Child;
use std::time::Duration;

use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::postgres::{Major, Postgres, USER};

use super::gateway::{before, psql, sql};
use super::routing::console;

const PORT: &str = "select current_setting('port')";

/// A client that a pause keeps, also within its login.
fn waiting(gateway: &Gateway, database: &str) -> Child {
    let child = psql(gateway, USER, database, PORT).spawn().expect("psql starts");
    until_true("it waits", || gateway.metric("gateway_lane_pool_waiters") == 1.0);
    child
}

/// It still waits; after `order` of the console it gets the port of its server.
fn continues(gateway: &Gateway, mut child: Child, order: &str) -> String {
    // Not a wait for an event: in this time a gateway without the pause would have served it.
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().expect("its state").is_none(), "a paused client waits\n{}", gateway.log());
    console(gateway, order).expect("carried out");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), gateway.log());
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[test]
fn a_pause_survives_a_reload_that_renames_the_listener_and_exchanges_the_servers() {
    let (one, two) = (Postgres::start(Major::Fifteen), Postgres::start(Major::Fifteen));
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&one, folder.path(), "", "pool_size = 2").workers(2));
    assert_eq!(sql(&gateway, PORT), one.port().to_string());
    console(&gateway, "pause").expect("paused");
    gateway.rewrite(|text| {
        let text = text.replace("name = \"test\"", "name = \"renamed\"");
        text.replace(&one.address.text(), &two.address.text())
    });
    let outcome = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(outcome.json()["outcome"], "applied", "{}", outcome.body);
    let child = waiting(&gateway, USER);
    gateway.wait_metric("weir_postgres_paused_databases", &[("listener", "renamed")], 1.0);
    assert_eq!(continues(&gateway, child, "resume"), two.port().to_string());
    assert_eq!(sql(&gateway, PORT), two.port().to_string(), "RESUME holds for further clients");
}

#[test]
fn a_pause_of_a_database_survives_two_upgrades_and_resume_ends_it() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let mut gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2").workers(2));
    assert_eq!(sql(&gateway, "select 1"), "1");
    console(&gateway, &format!("pause {USER}")).expect("paused");
    for round in 1..=2 {
        let mut old = gateway.upgrade();
        assert!(old.wait(Duration::from_secs(20)).success(), "upgrade {round}: {}", old.log());
        gateway.wait_metric("weir_postgres_paused_databases", &[("listener", "test")], 1.0);
    }
    let child = waiting(&gateway, USER);
    let other = psql(&gateway, USER, "postgres", "select 7").output().expect("psql");
    assert_eq!(String::from_utf8_lossy(&other.stdout).trim_end(), "7", "another database is not paused");
    assert_eq!(continues(&gateway, child, &format!("resume {USER}")), server.port().to_string());
    let mut old = gateway.upgrade();
    assert!(old.wait(Duration::from_secs(20)).success(), "{}", old.log());
    assert_eq!(sql(&gateway, "select 1"), "1", "RESUME survives an upgrade too");
}
