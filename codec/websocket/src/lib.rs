//! WebSocket codec (RFC 6455). Bytes in, frame boundaries out; no sockets, no clock, nothing held and nothing allocated.
//!
//! - [`FrameHeader`]: the header in front of a payload.
//! - [`FrameValidator`]: follows the frames of one direction and says how far its bytes may go on. The payload is skipped, never looked
//!   at: it stays masked, and compressed if the two ends agreed on that.
//! - [`handshake`]: keys and their accept values.
//! - [`close_frame`]: how a gateway ends a connection in the protocol's own words.
//!
//! ```
//! use weir_base::time::Time;
//! use weir_websocket_codec::{FrameValidator, Limits, Reserved, Sender};
//!
//! let mut validator = FrameValidator::new(Sender::Server, Reserved::None, Limits::default());
//! // A text frame, and the first byte of another's header: that one waits for the rest.
//! let validated = validator.validate(b"\x81\x02hi\x81", Time::from_nanos(0));
//! assert_eq!((validated.bytes, validated.error), (4, None));
//! ```
#![forbid(unsafe_code)]

mod close;
mod error;
pub mod handshake;
mod header;
pub mod limits;
mod validator;

pub use close::{CloseCode, close_frame};
pub use error::WireError;
pub use header::{FrameHeader, HEADER_BYTES_MAX, Opcode};
pub use limits::Limits;
pub use validator::{FrameValidator, Reserved, Sender, ValidatedFrames};
