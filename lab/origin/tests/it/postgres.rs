//! The PostgreSQL origin: its conversations, and PostgreSQL and its tools beside it.
//!
//! | file | concept |
//! |---|---|
//! | `client` | a raw client: bytes out, messages in |
//! | `server` | a real PostgreSQL with the tables of pgbench |
//! | `conversations` | the origin alone |
//! | `parity` | the same bytes to both: the same messages come back; psql and pgbench |

mod client;
mod conversations;
mod parity;
mod server;
