//! Codec of JSON (RFC 8259): a forward scan that checks the whole grammar and finds chosen members with their place in
//! the raw bytes. No tree, no sockets, no clock.
//!
//! | file | concept |
//! |---|---|
//! | [`scanner`] | [`Scanner`] takes a text in pieces and reports the values of watched paths to a [`Sink`] |
//! | [`path`] | [`Node`]: the watched paths of a text, as a constant tree |
//! | `string.rs`, `number.rs` | the grammar of both, resumable at every byte |
//! | [`decode`] | a string without its escapes, with the way back to the raw bytes |
//! | [`number`] | a number as an integer, for callers that need one |
//! | [`member`] | a member of the outermost object, found while the text passes |
//! | [`write`](mod@write) | a string as JSON |
//! | [`limits`] | every bound with its reason |
//! | `error.rs` | the rules that a sender can break |
//!
//! The scanner reads a text as any parser of RFC 8259 does that takes the last or the first of equal members: a watched
//! member occurs once, or the text is refused. So a policy that saw a value knows that the receiver of the same bytes
//! sees it, too. Escaped spellings of a key are that key, and a key that differs in case alone is refused.
//!
//! Cost: texts in strings are skipped in vectors of 32 bytes. Values that no path names cost their grammar alone.
//! `examples/json_cost.rs` measures it.
//!
//! ```
//! use weir_json_codec::{Duplicates, Node, Scanner, Sink, Value};
//!
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! enum Field { Model, IncludeUsage }
//! static REQUEST: Node<Field> = Node::NEW.members(&[
//!     ("model", Node::value(Field::Model)),
//!     ("stream_options", Node::NEW.members(&[("include_usage", Node::value(Field::IncludeUsage))])),
//! ]);
//!
//! #[derive(Default)]
//! struct Found(Vec<(Field, u64, u64)>);
//! impl Sink<Field> for Found {
//!     fn value(&mut self, value: Value<'_, Field>) {
//!         self.0.push((value.path, value.start, value.end));
//!     }
//! }
//!
//! let (mut scanner, mut found) = (Scanner::new(&REQUEST, Duplicates::Refuse), Found::default());
//! scanner.push(br#"{"mo\u0064el":"gp"#, &mut found)?;
//! scanner.push(br#"t-x","stream_options":{"include_usage":true},"n":1e999}"#, &mut found)?;
//! scanner.finish(&mut found)?;
//! assert_eq!(found.0, [(Field::Model, 14, 21), (Field::IncludeUsage, 56, 60)]);
//! # Ok::<(), weir_json_codec::JsonError>(())
//! ```
#![forbid(unsafe_code)]

pub mod decode;
mod error;
pub mod limits;
pub mod member;
pub mod number;
pub mod path;
pub mod scanner;
mod string;
pub mod write;

pub use decode::{DecodeError, Decoded};
pub use error::{JsonError, Rule};
pub use member::MemberScan;
pub use number::{IntegerError, integer};
pub use path::Node;
pub use scanner::{Duplicates, Kind, Scanner, Sink, Value};
