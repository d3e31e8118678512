//! RESP2/RESP3 codec. Bytes in, frames out; no sockets, no clock, no allocation from claimed lengths.
//!
//! - [`RequestParser`]: what clients send. Resumable, keeps offsets instead of copies; large commands are relayed.
//! - [`ReplyFramer`]: what upstreams send. Finds the end of each reply without storing any of it.
//! - [`encode`]: commands and replies appended to a `Vec<u8>`.
//! - [`Value`]: a small bounded tree for control traffic (HELLO, INFO) and tests; never on the hot path.
//!
//! Limits: see [`limits`]. Wire rules and the test for each: `PROTOCOL.md`.
//!
//! ```
//! use weir_resp::{RequestLimits, RequestParser, Step};
//!
//! let limits = RequestLimits::default();
//! let mut parser = RequestParser::new();
//! let mut input: &[u8] = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n*1\r\n$4\r\nPI";
//!
//! let step = parser.parse(input, &limits)?;
//! assert_eq!(step, Step::Command { len: 22, inline: false });
//! assert_eq!(parser.args(input).collect::<Vec<_>>(), [&b"GET"[..], b"key"]);
//!
//! input = &input[22..]; // the command is spent: the next one starts at the front
//! assert_eq!(parser.parse(input, &limits)?, Step::Incomplete);
//! # Ok::<(), weir_resp::ProtocolError>(())
//! ```
#![forbid(unsafe_code)]

mod args;
pub mod encode;
mod error;
mod inline;
mod length;
pub mod limits;
mod relay;
mod reply;
mod request;
mod value;

pub use encode::Version;
pub use error::ProtocolError;
pub use limits::{ReplyLimits, RequestLimits, ValueLimits};
pub use relay::Relay;
pub use reply::{FrameKind, ReplyFramer, Scan};
pub use request::{Args, RequestParser, Step};
pub use value::Value;
