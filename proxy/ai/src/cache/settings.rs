//! Bounds of the exact cache of a process.

use std::time::Duration;

/// Memory of stored responses and of recordings. Default 64 MiB: some ten thousand chats. It is beside `limits.buffered_bytes`, so that
/// a full cache takes no room from requests.
pub const BYTES_MAX: u64 = 64 << 20;

/// Bytes of one response. Default 1 MiB; a chat has some thousand. A longer one passes and is not stored.
pub const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// Bounds of the exact cache. All AI listeners share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// See [`BYTES_MAX`].
    pub bytes_max: u64,
    /// See [`RESPONSE_BYTES_MAX`].
    pub response_bytes_max: u64,
    /// Time for which a request waits for an equal one. Default 60 s, as for the first event of a stream; then it goes to a provider
    /// itself.
    pub wait_max: Duration,
    /// Requests that wait for an equal one. Default 1,024; further ones go to a provider themselves.
    pub followers_max: usize,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            bytes_max: BYTES_MAX,
            response_bytes_max: RESPONSE_BYTES_MAX,
            wait_max: Duration::from_secs(60),
            followers_max: 1_024,
        }
    }
}
