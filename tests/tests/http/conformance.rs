//! h2spec, the conformance suite for HTTP/2 servers, against the gateway in front of a real nginx. Exactly the cases on the list
//! fail.

use std::process::Command;

use weir_tests::certificate::Certificates;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::nginx::Nginx;
use weir_tests::tools;

/// Cases of the generic, http2 and hpack sections.
const CASES: usize = 146;

/// The tests that fail on a plain listener, and the reasons.
const FAILS_IN_THE_CLEAR: &[&str] = &[
    // The port takes HTTP/1.1 as well: what is no preface is a malformed request of that, and gets its 400 before the close.
    "http2/3.5: Sends invalid connection preface",
];

/// After ALPN there is no doubt about the protocol.
const FAILS_OVER_TLS: &[&str] = &[];

/// An nginx that serves one page.
fn page() -> Nginx {
    Nginx::start("", "location / { return 200 \"hello\"; }")
}

/// Runs every case; the names of those that failed.
fn failures(gateway: &Gateway, words: &[&str]) -> Vec<String> {
    let report = gateway.folder().join("report.xml");
    let port = gateway.address.tcp().port().to_string();
    let mut command = Command::new(tools::go("h2spec"));
    command.args(["-S", "-h", "127.0.0.1", "-p", &port, "-j"]).arg(&report).args(words);
    let output = command.output().expect("h2spec runs");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    let text = std::fs::read_to_string(&report).unwrap_or_else(|_| panic!("no report: {printed}"));
    let cases: Vec<&str> = text.split("<testcase ").skip(1).collect();
    assert_eq!(cases.len(), CASES, "{printed}");
    let attribute = |case: &str, name: &str| {
        let value = case.split_once(&format!("{name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
        value.map(|(value, _)| value.to_owned()).unwrap_or_default()
    };
    let failed = cases.iter().filter(|case| case.contains("<error>") || case.contains("<failure"));
    let failed = failed.inspect(|case| println!("{case}"));
    failed.map(|case| format!("{}: {}", attribute(case, "package"), attribute(case, "classname"))).collect()
}

#[test]
fn h2spec_in_the_clear() {
    let origin = page();
    let gateway = Gateway::start(Config::http(&origin.address));
    assert_eq!(failures(&gateway, &[]), FAILS_IN_THE_CLEAR);
    gateway.finish();
}

#[test]
fn h2spec_over_tls() {
    let origin = page();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = Certificates::create(folder.path());
    let (certificate, key) = (files.server.display(), files.server_key.display());
    let lines = format!("[listener.tls]\ncert_file = \"{certificate}\"\nkey_file = \"{key}\"");
    let gateway = Gateway::start(Config::http(&origin.address).listener(&lines));
    assert_eq!(failures(&gateway, &["-t", "-k"]), FAILS_OVER_TLS);
    let curl = |words: &[&str]| {
        let url = format!("https://127.0.0.1:{}/", gateway.address.tcp().port());
        let mut curl = Command::new("curl");
        let output = curl.args(["-sSk", "--max-time", "20", "-w", " %{http_version}"]).args(words).arg(url).output();
        String::from_utf8(output.expect("curl runs").stdout).expect("text")
    };
    assert_eq!((curl(&["--http2"]), curl(&["--http1.1"])), ("hello 2".to_owned(), "hello 1.1".to_owned()));
    gateway.finish();
}
