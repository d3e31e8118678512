//! The AI session without I/O: edits of a request, and a response that is followed while it passes.
//!
//! | file | concept |
//! |---|---|
//! | [`splice`] | edits of a request body at recorded places; all other bytes stay as they are |
//! | [`response_stream`] | follows a stream event by event, drops the chunk of usage that the client did not request |
//! | [`usage`] | the tokens that a provider reports, in one form, and the doubts about them |
//! | `usage/figures`, `usage/paths` | the figures of a report, and where each dialect has them |
//! | `usage/buffered` | usage of a response that is no stream, found while it passes |
//! | `usage/event` | usage in an event |
//! | [`estimate`] | tokens of a text by estimate, for providers that report none |
//! | `progress` | output of a stream so far, which is what a client that leaves has received |
//! | `text_event` | events that differ in their text alone |
//! | [`failure`] | an error event in the form of the dialect |
//! | `dialect` | the three forms of responses |
//!
//! The byte-exact rule: without an edit, a request and a response are forwarded as the bytes that came. An edit changes
//! the bytes that it names and no others. Prompt caches and signatures of providers depend on it.
//!
//! Cost: an event is split by two vectorised searches. One that differs from the last in its text alone is searched for the end of that text,
//! and any other one for some words. Only an event that reports usage is read as JSON. `examples/stream_cost.rs` measures it.
#![forbid(unsafe_code)]

mod dialect;
pub mod estimate;
pub mod failure;
mod progress;
pub mod response_stream;
pub mod splice;
mod text_event;
pub mod usage;

pub use dialect::Dialect;
pub use failure::Failure;
pub use progress::Progress;
pub use response_stream::{End, ResponseStream, UsageChunk};
pub use splice::Splice;
pub use usage::{BufferedUsage, Doubts, Usage};
