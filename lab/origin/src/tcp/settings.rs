//! Settings of a TCP origin.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use weir_base::limits;
use weir_engine::settings::{Address, RuntimeSettings};

/// Connections per worker, see [`limits::CONNECTIONS_MAX`]. Past it a client is closed.
pub const CONNECTIONS_MAX: usize = limits::CONNECTIONS_MAX as usize;

/// Most workers of one origin: more than any machine it is meant for has cores.
const WORKERS_MAX: usize = 256;

/// A TCP origin.
#[derive(Clone, Debug)]
pub struct TcpOriginSettings {
    /// Where to listen. Port 0 takes a free one. Default `127.0.0.1:0`.
    pub bind: Address,
    /// Worker threads, each with its own listening socket. Default 1.
    pub workers: usize,
    /// CPUs to pin workers to, in turn. Empty: the scheduler decides. Default empty.
    pub cpus: Vec<usize>,
    /// Before what was received goes back. Default 0.
    pub delay: Duration,
    /// Per worker. Default [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Driver and receive buffers. Its `workers` and `pin` are not used: see `workers` and `cpus` here.
    pub runtime: RuntimeSettings,
}

impl Default for TcpOriginSettings {
    fn default() -> Self {
        Self {
            bind: Address::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            workers: 1,
            cpus: Vec::new(),
            delay: Duration::ZERO,
            connections_max: CONNECTIONS_MAX,
            runtime: RuntimeSettings::without_pauses(),
        }
    }
}

impl TcpOriginSettings {
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`], with a text that names the setting, its value and what to write instead.
    pub(super) fn check(&self) -> io::Result<()> {
        if (1..=WORKERS_MAX).contains(&self.workers) {
            return Ok(());
        }
        let message = format!("workers = {}: from 1 to {WORKERS_MAX}", self.workers);
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}
