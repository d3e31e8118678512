//! TCP unchanged: bytes both ways, and TLS that passes unopened to the upstream of the requested server name.
//!
//! | file | concept |
//! |---|---|
//! | `service` | one listener on one worker |
//! | `session` | one connection: the hello, the upstream, the bytes |
//! | `settings` | options that an operator may choose |

#![forbid(unsafe_code)]

mod service;
mod session;
pub mod settings;

pub use service::{Service, TcpUpstream};
