//! Servers that speak MongoDB's protocol, and the programs around them. Everything of a server is in one temporary folder, and ends with
//! it.
//!
//! | file | content |
//! |---|---|
//! | `ferretdb` | FerretDB with SQLite, with and without logins |
//! | `java_server` | mongo-java-server, a second implementation |
//! | `scripted` | the scripted server of the lab: transactions, streams of replies, compression, faults |
//! | `fake` | a server whose replies are a test's own |
//! | `drivers` | every driver, with a list of checks, against a URL |
//! | `load` | a client of a real driver that writes until it is stopped |
//! | `raw` | messages by their parts, right or wrong |
//! | `tls` | TLS of `fake`, and files that drivers want |
//! | `wire` | a blocking connection with the protocol in its plainest form |

pub mod drivers;
pub mod fake;
mod ferretdb;
mod java_server;
mod load;
pub mod raw;
mod scripted;
pub mod tls;
pub mod wire;

pub use ferretdb::{FerretDb, PASSWORD, USER};
pub use java_server::JavaServer;
pub use load::{Load, LoadReport};
pub use scripted::Scripted;

use crate::stream::Address;

/// A connection URL without a login.
#[must_use]
pub fn url(address: &Address) -> String {
    format!("mongodb://{}/", address.text())
}

/// The same for a user, with options behind it.
#[must_use]
pub fn url_with_login(address: &Address, user: &str, password: &str, options: &str) -> String {
    format!("mongodb://{user}:{password}@{}/?authSource=admin{options}", address.text())
}
