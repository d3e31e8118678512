//! Libraries and programs that people use, over TLS: httpx of Python, fetch of Node, net/http of Go, h2load.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use weir_tests::certificate::Certificates;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::{field, unchunked};
use weir_tests::http_origin::{HttpOrigin, Kind};
use weir_tests::stream::Address;
use weir_tests::tools;

/// Repeats bodies.
fn echo() -> Faulty {
    Faulty::http(|request| {
        let body = match field(&request[0], "transfer-encoding") {
            Some(_) => unchunked(&request[1]),
            None => request[1].clone(),
        };
        let is_head = request[0].starts_with(b"HEAD ");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        Act::Reply([head.as_bytes(), if is_head { b"" } else { &body }].concat())
    })
}

/// A gateway that speaks TLS.
struct Scene {
    gateway: Gateway,
    files: Certificates,
    /// Where bodies are repeated.
    url: String,
    folder: TempDir,
}

impl Scene {
    fn before(origin: &Address) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = Certificates::create(folder.path());
        let (certificate, key) = (files.server.display(), files.server_key.display());
        let tls = format!("[listener.tls]\ncert_file = \"{certificate}\"\nkey_file = \"{key}\"");
        let gateway = Gateway::start(Config::http(origin).listener(&tls));
        let url = format!("https://localhost:{}/echo", gateway.address.tcp().port());
        Self { gateway, files, url, folder }
    }
}

#[test]
fn httpx_and_fetch_get_the_requested_responses() {
    let origin = echo();
    let Scene { gateway, files, url, folder: _folder } = Scene::before(&origin.address);
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    let mut httpx = Command::new(tools::python());
    httpx.arg(scripts.join("python/http_client.py")).arg(&url).arg(&files.authority);
    let mut fetch = Command::new("node");
    fetch.arg(scripts.join("node/fetch.js")).arg(&url).env("NODE_EXTRA_CA_CERTS", &files.authority);
    for client in [httpx, fetch] {
        says_ok(client);
    }
    gateway.finish();
}

/// Its own server behind the gateway answers `Expect` as its own client expects.
#[test]
fn net_http_gets_the_requested_responses() {
    let origin = HttpOrigin::start(Kind::Go);
    let Scene { gateway, files, url, folder: _folder } = Scene::before(&origin.address);
    for version in ["1", "2"] {
        let mut client = Command::new(tools::go("net-http"));
        client.args(["client", &url]).arg(&files.authority).arg(version);
        says_ok(client);
    }
    gateway.finish();
}

/// Every response is there, in each version, and with a connection for each request.
#[test]
fn h2load_has_every_response_in_both_versions() {
    let origin = echo();
    let Scene { gateway, url, folder, .. } = Scene::before(&origin.address);
    let body = folder.path().join("body");
    std::fs::write(&body, "some body").expect("written");
    // Many requests of a connection, one of each, and streams beside each other.
    let ways: [(&[&str], u64, &str); 3] = [
        (&["--h1", "-n", "3000", "-c", "20"], 3_000, "http/1.1"),
        (&["--h1", "-n", "100", "-c", "100"], 100, "http/1.1"),
        (&["-n", "3000", "-c", "20", "-m", "10"], 3_000, "h2"),
    ];
    for (words, requests, protocol) in ways {
        let output = Command::new("h2load").args(words).arg("-d").arg(&body).arg(&url).output().expect("h2load runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout")), "{words:?}: {text}");
        assert!(text.contains(&format!("status codes: {requests} 2xx")), "{words:?}: {text}");
        assert!(text.contains(&format!("({}) data", requests * 9)), "{words:?}: {text}");
        assert!(text.contains(&format!("Application protocol: {protocol}\n")), "{words:?}: {text}");
    }
    gateway.finish();
}

/// Runs it to its end.
fn says_ok(mut client: Command) {
    let output = client.output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"ok\n", "{client:?}: {errors}");
}
