// Generated from the COMMAND replies of redis-6.2, redis-7.0, valkey-9.1. Do not edit; to regenerate:
// cargo xtask generate redis-commands --server redis-6.2=HOST:PORT --server redis-7.0=HOST:PORT --server valkey-9.1=HOST:PORT
//! The command table as the servers report it; classes are added by `Command::row`.

#[rustfmt::skip]
pub(super) mod commands;
#[rustfmt::skip]
mod key_specs;
#[rustfmt::skip]
pub(super) mod subcommands;

/// Servers whose tables were merged, oldest first. Those before 7.0 do not list subcommands.
pub static SERVERS: &[&str] = &["redis-6.2", "redis-7.0", "valkey-9.1"];
