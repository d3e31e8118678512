//! Parity with Unleash Edge 19.15.1, whose responses `tests/parity/flags-*.json` keep. The script lists each difference with its reason; any
//! other fails it.

use std::path::Path;
use std::process::Command;

use weir_tests::deadline::until_true;
use weir_tests::flags::{BACKEND, FlagOrigin, before, get};

/// All endpoints of operators.
const BACKSTAGE: [&str; 8] =
    ["health", "ready", "metrics", "features", "tokens", "metricsbatch", "instancedata", "info"];

/// The script on one of the data sets.
fn compare(data: &str) {
    let origin = FlagOrigin::start_with(&["--data", data]);
    let gateway = before(&origin.address, &format!("backstage = {:?}", BACKSTAGE));
    until_true("flags", || get(&gateway.address, "/api/client/features", BACKEND).status == 200);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity");
    let output = Command::new("python3")
        .arg(folder.join("flags.py"))
        .arg(format!("http://{}", gateway.address.text()))
        .arg(folder.join(format!("flags-{data}.json")))
        .output()
        .expect("python3 can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("57 of 88 requests with equal responses, 31 with differences"), "{text}");
    gateway.finish();
}

#[test]
fn responses_are_those_of_unleash_edge_with_five_flags() {
    compare("small");
}

#[test]
fn responses_are_those_of_unleash_edge_with_350_flags() {
    compare("large");
}
