//! The MongoDB session in a simulated world, for tests and fuzzing.
//!
//! Drivers with several connections each, some in load-balanced mode, talk to model servers through sessions. Every cursor has a tag that its
//! server repeats in each batch: a batch of another cursor shows. Connections break, servers start again, clients vanish, and some name
//! cursors that are not theirs. At the end no server has a cursor or a transaction that lost its client.
//!
//! | file | concept |
//! |---|---|
//! | `server` | a model server: cursors with small ids, transactions |
//! | `driver` | a client: what it sends, what it expects |
//! | `io` | the shell's side of a session |
//! | `world` | all together, with random events |
//! | `raw` | a client that sends any bytes, and a server that replies with any |

#![forbid(unsafe_code)]

mod driver;
mod io;
pub mod raw;
mod server;
mod world;

pub use server::ModelServer;
pub use world::{Counts, World};

#[cfg(test)]
mod tests;
