//! TCP as it is: bytes both ways, and TLS that goes through unopened to the upstream of the name that the client asks for.
//!
//! | file | concept |
//! |---|---|
//! | `service` | one listener on one worker |
//! | `session` | one connection: the hello, the upstream, the bytes |
//! | `names` | which upstream a server name belongs to |
//! | `settings` | what an operator may choose |

#![forbid(unsafe_code)]

mod names;
mod service;
mod session;
pub mod settings;

pub use names::{NameError, Names};
pub use service::{Service, TcpUpstream};
pub use session::serve;
