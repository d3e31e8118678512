//! Settings of an HTTP origin.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use weir_base::limits;
use weir_engine::settings::{Address, RuntimeSettings};

/// Bytes of a body that can be requested. 1 MiB: sixteen times the largest row of the comparisons. A worker has one such body
/// for all.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Connections per worker, see [`limits::CONNECTIONS_MAX`]. Past it a client reads 503.
pub const CONNECTIONS_MAX: usize = limits::CONNECTIONS_MAX as usize;

/// Most workers of one origin: more than any machine it is meant for has cores.
const WORKERS_MAX: usize = 256;

/// An HTTP origin.
#[derive(Clone, Debug)]
pub struct HttpOriginSettings {
    /// Where to listen. Port 0 takes a free one. Default `127.0.0.1:0`.
    pub bind: Address,
    /// Worker threads, each with its own listening socket. Default 1.
    pub workers: usize,
    /// CPUs to pin workers to, in turn. Empty: the scheduler decides. Default empty.
    pub cpus: Vec<usize>,
    /// Bytes of the body of `/`. Default 128.
    pub payload: usize,
    /// Before each reply, and before each frame of a WebSocket. Default 0.
    pub delay: Duration,
    /// Per worker. Default [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Driver and receive buffers. Its `workers` and `pin` are not used: see `workers` and `cpus` here.
    pub runtime: RuntimeSettings,
}

impl Default for HttpOriginSettings {
    fn default() -> Self {
        Self {
            bind: Address::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            workers: 1,
            cpus: Vec::new(),
            payload: 128,
            delay: Duration::ZERO,
            connections_max: CONNECTIONS_MAX,
            runtime: RuntimeSettings::without_pauses(),
        }
    }
}

impl HttpOriginSettings {
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`], with a text that names the setting, its value and what to write instead.
    pub(super) fn check(&self) -> io::Result<()> {
        let message = match (self.workers, self.payload) {
            (workers, _) if !(1..=WORKERS_MAX).contains(&workers) => {
                format!("workers = {workers}: from 1 to {WORKERS_MAX}")
            }
            (_, payload) if payload > BODY_BYTES_MAX => format!("payload = {payload}: at most {BODY_BYTES_MAX}"),
            _ => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        let refusal = |settings: HttpOriginSettings| settings.check().expect_err("refused").to_string();
        assert!(refusal(HttpOriginSettings { workers: 0, ..Default::default() }).contains("workers = 0"));
        let payload = BODY_BYTES_MAX + 1;
        assert!(refusal(HttpOriginSettings { payload, ..Default::default() }).contains("payload"));
        assert!(HttpOriginSettings::default().check().is_ok());
    }
}
