//! Limits of a peer's messages, in the units of RFC 9112.

/// Bytes of a head: first line and fields. A head is held in memory until its end; nothing is reserved for it before.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Fields of a head. A browser sends 20, a request through three proxies 40.
pub const HEAD_FIELDS_MAX: usize = 100;

/// Bytes of a request target. Other servers: nginx 8 KiB, Apache 8,190 bytes.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;

/// Bytes of all chunk extensions of one body. They have no use that anybody knows, and cost a parser its time.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 8 * 1024;

/// Bytes of a trailer section.
pub const TRAILER_BYTES_MAX: usize = 64 * 1024;

/// Hexadecimal digits of a chunk size: 64 bits.
pub const CHUNK_SIZE_DIGITS_MAX: usize = 16;

/// Limits of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// See [`HEAD_BYTES_MAX`].
    pub bytes: usize,
    /// See [`HEAD_FIELDS_MAX`].
    pub fields: usize,
    /// See [`TARGET_BYTES_MAX`]. Only for requests.
    pub target_bytes: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { bytes: HEAD_BYTES_MAX, fields: HEAD_FIELDS_MAX, target_bytes: TARGET_BYTES_MAX }
    }
}

/// Limits of what surrounds a chunked body. The body itself is never held, so it has none here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// See [`CHUNK_EXTENSION_BYTES_MAX`].
    pub extension_bytes: usize,
    /// See [`TRAILER_BYTES_MAX`].
    pub trailer_bytes: usize,
    /// Fields of a trailer section; see [`HEAD_FIELDS_MAX`].
    pub trailer_fields: usize,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            extension_bytes: CHUNK_EXTENSION_BYTES_MAX,
            trailer_bytes: TRAILER_BYTES_MAX,
            trailer_fields: HEAD_FIELDS_MAX,
        }
    }
}

const _: () = assert!(TARGET_BYTES_MAX < HEAD_BYTES_MAX);
