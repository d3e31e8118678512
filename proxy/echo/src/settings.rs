//! What an operator may choose. Plain data, already checked by whoever made it.

use std::time::Duration;

/// How long a connection may be silent between lines. Default 10 min, as for TCP.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Bytes of a line without its end. Default 1 KiB. Worst case: a line that is kept, one that is on its way, and the chunk behind them,
/// for each connection, within `limits.buffered_bytes`.
pub const LINE_BYTES_MAX: u64 = 1024;

/// An echo listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EchoListenerSettings {
    /// See [`LINE_BYTES_MAX`].
    pub line_bytes_max: usize,
}
