//! Limits and times. A default of PgBouncer that is not Weir's is written.

use super::amount::{self, COUNT_MAX, DAY, bounded, count, needed, time};
use super::ini::{Entry, Ini};
use crate::note::{Mistake, Note};
use crate::toml::{Table, Value};

/// Seconds in microseconds.
const fn secs(seconds: u64) -> u64 {
    seconds * 1_000_000
}

/// The mode of an entry.
pub(super) fn pool_mode(mode: &str) -> Option<&'static str> {
    ["session", "transaction", "statement"].into_iter().find(|known| *known == mode)
}

/// The mode for all databases.
pub(super) fn default_pool_mode(ini: &Ini) -> Result<&'static str, Mistake> {
    let Some(entry) = ini.get("pool_mode") else { return Ok("session") };
    pool_mode(&entry.value).ok_or_else(|| entry.wrong("is no mode: session, transaction or statement"))
}

/// Keys of a listener.
pub(super) fn listener(ini: &Ini, pool_mode: &str, more: &mut Table, notes: &mut Vec<Note>) -> Result<(), Mistake> {
    more.set("backlog", Value::Number(count(ini, "listen_backlog", 128)?.clamp(1, 65_535)));
    let table = more.table("postgres");
    // The address decides about it later; here it takes its place before the other keys.
    table.set("auth", Value::text(""));
    table.set("pool_mode", Value::text(pool_mode));
    for key in ["admin_users", "stats_users"] {
        users(ini, key, table, notes);
    }
    for (key, default) in [("client_login_timeout", secs(60)), ("query_wait_timeout", secs(120))] {
        let micros = time(ini, key, default)?;
        table.set(key, needed(ini, key, micros, notes));
    }
    if ini.get("query_wait_notify").is_some() {
        let micros = time(ini, "query_wait_notify", secs(5))?;
        table.set("query_wait_notify", bounded(ini, "query_wait_notify", micros, amount::HOUR, notes));
    }
    let micros = time(ini, "idle_transaction_timeout", 0)?;
    table.set("idle_transaction_timeout", bounded(ini, "idle_transaction_timeout", micros, DAY, notes));
    for (key, most) in [("query_timeout", DAY), ("client_idle_timeout", 30 * DAY)] {
        let micros = time(ini, key, 0)?;
        if micros > 0 {
            table.set(key, bounded(ini, key, micros, most, notes));
        }
    }
    Ok(())
}

/// Users of the admin console.
fn users(ini: &Ini, key: &str, table: &mut Table, notes: &mut Vec<Note>) {
    let Some(entry) = ini.get(key) else { return };
    let (words, others): (Vec<&str>, Vec<&str>) = amount::list(&entry.value).partition(|word| amount::is_word(word));
    if !others.is_empty() {
        let why = "names of users are printable ASCII without spaces; the others are left out";
        notes.push(Note::new(&entry.place, entry.text(), why, ""));
    }
    if !words.is_empty() {
        table.set(key, Value::texts(words));
    }
}

/// Keys of an upstream, without those that its entry in `[databases]` overrides.
pub(super) fn upstream(ini: &Ini, more: &mut Table, notes: &mut Vec<Note>) -> Result<(), Mistake> {
    let micros = time(ini, "server_connect_timeout", secs(15))?;
    more.set("connect_timeout", needed(ini, "server_connect_timeout", micros, notes));
    reset_query(ini, more, notes);
    let table = more.table("postgres");
    table.set("pool_size", Value::Number(count(ini, "default_pool_size", 20)?.max(1)));
    for key in ["min_pool_size", "reserve_pool_size", "max_db_connections", "max_user_connections"] {
        let count = count(ini, key, 0)?;
        if count > 0 {
            table.set(key, Value::Number(count));
        }
    }
    let wait = time(ini, "reserve_pool_timeout", secs(5))?;
    table.set("reserve_pool_timeout", bounded(ini, "reserve_pool_timeout", wait, amount::HOUR, notes));
    let lifetime = time(ini, "server_lifetime", secs(3_600))?;
    if lifetime == 0 {
        // At PgBouncer 0 means one use; at Weir it means no limit.
        table.set("server_lifetime", Value::millis(1));
    } else {
        table.set("server_lifetime", bounded(ini, "server_lifetime", lifetime, 30 * DAY, notes));
    }
    let idle = time(ini, "server_idle_timeout", secs(600))?;
    table.set("server_idle_timeout", bounded(ini, "server_idle_timeout", idle, 30 * DAY, notes));
    let delay = time(ini, "server_check_delay", secs(30))?;
    table.set("server_check_delay", bounded(ini, "server_check_delay", delay, DAY, notes));
    Ok(())
}

/// A query of the file is used as PgBouncer uses it: in session mode, or always if it says so.
fn reset_query(ini: &Ini, more: &mut Table, notes: &mut Vec<Note>) {
    let Some(entry) = ini.get("server_reset_query") else { return };
    let is_always = ini.get("server_reset_query_always").is_some_and(|entry| amount::is_on(entry) == Ok(true));
    let is_session = matches!(ini.text("pool_mode"), "" | "session");
    let mut note = |why: &str| notes.push(Note::new(&entry.place, entry.text(), why, "server_reset_query"));
    match (&*entry.value, is_session || is_always) {
        ("", _) => note("a connection with state left is reset all the same"),
        // The default of both. Weir's own choice cleans as much, and keeps prepared statements.
        ("DISCARD ALL", _) => {}
        (query, true) => more.set("postgres.server_reset_query", Value::text(query)),
        (_, false) => {
            note("PgBouncer does not use it in this pool mode; Weir resets a connection with state left by itself")
        }
    }
}

/// The count of a parameter of a connection string, within `least` and the limit of `weir.toml`.
pub(super) fn own_count(entry: &Entry, key: &str, value: &str) -> Result<u64, Mistake> {
    let number = amount::number(value).filter(|number| *number <= COUNT_MAX);
    number.ok_or_else(|| Mistake::new(&entry.place, format!("{key} of `{}` is no number", entry.key)))
}

/// Makes counts fit each other, as PgBouncer does: no more than the pool stay open, and 0 turns the reserve off.
pub(super) fn settle(table: &mut Table) {
    let number = |table: &Table, key: &str| match table.get(key) {
        Some(Value::Number(number)) => *number,
        _ => 0,
    };
    let size = number(table, "pool_size");
    if number(table, "min_pool_size") > size {
        table.set("min_pool_size", Value::Number(size));
    }
    let has_no_wait = table.get("reserve_pool_timeout") == Some(&Value::micros(0));
    if has_no_wait || number(table, "reserve_pool_size") == 0 {
        table.remove_key("reserve_pool_size");
        table.remove_key("reserve_pool_timeout");
    }
    for key in ["min_pool_size", "max_db_connections", "max_user_connections"] {
        if number(table, key) == 0 {
            table.remove_key(key);
        }
    }
}
