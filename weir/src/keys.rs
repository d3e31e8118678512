//! `weir keys`: keys of AI clients.

use clap::Subcommand;
use weir_spend::keys::NewKey;

/// Keys of AI clients.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key: prints it once, and the table of weir.toml that permits it.
    #[command(after_help = "Example:\n  weir keys new search-team")]
    New {
        /// The name of the key, for the usage log and its budgets.
        name: String,
    },
}

/// Runs the command.
///
/// # Errors
/// In words: the system gives no randomness.
pub fn run(command: &KeysCommand) -> Result<(), String> {
    let KeysCommand::New { name } = command;
    print!("{}", text(name, &NewKey::generate().map_err(|error| error.to_string())?));
    Ok(())
}

/// The key for its owner, and its table for the operator.
fn text(name: &str, key: &NewKey) -> String {
    format!(
        "# For the client; it is stored nowhere, and cannot be shown again:\n{}\n\n# For weir.toml:\n\
         [[listener.ai.key]]\nname = {}\nsha256 = \"{}\"\n",
        key.text.expose_str().unwrap_or_default(),
        serde_json::Value::from(name),
        key.hash.to_hex()
    )
}

#[cfg(test)]
mod tests {
    use weir_spend::keys::KeyHash;

    use super::*;

    #[test]
    fn the_table_has_the_hash_of_the_key_and_the_key_stands_above_it() {
        let key = NewKey::generate().expect("randomness");
        let printed = text("a", &key);
        let lines: Vec<&str> = printed.lines().collect();
        let hash = lines[6].strip_prefix("sha256 = \"").and_then(|rest| rest.strip_suffix('"')).expect("a hash");
        assert!(KeyHash::from_hex(hash) == Some(KeyHash::of(lines[1].as_bytes())), "{}", lines.len());
        assert_eq!((lines[4], lines[5]), ("[[listener.ai.key]]", "name = \"a\""));
    }
}
