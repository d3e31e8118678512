//! The notifications of a service manager, on a real datagram socket.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

use weir_tests::deadline::WAIT;
use weir_tests::gateway::Gateway;
use weir_tests::server::{Kind, Server};

use super::{END_WAIT, ProgramFile, ends};

/// The manager's end. A thread reads it all the time: what finds no room in the queue of the socket may be lost.
struct Manager {
    messages: mpsc::Receiver<String>,
    heard: Vec<String>,
}

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("a socket");
        let (sender, messages) = mpsc::channel();
        // It ends with the test's process: a datagram socket has no end of stream.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length) = socket.recv(&mut bytes) {
                if sender.send(String::from_utf8_lossy(&bytes[..length]).into_owned()).is_err() {
                    return;
                }
            }
        });
        Self { messages, heard: Vec::new() }
    }

    /// Waits for a message with `line` in it, and returns the whole message. Earlier messages are kept.
    fn hears(&mut self, line: &str) -> String {
        let begun = Instant::now();
        while let Ok(message) = self.messages.recv_timeout(WAIT.saturating_sub(begun.elapsed())) {
            self.heard.push(message.clone());
            if message.lines().any(|one| one == line || (line.ends_with('=') && one.starts_with(line))) {
                return message;
            }
        }
        panic!("waited for {line}, heard {:?}", self.heard);
    }
}

#[test]
fn the_manager_follows_start_reload_upgrade_and_end() {
    let (server, place) = (Server::start(Kind::Redis), ProgramFile::new());
    let path = place.folder.path().join("notify");
    let mut manager = Manager::at(&path);
    let mut config = place.config(&server);
    config.environment.push(("NOTIFY_SOCKET".to_owned(), path.to_string_lossy().into_owned()));
    config.environment.push(("WATCHDOG_USEC".to_owned(), "400000".to_owned()));
    let mut gateway = Gateway::start(config);
    assert!(manager.hears("READY=1").contains("STATUS=serving: configuration generation 1, restart epoch 0"));
    manager.hears("WATCHDOG=1");
    manager.hears("WATCHDOG=1");

    gateway.process().signal("HUP");
    let reloading = manager.hears("RELOADING=1");
    let micros = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).expect("the time");
    assert!(micros.parse::<u64>().is_ok_and(|micros| micros > 0), "{reloading}");
    manager.hears("READY=1");

    place.install_script("exit 1");
    super::fails(&mut gateway, &["failed"]);
    manager.hears("STATUS=upgrading: the new process starts");
    manager.hears("READY=1");
    place.install();
    manager.heard.clear();
    let old = gateway.upgrade();
    let pid = gateway.process().id();
    manager.hears(&format!("MAINPID={pid}"));
    ends(old, END_WAIT);
    manager.hears("WATCHDOG=1");
    manager.hears("WATCHDOG=1");
    let upgraded = manager.heard.join("\n");
    assert!(upgraded.contains("READY=1\nSTATUS=serving: configuration generation 1, restart epoch 1"), "{upgraded}");
    assert!(!upgraded.contains("STOPPING=1"), "the service does not stop: {upgraded}");

    gateway.process().signal("TERM");
    manager.hears("STOPPING=1");
    let status = gateway.process().wait(END_WAIT);
    assert!(status.success(), "{status}");
    gateway.ended();
}
