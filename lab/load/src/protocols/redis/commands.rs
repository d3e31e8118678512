//! `[[command]]`: the mix.

use crate::scenario::mistake::Problems;
use crate::scenario::read::WEIGHT_MAX;
use crate::scenario::table::{Node, Table};
use crate::scenario::{Command, CommandKind, MGET_KEYS_MAX};

/// Words of a raw command and bytes of each. Default 64 and 64 KiB: what a hand writes into a file.
const WORDS_MAX: usize = 64;
const WORD_BYTES_MAX: usize = 64 * 1024;

/// Commands that have no reply or many, end the connection, change what later commands on it mean, or empty the key
/// space under the checks.
const NOT_ONE_REPLY: [&str; 25] = [
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "SSUBSCRIBE",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE",
    "MONITOR",
    "SYNC",
    "PSYNC",
    "REPLCONF",
    "QUIT",
    "RESET",
    "SHUTDOWN",
    "HELLO",
    "AUTH",
    "SELECT",
    "SWAPDB",
    "CLIENT",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH",
    "UNWATCH",
    "FLUSHALL",
    "FLUSHDB",
];

/// Every command of the mix that is right.
pub(super) fn read(root: &Table<'_>, problems: &Problems<'_>) -> Vec<Command> {
    let node = root.need("command", "[{ name = \"GET\", weight = 80 }, { name = \"SET\", weight = 20 }]");
    let Some(list) = node.as_ref().and_then(Node::list) else {
        return Vec::new();
    };
    if let (Some(node), []) = (&node, &list[..]) {
        node.wrong("is empty", "name at least one command");
    }
    list.into_iter().filter_map(Node::into_table).filter_map(|table| read_one(table, problems)).collect()
}

fn read_one(table: Table<'_>, problems: &Problems<'_>) -> Option<Command> {
    let weight = match table.get("weight") {
        Some(node) => node.whole(1..=WEIGHT_MAX),
        None => Some(1),
    };
    let kind = match (table.get("name"), table.get("words")) {
        (Some(name), None) => named(&name, &table),
        (None, Some(words)) => raw(&words, &table),
        (Some(_), Some(words)) => {
            words.wrong("stands beside `name`", "keep one of the two");
            None
        }
        (None, None) => {
            let what = format!("`{}` is missing", table.path("name"));
            problems.add(&table.span, what, "add name = \"GET\", or words = [\"HGET\", \"{key}\", \"field\"]");
            None
        }
    };
    // Known, whatever the kind.
    table.get("keys");
    table.finish();
    Some(Command { kind: kind?, weight: weight? })
}

fn named(name: &Node<'_>, table: &Table<'_>) -> Option<CommandKind> {
    let text = name.text()?;
    if text != "MGET" {
        table.refuse("keys", "is only for MGET", "remove it");
    }
    match text {
        "GET" => Some(CommandKind::Get),
        "SET" => Some(CommandKind::Set),
        "INCR" => Some(CommandKind::Incr),
        "MGET" => Some(CommandKind::Mget { keys: table.need("keys", "10")?.whole(1..=MGET_KEYS_MAX)? }),
        _ => {
            let remedy = "it is one of GET, SET, INCR, MGET; anything else is written as words = [\"...\", \"{key}\"]";
            name.wrong(format!("is \"{text}\""), remedy);
            None
        }
    }
}

fn raw(node: &Node<'_>, table: &Table<'_>) -> Option<CommandKind> {
    table.refuse("keys", "is only for MGET", "write \"{key}\" among the words as often as needed");
    let list = node.list()?;
    if list.is_empty() || list.len() > WORDS_MAX {
        node.wrong(format!("has {} words", list.len()), format!("a command has 1 to {WORDS_MAX} words"));
        return None;
    }
    // All words are read before the first that is wrong ends it.
    let read: Vec<Option<&str>> = list.iter().map(Node::text).collect();
    let words: Vec<String> = read.into_iter().collect::<Option<Vec<&str>>>()?.into_iter().map(str::to_owned).collect();
    if let Some((node, _)) = list.iter().zip(&words).find(|(_, word)| word.len() > WORD_BYTES_MAX) {
        node.wrong("is too long", format!("a word has at most {WORD_BYTES_MAX} bytes; use \"{{value}}\" for payloads"));
        return None;
    }
    let command = words[0].to_ascii_uppercase();
    if command.is_empty() || command.contains('{') {
        list[0].wrong(format!("is \"{}\"", words[0]), "the first word is the name of a command");
        return None;
    }
    if NOT_ONE_REPLY.contains(&command.as_str()) {
        let remedy = "use commands with exactly one reply that leave connection and key space as they are";
        list[0].wrong(format!("is \"{command}\", which a load cannot be made of"), remedy);
        return None;
    }
    Some(CommandKind::Raw { words })
}
