//! The synthetic origin of the lab as a process of its own: HTTP/1.1, HTTP/2 and WebSocket on one port.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::deadline::until_true;
use crate::gateway::program;
use crate::port;
use crate::stream::Address;

/// `weir lab origin http`; it ends with this value.
pub struct LabOrigin {
    child: Child,
    /// Where it listens.
    pub address: Address,
}

impl LabOrigin {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// If it does not listen.
    pub fn start() -> Self {
        let address = Address::port(port::free());
        Self { child: run(&address), address }
    }

    /// Ends the process at once: the kernel resets its connections.
    ///
    /// # Panics
    /// If it cannot be ended.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child may be killed");
        self.child.wait().expect("a child ends");
    }

    /// Starts it again on its port.
    ///
    /// # Panics
    /// If it does not listen.
    pub fn restart(&mut self) {
        self.child = run(&self.address);
    }

    /// The URL of a path.
    pub fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://{}{path}", self.address.text())
    }
}

fn run(address: &Address) -> Child {
    let mut command = Command::new(program());
    command.args(["lab", "origin", "http", "--bind", &address.text()]);
    let child = command.stdout(Stdio::null()).spawn().expect("the origin starts");
    until_true("the origin to listen", || TcpStream::connect(address.tcp()).is_ok());
    child
}

impl Drop for LabOrigin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
