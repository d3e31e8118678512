//! A Redis server that keeps data of the gateway's own: budgets that several gateways share, and backups of flags.
//!
//! Its connections wait, with bounds, so they are for a thread of their own and never for a worker.

#![forbid(unsafe_code)]

mod connection;
mod socket;

pub use connection::{Connection, Login, StoreError, StoreLimits};
