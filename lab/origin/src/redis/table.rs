//! The commands an origin knows.

use super::{
    commands::{clients, counters, expiry, fixed, hashes, keys, lists, pubsub, server, sets, strings, transactions},
    dispatch::Context,
    errors::Refusal,
    reply::Reply,
};

/// Reads keys.
pub const READ: u8 = 1;
/// Changes keys.
pub const WRITE: u8 = 2;
/// May need memory, so it is refused when there is none (Redis' `denyoom`).
pub const GROWS: u8 = 4;
/// Allowed before authentication.
pub const NO_AUTH: u8 = 8;
/// Allowed to a RESP2 subscriber.
pub const SUBSCRIBER: u8 = 16;
/// Runs at once inside a transaction.
pub const IMMEDIATE: u8 = 32;
const STORES: u8 = WRITE | GROWS;

/// `args[0]` is the command's name; the number of arguments has been checked.
pub type Handler = fn(&mut Context<'_>, &[&[u8]], &mut Reply<'_>) -> Result<(), Refusal>;

/// One command.
pub struct Command {
    /// In lower case.
    pub name: &'static str,
    /// Arguments with the name; negative: at least that many.
    pub arity: i32,
    flags: u8,
    /// First key, last key (negative: from the end) and step, as `COMMAND` tells them.
    pub keys: (i32, i32, i32),
    /// In memory mode.
    pub run: Handler,
    /// In fixed mode, if it is known there.
    pub fixed: Option<Handler>,
}

impl Command {
    /// Whether it has one of these flags.
    #[inline]
    pub fn is(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    #[inline]
    pub fn takes(&self, count: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { count >= least } else { count == least }
    }
}

/// Longest name in the table.
const NAME_BYTES_MAX: usize = 16;

/// The command of this name, in any case.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut buffer = [0; NAME_BYTES_MAX];
    let lower = buffer.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let lower = &*lower;
    let found = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(lower)).ok()?;
    Some(&COMMANDS[found])
}

/// A command without keys, the same in both modes.
const fn plain(name: &'static str, arity: i32, flags: u8, run: Handler) -> Command {
    Command { name, arity, flags, keys: (0, 0, 0), run, fixed: Some(run) }
}

/// A command of the memory mode alone.
const fn memory(name: &'static str, arity: i32, flags: u8, keys: (i32, i32, i32), run: Handler) -> Command {
    Command { name, arity, flags, keys, run, fixed: None }
}

/// A command with another handler in each mode.
const fn both(
    name: &'static str,
    arity: i32,
    flags: u8,
    keys: (i32, i32, i32),
    run: Handler,
    fixed: Handler,
) -> Command {
    Command { name, arity, flags, keys, run, fixed: Some(fixed) }
}

const NONE: (i32, i32, i32) = (0, 0, 0);
const ONE: (i32, i32, i32) = (1, 1, 1);
const ALL: (i32, i32, i32) = (1, -1, 1);

/// In order of names.
pub static COMMANDS: &[Command] = &[
    both("append", 3, STORES, ONE, strings::append, fixed::one),
    plain("auth", -2, NO_AUTH, clients::auth),
    plain("client", -2, 0, clients::client),
    plain("command", -1, 0, server::command),
    plain("config", -2, 0, server::config),
    memory("dbsize", 1, 0, NONE, server::dbsize),
    both("decr", 2, STORES, ONE, counters::decr, fixed::one),
    both("decrby", 3, STORES, ONE, counters::decrby, fixed::one),
    both("del", -2, WRITE, ALL, keys::del, fixed::count),
    plain("discard", 1, IMMEDIATE, transactions::discard),
    plain("echo", 2, 0, clients::echo),
    plain("exec", 1, IMMEDIATE, transactions::exec),
    both("exists", -2, READ, ALL, keys::exists, fixed::count),
    both("expire", -3, WRITE, ONE, expiry::expire, fixed::one),
    memory("flushall", -1, WRITE, NONE, server::flushall),
    memory("flushdb", -1, WRITE, NONE, server::flushdb),
    both("get", 2, READ, ONE, strings::get, fixed::get),
    memory("getdel", 2, WRITE, ONE, strings::getdel),
    memory("getset", 3, STORES, ONE, strings::getset),
    memory("hdel", -3, WRITE, ONE, hashes::hdel),
    plain("hello", -1, NO_AUTH, clients::hello),
    both("hget", 3, READ, ONE, hashes::hget, fixed::get),
    memory("hgetall", 2, READ, ONE, hashes::hgetall),
    memory("hlen", 2, READ, ONE, hashes::hlen),
    both("hmget", -3, READ, ONE, hashes::hmget, fixed::get_fields),
    both("hset", -4, STORES, ONE, hashes::hset, fixed::one),
    both("incr", 2, STORES, ONE, counters::incr, fixed::one),
    both("incrby", 3, STORES, ONE, counters::incrby, fixed::one),
    plain("info", -1, 0, server::info),
    memory("keys", 2, READ, NONE, keys::keys),
    memory("llen", 2, READ, ONE, lists::llen),
    memory("lpop", -2, WRITE, ONE, lists::lpop),
    both("lpush", -3, STORES, ONE, lists::lpush, fixed::one),
    memory("lrange", 4, READ, ONE, lists::lrange),
    both("mget", -2, READ, ALL, strings::mget, fixed::get_keys),
    both("mset", -3, STORES, (1, -1, 2), strings::mset, fixed::ok),
    plain("multi", 1, IMMEDIATE, transactions::multi),
    memory("persist", 2, WRITE, ONE, expiry::persist),
    both("pexpire", -3, WRITE, ONE, expiry::pexpire, fixed::one),
    plain("ping", -1, SUBSCRIBER, clients::ping),
    memory("pttl", 2, READ, ONE, expiry::pttl),
    plain("publish", 3, 0, pubsub::publish),
    plain("quit", -1, NO_AUTH | SUBSCRIBER | IMMEDIATE, clients::quit),
    plain("reset", 1, NO_AUTH | SUBSCRIBER | IMMEDIATE, clients::reset),
    memory("rpop", -2, WRITE, ONE, lists::rpop),
    both("rpush", -3, STORES, ONE, lists::rpush, fixed::one),
    both("sadd", -3, STORES, ONE, sets::sadd, fixed::one),
    memory("scan", -2, READ, NONE, keys::scan),
    memory("scard", 2, READ, ONE, sets::scard),
    plain("select", 2, 0, clients::select),
    both("set", -3, STORES, ONE, strings::set, fixed::ok),
    memory("sismember", 3, READ, ONE, sets::sismember),
    memory("smembers", 2, READ, ONE, sets::smembers),
    memory("srem", -3, WRITE, ONE, sets::srem),
    memory("strlen", 2, READ, ONE, strings::strlen),
    plain("subscribe", -2, SUBSCRIBER, pubsub::subscribe),
    both("touch", -2, READ, ALL, keys::exists, fixed::count),
    memory("ttl", 2, READ, ONE, expiry::ttl),
    memory("type", 2, READ, ONE, keys::key_type),
    both("unlink", -2, WRITE, ALL, keys::del, fixed::count),
    plain("unsubscribe", -1, SUBSCRIBER, pubsub::unsubscribe),
    plain("unwatch", 1, 0, transactions::unwatch),
    plain("watch", -2, IMMEDIATE, transactions::watch),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_every_name_is_found_in_any_case() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        for command in COMMANDS {
            let upper = command.name.to_ascii_uppercase();
            assert_eq!(find(upper.as_bytes()).map(|found| found.name), Some(command.name));
        }
        assert!(find(b"").is_none() && find(b"gets").is_none() && find(&[b'g'; 99]).is_none());
    }
}
