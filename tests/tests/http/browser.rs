//! A browser as the client: headless Chromium loads a page over TLS, with style, script, images, fetch, events and a WebSocket.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use weir_tests::certificate::Certificates;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http_origin::{HttpOrigin, Kind};

/// Steps of the page.
const STEPS: [&str; 9] = [
    "style",
    "images",
    "fetch_many",
    "fetch_large",
    "fetch_in_pieces",
    "fetch_upload_stream",
    "fetch_abort",
    "events",
    "websocket",
];

/// Result of a visit to the page through a gateway that offers these protocols.
fn visit(alpn: &str) -> Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let (certificate, key) = (files.server.display(), files.server_key.display());
    let lines = format!(
        "[listener.tls]\ncert_file = \"{certificate}\"\nkey_file = \"{key}\"\nalpn = {alpn}\n\
         [listener.http]\nupgrades = [\"websocket\"]"
    );
    let origin = HttpOrigin::start(Kind::Page);
    let gateway = Gateway::start(Config::http(&origin.address).listener(&lines));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/node/browser.js");
    let url = format!("https://localhost:{}/", gateway.address.tcp().port());
    let mut browser = Command::new("node");
    // Chromium is Debian's: `cargo xtask setup browser`.
    let output = browser.arg(script).args(["chromium", &url]).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    gateway.finish();
    result
}

fn assert_all_well(result: &Value, protocols: &[&str]) {
    for step in STEPS {
        assert_eq!(result[step], Value::Bool(true), "{step}: {result}");
    }
    assert_eq!(result.as_object().map(|result| result.len()), Some(STEPS.len() + 1), "{result}");
    let spoken: Vec<&str> = result["protocols"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(spoken, protocols, "{result}");
}

#[test]
fn a_page_with_all_that_it_needs_over_http_2() {
    assert_all_well(&visit("[\"h2\", \"http/1.1\"]"), &["h2"]);
}

#[test]
fn a_page_with_all_that_it_needs_over_http_1() {
    assert_all_well(&visit("[\"http/1.1\"]"), &["http/1.1"]);
}
