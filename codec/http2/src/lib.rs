//! HTTP/2 codec (RFC 9113, RFC 7541). Bytes in, frames and fields out; no sockets and no clock.
//!
//! - [`frame`]: headers of frames, views of their payloads, and writers.
//! - [`settings`]: the parameters of a connection.
//! - [`hpack`]: header blocks to fields and back.
//! - [`Connection`]: the state of one connection, of a server or a client: streams, windows, messages, limits.
#![forbid(unsafe_code)]

pub mod config;
mod connection;
mod error;
mod error_code;
mod event;
pub mod frame;
pub mod hpack;
pub mod settings;

pub use config::ConnectionConfig;
pub use connection::{Connection, RequestTarget};
pub use error::ProtocolError;
pub use error_code::ErrorCode;
pub use event::{Event, OpenError, Received, Request, ResetCause, StreamGone, StreamId};
