//! The programs of a search: what stands behind, the sink that calibrates the generator, the gateway.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;
use weir_engine::settings::Address;
use weir_knee::Backend;
use weir_parties::place::free_port;
use weir_parties::{Launch, Process};

use crate::placement::{Placement, list_of};

/// Descriptors and permits that the gateway has beyond the scenario's connections.
const CONNECTIONS_SPARE: u32 = 64;

/// What stands behind the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The lab's own origin, started for the search.
    Origin,
    /// A server that runs already.
    Server(Address),
}

impl Behind {
    /// Which ceiling bounds the search, and what a plan may be made for.
    #[must_use]
    pub fn backend(&self) -> Backend {
        match self {
            Self::Origin => Backend::Synthetic,
            Self::Server(_) => Backend::Real,
        }
    }
}

/// The programs, and where they listen. Dropped, they end.
pub(crate) struct Stage {
    weir: PathBuf,
    folder: TempDir,
    placement: Placement,
    origin: Option<Process>,
    behind: Address,
    gateway: Process,
    front: Address,
    config: String,
}

impl Stage {
    /// Starts origin and gateway with the program `weir`. `connections` is the most that clients will make.
    pub(crate) fn start(weir: &Path, behind: &Behind, placement: &Placement, connections: u32) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("weir-lab-").tempdir()?;
        let (origin, behind) = match behind {
            Behind::Server(address) => {
                reach(address)?;
                (None, address.clone())
            }
            Behind::Origin => {
                let (process, address) = start_origin(weir, "origin", &placement.origin, folder.path())?;
                (Some(process), address)
            }
        };
        let port = free_port()?;
        let config = gateway_config(port, free_port()?, &behind, placement.gateway.len(), connections);
        let path = folder.path().join("gateway.toml");
        std::fs::write(&path, &config).with_context(|| path.display().to_string())?;
        let words = [weir.as_os_str(), "run".as_ref(), "--config".as_ref(), path.as_os_str()];
        let mut gateway =
            Process::start(&Launch::new("gateway", Some(&list_of(&placement.gateway)), words), folder.path())?;
        gateway.wait_for_port(port)?;
        let front = loopback(port);
        Ok(Self { weir: weir.to_owned(), folder, placement: placement.clone(), origin, behind, gateway, front, config })
    }

    /// An origin of the lab on the gateway's CPUs, which are idle while the generator is calibrated: it has them for itself.
    pub(crate) fn start_sink(&self) -> Result<(Process, Address)> {
        start_origin(&self.weir, "sink", &self.placement.gateway, self.folder.path())
    }

    /// Where clients of the gateway connect.
    pub(crate) fn front(&self) -> &Address {
        &self.front
    }

    /// Where clients of what stands behind it connect.
    pub(crate) fn behind(&self) -> &Address {
        &self.behind
    }

    pub(crate) fn gateway(&self) -> u32 {
        self.gateway.id()
    }

    pub(crate) fn origin(&self) -> Option<u32> {
        self.origin.as_ref().map(Process::id)
    }

    /// The configuration of the gateway.
    pub(crate) fn config(&self) -> &str {
        &self.config
    }

    /// An error with its last words if one of the programs has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.gateway.check_running()?;
        self.origin.as_mut().map_or(Ok(()), Process::check_running)
    }
}

/// Before anything is started, so that nothing is measured in vain.
fn reach(address: &Address) -> Result<()> {
    let text = address.to_string();
    let reached = match address {
        Address::Unix(path) => UnixStream::connect(path).map(drop),
        _ => TcpStream::connect(&text).map(drop),
    };
    reached.with_context(|| format!("cannot reach {text}; nothing was sent. Start the server, or mend the address"))
}

fn start_origin(weir: &Path, name: &str, cpus: &[u32], folder: &Path) -> Result<(Process, Address)> {
    let port = free_port()?;
    let bind = format!("127.0.0.1:{port}");
    let words: [&std::ffi::OsStr; 6] =
        [weir.as_os_str(), "lab".as_ref(), "origin".as_ref(), "redis".as_ref(), "--bind".as_ref(), bind.as_ref()];
    let mut process = Process::start(&Launch::new(name, Some(&list_of(cpus)), words), folder)?;
    process.wait_for_port(port)?;
    Ok((process, loopback(port)))
}

fn loopback(port: u16) -> Address {
    std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()
}

/// Telemetry is on, as by default; limits are those of the defaults but for the connections, which come from one address.
fn gateway_config(port: u16, admin: u16, behind: &Address, workers: usize, connections: u32) -> String {
    let connections = connections + CONNECTIONS_SPARE;
    format!(
        r#"[runtime]
workers = {workers}
pin = false # the lab has chosen the CPUs

[admin]
bind = "127.0.0.1:{admin}"

[limits]
connections = {connections}
connections_per_source = {connections}

[telemetry]
log_level = "warn"

[[listener]]
name = "redis"
protocol = "redis"
bind = "127.0.0.1:{port}"
upstream = "redis"

[[upstream]]
name = "redis"
endpoints = ["{behind}"]
"#
    )
}
