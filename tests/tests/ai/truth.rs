//! The books: the usage log, the budgets and the origin's ledger agree request by request, also if clients leave, providers fail and the gateway
//! is killed.
//!
//! The lane sends some hundreds of requests. `WEIR_TRUTH_REQUESTS=10000` with `--nocapture` is the long form, and prints the figures.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use weir_base::Rng;
use weir_tests::ai::{AiOrigin, KEY, gateway_under, usage};
use weir_tests::gateway::Gateway;
use weir_tests::http::HttpClient;
use weir_tests::seed::seeded;
use weir_tests::stream::{Address, Stream};

pub(crate) mod books;
mod mix;

use books::Books;
use mix::Request;

/// Clients at a time.
const CLIENTS: usize = 8;

/// Requests of the lane: half before the gateway is killed, half after its restart.
const REQUESTS: usize = 500;

/// Requests, by the environment.
fn requests() -> usize {
    let text = std::env::var("WEIR_TRUTH_REQUESTS");
    text.map_or(REQUESTS, |text| text.parse().expect("WEIR_TRUTH_REQUESTS is a number")).max(100)
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
                    one(address, &Request::new(number, &mut rng));
                }
            });
        }
    });
}

/// One request. The gateway may be gone.
fn one(address: &Address, request: &Request) {
    let Ok(stream) = Stream::connect(address) else { return };
    let mut client = HttpClient::over(stream);
    let Request { path, body, leaves_after } = request;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    if !client.try_send(format!("{head}{body}")) {
        return;
    }
    match leaves_after {
        // The time in which some of a response comes.
        Some(pause) => std::thread::sleep(*pause),
        None => drop(client.to_end()),
    }
}

/// A gateway in front of three upstreams of the origin, which reads the rest of left responses for so long.
fn start(origin: &AiOrigin, state: &Path, drain: &str) -> Gateway {
    let upstream = |name: &str, dialect: &str| {
        format!(
            "[[upstream]]\nname = \"{name}\"\nendpoints = [\"{}\"]\n\
             [upstream.ai]\ndialect = \"{dialect}\"\napi_key = \"env:PROVIDER_KEY\"\n",
            origin.address.text()
        )
    };
    let model = |name: &str, first: &str| {
        format!(
            "[[listener.ai.model]]\nname = \"{name}\"\n[[listener.ai.model.target]]\nupstream = \"{first}\"\n\
             [[listener.ai.model.target]]\nupstream = \"spare\"\nweight = 0\n"
        )
    };
    let more = format!(
        "drain_on_disconnect = \"{drain}\"\n{}{}",
        model(mix::MODEL, "provider"),
        model(mix::CROSSED, "messages")
    );
    let tables = upstream("spare", "openai") + &upstream("messages", "anthropic");
    gateway_under(origin, "openai", state, &more, &tables)
}

#[test]
fn a14_after_a_kill_each_request_has_one_line_that_is_true_or_flagged() {
    let (seed, all) = (seeded().next_u64() >> 16, requests());
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut gateway = start(&origin, state.path(), "0s");
    let address = gateway.address.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| clients(&address, &next, usize::MAX, &stop, seed));
        while next.load(Ordering::Relaxed) < all / 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        gateway.process().kill();
        stop.store(true, Ordering::Relaxed);
    });
    gateway.ended();
    let gateway = start(&origin, state.path(), "5s");
    let begun = next.load(Ordering::Relaxed);
    stop.store(false, Ordering::Relaxed);
    clients(&gateway.address, &next, begun + all - all / 2, &stop, seed + 1);
    gateway.wait_at_rest();
    let drained = gateway.metrics().sum_where("weir_ai_disconnect_drains_total", &[("outcome", "complete")]);
    gateway.finish();
    let books = Books::compare(&origin.entries(), &usage(state.path()));
    books.compare_budgets(state.path());
    println!("{books}\n{drained} responses were read to their end without their clients");
    let Books { lines, exact, crashed, .. } = books;
    assert!(exact > all / 4 && crashed > 0 && drained > 0.0, "{lines} lines, {exact} exact, {crashed} crashed");
}
