//! PostgreSQL sessions as state machines, without I/O.
//!
//! | file | concept |
//! |---|---|
//! | `login` | a client from its first byte to its password: encryption, version, rules, proof |
//! | `hba` | which method of authentication a client needs, by address, user, database and TLS |
//! | `users` | passwords of users: from the configuration, a file of PgBouncer, an auth query |
//! | `server_login` | the gateway's own login at a server |
//! | `cancel_key` | keys that the gateway gives to its clients, and the connection that each names |
#![forbid(unsafe_code)]

pub mod cancel_key;
pub mod hba;
pub mod login;
pub mod server_login;
pub mod users;
