//! A real HAProxy with its default settings, for comparison.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::deadline::until_true;
use crate::port;
use crate::stream::Address;

/// A running HAProxy; it ends with this value.
pub struct Haproxy {
    /// Where it listens.
    pub address: Address,
    child: Child,
    _folder: TempDir,
}

impl Haproxy {
    /// Starts one in front of `origin`. `bind` are the options of its `bind`, and `server` those of its `server`.
    ///
    /// # Panics
    /// If it is not installed, or does not listen.
    pub fn before(origin: &Address, bind: &str, server: &str) -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a temporary folder"), port::free());
        let text = format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
             frontend front\n bind 127.0.0.1:{port} {bind}\n default_backend back\n\
             backend back\n server origin {} {server}\n",
            origin.text()
        );
        let config = folder.path().join("haproxy.cfg");
        std::fs::write(&config, text).expect("written");
        let mut haproxy = Command::new("haproxy");
        haproxy.arg("-f").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
        let child = haproxy.spawn().expect("HAProxy starts: `cargo xtask setup peers` installs it");
        let socket = SocketAddr::from(([127, 0, 0, 1], port));
        until_true("HAProxy to listen", || TcpStream::connect(socket).is_ok());
        Self { address: Address::Tcp(socket), child, _folder: folder }
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
