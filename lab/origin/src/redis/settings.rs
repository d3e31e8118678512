//! Settings of an origin.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use weir_base::{Secret, limits};
use weir_engine::settings::{Address, RuntimeSettings};

use super::faults::Faults;

/// Bytes of stored keys and values, unfinished requests and queued transactions. Default 256 MiB: enough for a demo,
/// and small enough to stand beside the gateway on one machine. Past it writes get Redis' `-OOM` text.
pub const MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of one request, of one reply and of one string value. Default 64 MiB: the sizes that streaming tests use.
/// A reply that would be larger becomes an error, so this many bytes is also what a client that does not read can
/// hold; the worst case over all of them is this times [`CONNECTIONS_MAX`].
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Connections per worker, see [`limits::CONNECTIONS_MAX`]. Past it a client reads `-ERR max number of clients reached`.
pub const CONNECTIONS_MAX: usize = limits::CONNECTIONS_MAX as usize;

/// Most workers of one origin: more than any machine it is meant for has cores.
const WORKERS_MAX: usize = 256;

/// Source of the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A store of strings, lists, hashes and sets with expiry, transactions and channels. One worker.
    Memory,
    /// No keys: `GET` returns `payload` bytes, writes return success. Any number of workers.
    Fixed {
        /// Bytes of a value, at most `message_bytes_max`.
        payload: usize,
    },
}

/// A Redis origin.
#[derive(Clone, Debug)]
pub struct OriginSettings {
    /// Where to listen. Port 0 takes a free one. Default `127.0.0.1:0`.
    pub bind: Address,
    /// Worker threads, each with its own listening socket. Default 1.
    pub workers: usize,
    /// CPUs to pin workers to, in turn. Empty: the scheduler decides. Default empty.
    pub cpus: Vec<usize>,
    /// Default [`Mode::Memory`].
    pub mode: Mode,
    /// Faults injected on purpose. Default none.
    pub faults: Faults,
    /// Password of the user `default`. Default none: every client is let in.
    pub password: Option<Secret>,
    /// Default [`MEMORY_BYTES_MAX`], per worker.
    pub memory_bytes_max: usize,
    /// Default [`MESSAGE_BYTES_MAX`].
    pub message_bytes_max: usize,
    /// Per worker. Default [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Driver and receive buffers. Its `workers` and `pin` are not used: see `workers` and `cpus` here.
    pub runtime: RuntimeSettings,
}

impl Default for OriginSettings {
    fn default() -> Self {
        Self {
            bind: Address::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            workers: 1,
            cpus: Vec::new(),
            mode: Mode::Memory,
            faults: Faults::default(),
            password: None,
            memory_bytes_max: MEMORY_BYTES_MAX,
            message_bytes_max: MESSAGE_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            runtime: RuntimeSettings::without_pauses(),
        }
    }
}

impl OriginSettings {
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`], with a text that names the setting, its value and what to write instead.
    pub(super) fn check(&self) -> io::Result<()> {
        let bulk_max = weir_resp::limits::BULK_BYTES_MAX as usize;
        let message = match self.mode {
            _ if !(1..=WORKERS_MAX).contains(&self.workers) => {
                format!("workers = {}: from 1 to {WORKERS_MAX}", self.workers)
            }
            Mode::Memory if self.workers > 1 => format!(
                "workers = {}: memory mode keeps its keys in the cells of one worker; use workers = 1, or fixed replies",
                self.workers
            ),
            Mode::Fixed { payload } if payload > self.message_bytes_max => {
                format!("payload = {payload}: at most message_bytes_max = {}", self.message_bytes_max)
            }
            _ if self.message_bytes_max == 0 || self.message_bytes_max > bulk_max => {
                format!("message_bytes_max = {}: from 1 to {bulk_max}", self.message_bytes_max)
            }
            _ => return self.faults.check(),
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(settings: OriginSettings) -> String {
        settings.check().expect_err("refused").to_string()
    }

    #[test]
    fn memory_mode_refuses_a_second_worker_and_says_why() {
        let text = refusal(OriginSettings { workers: 2, ..Default::default() });
        assert!(text.contains("one worker") && text.contains("fixed"), "{text}");
        let fixed = Mode::Fixed { payload: 8 };
        assert!(OriginSettings { workers: 2, mode: fixed, ..Default::default() }.check().is_ok());
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        assert!(refusal(OriginSettings { workers: 0, ..Default::default() }).contains("workers = 0"));
        let mode = Mode::Fixed { payload: MESSAGE_BYTES_MAX + 1 };
        assert!(refusal(OriginSettings { mode, ..Default::default() }).contains("payload"));
        let faults = Faults { error_ratio: 1.5, ..Default::default() };
        assert!(refusal(OriginSettings { faults, ..Default::default() }).contains("error_ratio"));
    }
}
