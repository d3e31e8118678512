//! Redis, in RESP2: a mix of commands over a key space whose values can be checked; and publish and subscribe.
//!
//! | file | concept |
//! |---|---|
//! | `commands`, `keys` | the mix and the key space, as scenarios write them |
//! | `plan`, `check` | the commands of a shard; the check of each reply |
//! | `names`, `preload` | names of keys; the keys that are written first |
//! | `pubsub` | messages to channels: the protocol `redis-pubsub` |
//! | `wire`, `reply` | whole replies out of chunks; the kind of a reply |

use super::{Common, Count, Family, OwnKey, Protocol, REMEDY, Seat, Work};
use crate::requests::Planner;
use crate::scenario::mistake::{Problems, Span};
use crate::scenario::table::Table;
use crate::scenario::{Command, CommandKind, Payload, REPLY_BYTES_MAX, Scenario};
use crate::shard::Shard;
use crate::url::{Scheme, Url};
use crate::wire::Wire;

mod check;
mod commands;
mod keys;
mod names;
mod plan;
mod preload;
mod pubsub;
mod reply;
#[cfg(test)]
mod tests;
mod wire;

#[cfg(test)]
pub(crate) use preload::Preload;
pub(crate) use pubsub::PubSub;

/// See the module.
pub(crate) struct Redis;

impl Protocol for Redis {
    fn word(&self) -> &'static str {
        "redis"
    }

    fn title(&self) -> &'static str {
        "Redis"
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(Scheme { name: "redis", port: Some(6379), has_path: false })
    }

    /// The usual mix over keys with a prefix of their own, few enough to be written at once.
    fn lines_of(&self, _url: &Url) -> String {
        "keys = { count = 10_000, prefix = \"weir-load:\" }\n\
         command = [{ name = \"GET\", weight = 80 }, { name = \"SET\", weight = 20 }]\n"
            .to_owned()
    }

    fn family(&self) -> &'static Family {
        const WHY: &str = "is only for protocol = \"redis\"";
        &Family {
            own_keys: &[OwnKey { name: "keys", why: WHY }, OwnKey { name: "command", why: WHY }],
            remedy: REMEDY,
            origin: "redis",
            // Its store is one, in one thread.
            has_workers: false,
            usual_peers: &["envoy", "haproxy", "twemproxy"],
        }
    }

    fn read(&self, root: &Table<'_>, common: &Common<'_>) -> Option<Work> {
        let problems = common.problems;
        let keys = root.table("keys").and_then(keys::read);
        let commands = commands::read(root, problems);
        check_reply_size(&commands, common.payload, &root.span_of("command"), problems);
        let is_checked = commands.iter().any(|one| one.kind.is_checked());
        if common.integrity == Some(true) && !commands.is_empty() && !is_checked {
            let what = "`integrity` is on, but no command of the mix can be checked";
            problems.add(&root.span_of("integrity"), what, "add a GET, or write integrity = false");
        }
        Some(Work { keys: keys?, commands, ..Work::default() })
    }

    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a> {
        Box::new(plan::Commands::new(scenario, shard))
    }

    fn wire(&self, scenario: &Scenario, _seat: Seat) -> Box<dyn Wire> {
        Box::new(wire::Replies::new(wire::Replies::bytes_max(scenario)))
    }

    fn preload(&self, scenario: &Scenario, shard: Shard) -> Option<Box<dyn super::Preload>> {
        Some(Box::new(preload::Preload::new(scenario, shard)))
    }

    fn count(&self) -> Option<Count> {
        Some(Count { question: b"*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n", read: commands_processed })
    }

    fn mix(&self, scenario: &Scenario) -> String {
        let mix = scenario.commands.iter();
        let mix: Vec<String> = mix.map(|command| format!("{} x {}", kind_of(&command.kind), command.weight)).collect();
        mix.join(" + ")
    }

    fn details(&self, scenario: &Scenario) -> String {
        let keys = &scenario.keys;
        let preload = if keys.preload { "" } else { " not preloaded" };
        format!(", {} keys {:?}{preload}", keys.count, keys.distribution)
    }
}

/// The count of commands in the reply to INFO stats.
fn commands_processed(reply: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(reply);
    let (_, rest) = text.split_once("total_commands_processed:")?;
    rest.split_once("\r\n")?.0.parse().ok()
}

fn check_reply_size(commands: &[Command], payload: Option<&Payload>, span: &Span, problems: &Problems<'_>) {
    let keys_max = commands.iter().map(|one| if let CommandKind::Mget { keys } = one.kind { keys } else { 1 }).max();
    let bytes = u64::from(keys_max.unwrap_or(1)) * payload.map_or(0, Payload::bytes_max) as u64;
    if bytes > REPLY_BYTES_MAX {
        let what = format!("one reply of `command` MGET could have {bytes} bytes");
        problems.add(span, what, format!("lower keys or payload: the limit is {REPLY_BYTES_MAX}"));
    }
}

fn kind_of(kind: &CommandKind) -> String {
    match kind {
        CommandKind::Get => "GET".to_owned(),
        CommandKind::Set => "SET".to_owned(),
        CommandKind::Mget { keys } => format!("MGET of {keys}"),
        CommandKind::Incr => "INCR".to_owned(),
        CommandKind::Raw { words } => words.join(" "),
    }
}
