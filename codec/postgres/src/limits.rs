//! Every bound of the codec with its reason. No bound reserves memory: buffers grow with bytes received.

use std::ops::RangeInclusive;

/// Bytes of a startup packet without its length field. PostgreSQL's `MAX_STARTUP_PACKET_LENGTH`.
pub const STARTUP_BYTES_MAX: usize = 10_000;

/// Bytes of the body of a client's message before it is authenticated.
/// Default 16 KiB: a token of SASL or a long password fits. PostgreSQL takes 65,535 bytes, which helps attackers alone.
/// Worst case 16 KiB for each connection that has not logged in.
pub const PREAUTH_MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the body of any message: PostgreSQL's `MaxAllocSize`, beyond which neither side can build one.
pub const MESSAGE_BYTES_MAX: usize = 0x3fff_ffff;

/// Bytes of the body of a client's message that carries data (Query, Parse, Bind, ...).
/// PostgreSQL's `PQ_LARGE_MESSAGE_LIMIT`, without the length field that it counts.
pub const LARGE_MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 1 - 4;

/// Bytes of the body of a client's message that carries no data (Sync, Describe, Execute, ...).
/// PostgreSQL's `PQ_SMALL_MESSAGE_LIMIT`, without the length field that it counts.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 10_000 - 4;

/// Bytes of the secret of a cancel key: 4 in protocol 3.0, up to 256 in 3.2.
pub const CANCEL_SECRET_BYTES: RangeInclusive<usize> = 4..=256;

// `MaxAllocSize - 1`, as in `pqcomm.h`.
const _: () = assert!(LARGE_MESSAGE_BYTES_MAX + 4 == 0x3fff_fffe);
const _: () = assert!(PREAUTH_MESSAGE_BYTES_MAX < LARGE_MESSAGE_BYTES_MAX);
// A length field is a positive int32, also of the longest body with a name in place of another.
const _: () = assert!(MESSAGE_BYTES_MAX + 4 + STARTUP_BYTES_MAX < i32::MAX as usize);
