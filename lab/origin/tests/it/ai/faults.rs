//! Faults as clients see them.

use std::time::Duration;

use super::client::{Client, End, origin};

const STREAM: &str = "\"stream\":true";

#[test]
fn each_fault_of_a_stream_ends_it_in_its_own_way() {
    let (_origin, address) = origin();
    for (fault, end, events) in [
        ("cut", End::Reset, 1 + 2),
        ("closed", End::Closed, 1 + 2),
        ("truncated", End::Whole, 1 + 2),
        ("error", End::Whole, 1 + 2 + 1),
        ("no_done", End::Whole, 1 + 4 + 1),
        ("garbage", End::Whole, 1 + 4 + 1 + 1 + 1),
        ("dataless", End::Whole, 1 + 4 + 1 + 1),
        ("stalled", End::Silence, 1 + 2),
    ] {
        let mut client = Client::to(address).patience(Duration::from_millis(700));
        let reply = client.chat(&format!("bytes=64 events=4 at=2 fault={fault}"), STREAM);
        assert_eq!((reply.status, reply.end, reply.events().len()), (200, end, events), "{fault}: {}", reply.text());
    }
    let mut client = Client::to(address).patience(Duration::from_millis(300));
    let silent = client.chat("fault=silent", STREAM);
    assert_eq!((silent.status, silent.end), (0, End::Silence));
    let page = Client::to(address).chat("fault=html", STREAM);
    assert_eq!((page.status, page.field("content-type")), (502, Some("text/html")));
}

#[test]
fn an_error_in_a_stream_has_the_form_of_its_dialect() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let chat = client.chat("fault=error", STREAM);
    assert!(chat.events().last().is_some_and(|data| data.starts_with("{\"error\":{\"message\":")), "{}", chat.text());
    let body = r#"{"model":"m","stream":true,"max_tokens":9,"messages":["[weir fault=error]"]}"#;
    let messages = client.post("/v1/messages", body).text();
    assert!(
        messages.contains("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\""),
        "{messages}"
    );
    let responses = client.post("/v1/responses", r#"{"model":"m","stream":true,"input":"[weir fault=error]"}"#).text();
    assert!(responses.contains("event: error\ndata: {\"type\":\"error\""), "{responses}");
}

#[test]
fn each_fault_of_a_whole_reply_ends_it_in_its_own_way() {
    let (_origin, address) = origin();
    for (fault, status, end) in [
        ("cut", 200, End::Reset),
        ("closed", 200, End::Closed),
        ("stalled", 200, End::Silence),
        ("truncated", 200, End::Whole),
        ("garbage", 200, End::Whole),
        ("error", 500, End::Whole),
        ("html", 502, End::Whole),
    ] {
        let mut client = Client::to(address).patience(Duration::from_millis(700));
        let reply = client.chat(&format!("bytes=200 fault={fault}"), "");
        assert_eq!((reply.status, reply.end), (status, end), "{fault}");
        let is_json = serde_json::from_slice::<serde_json::Value>(&reply.body()).is_ok();
        assert_eq!(is_json, fault == "error", "{fault}");
    }
}

#[test]
fn a_line_without_an_end_goes_on_as_long_as_it_is_read() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let body = super::client::prompt("bytes=64 events=4 fault=endless", STREAM);
    client.send("POST", "/v1/chat/completions", "", &body);
    let mut received = 0;
    while received < 32 << 20 {
        received += client.some().len();
    }
}

#[test]
fn an_error_is_spared_to_later_tries() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let first = client.chat("bytes=64 events=4 fault=truncated fails=1 word=5eed0007", STREAM);
    let second = client.chat("bytes=64 events=4 fault=truncated fails=1 word=5eed0007", STREAM);
    assert!(first.said().len() < 64 && second.said().len() == 64);
}
