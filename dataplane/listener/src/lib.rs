//! Listeners: who may connect, and who is connected.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | what an operator may choose |
//! | `admission` | the permits of a connection: process, listener, source address, handshake |
//! | `connections` | the table of open connections, readable from any thread |
//! | `reports` | what its peers do wrong, counted and told |
//! | `roster` | the open connections of one listener on one worker |
//! | `share` | what the listeners of one worker share |
//! | `succession` | clients that come back are served after what they left behind |
//! | `proxy_protocol` | the PROXY header of a load balancer in front |

#![forbid(unsafe_code)]

mod admission;
mod connections;
pub mod proxy_protocol;
mod reports;
mod roster;
pub mod settings;
mod share;
mod succession;

pub use admission::{Admission, ConnectionPermit, ListenerAdmission, NotAdmitted};
pub use connections::{ConnectionDetails, ConnectionEntry, ConnectionGuard, ConnectionTable};
pub use reports::Reports;
pub use roster::{Listed, Roster};
pub use share::{CoreShare, DRAIN_GAP, Drain};
pub use succession::{Place, Source, Succession};
