//! The exact cache, between scripted clients and scripted providers.

use std::{sync::Arc, time::Duration};

use weir_ai::settings::{AiListenerSettings, CacheSettings, KeyMode, Provider, ProviderDialect, SpendSettings};
use weir_spend::{
    Glob,
    budget::Budgets,
    keys::{KeyHash, KeySecret, KeySettings},
    policy::{CacheRule, Policy},
    rate::Pace,
};
use weir_telemetry::catalog;

use crate::{
    gateway::{
        EVENTS, KEY, chunk, model, ok, plain, post, provider, refused, respond, settings, start, start_in, usage,
        with_key,
    },
    support::{Client, Gateway, Origin},
};

const CHATS: &str = "/v1/chat/completions";
const BODY: &str = r#"{"model":"m","temperature":0,"messages":[{"role":"user","content":"hi"}]}"#;
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[]}"#;
const REPLY: &str = r#"{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":5}}"#;
const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn rule(takes_sampled: bool) -> Option<CacheRule> {
    Some(CacheRule { ttl: Duration::from_secs(60), takes_sampled })
}

fn policy() -> Policy {
    Policy { cache: rule(false), ..Policy::default() }
}

/// One key, whose responses are cached.
fn cached() -> AiListenerSettings {
    with_key(policy())
}

/// One provider, and these bounds of the cache.
fn bounded(own: AiListenerSettings, cache: CacheSettings) -> Gateway {
    let process = SpendSettings { cache, ..SpendSettings::default() };
    start_in(&process, own, vec![provider(ProviderDialect::OpenAi)], |_| {})
}

/// A POST of the key with this field.
fn with_field(body: &str, field: &str) -> String {
    post(CHATS, body).replacen("Content-Type", &format!("{field}\r\nContent-Type"), 1)
}

/// Head in small letters, and body, of the next response.
fn read(client: &mut Client) -> (String, String) {
    let response = client.response();
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (head.to_ascii_lowercase(), body.to_owned())
}

/// The word of `x-weir-cache`, or nothing.
fn result(head: &str) -> &str {
    head.split("x-weir-cache: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap_or_default()
}

/// One exchange that the provider must not see: its response.
fn hit(gateway: &Gateway, request: &str) -> String {
    let mut client = gateway.client();
    client.send(request);
    let (head, body) = read(&mut client);
    assert_eq!(result(&head), "hit", "{head}");
    assert!(gateway.origin.is_untouched());
    body
}

/// One exchange with the provider, which responds with this: the way of the request, and the response.
fn live(gateway: &Gateway, request: &str, response: &str) -> (String, String) {
    let mut client = gateway.client();
    client.send(request);
    respond(&mut gateway.origin.accept(), response);
    let (head, body) = read(&mut client);
    (result(&head).to_owned(), body)
}

fn looked_up(gateway: &Gateway, word: &str) -> u64 {
    gateway.counter(catalog::AI_CACHE_REQUESTS.name, &[("listener", "test"), ("result", word)])
}

/// The content of a body in chunks.
fn content(body: &str) -> String {
    let mut rest = body;
    let mut found = String::new();
    while let Some((length, more)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        found.push_str(&more[..length]);
        rest = &more[(length + 2).min(more.len())..];
        if length == 0 {
            break;
        }
    }
    found
}

#[test]
fn an_equal_request_is_served_from_the_cache_and_costs_nothing() {
    let gateway = plain(cached());
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json; a=b\r\nX-Request-Id: first\r\n\
                X-RateLimit-Remaining-Requests: 3\r\nSet-Cookie: c\r\nOpenAI-Processing-Ms: 7";
    let response = format!("{head}\r\nContent-Length: {}\r\n\r\n{REPLY}", REPLY.len());
    assert_eq!(live(&gateway, &post(CHATS, BODY), &response), ("miss".to_owned(), REPLY.to_owned()));
    // The same client, by another alias of the path, for another user.
    let mut client = gateway.client();
    client.send(&post("/chat/completions", &BODY.replace("\"messages\"", "\"user\":\"u\",\"messages\"")));
    let (head, body) = read(&mut client);
    assert_eq!((result(&head), &*body), ("hit", REPLY), "{head}");
    assert!(head.contains("\r\ncontent-type: application/json; a=b\r\n") && head.contains("\r\nage: 0\r\n"), "{head}");
    assert!(head.contains("\r\nx-request-id: ") && head.contains("\r\nserver-timing: "), "{head}");
    for stale in ["x-request-id: first", "x-ratelimit", "set-cookie", "openai-processing-ms"] {
        assert!(!head.contains(stale), "{head}");
    }
    assert!(gateway.origin.is_untouched());
    drop(client);
    gateway.rests();
    assert_eq!((looked_up(&gateway, "hit"), looked_up(&gateway, "miss")), (1, 1));
    let labels = [("listener", "test"), ("model", "any"), ("kind", "input")];
    assert_eq!(gateway.counter(catalog::AI_TOKENS.name, &labels), 9, "the provider has billed one");
    assert_eq!(gateway.counter(catalog::AI_CACHE_SAVED_TOKENS.name, &[("listener", "test")]), 14);
}

#[test]
fn a_hit_has_a_line_in_the_usage_log_and_charges_no_budget() {
    let folder = tempfile::tempdir().expect("a folder");
    let budgets = Budgets { day_tokens: Some(125), ..Budgets::default() };
    let own = with_key(Policy { budgets, ..policy() });
    let process = SpendSettings { state: Some(folder.path().into()), ..SpendSettings::default() };
    let gateway = start_in(&process, own, vec![provider(ProviderDialect::OpenAi)], |_| {});
    live(&gateway, &post(CHATS, BODY), &ok(REPLY));
    for _ in 0..3 {
        hit(&gateway, &post(CHATS, BODY));
    }
    // 14 of 125 are used: 100 tokens of output fit beside the prompt, and no more.
    live(&gateway, &post(CHATS, &BODY.replace("hi", "ho")), &ok(REPLY));
    let mut client = gateway.client();
    client.send(&post(CHATS, &BODY.replace("hi", "he")));
    assert_eq!(refused(&mut client, 429).1["code"], "insufficient_quota");
    hit(&gateway, &post(CHATS, BODY));
    drop(client);
    gateway.rests();
    let lines = usage(folder.path(), 6);
    let hits: Vec<_> = lines.iter().filter(|line| line["flags"] == serde_json::json!(["cached"])).collect();
    assert_eq!((lines.len(), hits.len()), (6, 4), "{lines:?}");
    for line in hits {
        assert_eq!((&line["charged_tokens"], &line["cost_micro"], &line["tries"]), (&0.into(), &0.into(), &0.into()));
        assert_eq!((&line["input_tokens"], &line["saved_tokens"]), (&0.into(), &14.into()), "{line}");
        assert_eq!(
            (&line["provider"], &line["model_served"], &line["key"]),
            (&"a".into(), &"m".into(), &"team".into())
        );
        assert_eq!((&line["status"], line["request"].as_str().is_some_and(|id| !id.is_empty())), (&200.into(), true));
    }
}

#[test]
fn a_stream_is_replayed_as_the_same_bytes_and_with_usage_for_those_who_want_it() {
    let gateway = plain(cached());
    let mut client = gateway.client();
    client.send(&post(CHATS, STREAM));
    let mut end = gateway.origin.accept();
    let request = respond(&mut end, EVENTS);
    assert!(request.contains("include_usage"));
    let all = format!(": hi\n\n{TEXT}{USAGE}{DONE}");
    all.as_bytes().chunks(11).for_each(|piece| end.send(&chunk(&String::from_utf8_lossy(piece))));
    end.send("0\r\n\r\n");
    let (head, body) = read(&mut client);
    assert_eq!((result(&head), content(&body)), ("miss", format!(": hi\n\n{TEXT}{DONE}")));
    let replayed = hit(&gateway, &post(CHATS, STREAM));
    assert_eq!(content(&replayed), content(&body));
    assert_eq!(replayed.matches("\r\n").count(), 2 * 4 + 2, "each event is a chunk: {replayed}");
    let wants = STREAM.replace("\"messages\"", "\"stream_options\":{\"include_usage\":true},\"messages\"");
    assert_eq!(content(&hit(&gateway, &post(CHATS, &wants))), all);
}

#[test]
fn what_is_not_whole_or_not_good_is_not_stored() {
    let json = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n";
    let events = EVENTS.replacen("HTTP/1.1 200 OK", "HTTP/1.1 200 OK\r\nConnection: close", 1);
    let stream = |text: &str, last: &str| format!("{events}{}{last}", chunk(text));
    for (body, first) in [
        (BODY, ok(REPLY).replacen("200 OK", "429 Busy", 1)),
        (BODY, ok(REPLY).replacen("200 OK", "201 Created", 1)),
        (BODY, ok(r#"{"error":{"message":"m"}}"#)),
        (BODY, format!("{json}\r\n{{\"choices\":[")),
        (BODY, format!("{json}Content-Length: 1000\r\n\r\n{REPLY}")),
        (BODY, format!("{json}Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{{}}")),
        (STREAM, stream(TEXT, "0\r\n\r\n")),
        (STREAM, stream(&format!("{TEXT}data: {{\"error\":{{}}}}\n\n"), "0\r\n\r\n")),
        (STREAM, stream(&format!("{TEXT}data: {{\"error\":{{}}}}\n\n{DONE}"), "0\r\n\r\n")),
        (STREAM, stream(&format!("{TEXT}{DONE}"), "")),
    ] {
        let gateway = plain(cached());
        let mut client = gateway.client();
        client.send(&post(CHATS, body));
        let mut end = gateway.origin.accept();
        respond(&mut end, &first);
        drop(end);
        client.head();
        drop(client);
        gateway.rests();
        let (way, text) = live(&gateway, &post(CHATS, body), &ok(REPLY));
        assert_eq!((&*way, &*text), ("miss", REPLY), "{first}");
        assert_eq!(hit(&gateway, &post(CHATS, body)), REPLY, "it is stored then");
    }
}

#[test]
fn a_response_beyond_its_bound_passes_and_is_not_stored() {
    let gateway = bounded(cached(), CacheSettings { response_bytes_max: 1_024, ..CacheSettings::default() });
    let long = format!("{{\"x\":\"{}\"}}", "y".repeat(2_000));
    for _ in 0..2 {
        assert_eq!(live(&gateway, &post(CHATS, BODY), &ok(&long)), ("miss".to_owned(), long.clone()));
    }
    let gateway = bounded(cached(), CacheSettings { bytes_max: 1_024, ..CacheSettings::default() });
    assert_eq!(live(&gateway, &post(CHATS, BODY), &ok(&long)).1, long);
    assert_eq!(live(&gateway, &post(CHATS, BODY), &ok(&long)).0, "miss");
}

#[test]
fn no_tenant_gets_the_response_of_another() {
    let other = KEY.replace('a', "b");
    let key = |name: &str, text: &str| KeySettings {
        name: name.into(),
        secrets: vec![KeySecret { hash: KeyHash::of(text.as_bytes()), shown: "k".into(), until: None }],
        is_enabled: true,
        expires: None,
        policy: Arc::new(policy()),
        team: None,
        organization: None,
    };
    let keys = Arc::new([key("one", KEY), key("two", &other)]);
    let gateway = plain(AiListenerSettings { key_mode: KeyMode::Required, keys, ..settings() });
    let of_other = post(CHATS, BODY).replace(KEY, &other);
    live(&gateway, &post(CHATS, BODY), &ok(REPLY));
    let its_own = r#"{"choices":[]}"#;
    assert_eq!(live(&gateway, &of_other, &ok(its_own)), ("miss".to_owned(), its_own.to_owned()));
    assert_eq!((hit(&gateway, &post(CHATS, BODY)), hit(&gateway, &of_other)), (REPLY.to_owned(), its_own.to_owned()));
    // Without keys, clients that bring an account of their own are tenants, too.
    let open = Provider { api_key: None, ..provider(ProviderDialect::OpenAi) };
    let gateway = start(AiListenerSettings { cache: rule(false), ..settings() }, vec![open], |_| {});
    live(&gateway, &post(CHATS, BODY), &ok(REPLY));
    assert_eq!(live(&gateway, &of_other, &ok(its_own)).1, its_own);
    assert_eq!(hit(&gateway, &post(CHATS, BODY)), REPLY);
}

#[test]
fn without_a_rule_nothing_is_cached_and_no_field_says_so() {
    let gateway = plain(with_key(Policy::default()));
    for _ in 0..2 {
        assert_eq!(live(&gateway, &post(CHATS, BODY), &ok(REPLY)), (String::new(), REPLY.to_owned()));
    }
}

#[test]
fn requests_that_are_never_cached_say_so() {
    let kept = r#"{"model":"m","store":true,"messages":[]}"#;
    let warm = r#"{"model":"m","temperature":1,"messages":[]}"#;
    let gateway = plain(cached());
    for request in [
        post(CHATS, kept),
        post(CHATS, warm),
        post(CHATS, r#"{"model":"m","n":2,"messages":[]}"#),
        post("/v1/responses", r#"{"model":"m","input":"hi"}"#),
        post("/v1/responses", r#"{"model":"m","store":false,"input":"hi","tools":[{"type":"web_search"}]}"#),
        with_field(BODY, "Cache-Control: no-store"),
    ] {
        for _ in 0..2 {
            assert_eq!(live(&gateway, &request, &ok(REPLY)).0, "bypass", "{request}");
        }
    }
    assert_eq!(looked_up(&gateway, "bypass"), 12);
    let gateway = plain(with_key(Policy { cache: rule(true), ..Policy::default() }));
    live(&gateway, &post(CHATS, warm), &ok(REPLY));
    hit(&gateway, &post(CHATS, warm));
    assert_eq!(live(&gateway, &post(CHATS, kept), &ok(REPLY)).0, "bypass");
    let gateway = start(cached(), vec![provider(ProviderDialect::Anthropic)], |_| {});
    let message = r#"{"id":"i","type":"message","role":"assistant","model":"m","content":[],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;
    for _ in 0..2 {
        assert_eq!(live(&gateway, &post(CHATS, BODY), &ok(message)).0, "bypass", "it is translated");
    }
}

#[test]
fn a_client_may_want_a_new_response() {
    let gateway = plain(cached());
    live(&gateway, &post(CHATS, BODY), &ok(REPLY));
    let newer = r#"{"choices":[{"index":0}]}"#;
    assert_eq!(live(&gateway, &with_field(BODY, "Cache-Control: no-cache"), &ok(newer)).0, "miss");
    assert_eq!(hit(&gateway, &with_field(BODY, "Cache-Control: max-age=60")), newer, "it took the place of the first");
}

#[test]
fn responses_and_embeddings_are_cached_by_their_own_rules() {
    let gateway = plain(cached());
    let body = r#"{"model":"m","store":false,"user":"u","input":"hi"}"#;
    let reply = r#"{"status":"completed","user":"u"}"#;
    live(&gateway, &post("/v1/responses", body), &ok(reply));
    assert_eq!(hit(&gateway, &post("/v1/responses", body)), reply);
    // The response repeats the user.
    assert_eq!(live(&gateway, &post("/v1/responses", &body.replace("\"u\"", "\"w\"")), &ok(reply)).0, "miss");
    let body = r#"{"model":"m","input":["hi"]}"#;
    live(&gateway, &post("/v1/embeddings", body), &ok(r#"{"data":[]}"#));
    hit(&gateway, &post("/v1/embeddings", body));
}

/// So many clients that have sent this request and wait, and the provider's end of the first of them.
fn waiting(gateway: &Gateway, count: u64) -> Vec<Client> {
    let clients = (0..count).map(|_| {
        let mut client = gateway.client();
        client.send(&post(CHATS, BODY));
        client
    });
    let clients = clients.collect();
    while gateway.held().0 < count {
        std::thread::yield_now();
    }
    clients
}

#[test]
fn equal_requests_wait_for_the_first_one() {
    let gateway = plain(cached());
    let mut clients = waiting(&gateway, 4);
    let mut end = gateway.origin.accept();
    end.request();
    assert!(gateway.origin.is_untouched());
    end.send(&ok(REPLY));
    let mut ways: Vec<_> = clients.iter_mut().map(read).map(|(head, body)| (result(&head).to_owned(), body)).collect();
    ways.sort();
    let wanted = |way: &str| (way.to_owned(), REPLY.to_owned());
    assert_eq!(ways, [wanted("hit"), wanted("hit"), wanted("hit"), wanted("miss")]);
    assert!(gateway.origin.is_untouched());
}

#[test]
fn behind_a_failure_one_of_those_that_wait_goes_on() {
    let gateway = plain(cached());
    let mut clients = waiting(&gateway, 4);
    let mut end = gateway.origin.accept();
    respond(&mut end, "HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
    let mut end = gateway.origin.accept();
    end.request();
    assert!(gateway.origin.is_untouched(), "one, and not all");
    end.send(&ok(REPLY));
    let mut heads: Vec<_> = clients.iter_mut().map(|client| read(client).0).collect();
    heads.sort_by_key(|head| head[9..12].to_owned());
    assert_eq!(heads.iter().map(|head| result(head)).filter(|way| *way == "hit").count(), 2, "{heads:?}");
    assert_eq!(heads.iter().filter(|head| head.starts_with("http/1.1 200 ")).count(), 3);
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_leader_that_leaves_makes_way_and_a_follower_that_leaves_costs_nothing() {
    let gateway = plain(cached());
    let mut first = gateway.client();
    first.send(&post(CHATS, BODY));
    let mut end = gateway.origin.accept();
    end.request();
    let mut clients = waiting_behind(&gateway, 3);
    drop(clients.pop());
    while gateway.held().0 > 3 {
        std::thread::yield_now();
    }
    drop(first);
    let mut end = gateway.origin.accept();
    end.request();
    end.send(&ok(REPLY));
    for client in &mut clients {
        assert!(read(client).0.starts_with("http/1.1 200 "));
    }
    drop(clients);
    gateway.rests();
    assert!(gateway.origin.is_untouched());
    assert_eq!((looked_up(&gateway, "miss"), looked_up(&gateway, "hit")), (2, 1));
    let labels = [("listener", "test"), ("model", "any")];
    assert_eq!(gateway.counter(catalog::AI_REQUESTS.name, &labels), 2);
}

/// So many further clients that wait for the one under way.
fn waiting_behind(gateway: &Gateway, count: u64) -> Vec<Client> {
    let before = gateway.held().0;
    let clients = (0..count).map(|_| {
        let mut client = gateway.client();
        client.send(&post(CHATS, BODY));
        client
    });
    let clients = clients.collect();
    while gateway.held().0 < before + count {
        std::thread::yield_now();
    }
    clients
}

#[test]
fn a_wait_is_bounded_in_time_and_in_number() {
    let (wait_max, followers_max) = (Duration::from_millis(50), 1);
    let gateway = bounded(cached(), CacheSettings { wait_max, followers_max, ..CacheSettings::default() });
    let mut clients = waiting(&gateway, 3);
    // The first one, one that may not wait, and one that has waited for long enough.
    let mut ends: Vec<_> = (0..3).map(|_| gateway.origin.accept()).collect();
    for end in &mut ends {
        respond(end, &ok(REPLY));
    }
    for client in &mut clients {
        assert_eq!(result(&read(client).0), "miss");
    }
    hit(&gateway, &post(CHATS, BODY));
}

#[test]
fn the_policy_of_a_key_judges_what_the_cache_has() {
    let gateway = plain(with_key(Policy { requests: Some(Pace::per_minute(2)), ..policy() }));
    live(&gateway, &post(CHATS, BODY), &ok(REPLY));
    hit(&gateway, &post(CHATS, BODY));
    let mut client = gateway.client();
    client.send(&post(CHATS, BODY));
    assert_eq!(refused(&mut client, 429).1["code"], "rate_limit_exceeded");
    let denied = vec![Glob::new("m").expect("a pattern")];
    let gateway = plain(with_key(Policy { models_denied: denied, ..policy() }));
    let mut client = gateway.client();
    client.send(&post(CHATS, BODY));
    refused(&mut client, 403);
    assert!(gateway.origin.is_untouched());
    assert_eq!((looked_up(&gateway, "miss"), looked_up(&gateway, "hit")), (0, 0), "it learns nothing");
}

#[test]
fn a_response_of_a_fallback_serves_under_the_name_of_its_provider() {
    let other = Origin::new();
    let models = vec![model("m", &[(0, None), (1, Some("m-b"))])].into();
    let own = AiListenerSettings { models, upstreams: vec!["a".into(), "b".into()], ..cached() };
    let providers = vec![provider(ProviderDialect::OpenAi), provider(ProviderDialect::OpenAi)];
    let gateway = start(own, providers, |setup| setup.upstreams = vec![Vec::new(), vec![other.address]]);
    let mut client = gateway.client();
    client.send(&post(CHATS, BODY));
    respond(&mut gateway.origin.accept(), "HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
    respond(&mut other.accept(), &ok(REPLY));
    assert_eq!(result(&read(&mut client).0), "miss");
    assert_eq!(hit(&gateway, &post(CHATS, BODY)), REPLY);
    assert!(other.is_untouched());
}

#[test]
fn a_client_that_reads_slowly_holds_back_a_replay() {
    let gateway = bounded(cached(), CacheSettings { response_bytes_max: 8 << 20, ..CacheSettings::default() });
    let events = format!("{}{DONE}", format!("data: {{\"x\":\"{}\"}}\n\n", "y".repeat(1_000)).repeat(1_000));
    let mut client = gateway.client();
    client.send(&post(CHATS, STREAM));
    let mut end = gateway.origin.accept();
    let response = format!("{EVENTS}{}0\r\n\r\n", chunk(&events));
    std::thread::scope(|scope| {
        scope.spawn(|| respond(&mut end, &response));
        assert_eq!(content(&read(&mut client).1), events);
    });
    let mut slow = gateway.client();
    slow.send(&post(CHATS, STREAM));
    slow.head();
    let mut other = gateway.client();
    other.send(&post(CHATS, STREAM));
    assert_eq!(content(&read(&mut other).1), events, "others do not wait for it");
    assert_eq!(gateway.held().0, 1, "it is under way");
    let rest = slow.0.until("0\r\n\r\n");
    assert_eq!(content(&rest), events);
}
