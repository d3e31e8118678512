//! Limits of a route, each with its reason.

/// Bytes of a regex as it is written. Default 4 KiB: a longer one is a table in disguise.
pub const REGEX_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a compiled regex. Default 1 MiB; `(a{1000}){1000}` is short to write and would need a hundred.
pub const REGEX_PROGRAM_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of the states that one worker keeps of one regex. Default 1 MiB; when full it is emptied, which costs time, not
/// memory.
pub const REGEX_CACHE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a path after a rewrite. Default 16 KiB, twice the longest target: a replacement may repeat what was captured.
pub const REWRITTEN_PATH_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a header value as it is written in the configuration. Default 4 KiB.
pub const TEMPLATE_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a header value with its variables filled in. Default 16 KiB: a client certificate fits.
pub const RENDERED_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(TEMPLATE_BYTES_MAX <= RENDERED_BYTES_MAX);
