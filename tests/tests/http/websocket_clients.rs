//! Real WebSocket clients and origins, each with each: `ws` of Node and `websockets` of Python.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use weir_tests::gateway::{Config, Gateway};
use weir_tests::stream::Address;
use weir_tests::tools::python;

/// A library, by the program that speaks through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Ws,
    Websockets,
}

impl Library {
    pub fn command(self, words: &[&str]) -> Command {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let (program, script) = match self {
            Self::Ws => (PathBuf::from("node"), "node/websocket.js"),
            Self::Websockets => (python(), "python/websocket_peer.py"),
        };
        let mut command = Command::new(program);
        command.arg(clients.join(script)).args(words);
        command
    }
}

/// An echo origin; it ends with the test.
pub struct Origin(Child);

impl Origin {
    pub fn start(library: Library) -> (Self, Address) {
        let mut child = library.command(&["origin"]).stdout(Stdio::piped()).spawn().expect("the origin starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("readable");
        let port = line.trim().parse().unwrap_or_else(|_| panic!("{library:?} did not say its port: {line:?}"));
        (Self(child), Address::port(port))
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn real_clients_talk_to_real_origins() {
    for origin in [Library::Ws, Library::Websockets] {
        let (_running, address) = Origin::start(origin);
        let config = Config::http(&address).listener("[listener.http]\nupgrades = [\"websocket\"]");
        let gateway = Gateway::start(config);
        for client in [Library::Ws, Library::Websockets] {
            let direct = client.command(&["client", &format!("ws://{}/", address.text())]).output().expect("runs");
            let through =
                client.command(&["client", &format!("ws://{}/", gateway.address.text())]).output().expect("runs");
            for (way, output) in [("directly", direct), ("through the gateway", through)] {
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(
                    output.status.success() && output.stdout == b"ok\n",
                    "{client:?} to {origin:?} {way}: {errors}"
                );
            }
        }
        gateway.wait_metric("weir_http_tunnels_closed_total", &[("reason", "websocket_closed")], 2.0);
        gateway.finish();
    }
}
