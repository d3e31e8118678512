//! Accounts: reservations that hold, ends that cost, and requests that cost nothing.

use std::time::Duration;

use weir_ai::settings::{AiListenerSettings, Provider, ProviderDialect};
use weir_base::Net;
use weir_spend::{
    Glob,
    budget::Budgets,
    policy::{Mode, Policy},
    rate::Pace,
};
use weir_telemetry::catalog;

use crate::{
    gateway::{
        CHAT, EVENTS, KEY, STREAM, chunk, model, ok, plain, post, provider, read, refused, respond, settings, start,
        with_key,
    },
    support::{Gateway, Origin},
};

const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"abcd\"},\"finish_reason\":null}]}\n\n";
const FINISH: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

fn tokens(gateway: &Gateway, kind: &str) -> u64 {
    gateway.counter(catalog::AI_TOKENS.name, &[("listener", "test"), ("model", "any"), ("kind", kind)])
}

fn budget(day_tokens: u64) -> AiListenerSettings {
    with_key(Policy { budgets: Budgets { day_tokens: Some(day_tokens), ..Budgets::default() }, ..Policy::default() })
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n\r\n")
}

fn globs(names: &[&str]) -> Vec<Glob> {
    names.iter().map(|name| Glob::new(name).expect("a pattern")).collect()
}

#[test]
fn each_prompt_of_a_completion_reserves_its_output_and_each_token_counts() {
    // 100 tokens are reserved for the output of each prompt, and one for three bytes of a prompt.
    for (path, body, fits) in [
        ("/v1/completions", r#"{"model":"m","prompt":["a","b","c"]}"#.to_owned(), 305),
        ("/v1/completions", r#"{"model":"m","prompt":[[1,2],[3]]}"#.to_owned(), 204),
        ("/v1/completions", r#"{"model":"m","prompt":[1,2,3]}"#.to_owned(), 103),
        ("/v1/embeddings", format!(r#"{{"model":"m","input":[1{}]}}"#, ",1".repeat(299)), 300),
    ] {
        let gateway = plain(budget(fits - 1));
        let mut client = gateway.client();
        client.send(&post(path, &body));
        assert_eq!(refused(&mut client, 429).1["code"], "insufficient_quota", "{body}");
        assert!(gateway.origin.is_untouched());
        let gateway = plain(budget(fits));
        let mut client = gateway.client();
        client.send(&post(path, &body));
        respond(&mut gateway.origin.accept(), &ok("{}"));
        assert!(read(&mut client).0.starts_with("http/1.1 200 "), "{body}");
    }
}

#[test]
fn a_client_that_leaves_in_front_of_the_report_pays_the_reservation() {
    for (events, output) in [(TEXT.to_owned(), 1), (format!("{TEXT}{FINISH}"), 100)] {
        let gateway = plain(settings());
        let mut client = gateway.client();
        client.send(&post("/v1/chat/completions", STREAM));
        let mut end = gateway.origin.accept();
        respond(&mut end, &format!("{EVENTS}{}", chunk(&events)));
        client.head();
        client.0.until(if output == 1 { "abcd" } else { "stop" });
        drop(client);
        gateway.rests();
        assert_eq!(tokens(&gateway, "output"), output, "{events}");
    }
    // The head of a whole response comes when the model is done.
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", CHAT));
    let mut end = gateway.origin.accept();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"id\":";
    respond(&mut end, head);
    client.0.until("{\"id\":");
    drop(client);
    gateway.rests();
    assert_eq!(tokens(&gateway, "output"), 100);
}

#[test]
fn a_cut_or_a_deadline_does_not_take_the_prompt_back() {
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", CHAT));
    let mut end = gateway.origin.accept();
    end.request();
    gateway.cut();
    client.0.rest();
    gateway.rests();
    assert_eq!(tokens(&gateway, "input"), 6, "a word, a role, and four for the message");
    let gateway = plain(AiListenerSettings { request_timeout: Duration::from_millis(300), ..settings() });
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", CHAT));
    let mut end = gateway.origin.accept();
    end.request();
    assert_eq!(refused(&mut client, 504).1["code"], "upstream_timeout");
    drop(client);
    gateway.rests();
    assert_eq!((tokens(&gateway, "input"), tokens(&gateway, "output")), (6, 0));
}

#[test]
fn a_request_without_a_model_is_refused_where_rules_need_one() {
    let body = r#"{"messages":[]}"#;
    let named = AiListenerSettings { models: vec![model("*", &[(0, None)])].into(), ..settings() };
    for own in [with_key(Policy { models_denied: globs(&["gpt-*"]), ..Policy::default() }), named] {
        let gateway = plain(own);
        for body in [body, r#"{"model":"","messages":[]}"#, r#"{"model":" ","messages":[]}"#] {
            let mut client = gateway.client();
            client.send(&post("/v1/chat/completions", body));
            assert_eq!(refused(&mut client, 400).1["param"], "model");
        }
        assert!(gateway.origin.is_untouched());
    }
    let gateway = plain(settings());
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", body));
    assert!(respond(&mut gateway.origin.accept(), &ok("{}")).ends_with(body));
    client.response();
}

#[test]
fn a_server_that_does_not_take_the_option_of_usage_does_not_get_it() {
    let own = Provider { include_usage: false, ..provider(ProviderDialect::OpenAi) };
    let gateway = start(settings(), vec![own], |_| {});
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", STREAM));
    assert!(respond(&mut gateway.origin.accept(), &ok("{}")).ends_with(STREAM));
    client.response();
}

const COUNT: &str = r#"{"model":"claude","messages":[]}"#;

/// OpenAI's at the first upstream, and `claude` at the second.
fn two(own: AiListenerSettings, other: &Origin) -> Gateway {
    let models = vec![model("claude", &[(0, None), (1, Some("claude-x"))]), model("gpt", &[(0, None)])].into();
    let own = AiListenerSettings { models, upstreams: vec!["a".into(), "b".into()], ..own };
    let providers = vec![provider(ProviderDialect::OpenAi), provider(ProviderDialect::Anthropic)];
    start(own, providers, |setup| setup.upstreams = vec![Vec::new(), vec![other.address]])
}

#[test]
fn tokens_are_counted_where_the_model_is_and_cost_nothing() {
    let other = Origin::new();
    let mut own = budget(1);
    own.reserved_output_tokens = 1_000;
    let gateway = two(own, &other);
    let mut client = gateway.client();
    client.send(&post("/v1/messages/count_tokens", COUNT));
    let request = respond(&mut other.accept(), &ok(r#"{"input_tokens":14}"#));
    assert!(request.starts_with("POST /v1/messages/count_tokens ") && request.contains("x-api-key: provider-key"));
    assert!(request.ends_with(&COUNT.replace("\"claude\"", "\"claude-x\"")), "{request}");
    assert_eq!(read(&mut client).1["input_tokens"], 14);
    client.send(&post("/v1/messages/count_tokens", &COUNT.replace("claude", "gpt")));
    let (head, body) = read(&mut client);
    assert!(head.starts_with("http/1.1 400 ") && body["type"] == "error", "{head}\n{body}");
    drop(client);
    gateway.rests();
    assert!(gateway.origin.is_untouched());
    let labels = [("listener", "test"), ("model", "claude"), ("kind", "input")];
    assert_eq!(gateway.counter(catalog::AI_TOKENS.name, &labels), 0);
}

#[test]
fn the_policy_of_a_key_holds_for_counting() {
    let other = Origin::new();
    let far: Net = "203.0.113.0/24".parse().expect("a network");
    for (policy, status) in [
        (Policy { sources: vec![far], ..Policy::default() }, 403),
        (Policy { models_allowed: globs(&["gpt"]), ..Policy::default() }, 403),
        (Policy { requests: Some(Pace::per_minute(1)), ..Policy::default() }, 429),
    ] {
        let gateway = two(with_key(policy), &other);
        let mut client = gateway.client();
        if status == 429 {
            client.send(&post("/v1/messages/count_tokens", COUNT));
            respond(&mut other.accept(), &ok("{}"));
            client.response();
        }
        client.send(&post("/v1/messages/count_tokens", COUNT));
        let (head, _) = read(&mut client);
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{head}");
        assert!(other.is_untouched() && gateway.origin.is_untouched());
    }
}

#[test]
fn a_limit_of_output_changes_nothing_in_a_request_that_counts() {
    use weir_spend::policy::{OutputAction, OutputCap};
    let other = Origin::new();
    let output = Some(OutputCap { tokens: 7, action: OutputAction::Clamp });
    let gateway = two(with_key(Policy { output, ..Policy::default() }), &other);
    let mut client = gateway.client();
    client.send(&post("/v1/messages/count_tokens", COUNT));
    let request = respond(&mut other.accept(), &ok("{}"));
    assert!(!request.contains("max_tokens"), "{request}");
    client.response();
}

#[test]
fn the_list_of_models_obeys_the_policy_of_a_key() {
    let far: Net = "203.0.113.0/24".parse().expect("a network");
    let gateway = plain(with_key(Policy { sources: vec![far], ..Policy::default() }));
    for path in ["/v1/models", "/v1/models/gpt-x"] {
        let mut client = gateway.client();
        client.send(&get(path));
        assert_eq!(refused(&mut client, 403).1["code"], "source_not_allowed", "{path}");
    }
    assert!(gateway.origin.is_untouched());
    // The provider would list all of its models.
    let own = |mode| Policy {
        models_allowed: globs(&["gpt-x", "gpt-y", "o*"]),
        models_denied: globs(&["gpt-y"]),
        mode,
        ..Policy::default()
    };
    let gateway = plain(with_key(own(Mode::Enforce)));
    let mut client = gateway.client();
    client.send(&get("/v1/models"));
    let (_, list) = read(&mut client);
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list["data"][0]["id"], "gpt-x");
    for name in ["gpt-y", "claude", "o%3A1"] {
        client.send(&get(&format!("/v1/models/{name}")));
        assert_eq!(refused(&mut client, 404).1["code"], "model_not_found", "{name}");
    }
    assert!(gateway.origin.is_untouched());
    client.send(&get("/v1/models/o3"));
    assert!(respond(&mut gateway.origin.accept(), &ok("{}")).starts_with("GET /v1/models/o3 "));
    client.response();
    let gateway = plain(with_key(own(Mode::Observe)));
    let mut client = gateway.client();
    client.send(&get("/v1/models"));
    respond(&mut gateway.origin.accept(), &ok("{}"));
    client.response();
}

#[test]
fn a_response_is_gone_on_from_at_the_provider_that_has_it_and_nowhere_else() {
    let other = Origin::new();
    let models = vec![model("m", &[(0, None), (1, None)])].into();
    let own = AiListenerSettings { models, upstreams: vec!["a".into(), "b".into()], ..settings() };
    let providers = vec![provider(ProviderDialect::OpenAi), provider(ProviderDialect::OpenAi)];
    let gateway = start(own, providers, |setup| setup.upstreams = vec![Vec::new(), vec![other.address]]);
    let busy = "HTTP/1.1 429 Busy\r\nConnection: close\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}";
    for more in [r#""previous_response_id":"resp_1""#, r#""conversation":"conv_1""#] {
        for _ in 0..2 {
            let mut client = gateway.client();
            client.send(&post("/v1/responses", &format!(r#"{{"model":"m","input":"hi",{more}}}"#)));
            // Neither its failure nor the pause that it demands leads elsewhere.
            respond(&mut gateway.origin.accept(), busy);
            assert!(read(&mut client).0.starts_with("http/1.1 429 "));
        }
    }
    assert!(other.is_untouched());
}

#[test]
fn a_pause_until_a_date_is_a_pause() {
    let other = Origin::new();
    let models = vec![model("m", &[(0, None), (1, None)])].into();
    let own = AiListenerSettings { models, upstreams: vec!["a".into(), "b".into()], ..settings() };
    let providers = vec![provider(ProviderDialect::OpenAi), provider(ProviderDialect::OpenAi)];
    let gateway = start(own, providers, |setup| setup.upstreams = vec![Vec::new(), vec![other.address]]);
    let unix = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    let until = weir_base::time::http_date(unix + 60);
    let mut client = gateway.client();
    client.send(&post("/v1/chat/completions", CHAT));
    let busy =
        format!("HTTP/1.1 429 Busy\r\nConnection: close\r\nRetry-After: {until}\r\nContent-Length: 2\r\n\r\n{{}}");
    respond(&mut gateway.origin.accept(), &busy);
    respond(&mut other.accept(), &ok("{}"));
    client.response();
    client.send(&post("/v1/chat/completions", CHAT));
    respond(&mut other.accept(), &ok("{}"));
    client.response();
    assert!(gateway.origin.is_untouched());
}
