//! `weir lab load` against the lab's origin, as a user runs it: the summary on one screen, the record and the page.

use std::fs;
use std::process::Command;

use serde_json::Value;
use weir_tests::ai::AiOrigin;
use weir_tests::gateway::program;

/// The summary, the record and the page of a load of one phase.
fn loaded(ai: &str, payload: &str) -> (String, Value, String, Value) {
    let origin = AiOrigin::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let scenario = format!(
        "name = \"ai-test\"\nprotocol = \"ai\"\nconnections = 16\nlate_limit = \"5s\"\n{payload}\n[ai]\n{ai}\n\
         [[phase]]\nrate = 100\nwarmup = \"0s\"\nduration = \"2s\"\n"
    );
    fs::write(path("ai.toml"), scenario).expect("written");
    let mut command = Command::new(program());
    command.args(["lab", "load", "ai.toml", "--quiet", "--json", "ai.jsonl", "--target", &origin.address.text()]);
    let output = command.current_dir(folder.path()).output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let record = serde_json::from_str(&fs::read_to_string(path("ai.jsonl")).expect("a record")).expect("JSON");
    let page = fs::read_to_string(path("ai.html")).expect("a page");
    (told, record, page, origin.ledger())
}

#[test]
fn a_load_of_streams_shows_its_events_on_one_screen_and_on_its_page() {
    let ai = "workload = \"paced\"\nevents = 8\nfirst = \"20ms\"\ngap = \"5ms\"";
    let (told, record, page, ledger) = loaded(ai, "payload.size = 800");
    assert!(told.contains("  events        first p50 ") && told.contains("\n                between p50 "), "{told}");
    let counts = &record["counts"];
    assert_eq!(counts["completed"], counts["intended"], "{told}");
    assert_eq!((&counts["integrity"]["failed"], &counts["errors"]["payload"]), (&0.into(), &0.into()), "{told}");
    let events = |name: &str| record["latency"][name]["n"].as_u64().expect("a histogram");
    assert_eq!(events("between_events"), 7 * events("first_event"), "{told}");
    assert!(page.contains("first event p99 ms"), "the page has its columns");
    // The generator counts the same as the origin has billed.
    assert_eq!(ledger["totals"]["completed"], counts["completed"], "{}", ledger["totals"]);
    assert_eq!(ledger["totals"]["completion"].as_u64(), counts["completed"].as_u64().map(|count| count * 200));
}

#[test]
fn a_load_of_agents_is_checked_call_by_call() {
    let (told, record, page, ledger) = loaded("workload = \"agent\"\ntools = 8", "");
    let counts = &record["counts"];
    assert_eq!((&counts["completed"], &counts["integrity"]["failed"]), (&counts["intended"], &0.into()), "{told}");
    assert!(!told.contains("  events  ") && !page.contains("first event"), "nothing is streamed: {told}");
    assert_eq!(ledger["totals"]["completed"], counts["completed"], "{}", ledger["totals"]);
}
