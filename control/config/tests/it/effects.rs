//! Every key of a listener and of an upstream, written with a value other than its default: it changes the settings that the
//! protocol's data path gets, or `check` refuses it for that protocol.
//!
//! The test walks the schema, so a new key is tried without a line here. Values follow from types and ranges; a text, a list
//! and a secret stand in a table, and so do the keys without which one says nothing. A key that changes nothing alone must
//! not pass in silence either.

mod samples;

use std::path::Path;

use self::samples::{COMPANY, MONGODB_USER, MORE_KEYS, OF_FILE, POSTGRES_USER, SAMPLES};
use crate::support::Memory;
use serde_json::Value as Json;
use toml::{Table, Value};
use weir_config::{Diagnostic, Diagnostics, ListenerProtocol, ProtocolName, Snapshot, check, schema};

/// Keys that identify the file of a protocol: another protocol or upstream is another file.
const FIXED: [&str; 3] = ["listener.protocol", "listener.upstream", "upstream.name"];

/// The smallest file of a protocol.
fn smallest(protocol: ProtocolName) -> Table {
    // A database names an upstream of each role.
    let role = |attrs: &str| match protocol.name() {
        "postgres" => format!("postgres = {{ user = \"app\", target_session_attrs = \"{attrs}\" }}"),
        _ => String::new(),
    };
    let own = match protocol {
        ProtocolName::Flags => "flags.tokens = [\"env:UNLEASH_TOKEN\"]\n",
        ProtocolName::Mongodb => "mongodb.auth = \"none\"\n",
        _ => "",
    };
    let text = format!(
        "[[listener]]\nname = \"l\"\nbind = \"127.0.0.1:6380\"\nprotocol = \"{protocol}\"\nupstream = \"u\"\n{own}\
         [[upstream]]\nname = \"u\"\nendpoints = [\"127.0.0.1:6379\"]\n{}\n\
         [[upstream]]\nname = \"v\"\nendpoints = [\"127.0.0.1:6378\"]\n{}\n",
        role("primary"),
        role("prefer-standby")
    );
    text.parse().expect("a file")
}

/// The smallest file in which a key of a protocol may have an effect: a flags listener takes its flags from a server or from a file.
fn smallest_for(name: &str, protocol: ProtocolName) -> Table {
    if protocol != ProtocolName::Flags || !OF_FILE.contains(&name) {
        return smallest(protocol);
    }
    let text = "[[listener]]\nname = \"l\"\nbind = \"127.0.0.1:6380\"\nprotocol = \"flags\"\n\
                flags = { bootstrap_file = \"features.json\", client_tokens = [\"env:UNLEASH_TOKEN\"] }\n";
    text.parse().expect("a file")
}

/// One key of the schema.
struct Key<'s> {
    /// From the list of the file: `listener`, `tls`, `alpn`.
    path: Vec<&'s str>,
    schema: &'s Json,
}

impl Key<'_> {
    fn name(&self) -> String {
        self.path.join(".")
    }

    /// Whether it is a table, or a list of tables.
    fn is_table(&self) -> bool {
        self.schema.get("properties").is_some() || self.schema["items"].get("properties").is_some()
    }
}

/// The keys of a table and of the tables in it.
fn keys<'s>(table: &'s Json, path: &[&'s str], found: &mut Vec<Key<'s>>) {
    let table = table.get("items").unwrap_or(table);
    let Some(properties) = table.get("properties").and_then(Json::as_object) else { return };
    for (key, schema) in properties {
        let path = [path, &[key.as_str()]].concat();
        // A secret is written as a table, and is one value.
        if schema["anyOf"].is_null() {
            keys(schema, &path, found);
        }
        found.push(Key { path, schema });
    }
}

/// The entry of a table of this file whose key is the longest end of `name`.
fn sample(name: &str) -> Option<Value> {
    let is_end = |end: &str| name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let found = SAMPLES.iter().filter(|(end, _)| is_end(end)).max_by_key(|(end, _)| end.len())?;
    let table: Table = format!("value = {}", found.1).parse().expect("a value");
    table.get("value").cloned()
}

/// A value that is not the default.
fn other(name: &str, schema: &Json) -> Option<Value> {
    if let Some(value) = sample(name) {
        return Some(value);
    }
    if let Some(words) = schema["enum"].as_array() {
        let word = words.iter().find(|word| **word != schema["default"])?;
        return Some(Value::String(word.as_str()?.to_owned()));
    }
    match schema["type"].as_str() {
        Some("boolean") => Some(Value::Boolean(!schema["default"].as_bool().unwrap_or(false))),
        Some("integer") => {
            let (low, high) = (schema["minimum"].as_i64()?, schema["maximum"].as_i64()?);
            let default = schema["default"].as_i64().unwrap_or(low);
            Some(Value::Integer(if default < high { default + 1 } else { default - 1 }))
        }
        Some("number") => Some(Value::Float(if schema["default"] == 0.5 { 0.25 } else { 0.5 })),
        Some("string") if schema.get("pattern").is_some() => longer(schema["default"].as_str().unwrap_or("7s")),
        Some("string") => Some("other".into()),
        Some("array") => (schema["items"]["type"] == "string").then(|| Value::Array(vec!["other".into()])),
        _ if schema["anyOf"][0]["type"] == "object" => {
            Some(Table::from_iter([("env".to_owned(), "REDIS_PASSWORD".into())]).into())
        }
        _ => longer(schema["default"].as_str().unwrap_or("100KiB")),
    }
}

/// A duration or a size, a little more than the default: `30s` to `31s`.
fn longer(default: &str) -> Option<Value> {
    let (digits, unit) = default.split_at(default.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = digits.parse().ok()?;
    Some(Value::String(format!("{}{unit}", number + 1)))
}

/// Adds what stands in `more`, table by table; lists of tables in their first table.
fn merge(into: &mut Table, more: Table) {
    for (key, value) in more {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(own)), Value::Table(more)) => merge(own, more),
            (Some(Value::Array(own)), Value::Array(more)) if own.first().is_some_and(Value::is_table) => {
                let tables = own.iter_mut().filter_map(Value::as_table_mut);
                let more = more.into_iter().filter_map(|table| table.try_into::<Table>().ok());
                tables.zip(more).for_each(|(own, more)| merge(own, more));
            }
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// `value` at `path`, or nothing, with the tables around it and what these must have besides.
fn written(root: &Json, path: &[&str], above: &str, value: Option<&Value>) -> Table {
    let (key, rest) = path.split_first().expect("a key");
    let own = &root.get("items").unwrap_or(root)["properties"][*key];
    let name = format!("{above}.{key}");
    if rest.is_empty() {
        return value.map(|value| ((*key).to_owned(), value.clone())).into_iter().collect();
    }
    let mut inner = needed(own, &name, rest[0]);
    merge(&mut inner, written(own, rest, &name, value));
    let inner = if own["type"] == "array" { Value::Array(vec![inner.into()]) } else { inner.into() };
    Table::from_iter([((*key).to_owned(), inner)])
}

/// The keys that a table must have, except `key`.
fn needed(table: &Json, name: &str, key: &str) -> Table {
    let table = table.get("items").unwrap_or(table);
    let required = table["required"].as_array().into_iter().flatten().filter_map(Json::as_str);
    let one = |one: &str| Some((one.to_owned(), other(&format!("{name}.{one}"), &table["properties"][one])?));
    required.filter(|one| *one != key).filter_map(one).collect()
}

/// The file with a table added to its first `list` table.
fn with(file: &Table, list: &str, more: Table) -> Table {
    let mut file = file.clone();
    merge(&mut file, Table::from_iter([(list.to_owned(), Value::Array(vec![more.into()]))]));
    file
}

fn checked(file: &Table) -> Result<Snapshot, Diagnostics> {
    let mut surroundings = Memory::furnished();
    let mut put = |name, like: &str, change: &dyn Fn(String) -> String| {
        let mut file = surroundings.files[like].clone();
        file.bytes = change(String::from_utf8(file.bytes).expect("text")).into_bytes();
        surroundings.files.insert(name, file);
    };
    put("other.pem", "ca.crt", &|text| text);
    put("other.key", "server.key", &|text| text);
    put("other.htpasswd", "users.htpasswd", &|text| text.replace("alice", "bob"));
    put("other.json", "jwks.json", &|text| text.replace("\"keys\":[", &format!("\"keys\":[{MORE_KEYS},")));
    if file["listener"][0]["protocol"].as_str() == Some("http") {
        put("knee.json", "knee.json", &|text| text.replace("\\\"redis\\\"", "\\\"http1\\\""));
    }
    check(&toml::to_string(file).expect("a file"), "weir.toml", Path::new(""), &surroundings)
}

/// Whether the data path gets other settings. Settings without equality are compared as text, which omits secrets.
fn differs(one: &Snapshot, other: &Snapshot) -> bool {
    let shown = |snapshot: &Snapshot| format!("{:?} {:?}", snapshot.listeners, snapshot.upstreams);
    let redis = |snapshot: &Snapshot| match &snapshot.listeners[0].protocol {
        ListenerProtocol::Redis(redis) => Some(redis.clone()),
        _ => None,
    };
    let password = |snapshot: &Snapshot| match &snapshot.listeners[0].protocol {
        ListenerProtocol::Postgres(own) => {
            let user = [&b"alice"[..], b"other", b"listed"].into_iter().find_map(|name| own.users.find(name));
            user.and_then(|user| user.password().map(|password| password.expose().to_vec()))
        }
        _ => None,
    };
    let users = |snapshot: &Snapshot| match &snapshot.listeners[0].protocol {
        ListenerProtocol::Mongodb(own) => Some(own.users.clone()),
        _ => None,
    };
    one.upstreams != other.upstreams
        || redis(one) != redis(other)
        || users(one) != users(other)
        || password(one) != password(other)
        || shown(one) != shown(other)
}

/// The keys without which `name` has no effect.
fn company(name: &str, protocol: ProtocolName) -> Table {
    let begins = |start: &str| name.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let found = COMPANY.iter().filter(|(start, _)| begins(start)).max_by_key(|(start, _)| start.len());
    let text = match (name, protocol.name()) {
        ("listener.half_close_timeout", "http") => "http.half_close = true",
        ("listener.user.name" | "listener.user.password", "postgres") => POSTGRES_USER,
        ("listener.user.name" | "listener.user.password", "mongodb") => MONGODB_USER,
        _ => found.map_or("", |(_, text)| text),
    };
    text.parse().expect("keys")
}

/// The fault of `value` of `key` for a protocol; `None`: it has an effect or is refused.
fn fault(schema: &Json, key: &Key<'_>, value: &Value, protocol: ProtocolName) -> Option<String> {
    let (name, list) = (key.name(), key.path[0]);
    let root = &schema["properties"][list];
    let tables = |value| written(root, &key.path[1..], list, value);
    let plain = smallest_for(&name, protocol);
    let alone = checked(&with(&plain, list, tables(Some(value))));
    if let Err(found) = &alone {
        let place = format!("{list}[0].{}", key.path[1]);
        let is_it = |one: &&Diagnostic| one.path.starts_with(&place) && one.message.contains("has no effect: only ");
        if let Some(refusal) = found.iter().find(is_it) {
            return (refusal.line == 0 || refusal.help.is_none()).then(|| format!("no place or remedy: {refusal}"));
        }
    }
    // Tables that cannot stand without the key are left out.
    let base = with(&plain, list, company(&name, protocol));
    let before = checked(&with(&base, list, tables(None))).or_else(|_| checked(&plain)).expect("the smallest file");
    let after = match checked(&with(&base, list, tables(Some(value)))) {
        Ok(after) => after,
        Err(found) => return Some(format!("{value} is refused for another reason: {found}")),
    };
    if !differs(&before, &after) {
        return Some(format!("{value} changes nothing: {}", after.warnings));
    }
    // Without other replies the client gets nothing, but the shell must know.
    let (Ok(before), Ok(after)) = (checked(&with(&plain, list, tables(None))), alone) else { return None };
    let is_silent = after.warnings.warnings() <= before.warnings.warnings() && !differs(&before, &after);
    is_silent.then(|| format!("{value} changes nothing without company, and nobody is told"))
}

/// The keys of `listener` and `upstream` that can have another value in the file of a protocol.
fn all_keys(schema: &Json) -> Vec<Key<'_>> {
    let mut all = Vec::new();
    for list in ["listener", "upstream"] {
        keys(&schema["properties"][list], &[list], &mut all);
    }
    all.retain(|key| !FIXED.contains(&&*key.name()) && !key.is_table());
    all
}

#[test]
fn every_key_changes_the_settings_of_its_protocol_or_is_refused() {
    let (schema, mut tried, mut faults) = (schema(), 0, Vec::new());
    for key in all_keys(&schema) {
        let Some(value) = other(&key.name(), key.schema) else {
            faults.push(format!("{}: no value follows from its type, add one to SAMPLES", key.name()));
            continue;
        };
        for protocol in ProtocolName::ALL {
            tried += 1;
            let fault = fault(&schema, &key, &value, *protocol);
            faults.extend(fault.map(|fault| format!("{} with {protocol}: {fault}", key.name())));
        }
    }
    assert!(faults.is_empty(), "{} of {tried}:\n{}", faults.len(), faults.join("\n"));
    assert!(tried > 800, "only {tried} cases were tried");
}

#[test]
fn samples_and_company_belong_to_keys_that_there_are() {
    let schema = schema();
    let names: Vec<String> = all_keys(&schema).iter().map(Key::name).collect();
    for (end, _) in SAMPLES {
        assert!(names.iter().any(|name| name.ends_with(end)), "no key ends in {end}");
    }
    for (start, _) in COMPANY {
        assert!(names.iter().any(|name| name.starts_with(start)), "no key begins with {start}");
    }
}
