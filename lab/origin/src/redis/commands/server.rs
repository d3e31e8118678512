//! Commands about the server.

use std::{fmt::Write, sync::atomic::Ordering};

use crate::redis::{
    dispatch::Context,
    errors::{self, Refusal, SYNTAX},
    glob,
    reply::Reply,
    store::DATABASES,
    table::{self, COMMANDS, Command},
};

/// The server whose texts and shapes are reproduced. Clients choose features by it.
pub const VERSION: &str = "7.0.15";

pub fn dbsize(cx: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    reply.count(cx.keys().len());
    Ok(())
}

pub fn flushdb(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    check_flush(args)?;
    cx.keys().clear();
    reply.ok();
    Ok(())
}

pub fn flushall(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    check_flush(args)?;
    cx.core.store.borrow_mut().clear();
    reply.ok();
    Ok(())
}

/// `ASYNC` and `SYNC` are both taken and both done at once.
fn check_flush(args: &[&[u8]]) -> Result<(), Refusal> {
    match args {
        [_] => Ok(()),
        [_, how] if how.eq_ignore_ascii_case(b"async") || how.eq_ignore_ascii_case(b"sync") => Ok(()),
        _ => Err(SYNTAX),
    }
}

pub fn command(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let is_fixed = cx.core.payload.is_some();
    let known: Vec<&Command> = COMMANDS.iter().filter(|command| !is_fixed || command.fixed.is_some()).collect();
    let Some(subcommand) = args.get(1) else {
        reply.array(known.len());
        known.into_iter().for_each(|command| describe(command, reply));
        return Ok(());
    };
    match (subcommand.to_ascii_lowercase().as_slice(), args.len()) {
        (b"count", 2) => reply.count(known.len()),
        // Help texts for people; a client without them offers no hints.
        (b"docs", _) => reply.map(0),
        (b"list", 2) => {
            reply.array(known.len());
            known.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
        }
        (b"info", 2) => {
            reply.array(known.len());
            known.into_iter().for_each(|command| describe(command, reply));
        }
        (b"info", _) => {
            reply.array(args.len() - 2);
            for name in &args[2..] {
                match table::find(name) {
                    Some(command) => describe(command, reply),
                    None => reply.null_array(),
                }
            }
        }
        (b"count" | b"list", _) => {
            let name = String::from_utf8_lossy(subcommand).to_ascii_lowercase();
            return Err(errors::arity(&format!("command|{name}")));
        }
        _ => return Err(errors::unknown_subcommand("COMMAND", subcommand)),
    }
    Ok(())
}

fn describe(command: &Command, reply: &mut Reply<'_>) {
    let flags =
        [(table::READ, "readonly"), (table::WRITE, "write"), (table::GROWS, "denyoom"), (table::NO_AUTH, "no_auth")];
    reply.array(6);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    reply.set(flags.iter().filter(|(flag, _)| command.is(*flag)).count());
    for (_, name) in flags.iter().filter(|(flag, _)| command.is(*flag)) {
        reply.simple(name);
    }
    let (first, last, step) = command.keys;
    for position in [first, last, step] {
        reply.integer(i64::from(position));
    }
}

/// `CONFIG GET` of the few settings that tools ask for; nothing can be set.
pub fn config(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    if !args[1].eq_ignore_ascii_case(b"get") {
        return Err(errors::unknown_subcommand("CONFIG", args[1]));
    }
    if args.len() < 3 {
        return Err(errors::arity("config|get"));
    }
    let settings = [
        ("appendonly", "no".to_owned()),
        ("databases", DATABASES.to_string()),
        ("maxclients", cx.core.settings.connections_max.to_string()),
        ("maxmemory", cx.core.memory.bytes_max().to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("proto-max-bulk-len", cx.core.settings.message_bytes_max.to_string()),
        ("save", String::new()),
    ];
    let is_wanted =
        |name: &str| args[2..].iter().any(|wanted| glob::matches(&wanted.to_ascii_lowercase(), name.as_bytes()));
    let wanted: Vec<_> = settings.iter().filter(|(name, _)| is_wanted(name)).collect();
    reply.map(wanted.len());
    for (name, value) in wanted {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

pub fn info(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let is_wanted = |section: &str| {
        let names = |arg: &&[u8]| {
            [section, "all", "default", "everything"].iter().any(|name| arg.eq_ignore_ascii_case(name.as_bytes()))
        };
        args.len() == 1 || args[1..].iter().any(names)
    };
    let mut text = String::new();
    for section in ["Server", "Clients", "Memory", "Stats", "Replication", "Keyspace"] {
        if is_wanted(section) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            let _ = write!(text, "{gap}# {section}\r\n{}", info_section(cx, section));
        }
    }
    reply.verbatim(text.as_bytes());
    Ok(())
}

fn info_section(cx: &Context<'_>, section: &str) -> String {
    let core = cx.core;
    match section {
        "Server" => format!(
            "redis_version:{VERSION}\r\nserver_name:weir-origin\r\nredis_mode:standalone\r\nprocess_id:{}\r\n\
             uptime_in_seconds:{}\r\n",
            std::process::id(),
            cx.now.since(core.start).as_secs()
        ),
        "Clients" => format!("connected_clients:{}\r\n", core.stats.connections.load(Ordering::Relaxed)),
        "Memory" => format!(
            "used_memory:{}\r\nmaxmemory:{}\r\nmaxmemory_policy:noeviction\r\n",
            core.memory.used(),
            core.memory.bytes_max()
        ),
        "Stats" => format!(
            "total_connections_received:{}\r\ntotal_commands_processed:{}\r\n",
            core.stats.accepted.load(Ordering::Relaxed),
            core.stats.requests.load(Ordering::Relaxed)
        ),
        "Replication" => "role:master\r\nconnected_slaves:0\r\n".to_owned(),
        _ => {
            let mut text = String::new();
            for (index, keys) in core.store.borrow().iter().enumerate().filter(|(_, keys)| keys.len() > 0) {
                let (count, expiring) = (keys.len(), keys.expiring());
                let _ = write!(text, "db{index}:keys={count},expires={expiring},avg_ttl=0\r\n");
            }
            text
        }
    }
}
