//! A real nginx as the origin.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::deadline::{WAIT, until, until_true};
use crate::port;
use crate::stream::Address;

/// A running nginx; it ends with this value.
pub struct Nginx {
    /// Where it listens.
    pub address: Address,
    child: Child,
    folder: TempDir,
}

impl Nginx {
    /// Starts one with one worker; `options` are those of its `listen`, and `server` the lines of its server block.
    ///
    /// # Panics
    /// If it is not installed, or does not listen.
    pub fn start(options: &str, server: &str) -> Self {
        Self::configured("access_log off;", options, server)
    }

    /// One with a log: `formats` are the lines that say of what form, and `server` says where it is.
    ///
    /// # Panics
    /// As [`Nginx::start`].
    pub fn logging(formats: &str, server: &str) -> Self {
        Self::configured(formats, "", server)
    }

    fn configured(http: &str, options: &str, server: &str) -> Self {
        // It answers no length by itself before what came of the body is judged.
        Self::with_config(|port, folder| {
            format!(
                "daemon off; worker_processes 1; pid {0}/pid; error_log stderr crit; events {{}}\n\
                 http {{ {http} client_max_body_size 0; client_body_temp_path {0}/body;\n\
                 server {{ listen 127.0.0.1:{port} {options}; root {0}; {server} }} }}",
                folder.display()
            )
        })
    }

    /// Starts one with the whole of a configuration, which listens on this port and keeps its files in this folder.
    ///
    /// # Panics
    /// As [`Nginx::start`].
    pub fn with_config(config: impl FnOnce(u16, &Path) -> String) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = port::free();
        let text = config(port, folder.path());
        let config = folder.path().join("nginx.conf");
        std::fs::write(&config, text).expect("written");
        // Debian keeps servers where only root's PATH may lead.
        let program = PathBuf::from("/usr/sbin/nginx");
        let mut nginx = Command::new(if program.is_file() { program.as_os_str() } else { "nginx".as_ref() });
        nginx.arg("-c").arg(&config).arg("-p").arg(folder.path()).stderr(Stdio::null());
        let child = nginx.spawn().expect("nginx starts: `cargo xtask setup peers` installs it");
        let socket = SocketAddr::from(([127, 0, 0, 1], port));
        until_true("nginx to listen", || TcpStream::connect(socket).is_ok());
        Self { address: Address::Tcp(socket), child, folder }
    }

    /// The process that serves requests.
    ///
    /// # Panics
    /// If it does not start.
    pub fn worker(&self) -> u32 {
        let master = self.child.id();
        let children = format!("/proc/{master}/task/{master}/children");
        until("nginx to start its worker", WAIT, || {
            std::fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok()
        })
    }

    /// The folder that it serves files from.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its master would leave the worker behind if it were killed.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}
