//! The books: the usage log and the origin's ledger agree request by request, also if clients leave and the gateway is killed.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use weir_base::Rng;
use weir_tests::ai::{AiOrigin, KEY, gateway, usage};
use weir_tests::http::HttpClient;
use weir_tests::seed::seeded;
use weir_tests::stream::Address;

/// Clients at a time.
const CLIENTS: usize = 8;

/// Requests before the gateway is killed, and after its restart.
const REQUESTS: usize = 300;

/// A chat whose user is its number, and what is chosen for it.
fn body(number: usize, rng: &mut Rng) -> String {
    let shapes = ["", "", "usage=none", "status=500", "fault=closed at=2", "gap=2ms events=40 bytes=2000"];
    let shape = shapes[rng.below(shapes.len() as u64) as usize];
    let stream = if rng.below(2) == 0 { ",\"stream\":true" } else { "" };
    let (prompt, cached) = (10 + rng.below(90), rng.below(10));
    format!(
        "{{\"model\":\"m\",\"user\":\"u{number}\"{stream},\"messages\":[{{\"role\":\"user\",\"content\":\
         \"[weir prompt={prompt} cached={cached} bytes={} events=6 {shape}]\"}}]}}",
        rng.below(400)
    )
}

/// Sends requests until `stop`, some of which it leaves early. Numbers come from `next`.
pub(crate) fn clients(address: &Address, next: &AtomicUsize, end: usize, stop: &AtomicBool, seed: u64) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let mut rng = Rng::new(seed << 8 | client as u64);
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        break;
                    }
                    one(address, number, &mut rng);
                }
            });
        }
    });
}

/// One request. The gateway may be gone.
fn one(address: &Address, number: usize, rng: &mut Rng) {
    let body = body(number, rng);
    let Ok(stream) = weir_tests::stream::Stream::connect(address) else {
        return std::thread::sleep(Duration::from_millis(5));
    };
    let mut client = HttpClient::over(stream);
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    if !client.try_send(format!("{head}{body}")) {
        return;
    }
    if rng.below(5) == 0 {
        // It leaves after some of the response.
        std::thread::sleep(Duration::from_millis(rng.below(30)));
        return;
    }
    client.to_end();
}

/// Entries of the ledger by their user. A retry of the gateway would be a second one.
fn by_user(ledger: &Value) -> HashMap<String, Vec<Value>> {
    let mut found: HashMap<String, Vec<Value>> = HashMap::new();
    for entry in ledger["entries"].as_array().expect("entries") {
        found.entry(entry["user"].as_str().expect("a user").to_owned()).or_default().push(entry.clone());
    }
    found
}

/// Compares both books. How many requests were exact.
pub(crate) fn compare(ledger: &Value, lines: &[Value]) -> usize {
    let billed = by_user(ledger);
    let mut exact = 0;
    let mut seen: HashMap<&str, &Value> = HashMap::new();
    for line in lines {
        let user = line["user"].as_str().expect("a user");
        assert!(seen.insert(user, line).is_none(), "two lines for {user}: {line}");
        let flags: Vec<&str> = line["flags"].as_array().expect("flags").iter().filter_map(Value::as_str).collect();
        let Some(entries) = billed.get(user) else {
            let is_open = flags.contains(&"crash") || flags.contains(&"partial") || line["charged_tokens"] == 0;
            assert!(is_open, "the origin has not seen it: {line}");
            continue;
        };
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        let same = |one: &str, other: &str| assert_eq!(line[one], entry[other], "{one}: {line}\n{entry}");
        match &*flags {
            [] if line["status"] == 200 => {
                same("input_tokens", "prompt");
                same("output_tokens", "completion");
                same("cached_input_tokens", "cached");
                assert_eq!(entry["end"], "completed", "{line}\n{entry}");
                exact += 1;
            }
            [] => {
                assert_eq!((&line["charged_tokens"], &entry["completion"]), (&0.into(), &0.into()), "{line}\n{entry}")
            }
            _ => assert!(line["charged_tokens"].as_u64() > Some(0) || flags == ["estimated", "partial"], "{line}"),
        }
    }
    for (user, entries) in &billed {
        assert!(seen.contains_key(user.as_str()), "no line for {entries:?}");
    }
    exact
}

#[test]
fn a14_after_a_kill_each_request_has_one_line_that_is_true_or_flagged() {
    let seed = seeded().next_u64() >> 16;
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut gateway = start(&origin, state.path());
    let address = gateway.address.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| clients(&address, &next, usize::MAX, &stop, seed));
        while next.load(Ordering::Relaxed) < REQUESTS {
            std::thread::sleep(Duration::from_millis(1));
        }
        gateway.process().kill();
        stop.store(true, Ordering::Relaxed);
    });
    gateway.ended();
    let gateway = start(&origin, state.path());
    let begun = next.load(Ordering::Relaxed);
    stop.store(false, Ordering::Relaxed);
    clients(&gateway.address, &next, begun + REQUESTS, &stop, seed + 1);
    gateway.finish();
    let (ledger, lines) = (origin.ledger(), usage(state.path()));
    let exact = compare(&ledger, &lines);
    let crashed = lines.iter().filter(|line| line["flags"].to_string().contains("crash")).count();
    println!("{} lines, {exact} exact, {crashed} of the kill", lines.len());
    assert!(exact > REQUESTS / 4 && crashed > 0, "{} lines, {exact} exact, {crashed} crashed", lines.len());
}

fn start(origin: &AiOrigin, state: &Path) -> weir_tests::gateway::Gateway {
    gateway(origin, "openai", state, "")
}
