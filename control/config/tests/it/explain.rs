//! `weir explain`: one key of the reference.

use std::path::Path;

use serde_json::Value as Json;
use weir_config::{check, explain, schema, surroundings::Machine};

/// Paths of all keys, with the headers of the tables around them.
fn keys() -> Vec<(String, Vec<String>)> {
    fn walk(schema: &Json, path: &str, headers: &[String], found: &mut Vec<(String, Vec<String>)>) {
        let is_list = schema.get("items").is_some_and(|items| items.get("properties").is_some());
        let table = if is_list { &schema["items"] } else { schema };
        let Some(properties) = table.get("properties").and_then(Json::as_object) else { return };
        for (key, value) in properties {
            let own = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let is_table = |value: &Json| value.get("properties").is_some();
            match (is_table(value), value.get("items").is_some_and(is_table)) {
                (false, false) => found.push((own, headers.to_vec())),
                (_, is_list) => {
                    let header = if is_list { format!("[[{own}]]") } else { format!("[{own}]") };
                    walk(value, &own, &[headers, &[header]].concat(), found);
                }
            }
        }
    }
    let mut found = Vec::new();
    walk(&schema(), "", &[], &mut found);
    found
}

fn row<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix("  ")?.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim()
}

#[test]
fn a_key_has_its_type_default_place_reload_and_an_example() {
    let text = explain("limits.connections").expect("a key");
    assert!(text.starts_with("limits.connections\n"), "{text}");
    assert_eq!(row(&text, "table"), "[limits]");
    assert_eq!(row(&text, "value"), "number, 1 to 16777216");
    assert_eq!(row(&text, "default"), "16384");
    assert_eq!(row(&text, "reload"), "applies a change");
    assert_eq!(row(&text, "example"), "connections = 16384");
    assert!(text.contains("client connections."), "{text}");
    assert_eq!(row(&explain("runtime.workers").expect("a key"), "reload"), "a change needs a restart");
    let level = explain("telemetry.level").expect("a key");
    assert_eq!(row(&level, "reload"), "applies a change; a change to or from off needs a restart");
}

#[test]
fn the_end_of_a_path_names_all_places_and_a_header_its_table() {
    let text = explain("try_timeout").expect("a key of several tables");
    for place in ["listener.http.retry", "domain.retry", "route.retry"] {
        assert!(text.contains(&format!("{place}.try_timeout")), "{place} is not in\n{text}");
    }
    for written in ["listener.redis", "[listener.redis]", " listener.redis "] {
        let text = explain(written).expect("a table");
        assert!(text.starts_with("[listener.redis]\n") && text.contains("\n  databases "), "{text}");
    }
    // As diagnostics print it.
    assert!(explain("listener[0].bind").expect("a key").starts_with("listener.bind\n"));
    assert!(
        explain("listener[12].http.rate_limit[3].per").expect("a key").starts_with("listener.http.rate_limit.per\n")
    );
    // As a reload names what it applied.
    assert!(explain("listener.cache.idle_timeout").expect("a key").starts_with("listener.idle_timeout\n"));
}

#[test]
fn a_mistake_gets_near_names() {
    for (wrong, meant) in [
        ("idle_timeuot", "idle_timeout"),
        ("limits.conections", "limits.connections"),
        ("requirepass", "password"),
        ("_timeout", "listener.idle_timeout"),
    ] {
        let refusal = explain(wrong).expect_err(wrong);
        assert!(refusal.contains("did you mean") && refusal.contains(meant), "{wrong}: {refusal}");
    }
    assert!(explain("xyzzyplugh").is_err_and(|refusal| refusal.contains("docs/CONFIG.md")));
}

/// Mistakes of a file that has nothing but the example: names without their tables, keys without their company, files that are
/// not there.
const OF_THE_REST: [&str; 13] = [
    "does not exist",
    "is not set",
    "cannot read",
    "has no effect",
    "does nothing",
    "needs one of",
    "needs exactly one of",
    "no route has the domain",
    "has no value",
    "a rate limit without requests",
    "has 0 targets",
    "changes nothing",
    "the file has no listener",
];

/// The example of each key, in a file of its own.
#[test]
fn every_example_is_a_value_that_the_key_takes() {
    let keys = keys();
    assert!(keys.len() > 400, "{} keys", keys.len());
    for (path, headers) in keys {
        let text = explain(&path).unwrap_or_else(|refusal| panic!("{path}: {refusal}"));
        let source = format!("{}\n{}\n", headers.join("\n"), row(&text, "example"));
        let Err(mistakes) = check(&source, "example", Path::new("/nowhere"), &Machine::new(&|_| None)) else {
            continue;
        };
        let line = headers.len() + 1;
        for mistake in mistakes.to_json().as_array().expect("a list") {
            let message = mistake["message"].as_str().unwrap_or_default();
            let is_of_the_rest = OF_THE_REST.iter().any(|words| message.contains(words));
            assert!(mistake["line"] != line || is_of_the_rest, "{path}: {source}{message}");
        }
    }
}
