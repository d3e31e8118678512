//! Echo: each line of a client goes to one server, and the line that comes back is the answer.
//!
//! | file | concept |
//! |---|---|
//! | `line` | bytes <-> lines, without I/O |
//! | `service` | one listener on one worker |
//! | `session` | one connection: a line, its exchange, its answer |
//! | `exchange` | a line on a lane, and the line that comes back |
//! | `settings` | what an operator may choose |

#![forbid(unsafe_code)]

mod exchange;
pub mod line;
mod service;
mod session;
pub mod settings;

pub use service::{EchoUpstream, Service};
