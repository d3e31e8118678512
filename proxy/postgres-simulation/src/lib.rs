//! The PostgreSQL session in a simulated world, for tests and fuzzing.
//!
//! Every client has two servers: those of the pool, behind the session, and one of its own that no other client uses. Both get the same
//! messages; the client must get the same bytes from both. A row, a status byte, an error or a parameter that belongs to
//! somebody else shows as a difference (K1 to K3). A server that goes back to the pool is compared with what is known of it (K5).
//!
//! | file | concept |
//! |---|---|
//! | `sql` | the SQL that the model server understands |
//! | `state` | objects of a session at the model server, and the transaction that undoes them |
//! | `server` / `execute` | the model server: messages; statements |
//! | `client` | random messages |
//! | `io` | the shell's side of a session |
//! | `raw` | a client that sends any bytes |
//! | `world` | clients, a pool, bytes that arrive in pieces, clients that vanish |

#![forbid(unsafe_code)]

pub mod client;
mod execute;
pub mod io;
pub mod raw;
pub mod server;
pub mod sql;
pub mod state;
pub mod world;

pub use server::ModelServer;
pub use world::World;

#[cfg(test)]
mod tests;
