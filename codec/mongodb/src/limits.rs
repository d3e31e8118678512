//! Every bound of the codec with its reason. No bound reserves memory: buffers grow with bytes received.

/// Bytes of a message with its header: `maxMessageSizeBytes` of every server since 3.6.
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;

/// Bytes of a document that a client may store: `maxBsonObjectSize`.
pub const STORED_DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of a document on the wire: one that may be stored, and 16 KiB for the command around it, as servers permit.
pub const DOCUMENT_BYTES_MAX: usize = STORED_DOCUMENT_BYTES_MAX + 16 * 1024;

/// Writes of a batch: `maxWriteBatchSize`.
pub const WRITE_BATCH_MAX: usize = 100_000;

/// Bytes of a client's message before it is logged in.
/// Default 16 KiB: a driver's metadata has 512 bytes and a message of SASL less than 1 KiB.
/// Worst case 16 KiB for each connection that has not logged in.
pub const PREAUTH_MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Documents inside of each other. Servers accept about 200, of which a stored document may have 100.
pub const DEPTH_MAX: usize = 200;

/// Document sequences of a message. `bulkWrite` has two, every other command at most one.
pub const SEQUENCES_MAX: usize = 8;

/// Bytes of the identifier of a document sequence; `documents` is the longest in use.
pub const IDENTIFIER_BYTES_MAX: usize = 64;

/// Bytes of the name of a database, as servers limit it.
pub const DATABASE_BYTES_MAX: usize = 63;

/// Bytes of the name of a collection, as servers limit a whole namespace.
pub const COLLECTION_BYTES_MAX: usize = 255;

/// Bytes of an inflated message for each byte of the compressed one. Text compresses to a tenth, and documents of equal fields to a
/// thirtieth. Below [`INFLATE_FREE_BYTES`] any ratio is fine.
pub const INFLATE_RATIO_MAX: usize = 200;

/// Bytes of an inflated message that need no ratio.
pub const INFLATE_FREE_BYTES: usize = 64 * 1024;

/// Bytes of the window of a Zstandard frame that does not name its size: the size that every decoder should have (RFC 8878, 3.1.1.1.2).
pub const ZSTD_WINDOW_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Bytes of an element that is read from a reply in pieces: its name with a value that counts. Server labels have about 100.
pub const REPLY_ELEMENT_BYTES_MAX: usize = 8 * 1024;

const _: () = assert!(DOCUMENT_BYTES_MAX < MESSAGE_BYTES_MAX && MESSAGE_BYTES_MAX < i32::MAX as usize);
const _: () = assert!(PREAUTH_MESSAGE_BYTES_MAX < MESSAGE_BYTES_MAX);
