//! Every bound of the codec with its reason. No bound reserves memory: buffers grow with bytes received.

/// Arguments of one command, the name included.
/// Default 1,048,576, Redis' historic cap (7.0 takes 2^31 - 1, which no client needs and every attacker likes).
/// Worst case 8 B of offset per 6 B on the wire, and commands past `stream_bytes` keep no offsets at all.
pub const ARGS_MAX: u32 = 1_048_576;

/// Bytes of one bulk string, either direction. Redis' `proto-max-bulk-len` default.
pub const BULK_BYTES_MAX: u32 = 512 * 1024 * 1024;

/// Bytes of an inline command or of a length header before its line feed. Redis' `PROTO_INLINE_MAX_SIZE`.
pub const LINE_BYTES_MAX: u32 = 64 * 1024;

/// Commands that hold more bytes than this are handed on while they arrive.
/// Default 1 MiB: the request buffer of one client. Memory for an unfinished command stays below
/// `(stream_args_min + 1) * stream_bytes` plus headers.
pub const STREAM_BYTES: u32 = 1024 * 1024;

/// Arguments that must be complete before a command is streamed: the name and the first key, which routing needs.
pub const STREAM_ARGS_MIN: u32 = 2;

/// Arguments of a command before authentication. Redis 7.0, `processMultibulkBuffer`.
pub const PREAUTH_ARGS_MAX: u32 = 10;

/// Bytes of one bulk string before authentication. Redis 7.0, `processMultibulkBuffer`.
pub const PREAUTH_BULK_BYTES_MAX: u32 = 16_384;

/// Nesting of an upstream reply. A flat array is 1 deep; no Redis command exceeds 7.
/// Default 8,192: a client's EVAL can make the server nest about as deep as Lua's C stack allows (8,000 slots, one or
/// more a level), and a lower cap would let that client close a lane that others share. 8 bytes a level, held until the
/// reply ends: 64 KiB at worst.
pub const REPLY_DEPTH_MAX: u32 = 8_192;

/// Elements of one reply aggregate (a map counts keys and values). Redis' own list length bound; nothing is
/// stored per element, so this only refuses nonsense.
pub const REPLY_ELEMENTS_MAX: u64 = 1 << 32;

/// Bytes of a simple string, error or number line. As large as a bulk, because a script may return
/// `redis.error_reply` with any string and must not be able to break a shared lane by it. Lines are never stored.
pub const REPLY_LINE_BYTES_MAX: u32 = BULK_BYTES_MAX;

const _: () = assert!(PREAUTH_ARGS_MAX <= ARGS_MAX);
const _: () = assert!(PREAUTH_BULK_BYTES_MAX <= BULK_BYTES_MAX);
// Nothing can be streamed before authentication: the largest command fits the request buffer.
const _: () = assert!((PREAUTH_BULK_BYTES_MAX + 32) * PREAUTH_ARGS_MAX + 32 < STREAM_BYTES);
const _: () = assert!(LINE_BYTES_MAX <= STREAM_BYTES);

/// Bounds for what one client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Arguments of one command. Default [`ARGS_MAX`].
    pub args_max: u32,
    /// Bytes of one argument. Default [`BULK_BYTES_MAX`].
    pub bulk_bytes_max: u32,
    /// Bytes of an inline command or header line. Default [`LINE_BYTES_MAX`].
    pub line_bytes_max: u32,
    /// Commands larger than this are streamed. Default [`STREAM_BYTES`].
    pub stream_bytes: u32,
    /// Arguments that must be complete before streaming, unless one of them alone exceeds `stream_bytes`.
    /// Default [`STREAM_ARGS_MIN`].
    pub stream_args_min: u32,
    /// Before authentication [`PREAUTH_ARGS_MAX`] and [`PREAUTH_BULK_BYTES_MAX`] hold as well. Default `true`.
    pub authenticated: bool,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            args_max: ARGS_MAX,
            bulk_bytes_max: BULK_BYTES_MAX,
            line_bytes_max: LINE_BYTES_MAX,
            stream_bytes: STREAM_BYTES,
            stream_args_min: STREAM_ARGS_MIN,
            authenticated: true,
        }
    }
}

impl RequestLimits {
    /// The defaults for a client that still has to authenticate.
    pub fn unauthenticated() -> Self {
        Self { authenticated: false, ..Self::default() }
    }

    /// The argument count in force now.
    #[inline]
    pub(crate) fn args_cap(&self) -> u32 {
        if self.authenticated { self.args_max } else { self.args_max.min(PREAUTH_ARGS_MAX) }
    }

    /// The bulk length in force now.
    #[inline]
    pub(crate) fn bulk_cap(&self) -> u32 {
        if self.authenticated { self.bulk_bytes_max } else { self.bulk_bytes_max.min(PREAUTH_BULK_BYTES_MAX) }
    }
}

/// Bounds for the replies of one upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyLimits {
    /// Nesting. Default [`REPLY_DEPTH_MAX`].
    pub depth_max: u32,
    /// Bytes of one bulk string, bulk error or verbatim string. Default [`BULK_BYTES_MAX`].
    pub bulk_bytes_max: u32,
    /// Bytes of one simple line without its type byte and CRLF. Default [`REPLY_LINE_BYTES_MAX`].
    pub line_bytes_max: u32,
    /// Elements of one aggregate. Default [`REPLY_ELEMENTS_MAX`].
    pub elements_max: u64,
}

impl Default for ReplyLimits {
    fn default() -> Self {
        Self {
            depth_max: REPLY_DEPTH_MAX,
            bulk_bytes_max: BULK_BYTES_MAX,
            line_bytes_max: REPLY_LINE_BYTES_MAX,
            elements_max: REPLY_ELEMENTS_MAX,
        }
    }
}

/// Bounds for a decoded tree. The bytes are already in memory, so these bound the tree built from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueLimits {
    /// Nesting. Default 32: control replies are shallow, and a tree is dropped level by level.
    pub depth_max: u32,
    /// Nodes of the whole tree. Default 65,536: about 2.5 MiB, enough for COMMAND or CLUSTER SLOTS of a large cluster.
    pub nodes_max: u32,
    /// Payload bytes of the whole tree. Default 16 MiB.
    pub bytes_max: u32,
}

impl Default for ValueLimits {
    fn default() -> Self {
        Self { depth_max: 32, nodes_max: 65_536, bytes_max: 16 * 1024 * 1024 }
    }
}
