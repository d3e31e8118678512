//! Every bound of this crate with its reason. No bound reserves memory: buffers grow with bytes received.

/// Bytes of an id of JSON-RPC, with its quotes. Default 256: clients count, or use a UUID. It is repeated in errors.
pub const ID_BYTES_MAX: usize = 256;

/// Bytes of a method, a name of a tool or a prompt, before their escapes are read. Default 1,024: the specification of MCP wants at most
/// 128 characters for a tool.
pub const NAME_BYTES_MAX: usize = 1_024;

/// Bytes of a buffer that a stream keeps between events. Default 4 KiB, as the splitter of events.
pub const KEPT_BYTES_MAX: usize = 4 * 1_024;

/// Bytes of the instructions of one server of a federation, as they stand in its message. Default 8 KiB; longer ones are left out.
pub const INSTRUCTIONS_BYTES_MAX: usize = 8 * 1_024;

/// Bytes of memory for each byte of a list while its tools are judged, the list included: the list without some tools, and 16 bytes for
/// each gap of at least 15.
pub const MEMORY_PER_BYTE: u32 = 4;

const _: () = assert!(ID_BYTES_MAX <= weir_json_codec::limits::VALUE_BYTES_MAX);
const _: () = assert!(NAME_BYTES_MAX <= weir_json_codec::limits::VALUE_BYTES_MAX);
