//! Every bound of the translation with its reason. No bound reserves memory: buffers grow with bytes received.
//!
//! Objects and arrays may be nested as deep as in [`weir_json_codec::limits::DEPTH_MAX`]. Lines and events of a stream
//! have the limits of [`weir_sse_codec::Limits`].

/// Bytes of a request or a buffered response. Default 32 MiB, as Anthropic accepts; OpenAI's requests are smaller.
///
/// Worst case, with pointers apart: the body, its translation, and beside them copies of parts. Parts are the tools, the
/// blocks of one message, or a value without its escapes. They are at most two bodies together: an address with
/// escapes, and the text around it. So a body of ordinary bytes costs four times its size. Arguments of calls can be
/// twice as long in a chat as at Anthropic, since each quote gets a backslash, and a buffer that grows beyond the size
/// of the body doubles, while its old half is copied: then it is up to eight times. A shell that accounts for memory
/// takes eight. Pointers: 16 bytes for each of [`ITEMS_MAX`] in two arrays, 2.5 KiB for each object that is read, of
/// which five are at once: below 1 MiB.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Members of an object that is looked into. Default 64: a chat's request has some forty.
pub const MEMBERS_MAX: usize = 64;

/// Items of an array that is looked into: messages, parts, tools. Default 16,384.
pub const ITEMS_MAX: usize = 16 * 1024;

/// Content blocks of a stream that are open at once. Default 128: providers send one at a time.
pub const OPEN_BLOCKS_MAX: usize = 128;

/// Bytes of inputs that came whole at the start of a call, in all blocks that are open. Default 1 MiB. They are held
/// until the block ends.
pub const HELD_BYTES_MAX: usize = 1024 * 1024;

/// Tool calls of one stream. Default 1,024. Worst case 48 KiB, an id of at most [`NAME_BYTES_MAX`] each, and a scanner
/// of half a KiB for each that is open.
pub const CALLS_MAX: usize = 1024;

/// Bytes of the id and of the model of a stream, and of the id of a call, as JSON. Default 1 KiB each: every chunk of a chat repeats both.
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
