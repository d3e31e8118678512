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

/// Bytes of an encoded header block that goes on in CONTINUATION frames, kept until its end. 128 KiB are two of the longest header lists
/// without any compression.
pub const HEADER_BLOCK_BYTES_MAX: usize = 2 * 64 * 1024;

/// Window updates below this many bytes count as too small: Go's client, the eagerest one, sends one per 4 KiB.
pub const WINDOW_UPDATE_SMALL_BYTES: u32 = 1024;

/// Streams that were reset by this side, whose frames in flight are ignored. Default 1,024, 8 bytes each.
pub const RESET_STREAMS_KEPT: usize = 1024;

/// Streams that the peer may reset before the shell takes their requests, between two calls of `next_event` (CVE-2023-44487).
pub const EARLY_RESETS_MAX: u32 = 20;

/// Streams that this side resets for what the peer did wrong, in the life of a connection (CVE-2025-8671).
pub const REFUSED_STREAMS_MAX: u32 = 500;

/// Bytes of acknowledgements, resets and window updates that wait while the peer reads nothing. 64 KiB are 3,800 pings.
pub const OUTBOUND_CONTROL_BYTES_MAX: usize = 64 * 1024;

/// Bytes that wait in the output while the peer does not read, above which its connection is congested. DATA waits elsewhere: these are heads,
/// trailers, resets and acknowledgements. 256 KiB are 4,000 heads of the usual size; a client that reads cannot have so many streams.
pub const OUTPUT_CONGESTED_BYTES: usize = 256 * 1024;

/// Bytes that wait in the output, above which a connection fails if its driver goes on receiving all the same.
pub const OUTPUT_WAITING_BYTES_MAX: usize = 1 << 20;

/// Interim heads of one response.
pub const INTERIM_HEADS_MAX: u8 = 8;

/// Time for the peer to acknowledge the first SETTINGS.
pub const SETTINGS_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the peer to acknowledge later SETTINGS, which may stand behind a download on a slow path. The part that the socket and the kernel
/// hold takes a few round trips, and 25 s where 256 KiB leave with 10 KiB a second.
pub const SETTINGS_UPDATE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for the peer to confirm the first GOAWAY of a drain. The second one follows in any case: requests that it crosses are refused, and can
/// be sent again.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the rest of a header block that has begun: its bytes are kept until then.
pub const HEADER_BLOCK_TIMEOUT: Duration = Duration::from_secs(10);

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
