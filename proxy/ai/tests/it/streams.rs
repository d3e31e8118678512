//! Streams: usage that the client did not request, breaks, deadlines, usage of responses.

use std::{io::Write as _, time::Duration};

use weir_ai::settings::AiListenerSettings;
use weir_telemetry::catalog;

use crate::{
    gateway::{CHAT, EVENTS, STREAM, chunk, ok, plain, post, refused, respond, settings},
    support::Gateway,
};

const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"abcd\"}}],\"usage\":null}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn tokens(gateway: &Gateway, kind: &str) -> u64 {
    gateway.counter(catalog::AI_TOKENS.name, &[("listener", "test"), ("model", "any"), ("kind", kind)])
}

fn flagged(gateway: &Gateway, flag: &str) -> u64 {
    gateway.counter(catalog::AI_FLAGGED.name, &[("listener", "test"), ("model", "any"), ("flag", flag)])
}

/// The contents of the chunks to the end of a body.
fn body(client: &mut crate::support::Client) -> String {
    let mut all = Vec::new();
    while let Some(chunk) = client.0.chunk() {
        all.extend_from_slice(&chunk);
    }
    String::from_utf8(all).expect("UTF-8")
}

#[test]
fn usage_is_requested_for_a_client_that_did_not_and_dropped_again() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", STREAM));
    let stream = format!("{EVENTS}{}{}{}0\r\n\r\n", chunk(TEXT), chunk(USAGE), chunk(DONE));
    let request = respond(&mut gateway.origin.accept(), &stream);
    let wanted = STREAM.replace("}", ",\"stream_options\":{\"include_usage\":true}}");
    assert!(request.ends_with(&wanted), "{request}");
    assert!(client.head().contains("text/event-stream"));
    assert_eq!(body(&mut client), format!("{TEXT}{DONE}"));
    drop(client);
    gateway.rests();
    assert_eq!((tokens(&gateway, "input"), tokens(&gateway, "output")), (9, 4));
    assert_eq!((flagged(&gateway, "partial"), flagged(&gateway, "estimated")), (0, 0));
    let labels = [("listener", "test"), ("model", "any")];
    let timed = |name| gateway.count(name, &labels);
    assert_eq!((timed(catalog::AI_FIRST_TOKEN.name), timed(catalog::AI_PER_OUTPUT_TOKEN.name)), (1, 1));
}

#[test]
fn a_client_that_requests_usage_gets_it() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    let own = STREAM.replace("}", ",\"stream_options\":{\"include_usage\":true}}");
    client.send(&post("/v1/chat/completions", &own));
    let stream = format!("{EVENTS}{}0\r\n\r\n", chunk(&format!("{TEXT}{USAGE}{DONE}")));
    assert!(respond(&mut gateway.origin.accept(), &stream).ends_with(&own));
    client.head();
    assert_eq!(body(&mut client), format!("{TEXT}{USAGE}{DONE}"));
}

#[test]
fn usage_of_a_whole_response_is_counted_and_its_bytes_stay() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", CHAT));
    let whole = "{\"choices\": [],\n \"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\
                 \"prompt_tokens_details\":{\"cached_tokens\":5}}}";
    respond(&mut gateway.origin.accept(), &ok(whole));
    let response = client.response();
    assert!(response.ends_with(whole) && response.contains(&format!("Content-Length: {}\r\n", whole.len())));
    drop(client);
    gateway.rests();
    assert_eq!((tokens(&gateway, "input"), tokens(&gateway, "cached_input"), tokens(&gateway, "output")), (7, 5, 3));
}

#[test]
fn a_stream_that_its_provider_breaks_off_ends_with_an_error_and_without_done() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", STREAM));
    let mut end = gateway.origin.accept();
    respond(&mut end, &format!("{EVENTS}{}", chunk(&format!("{TEXT}data: {{\"cut"))));
    client.head();
    drop(end);
    let body = body(&mut client);
    assert!(body.starts_with(TEXT) && body.contains("\"code\":\"upstream_bad_response\""), "{body}");
    assert!(body.ends_with("\n\n") && !body.contains("[DONE]") && !body.contains("data: {\"cut"), "{body}");
    drop(client);
    gateway.rests();
    assert_eq!((flagged(&gateway, "partial"), flagged(&gateway, "estimated")), (1, 1));
    assert_eq!(tokens(&gateway, "output"), 1, "four bytes of text");
}

#[test]
fn a6_a_pause_between_events_and_a_late_first_event_have_deadlines_of_their_own() {
    let short = AiListenerSettings { token_gap_timeout: Duration::from_millis(200), ..settings() };
    let gateway = plain(short);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", STREAM));
    let mut end = gateway.origin.accept();
    respond(&mut end, &format!("{EVENTS}{}", chunk(TEXT)));
    client.head();
    assert!(body(&mut client).contains("\"code\":\"idle_timeout\""));
    drop((client, end, gateway));
    let short = AiListenerSettings { first_token_timeout: Duration::from_millis(200), ..settings() };
    let gateway = plain(short);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", STREAM));
    let mut end = gateway.origin.accept();
    respond(&mut end, EVENTS);
    assert_eq!(refused(&mut client, 504).1["code"], "ttft_timeout");
}

#[test]
fn a3_an_event_without_an_end_is_cut_with_an_error() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", STREAM));
    let mut end = gateway.origin.accept();
    respond(&mut end, &format!("{EVENTS}{}", chunk(TEXT)));
    client.head();
    let writing = std::thread::spawn(move || {
        // Two MiB of one line; past its limit the gateway takes no more.
        end.0.send(&chunk("data: ")[..]);
        (0..40).all(|_| end.0.stream.write_all(chunk(&"x".repeat(50_000)).as_bytes()).is_ok())
    });
    let seen = body(&mut client);
    assert!(seen.contains("upstream_bad_response") && seen.len() < 1_200_000, "{} bytes", seen.len());
    drop(client);
    let _ = writing.join().expect("no panic");
}

#[test]
fn a5_a_client_that_leaves_ends_the_stream_of_its_provider_and_is_billed_for_its_part() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", STREAM));
    let mut end = gateway.origin.accept();
    respond(&mut end, &format!("{EVENTS}{}", chunk(&TEXT.repeat(3))));
    client.head();
    client.0.until("abcd");
    drop(client);
    assert_eq!(end.0.rest(), "", "the connection to the provider ends");
    gateway.rests();
    assert_eq!((flagged(&gateway, "partial"), tokens(&gateway, "output")), (1, 3));
}

#[test]
fn a_client_that_leaves_behind_the_end_has_a_whole_response() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", STREAM));
    let mut end = gateway.origin.accept();
    respond(&mut end, &format!("{EVENTS}{}", chunk(&format!("{TEXT}{USAGE}{DONE}"))));
    client.head();
    client.0.until("[DONE]");
    drop((client, end));
    gateway.rests();
    assert_eq!((flagged(&gateway, "partial"), tokens(&gateway, "output")), (0, 4));
}

#[test]
fn an_error_of_the_provider_passes_as_it_is_and_is_free() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", CHAT));
    let error =
        "HTTP/1.1 418 Odd\r\nx-request-id: p1\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n{\"\u{e9}";
    respond(&mut gateway.origin.accept(), error);
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 418 ") && response.contains("x-request-id: p1\r\n"), "{response}");
    assert!(response.ends_with("{\"\u{e9}"), "{response}");
    drop(client);
    gateway.rests();
    assert_eq!((tokens(&gateway, "input"), tokens(&gateway, "output")), (0, 0));
}

#[test]
fn a_comment_passes_at_once_and_is_a_sign_of_life() {
    let limit = Duration::from_millis(400);
    let gateway = plain(AiListenerSettings { first_token_timeout: limit, token_gap_timeout: limit, ..settings() });
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", STREAM));
    let mut end = gateway.origin.accept();
    respond(&mut end, &format!("{EVENTS}{}", chunk(": beat 0\n\n")));
    assert!(client.head().contains("text/event-stream"), "the wait for the first event is over");
    client.0.until(": beat 0\n\n\r\n");
    for beat in 1..6 {
        std::thread::sleep(limit / 2); // the pace of the provider: in all longer than each limit
        end.send(&chunk(&format!(": beat {beat}\n\n")));
        // It is there before the provider sends anything else.
        client.0.until(&format!(": beat {beat}\n\n\r\n"));
    }
    // A comment in front of an event, in the same piece.
    end.send(&format!("{}0\r\n\r\n", chunk(&format!(": within\n{TEXT}{USAGE}{DONE}"))));
    let rest = body(&mut client);
    assert!(rest.contains(&format!(": within\n{TEXT}{DONE}")), "{rest}");
    drop(client);
    gateway.rests();
    assert_eq!((tokens(&gateway, "output"), flagged(&gateway, "estimated")), (4, 0), "a comment costs nothing");
}
