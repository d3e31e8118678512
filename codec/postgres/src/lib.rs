//! Codec of PostgreSQL's protocol 3. Bytes in, messages out; no sockets, no clock, no allocation from claimed lengths.
//!
//! | file | concept |
//! |---|---|
//! | [`startup`] | the packets of a client before its first message: session, cancel request, requests for encryption |
//! | [`frame`] | heads of messages, and [`frame::Framer`], which follows a direction and stores none of it |
//! | [`frontend`] | messages of clients: tags, views of whole bodies, encoders |
//! | [`backend`] | messages of servers: tags, views of whole bodies, encoders |
//! | [`sqlstate`] | the error codes that a gateway sends or reads |
//! | [`limits`] | every bound with its reason |
//! | `body.rs`, `error.rs` | the checked reader behind all views; the rules that a peer can break |
//!
//! Views borrow from the input. Names and texts are bytes: the client chooses their encoding. Encoders append to a `Vec<u8>`.
//! Wire rules and the test for each: `PROTOCOL.md`.
//!
//! ```
//! use weir_postgres_codec::{frame::Framer, frontend};
//!
//! let mut input = Vec::new();
//! frontend::query(&mut input, b"select 1");
//! frontend::sync(&mut input);
//!
//! let mut framer = Framer::default();
//! let piece = framer.next(&input)?.expect("the message is whole");
//! assert_eq!((piece.tag, piece.bytes, piece.is_whole()), (frontend::tag::QUERY, 14, true));
//! let query = frontend::Query::read(&input[5..piece.bytes])?;
//! assert_eq!(query.text, b"select 1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod backend;
mod body;
mod error;
pub mod frame;
pub mod frontend;
pub mod limits;
pub mod sqlstate;
pub mod startup;
mod write;

pub use backend::TransactionStatus;
pub use body::Oids;
pub use error::{FrameError, MessageError, StartupError};
pub use startup::Version;
