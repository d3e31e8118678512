//! Listeners: who may connect, and who is connected.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | options that an operator may choose |
//! | `admission` | the permits of a connection: process, listener, source address, handshake |
//! | `close` | the reason of the end of a connection |
//! | `handle` | the part of a connection that is the same for every protocol |
//! | `service` | a listener of any protocol, as the gateway holds it |
//! | `departure` | a connection that leaves for another process |
//! | `sessions` | the duties of a listener to each of its connections |
//! | `connections` | the table of open connections, readable from any thread |
//! | `linger` | the end of a connection that the gateway closes first |
//! | `login` | parts of logins that protocols share: randomness, keys from passwords, the delay after wrong ones |
//! | `reports` | mistakes of its peers, counted and reported |
//! | `roster` | the open connections of one listener on one worker |
//! | `share` | objects that the listeners of one worker share |
//! | `succession` | clients that come back are served after what they left behind |
//! | `tls` | TLS towards the clients, before their sessions or within them |
//! | `timing` | the time that exchanges take, and its stages |
//! | `proxy_protocol` | the PROXY header of a load balancer in front |

#![forbid(unsafe_code)]

mod admission;
mod close;
mod connections;
mod departure;
mod handle;
mod linger;
pub mod login;
pub mod proxy_protocol;
mod reports;
mod roster;
mod service;
mod sessions;
pub mod settings;
mod share;
mod succession;
mod timing;
mod tls;

pub use admission::{Admission, ConnectionPermit, ListenerAdmission, NotAdmitted};
pub use close::CloseReason;
pub use connections::{ConnectionGuard, ConnectionTable};
pub use departure::{Departure, Mover};
pub use handle::{AbortTransport, ConnectionAccount, ConnectionHandle};
pub use linger::Linger;
pub use roster::{Roster, RosterEntry};
pub use service::{Arrival, ConnectionFuture, FINISH_MAX, Service, is_among};
pub use sessions::{Opened, Session, Sessions};
pub use share::{CoreShare, DRAIN_GAP, Drain, OrderEnd, Orders, Post, ProcessOrders};
pub use succession::{Source, Succession, SuccessionTicket};
pub use timing::{Durations, Stage, StageSample, StageTimes, Stages, Timing};
pub use tls::{NoTls, Security, TlsAcceptor};
pub use weir_base::connection::{ConnectionDetails, ConnectionEntry};
