//! Limits of a stream of events. No limit reserves memory: buffers grow with bytes received.

/// Bytes of a line, its end not counted. Default 1 MiB: the largest events known carry an image in base64. Worst case 1
/// MiB for each stream whose line is cut by a piece; a line within one piece is not copied.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of an event with the comments between its lines, the end of its last line not counted. Default 1 MiB, as for a
/// line.
pub const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a buffer that a stream keeps between events. Default 4 KiB: most events fit, and tens of thousands of idle
/// streams keep little.
pub const KEPT_BYTES_MAX: usize = 4 * 1024;

/// Limits of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`LINE_BYTES_MAX`].
    pub line_bytes: usize,
    /// See [`EVENT_BYTES_MAX`].
    pub event_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes: LINE_BYTES_MAX, event_bytes: EVENT_BYTES_MAX }
    }
}
