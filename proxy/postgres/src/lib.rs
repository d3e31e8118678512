//! The shell of the PostgreSQL session: where listener and upstream meet the state machines of `weir-postgres-session`.
//!
//! The logic of a login and of a session is without I/O in `weir-postgres-session`; this crate owns the sockets, the pools, the tasks
//! and the deadlines. States, owners and invariants: `LIFECYCLE.md`.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | options that an operator may choose |
//! | `service` | one listener on one worker: settings, upstream, cells |
//! | `connection` | one client: its login (`admission`), its session (`life`), its server (`lease`) |
//! | `server` | servers as their pools see them: login, reset, check, probe |
//! | `cancel` / `aside` | cancel requests: keys and routes; the connection that carries one to a server |
//! | `relay` | the link between the processes of an upgrade: cancel requests and orders |
//! | `role` | primary or standby: which servers take sessions |
//! | `route` | which upstream serves a database |
//! | `pauses` | PAUSE on all workers, over a reload and an upgrade |
//! | `cancelling` / `inventory` | cancel requests under way; the servers of all workers, for operators |
//! | `rules` | rules about statements |
//! | `shared` | state that the workers of a listener share |
//! | `console` | the admin console, database `pgbouncer` |
//! | `listen` | LISTEN for all clients through one connection |
//! | `lookup` | users that the server knows: `auth_query` |
//! | `metrics` | the cells this room writes |

#![forbid(unsafe_code)]

mod aside;
mod cancel;
mod cancelling;
mod connection;
mod console;
mod inventory;
mod listen;
mod lookup;
mod metrics;
mod pauses;
mod relay;
mod role;
mod route;
pub mod rules;
mod server;
mod service;
pub mod settings;
mod shared;

pub use cancel::CancelMessage;
pub use pauses::PausedDatabases;
pub use relay::{Foreign, ForeignCancel, ForeignPause, Over, PauseOrder, UpgradeRelay};
pub use role::watch;
pub use server::{LoginProbe, PoolKey, PostgresServer};
pub use service::{PostgresUpstream, Service};
pub use shared::{ListenerShared, StandingOrders};
pub use weir_postgres_session::{Proofs, WorkerShare, users};
