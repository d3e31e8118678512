//! Numbers, times and switches of entries.

use super::ini::{Entry, Ini};
use crate::note::{Mistake, Note};
use crate::toml::Value;

/// Values above it are no counts of connections. The limit of `weir.toml`.
pub(super) const COUNT_MAX: u64 = 16_777_216;

pub(super) const HOUR: u64 = 3_600_000_000;
pub(super) const DAY: u64 = 24 * HOUR;

/// A whole number of zero or more.
pub(super) fn number(text: &str) -> Option<u64> {
    text.parse::<u64>().ok().map(|number| number.min(COUNT_MAX))
}

/// Microseconds of a number of seconds, perhaps with a fraction.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let seconds: f64 = text.parse().ok()?;
    (seconds.is_finite() && (0.0..1e12).contains(&seconds)).then(|| (seconds * 1e6).round() as u64)
}

/// The count of an entry of `[pgbouncer]`, or PgBouncer's default.
pub(super) fn count(ini: &Ini, key: &str, default: u64) -> Result<u64, Mistake> {
    let Some(entry) = ini.get(key) else { return Ok(default) };
    number(&entry.value).ok_or_else(|| entry.wrong("is no number"))
}

/// The time of an entry in microseconds, or PgBouncer's default.
pub(super) fn time(ini: &Ini, key: &str, default: u64) -> Result<u64, Mistake> {
    let Some(entry) = ini.get(key) else { return Ok(default) };
    seconds(&entry.value).ok_or_else(|| entry.wrong("is no number of seconds"))
}

/// Whether an entry is switched on.
pub(super) fn is_on(entry: &Entry) -> Result<bool, Mistake> {
    match &*entry.value.to_ascii_lowercase() {
        "1" | "on" | "yes" | "true" => Ok(true),
        "0" | "off" | "no" | "false" => Ok(false),
        _ => Err(entry.wrong("is neither 0 nor 1")),
    }
}

/// A time that Weir has at most `most` of. The bound is noted if it counts.
pub(super) fn bounded(ini: &Ini, key: &str, micros: u64, most: u64, notes: &mut Vec<Note>) -> Value {
    if micros > most
        && let Some(entry) = ini.get(key)
    {
        notes.push(Note::new(
            &entry.place,
            entry.text(),
            "the time is longer than Weir's longest, which is written",
            "",
        ));
    }
    Value::micros(micros.min(most))
}

/// A time of which 0 means none. Weir always has a limit there: the longest.
pub(super) fn needed(ini: &Ini, key: &str, micros: u64, notes: &mut Vec<Note>) -> Value {
    if micros == 0
        && let Some(entry) = ini.get(key)
    {
        notes.push(Note::new(&entry.place, entry.text(), "there is always a limit; the longest is written", ""));
        return Value::micros(HOUR);
    }
    bounded(ini, key, micros.max(1_000), HOUR, notes)
}

/// The words of a list with commas.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// Whether `weir.toml` takes a name: printable ASCII without spaces.
pub(super) fn is_word(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
