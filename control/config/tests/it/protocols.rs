//! Every key of a listener and of an upstream, for every protocol: it has an effect, or `check` refuses it.
//!
//! `tests/uses/<protocol>.toml` says which keys a protocol has a use for. A new key of `[[listener]]` or `[[upstream]]` that stands
//! in none of these files fails the test.

use std::fs;
use std::path::Path;

use crate::support::Memory;
use serde_json::Value as Json;
use toml::{Table, Value};
use weir_config::{Diagnostics, ProtocolName, check, schema};

/// Keys without which no protocol has a file.
const FIXED: [&str; 5] = ["name", "bind", "protocol", "upstream", "endpoints"];

/// Keys, whole tables, and keys of tables (`user.name`) that a protocol uses.
struct Uses {
    protocol: ProtocolName,
    own: Table,
}

impl Uses {
    fn all() -> Vec<Self> {
        let of = |protocol: &ProtocolName| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/uses/{protocol}.toml"));
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            Self { protocol: *protocol, own: text.parse().expect("TOML") }
        };
        ProtocolName::ALL.iter().map(of).collect()
    }

    fn entries(&self, list: &str) -> impl Iterator<Item = &str> {
        self.own[list].as_array().expect("a list").iter().filter_map(Value::as_str)
    }

    /// Whether the protocol has a use for the key or table at `path`, or for all of the table around it.
    fn has(&self, list: &str, path: &[String]) -> bool {
        self.entries(list).any(|own| own == path[0] || own == path.join("."))
    }

    /// Whether the protocol has a use for some keys of the table `key`.
    fn has_parts(&self, list: &str, key: &str) -> bool {
        self.entries(list).any(|own| own.split_once('.').is_some_and(|(table, _)| table == key))
    }
}

/// Diagnostics of `check` for a file.
fn mistakes(file: &Table) -> Diagnostics {
    let mut surroundings = Memory::furnished();
    let names = ["server.crt", "server.key", "client.crt", "client.key", "ca.crt", "redis-password"];
    for (path, from) in names.map(|name| (format!("certs/{name}"), "server.key")) {
        surroundings.files.insert(path.leak(), surroundings.files[from].clone());
    }
    surroundings.files.insert("results/redis-real.json", surroundings.files["knee.json"].clone());
    let variables = [
        "REDIS_CLIENT_PASSWORD",
        "REDIS_USER_PASSWORD",
        "REDIS_SERVER_PASSWORD",
        "REPORTS_API_KEY",
        "APP_PASSWORD",
        "PG_PASSWORD",
        "MONGO_PASSWORD",
        "OPENAI_API_KEY",
        "AZURE_API_KEY",
        "ANTHROPIC_API_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
    ];
    surroundings.variables.extend(variables.map(|name| (name, "0123456789abcdef".to_owned())));
    let tokens = ["UNLEASH_FRONTEND_TOKEN", "UNLEASH_TENANT", "CLIENT_TOKEN", "FRONTEND_TOKEN"];
    surroundings.variables.extend(tokens.map(|name| (name, "*:development.0123456789abcdef".to_owned())));
    let source = toml::to_string(file).expect("a file");
    match check(&source, "weir.toml", Path::new(""), &surroundings) {
        Ok(snapshot) => snapshot.warnings,
        Err(diagnostics) => diagnostics,
    }
}

/// The smallest file of a protocol.
fn smallest(protocol: ProtocolName) -> Table {
    let own = match protocol {
        ProtocolName::Flags => "[listener.flags]\ntokens = [\"env:UNLEASH_TOKEN\"]\n",
        ProtocolName::Mongodb => "[listener.mongodb]\nauth = \"none\"\n",
        _ => "",
    };
    let text = format!(
        "[[listener]]\nname = \"l\"\nbind = \"127.0.0.1:6380\"\nprotocol = \"{protocol}\"\nupstream = \"u\"\n{own}\
         [[upstream]]\nname = \"u\"\nendpoints = [\"127.0.0.1:6379\"]\n"
    );
    text.parse().expect("a file")
}

/// Paths of the keys and tables of a schema, as lists of keys.
fn paths(schema: &Json, path: &[String], found: &mut Vec<Vec<String>>) {
    let table = schema.get("items").unwrap_or(schema);
    let Some(properties) = table.get("properties").and_then(Json::as_object).filter(|_| schema["anyOf"].is_null())
    else {
        return;
    };
    for (key, value) in properties {
        let path = [path, std::slice::from_ref(key)].concat();
        paths(value, &path, found);
        found.push(path);
    }
}

/// The value at `path` in one of the examples, whichever table of a list has it.
fn example<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    let Some((key, rest)) = path.split_first() else { return Some(value) };
    match value {
        Value::Array(tables) => tables.iter().find_map(|table| example(table, path)),
        Value::Table(table) => example(table.get(key)?, rest),
        _ => None,
    }
}

/// The value at `path` below any table.
fn anywhere<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    let inner = || match value {
        Value::Array(list) => list.iter().find_map(|one| anywhere(one, path)),
        Value::Table(table) => table.values().find_map(|one| anywhere(one, path)),
        _ => None,
    };
    example(value, path).or_else(inner)
}

/// Writes `value` at `path`, in the first table of each list.
fn put(table: &mut Table, schema: &Json, path: &[String], value: &Value) {
    let (key, rest) = path.split_first().expect("a key");
    let own = &schema.get("items").unwrap_or(schema)["properties"][key];
    if rest.is_empty() {
        table.insert(key.clone(), value.clone());
        return;
    }
    let is_list = own["type"] == "array";
    let inner = table.entry(key.clone()).or_insert_with(|| match is_list {
        true => Value::Array(vec![Value::Table(Table::new())]),
        false => Value::Table(Table::new()),
    });
    let inner = if is_list { &mut inner.as_array_mut().expect("a list")[0] } else { inner };
    put(inner.as_table_mut().expect("a table"), own, rest, value);
}

#[test]
fn every_key_has_an_effect_for_the_protocol_of_its_table_or_is_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let entries = fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|ending| ending == "toml")).collect();
    files.sort();
    let example_of = |path| Value::Table(fs::read_to_string(path).expect("the example").parse().expect("TOML"));
    let examples: Vec<Value> = files.iter().map(example_of).collect();
    let uses = Uses::all();
    let (schema, mut tried) = (schema(), 0);
    for list in ["listener", "upstream"] {
        let (own, mut all) = (&schema["properties"][list], Vec::new());
        paths(own, &[], &mut all);
        for path in all {
            let key = path[0].as_str();
            if FIXED.contains(&key) {
                continue;
            }
            let is_known = uses.iter().any(|one| one.has(list, &path[..1]));
            assert!(is_known, "`{list}.{key}` is new: say in tests/uses which protocols have a use for it");
            let whole = [std::slice::from_ref(&list.to_owned()), &path[..]].concat();
            // A key of the same table of a route has the same form.
            let tail = &path[path.len().saturating_sub(2)..];
            let elsewhere = || examples.iter().find_map(|file| anywhere(file, tail));
            let value = examples.iter().find_map(|file| example(file, &whole)).or_else(elsewhere);
            let Some(value) = value else { panic!("no example has {}", whole.join(".")) };
            for one in &uses {
                let protocol = one.protocol;
                if path.len() == 1 && one.has_parts(list, key) {
                    // A table of another protocol, of which this one has a part.
                    continue;
                }
                let mut file = smallest(protocol);
                let owner = &mut file.get_mut(list).and_then(Value::as_array_mut).expect("a list")[0];
                put(owner.as_table_mut().expect("a table"), own, &path, value);
                let found = mistakes(&file);
                let place = format!("{list}[0].{key}");
                let refusal = found.iter().find(|one| one.message.contains("has no effect: only "));
                let is_refused = refusal.is_some_and(|one| one.path.starts_with(&place));
                let is_useful = one.has(list, &path);
                let name = path.join(".");
                assert_eq!(is_refused, !is_useful, "{list}.{name} = {value} with {protocol}: {found}");
                let has_remedy = refusal.is_none_or(|one| one.help.is_some() && one.line > 0);
                assert!(has_remedy, "{list}.{name} with {protocol}: {found}");
                tried += 1;
            }
        }
    }
    assert!(tried > 800, "only {tried} cases were tried");
}

#[test]
fn routes_and_domains_need_a_listener_that_has_routes() {
    let route = "[[route]]\nname = \"r\"\npath = \"/x\"\nresponse = { status = 204 }\n";
    let domain = "[[domain]]\nname = \"d\"\nhosts = [\"a.example\"]\n";
    for protocol in ProtocolName::ALL.iter().copied() {
        for (text, path) in [(route, "route[0]"), (domain, "domain[0]")] {
            for listeners in ["", "listeners = [\"l\"]\n"] {
                let (head, rest) = text.split_once("]]\n").expect("a header");
                let mut file = smallest(protocol);
                file.extend(format!("{head}]]\n{listeners}{rest}").parse::<Table>().expect("a table"));
                let found = mistakes(&file);
                let is_refused = found.errors() > 0 && found.iter().all(|one| one.path.starts_with(path));
                assert_eq!(is_refused, protocol.name() != "http", "{protocol}: {found}");
            }
        }
    }
}
