//! `weir keys`: keys of AI clients, those of a running gateway and those for its file.
//!
//! | file | concept |
//! |---|---|
//! | `flags` | the command line of a key and its policy, and the request that it means |
//! | `show` | keys as text |

mod flags;
mod show;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde::Serialize;
use weir_admin::status::{AiKeyChange, AiKeyIssued, AiKeyList, AiKeyRequest, AiKeyRotation, AiKeyStatus};
use weir_spend::keys::NewKey;

use self::flags::{PolicyFlags, TermFlags};
use crate::{admin_client::Admin, top};

/// For one response; an order about a key waits for the disk.
const LIMIT: Duration = Duration::from_secs(15);

/// For the question whether a gateway is there.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// The admin address, if none is given.
const ADMIN: &str = "http://127.0.0.1:9900";

/// Manage the API keys of AI clients.
///
/// The commands connect to the admin address of a running gateway. To issue and change keys, its configuration file needs `state` in the
/// table `[ai]`. Keys in the configuration file are listed too, but only an edit of the file changes them.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List the keys of a running gateway: state, limits and budget use. Secrets and hashes are never shown.
    #[command(after_help = "Example:\n  weir keys list")]
    List(At),
    /// Issue a key, and print it once. Without a running gateway, print a key and the table that adds it to weir.toml.
    #[command(
        visible_alias = "generate",
        after_help = "Examples:\n  weir keys new search-team\n  weir keys new ci --models gpt-4o-mini --rpm-limit 60 --month-money 20 --duration 30d\n  \
                      weir keys new search-team --offline   # the table for weir.toml"
    )]
    New(NewArgs),
    /// Show a key by its name, or all keys if several listeners have a key of this name.
    #[command(visible_alias = "info", after_help = "Example:\n  weir keys show search-team --json")]
    Show(Named),
    /// Change the limits, listener or expiry of an issued key. Absent options leave their settings unchanged.
    #[command(after_help = "Example:\n  weir keys update ci --day-tokens 1000000")]
    Update(UpdateArgs),
    /// Refuse new requests with an issued key (401). Open streams finish.
    #[command(visible_alias = "block", after_help = "Example:\n  weir keys disable ci")]
    Disable(Named),
    /// Accept an issued key again after `weir keys disable`.
    #[command(visible_alias = "unblock", after_help = "Example:\n  weir keys enable ci")]
    Enable(Named),
    /// Replace the secret of an issued key, and print the new key once. The old key is refused at once, or after a grace period.
    #[command(visible_alias = "regenerate", after_help = "Example:\n  weir keys rotate ci --grace-period 24h")]
    Rotate(RotateArgs),
    /// Delete an issued key. A later key of the same name continues its budgets.
    #[command(after_help = "Example:\n  weir keys delete ci")]
    Delete(Named),
}

// A gateway, and the form of what is printed. A doc comment of flattened flags would take the place of that of their command.
#[derive(Debug, Args)]
pub struct At {
    /// URL of the admin address [default: http://127.0.0.1:9900].
    #[arg(long, value_name = "URL", value_parser = top::admin_url)]
    admin: Option<String>,

    /// Environment variable that holds the admin token [default: WEIR_ADMIN_TOKEN, if it is set].
    #[arg(long, value_name = "NAME")]
    token_env: Option<String>,

    /// Print the JSON of the admin API.
    #[arg(long)]
    json: bool,
}

// A key of a gateway.
#[derive(Debug, Args)]
pub struct Named {
    /// The name of the key.
    name: String,

    #[command(flatten)]
    at: At,
}

// See `KeysCommand::New`.
#[derive(Debug, Args)]
pub struct NewArgs {
    #[command(flatten)]
    named: Named,

    /// Print a key and its table for weir.toml, without a connection to a gateway.
    #[arg(long, conflicts_with_all = ["admin", "token_env", "json"])]
    offline: bool,

    #[command(flatten)]
    term: TermFlags,

    #[command(flatten)]
    policy: PolicyFlags,
}

// See `KeysCommand::Update`.
#[derive(Debug, Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    named: Named,

    #[command(flatten)]
    term: TermFlags,

    #[command(flatten)]
    policy: PolicyFlags,
}

// See `KeysCommand::Rotate`.
#[derive(Debug, Args)]
pub struct RotateArgs {
    #[command(flatten)]
    named: Named,

    /// Time for which the old key stays valid, such as 30m, 24h or 7d.
    #[arg(long, value_name = "SPAN", value_parser = flags::span)]
    grace_period: Option<Duration>,

    /// End of the validity of the old key, a time in UTC such as 2027-01-31T00:00:00Z.
    #[arg(long, value_name = "TIME", conflicts_with = "grace_period")]
    old_until: Option<String>,
}

impl At {
    fn admin(&self) -> Result<Admin, String> {
        let token = top::token(self.token_env.as_deref()).map_err(|error| error.to_string())?;
        Ok(Admin::new(self.admin.as_deref().unwrap_or(ADMIN), token))
    }

    /// Prints a response as JSON, or as text.
    fn print<T: Serialize>(&self, response: &T, text: impl FnOnce(&T) -> String) -> Result<(), String> {
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(response).map_err(|error| error.to_string())?),
            false => print!("{}", text(response)),
        }
        Ok(())
    }
}

impl Named {
    fn path(&self) -> String {
        path(&self.name)
    }

    fn change(&self, change: &AiKeyChange) -> Result<(), String> {
        let key: AiKeyStatus = self.at.admin()?.call("PATCH", &self.path(), Some(change), LIMIT)?;
        self.at.print(&key, show::one)
    }
}

/// The path of a key. Bytes that no name has are escaped, so that each name leads to its own path.
fn path(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let escape = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    format!("/api/v1/ai/keys/{}", name.bytes().map(escape).collect::<String>())
}

/// Runs the command.
///
/// # Errors
/// In words: the gateway cannot be reached or refuses, or the system gives no randomness.
pub fn run(command: &KeysCommand) -> Result<(), String> {
    match command {
        KeysCommand::List(at) => at.print(&list(&at.admin()?)?, show::table),
        KeysCommand::New(args) => new(args),
        KeysCommand::Show(named) => {
            let found: AiKeyList = named.at.admin()?.json(&named.path(), LIMIT)?;
            named.at.print(&found, |found| found.keys.iter().map(show::one).collect::<Vec<_>>().join("\n"))
        }
        KeysCommand::Update(UpdateArgs { named, term, policy }) => {
            let change = AiKeyChange { policy: policy.policy(), ..term.change()? };
            if change == AiKeyChange::default() {
                return Err("nothing to change: give a limit, such as --day-tokens 1000000".to_owned());
            }
            named.change(&change)
        }
        KeysCommand::Disable(named) => named.change(&AiKeyChange { enabled: Some(false), ..AiKeyChange::default() }),
        KeysCommand::Enable(named) => named.change(&AiKeyChange { enabled: Some(true), ..AiKeyChange::default() }),
        KeysCommand::Rotate(args) => rotate(args),
        KeysCommand::Delete(named) => {
            let key: AiKeyStatus = named.at.admin()?.call("DELETE", &named.path(), None::<&()>, LIMIT)?;
            named.at.print(&key, |key| format!("deleted: {}\n", key.name))
        }
    }
}

/// All keys, page by page.
fn list(admin: &Admin) -> Result<AiKeyList, String> {
    let mut all: AiKeyList = admin.json("/api/v1/ai/keys?limit=1000", LIMIT)?;
    while let Some(after) = all.next_after.take() {
        let page: AiKeyList = admin.json(&format!("/api/v1/ai/keys?limit=1000&after={after}"), LIMIT)?;
        all.keys.extend(page.keys);
        all.next_after = page.next_after;
    }
    Ok(all)
}

fn new(args: &NewArgs) -> Result<(), String> {
    let Named { name, at } = &args.named;
    let wants_gateway = at.admin.is_some() || at.json || args.term.is_given() || args.policy.policy().is_some();
    if args.offline && wants_gateway {
        return Err("--offline prints a table without limits: write them into it, or leave --offline out".to_owned());
    }
    let admin = at.admin()?;
    if args.offline || (!wants_gateway && !admin.is_there(LOOK_LIMIT)) {
        if !args.offline {
            eprintln!("no gateway at {ADMIN}: this is a table for its file");
        }
        print!("{}", table_of_file(name, &NewKey::generate().map_err(|error| error.to_string())?));
        return Ok(());
    }
    let AiKeyChange { listener, expires, .. } = args.term.change()?;
    let request = AiKeyRequest { name: name.clone(), listener, enabled: None, expires, policy: args.policy.policy() };
    let issued: AiKeyIssued = admin.call("POST", "/api/v1/ai/keys", Some(&request), LIMIT)?;
    at.print(&issued, show::issued)
}

fn rotate(args: &RotateArgs) -> Result<(), String> {
    let old_until = match args.grace_period {
        Some(span) => Some(from_now(span)),
        None => args.old_until.clone(),
    };
    let path = format!("{}/rotate", args.named.path());
    let issued: AiKeyIssued = args.named.at.admin()?.call("POST", &path, Some(&AiKeyRotation { old_until }), LIMIT)?;
    args.named.at.print(&issued, show::issued)
}

/// A time in UTC as the admin API takes it.
fn from_now(span: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    weir_base::time::rfc3339(now.saturating_add(span).as_secs())
}

/// The key for its owner, and its table for the operator.
fn table_of_file(name: &str, key: &NewKey) -> String {
    format!(
        "{}{}\n\n# For weir.toml:\n[[listener.ai.key]]\nname = {}\nsha256 = \"{}\"\n",
        show::FOR_THE_CLIENT,
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
        let printed = table_of_file("a", &key);
        let lines: Vec<&str> = printed.lines().collect();
        let hash = lines[6].strip_prefix("sha256 = \"").and_then(|rest| rest.strip_suffix('"')).expect("a hash");
        assert!(KeyHash::from_hex(hash) == Some(KeyHash::of(lines[1].as_bytes())), "{}", lines.len());
        assert_eq!((lines[4], lines[5]), ("[[listener.ai.key]]", "name = \"a\""));
    }

    #[test]
    fn a_name_leads_to_its_own_path() {
        assert_eq!(path("a.b-c_1"), "/api/v1/ai/keys/a.b-c_1");
        assert_eq!(path("a/../b?c=%"), "/api/v1/ai/keys/a%2F..%2Fb%3Fc%3D%25");
    }
}
