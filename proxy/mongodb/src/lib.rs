//! The shell of the MongoDB session: where listener and upstream meet the state machines of `weir-mongodb-session`.
//!
//! The logic of a login and of a session is without I/O in `weir-mongodb-session`; this crate owns the sockets, the pools, the tasks and
//! the deadlines. States, owners and invariants: `LIFECYCLE.md`.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | options that an operator may choose |
//! | `users` | users of a listener, and their verifiers |
//! | `service` | one listener on one worker: settings, upstream, cells |
//! | `connection` | one client: its requests (`intake`), their servers (`lease`), replies (`reply`), its order of events (`life`) |
//! | `shared` | state that the workers of a listener share: cursors, transactions, the server that it presents |
//! | `cleanup` | commands for cursors and transactions that have lost their client |
//! | `upstream` | one upstream on one worker: its pools, and the members of its set |
//! | `server` | servers as their pools see them: login, check, probe |
//! | `opening` | connections of clients' own that are being made |
//! | `own_request` | hello, ping, killCursors and abortTransaction of the gateway's own |
//! | `monitor` | looks at servers: roles, members, successors |
//! | `watch` | the knowledge of all workers about one server |
//! | `topology` | the servers as a whole: roles, choices, promises |
//! | `preference` | tags and staleness of a read preference |
//! | `metrics` | the cells this room writes |

#![forbid(unsafe_code)]

mod cleanup;
mod connection;
mod metrics;
mod monitor;
mod opening;
mod own_request;
mod preference;
mod server;
mod service;
pub mod settings;
mod shared;
mod topology;
mod upstream;
mod users;
mod watch;

pub use server::{MongodbServer, PoolKey};
pub use service::Service;
pub use shared::ListenerShared;
pub use upstream::{MongodbUpstream, ProcessShare};
