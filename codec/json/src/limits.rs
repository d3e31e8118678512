//! Every bound of the codec with its reason. No bound reserves memory: buffers grow with bytes received.

/// Open objects and arrays at one place. Default 128, as Eden and `serde_json`: recursive readers behind the gateway
/// end near it.
pub const DEPTH_MAX: usize = 128;

/// Bytes of a watched key. A longer constant does not compile.
pub const KEY_BYTES_MAX: usize = 64;

/// Bytes that a key as long as that has at most: each of its bytes as an escape, and the quotes.
pub(crate) const KEY_RAW_BYTES_MAX: usize = 6 * KEY_BYTES_MAX + 2;

/// Bytes of a watched string or number, with its quotes, whose text is reported. Default 4 KiB: names of models, tools
/// and users fit. A longer one is reported by its place alone. Worst case 4 KiB for each text whose watched value is
/// cut by a piece.
pub const VALUE_BYTES_MAX: usize = 4 * 1024;

/// Members of one object that are watched: their marks fit a word.
pub const MEMBERS_MAX: usize = 64;

/// Levels of watched paths. Default 11: the texts of a document within the result of a tool in a message of Anthropic's are ten below its
/// body. A deeper constant does not compile.
pub const LEVELS_MAX: usize = 11;

const _: () = assert!(KEY_RAW_BYTES_MAX <= VALUE_BYTES_MAX);
// The kinds of open containers are the bits of a u128.
const _: () = assert!(DEPTH_MAX <= u128::BITS as usize);
