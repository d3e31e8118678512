//! Settings of a PostgreSQL origin.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use weir_base::{limits, secret::Secret};
use weir_engine::settings::{Address, RuntimeSettings};
use weir_postgres_codec::limits as wire;

/// Connections per worker, see [`limits::CONNECTIONS_MAX`]. Past it a client gets SQLSTATE 53300.
pub const CONNECTIONS_MAX: usize = limits::CONNECTIONS_MAX as usize;

/// Bytes of the body of one message. Default 16 MiB: a message is answered when it is whole.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of the value of a row that follows from its request: hexadecimal digits of a hash, so that a few prove it.
const PAYLOAD_BYTES: usize = 16;

/// Most workers of one origin: more than any machine it is meant for has cores.
const WORKERS_MAX: usize = 256;

/// A PostgreSQL origin.
#[derive(Clone, Debug)]
pub struct PostgresOriginSettings {
    /// Where to listen. Port 0 takes a free one. Default `127.0.0.1:0`.
    pub bind: Address,
    /// Worker threads, each with its own listening socket. Default 1.
    pub workers: usize,
    /// CPUs to pin workers to, in turn. Empty: the scheduler decides. Default empty.
    pub cpus: Vec<usize>,
    /// The password of every user, which clients prove by SCRAM-SHA-256. Default none: everybody is let in.
    pub password: Option<Secret>,
    /// Before a reply leaves. Default 0.
    pub delay: Duration,
    /// Bytes of the value of a row that follows from its request. Default 16.
    pub payload: usize,
    /// Default [`MESSAGE_BYTES_MAX`].
    pub message_bytes_max: usize,
    /// Per worker. Default [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Driver and receive buffers. Its `workers` and `pin` are not used: see `workers` and `cpus` here.
    pub runtime: RuntimeSettings,
}

impl Default for PostgresOriginSettings {
    fn default() -> Self {
        Self {
            bind: Address::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            workers: 1,
            cpus: Vec::new(),
            password: None,
            delay: Duration::ZERO,
            payload: PAYLOAD_BYTES,
            message_bytes_max: MESSAGE_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            runtime: RuntimeSettings::without_pauses(),
        }
    }
}

impl PostgresOriginSettings {
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`], with a text that names the setting, its value and what to write instead.
    pub(super) fn check(&self) -> io::Result<()> {
        let message = if !(1..=WORKERS_MAX).contains(&self.workers) {
            format!("workers = {}: from 1 to {WORKERS_MAX}", self.workers)
        } else if !(1..=wire::MESSAGE_BYTES_MAX).contains(&self.message_bytes_max) {
            format!("message_bytes_max = {}: from 1 to {}", self.message_bytes_max, wire::MESSAGE_BYTES_MAX)
        } else if !(1..=self.message_bytes_max).contains(&self.payload) {
            format!("payload = {}: from 1 to message_bytes_max = {}", self.payload, self.message_bytes_max)
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        let refusal = |settings: PostgresOriginSettings| settings.check().expect_err("refused").to_string();
        assert!(refusal(PostgresOriginSettings { workers: 0, ..Default::default() }).contains("workers = 0"));
        assert!(refusal(PostgresOriginSettings { payload: 0, ..Default::default() }).contains("payload = 0"));
        let large = PostgresOriginSettings { message_bytes_max: usize::MAX, ..Default::default() };
        assert!(refusal(large).contains("message_bytes_max"));
    }
}
