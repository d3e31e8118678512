//! Requests: paths, bodies, keys of providers, edits.

use weir_ai::settings::{AiListenerSettings, AttributionFields, Provider, ProviderDialect};
use weir_spend::policy::Policy;
use weir_telemetry::catalog;

use crate::{
    gateway::{
        CHAT, KEY, model, ok, plain, post, provider, read, refused, respond, settings, start, start_with, usage,
        with_key,
    },
    support::Gateway,
};

fn refusals(gateway: &Gateway, reason: &str) -> u64 {
    let labels = [("listener", "test"), ("reason", reason), ("treatment", "refused")];
    gateway.counter(catalog::AI_REFUSALS.name, &labels)
}

#[test]
fn a_request_goes_on_byte_for_byte_with_the_key_of_the_provider() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    let body = "{ \"model\" : \"m\",\n\"messages\":[{\"content\":\"\\u00e4 \"}], \"x\": 1.50 }\n";
    let extra =
        "OpenAI-Organization: o\r\nX-Stainless-Lang: python\r\nAccept-Encoding: gzip\r\nX-Forwarded-For: 1.1.1.1\r\n";
    client.send(&post("/v1/chat/completions?x=1", body).replacen("Content-Type", &format!("{extra}Content-Type"), 1));
    let request = respond(&mut gateway.origin.accept(), &ok("{}"));
    let (head, sent) = request.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("POST /v1/chat/completions?x=1 HTTP/1.1\r\n"), "{head}");
    assert_eq!(sent, body);
    let lower = head.to_ascii_lowercase();
    assert!(lower.contains("\r\nhost: api.example\r\n") && lower.contains("\r\nauthorization: bearer provider-key"));
    assert!(lower.contains("x-stainless-lang: python") && lower.contains("\r\nx-request-id: "), "{lower}");
    for gone in [&*KEY.to_ascii_lowercase(), "openai-organization", "accept-encoding", "x-forwarded"] {
        assert!(!lower.contains(gone), "{gone}: {lower}");
    }
    let (head, _) = read(&mut client);
    assert!(head.contains("\r\nx-request-id: ") && head.contains("\r\nserver-timing: policy;dur="), "{head}");
}

#[test]
fn without_a_key_of_the_provider_that_of_the_client_goes_on() {
    let open = Provider { api_key: None, ..provider(ProviderDialect::OpenAi) };
    let gateway = start(settings(), vec![open], |_| {});
    let mut client = gateway.client();
    client.send(&post("/chat/completions", CHAT));
    let request = respond(&mut gateway.origin.accept(), &ok("{}"));
    assert!(request.starts_with("POST /v1/chat/completions ") && request.contains(KEY), "{request}");
    client.response();
}

#[test]
fn unknown_paths_and_wrong_methods_never_reach_a_provider() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send("GET /v1/secrets HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(refused(&mut client, 404).1["code"], "unknown_url");
    client.send("GET /v1/embeddings HTTP/1.1\r\nHost: a\r\n\r\n");
    let (head, error) = refused(&mut client, 405);
    assert!(head.contains("\r\nallow: post") && error["code"] == "method_not_allowed", "{head}");
    client.send("PUT /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(refused(&mut client, 405).1["type"], "invalid_request_error");
    assert!(gateway.origin.is_untouched());
    assert_eq!((refusals(&gateway, "unknown_url"), refusals(&gateway, "method_not_allowed")), (1, 2));
}

#[test]
fn a8_bodies_that_can_be_read_in_two_ways_are_refused() {
    for (body, code) in [
        (r#"{"model":"a","model":"b","messages":[]}"#, "duplicate_key"),
        (r#"{"model":"a","mo\u0064el":"b","messages":[]}"#, "duplicate_key"),
        (r#"{"model":"a","messages":[]"#, "invalid_json"),
        ("[]", "invalid_json"),
        ("", "invalid_json"),
    ] {
        let gateway = plain(settings());
        let mut client = gateway.client();
        client.send(&post("/v1/chat/completions", body));
        assert_eq!(refused(&mut client, 400).1["code"], code, "{body}");
        assert!(gateway.origin.is_untouched());
    }
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", r#"{"model":"a","stream":"true"}"#));
    assert_eq!(refused(&mut client, 400).1["param"], "stream");
}

#[test]
fn a_body_has_a_limit_whether_it_says_its_length_or_not() {
    let small = || AiListenerSettings { body_bytes_max: 64, ..settings() };
    let long = format!(r#"{{"model":"m","messages":[],"x":"{}"}}"#, "y".repeat(64));
    let gateway = plain(small());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", &long));
    assert_eq!(refused(&mut client, 413).1["code"], "request_too_large");
    let gateway = plain(small());
    let mut client = gateway.client();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(&format!("{head}{:x}\r\n{long}\r\n0\r\n\r\n", long.len()));
    assert_eq!(refused(&mut client, 413).1["code"], "request_too_large");
    assert!(gateway.origin.is_untouched());
    // The longest that may be.
    let exact = format!(r#"{{"model":"m","messages":[],"x":"{}"}}"#, "y".repeat(64 - 34));
    assert_eq!(exact.len(), 64);
    let gateway = plain(small());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", &exact));
    assert!(respond(&mut gateway.origin.accept(), &ok("{}")).ends_with(&exact));
    client.response();
}

#[test]
fn a1_without_memory_for_a_body_the_client_learns_when_to_come_back() {
    let gateway = start(settings(), vec![provider(ProviderDialect::OpenAi)], |setup| setup.buffered_bytes = 1_000);
    let mut client = gateway.client();
    let long = format!(r#"{{"model":"m","x":"{}"}}"#, "y".repeat(40_000));
    client.send(&post("/v1/chat/completions", &long));
    let (head, error) = refused(&mut client, 503);
    assert!(head.contains("\r\nretry-after: 1\r\n") && head.contains("\r\nretry-after-ms: 1000\r\n"), "{head}");
    assert_eq!((&error["type"], &error["code"]), (&"server_error".into(), &"overloaded".into()));
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_coded_body_is_refused_and_a_forwarded_one_passes() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", CHAT).replacen(
        "Content-Type",
        "Content-Encoding: gzip\r\nContent-Type",
        1,
    ));
    assert_eq!(refused(&mut client, 415).1["code"], "unsupported_media_type");
    let mut client = gateway.client();
    let upload = "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\n\
                  Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\n--x--";
    client.send(upload);
    let request = respond(&mut gateway.origin.accept(), &ok("{}"));
    assert!(request.starts_with("POST /v1/audio/transcriptions ") && request.ends_with("--x--"), "{request}");
    assert!(request.to_ascii_lowercase().contains("bearer provider-key"), "{request}");
    client.response();
}

#[test]
fn a_model_has_its_own_name_at_its_provider() {
    let aliases = AiListenerSettings { models: vec![model("fast", &[(0, Some("gpt-x"))])].into(), ..settings() };
    let gateway = plain(aliases);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", &CHAT.replace("\"m\"", "\"fast\"")));
    let request = respond(&mut gateway.origin.accept(), &ok(r#"{"model":"gpt-x"}"#));
    assert!(request.ends_with(&CHAT.replace("\"m\"", "\"gpt-x\"")), "{request}");
    assert_eq!(read(&mut client).1["model"], "gpt-x", "a response stays as it is");
    client.send(&post("/v1/chat/completions", CHAT));
    let (_, error) = refused(&mut client, 404);
    assert_eq!((&error["code"], &error["param"]), (&"model_not_found".into(), &"model".into()));
    client.send("GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(read(&mut client).1["data"][0]["id"], "fast");
    client.send("GET /v1/models/fast HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(read(&mut client).1["object"], "model");
    client.send("GET /v1/models/other HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(refused(&mut client, 404).1["code"], "model_not_found");
}

#[test]
fn an_endpoint_without_a_translation_is_refused() {
    let gateway = start(settings(), vec![provider(ProviderDialect::Anthropic)], |_| {});
    let mut client = gateway.client();
    client.send(&post("/v1/messages", r#"{"model":"claude","max_tokens":5,"messages":[]}"#));
    let request = respond(&mut gateway.origin.accept(), &ok("{}")).to_ascii_lowercase();
    assert!(request.contains("x-api-key: provider-key") && !request.contains("bearer"), "{request}");
    client.response();
    client.send(&post("/v1/completions", r#"{"model":"claude","prompt":"hi"}"#));
    assert_eq!(refused(&mut client, 400).1["code"], "unsupported_endpoint");
}

#[test]
fn the_probe_needs_no_provider() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(read(&mut client).1["status"], "ok");
    assert!(gateway.origin.is_untouched());
}

/// A POST with fields that attribute it.
fn attributed(path: &str, body: &str, fields: &str) -> String {
    post(path, body).replacen("Content-Type", &format!("{fields}Content-Type"), 1)
}

#[test]
fn fields_attribute_a_request_in_the_usage_log_and_do_not_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let openai = vec![provider(ProviderDialect::OpenAi)];
    let gateway = start_with(with_key(Policy::default()), openai, Some(folder.path()), |_| {});
    let mut client = gateway.client();
    let sent = "X-Weir-User: u-1\r\nx-weir-agent: planner\r\nX-Weir-Conversation: c-1\r\nx-weir-tags: eu, prod\r\n";
    let body = CHAT.replace("\"m\"", "\"m\",\"user\":\"of the body\"");
    client.send(&attributed("/v1/chat/completions", &body, sent));
    let request = respond(&mut gateway.origin.accept(), &ok("{}"));
    assert!(request.ends_with(&body) && !request.to_ascii_lowercase().contains("x-weir-"), "{request}");
    client.response();
    client.send(&post("/v1/chat/completions", &body));
    respond(&mut gateway.origin.accept(), &ok("{}"));
    client.response();
    let lines = usage(folder.path(), 2);
    for (member, text) in [("user", "u-1"), ("agent", "planner"), ("conversation", "c-1"), ("tags", "eu,prod")] {
        assert_eq!(lines[0][member], text, "{}", lines[0]);
    }
    assert_eq!((&lines[1]["user"], lines[1].get("tags")), (&"of the body".into(), None), "{}", lines[1]);
}

#[test]
fn attribution_has_names_of_its_own_and_goes_on_where_it_is_wanted() {
    let attribution = AttributionFields { user: "x-person".into(), are_forwarded: true, ..Default::default() };
    let gateway = plain(AiListenerSettings { attribution, ..settings() });
    let mut client = gateway.client();
    client.send(&attributed("/v1/chat/completions", CHAT, "X-Person: p\r\nX-Weir-Tags: t\r\n"));
    let request = respond(&mut gateway.origin.accept(), &ok("{}"));
    assert!(request.contains("\r\nX-Person: p\r\n") && request.contains("\r\nX-Weir-Tags: t\r\n"), "{request}");
    client.response();
    // Requests without facts lose them, too.
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send("GET /v1/files HTTP/1.1\r\nHost: a\r\nX-Weir-User: u\r\n\r\n");
    let request = respond(&mut gateway.origin.accept(), &ok("{}"));
    assert!(!request.to_ascii_lowercase().contains("x-weir-"), "{request}");
    client.response();
}
