//! HTTP/2 codec (RFC 9113, RFC 7541). Bytes in, frames and fields out; no sockets and no clock.
//!
//! - [`frame`]: headers of frames, views of their payloads, and writers.
//! - [`settings`]: the parameters of a connection.
//! - [`hpack`]: header blocks to fields and back.
#![forbid(unsafe_code)]

mod error_code;
pub mod frame;
pub mod hpack;
pub mod settings;

pub use error_code::ErrorCode;
