//! Keys: who may come in, policies, rates, budgets, the usage log.

use serde_json::Value;
use weir_ai::settings::{AiListenerSettings, ProviderDialect};
use weir_base::Net;
use weir_spend::{
    Glob,
    budget::Budgets,
    policy::{Mode, OutputAction, OutputCap, Policy},
    rate::Pace,
};
use weir_telemetry::catalog;

use crate::{
    gateway::{
        CHAT, KEY, STREAM, ok, plain, post, prices, provider, read, refused, respond, start, start_with, usage,
        with_key,
    },
    http2::Http2Client,
    support::Gateway,
};

const USED: &str = "{\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":20}}";

fn globs(names: &[&str]) -> Vec<Glob> {
    names.iter().map(|name| Glob::new(name).expect("a pattern")).collect()
}

/// The error of a chat with this policy, which no provider sees.
fn denied(policy: Policy, body: &str, status: u16) -> (String, Value) {
    let gateway = plain(with_key(policy));
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", body));
    let refused = refused(&mut client, status);
    assert!(gateway.origin.is_untouched());
    refused
}

/// A chat that passes.
fn passes(gateway: &Gateway, body: &str) -> String {
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", body));
    let request = respond(&mut gateway.origin.accept(), &ok(USED));
    assert!(client.response().starts_with("HTTP/1.1 200 "));
    drop(client);
    gateway.rests();
    request
}

/// A call of gRPC streams both ways and is not buffered, so no filter chooses for it. A content type must not make one of a request.
#[test]
fn the_content_type_of_grpc_gets_no_request_past_its_key() {
    let settings = with_key(Policy::default());
    let gateway = start(settings, vec![provider(ProviderDialect::OpenAi)], |setup| setup.is_multiplexed = true);
    for (stream, path) in [(1, "/v1/models"), (3, "/v1/messages/count_tokens"), (5, "/v1/files")] {
        let mut client = Http2Client::new(gateway.client());
        let method = if stream == 3 { "POST" } else { "GET" };
        client.request(stream, &[(":method", method), (":path", path), ("content-type", "application/grpc")]);
        // A refusal of gRPC has status 200, and its reason in a field.
        let response = client.response(stream);
        assert!(response.body.is_empty() || response.status == 401, "{path}: {response:?}");
    }
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_response_in_the_background_is_refused() {
    let gateway = plain(with_key(Policy::default()));
    let mut client = gateway.client();
    client.send(&post("/v1/responses", r#"{"model":"m","input":"hi","background":true}"#));
    assert_eq!(refused(&mut client, 400).1["param"], "background");
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_client_without_a_good_key_learns_nothing() {
    let gateway = plain(with_key(Policy::default()));
    for (line, path) in [
        ("", "/v1/chat/completions"),
        ("Authorization: Bearer sk-other\r\n", "/v1/chat/completions"),
        ("Authorization: Basic eDp5\r\n", "/v1/secrets"),
        ("x-api-key: sk-weir-short\r\n", "/v1/models"),
    ] {
        let mut client = gateway.client();
        client.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n{line}\r\n"));
        let (head, error) = refused(&mut client, 401);
        assert!(head.contains("\r\nx-should-retry: false\r\n"), "{head}");
        assert_eq!((&error["code"], &error["type"]), (&"invalid_api_key".into(), &"invalid_request_error".into()));
    }
    assert!(gateway.origin.is_untouched());
    assert!(!passes(&gateway, CHAT).contains(KEY), "the key stays here");
}

#[test]
fn a_key_of_the_gateway_never_goes_on_even_without_one_of_the_provider() {
    let mut open = provider(ProviderDialect::OpenAi);
    open.api_key = None;
    let gateway = start_with(with_key(Policy::default()), vec![open], None, |_| {});
    let request = passes(&gateway, CHAT);
    assert!(!request.contains(KEY) && !request.to_ascii_lowercase().contains("authorization"), "{request}");
}

#[test]
fn endpoints_without_accounting_need_a_listener_without_keys() {
    let gateway = plain(with_key(Policy::default()));
    let mut client = gateway.client();
    client.send(&post("/v1/images/generations", "{}"));
    assert_eq!(refused(&mut client, 404).1["code"], "unknown_url");
    assert!(gateway.origin.is_untouched());
}

#[test]
fn policies_refuse_models_tools_prompts_and_places() {
    let only = |models: &[&str]| Policy { models_allowed: globs(models), ..Policy::default() };
    assert_eq!(denied(only(&["gpt-*"]), CHAT, 403).1["code"], "model_not_allowed");
    let tools =
        r#"{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"rm"}},{"type":"web_search"}]}"#;
    let allowed = |names: &[&str]| Policy { tools_allowed: Some(globs(names)), ..Policy::default() };
    assert_eq!(denied(allowed(&["rm"]), tools, 403).1["code"], "tool_not_allowed");
    assert_eq!(denied(allowed(&["web_*"]), tools, 403).1["param"], "tools");
    let few = Policy { tools_max: Some(1), ..Policy::default() };
    assert_eq!(denied(few, tools, 400).1["param"], "tools");
    let short = Policy { prompt_bytes_max: Some(10), ..Policy::default() };
    assert_eq!(denied(short, CHAT, 400).1["code"], "context_length_exceeded");
    let elsewhere: Net = "203.0.113.0/24".parse().expect("a network");
    let far = Policy { sources: vec![elsewhere], ..Policy::default() };
    assert_eq!(denied(far, CHAT, 403).1["code"], "source_not_allowed");
    let gateway = plain(with_key(allowed(&["rm", "web_search"])));
    passes(&gateway, tools);
}

#[test]
fn a_limit_of_output_is_put_into_the_request() {
    let cap = Some(OutputCap { tokens: 7, action: OutputAction::Clamp });
    let gateway = plain(with_key(Policy { output: cap, ..Policy::default() }));
    let request = passes(&gateway, CHAT);
    assert!(request.ends_with(&CHAT.replace("]}", "],\"max_completion_tokens\":7}")), "{request}");
    let own = CHAT.replace("]}", "],\"max_tokens\":5}");
    assert!(passes(&gateway, &own).ends_with(&own), "a lower one stays");
    let high = CHAT.replace("]}", "],\"max_tokens\":5000}");
    assert!(passes(&gateway, &high).ends_with(&high.replace("5000", "7")));
}

#[test]
fn a_rate_refuses_with_a_time_and_shows_its_state() {
    let policy = Policy { requests: Some(Pace::per_minute(2)), ..Policy::default() };
    let gateway = plain(with_key(policy));
    let mut client = gateway.client();
    for remaining in [1, 0] {
        client.send(&post("/v1/chat/completions", CHAT));
        let response = "HTTP/1.1 200 OK\r\nConnection: close\r\nx-ratelimit-remaining-requests: 999\r\nContent-Length: 2\r\n\r\n{}";
        respond(&mut gateway.origin.accept(), response);
        let (head, _) = read(&mut client);
        assert!(head.contains("\r\nx-ratelimit-limit-requests: 2"), "{head}");
        let own = format!("\r\nx-ratelimit-remaining-requests: {remaining}\r\n");
        assert!(head.contains(&own) && !head.contains(": 999\r\n"), "{head}");
    }
    client.send(&post("/v1/chat/completions", CHAT));
    let (head, error) = refused(&mut client, 429);
    assert!(head.contains("\r\nretry-after-ms: ") && head.contains("\r\nretry-after: "), "{head}");
    assert_eq!((&error["type"], &error["code"]), (&"requests".into(), &"rate_limit_exceeded".into()));
}

#[test]
fn a9_a_budget_is_reserved_before_and_settled_behind_a_request() {
    // 10 tokens of prompt by estimate and 100 of output are reserved, 50 are used.
    let budgets = Budgets { day_tokens: Some(170), ..Budgets::default() };
    let gateway = plain(with_key(Policy { budgets, ..Policy::default() }));
    let mut first = gateway.client();
    first.send(&post("/v1/chat/completions", CHAT));
    let mut end = gateway.origin.accept();
    end.request();
    // While it is under way, the rest does not do for another one.
    let mut second = gateway.client();
    second.send(&post("/v1/chat/completions", CHAT));
    let (head, error) = refused(&mut second, 429);
    assert!(head.contains("\r\nx-should-retry: false\r\n"), "{head}");
    assert_eq!(error["code"], "insufficient_quota");
    end.send(&ok(USED));
    assert!(first.response().starts_with("HTTP/1.1 200 "));
    drop((first, second));
    gateway.rests();
    passes(&gateway, CHAT);
    let mut third = gateway.client();
    third.send(&post("/v1/chat/completions", CHAT));
    assert_eq!(refused(&mut third, 429).1["code"], "insufficient_quota", "100 of 170 are used");
}

#[test]
fn a_policy_that_observes_refuses_nothing_and_counts() {
    let policy = Policy { models_allowed: globs(&["other"]), mode: Mode::Observe, ..Policy::default() };
    let gateway = plain(with_key(policy));
    passes(&gateway, CHAT);
    let labels = [("listener", "test"), ("reason", "model_not_allowed"), ("treatment", "observed")];
    assert_eq!(gateway.counter(catalog::AI_REFUSALS.name, &labels), 1);
}

#[test]
fn a_budget_in_money_needs_a_price() {
    let budgets = Budgets { day_money: Some(1_000), ..Budgets::default() };
    let policy = || Policy { budgets, ..Policy::default() };
    assert_eq!(denied(policy(), CHAT, 403).1["code"], "model_not_allowed");
    let gateway = plain(AiListenerSettings { prices: prices("m"), ..with_key(policy()) });
    passes(&gateway, CHAT);
    let labels = [("listener", "test"), ("model", "any")];
    assert_eq!(gateway.counter(catalog::AI_COST.name, &labels), 30 + 2 * 20);
}

#[test]
fn each_request_has_a_line_in_the_usage_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = AiListenerSettings { prices: prices("m"), ..with_key(Policy::default()) };
    let gateway = start_with(own, vec![provider(ProviderDialect::OpenAi)], Some(folder.path()), |_| {});
    passes(&gateway, &CHAT.replace("]}", "],\"user\":\"u1\"}"));
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", STREAM));
    let mut end = gateway.origin.accept();
    end.request();
    drop(client);
    gateway.rests();
    let lines = usage(folder.path(), 2);
    let whole = lines.iter().find(|line| line["status"] == 200).expect("the first");
    assert_eq!((&whole["key"], &whole["model"], &whole["user"]), (&"team".into(), &"m".into(), &"u1".into()));
    assert_eq!((&whole["input_tokens"], &whole["output_tokens"]), (&30.into(), &20.into()));
    assert_eq!((&whole["cost_micro"], &whole["price_version"]), (&70.into(), &7.into()));
    assert_eq!((&whole["charged_tokens"], &whole["flags"]), (&50.into(), &serde_json::json!([])));
    assert_eq!(whole["request"].as_str().map(str::len), Some(36));
    let left = lines.iter().find(|line| line["status"] == 0).expect("the second");
    assert_eq!(left["flags"], serde_json::json!(["estimated", "partial"]));
}
