//! One key of the reference, for a terminal: `weir explain KEY`.

use std::fmt::Write as _;

use weir_base::nearest;

use crate::change::needs_restart;
use crate::numbers::Period;
use crate::reader::OTHER_WORDS;
use crate::reference::{default, value};
use crate::section::{Section as _, joined};
use crate::sections::FileSection;
use crate::value::{FieldInfo, Presence, Shape, TableInfo, prose};

/// Columns of the text.
const WIDTH: usize = 96;
/// Durations that an example may have; the first one in the range of the key is taken.
const PERIODS: [&str; 3] = ["30s", "500ms", "10m"];
/// Lists whose words have a form that their type does not say.
const LISTS: [(&str, &str); 3] = [("types", "[\"text/html\"]"), ("allow_methods", "[\"GET\"]"), ("statuses", "[503]")];
/// Most keys that are proposed for a mistake.
const PROPOSALS_MAX: usize = 12;

/// A key or a table, and where it stands.
struct ExplainedKey {
    /// `listener.redis.password`.
    path: String,
    /// `[listener.redis]`; of a table its own header.
    header: String,
    field: FieldInfo,
}

/// The reference on a key or a table. `key` is a path (`listener.redis.password`, also `listener[0].bind` as
/// diagnostics print it), a header (`[listener.redis]`), or the end of a path (`password`, `redis.password`): then all places are named.
///
/// # Errors
/// In words: there is no such key, and which ones are near.
pub fn explain(key: &str) -> Result<String, String> {
    let wanted = without_places(key.trim()).replace(['[', ']'], "");
    let mut all = Vec::new();
    collect(&FileSection::info(), "", "", &mut all);
    let exact = |wanted: &str| all.iter().filter(|found| found.path == wanted).collect::<Vec<_>>();
    let mut found = exact(&wanted);
    if found.is_empty() {
        let end = format!(".{wanted}");
        found = all.iter().filter(|found| found.path.ends_with(&end)).collect();
    }
    if found.is_empty() {
        // As the outcome of a reload names keys: `listener.cache.idle_timeout`.
        let mut parts: Vec<&str> = wanted.split('.').collect();
        if parts.len() > 2 {
            parts.remove(1);
            found = exact(&parts.join("."));
        }
    }
    if found.is_empty() {
        return Err(unknown(&wanted, &all));
    }
    Ok(page(&found))
}

/// A path without the places in its lists, with which diagnostics print it: `listener[0].bind`.
fn without_places(path: &str) -> String {
    let mut parts = path.split('[');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(']') {
            Some((number, rest)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
                out.push_str(rest);
            }
            _ => out.extend(["[", part]),
        }
    }
    out
}

/// Every key and table of `info`, which stands at `path` under `header`.
fn collect(info: &TableInfo, path: &str, header: &str, found: &mut Vec<ExplainedKey>) {
    for field in &info.fields {
        let own = joined(path, field.key);
        let (table, own_header) = match &field.shape {
            Shape::Table(table) => (Some(table), format!("[{own}]")),
            Shape::Tables(table) => (Some(table), format!("[[{own}]]")),
            _ => (None, header.to_owned()),
        };
        found.push(ExplainedKey { path: own.clone(), header: own_header.clone(), field: field.clone() });
        if let Some(table) = table {
            collect(table, &own, &own_header, found);
        }
    }
}

/// Keys with the same declaration are one paragraph.
fn page(found: &[&ExplainedKey]) -> String {
    let mut text = String::new();
    let mut rest: Vec<&ExplainedKey> = found.to_vec();
    while let Some(first) = rest.first().copied() {
        let same = |other: &&ExplainedKey| {
            other.field == first.field && needs_restart(&other.path) == needs_restart(&first.path)
        };
        let (together, others): (Vec<&ExplainedKey>, Vec<&ExplainedKey>) = rest.into_iter().partition(same);
        if !text.is_empty() {
            text.push('\n');
        }
        match &first.field.shape {
            Shape::Table(table) | Shape::Tables(table) => table_text(&together, table, &mut text),
            _ => key_text(&together, &mut text),
        }
        rest = others;
    }
    text
}

fn key_text(places: &[&ExplainedKey], text: &mut String) {
    let Some(first) = places.first() else { return };
    let field = &first.field;
    let headers: Vec<&str> = places.iter().map(|found| found.header.as_str()).collect();
    let paths: Vec<&str> = places.iter().map(|found| found.path.as_str()).collect();
    let reload = match first.path.as_str() {
        path if needs_restart(path) => "a change needs a restart",
        "telemetry.level" => "applies a change; a change to or from off needs a restart",
        _ => "applies a change",
    };
    let _ = writeln!(text, "{}", paths.join("\n"));
    let rows = [
        ("table", headers.join(", ")),
        ("value", value(field).replace('`', "")),
        ("default", plain_default(&field.presence)),
        ("reload", reload.to_owned()),
        ("example", format!("{} = {}", field.key, example(field))),
    ];
    for (name, row) in rows {
        let _ = writeln!(text, "  {name:<10} {row}");
    }
    wrap(&prose(&field.doc), text);
}

fn table_text(places: &[&ExplainedKey], table: &TableInfo, text: &mut String) {
    let headers: Vec<&str> = places.iter().map(|found| found.header.as_str()).collect();
    let _ = writeln!(text, "{}", headers.join("\n"));
    wrap(&prose(table.doc), text);
    for field in &table.fields {
        let what = match &field.shape {
            Shape::Table(_) | Shape::Tables(_) => "table".to_owned(),
            _ => format!("{}; default: {}", value(field).replace('`', ""), plain_default(&field.presence)),
        };
        let _ = writeln!(text, "  {:<26} {what}", field.key);
    }
}

fn plain_default(presence: &Presence) -> String {
    match presence {
        Presence::Optional => "none".to_owned(),
        other => default(other).replace('`', ""),
    }
}

/// A value that the key takes: its default, one of its range, or the example of its type.
fn example(field: &FieldInfo) -> String {
    if let Some((_, list)) = LISTS.iter().find(|(key, _)| *key == field.key) {
        return (*list).to_owned();
    }
    match (&field.presence, &field.range) {
        (Presence::Default(value), _) => value.to_string(),
        (_, Some((lowest, highest))) if field.shape == Shape::Period => {
            let parsed = |text: &str| text.parse::<Period>().map(|period| period.0).unwrap_or_default();
            let bounds = [lowest, highest].map(|bound| parsed(bound.as_str().unwrap_or_default()));
            let is_in_range = |text: &&str| (bounds[0]..=bounds[1]).contains(&parsed(text));
            PERIODS.into_iter().find(is_in_range).map_or_else(|| lowest.to_string(), |text| format!("\"{text}\""))
        }
        (_, Some((lowest, _))) if !matches!(field.shape, Shape::List(_)) => lowest.to_string(),
        _ => plain_example(&field.shape),
    }
}

fn plain_example(shape: &Shape) -> String {
    match shape {
        Shape::Size => "\"64KiB\"".to_owned(),
        Shape::Period => "\"500ms\"".to_owned(),
        Shape::Secret => "{ env = \"NAME\" }".to_owned(),
        Shape::List(inner) => format!("[{}]", plain_example(inner)),
        other => other.example(),
    }
}

/// Lines of at most [`WIDTH`] columns, with a margin.
fn wrap(words: &str, text: &mut String) {
    let mut line = String::from(" ");
    for word in words.split(' ') {
        if line.len() + word.len() >= WIDTH && line.len() > 1 {
            let _ = writeln!(text, "{line}");
            line = String::from(" ");
        }
        let _ = write!(line, " {word}");
    }
    let _ = writeln!(text, "{line}");
}

/// The keys that may have been meant.
fn unknown(wanted: &str, all: &[ExplainedKey]) -> String {
    let last = wanted.rsplit('.').next().unwrap_or(wanted);
    let paths = || all.iter().map(|found| found.path.as_str());
    let keys = || all.iter().map(|found| found.field.key);
    let of_others = OTHER_WORDS.iter().find(|(other, _)| *other == last).map(|(_, key)| *key);
    let mut near: Vec<&str> =
        nearest(wanted, paths()).or_else(|| nearest(last, keys())).or(of_others).into_iter().collect();
    near.extend(paths().filter(|path| path.contains(last)));
    near.dedup();
    near.truncate(PROPOSALS_MAX);
    match near.is_empty() {
        true => format!("there is no key `{wanted}`; docs/CONFIG.md and `weir check --reference` list all keys"),
        false => format!("there is no key `{wanted}`; did you mean {}?", near.join(", ")),
    }
}
