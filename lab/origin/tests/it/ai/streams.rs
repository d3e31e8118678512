//! Streams: their events, their pace, and many of them at a time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_origin::ai::AiOriginSettings;

use super::client::{Client, End, origin, origin_with};

const STREAM: &str = "\"stream\":true";
const WITH_USAGE: &str = "\"stream\":true,\"stream_options\":{\"include_usage\":true}";

#[test]
fn a_stream_says_what_the_whole_reply_says() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    for text in ["plain", "mixed"] {
        let directives = format!("bytes=300 events=7 word=5eed0001 text={text}");
        let whole = client.chat(&directives, "").json();
        let stream = client.chat(&directives, STREAM);
        assert_eq!(stream.field("content-type"), Some("text/event-stream; charset=utf-8"));
        assert_eq!(stream.said(), whole["choices"][0]["message"]["content"], "{text}");
        let events = stream.events();
        assert_eq!((events.len(), events.last().map(String::as_str)), (1 + 7 + 1 + 1, Some("[DONE]")));
        assert!(!stream.text().contains("usage"), "it was not requested");
    }
    let events = client.chat("bytes=40 events=2 prompt=5", WITH_USAGE).events();
    let last: Value = serde_json::from_str(&events[events.len() - 2]).expect("JSON");
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(15)));
    assert!(events[1].contains("\"usage\":null"), "{}", events[1]);
}

#[test]
fn line_ends_comments_and_chunks_are_as_chosen_and_the_text_is_the_same() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let plain = client.chat("bytes=120 events=3 text=mixed word=5eed0001", STREAM);
    for form in ["lines=crlf", "lines=cr", "lines=mixed", "comments=1", "split=utf8", "split=bytes"] {
        let reply = client.chat(&format!("bytes=120 events=3 text=mixed word=5eed0001 {form}"), STREAM);
        assert_eq!((reply.said(), reply.end), (plain.said(), End::Whole), "{form}");
        let is_cut = |chunk: &Vec<u8>| std::str::from_utf8(chunk).is_err();
        assert_eq!(reply.chunks.iter().any(is_cut), form.starts_with("split"), "{form}");
        assert_eq!(reply.text().contains(": weir\n"), form == "comments=1");
    }
}

#[test]
fn usage_has_every_shape() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let reported = |client: &mut Client, shape: &str| -> Vec<Value> {
        let events = client.chat(&format!("bytes=40 events=2 prompt=5 usage={shape}"), STREAM).events();
        let usage = |data: &String| serde_json::from_str::<Value>(data).ok()?.get("usage").cloned();
        events.iter().filter_map(usage).filter(|usage| !usage.is_null()).collect()
    };
    assert_eq!(reported(&mut client, "exact"), [] as [Value; 0]);
    assert_eq!(reported(&mut client, "always").len(), 1);
    assert_eq!(reported(&mut client, "twice").len(), 2);
    assert_eq!(reported(&mut client, "missing").len(), 0);
    let growing: Vec<u64> =
        reported(&mut client, "growing").iter().filter_map(|usage| usage["completion_tokens"].as_u64()).collect();
    assert_eq!(growing, [0, 5, 10, 10]);
    for (shape, tokens) in [("last_content", json!(10)), ("finish", json!(10)), ("choices", json!(10))] {
        assert_eq!(reported(&mut client, shape)[0]["completion_tokens"], tokens, "{shape}");
    }
    let whole =
        |client: &mut Client, shape: &str| client.chat(&format!("bytes=40 usage={shape}"), "").json()["usage"].clone();
    assert_eq!(whole(&mut client, "negative")["completion_tokens"], -7);
    assert_eq!(whole(&mut client, "strings")["completion_tokens"], "10");
    assert_eq!(whole(&mut client, "below")["completion_tokens"], 1);
}

#[test]
fn other_dialects_have_events_with_names() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let responses = client.post("/v1/responses", r#"{"model":"m","stream":true,"input":"[weir bytes=32 events=2]"}"#);
    let names: Vec<String> =
        responses.text().lines().filter_map(|line| line.strip_prefix("event: ")).map(str::to_owned).collect();
    assert_eq!((names.len(), names.last().map(String::as_str)), (10, Some("response.completed")));
    assert!(!responses.text().contains("[DONE]"));
    let body = r#"{"model":"m","stream":true,"max_tokens":99,"messages":[{"role":"user","content":"[weir bytes=32 events=2]"}]}"#;
    let messages = client.post("/v1/messages", body).text();
    assert!(messages.starts_with("event: message_start\ndata: {\"type\":\"message_start\""), "{messages}");
    assert!(messages.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"), "{messages}");
    let completions =
        client.post("/v1/completions", r#"{"model":"m","stream":true,"prompt":"[weir bytes=32 events=2]"}"#);
    assert_eq!(completions.events().len(), 2 + 1 + 1);
}

#[test]
fn events_come_at_their_pace() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    for (pace, least) in [("first=60ms gap=20ms", 60 + 2 * 20), ("gaps=10ms,70ms", 80), ("rate=20", 2 * 50)] {
        let begun = Instant::now();
        let reply = client.chat(&format!("bytes=30 events=3 {pace}"), STREAM);
        let (took, least) = (begun.elapsed(), Duration::from_millis(least));
        assert!(reply.end == End::Whole && took >= least, "{pace}: {took:?}");
    }
    let begun = Instant::now();
    assert_eq!(client.chat("bytes=30 first=50ms", "").status, 200);
    assert!(begun.elapsed() >= Duration::from_millis(50), "a whole reply waits too");
}

#[test]
fn many_streams_wait_side_by_side() {
    const STREAMS: usize = 300;
    let (origin, address) = origin_with(AiOriginSettings { workers: 2, ..AiOriginSettings::default() });
    let begun = Instant::now();
    let mut clients: Vec<Client> = (0..STREAMS).map(|_| Client::to(address)).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let directives = format!("bytes=64 events=4 gap=100ms word={at:08x}");
        client.send("POST", "/v1/chat/completions", "", &super::client::prompt(&directives, STREAM));
    }
    for (at, client) in clients.iter_mut().enumerate() {
        let reply = client.reply();
        assert!(reply.said().starts_with(&format!("{at:08x}")), "{}", reply.said());
    }
    // One after the other they would take 90 s.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    assert_eq!((origin.stats().requests, origin.stats().connections), (STREAMS as u64, STREAMS as u64));
}
