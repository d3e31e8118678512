//! A Redis origin: a small store in memory, or fixed replies, with scripted faults.
//!
//! ```no_run
//! use weir_origin::redis::{OriginSettings, start};
//!
//! let origin = start(OriginSettings::default())?; // one worker, memory, 127.0.0.1, any free port
//! println!("redis-cli -p {}", origin.addresses()[0].port());
//! println!("{} requests", origin.stats().requests);
//! origin.stop()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! **Memory mode** runs on one worker, because its keys are plain cells of that worker's thread. **Fixed mode** has no
//! keys and runs on any number of workers. Texts and shapes of replies are those of Redis 7.0.15.
//!
//! Not implemented, and answered with Redis' own unknown-command text: streams, sorted sets, scripts, blocking
//! commands, patterns (`PSUBSCRIBE`) and shard channels, `CLUSTER`, `ACL`, persistence and replication. `SET` takes
//! `EX PX NX XX KEEPTTL GET` but no `EXAT`/`PXAT`. `COMMAND` returns the six-field form that servers before 7.0 had.
//!
//! | file | concept |
//! |---|---|
//! | `settings`, `faults` | options of the server; failures on purpose |
//! | `server`, `core` | starting and housekeeping; objects that all connections of a worker share |
//! | `connection`, `requests`, `delay` | one connection: chunks in, replies out, held back if the script says so |
//! | `session`, `dispatch`, `table`, `commands` | the state of a client; which command may run; what it does |
//! | `reply`, `errors` | bounded replies; Redis' texts |
//! | `store`, `keyspace`, `value`, `memory` | databases, keys with expiry, their types, the byte account |
//! | `channels` | subscribers |
//! | `glob`, `number` | patterns and integers as Redis reads them |

mod channels;
mod commands;
mod connection;
mod core;
mod delay;
mod dispatch;
mod errors;
mod faults;
mod glob;
mod keyspace;
mod memory;
mod number;
mod reply;
mod requests;
mod server;
mod session;
mod settings;
mod store;
mod table;
mod value;

pub use crate::server::{Origin, OriginStats};
pub use faults::{Faults, Stall};
pub use server::start;
pub use settings::{CONNECTIONS_MAX, MEMORY_BYTES_MAX, MESSAGE_BYTES_MAX, Mode, OriginSettings};
