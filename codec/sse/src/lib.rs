//! Codec of server-sent events (WHATWG HTML, section 9.2 "Server-sent events"). Pieces of a stream in, the bounds and
//! the fields of its events out; no sockets, no clock.
//!
//! | file | concept |
//! |---|---|
//! | [`splitter`] | [`Splitter`] follows a stream of pieces and reports each [`Unit`]: an event, a comment, a blank line |
//! | `field.rs` | a value of a field: borrowed from the piece while that is possible, else gathered |
//! | [`write`](mod@write) | an event, a comment and an error event as bytes |
//! | [`limits`] | every bound with its reason |
//! | `error.rs` | the limits that a server can break |
//!
//! A gateway forwards the bytes of a unit as they came and looks only at the fields. Texts are bytes: the splitter does
//! not check UTF-8, since no rule of the format depends on it.
//!
//! Cost: one vectorised search for the end of each line, and a copy only of an event that a piece cuts.
//! `examples/sse_cost.rs` measures it.
//!
//! ```
//! use weir_sse_codec::{Kind, Splitter};
//!
//! let mut splitter = Splitter::default();
//! let mut piece: &[u8] = b"event: ping\ndata: {}\n\ndata: [DO";
//! let unit = splitter.next(piece)?.expect("the first event is whole");
//! assert_eq!((unit.kind, unit.name, unit.data), (Kind::Event, Some(&b"ping"[..]), Some(&b"{}"[..])));
//! piece = &piece[unit.bytes..];
//! assert_eq!(splitter.next(piece)?, None, "the second goes on in the next piece");
//! let unit = splitter.next(b"NE]\n\n")?.expect("its end");
//! assert_eq!((unit.data, unit.start, unit.end), (Some(&b"[DONE]"[..]), 22, 36));
//! # Ok::<(), weir_sse_codec::SseError>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod field;
pub mod limits;
pub mod splitter;
pub mod write;

pub use error::SseError;
pub use limits::Limits;
pub use splitter::{Kind, Splitter, Unit};
