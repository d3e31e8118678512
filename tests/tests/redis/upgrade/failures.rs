//! A new process that does not come to serve changes nothing.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use weir_tests::deadline;
use weir_tests::gateway::Gateway;
use weir_tests::server::{Kind, Server};
use weir_tests::victim::Victim;

use super::{END_WAIT, ProgramFile, ends, fails};

#[test]
fn every_failed_start_leaves_the_old_process_serving() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let mut gateway = Gateway::start(place.config(&server).tables("[upgrade]\ntimeout = \"60s\""));
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    let victim = Victim::start(&gateway.address);

    let good = fs::read_to_string(&gateway.file).expect("the configuration");
    fs::write(&gateway.file, good.replace("workers = 1", "wrokers = 1")).expect("the configuration");
    fails(&mut gateway, &["failed", "weir.toml", "wrokers"]);
    // An address that another program has: found out only when it is bound.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let admin = taken.local_addr().expect("bound").to_string();
    fs::write(&gateway.file, good.replace(&gateway.admin.address.to_string(), &admin)).expect("the configuration");
    fails(&mut gateway, &["failed", &admin]);
    fs::write(&gateway.file, &good).expect("the configuration");

    place.install_script("echo 'not today' >&2; exit 3");
    fails(&mut gateway, &["failed", "exit status: 3"]);
    place.install_script("kill -SEGV $$");
    fails(&mut gateway, &["failed", "signal: 11"]);
    // Only the one that never comes gets little time.
    fs::write(&gateway.file, good.replace("60s", "1s")).expect("the configuration");
    assert_eq!(gateway.admin.post("/api/v1/reload", "").json()["outcome"], "applied");
    let started = Instant::now();
    place.install_script("exec sleep 1000");
    fails(&mut gateway, &["failed", "within 1s", "upgrade.timeout"]);
    assert!(started.elapsed() < Duration::from_secs(30), "it took {:?}", started.elapsed());
    fs::write(&gateway.file, &good).expect("the configuration");
    assert_eq!(gateway.admin.post("/api/v1/reload", "").json()["outcome"], "applied");
    fs::remove_file(place.path()).expect("removed");
    fails(&mut gateway, &["failed", "cannot start", "No such file"]);

    assert_eq!(gateway.metrics().sum_where("weir_upgrades_total", &[("result", "failed")]), 6.0);
    for words in ["upgrade failed, this process continues to serve", "wrokers", "not today", "exit status: 3"] {
        gateway.wait_log(words);
    }
    victim.stop_unharmed();
    client.expect(&["GET", "k"], b"$1\r\nv\r\n");
    gateway.connect().expect(&["PING"], b"+PONG\r\n");

    place.install();
    drop(client);
    let old = gateway.upgrade();
    ends(old, END_WAIT);
    gateway.connect().expect(&["GET", "k"], b"$1\r\nv\r\n");
}

#[test]
fn a_second_upgrade_and_a_reload_are_refused_while_one_is_under_way() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let mut gateway = Gateway::start(place.config(&server).tables("[upgrade]\ntimeout = \"60s\""));
    let mark = place.folder.path().join("started");
    place.install_script(&format!("echo $$ > {}; exec sleep 1000", mark.display()));
    std::thread::scope(|scope| {
        let gateway = &gateway;
        let first = scope.spawn(move || gateway.request_upgrade());
        let pid = started_process(&mark);
        let second = gateway.request_upgrade();
        assert_eq!(second.status.code(), Some(1));
        let text = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(text.contains("an upgrade is under way"), "{text}");
        let reload = gateway.admin.post("/api/v1/reload", "");
        assert_eq!(reload.status, 422, "{}", reload.body);
        assert!(reload.body.contains("an upgrade is under way"), "{}", reload.body);
        gateway.connect().expect(&["PING"], b"+PONG\r\n");
        assert!(std::process::Command::new("kill").arg(pid.to_string()).status().expect("kill").success());
        let first = first.join().expect("the first upgrade");
        assert_eq!(first.status.code(), Some(1));
    });
    assert_eq!(gateway.admin.post("/api/v1/reload", "").json()["outcome"], "unchanged");
    place.install();
    let old = gateway.upgrade();
    ends(old, END_WAIT);
}

/// The process id that a script has written.
fn started_process(mark: &Path) -> u32 {
    deadline::until("the new process", deadline::WAIT, || {
        // With its line end: it is whole.
        fs::read_to_string(mark).ok()?.strip_suffix('\n')?.parse().ok()
    })
}

/// An operator who stops the service does not want another process of it.
#[test]
fn a_drain_calls_an_upgrade_off() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let mut gateway = Gateway::start(place.config(&server));
    let mark = place.folder.path().join("started");
    place.install_script(&format!("echo $$ > {}; exec sleep 1000", mark.display()));
    gateway.process().signal("USR2");
    let pid = started_process(&mark);
    gateway.process().signal("TERM");
    let status = gateway.process().wait(END_WAIT);
    assert!(status.success(), "{status}");
    assert!(!Path::new(&format!("/proc/{pid}/exe")).exists(), "process {pid} was left behind");
    gateway.ended();
}
