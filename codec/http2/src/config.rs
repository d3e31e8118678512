//! Settings and limits of one connection.

use std::time::Duration;

use weir_http_codec::HeadLimits;

/// Payload of the DATA frames that are sent, in bytes: the least that each peer takes. Larger ones would let one stream hold up the
/// others.
pub const DATA_BYTES_MAX: usize = 16 * 1024;

/// Bytes that wait in the output before DATA stays in the queues of its streams. Default 64 KiB: one write of the engine.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// CONTINUATION frames of one header block. A client needs one for each 16 KiB (CVE-2024-27316).
pub const CONTINUATIONS_MAX: u32 = 20;

/// Bytes of an encoded header block that goes on in CONTINUATION frames, kept until its end. 256 KiB are four of the longest header lists
/// without any compression.
pub const HEADER_BLOCK_BYTES_MAX: usize = 4 * 64 * 1024;

/// Window updates below this many bytes count as too small: Go's client, the eagerest one, sends one per 4 KiB.
pub const WINDOW_UPDATE_SMALL_BYTES: u32 = 1024;

/// Streams that were reset by this side, whose frames in flight are ignored. Default 1,024, 4 bytes each.
pub const RESET_STREAMS_KEPT: usize = 1024;

/// Streams that the peer may reset before the shell takes their requests, between two calls of `next_event` (CVE-2023-44487).
pub const EARLY_RESETS_MAX: u32 = 20;

/// Streams that this side resets for what the peer did wrong, in the life of a connection (CVE-2025-8671).
pub const REFUSED_STREAMS_MAX: u32 = 500;

/// Bytes of acknowledgements, resets and window updates that wait while the peer reads nothing. 64 KiB are 3,800 pings.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Interim heads of one response.
pub const INTERIM_HEADS_MAX: u8 = 8;

/// Time for the peer to acknowledge SETTINGS.
pub const SETTINGS_TIMEOUT: Duration = Duration::from_secs(5);

/// Streams that a client opens before it knows the server's limit. The least that RFC 9113 section 6.5.2 recommends.
pub const STREAMS_FIRST: u32 = 100;

/// Announcements and bounds of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// Streams that the peer may have open. Server only. Default 100.
    pub streams_max: u32,
    /// Window of each stream, in bytes. Default 256 KiB; at most [`crate::settings::WINDOW_BYTES_MAX`].
    pub stream_window: u32,
    /// Window of the connection, in bytes. Default 1 MiB; below [`crate::settings::WINDOW_BYTES_DEFAULT`] it is that.
    pub connection_window: u32,
    /// Bytes that wait on one stream before [`crate::Connection::send_capacity`] is 0. Default 64 KiB.
    pub send_queue_bytes: usize,
    /// Limits of heads and trailers.
    pub head_limits: HeadLimits,
    /// Offers extended CONNECT. Server only. Default false.
    pub connect_protocol: bool,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            streams_max: 100,
            stream_window: 256 * 1024,
            connection_window: 1 << 20,
            send_queue_bytes: 64 * 1024,
            head_limits: HeadLimits::default(),
            connect_protocol: false,
        }
    }
}
