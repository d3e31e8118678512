//! The session against the simulated world: scenes first, then random runs.

mod cluster;
mod ends;
mod knee;
mod limits;
mod login;
mod losses;
mod moving;
mod pinning;
mod pipelining;
mod policy;
mod refusals;
mod registry;
mod reply_mode;
mod scene;
mod selecting;
mod shards;
mod streaming;
mod subscriptions;
mod swarm;
mod transactions;
mod users;
mod watching;
