//! `weir explain`: what the reference says of one key.

use clap::Args;

/// Explain a key or a table of weir.toml: value, default, where it stands, and whether a reload applies a change.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir explain listener.idle_timeout\n  weir explain password       # every place that has it\n  \
                        weir explain upstream.sharding   # a table and its keys"
)]
pub struct ExplainArgs {
    /// A path such as listener.redis.password, or the end of one.
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
