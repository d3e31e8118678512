//! Limits of a peer's frames and messages.

use std::time::Duration;

/// Payload bytes of a message, all its fragments together. A relay holds no message: the limit protects the endpoint that does.
/// Default 16 MiB, as ExpressGateway; `ws` takes 100 MiB, `websockets` 1 MiB.
pub const MESSAGE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Frames of a message. Default 16,384: a message of [`MESSAGE_BYTES_MAX`] in pieces of 1 KiB. More are a million headers for
/// the sake of a million bytes.
pub const FRAGMENTS_MAX: u32 = 16 * 1024;

/// Pings within [`PING_WINDOW`]: each costs its receiver a pong. Default 50, as ExpressGateway.
pub const PINGS_MAX: u32 = 50;
/// See [`PINGS_MAX`]. It begins with the first ping behind the last one, so that twice as many can come around its end.
pub const PING_WINDOW: Duration = Duration::from_secs(10);

/// Payload bytes of a control frame (RFC 6455 section 5.5).
pub const CONTROL_BYTES_MAX: u64 = 125;

/// Limits of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`MESSAGE_BYTES_MAX`].
    pub message_bytes: u64,
    /// See [`FRAGMENTS_MAX`].
    pub fragments: u32,
    /// See [`PINGS_MAX`].
    pub pings: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message_bytes: MESSAGE_BYTES_MAX, fragments: FRAGMENTS_MAX, pings: PINGS_MAX }
    }
}
