//! Real PostgreSQL servers and the programs around them. Everything of a server is in one temporary folder, and ends with it.
//!
//! | file | content |
//! |---|---|
//! | `major` | which server, and where its programs are |
//! | `server` | a cluster: initdb, start, stop, SQL by psql |
//! | `standby` | a copy that follows another server |
//! | `pgbouncer` | PgBouncer in front of a server, to compare with |
//! | `pgbench` | a run of pgbench, and its figures |
//! | `relay` | a relay before a server, which disturbs logins and cancel requests |
//! | `drivers` | every driver, with a list of checks, against a port |
//! | `exporter` | an exporter of PgBouncer's figures |
//! | `load` | clients of real drivers that write until they are stopped |
//! | `torture` | hundreds of clients that find foreign rows and foreign state |
//! | `programs` | the checks of psql, pg_dump, pg_restore and pgbench |

mod account;
pub mod drivers;
mod exporter;
mod load;
mod major;
mod pgbench;
mod pgbouncer;
mod programs;
mod relay;
mod server;
mod standby;
pub mod torture;

pub use account::give;
pub use exporter::Exporter;
pub use load::{Load, LoadFailure, LoadReport};
pub use major::Major;
pub use pgbench::{Pgbench, PgbenchFigures, Protocol, prepare};
pub use pgbouncer::{Pgbouncer, PoolMode};
pub use relay::{Fault, Relay};
pub use server::{Options, PASSWORD, Postgres, USER};

/// A connection URL of the test user, which every driver reads.
#[must_use]
pub fn url(port: u16, database: &str) -> String {
    format!("postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/{database}")
}
