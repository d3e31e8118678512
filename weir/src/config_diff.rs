//! `weir config diff`: a file against the configuration that a gateway runs.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use serde_json::Value as Json;

use crate::{admin_client::Admin, check, top};

/// Inspect the configuration of a running gateway.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    Diff(DiffArgs),
}

/// Compare a file with the configuration of a running gateway: which changes a reload would apply, and which need a restart.
///
/// Both sides include all defaults. A secret is compared by its source (an environment variable or a file), not by its value, so a
/// changed value is no difference. Environment variables and files that are missing, or that this user may not read, are compared by
/// name.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir config diff weir.toml\n  weir config diff weir.toml --admin http://10.0.0.7:9900 --token-env \
                        WEIR_TOKEN\n\nExit status: 0, no difference; 1, differences or a failure; 2, wrong usage."
)]
pub struct DiffArgs {
    /// The configuration file.
    file: PathBuf,

    /// URL of the admin address.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9900", value_parser = top::admin_url)]
    admin: String,

    /// Environment variable that holds the admin token [default: WEIR_ADMIN_TOKEN, if it is set].
    #[arg(long, value_name = "NAME")]
    token_env: Option<String>,
}

/// For one response.
const LIMIT: Duration = Duration::from_secs(5);

/// Runs the command.
///
/// # Errors
/// In words: there are differences, the file has mistakes, or the gateway cannot be reached.
pub fn run(command: &ConfigCommand) -> Result<(), String> {
    let ConfigCommand::Diff(args) = command;
    let snapshot = weir_config::check_offline(&args.file, &|name| std::env::var(name).ok()).map_err(|diagnostics| {
        eprintln!("{diagnostics}");
        format!("{}: {}", args.file.display(), check::mistakes(&diagnostics))
    })?;
    let token = top::token(args.token_env.as_deref()).map_err(|error| error.to_string())?;
    let admin = Admin::new(&args.admin, token);
    let running: Json = admin.json("/api/v1/config", LIMIT)?;
    let waits = admin.text("/metrics", LIMIT)?.lines().any(|line| line == "weir_config_restart_required 1");
    let mut found = Vec::new();
    compare("", Some(&running), Some(&weir_config::redacted(&snapshot)), &mut found);
    print!("{}", report(&found));
    if waits {
        println!(
            "An earlier reload brought changes that wait for a restart; the running process does not have them yet."
        );
    }
    match found.len() {
        0 => Ok(()),
        1 => Err(format!("{}: 1 difference", args.file.display())),
        count => Err(format!("{}: {count} differences", args.file.display())),
    }
}

/// One difference.
#[derive(Debug, PartialEq)]
struct Difference {
    /// As a reload names it: `listener.cache.idle_timeout`.
    path: String,
    /// Value in the running gateway. `None`: it has no such key or table.
    running: Option<Json>,
    /// Value in the file. `None`: it has no such key or table.
    file: Option<Json>,
}

fn report(found: &[Difference]) -> String {
    if found.is_empty() {
        return "no difference: the gateway runs this file\n".to_owned();
    }
    let mut text = String::new();
    let mut restarts = 0;
    for difference in found {
        let (sign, what) = match (&difference.running, &difference.file) {
            (Some(running), Some(file)) => ('~', format!("{} -> {}", shown(running), shown(file))),
            (None, Some(file)) => ('+', shown(file)),
            (Some(running), None) => ('-', shown(running)),
            (None, None) => continue,
        };
        let restart = weir_config::needs_restart(&difference.path);
        restarts += usize::from(restart);
        let note = if restart { "   needs a restart" } else { "" };
        text += &format!("{sign} {}   {what}{note}\n", difference.path);
    }
    text + &format!("running -> file; a reload applies {}, a restart {restarts} more\n", found.len() - restarts)
}

/// A value; of a table only that it is one.
fn shown(value: &Json) -> String {
    match value {
        Json::Object(table) if !table.contains_key("env") && !table.contains_key("file") => "(table)".to_owned(),
        other => other.to_string(),
    }
}

/// Collects the differences at `path` and below it. Tables of a list are matched by their names, as a reload does.
fn compare(path: &str, running: Option<&Json>, file: Option<&Json>, found: &mut Vec<Difference>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let name = |table: &Json| table.get("name").and_then(Json::as_str).map(str::to_owned);
    match (running, file) {
        (old, new) if old == new => {}
        (Some(Json::Object(old)), Some(Json::Object(new))) => {
            for key in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
                compare(&below(key), old.get(key), new.get(key), found);
            }
        }
        (Some(Json::Array(old)), Some(Json::Array(new)))
            if old.iter().chain(new).all(|table| name(table).is_some()) =>
        {
            for wanted in old.iter().chain(new).filter_map(name).collect::<BTreeSet<_>>() {
                let of = |list: &'_ Vec<Json>| list.iter().position(|table| name(table).as_ref() == Some(&wanted));
                let (old, new) = (of(old).map(|at| &old[at]), of(new).map(|at| &new[at]));
                compare(&below(&wanted), old, new, found);
            }
        }
        (old, new) => {
            found.push(Difference { path: path.to_owned(), running: old.cloned(), file: new.cloned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differences(running: &Json, file: &Json) -> String {
        let mut found = Vec::new();
        compare("", Some(running), Some(file), &mut found);
        report(&found)
    }

    #[test]
    fn keys_are_compared_by_the_names_of_their_tables() {
        let running = json!({
            "runtime": { "workers": 1 },
            "listener": [{ "name": "a", "idle_timeout": "1m" }, { "name": "b" }],
        });
        let file = json!({
            "runtime": { "workers": 2 },
            "listener": [{ "name": "c" }, { "name": "a", "idle_timeout": "5m", "backlog": 9 }],
        });
        let text = differences(&running, &file);
        for line in [
            "~ listener.a.idle_timeout   \"1m\" -> \"5m\"\n",
            "+ listener.a.backlog   9\n",
            "- listener.b   (table)\n",
            "+ listener.c   (table)\n",
            "~ runtime.workers   1 -> 2   needs a restart\n",
            "a reload applies 4, a restart 1 more\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_order_of_named_tables_is_no_difference_and_that_of_values_is_one() {
        let (running, file) = (
            json!({ "listener": [{ "name": "a" }, { "name": "b" }], "names": ["x", "y"] }),
            json!({ "listener": [{ "name": "b" }, { "name": "a" }], "names": ["y", "x"] }),
        );
        assert!(differences(&running, &file).starts_with("~ names "));
        assert!(differences(&running, &running).starts_with("no difference"));
    }

    #[test]
    fn a_secret_shows_where_it_comes_from() {
        let of = |name: &str| json!({ "admin": { "token": { "env": name } } });
        let text = differences(&of("OLD"), &of("NEW"));
        assert!(text.contains("~ admin.token.env   \"OLD\" -> \"NEW\""), "{text}");
    }
}
