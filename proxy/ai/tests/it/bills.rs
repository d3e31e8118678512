//! Bills of requests that do not end as they should: each side that breaks off, responses that are read on, attempts that are lost.

use std::time::Duration;

use weir_ai::settings::{AiListenerSettings, ProviderDialect};
use weir_telemetry::catalog;

use crate::{
    gateway::{
        CHAT, EVENTS, STREAM, chunk, estimate, ok, plain, post, provider, read, refused, respond, settings, start,
    },
    support::{Client, Gateway, Origin},
    translation::{
        self, BUSY, CHATS, COMPLETION, MESSAGE, MESSAGES, SAID, accounts, exchange, flagged, pair, response, tokens,
    },
};

const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"abcd\"},\"finish_reason\":null}]}\n\n";
const REPORT: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":70,\
    \"completion_tokens_details\":{\"reasoning_tokens\":60}}}\n\ndata: [DONE]\n\n";
const WHOLE: &str = "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":70}}";

/// The body of a request that makes a model reason.
fn reasoning(body: &str) -> String {
    body.replace("\"model\"", "\"reasoning_effort\":\"high\",\"model\"")
}

fn drained(gateway: &Gateway, outcome: &str) -> u64 {
    gateway.counter(catalog::AI_DRAINS.name, &[("listener", "test"), ("outcome", outcome)])
}

#[test]
fn a_provider_that_breaks_off_within_a_whole_response_costs_its_part() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post(CHATS, CHAT));
    let mut end = gateway.origin.accept();
    respond(&mut end, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"id\":\"c");
    drop(end);
    let delivered = client.0.rest_bytes().len() as u64;
    gateway.rests();
    assert!(delivered > 8 && delivered < 400, "{delivered}");
    assert_eq!((tokens(&gateway, "output"), flagged(&gateway, "partial")), (delivered.div_ceil(4), 1));
}

#[test]
fn a_client_that_leaves_a_model_at_its_reasoning_pays_the_reservation() {
    for (body, output) in [(STREAM.to_owned(), 1), (reasoning(STREAM), 100)] {
        let gateway = plain(settings());
        let mut client = gateway.client();
        client.send(&post(CHATS, &body));
        let mut end = gateway.origin.accept();
        respond(&mut end, &format!("{EVENTS}{}", chunk(TEXT)));
        client.head();
        client.0.until("abcd");
        drop(client);
        assert_eq!(end.0.rest(), "", "the provider is left at once");
        gateway.rests();
        assert_eq!(tokens(&gateway, "output"), output, "{body}");
    }
    for (body, output) in [(CHAT.to_owned(), 0), (reasoning(CHAT), 100)] {
        let gateway = plain(settings());
        let mut client = gateway.client();
        client.send(&post(CHATS, &body));
        let mut end = gateway.origin.accept();
        end.request();
        drop(client);
        assert_eq!(end.0.rest(), "");
        gateway.rests();
        assert_eq!((tokens(&gateway, "input"), tokens(&gateway, "output")), (6, output), "{body}");
    }
}

#[test]
fn a_provider_that_fails_within_its_stream_is_paid_for_its_part_and_the_client_not_charged_for_hidden_reasoning() {
    let error = "data: {\"error\":{\"message\":\"m\"}}\n\n";
    let done = "data: [DONE]\n\n";
    for end_of_stream in [error.to_owned(), format!("{error}{done}")] {
        for leaves in [false, true] {
            let gateway = plain(settings());
            let mut client = gateway.client();
            client.send(&post(CHATS, &reasoning(STREAM)));
            let mut end = gateway.origin.accept();
            respond(&mut end, &format!("{EVENTS}{}", chunk(&format!("{TEXT}{end_of_stream}"))));
            client.head();
            client.0.until("error");
            if !leaves {
                end.send("0\r\n\r\n");
                client.0.until("\r\n0\r\n\r\n");
            }
            drop(client);
            gateway.rests();
            assert_eq!(tokens(&gateway, "output"), 1, "{end_of_stream} {leaves}");
            assert_eq!(
                (flagged(&gateway, "partial"), flagged(&gateway, "estimated")),
                (1, 1),
                "{end_of_stream} {leaves}"
            );
        }
    }
}

#[test]
fn a_stream_of_anthropic_that_fails_is_charged_for_what_came_behind_its_first_report() {
    let said = "delta ".repeat(40);
    let events = format!(
        "event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\"usage\":{{\"input_tokens\":9,\"output_tokens\":1}}}}}}\n\n\
         event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{said}\"}}}}\n\n"
    );
    let error =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n";
    for (last, is_cut) in [(error, false), ("", true)] {
        let gateway = start(settings(), vec![provider(ProviderDialect::Anthropic)], |_| {});
        let mut client = gateway.client();
        client.send(&post(MESSAGES, &MESSAGE.replace("\"model\"", "\"stream\":true,\"model\"")));
        let mut end = gateway.origin.accept();
        respond(&mut end, &format!("{EVENTS}{}", chunk(&format!("{events}{last}"))));
        client.head();
        client.0.until("delta ");
        if !is_cut {
            end.send("0\r\n\r\n");
        }
        drop(end);
        client.0.until("\r\n0\r\n\r\n");
        drop(client);
        gateway.rests();
        assert_eq!((tokens(&gateway, "input"), tokens(&gateway, "output")), (9, estimate(&said)), "{last}");
        assert_eq!((flagged(&gateway, "partial"), flagged(&gateway, "estimated")), (1, 1), "{last}");
    }
}

/// A listener that reads on for so long.
fn draining(timeout: Duration) -> Gateway {
    plain(AiListenerSettings { drain_on_disconnect: timeout, ..settings() })
}

#[test]
fn a_response_that_its_client_leaves_is_read_to_its_report_and_charged_by_it() {
    let stream = format!("{}{}0\r\n\r\n", chunk(TEXT), chunk(REPORT));
    let whole = ok(WHOLE);
    for (body, before, after) in [
        (STREAM, format!("{EVENTS}{}", chunk(TEXT)), stream),
        (CHAT, String::new(), whole.clone()),
        (CHAT, whole[..whole.len() - 20].to_owned(), whole[whole.len() - 20..].to_owned()),
    ] {
        let gateway = draining(Duration::from_secs(10));
        let mut client = gateway.client();
        client.send(&post(CHATS, body));
        let mut end = gateway.origin.accept();
        respond(&mut end, &before);
        if !before.is_empty() {
            client.head();
        }
        drop(client);
        end.send(&after);
        assert_eq!(end.0.rest(), "");
        gateway.rests();
        assert_eq!((tokens(&gateway, "input"), tokens(&gateway, "output")), (9, 70), "{body} {before}");
        assert_eq!((flagged(&gateway, "partial"), flagged(&gateway, "estimated")), (0, 0), "{body} {before}");
        assert_eq!((drained(&gateway, "complete"), drained(&gateway, "incomplete")), (1, 0), "{body} {before}");
    }
}

#[test]
fn a_translated_response_is_read_on_too() {
    let own = AiListenerSettings { drain_on_disconnect: Duration::from_secs(10), ..settings() };
    let gateway = start(own, vec![provider(ProviderDialect::OpenAi)], |_| {});
    let mut client = gateway.client();
    client.send(&post(MESSAGES, MESSAGE));
    let mut end = gateway.origin.accept();
    end.request();
    drop(client);
    end.send(&ok(COMPLETION));
    assert_eq!(end.0.rest(), "");
    gateway.rests();
    assert_eq!(accounts(&gateway), [9, 4, 5, 0, 0, 0]);
    assert_eq!(drained(&gateway, "complete"), 1);
}

#[test]
fn reading_on_ends_with_its_time_and_is_not_done_for_an_error() {
    let gateway = draining(Duration::from_millis(100));
    let mut client = gateway.client();
    client.send(&post(CHATS, STREAM));
    let mut end = gateway.origin.accept();
    respond(&mut end, &format!("{EVENTS}{}", chunk(TEXT)));
    client.head();
    drop(client);
    assert_eq!(end.0.rest(), "");
    gateway.rests();
    assert_eq!((tokens(&gateway, "output"), flagged(&gateway, "partial")), (1, 1));
    assert_eq!((drained(&gateway, "complete"), drained(&gateway, "incomplete")), (0, 1));
    let gateway = draining(Duration::from_secs(10));
    let mut client = gateway.client();
    client.send(&post(CHATS, STREAM));
    let mut end = gateway.origin.accept();
    respond(&mut end, "HTTP/1.1 400 Bad\r\nContent-Length: 10\r\n\r\n{");
    client.head();
    drop(client);
    assert_eq!(end.0.rest(), "", "at once");
    gateway.rests();
    assert_eq!((tokens(&gateway, "input"), drained(&gateway, "incomplete")), (0, 0));
}

/// A request whose first attempt breaks off a 2xx while it is held.
fn after_a_loss(gateway: &Gateway, client: &mut Client) {
    client.send(&post(CHATS, translation::CHAT));
    let cut = ok(SAID);
    respond(&mut gateway.origin.accept(), &cut[..cut.len() - 20]);
}

/// Tokens of the model `m`.
fn of_model(gateway: &Gateway, kind: &str) -> u64 {
    gateway.counter(catalog::AI_TOKENS.name, &[("listener", "test"), ("model", "m"), ("kind", kind)])
}

#[test]
fn a_held_response_that_broke_off_is_charged_if_the_next_target_fails() {
    let other = Origin::new();
    let gateway = pair(&other, [ProviderDialect::Anthropic, ProviderDialect::OpenAi]);
    let mut client = gateway.client();
    after_a_loss(&gateway, &mut client);
    respond(&mut other.accept(), BUSY);
    let (head, _) = read(&mut client);
    assert!(head.starts_with("http/1.1 429 ") && !head.contains("x-should-retry"), "{head}");
    drop(client);
    gateway.rests();
    assert!(of_model(&gateway, "input") > 0);
    assert_eq!(of_model(&gateway, "output"), estimate(&SAID[..SAID.len() - 20]));
}

#[test]
fn a_response_that_broke_off_may_be_tried_again_as_without_a_gateway() {
    // The last attempt breaks off while it is held, and is charged.
    let gateway = translation::gateway(ProviderDialect::Anthropic);
    let mut client = gateway.client();
    after_a_loss(&gateway, &mut client);
    let (head, _) = refused(&mut client, 502);
    assert!(!head.contains("x-should-retry"), "{head}");
    drop(client);
    gateway.rests();
    assert_eq!(tokens(&gateway, "output"), estimate(&SAID[..SAID.len() - 20]));
    // One without a response is free, and a client may try again.
    let gateway = translation::gateway(ProviderDialect::Anthropic);
    let mut client = gateway.client();
    client.send(&post(CHATS, translation::CHAT));
    gateway.origin.accept().request();
    let (head, _) = refused(&mut client, 502);
    assert!(!head.contains("x-should-retry"), "{head}");
    let (_, head, _) = exchange(&translation::gateway(ProviderDialect::Anthropic), CHATS, translation::CHAT, BUSY);
    assert!(!head.contains("x-should-retry"), "{head}");
}

#[test]
fn an_error_that_is_coded_long_or_cut_keeps_its_status_in_a_translation() {
    let limited = r#"{"error":{"message":"slow","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
    let coded = response(429, "Content-Encoding: gzip\r\nRetry-After: 7\r\n", "\u{1f}\u{1}not to be read");
    let long = response(429, "Retry-After: 7\r\n", &limited.replace("slow", &"s".repeat(100_000)));
    let cut = response(429, "Retry-After: 7\r\n", limited);
    for (came, closes) in [(coded.as_str(), false), (&long, false), (&cut[..cut.len() - 10], true)] {
        let gateway = translation::gateway(ProviderDialect::OpenAi);
        let mut client = gateway.client();
        client.send(&post(MESSAGES, MESSAGE));
        let mut end = gateway.origin.accept();
        end.request();
        let _ = std::io::Write::write_all(&mut end.0.stream, came.as_bytes());
        let end = (!closes).then_some(end);
        let (head, error) = refused(&mut client, 429);
        assert!(head.contains("\r\nretry-after: 7\r\n") && !head.contains("content-encoding"), "{head}");
        assert_eq!(error["type"], "rate_limit_error", "{error}");
        drop((client, end));
        gateway.rests();
        assert_eq!(accounts(&gateway), [0; 6], "an error is free");
    }
}

#[test]
fn a_translated_stream_has_no_more_memory_than_the_budget() {
    let start_of = |text: &str| SAID_STREAM.replace("TEXT", text);
    for (buffered, is_cut) in [(512 << 10, true), (64 << 20, false)] {
        let gateway =
            start(settings(), vec![provider(ProviderDialect::Anthropic)], |setup| setup.buffered_bytes = buffered);
        let mut client = gateway.client();
        client.send(&post(CHATS, &translation::CHAT.replace("\"model\"", "\"stream\":true,\"model\"")));
        let mut end = gateway.origin.accept();
        end.request();
        let stream = start_of(&"x".repeat(400_000));
        let sent = std::thread::spawn(move || {
            let mut all = EVENTS.to_owned();
            for piece in stream.as_bytes().chunks(10_000) {
                all.push_str(&chunk(std::str::from_utf8(piece).expect("ASCII")));
            }
            all.push_str("0\r\n\r\n");
            let _ = std::io::Write::write_all(&mut end.0.stream, all.as_bytes());
            end
        });
        client.head();
        let mut body = Vec::new();
        while let Some(chunk) = client.0.chunk() {
            body.extend_from_slice(&chunk);
        }
        let body = String::from_utf8(body).expect("UTF-8");
        assert_eq!(body.contains("\"code\":\"overloaded\""), is_cut, "{}", &body[..body.len().min(500)]);
        assert_eq!(body.ends_with("data: [DONE]\n\n"), !is_cut);
        drop((client, sent.join()));
        gateway.rests();
    }
}

/// A stream of Anthropic's with one text.
const SAID_STREAM: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"s\",\"content\":[],\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"TEXT\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":4}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);
