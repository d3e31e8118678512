//! The declarations as a page for people.

use std::fmt::Write as _;

use crate::change::needs_restart;
use crate::section::Section as _;
use crate::sections::FileSection;
use crate::value::{FieldInfo, Presence, Shape, TableInfo, prose};

const HEAD: &str = "\
# weir.toml

Generated from the declarations in `control/config/src/sections.rs` and `control/config/src/protocols`; do not edit.

The file is TOML and strict: an unknown key is an error, and every mistake is reported at once, with its line and a
remedy (`weir check weir.toml`). `weir check --schema` prints a JSON Schema for editors.

| written as | examples |
|---|---|
| duration | `\"250us\"`, `\"500ms\"`, `\"30s\"`, `\"2m\"`, `\"1h\"`, `\"7d\"`: a whole number and its unit |
| size | `\"512B\"`, `\"64KiB\"`, `\"1MiB\"`, `\"2GiB\"`, or a number of bytes |
| address | `\"127.0.0.1:6379\"`, `\"[::1]:6379\"`, `\"redis.internal:6379\"` (not for `bind`), `\"unix:/run/redis.sock\"` |
| secret | `\"env:NAME\"` or `\"file:/path\"`, or as a table `{ env = \"NAME\" }`, `{ file = \"/path\" }`; never in plain text. A file must be readable by its owner only |
| path | absolute, or relative to the directory of this file |

A reload (SIGHUP, or `POST /api/v1/reload`) applies every change at once without dropping a connection, except changes of keys
that are marked \"Needs a restart\". The outcome of the reload names the keys that changed.

";

/// The reference of `weir.toml` in Markdown.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for field in &FileSection::info().fields {
        table(&mut page, field.key, field);
    }
    // One line end at the end of the file.
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

/// One table of the file, and then the tables in it.
fn table(page: &mut String, path: &str, field: &FieldInfo) {
    let (info, header) = match &field.shape {
        Shape::Table(info) => (info, format!("[{path}]")),
        Shape::Tables(info) => (info, format!("[[{path}]]")),
        _ => return,
    };
    let _ = writeln!(page, "## `{header}`\n\n{}\n", prose(info.doc));
    keys(page, path, info);
    for field in &info.fields {
        table(page, &format!("{path}.{}", field.key), field);
    }
}

fn keys(page: &mut String, path: &str, info: &TableInfo) {
    page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for field in &info.fields {
        if matches!(field.shape, Shape::Table(_) | Shape::Tables(_)) {
            continue;
        }
        let default = default(&field.presence);
        let restart = if needs_restart(&format!("{path}.{}", field.key)) { " Needs a restart." } else { "" };
        let _ = writeln!(
            page,
            "| `{}` | {} | {default} | {}{restart} |",
            field.key,
            value(field),
            prose(&field.doc).replace('|', "\\|"),
        );
    }
    page.push('\n');
}

/// The default in words; `-` if there is none.
pub(crate) fn default(presence: &Presence) -> String {
    match presence {
        Presence::Required => "required".to_owned(),
        Presence::Optional => "-".to_owned(),
        Presence::Default(value) => format!("`{value}`"),
    }
}

/// Type and range in words.
pub(crate) fn value(field: &FieldInfo) -> String {
    let what = match &field.shape {
        Shape::Boolean => "boolean".to_owned(),
        Shape::Integer => "number".to_owned(),
        Shape::Ratio => "0.0 to 1.0".to_owned(),
        Shape::Size => "size".to_owned(),
        Shape::Period => "duration".to_owned(),
        Shape::Text { example, .. } => format!("text, such as `\"{example}\"`"),
        Shape::Choice(words) => words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(" "),
        // No number is in the range of every list.
        Shape::List(inner) if **inner == Shape::Integer => "list of numbers".to_owned(),
        Shape::List(inner) => format!("list, such as `[{}]`", inner.example()),
        Shape::Secret => "secret".to_owned(),
        Shape::Table(_) | Shape::Tables(_) => "table".to_owned(),
    };
    match &field.range {
        Some((low, high)) => format!("{what}, {} to {}", bare(low), bare(high)),
        None => what,
    }
}

fn bare(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
