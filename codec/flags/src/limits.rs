//! Every bound of this crate with its reason. No bound reserves memory: buffers grow with bytes received.

/// Bytes of a context, as a query or as JSON. Default 64 KiB: a hundred times a large one. Its properties are looked up once per
/// request, so a context of this size costs about a millisecond.
pub const CONTEXT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of one value of a context. Default 4 KiB. Each constraint looks at a value, so a long one costs as much again for each flag: a value of
/// 4 KiB costs a regex about 20 µs.
pub const CONTEXT_VALUE_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a token. Default 512: Unleash's tokens have at most about 200.
pub const TOKEN_BYTES_MAX: usize = 512;

/// Tokens of one request for validation. Default 1,000: an edge of 19.15 sends all that it knows.
pub const TOKENS_MAX: usize = 1_000;

/// Bytes of a document of flags. Default 64 MiB: five thousand flags have about 2 MiB, and a list of a million users about 20 MiB.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of a body with metrics or an application, after its content coding. Default 1 MiB: edges send at most 100 KiB.
pub const METRICS_BODY_BYTES_MAX: usize = 1024 * 1024;

const _: () = assert!(CONTEXT_VALUE_BYTES_MAX < CONTEXT_BYTES_MAX);
const _: () = assert!(TOKEN_BYTES_MAX < CONTEXT_BYTES_MAX && CONTEXT_BYTES_MAX < METRICS_BODY_BYTES_MAX);
const _: () = assert!(METRICS_BODY_BYTES_MAX < DOCUMENT_BYTES_MAX);
