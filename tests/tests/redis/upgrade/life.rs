//! Generations of processes: chains, what each of them has, and how each of them ends.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use weir_tests::client::End;
use weir_tests::deadline;
use weir_tests::gateway::{self, Gateway};
use weir_tests::port;
use weir_tests::server::{Kind, Server};
use weir_tests::stream::{Address, Stream};

use super::{END_WAIT, ProgramFile, ends};

#[test]
fn an_upgraded_process_can_be_upgraded_and_each_tells_where_it_stands() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let mut gateway = Gateway::start(place.config(&server).workers(2));
    for epoch in 1..=3_u32 {
        let old = gateway.upgrade();
        ends(old, END_WAIT);
        deadline::until_true("the old process to be known as gone", || {
            gateway.admin.get("/api/v1/version").json()["draining_predecessor"].is_null()
        });
        let version = gateway.admin.get("/api/v1/version").json();
        assert_eq!(version["restart_epoch"], epoch);
        assert_eq!(version["pid"], gateway.process().id());
        let ready = gateway.admin.get("/readyz?verbose").json();
        let check = ready["checks"].as_array().expect("checks").iter().find(|check| check["name"] == "restart_epoch");
        assert_eq!(check.expect("the check")["detail"], epoch.to_string());
        assert_eq!(gateway.metrics().sum_where("weir_upgrades_total", &[("result", "done")]), f64::from(epoch));
        gateway.connect().expect(&["PING"], b"+PONG\r\n");
    }
    gateway.wait_log("restart_epoch=3");
}

/// The program as a file of its own that is replaced while it runs: the kernel then calls it deleted.
#[test]
fn a_replaced_program_file_is_started() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    place.put(|new| {
        fs::copy(gateway::program(), new).expect("a copy");
    });
    let mut gateway = Gateway::start(place.config(&server));
    let mark = place.folder.path().join("mark");
    let program = gateway::program().display();
    place.install_script(&format!("touch {}\nexec {program} \"$@\"", mark.display()));
    let old = gateway.upgrade();
    ends(old, END_WAIT);
    assert!(mark.exists(), "the new file was not started");
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
}

#[test]
fn the_signal_does_the_same_and_the_command_can_send_it() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let mut gateway = Gateway::start(place.config(&server));
    gateway.process().signal("USR2");
    ends_after_signal(&mut gateway);
    let pid = gateway.process().id().to_string();
    let output = Command::new(gateway::program()).args(["upgrade", "--pid", &pid]).output().expect("weir upgrade");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("done: process ") && text.contains("has ended"), "{text}");
    ends_after_signal(&mut gateway);
    place.install_script("exit 1");
    let pid = gateway.process().id().to_string();
    let output = Command::new(gateway::program()).args(["upgrade", "--pid", &pid]).output().expect("weir upgrade");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    let nobody = Command::new(gateway::program()).args(["upgrade", "--pid", "4194304"]).output().expect("weir upgrade");
    assert_eq!(nobody.status.code(), Some(1));
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
}

fn ends_after_signal(gateway: &mut Gateway) {
    let status = gateway.process().wait(END_WAIT);
    assert!(status.success(), "the old process ended with {status}; the log:\n{}", gateway.process().log());
    gateway.follow();
}

/// A client in a blocking command has state that cannot cross. It may go on until the limit of the drain, and no longer.
#[test]
fn the_old_process_is_gone_at_the_hard_stop_though_a_client_is_blocked() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let mut config = place.config(&server);
    config.drain = "settle = \"60s\"\ntimeout = \"5s\"".to_owned();
    let mut gateway = Gateway::start(config.upstream("request_timeout = \"60s\""));
    let mut blocked = gateway.connect();
    blocked.command(&["BLPOP", "never", "0"]);
    let mut slow = gateway.connect();
    slow.expect(&["SET", "n", "1"], b"+OK\r\n");
    gateway.wait_metric("weir_pinned_sessions", &[], 1.0);
    // And one whose reply will not come in time.
    let frozen = server.freeze();
    slow.command(&["INCR", "n"]);
    gateway.wait_metric("weir_requests_in_flight", &[], 2.0);
    let started = Instant::now();
    let mut old = gateway.upgrade();
    let refused = gateway.request_upgrade();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && text.contains("still drains"), "{text}");
    assert_eq!(blocked.read_to_end(END_WAIT).1, End::Closed);
    // Not in the gentle phase, the first half: its data may still come.
    assert!(started.elapsed() > Duration::from_secs(2), "after {:?}", started.elapsed());
    let (_, end) = slow.read_to_end(END_WAIT);
    assert_ne!(end, End::Silent);
    let status = old.wait(END_WAIT);
    assert!(status.success(), "{status}");
    let log = old.log();
    assert!(log.contains("handed over, draining") && log.contains("drained cut=1"), "{log}");
    // Nothing of the settle time, which is for balancers that must look elsewhere.
    assert!(started.elapsed() < Duration::from_secs(45), "the drain took {:?}", started.elapsed());
    drop(frozen);
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
    // Nor is it waited for at the end of the test.
    let text = fs::read_to_string(&gateway.file).expect("the configuration");
    fs::write(&gateway.file, text.replace("settle = \"60s\"", "settle = \"0s\"")).expect("the configuration");
    assert_eq!(gateway.admin.post("/api/v1/reload", "").json()["outcome"], "applied");
}

/// Listeners come and go with the new configuration, as they do at a reload.
#[test]
fn the_new_process_has_the_listeners_of_the_new_configuration() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let (second, third) = (port::free(), port::free());
    let table = |name: &str, port: u16| {
        format!(
            "[[listener]]\nname = \"{name}\"\nprotocol = \"redis\"\nbind = \"127.0.0.1:{port}\"\nupstream = \"server\"\n"
        )
    };
    let mut gateway = Gateway::start(place.config(&server).workers(2).tables(&table("second", second)));
    Stream::connect(&Address::port(second)).expect("the second listener");
    let text = fs::read_to_string(&gateway.file).expect("the configuration");
    let text = text.replace(&table("second", second), &table("third", third)).replace("\"test\"", "\"renamed\"");
    fs::write(&gateway.file, text).expect("the configuration");
    let old = gateway.upgrade();
    deadline::until_true("the second listener to close", || Stream::connect(&Address::port(second)).is_err());
    Stream::connect(&Address::port(third)).expect("the third listener");
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
    ends(old, END_WAIT);
    assert_eq!(gateway.metrics().sum_where("weir_connections_total", &[("listener", "renamed")]), 1.0);
}

#[test]
fn the_admin_address_is_the_new_ones_as_soon_as_the_response_is_there() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let mut config = place.config(&server);
    config.drain = "settle = \"0s\"\ntimeout = \"60s\"".to_owned();
    let mut gateway = Gateway::start(config);
    // Holds the old process.
    let mut blocked = gateway.connect();
    blocked.command(&["BLPOP", "never", "0"]);
    gateway.wait_metric("weir_pinned_sessions", &[], 1.0);
    let mut old = gateway.upgrade();
    for _ in 0..10 {
        assert_eq!(gateway.metric("weir_restart_epoch"), 1.0);
        assert_eq!(gateway.admin.get("/api/v1/version").json()["draining_predecessor"], old.id());
    }
    assert_eq!(old.try_wait(), None, "both processes run");
    drop(blocked);
    ends(old, END_WAIT);
}
