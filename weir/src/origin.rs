//! `weir lab origin`: synthetic back ends.
use clap::Args;

/// Start a synthetic Redis server.
#[derive(Debug, Args)]
pub struct RedisArgs {}

pub fn run(_: &RedisArgs) -> Result<(), String> {
    Err("being built".into())
}
