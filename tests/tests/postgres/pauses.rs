//! Orders of the console over a reload that renames the listener, and over binary upgrades.

use std::process::Child;
use std::time::Duration;

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::postgres::torture::wire::{Wire, query};
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

#[test]
fn resume_in_the_new_process_serves_a_client_that_waits_in_the_old_one() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    // Long enough for all that happens between the upgrade and RESUME.
    let drain = "settle = \"0s\"\ntimeout = \"15s\"".to_owned();
    let config = Config { drain, ..before(&server, folder.path(), "", "pool_size = 2") };
    let mut gateway = Gateway::start(config.workers(2));
    assert_eq!(sql(&gateway, "select 1"), "1");
    for (pause, resume) in [("pause", "resume".to_owned()), (&*format!("pause {USER}"), format!("resume {USER}"))] {
        // Logged in before: a login under way ends when the drain begins. Each is on a worker of its own.
        let mut sessions =
            [1, 2].map(|_| Wire::connect(gateway.address.tcp().port(), USER, USER, "old").expect("a login"));
        console(&gateway, pause).expect("paused");
        sessions.iter_mut().for_each(|session| session.send(&query(PORT)).expect("sent"));
        until_true("both wait", || gateway.metric("gateway_lane_pool_waiters") == 2.0);
        let mut old = gateway.upgrade();
        let new = psql(&gateway, USER, USER, PORT).spawn().expect("psql starts");
        until_true("a client waits in the new process", || gateway.metric("gateway_lane_pool_waiters") == 1.0);
        console(&gateway, &resume).expect("resumed");
        for session in &mut sessions {
            let reply = session.reply().unwrap_or_else(|error| panic!("{error}\n{}", old.log()));
            assert_eq!(reply.rows, [[server.port().to_string()]], "{:?}\n{}", reply.errors, old.log());
        }
        let output = new.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), server.port().to_string(), "{}", gateway.log());
        drop(sessions);
        assert!(old.wait(Duration::from_secs(20)).success(), "{}", old.log());
    }
}

#[test]
fn what_is_disabled_and_set_survives_two_upgrades_until_it_is_taken_back() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let mut gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2").workers(2));
    console(&gateway, "disable shop").expect("disabled");
    console(&gateway, "set query_timeout = 300ms").expect("set");
    let upgrade = |gateway: &mut Gateway| {
        let mut old = gateway.upgrade();
        assert!(old.wait(Duration::from_secs(20)).success(), "{}", old.log());
    };
    for _ in 1..=2 {
        upgrade(&mut gateway);
        let refused = psql(&gateway, USER, "shop", "select 1").output().expect("psql");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("is disabled"), "{refused:?}");
        // On whichever worker: the values are those of all.
        for _ in 0..4 {
            let slow = psql(&gateway, USER, USER, "select pg_sleep(5)").output().expect("psql");
            assert!(String::from_utf8_lossy(&slow.stderr).contains("57014"), "{slow:?}");
        }
    }
    console(&gateway, "enable shop").expect("enabled");
    console(&gateway, "reload").expect("reloaded");
    upgrade(&mut gateway);
    let config = console(&gateway, "show config").expect("rows");
    assert!(config.lines().any(|line| line.starts_with("query_timeout|0|")), "{config}");
    let gone = psql(&gateway, USER, "shop", "select 1").output().expect("psql");
    assert!(
        String::from_utf8_lossy(&gone.stderr).contains("does not exist"),
        "the server has no such database: {gone:?}"
    );
}

#[test]
fn more_pauses_than_fit_into_one_message_survive_an_upgrade() {
    const DATABASES: usize = 600;
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let mut gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2"));
    let name = |number: usize| format!("{}_{number}", "d".repeat(55));
    let mut boss = Wire::connect(gateway.address.tcp().port(), "boss", "pgbouncer", "boss").expect("a login");
    for number in 0..DATABASES {
        let reply = boss.query(&format!("pause {}", name(number))).expect("a reply");
        assert!(reply.errors.is_empty(), "{:?}", reply.errors);
    }
    drop(boss);
    let mut old = gateway.upgrade();
    assert!(old.wait(Duration::from_secs(20)).success(), "{}", old.log());
    gateway.wait_metric("weir_postgres_paused_databases", &[("listener", "test")], DATABASES as f64);
    console(&gateway, &format!("resume {}", name(DATABASES - 1))).expect("resumed");
    console(&gateway, "resume").expect("resumed");
    assert_eq!(sql(&gateway, "select 1"), "1");
}
