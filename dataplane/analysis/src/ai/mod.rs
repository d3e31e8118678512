//! The body of an AI request becomes facts: the model, the options that cost money, the tools, and on request the
//! prompts.
//!
//! | file | concept |
//! |---|---|
//! | `endpoint` | the kinds of bodies, by the path of the request |
//! | `field` | the members that are looked at, by name |
//! | `paths` | where each kind of body has them |
//! | `reader` | a body in pieces leads to [`Facts`] |
//! | `options`, `tools`, `prompts` | the three parts of the facts, and how members fill them |
//! | `facts`, `span` | the facts, and a part of the body |
//! | `error` | the reasons why a body has no facts |
//! | `limits` | the budget of one body |
//!
//! Call order: [`BodyReader::new`], [`BodyReader::push`] for each piece, [`BodyReader::finish`]; or [`read`] for a body
//! in one piece.
//!
//! The value that a policy sees is the value that the receiver of the same bytes sees. So a member that decides
//! something occurs once and has its own type, or the body is refused: lenient readers take `"true"` for `true`, and
//! `1e3` for 1000. A member that is `null` is absent. Numbers stay text unless they limit something.
//!
//! Cost: one scan of the body; an allocation for each name. Prompts are not looked into unless [`Wanted::prompts`] is
//! set.

mod endpoint;
mod error;
mod facts;
mod field;
mod limits;
mod options;
mod paths;
mod prompts;
mod reader;
mod span;
mod tools;

pub use endpoint::Endpoint;
pub use error::BodyError;
pub use facts::{Facts, PromptItems, Wanted};
pub use field::Field;
pub use limits::{CALLS_MAX, SPANS_MAX, TOKENS_MAX, TOOLS_MAX};
pub use options::{Flag, Named, Number, Options, StreamOptions};
pub use prompts::{Prompts, Role, SpanKind, TextSpan, ToolCall};
pub use reader::{BodyReader, read};
pub use span::Span;
pub use tools::{Choice, Tool, ToolKind, Tools};
