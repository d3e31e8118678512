//! The specification that all SDKs share, through the gateway's HTTP API.

use std::fs;

use serde_json::{Value, json};
use weir_tests::deadline::until_true;
use weir_tests::flags::{BACKEND, FRONTEND, FlagOrigin, before, call, get, offline_with, specification};
use weir_tests::gateway::Gateway;

/// Checks of all files: 227 of flags and 52 of variants.
const CHECKS: usize = 279;

/// The files with events in place of a document.
const DELTAS: [&str; 2] = ["19-delta-api-hydration.json", "20-delta-api-events.json"];

fn read(name: &str) -> Value {
    let text = fs::read(specification().join(name)).expect("the specification: `cargo xtask setup flag-sdks`");
    serde_json::from_slice(&text).expect("JSON")
}

/// Runs the checks of a file against a gateway that has its flags. Returns their number.
fn check(file: &str, document: &Value, gateway: &Gateway, faults: &mut Vec<String>) -> usize {
    let mut count = 0;
    for kind in ["tests", "variantTests"] {
        for one in document[kind].as_array().into_iter().flatten() {
            count += 1;
            let body = json!({ "context": one["context"] }).to_string();
            // A check of addresses wants one that is in no list where the context has none.
            let fields = [("Content-Type", "application/json"), ("X-Forwarded-For", "203.0.113.1")];
            let reply = call(&gateway.address, "POST", "/api/frontend/all", FRONTEND, &fields, &body);
            let found = reply.json()["toggles"].as_array().cloned().unwrap_or_default();
            let flag = found.iter().find(|flag| flag["name"] == one["toggleName"]);
            let got = match kind {
                "tests" => json!(flag.is_some_and(|flag| flag["enabled"] == true)),
                _ => variant(flag),
            };
            if got != one["expectedResult"] {
                faults.push(format!("{file}: {}: {got} in place of {}", one["description"], one["expectedResult"]));
            }
        }
    }
    count
}

/// A variant in the form of the specification.
fn variant(flag: Option<&Value>) -> Value {
    let none = json!({ "name": "disabled", "enabled": false });
    let mut variant = flag.map_or(none, |flag| flag["variant"].clone());
    variant["feature_enabled"] = json!(flag.is_some_and(|flag| flag["enabled"] == true));
    variant
}

#[test]
fn every_check_of_every_file_holds() {
    let names: Vec<String> = serde_json::from_value(read("index.json")).expect("names");
    assert_eq!(names.len(), 22);
    let (mut count, mut faults) = (0, Vec::new());
    for name in names.iter().filter(|name| !DELTAS.contains(&name.as_str())) {
        let (document, folder) = (read(name), tempfile::tempdir().expect("a folder"));
        let gateway = offline_with(folder.path(), &document["state"].to_string(), "trusted_hops = 1");
        until_true(format!("the flags of {name}"), || {
            get(&gateway.address, "/api/client/features", BACKEND).status == 200
        });
        count += check(name, &document, &gateway, &mut faults);
        gateway.finish();
    }
    for name in DELTAS {
        let (document, origin) = (read(name), FlagOrigin::start());
        origin.replace(r#"{"version":2,"features":[]}"#);
        let gateway = before(&origin.address, "upstream_mode = \"delta\"");
        until_true("the first state", || get(&gateway.address, "/api/client/features", BACKEND).status == 200);
        origin.control("POST", "/lab/events?environment=development", &document["state"].to_string());
        let last = document["tests"][0]["toggleName"].as_str().expect("a name").to_owned();
        until_true(format!("the events of {name}"), || {
            get(&gateway.address, "/api/client/features", BACKEND).body.contains(&last)
        });
        count += check(name, &document, &gateway, &mut faults);
        gateway.finish();
    }
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(count, CHECKS);
}
