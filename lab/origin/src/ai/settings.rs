//! Settings of an AI origin.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use weir_base::secret::Secret;
use weir_engine::settings::{Address, RuntimeSettings};

use super::{directive::EVENTS_MAX, text::TEXT_BYTES_MAX};

/// Bytes of a request body. 32 MiB: twice the most that the gateway takes. Past it a client reads 413.
pub const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Connections per worker. 65,536: tens of thousands of idle streams, each on a connection of its own. Past it a client reads 503.
pub const CONNECTIONS_MAX: usize = 65_536;

/// Most workers of one origin: more than any machine it is meant for has cores.
const WORKERS_MAX: usize = 256;

/// An AI origin.
#[derive(Clone, Debug)]
pub struct AiOriginSettings {
    /// Where to listen. Port 0 takes a free one. Default `127.0.0.1:0`.
    pub bind: Address,
    /// Worker threads, each with its own listening socket. Default 1.
    pub workers: usize,
    /// CPUs to pin workers to, in turn. Empty: the scheduler decides. Default empty.
    pub cpus: Vec<usize>,
    /// Changes every word that a request does not choose. Default 1.
    pub seed: u64,
    /// Bytes of the text of a reply that names none. Default 1,024.
    pub payload: usize,
    /// Events with text of a stream that names none. Default 16.
    pub events: usize,
    /// Before the first event, or before a whole reply. Default 0.
    pub first: Duration,
    /// Before each further event with text. Default 0.
    pub gap: Duration,
    /// The key that a client has to present. Default `None`: any, and none.
    pub key: Option<Secret>,
    /// Per worker. Default [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Driver and receive buffers. Its `workers` and `pin` are not used: see `workers` and `cpus` here.
    pub runtime: RuntimeSettings,
}

impl Default for AiOriginSettings {
    fn default() -> Self {
        Self {
            bind: Address::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            workers: 1,
            cpus: Vec::new(),
            seed: 1,
            payload: 1_024,
            events: 16,
            first: Duration::ZERO,
            gap: Duration::ZERO,
            key: None,
            connections_max: CONNECTIONS_MAX,
            runtime: RuntimeSettings::without_pauses(),
        }
    }
}

impl AiOriginSettings {
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`], with a text that names the setting, its value and what to write instead.
    pub(super) fn check(&self) -> io::Result<()> {
        let Self { workers, payload, events, .. } = *self;
        let message = if !(1..=WORKERS_MAX).contains(&workers) {
            format!("workers = {workers}: from 1 to {WORKERS_MAX}")
        } else if payload > TEXT_BYTES_MAX {
            format!("payload = {payload}: at most {TEXT_BYTES_MAX}")
        } else if !(1..=EVENTS_MAX).contains(&events) {
            format!("events = {events}: from 1 to {EVENTS_MAX}")
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
        let refusal = |settings: AiOriginSettings| settings.check().expect_err("refused").to_string();
        assert!(refusal(AiOriginSettings { workers: 0, ..Default::default() }).contains("workers = 0"));
        assert!(refusal(AiOriginSettings { payload: TEXT_BYTES_MAX + 1, ..Default::default() }).contains("payload"));
        assert!(refusal(AiOriginSettings { events: 0, ..Default::default() }).contains("events = 0"));
        assert!(AiOriginSettings::default().check().is_ok());
    }
}
