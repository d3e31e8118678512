//! Translation between OpenAI's chat completions and Anthropic's messages, without I/O: requests, buffered responses,
//! streams and errors, in both directions.
//!
//! | file | concept |
//! |---|---|
//! | [`direction`] | the two pairs of dialects |
//! | `request` | a request for the provider: `to_messages` and `to_chat` |
//! | `response` | a buffered response for the client: `to_chat` and `to_messages` |
//! | `stream` | the same, event by event |
//! | `error` | an error response, with status, type and code |
//! | [`headers`] | headers that belong to one dialect |
//! | `content`, `reason`, `usage` | parts of messages, the reason of their end, and tokens, in the words of both |
//! | [`loss`], [`mistake`] | parts that are left out, and bodies that cannot be translated |
//! | `json`, `write` | values as the text that came, and new text around them |
//! | [`limits`] | every bound with its reason |
//!
//! Call order: [`translate_request`] once. Then, by the provider's response, [`translate_error`] (a status of 400 or
//! more), a [`StreamTranslator`] (an event stream), or [`translate_response`]. Usage is counted apart from it, on the
//! bytes of the provider: `weir-ai-session` follows them in the provider's dialect.
//!
//! A value that both dialects share passes as the text that came, so numbers, escapes, schemas and arguments keep their
//! form. Only the levels around it are read. Nothing recurses over input.
//!
#![doc = include_str!("../TRANSLATION.md")]
#![forbid(unsafe_code)]

mod content;
pub mod direction;
mod error;
pub mod headers;
mod json;
pub mod limits;
pub mod loss;
pub mod mistake;
mod reason;
mod request;
mod response;
mod stream;
mod usage;
mod write;

pub use direction::Direction;
pub use error::translate_error;
pub use headers::ANTHROPIC_VERSION;
pub use loss::Losses;
pub use mistake::Mistake;
pub use request::{Options, Request, translate_request};
pub use response::{Response, translate_response};
pub use stream::{StreamError, StreamTranslator};
