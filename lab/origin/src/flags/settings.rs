//! Settings of a flags origin.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use weir_engine::settings::{Address, RuntimeSettings};
use weir_flagsets::DataSet;

use super::token::Token;

/// Bytes of a request body. 32 MiB: a document with the flags of the largest set, twenty times over. Past it a client reads 413.
pub const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes of the body of `/edge/validate`. 100 KiB, as unleash-server takes JSON: a gateway must cut its batches. Past it a client reads 413.
pub const VALIDATE_BYTES_MAX: usize = 100 * 1024;

/// Connections per worker. 65,536: tens of thousands of open streams, each on a connection of its own. Past it a client reads 503.
pub const CONNECTIONS_MAX: usize = 65_536;

/// Most workers of one origin: more than any machine it is meant for has cores.
const WORKERS_MAX: usize = 256;

/// The shortest time between two edits. 10 ms: each rebuilds the document of 5,000 flags for each token.
const EDIT_EVERY_MIN: Duration = Duration::from_millis(10);

/// A flags origin.
#[derive(Clone, Debug)]
pub struct FlagsOriginSettings {
    /// Where to listen. Port 0 takes a free one. Default `127.0.0.1:0`.
    pub bind: Address,
    /// Worker threads, each with its own listening socket. Default 1.
    pub workers: usize,
    /// CPUs to pin workers to, in turn. Empty: the scheduler decides. Default empty.
    pub cpus: Vec<usize>,
    /// The flags of every environment at the start. Default [`DataSet::Large`].
    pub data: DataSet,
    /// Time between two edits of the environment of the first token. Default `None`: none.
    pub edit_every: Option<Duration>,
    /// The valid tokens. Default [`Token::usual`].
    pub tokens: Vec<Token>,
    /// `/api/client/delta` and `/api/client/streaming` exist. Default true.
    pub has_deltas: bool,
    /// Events of an environment that a delta goes back by. Default 20, as unleash-server.
    pub history: usize,
    /// Time between two comments on a stream that keep it open. Default 30 s.
    pub keep_alive: Duration,
    /// Before each reply of the API. Default 0.
    pub delay: Duration,
    /// Per worker. Default [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Driver and receive buffers. Its `workers` and `pin` are not used: see `workers` and `cpus` here.
    pub runtime: RuntimeSettings,
}

impl Default for FlagsOriginSettings {
    fn default() -> Self {
        Self {
            bind: Address::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            workers: 1,
            cpus: Vec::new(),
            data: DataSet::default(),
            edit_every: None,
            tokens: Token::usual(),
            has_deltas: true,
            history: 20,
            keep_alive: Duration::from_secs(30),
            delay: Duration::ZERO,
            connections_max: CONNECTIONS_MAX,
            runtime: RuntimeSettings::without_pauses(),
        }
    }
}

impl FlagsOriginSettings {
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`], with a text that names the setting, its value and the remedy.
    pub(super) fn check(&self) -> io::Result<()> {
        let Self { workers, edit_every, tokens, keep_alive, .. } = self;
        let message = if !(1..=WORKERS_MAX).contains(workers) {
            format!("workers = {workers}: from 1 to {WORKERS_MAX}")
        } else if let Some(every) = edit_every.filter(|every| *every < EDIT_EVERY_MIN) {
            format!("edit-every = {every:?}: at least {EDIT_EVERY_MIN:?}")
        } else if keep_alive.is_zero() {
            "keep-alive = 0: a time of more than 0".to_owned()
        } else if tokens.is_empty() {
            "no token is valid: name one, for example backend=*:development.lab-backend".to_owned()
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
        let refusal = |settings: FlagsOriginSettings| settings.check().expect_err("refused").to_string();
        assert!(refusal(FlagsOriginSettings { workers: 0, ..Default::default() }).contains("workers = 0"));
        assert!(refusal(FlagsOriginSettings { tokens: Vec::new(), ..Default::default() }).contains("no token"));
        assert!(
            refusal(FlagsOriginSettings { keep_alive: Duration::ZERO, ..Default::default() }).contains("keep-alive")
        );
        let edit_every = Some(Duration::from_millis(1));
        assert!(refusal(FlagsOriginSettings { edit_every, ..Default::default() }).contains("edit-every = 1ms"));
        assert!(FlagsOriginSettings::default().check().is_ok());
    }
}
