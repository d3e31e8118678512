//! The ledger, read over HTTP.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, origin};

const STREAM: &str = "\"stream\":true";

/// The ledger once none of its entries is open.
fn settled(address: SocketAddr) -> Value {
    let begun = Instant::now();
    loop {
        let ledger = Client::to(address).get("/ledger").json();
        if ledger["totals"]["open"] == 0 {
            return ledger;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "an entry stays open: {ledger}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn each_request_has_an_entry_with_its_tokens_and_its_end() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let whole = client.chat("bytes=40 prompt=5 cached=2 word=5eed0001", "\"user\":\"u1\"");
    let id = whole.field("x-request-id").expect("an id").to_owned();
    client.chat("bytes=40 events=4 prompt=5 reasoning=3", STREAM);
    client.chat("status=500 prompt=5", "");
    client.chat("bytes=40 events=4 prompt=5 fault=truncated at=2", STREAM);
    client.post("/v1/embeddings", r#"{"model":"e","input":"[weir prompt=11]"}"#);
    let ledger = settled(address);
    let entries = ledger["entries"].as_array().expect("entries");
    assert_eq!(entries.len(), 5);
    let wanted = json!({
        "id": id, "endpoint": "chat", "model": "m", "word": "5eed0001", "user": "u1", "try": 0, "stream": false,
        "status": 200, "end": "completed", "events": 0, "prompt": 5, "cached": 2, "written": 0, "completion": 10,
        "reasoning": 0, "audio": 0,
    });
    assert_eq!(entries[0], wanted);
    let of = |at: usize| {
        (
            entries[at]["end"].as_str().expect("an end"),
            entries[at]["completion"].as_u64(),
            entries[at]["events"].as_u64(),
        )
    };
    assert_eq!(of(1), ("completed", Some(13), Some(4)));
    assert_eq!(of(2), ("refused", Some(0), Some(0)));
    assert_eq!(of(3), ("truncated", Some(5), Some(2)));
    assert_eq!((&entries[2]["prompt"], &entries[4]["prompt"]), (&json!(0), &json!(11)), "an error costs nothing");
    assert_eq!(ledger["totals"]["completion"], 10 + 13 + 5);
    let part = client.get("/ledger?from=3&count=1").json();
    assert_eq!(part["entries"].as_array().map(Vec::len), Some(1));
    assert_eq!(part["entries"][0], entries[3]);
    client.send("DELETE", "/ledger", "", "");
    assert_eq!(client.reply().status, 200);
    assert_eq!(settled(address)["totals"]["requests"], 0);
}

#[test]
fn a_client_that_leaves_pays_for_the_events_that_it_can_have_seen() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let body = super::client::prompt("bytes=4000 events=1000 prompt=9 gap=5ms", STREAM);
    client.send("POST", "/v1/chat/completions", "", &body);
    let mut seen = 0;
    while seen < 3 {
        seen += String::from_utf8_lossy(&client.some()).matches("\"content\":\"").count();
    }
    drop(client);
    let ledger = settled(address);
    let entry = &ledger["entries"][0];
    let (events, completion) =
        (entry["events"].as_u64().expect("a number"), entry["completion"].as_u64().expect("a number"));
    assert_eq!((entry["end"].as_str(), entry["prompt"].as_u64()), (Some("disconnected"), Some(9)));
    assert!((2..900).contains(&events), "{entry}");
    assert_eq!(completion, events, "four bytes are a token, and each event has four");
}

#[test]
fn a_whole_reply_that_is_lost_on_its_way_is_billed_and_an_error_is_not() {
    let (_origin, address) = origin();
    for (fault, completion, prompt) in [("cut", 10, 9), ("truncated", 10, 9), ("error", 0, 0), ("html", 0, 0)] {
        let mut client = Client::to(address);
        client.send("DELETE", "/ledger", "", "");
        client.reply();
        client.chat(&format!("bytes=40 prompt=9 fault={fault}"), "");
        let entry = settled(address)["entries"][0].clone();
        assert_eq!(
            (&entry["end"], &entry["completion"], &entry["prompt"]),
            (&json!(fault), &json!(completion), &json!(prompt))
        );
    }
}

#[test]
fn a_stalled_stream_is_closed_in_the_ledger_as_what_it_is() {
    let (_origin, address) = origin();
    let mut client = Client::to(address).patience(Duration::from_millis(200));
    client.chat("bytes=40 events=4 fault=stalled at=1", STREAM);
    drop(client);
    let entry = settled(address)["entries"][0].clone();
    assert_eq!((&entry["end"], &entry["events"]), (&json!("stalled"), &json!(1)));
}
