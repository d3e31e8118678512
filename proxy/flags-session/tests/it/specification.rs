//! The client specification of Unleash (npm `@unleash/client-specification`): all that an SDK must evaluate alike.
//!
//! `WEIR_FLAGS_SPECIFICATION` names the folder of the package. Without it the test has nothing to do; with it, a missing file is a failure.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_base::Rng;
use weir_flags_codec::{DeltaEvent, FeaturesDocument};
use weir_flags_session::{FlagState, History, Projects, Snapshot};

use crate::support::result_of;

/// The folder of the package.
const VARIABLE: &str = "WEIR_FLAGS_SPECIFICATION";

/// Checks of version 6.1.0. A later one has no fewer.
const CHECKS_MIN: usize = 279;

#[test]
fn every_case_of_the_client_specification_has_its_result() {
    let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        eprintln!("{VARIABLE} is not set: the client specification is not checked");
        return;
    };
    let folder = folder.join("specifications");
    let names: Vec<String> = serde_json::from_value(read(&folder.join("index.json"))).expect("a list of files");
    let (mut checks, mut failures) = (0, Vec::new());
    for name in &names {
        let specification = read(&folder.join(name));
        let snapshot = snapshot(&specification["state"]);
        for kind in ["tests", "variantTests"] {
            for case in specification[kind].as_array().into_iter().flatten() {
                checks += 1;
                let found = result(&snapshot, case, kind == "variantTests");
                if found != case["expectedResult"] {
                    failures.push(format!("{name}: {}: {found}", case["description"]));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {checks} checks failed:\n{}", failures.len(), failures.join("\n"));
    assert!(checks >= CHECKS_MIN, "{checks} checks, where version 6.1.0 has {CHECKS_MIN}");
    eprintln!("{checks} checks of {} files passed", names.len());
}

fn read(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{VARIABLE}: {}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A state is a document or a list of events, which may lack the whole state in front.
fn snapshot(value: &Value) -> Snapshot {
    let mut state = FlagState::new(1);
    let text = value.to_string();
    if value.get("events").is_none() {
        let document = FeaturesDocument::read(text.as_bytes()).expect("a document");
        state.apply_document(&Projects::All, document).expect("taken");
    } else {
        state.apply_document(&Projects::All, FeaturesDocument::default()).expect("taken");
        let events = DeltaEvent::read_all(text.as_bytes()).expect("events");
        let whole = br#"{"events":[{"eventId":0,"type":"hydration","features":[],"segments":[]}]}"#;
        let whole = DeltaEvent::read_all(whole).expect("events");
        state.apply_events(&Projects::All, [whole, events].concat(), true).expect("taken");
    }
    Snapshot::new(&state, History::new(state.revision()), None)
}

/// The result in the form of the specification. An absent flag is off.
fn result(snapshot: &Snapshot, case: &Value, is_about_variant: bool) -> Value {
    let name = case["toggleName"].as_str().expect("a name");
    let found = result_of(snapshot, name, &case["context"], &mut Rng::new(1));
    let is_on = found.as_ref().is_some_and(|found| found["enabled"] == true);
    if !is_about_variant {
        return is_on.into();
    }
    let mut variant = found
        .map_or_else(|| serde_json::json!({"name": "disabled", "enabled": false}), |found| found["variant"].clone());
    variant["feature_enabled"] = is_on.into();
    variant
}
