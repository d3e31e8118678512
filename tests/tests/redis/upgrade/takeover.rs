//! Whose the sockets are and who takes orders, after a hand-over and in the moment of it.

use std::time::Duration;

use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::gateway::Gateway;
use weir_tests::server::{Kind, Server};
use weir_tests::stream::Stream;

use super::{END_WAIT, ProgramFile, ends};

/// A gateway whose old process a blocked client holds after an upgrade.
fn held(place: &ProgramFile, server: &Server) -> (Gateway, Client) {
    let mut config = place.config(server).workers(2);
    config.drain = "settle = \"0s\"\ntimeout = \"60s\"".to_owned();
    let gateway = Gateway::start(config);
    let mut blocked = gateway.connect();
    blocked.command(&["BLPOP", "never", "0"]);
    gateway.wait_metric("weir_pinned_sessions", &[], 1.0);
    (gateway, blocked)
}

/// No client may enter an unread queue: it would wait there, and a restarted gateway would share the port with that queue.
#[test]
fn the_old_process_does_not_listen_when_the_new_one_dies() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let (mut gateway, blocked) = held(&place, &server);
    let mut old = gateway.upgrade();
    gateway.process().kill();
    deadline::until_true("the port to be closed", || Stream::connect(&gateway.address).is_err());
    deadline::until_true("the admin port to be closed", || {
        std::net::TcpStream::connect(gateway.admin.address).is_err()
    });
    assert_eq!(old.try_wait(), None, "the blocked client is still there");
    drop(blocked);
    ends(old, END_WAIT);
    gateway.ended();
}

#[test]
fn a_process_that_has_handed_over_takes_no_new_configuration() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let (mut gateway, blocked) = held(&place, &server);
    let old = gateway.upgrade();
    let text = std::fs::read_to_string(&gateway.file).expect("the configuration");
    std::fs::write(&gateway.file, text.replace("60s", "50s")).expect("the configuration");
    old.signal("HUP");
    // The drain takes all of its attention: it is as if nothing had been said.
    gateway.process().signal("HUP");
    gateway.wait_log("configuration reloaded");
    assert_eq!(gateway.process().log().matches("configuration reloaded").count(), 1);
    drop(blocked);
    ends(old, END_WAIT);
}

/// Whenever the order to stop comes: either no process serves afterwards, or the new process does, and completely.
#[test]
fn an_order_to_stop_at_any_moment_of_an_upgrade_leaves_nothing_by_halves() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let (mut called_off, mut handed_over) = (0, 0);
    for step in 0..12_u32 {
        let mut gateway = Gateway::start(place.config(&server));
        gateway.process().signal("USR2");
        // The moment, not a wait: what comes is right for any.
        std::thread::sleep(Duration::from_millis(20) * step);
        gateway.process().signal("TERM");
        let status = gateway.process().wait(END_WAIT);
        assert!(status.success(), "{status}");
        if gateway.process().log().contains("upgraded: the new process serves") {
            handed_over += 1;
            deadline::until_true("the new process to answer", || gateway.admin.is_ready());
            gateway.follow();
            for _ in 0..3 {
                gateway.connect().expect(&["PING"], b"+PONG\r\n");
            }
            gateway.finish();
        } else {
            called_off += 1;
            assert!(Stream::connect(&gateway.address).is_err(), "after {step}: somebody listens");
            gateway.ended();
        }
    }
    eprintln!("{called_off} called off, {handed_over} handed over");
}
