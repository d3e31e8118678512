//! Statements that set parameters: names and values as SQL.

use super::{AUTHORIZATION, ROLE, Value};

/// Lists of names: their values are quoted already, and as one string they would be one name.
const NAME_LISTS: [&[u8]; 5] = [
    b"search_path",
    b"temp_tablespaces",
    b"local_preload_libraries",
    b"session_preload_libraries",
    b"unix_socket_directories",
];

/// One statement; `None` is the default.
pub(crate) fn assign(out: &mut Vec<u8>, name: &[u8], value: Option<&Value>) {
    match (name, value) {
        (_, Some(Value::Config(string))) => {
            out.extend_from_slice(b"SELECT pg_catalog.set_config(");
            quote(out, name, b'\'');
            out.push(b',');
            out.extend_from_slice(string);
            out.extend_from_slice(b",false);");
        }
        (AUTHORIZATION, None) => out.extend_from_slice(b"SET SESSION AUTHORIZATION DEFAULT;"),
        (AUTHORIZATION, Some(value)) => {
            out.extend_from_slice(b"SET SESSION AUTHORIZATION ");
            write_value(out, name, value);
            out.push(b';');
        }
        (ROLE, None) => out.extend_from_slice(b"RESET ROLE;"),
        (ROLE, Some(value)) => {
            out.extend_from_slice(b"SET ROLE ");
            write_value(out, name, value);
            out.push(b';');
        }
        (_, None) => {
            out.extend_from_slice(b"RESET ");
            write_name(out, name);
            out.push(b';');
        }
        (_, Some(value)) => {
            out.extend_from_slice(b"SET ");
            write_name(out, name);
            out.extend_from_slice(b" = ");
            write_value(out, name, value);
            out.push(b';');
        }
    }
}

/// Each part of a name in quotes: a client chose it, and it is no SQL.
fn write_name(out: &mut Vec<u8>, name: &[u8]) {
    for (index, part) in name.split(|&byte| byte == b'.').enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        quote(out, part, b'"');
    }
}

/// A name of anything, in quotes.
pub(crate) fn quote_name(out: &mut Vec<u8>, name: &[u8]) {
    quote(out, name, b'"');
}

fn write_value(out: &mut Vec<u8>, name: &[u8], value: &Value) {
    match value {
        Value::Expression(text) | Value::Config(text) => out.extend_from_slice(text),
        Value::Literal(text) if NAME_LISTS.contains(&name) => write_names(out, text),
        Value::Literal(text) => {
            // In this form a backslash has one meaning, whatever `standard_conforming_strings` says.
            if text.contains(&b'\\') {
                out.extend_from_slice(b" E");
                let doubled: Vec<u8> = text
                    .iter()
                    .flat_map(|&byte| std::iter::repeat_n(byte, if byte == b'\\' { 2 } else { 1 }))
                    .collect();
                return quote(out, &doubled, b'\'');
            }
            quote(out, text, b'\'');
        }
    }
}

/// A list of names as the server prints it, each name quoted again: what a client wrote at startup is no SQL either.
fn write_names(out: &mut Vec<u8>, list: &[u8]) {
    let start = out.len();
    let mut rest = list.trim_ascii();
    while !rest.is_empty() {
        if out.len() > start {
            out.push(b',');
        }
        let name;
        (name, rest) = next_name(rest);
        quote(out, &name, b'"');
    }
    if out.len() == start {
        out.extend_from_slice(b"''");
    }
}

/// The first name of a list, and what stands behind its comma.
fn next_name(list: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut name = Vec::new();
    let mut is_quoted = false;
    let mut at = 0;
    while at < list.len() {
        match list[at] {
            b'"' if is_quoted && list.get(at + 1) == Some(&b'"') => {
                name.push(b'"');
                at += 1;
            }
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return (trim_end(name), list[at + 1..].trim_ascii_start()),
            byte if is_quoted => name.push(byte),
            byte => name.push(byte.to_ascii_lowercase()),
        }
        at += 1;
    }
    (trim_end(name), &[])
}

fn trim_end(mut name: Vec<u8>) -> Vec<u8> {
    name.truncate(name.trim_ascii_end().len());
    name
}

fn quote(out: &mut Vec<u8>, text: &[u8], mark: u8) {
    out.push(mark);
    for &byte in text.iter().filter(|&&byte| byte != 0) {
        if byte == mark {
            out.push(mark);
        }
        out.push(byte);
    }
    out.push(mark);
}
