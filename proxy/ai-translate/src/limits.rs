//! Every bound of the translation with its reason. No bound reserves memory: buffers grow with bytes received.
//!
//! Objects and arrays may be nested as deep as in [`weir_json_codec::limits::DEPTH_MAX`]. Lines and events of a stream
//! have the limits of [`weir_sse_codec::Limits`].

/// Bytes of a request or a buffered response. Default 32 MiB, as Anthropic accepts; OpenAI's requests are smaller. Worst
/// case the body, its translation and half a MiB of pointers into it.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Members of an object that is looked into. Default 64: a chat's request has some forty.
pub const MEMBERS_MAX: usize = 64;

/// Items of an array that is looked into: messages, parts, tools. Default 16,384.
pub const ITEMS_MAX: usize = 16 * 1024;

/// Content blocks of a stream that are open at once. Default 128: providers send one at a time.
pub const OPEN_BLOCKS_MAX: usize = 128;

/// Tool calls of one stream. Default 1,024. Worst case 32 KiB, and a scanner of half a KiB for each that is open.
pub const CALLS_MAX: usize = 1024;

/// Bytes of the id and of the model of a stream, as JSON. Default 1 KiB each: every chunk of a chat repeats both.
pub const NAME_BYTES_MAX: usize = 1024;

/// Characters of a user's id that a provider of chats gets. Default 64, which is all that some take, while clients of
/// Anthropic have ids of 150. A longer one is lost: half of it could be that of another user.
pub const USER_CHARS_MAX: usize = 64;

/// Bytes of a provider's error message that pass. Default 4 KiB.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// Losses of one translation that are named. Default 16: their header stays below 2 KiB.
pub const LOSSES_MAX: usize = 16;

/// Bytes of the name of a loss. A longer one ends in `.other`.
pub const LOSS_BYTES_MAX: usize = 64;
