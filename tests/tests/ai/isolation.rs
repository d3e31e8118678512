//! The isolation cases S1 to S12 of language models: what one client may cost another. They stand apart from the table of the other
//! protocols, because a request of this one is a JSON body whose prompt chooses the reply.
//!
//! S5 has its own meaning here: requests have no order, so the permit of a client that left must be free for its return. S11 is the
//! pace of a stream over a distance, since prompts and replies are small.

use std::io::{Error, Result, Write as _};
use std::process::Command;
use std::time::{Duration, Instant};

use weir_tests::ai::{AiOrigin, KEY, gateway_with_one_worker, usage};
use weir_tests::deadline::until_true;
use weir_tests::gateway::{Gateway, program};
use weir_tests::http::HttpClient;
use weir_tests::isolation::{Caller, Leaving, Link, Victim, Waits, connect};
use weir_tests::stream::Address;

use crate::through::{chat, post};

/// How long a victim is watched.
const WATCHED: Duration = Duration::from_millis(900);

/// A debug build on a busy machine needs some of it; where isolation is broken, a victim waits for seconds.
const WORST: Duration = Duration::from_millis(800);

/// A victim with its chat of a few bytes.
struct Chats(HttpClient, &'static str);

impl Caller for Chats {
    fn exchange(&mut self, asks: &[(weir_tests::isolation::Ask, Vec<u8>)]) -> Result<Vec<Vec<u8>>> {
        asks.iter().map(|_| self.small().map(|()| b"ok".to_vec())).collect()
    }

    fn small(&mut self) -> Result<()> {
        let request =
            chat("bytes=2 word=5eed0001 prompt=3", "").replace("\"model\":\"m\"", &format!("\"model\":\"{}\"", self.1));
        if !self.0.try_send(request) {
            return Err(Error::other("the connection has ended"));
        }
        let response = self.0.response();
        let is_right = response.status == 200 && response.content().contains("\"content\":\"5e\"");
        if is_right { Ok(()) } else { Err(Error::other(format!("{} {}", response.status, response.text()))) }
    }
}

/// A victim at this address, with this model.
pub fn victim(address: &Address, model: &'static str) -> Victim {
    let address = address.clone();
    Victim::steady(move || Ok(Box::new(Chats(HttpClient::over(connect(&address)?), model)) as Box<dyn Caller>))
}

/// Nothing went wrong for a victim, and it did not wait.
fn unharmed(waits: &Waits, case: &str) {
    assert!(waits.failed == 0 && waits.served > 0 && waits.worst < WORST, "{case}: {waits:?}");
}

/// A gateway with one worker, so that everything is shared. Victims have a provider of their own: an origin is one thread, which a
/// stream of megabytes keeps busy, and the isolation of the gateway is in question here.
struct Stand {
    gateway: Gateway,
    origin: AiOrigin,
    state: tempfile::TempDir,
    _of_victims: AiOrigin,
}

/// The model of victims: as long as the one that it replaces in a request.
const VICTIM: &str = "v";

impl Stand {
    fn start() -> Self {
        let (origin, of_victims) = (AiOrigin::start(), AiOrigin::start());
        let state = tempfile::tempdir().expect("a folder");
        let model = |name, upstream| {
            format!(
                "[[listener.ai.model]]\nname = \"{name}\"\n[[listener.ai.model.target]]\nupstream = \"{upstream}\"\n"
            )
        };
        let models = model(VICTIM, "victims") + &model("*", "provider");
        let upstream = format!(
            "[[upstream]]\nname = \"victims\"\nendpoints = [\"{}\"]\n[upstream.ai]\napi_key = \"env:PROVIDER_KEY\"\n",
            of_victims.address.text()
        );
        let gateway = gateway_with_one_worker(&origin, state.path(), &models, &upstream);
        Self { gateway, origin, state, _of_victims: of_victims }
    }

    fn client(&self) -> HttpClient {
        HttpClient::connect(&self.gateway.address)
    }

    /// A stream that has begun.
    fn stream(&self, directives: &str) -> HttpClient {
        let mut client = self.client();
        client.send(chat(directives, ",\"stream\":true"));
        client
    }

    /// Watches a victim while something goes on.
    fn watch(&self, case: &str, attack: impl FnOnce()) {
        let victim = victim(&self.gateway.address, VICTIM);
        let begun = Instant::now();
        attack();
        std::thread::sleep(WATCHED.saturating_sub(begun.elapsed()));
        unharmed(&victim.stop(), case);
    }
}

#[test]
fn s1_a_slow_reader_costs_others_no_time() {
    let stand = Stand::start();
    for bytes_per_read in [0, 1_000, 8_000] {
        let mut reader = stand.stream("bytes=8000000 events=4000");
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
fn s2_unread_streams_cost_their_own_window() {
    let mut stand = Stand::start();
    for count in [1, 40] {
        let before = stand.gateway.process().resident();
        let unread: Vec<_> = (0..count).map(|_| stand.stream("bytes=8000000 events=4000")).collect();
        stand.watch(&format!("S2, {count} unread streams"), || ());
        let grown = stand.gateway.process().resident().saturating_sub(before);
        // Two windows of 64 KiB and the buffers of the connections; the rest is noise of the allocator.
        assert!(grown < (24 << 20) + count * (512 << 10), "{grown} bytes for {count} unread streams");
        drop(unread);
        stand.gateway.wait_at_rest();
    }
}

#[test]
fn s3_a_slow_upload_holds_no_connection_to_a_provider() {
    let stand = Stand::start();
    stand.gateway.rewrite(|text| text.replace("[upstream.ai]", "[upstream.http]\nconnections_max = 1\n[upstream.ai]"));
    let reloaded = stand.gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reloaded.json()["outcome"], "applied", "{}", reloaded.json());
    let whole = chat("bytes=2", &format!(",\"x\":\"{}\"", "y".repeat(60_000)));
    let mut uploads: Vec<_> = (0..20).map(|_| stand.client()).collect();
    for upload in &mut uploads {
        upload.send(&whole.as_bytes()[..whole.len() / 2]);
    }
    stand.watch("S3", || {
        for byte in whole.as_bytes()[whole.len() / 2..].iter().take(20) {
            for upload in &mut uploads {
                upload.send([*byte]);
            }
            std::thread::sleep(Duration::from_millis(30)); // the pace of the uploads
        }
    });
    assert!(stand.gateway.metric("weir_buffered_bytes") > 0.0, "what trickles is held by the gateway");
}

#[test]
fn s4_a_client_that_leaves_ends_the_work_of_its_provider() {
    let stand = Stand::start();
    for how in Leaving::ALL {
        for directives in ["first=20s", "bytes=4000 events=900 gap=20ms"] {
            let mut client = stand.stream(directives);
            match directives.starts_with("first") {
                true => stand.gateway.wait_metric("weir_requests_in_flight", &[], 1.0),
                false => until_true("the stream to begin", || client.has_response()),
            }
            let left = Instant::now();
            let half = how.from(client.stream().duplicate());
            // The other handle on the connection would keep it open.
            drop(client);
            until_true("the end to be noticed", || stand.gateway.metric("weir_requests_in_flight") == 0.0);
            let took = left.elapsed();
            assert!(took < Duration::from_millis(1_500), "{}, {directives}: {took:?}", how.name());
            drop(half);
        }
    }
    let ledger = stand.origin.ledger();
    assert_eq!(ledger["totals"]["completed"], 0, "{ledger}");
    stand.gateway.finish();
    let lines = usage(stand.state.path());
    assert_eq!(lines.len(), 2 * Leaving::ALL.len());
    let looks_whole = |line: &serde_json::Value| line["flags"] == serde_json::json!([]) && line["status"] == 200;
    assert!(!lines.iter().any(looks_whole), "{lines:?}");
}

#[test]
fn s5_a_client_that_comes_back_finds_its_permit_free() {
    let stand = Stand::start();
    stand.gateway.rewrite(|text| text.replace("name = \"sdk\"\n", "name = \"sdk\"\nconcurrent_max = 1\n"));
    let reloaded = stand.gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reloaded.json()["outcome"], "applied", "{}", reloaded.json());
    for round in 0..20 {
        let mut client = stand.stream("bytes=4000 events=900 gap=20ms");
        until_true("the stream to begin", || client.has_response());
        drop(client);
        let left = Instant::now();
        until_true("the permit to be free", || {
            let mut again = stand.client();
            again.send(chat("bytes=2", ""));
            again.response().status == 200
        });
        assert!(left.elapsed() < Duration::from_millis(1_500), "round {round}: {:?}", left.elapsed());
    }
}

#[test]
fn s6_providers_restart_one_after_another() {
    let stand = Stand::start();
    let other = AiOrigin::start();
    let links = [&stand.origin, &other].map(|origin| Link::before(&origin.address, Duration::ZERO));
    let (own, both) = (stand.origin.address.text(), links.each_ref().map(|link| format!("{:?}", link.address.text())));
    stand.gateway.rewrite(|text| text.replace(&format!("[\"{own}\"]"), &format!("[{}]", both.join(", "))));
    let reloaded = stand.gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reloaded.json()["outcome"], "applied", "{}", reloaded.json());
    let victim = victim(&stand.gateway.address, "m");
    for link in &links {
        std::thread::sleep(Duration::from_millis(300)); // the pace of the restarts
        link.down();
        std::thread::sleep(Duration::from_millis(300));
        link.up();
    }
    std::thread::sleep(Duration::from_millis(300));
    let waits = victim.stop();
    assert!(waits.failed <= 2 && waits.served > 20, "{waits:?}");
    drop((stand, links));
}

#[test]
fn s7_prompts_around_every_size_arrive_as_they_were_sent() {
    let stand = Stand::start();
    let edges = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20].map(|edge: usize| [edge - 600, edge, edge + 1]);
    for size in edges.into_iter().flatten() {
        let large = chat("bytes=2 word=5eed0001", &format!(",\"x\":\"{}\"", "y".repeat(size)));
        let small = chat("bytes=2 word=5eed0002", "");
        let pipelined = [small.as_str(), &large, &small].concat();
        let found = [&stand.gateway.address, &stand.origin.address].map(|address| {
            let mut client = HttpClient::connect(address);
            let mut sender = client.stream().duplicate();
            std::thread::scope(|scope| {
                scope.spawn(|| sender.write_all(pipelined.as_bytes()).expect("the pipeline is taken"));
                [(); 3].map(|()| {
                    let response = client.response();
                    let json: serde_json::Value = serde_json::from_str(&response.content()).expect("JSON");
                    (response.status, json["choices"].clone(), json["usage"].clone())
                })
            })
        });
        assert_eq!(found[0], found[1], "{size} bytes");
        assert!(found[0].iter().all(|(status, ..)| *status == 200), "{size} bytes: {found:?}");
    }
}

#[test]
fn s8_a_refusal_leaves_nothing_behind() {
    let stand = Stand::start();
    let mut client = stand.client();
    let refusals = [
        (chat("status=429 retry_after_ms=1", ""), 429),
        (post("/v1/chat/completions", "{\"model\":\"m\",\"model\":\"n\"}"), 400),
        (post("/v1/no-such-path", "{}"), 404),
        (chat("status=503", ""), 503),
    ];
    for (request, status) in refusals {
        client.send(&request);
        let refused = client.response();
        assert_eq!(refused.status, status, "{}", refused.text());
        if refused.field("connection").as_deref() == Some("close") {
            client = stand.client();
        }
        client.send(chat("bytes=2 word=5eed0001", ""));
        assert_eq!(client.response().status, 200, "behind {status}");
    }
}

#[test]
fn s9_optional_parts_are_read_as_the_provider_reads_them() {
    let stand = Stand::start();
    let members = [
        "",
        ",\"stream\":false",
        ",\"stream\":null",
        ",\"stream_options\":null",
        ",\"max_tokens\":null",
        ",\"n\":null",
        ",\"tools\":null",
        ",\"tools\":[]",
        ",\"user\":\"\"",
        ",\"stream\":true,\"stream_options\":{}",
        ",\"STREAM\":true",
    ];
    for member in members {
        let found = [&stand.gateway.address, &stand.origin.address].map(|address| {
            let mut client = HttpClient::connect(address);
            client.send(chat("bytes=2 word=5eed0001 events=1", member));
            let response = client.response();
            (response.status, response.field("content-type"))
        });
        // A refusal is no guess.
        assert!(found[0] == found[1] || found[0].0 == 400, "{member}: {found:?}");
    }
    let authorizations = [
        (format!("authorization:bearer {KEY}"), 200),
        (format!("X-API-KEY: {KEY}"), 200),
        ("Authorization: Bearer ".to_owned(), 401),
        (format!("Authorization: Basic {KEY}"), 401),
        (format!("Authorization: Bearer {KEY}\r\nAuthorization: Bearer {KEY}x"), 401),
        (format!("Authorization: Bearer {}", KEY.to_uppercase()), 401),
    ];
    for (line, status) in authorizations {
        let mut client = stand.client();
        client.send(chat("bytes=2", "").replace(&format!("Authorization: Bearer {KEY}"), &line));
        let found = client.response().status;
        assert!(found == status || (status == 401 && found == 400), "{line}: {found}");
    }
}

#[test]
fn s10_configurations_that_protect_nothing_are_refused() {
    let key = format!("[[listener.ai.key]]\nname = \"k\"\nsha256 = \"{}\"\n", "a1".repeat(32));
    let cases = [
        (String::new(), true),
        (format!("[listener.ai]\nkeys = \"required\"\n{key}"), true),
        // Keys without the mode that requires them.
        (format!("[listener.ai]\nkeys = \"none\"\n{key}"), false),
        ("[listener.ai]\nkeys = \"Required\"\n".to_owned(), false),
        // Every request would be refused.
        ("[listener.ai]\nkeys = \"required\"\n".to_owned(), false),
        // An empty list would permit all, and a budget without a journal begins again with each start.
        (format!("[listener.ai]\nkeys = \"required\"\n{key}models = []\n"), false),
        (format!("[listener.ai]\nkeys = \"required\"\n{key}day_tokens = 5\n"), false),
        (format!("[listener.ai]\nkeys = \"required\"\n{key}[listener.redis]\ncache_prefixes = [\"a:\"]\n"), false),
        (format!("[listener.ai]\nkeys = \"required\"\n{key}{key}"), false),
        (format!("[listener.ai]\nkeys = \"required\"\n{}", key.replace("a1", "zz")), false),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    for (number, (lines, is_good)) in cases.into_iter().enumerate() {
        let file = folder.path().join("weir.toml");
        let text = format!(
            "[[upstream]]\nname = \"p\"\nendpoints = [\"127.0.0.1:9\"]\n[upstream.ai]\n\
             [[listener]]\nname = \"ai\"\nprotocol = \"ai\"\nbind = \"127.0.0.1:8\"\nupstream = \"p\"\n{lines}"
        );
        std::fs::write(&file, text).expect("written");
        let mut command = Command::new(program());
        let output = command.args(["check", "--strict", "--offline"]).arg(&file).output().expect("it runs");
        let words = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.success(), is_good, "case {number}: {lines}\n{words}");
    }
}

#[test]
fn s11_a_stream_over_a_distance_comes_at_its_pace() {
    let stand = Stand::start();
    let took = |address: &Address| {
        let link = Link::before(address, Duration::from_millis(50));
        let begun = Instant::now();
        let mut client = HttpClient::connect(&link.address);
        client.send(chat("bytes=4000000 events=400", ",\"stream\":true"));
        assert!(client.response().content().ends_with("data: [DONE]\n\n"));
        begun.elapsed()
    };
    let (direct, through) = (took(&stand.origin.address), took(&stand.gateway.address));
    assert!(through < direct * 2 + Duration::from_millis(500), "{through:?} through, {direct:?} direct");
}

#[test]
fn s12_the_record_is_true_meanwhile_and_afterwards() {
    let stand = Stand::start();
    let streams: Vec<_> = (0..10).map(|_| stand.stream("bytes=400 events=900 gap=20ms")).collect();
    let served: usize = 5;
    for _ in 0..served {
        let mut client = stand.client();
        client.send(chat("bytes=2 word=5eed0001 prompt=3", ""));
        assert_eq!(client.response().status, 200);
    }
    until_true("streams to be in flight, and nothing else", || {
        let metrics = stand.gateway.metrics();
        (metrics.sum("weir_requests_in_flight"), metrics.sum("weir_connections_open")) == (10.0, 10.0)
    });
    drop(streams);
    stand.gateway.wait_at_rest();
    let metrics = stand.gateway.metrics();
    assert_eq!(metrics.sum("weir_ai_requests_total"), 15.0);
    stand.gateway.finish();
    let lines = usage(stand.state.path());
    let whole = lines.iter().filter(|line| line["flags"] == serde_json::json!([])).count();
    assert_eq!((lines.len(), whole), (15, served), "{lines:?}");
}
