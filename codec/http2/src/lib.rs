//! HTTP/2 codec (RFC 9113, RFC 7541). Bytes in, frames and fields out; no sockets and no clock.
//!
//! - [`frame`]: headers of frames, views of their payloads, and writers.
//! - [`settings`]: the parameters of a connection.
//! - [`hpack`]: header blocks to fields and back.
//! - [`Connection`]: the state of one connection, of a server or a client: streams, windows, messages, limits.
//!
//! Rules, and the test for each: `PROTOCOL.md`.
#![forbid(unsafe_code)]

mod closed;
pub mod config;
mod connection;
mod control;
mod deadline;
mod error;
mod error_code;
mod event;
mod fields;
mod flood;
pub mod frame;
mod headers;
pub mod hpack;
mod output;
mod receive;
mod send;
pub mod settings;
mod stream;
mod window;

pub use config::ConnectionConfig;
pub use connection::{Connection, RequestTarget};
pub use error::ProtocolError;
pub use error_code::ErrorCode;
pub use event::{Event, OpenError, Received, Request, ResetCause, StreamGone, StreamId};
pub use frame::write::PREFACE;
