//! Golden tests: each `broken/NAME.toml` gives exactly the report in `broken/NAME.txt`.
//! There `{protocols}` stands for the words of all protocols, and `{listener keys}` for the keys of `[[listener]]`, which are those of
//! all protocols.
//!
//! `WEIR_WRITE_GOLDEN=1 cargo test -p weir-config --test it diagnostics` writes the reports again; read the difference.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::Memory;
use weir_config::{Diagnostics, ProtocolName, check, schema};

fn broken(name: &str) -> (String, Diagnostics) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken").join(name);
    let source = fs::read_to_string(&path).expect("a readable case");
    let result = check(&source, name, Path::new(""), &Memory::furnished());
    (source, result.expect_err(name))
}

/// A report in which nothing grows with a new protocol.
fn steady(report: &str) -> String {
    let words: Vec<String> = ProtocolName::ALL.iter().map(|name| format!("\"{name}\"")).collect();
    let schema = schema();
    let listener = schema["properties"]["listener"]["items"]["properties"].as_object().expect("keys");
    let keys: BTreeSet<&str> = listener.keys().map(String::as_str).collect();
    let line = |line: &str| match line.split_once("known keys: ") {
        Some((head, list)) if list.split(", ").collect::<BTreeSet<_>>() == keys => {
            format!("{head}known keys: {{listener keys}}\n")
        }
        _ => format!("{line}\n"),
    };
    report.replace(&words.join(", "), "{protocols}").lines().map(line).collect()
}

#[test]
fn each_broken_file_gives_its_report() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken");
    let write = std::env::var_os("WEIR_WRITE_GOLDEN").is_some();
    let mut cases = 0;
    for entry in fs::read_dir(&directory).expect("the cases") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        cases += 1;
        let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
        let report = steady(&broken(name).1.to_string());
        let golden = path.with_extension("txt");
        if write {
            fs::write(&golden, &report).expect("write the report");
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(report, expected, "{name}: see the head of this file for how to accept a change");
    }
    assert!(cases >= 20, "only {cases} cases were found");
}

#[test]
fn every_mistake_has_a_place_and_a_remedy() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken");
    for entry in fs::read_dir(&directory).expect("the cases") {
        let name = entry.expect("an entry").file_name().into_string().expect("a plain name");
        if !name.ends_with(".toml") {
            continue;
        }
        let (source, diagnostics) = broken(&name);
        for one in &diagnostics {
            let line = source.lines().nth(one.line as usize - 1);
            assert!(line.is_some() || source.is_empty(), "{name}: line {} does not exist", one.line);
            let room = line.unwrap_or_default().chars().count() + 1;
            assert!((1..=room).contains(&(one.column as usize)), "{name}: column {}", one.column);
            let help = one.help.as_deref().unwrap_or_default();
            assert!(!help.is_empty() && !help.contains("the guide"), "{name}: no remedy for {}: {help}", one.message);
        }
    }
}

#[test]
fn the_machine_readable_list_says_the_same() {
    let (_, diagnostics) = broken("unknown-keys.toml");
    let list = diagnostics.to_json();
    let first = diagnostics.iter().next().expect("a mistake");
    assert_eq!(list.as_array().map(Vec::len), Some(diagnostics.errors()));
    assert_eq!(list[0]["line"], first.line);
    assert_eq!(list[0]["message"], first.message.as_str());
    assert_eq!(list[0]["severity"], "error");
    assert_eq!(list[0]["file"], "unknown-keys.toml");
}
