//! HTTP/1.1 codec. Bytes in, heads and body pieces out; no sockets, no clock, no allocation from claimed lengths.
//!
//! - [`RequestParser`], [`ResponseParser`]: heads, line by line, strict by default: a message that two parsers could read in two ways is
//!   refused (RFC 9112; the desync rules of section 11.2 in particular).
//! - [`BodyDecoder`]: the body behind a head: by length, chunked, or until the connection closes.
//! - [`encode`]: heads and bodies appended to a `Vec<u8>`.
//! - [`Fields`]: header fields in order, stored as on the wire, so that forwarding them is one copy.
//!
//! [`RequestHead`] and [`ResponseHead`] are also how the gateway holds messages of other HTTP versions.
//!
//! ```
//! use weir_http_codec::{BodyLength, HeadLimits, RequestParser};
//!
//! let mut parser = RequestParser::new();
//! let input = b"POST /a?b HTTP/1.1\r\nHost: example.org\r\nContent-Length: 3\r\n\r\nabc";
//! let used = parser.parse(input, &HeadLimits::default())?.expect("a whole head");
//! let head = parser.take();
//! assert_eq!((head.method(), head.target()), (&b"POST"[..], &b"/a?b"[..]));
//! assert_eq!(head.body(), BodyLength::Exact(3));
//! assert_eq!(&input[used..], b"abc");
//! # Ok::<(), weir_http_codec::WireError>(())
//! ```
#![forbid(unsafe_code)]

mod body;
mod chunked;
mod connection;
pub mod encode;
mod error;
mod fields;
mod known;
pub mod limits;
mod line;
mod request;
mod response;
pub mod token;

pub use body::{BodyDecoder, BodyLength, Piece};
pub use chunked::is_trailer;
pub use connection::{ConnectionOptions, strip_hop_by_hop};
pub use error::WireError;
pub use fields::{Field, Fields};
pub use known::Known;
pub use limits::{BodyLimits, HeadLimits};
pub use request::{RequestHead, RequestParser, Version};
pub use response::{ResponseHead, ResponseParser};
