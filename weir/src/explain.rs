//! `weir explain`: what the reference says of one key.

use clap::Args;

/// Explain a key or a table of weir.toml: place in the file, value, default, and whether a reload applies a change.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir explain listener.idle_timeout\n  weir explain password       # every place that has it\n  \
                        weir explain upstream.sharding   # a table and its keys"
)]
pub struct ExplainArgs {
    /// Path of the key, such as listener.redis.password, or the end of a path, such as password.
    key: String,
}

/// Runs the command.
///
/// # Errors
/// In words: there is no such key, and which ones are near.
pub fn run(args: &ExplainArgs) -> Result<(), String> {
    print!("{}", weir_config::explain(&args.key)?);
    Ok(())
}
