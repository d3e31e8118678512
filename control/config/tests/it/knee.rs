//! How a result of the lab becomes the knee of a listener, and what a reload makes of it.

use std::path::Path;

use crate::support::{Memory, knee::knee};
use serde_json::{Value as Json, json};
use weir_config::surroundings::{FileContents, Running};
use weir_config::{Diagnostics, KNEE_BYTES_MAX, KneeAction, Snapshot, check, diff, redacted};

const SMALLEST: &str = include_str!("../../../../examples/weir.toml");

/// The smallest file with these lines in its listener.
fn with(listener: &str) -> String {
    SMALLEST.replacen("\n[[upstream]]", &format!("{listener}\n\n[[upstream]]"), 1)
}

fn judged(source: &str, surroundings: &Memory) -> Result<Snapshot, Diagnostics> {
    check(source, "weir.toml", Path::new(""), surroundings)
}

/// Surroundings in which `knee.json` is this.
fn holding(change: impl FnOnce(&mut Json)) -> Memory {
    let mut surroundings = Memory::furnished();
    let file = FileContents { bytes: knee(change).into_bytes(), mode: Some(0o644), is_root_owned: false };
    surroundings.files.insert("knee.json", file);
    surroundings
}

#[test]
fn a_result_becomes_the_knee_of_its_listener() {
    let source = with("knee = \"knee.json\"\nknee_warn = 0.75");
    let snapshot = judged(&source, &Memory::furnished()).expect("a good file");
    assert!(snapshot.warnings.is_empty(), "{}", snapshot.warnings);
    let listener = &snapshot.listeners[0];
    let knee = listener.knee.as_ref().expect("a knee");
    assert_eq!((knee.requests_per_second, knee.warn_ratio, knee.action), (200.0, 0.75, KneeAction::Observe));
    assert_eq!((&*knee.run_id, knee.measured_at, knee.file.as_path()), ("r1", 1_795_310_822, Path::new("knee.json")));
    assert_eq!(listener.settings.requests_per_second_per_core, None, "it is observed and not kept");
    assert_eq!(redacted(&snapshot)["listener"][0]["knee"], json!("knee.json"));
    let snapshot = judged(SMALLEST, &Memory::furnished()).expect("a good file");
    assert_eq!(snapshot.listeners[0].knee, None);
}

#[test]
fn shedding_divides_the_knee_among_the_workers() {
    let source = with("knee = \"knee.json\"\nknee_action = \"shed\"");
    let snapshot = judged(&source, &Memory::furnished()).expect("a good file");
    assert_eq!(snapshot.listeners[0].settings.requests_per_second_per_core, Some(100.0), "there are two");
    let one = format!("{source}\n[runtime]\nworkers = 1\n");
    let snapshot = judged(&one, &holding(|it| it["shape"]["budget_vcpu"] = json!(1.0))).expect("a good file");
    assert_eq!(snapshot.listeners[0].settings.requests_per_second_per_core, Some(200.0));
}

#[test]
fn a_measurement_with_allowed_differences_is_used_and_the_differences_are_reported() {
    let surroundings = holding(|it| {
        it["host"] = json!({ "kernel": "6.1.0", "cpu_model": "Fast 9000" });
        it["shape"]["row"] = json!("cache, synthetic back end");
        it["shape"]["telemetry"] = json!("off");
        it["knee"]["outcome"] = json!("at_ceiling");
    });
    let source = with("knee = \"knee.json\"") + "[upstream.tls]\n";
    let snapshot = judged(&source, &surroundings).expect("a good file");
    let caveats = &snapshot.listeners[0].knee.as_ref().expect("a knee").caveats;
    let words = [
        "\"Fast 9000\" there, \"Slow 2000\" here",
        "\"6.1.0\" there",
        "without TLS",
        "telemetry off",
        "own back end",
        "not below",
    ];
    assert_eq!(caveats.len(), words.len(), "{caveats:?}");
    for (caveat, words) in caveats.iter().zip(words) {
        assert!(caveat.contains(words), "{caveat}");
    }
    assert_eq!(snapshot.warnings.warnings(), 6);
    assert!(snapshot.warnings.iter().all(|one| one.path == "listener[0].knee" && one.line > 0));
    let same = holding(|it| it["host"] = json!({ "kernel": "6.18.1", "cpu_model": "Slow 2000" }));
    let snapshot = judged(&with("knee = \"knee.json\""), &same).expect("a good file");
    assert!(snapshot.warnings.is_empty(), "{}", snapshot.warnings);
}

#[test]
fn an_http_listener_takes_the_knee_found_for_http_and_does_not_shed_by_it() {
    let http = |listener: &str| {
        with(&format!("knee = \"knee.json\"\n{listener}")).replacen("protocol = \"redis\"", "protocol = \"http\"", 1)
    };
    let found = |protocol: &str| holding(|it| it["scenario"] = json!(format!("protocol = \"{protocol}\"\n")));
    for protocol in ["http1", "http2"] {
        let snapshot = judged(&http("knee_action = \"unready\""), &found(protocol)).expect("a good file");
        assert_eq!(snapshot.listeners[0].knee.as_ref().map(|knee| knee.requests_per_second), Some(200.0));
        let text = judged(&http("knee_action = \"shed\""), &found(protocol)).expect_err("it is not kept").to_string();
        assert!(text.contains("that only Redis listeners support") && text.contains("\"unready\""), "{text}");
    }
    for protocol in ["redis", "websocket"] {
        let text = judged(&http(""), &found(protocol)).expect_err("another load").to_string();
        assert!(text.contains("with protocol = \"http1\" or \"http2\""), "{text}");
    }
}

#[test]
fn a_new_result_under_the_same_name_is_a_change() {
    let source = with("knee = \"knee.json\"");
    let old = judged(&source, &Memory::furnished()).expect("a good file");
    let new = judged(&source, &holding(|it| it["knee"]["clean"]["rate"] = json!(300.0))).expect("a good file");
    assert_eq!(diff(&old, &new).applied, ["listener.cache.knee"]);
    assert!(diff(&old, &judged(&source, &Memory::furnished()).expect("a good file")).is_empty());
    let other = judged(&with("knee = \"knee.json\"\nknee_action = \"unready\""), &Memory::furnished());
    assert_eq!(diff(&old, &other.expect("a good file")).applied, ["listener.cache.knee_action"]);
}

/// Workers are laid out at the start: what the file now says of them is not what runs.
#[test]
fn a_reload_is_checked_against_the_running_configuration() {
    let refusal = |source: &str, workers| {
        let surroundings = Memory { running: Some(Running { workers }), ..Memory::furnished() };
        judged(source, &surroundings).map(drop).map_err(|diagnostics| diagnostics.to_string())
    };
    let source = with("knee = \"knee.json\"") + "[runtime]\nworkers = 2\n";
    assert_eq!(refusal(&source, 2), Ok(()));
    let text = refusal(&source, 1).expect_err("one worker runs");
    assert!(text.contains("found with 2 vCPU, and the gateway runs with 1 worker"), "{text}");
    assert!(text.contains("--budget 1, or set runtime.workers = 2 and restart"), "{text}");
    let waits = source.replace("workers = 2", "workers = 8");
    assert_eq!(refusal(&waits, 2), Ok(()), "it waits for a restart, and is refused then");
    let text = refusal(&(source + "[telemetry]\nlevel = \"off\"\n"), 2).expect_err("nothing would be counted");
    assert!(text.contains("telemetry.level = \"off\" counts none"), "{text}");
}

#[test]
fn any_file_is_reported_or_used() {
    let good = knee(|_| ());
    for cut in 0..good.len() {
        let mut surroundings = Memory::furnished();
        let file = FileContents { bytes: good.as_bytes()[..cut].to_vec(), mode: None, is_root_owned: false };
        surroundings.files.insert("knee.json", file);
        assert!(judged(&with("knee = \"knee.json\""), &surroundings).is_err(), "{}", &good[..cut]);
    }
    let fields = ["schema", "run_id", "ended", "shape", "scenario", "knee"];
    let wrong = [json!(null), json!(-1), json!("\u{1b}[31m\n".repeat(500)), json!([[]]), json!({})];
    for (field, value) in fields.iter().flat_map(|field| wrong.iter().map(move |value| (field, value))) {
        let surroundings = holding(|it| it[field] = value.clone());
        let judged = judged(&with("knee = \"knee.json\""), &surroundings);
        if let Err(diagnostics) = judged {
            let text = diagnostics.to_string();
            assert!(text.len() < 1_000 && !text.contains('\u{1b}'), "{field} {value}: {text}");
        } else {
            assert!(*field == "run_id" && value.is_string(), "{field} = {value} was taken");
        }
    }
    let mut surroundings = Memory::furnished();
    let bytes = vec![b' '; KNEE_BYTES_MAX as usize + 1];
    surroundings.files.insert("knee.json", FileContents { bytes, mode: None, is_root_owned: false });
    assert!(judged(&with("knee = \"knee.json\""), &surroundings).is_err());
}
