//! Codec of MongoDB's wire protocol. Bytes in, messages out; no sockets, no clock, no allocation from claimed lengths.
//!
//! | file | concept |
//! |---|---|
//! | [`header`] | the sixteen bytes in front of every message, and the opcodes |
//! | [`frame`] | [`frame::Framer`], which follows a direction message by message and stores none of it |
//! | [`bson`] | documents: views over element headers, a check of everything below, a writer |
//! | [`message`] | OP_MSG: flags, the body, document sequences; encoders |
//! | [`arguments`] | the arguments of a command that may be document sequences |
//! | [`sections`] | the sections of an OP_MSG that arrives in pieces |
//! | [`checksum`] | CRC-32C of a message |
//! | [`compressed`] | OP_COMPRESSED: its head, and inflating within bounds |
//! | [`legacy`] | OP_QUERY and OP_REPLY, as far as the handshake of older drivers needs them |
//! | [`command`] | the fields of a command that decide where it goes |
//! | [`reply`] | the fields of a reply that change its session, in one piece or in many |
//! | [`limits`] | every bound with its reason |
//! | `error.rs` | the rules that a peer can break |
//!
//! Views borrow from the input and read headers of elements alone: a value that is not needed is skipped by its length. Names
//! and texts are bytes. Encoders append to a `Vec<u8>`. Wire rules and the test for each: `PROTOCOL.md`.
//!
//! ```
//! use weir_mongodb_codec::{command::Command, frame::Framer, message::{self, Flags, Ids, Message}};
//!
//! let mut input = Vec::new();
//! message::write(&mut input, Ids { request: 7, response_to: 0 }, Flags::empty(), |body| {
//!     body.string("find", "orders");
//!     body.string("$db", "shop");
//! });
//!
//! let mut framer = Framer::default();
//! let piece = framer.next(&input)?.expect("the message is whole");
//! assert!(piece.is_whole());
//! let message = Message::read(&input[..piece.bytes])?;
//! let command = Command::read(message.body)?;
//! assert_eq!((command.name, command.db, command.collection()), (&b"find"[..], &b"shop"[..], Some(&b"orders"[..])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod arguments;
pub mod bson;
pub mod checksum;
pub mod command;
pub mod compressed;
mod error;
pub mod frame;
pub mod header;
pub mod legacy;
pub mod limits;
pub mod message;
pub mod reply;
pub mod sections;

pub use error::{BsonError, CommandError, InflateError, MessageError};
pub use header::{Header, OpCode};
