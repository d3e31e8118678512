//! A real HAProxy, for comparison.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::deadline::{WAIT, until_true};
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
    /// Starts one with its default settings in front of an HTTP `origin`. `bind` are the options of its `bind`, and `server` those
    /// of its `server`.
    ///
    /// # Panics
    /// If it is not installed, or does not listen.
    pub fn before(origin: &Address, bind: &str, server: &str) -> Self {
        Self::start(&[], |port, _| {
            format!(
                "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
                 frontend front\n bind 127.0.0.1:{port} {bind}\n default_backend back\n\
                 backend back\n server origin {} {server}\n",
                origin.text()
            )
        })
    }

    /// Starts one in TCP mode, as a master whose worker hands its sockets to the next one at [`Haproxy::reload`].
    ///
    /// # Panics
    /// If it is not installed, or does not listen.
    pub fn master_before(origin: &Address) -> Self {
        Self::start(&["-W", "-db"], |port, folder| {
            format!(
                "global\n nbthread 2\n maxconn 2000\n stats socket {} mode 600 level admin expose-fd listeners\n\
                 defaults\n mode tcp\n timeout connect 5s\n timeout client 10m\n timeout server 10m\n\
                 listen tcp\n bind 127.0.0.1:{port}\n server origin {}\n",
                folder.join("haproxy.sock").display(),
                origin.text()
            )
        })
    }

    /// Starts one with the whole of a configuration, which listens on this port and keeps its files in this folder.
    ///
    /// # Panics
    /// If it is not installed, or does not listen.
    pub fn start(words: &[&str], config: impl FnOnce(u16, &Path) -> String) -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a temporary folder"), port::free());
        let file = folder.path().join("haproxy.cfg");
        std::fs::write(&file, config(port, folder.path())).expect("written");
        let mut haproxy = Command::new("haproxy");
        haproxy.args(words).arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let child = haproxy.spawn().expect("HAProxy starts: `cargo xtask setup peers` installs it");
        let socket = SocketAddr::from(([127, 0, 0, 1], port));
        until_true("HAProxy to listen", || TcpStream::connect(socket).is_ok());
        Self { address: Address::Tcp(socket), child, _folder: folder }
    }

    /// Starts a new worker in place of the one that serves; returns before it does.
    ///
    /// # Panics
    /// If the master is gone.
    pub fn reload(&self) {
        kill_process(self.pid(), Signal::USR2).expect("the master runs");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32).expect("a process id")
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        // A master ends its workers only if it may end in order.
        let _ = kill_process(self.pid(), Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < WAIT && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
