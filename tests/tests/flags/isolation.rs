//! The isolation cases S1 to S12 of feature flags: what one client may cost another. They stand apart from the table of the other protocols,
//! because nothing of a request reaches a server: S6 is `outages::f2`, and S11 has no part here, since no byte of a client waits for one.

use std::io::{Error, Result};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_tests::deadline::until_true;
use weir_tests::flags::{BACKEND, Events, FRONTEND, FlagOrigin, before_with, environment, get, post};
use weir_tests::gateway::{Gateway, program};
use weir_tests::http::HttpClient;
use weir_tests::isolation::{Ask, Caller, Leaving, Victim, connect};
use weir_tests::stream::Address;

/// How long a victim is watched.
const WATCHED: Duration = Duration::from_millis(900);

/// A debug build on a busy machine needs some of it; where isolation is broken, a victim waits for seconds.
const WORST: Duration = Duration::from_millis(800);

const FEATURES: &str = "/api/client/features";

/// A victim that evaluates its flags.
struct Evaluates(HttpClient);

impl Caller for Evaluates {
    fn exchange(&mut self, asks: &[(Ask, Vec<u8>)]) -> Result<Vec<Vec<u8>>> {
        asks.iter().map(|_| self.small().map(|()| b"ok".to_vec())).collect()
    }

    fn small(&mut self) -> Result<()> {
        let request = format!(
            "GET /api/frontend/features/flag-1?userId=7 HTTP/1.1\r\nHost: a\r\nAuthorization: {FRONTEND}\r\n\r\n"
        );
        if !self.0.try_send(request) {
            return Err(Error::other("the connection has ended"));
        }
        let response = self.0.response();
        match response.status {
            200 | 404 => Ok(()),
            _ => Err(Error::other(format!("{} {}", response.status, response.text()))),
        }
    }
}

fn victim(address: &Address) -> Victim {
    let address = address.clone();
    Victim::steady(move || Ok(Box::new(Evaluates(HttpClient::over(connect(&address)?))) as Box<dyn Caller>))
}

/// A gateway with one worker, so that everything is shared, and five thousand flags: a document of more than a megabyte.
struct Stand {
    gateway: Gateway,
    _origin: FlagOrigin,
}

impl Stand {
    fn start(more: &str) -> Self {
        let origin = FlagOrigin::start_with(&["--data", "huge"]);
        let gateway = before_with(&origin.address, more, "", &environment());
        gateway.rewrite(|text| text.replace("workers = 2", "workers = 1"));
        until_true("flags", || get(&gateway.address, FEATURES, BACKEND).status == 200);
        until_true("the frontend token", || get(&gateway.address, "/api/frontend", FRONTEND).status == 200);
        Self { gateway, _origin: origin }
    }

    /// A request of the whole document, whose response is not read.
    fn reader(&self) -> HttpClient {
        let mut client = HttpClient::connect(&self.gateway.address);
        client.send(format!("GET {FEATURES} HTTP/1.1\r\nHost: a\r\nAuthorization: {BACKEND}\r\n\r\n"));
        client
    }

    /// Watches a victim while something goes on.
    fn watch(&self, case: &str, attack: impl FnOnce()) {
        let victim = victim(&self.gateway.address);
        let begun = Instant::now();
        attack();
        std::thread::sleep(WATCHED.saturating_sub(begun.elapsed()));
        let waits = victim.stop();
        assert!(waits.failed == 0 && waits.served > 0 && waits.worst < WORST, "{case}: {waits:?}");
    }
}

#[test]
fn s1_a_slow_reader_costs_others_no_time() {
    let stand = Stand::start("");
    for bytes_per_read in [0, 1_000, 8_000] {
        let mut reader = stand.reader();
        stand.watch(&format!("S1, {bytes_per_read} bytes each 5 ms"), || {
            let begun = Instant::now();
            while begun.elapsed() < WATCHED {
                if bytes_per_read > 0 {
                    reader.exactly(bytes_per_read);
                }
                std::thread::sleep(Duration::from_millis(5)); // the pace of the reader
            }
        });
    }
}

#[test]
fn s2_unread_responses_and_streams_share_the_bytes_of_one_document() {
    let mut stand = Stand::start("");
    let before = stand.gateway.process().resident();
    let unread: Vec<_> = (0..40).map(|_| stand.reader()).collect();
    let streams: Vec<_> =
        (0..40).map(|_| Events::open(&stand.gateway.address, "/api/client/streaming", BACKEND, None)).collect();
    stand.watch("S2, 40 unread responses and 40 unread streams", || ());
    let grown = stand.gateway.process().resident().saturating_sub(before);
    // Each may hold what its socket does not take: the document once.
    assert!(grown < 80 * (2 << 20), "{grown} bytes");
    drop((unread, streams));
    stand.gateway.wait_at_rest();
}

#[test]
fn s3_a_slow_upload_of_metrics_holds_nothing_that_others_need() {
    let stand = Stand::start("");
    let body = json!({ "appName": "y".repeat(60_000), "bucket": null }).to_string();
    let head = format!(
        "POST /api/client/metrics HTTP/1.1\r\nHost: a\r\nAuthorization: {BACKEND}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut uploads: Vec<_> = (0..20).map(|_| HttpClient::connect(&stand.gateway.address)).collect();
    for upload in &mut uploads {
        upload.send(&head);
        upload.send(&body.as_bytes()[..body.len() / 2]);
    }
    stand.watch("S3", || {
        for byte in body.as_bytes()[body.len() / 2..].iter().take(20) {
            for upload in &mut uploads {
                upload.send([*byte]);
            }
            std::thread::sleep(Duration::from_millis(30)); // the pace of the uploads
        }
    });
}

#[test]
fn s4_and_s12_a_client_that_leaves_ends_its_stream_and_the_counters_know() {
    let stand = Stand::start("");
    for how in Leaving::ALL {
        let mut client = HttpClient::connect(&stand.gateway.address);
        client.send(format!("GET /api/client/streaming HTTP/1.1\r\nHost: a\r\nAuthorization: {BACKEND}\r\n\r\n"));
        until_true("the stream to begin", || client.has_response());
        stand.gateway.wait_metric("weir_flags_streams", &[], 1.0);
        assert_eq!(stand.gateway.metric("weir_requests_in_flight"), 1.0, "while the stream is open");
        let left = Instant::now();
        let half = how.from(client.stream().duplicate());
        // The other handle on the connection would keep it open.
        drop(client);
        until_true("the end to be noticed", || stand.gateway.metric("weir_flags_streams") == 0.0);
        assert!(left.elapsed() < Duration::from_millis(1_500), "{}: {:?}", how.name(), left.elapsed());
        drop(half);
    }
    stand.gateway.wait_at_rest();
}

#[test]
fn s5_a_client_that_comes_back_finds_its_stream_free() {
    let stand = Stand::start("streams_max = 1");
    // The gauge lags behind by a look of the keeper, so the place itself is tried.
    let comes_back = || Events::open(&stand.gateway.address, "/api/client/streaming", BACKEND, None).status == 200;
    for round in 0..20 {
        let left = Instant::now();
        until_true(format!("the place of round {round} to be free"), comes_back);
        assert!(left.elapsed() < Duration::from_secs(3), "round {round}: {:?}", left.elapsed());
    }
    until_true("the last stream to end", || stand.gateway.metric("weir_flags_streams") == 0.0);
}

#[test]
fn s7_contexts_around_every_size_are_read_as_small_ones_are() {
    let stand = Stand::start("");
    let small = post(&stand.gateway.address, "/api/frontend", FRONTEND, r#"{"userId":"7"}"#).body;
    for edge in [4 << 10, 16 << 10, 32 << 10, 64 << 10] {
        for size in [edge - 600, edge, edge + 1_usize] {
            // A value has 4 KiB at most.
            let parts = (0..size).step_by(1_000).map(|at| (at.to_string(), json!("y".repeat(1_000.min(size - at)))));
            let properties: serde_json::Map<String, serde_json::Value> = parts.collect();
            let body = json!({ "userId": "7", "properties": properties }).to_string();
            let reply = post(&stand.gateway.address, "/api/frontend", FRONTEND, &body);
            match body.len() <= 64 << 10 {
                true => assert!(reply.status == 200 && reply.body == small, "{size} bytes: {}", reply.status),
                false => assert_eq!(reply.status, 413, "{size} bytes"),
            }
        }
    }
}

#[test]
fn s8_a_refusal_leaves_nothing_behind() {
    let stand = Stand::start("");
    let mut client = HttpClient::connect(&stand.gateway.address);
    let good = format!("GET /api/client/features/flag-1 HTTP/1.1\r\nHost: a\r\nAuthorization: {BACKEND}\r\n\r\n");
    let post = |path: &str, token: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    client.send(&good);
    let status = client.response().status;
    for (request, refused) in [
        (post("/api/frontend", FRONTEND, "{"), 400),
        (post("/api/frontend", BACKEND, "{}"), 403),
        (post("/api/client/metrics", BACKEND, "[]"), 400),
        (post("/no-such-path", BACKEND, "{}"), 404),
        (post("/api/client/delta", BACKEND, ""), 405),
    ] {
        client.send(&request);
        let response = client.response();
        assert_eq!(response.status, refused, "{}", response.text());
        if response.field("connection").as_deref() == Some("close") {
            client = HttpClient::connect(&stand.gateway.address);
        }
        client.send(&good);
        assert_eq!(client.response().status, status, "behind {refused}");
    }
}

#[test]
fn s9_optional_parts_are_read_or_refused() {
    let stand = Stand::start("");
    let status = |lines: &str| {
        let mut client = HttpClient::connect(&stand.gateway.address);
        client.send(format!("GET {FEATURES}?namePrefix=none HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n"));
        client.response().status
    };
    for (lines, wanted) in [
        (format!("authorization: {BACKEND}"), 200),
        (format!("AUTHORIZATION:  {BACKEND}  "), 200),
        (format!("Authorization: {BACKEND}\r\nIf-None-Match:"), 200),
        (format!("Authorization: {BACKEND}\r\nAccept-Encoding: ,;q=,gzip;q=x"), 200),
        ("Authorization:".to_owned(), 403),
        (format!("Authorization: Bearer {BACKEND}"), 403),
        (format!("Authorization: {}", BACKEND.to_uppercase()), 403),
        (format!("Authorization: {BACKEND}\r\nAuthorization: {BACKEND}"), 403),
    ] {
        assert_eq!(status(&lines), wanted, "{lines}");
    }
}

#[test]
fn s10_configurations_that_protect_nothing_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = "[[listener]]\nname = \"f\"\nprotocol = \"flags\"\nbind = \"127.0.0.1:3063\"\n";
    let upstream = "[[upstream]]\nname = \"u\"\nendpoints = [\"127.0.0.1:4242\"]\n";
    let with_upstream = |lines: &str| format!("{upstream}{listener}upstream = \"u\"\n[listener.flags]\n{lines}");
    let offline = |lines: &str| format!("{listener}[listener.flags]\n{lines}");
    let tokens = "tokens = [\"env:FLAGS_TOKEN\"]\n";
    for (text, is_good) in [
        (with_upstream(tokens), true),
        (offline("bootstrap_file = \"f.json\"\nclient_tokens = [\"env:FLAGS_TOKEN\"]"), true),
        (with_upstream(""), false),
        (offline(""), false),
        // Tokens of an offline gateway beside a server: no request could use them.
        (with_upstream(&format!("{tokens}client_tokens = [\"env:FLAGS_TOKEN\"]")), false),
        (with_upstream(&format!("{tokens}bootstrap_file = \"f.json\"")), false),
        (offline("bootstrap_file = \"f.json\"\npretrusted_tokens = [\"env:FLAGS_TOKEN\"]"), false),
        (offline("bootstrap_file = \"f.json\""), false),
        (with_upstream(&format!("{tokens}allow = [\"10.0.0.0/8\"]\ndeny = [\"10.0.0.0/8\"]")), false),
        (with_upstream(&format!("{tokens}allow = []")), false),
        (with_upstream(&format!("{tokens}token_header = \"X Token\"")), false),
        (with_upstream(&format!("{tokens}token_header = \"content-length\"")), false),
        (
            with_upstream(&format!(
                "{tokens}[[listener.flags.upstream_header]]\nname = \"Host\"\nvalue = \"env:FLAGS_TOKEN\""
            )),
            false,
        ),
        (with_upstream(&format!("{tokens}streaming = false")), true),
        (with_upstream(&format!("{tokens}streaming = false\nstreams_max = 10")), false),
        (with_upstream(&format!("{tokens}backstage = [\"everything\"]")), false),
        (with_upstream("tokens = [\"*:development.secret-in-the-file\"]"), false),
        (with_upstream("tokens = [\"env:FLAGS_NONSENSE\"]"), false),
        (with_upstream(&format!("{tokens}[listener.http]\ntrusted_hops = 1")), false),
    ] {
        let file = folder.path().join("weir.toml");
        std::fs::write(&file, &text).expect("written");
        let mut check = Command::new(program());
        check.arg("check").arg("--strict").arg(&file).env("FLAGS_TOKEN", BACKEND).env("FLAGS_NONSENSE", "no token");
        let output = check.output().expect("weir check");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_good, "{text}\n{said}");
        assert!(!said.contains("secret-in-the-file") && !said.contains("no token\""), "{said}");
    }
}
