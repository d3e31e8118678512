//! Translation between the dialects of client and provider: whole exchanges.

use serde_json::{Value, json};
use weir_ai::settings::{AiListenerSettings, Provider, ProviderDialect};
use weir_spend::policy::{OutputAction, OutputCap, Policy};
use weir_telemetry::catalog;

use crate::{
    gateway::{KEY, estimate, model, ok, post, prices, provider, read, refused, respond, settings, start, with_key},
    support::{Gateway, Origin},
};

pub const CHATS: &str = "/v1/chat/completions";
pub const MESSAGES: &str = "/v1/messages";

/// A request of each dialect that the other one can say.
pub const CHAT: &str =
    r#"{"model":"m","messages":[{"role":"system","content":"short"},{"role":"user","content":"hi"}]}"#;
pub const MESSAGE: &str =
    r#"{"model":"m","max_tokens":50,"system":"short","messages":[{"role":"user","content":"hi"}]}"#;

/// A response of each dialect with the same tokens: 9 of input, 4 of them cached, and 5 of output.
pub const COMPLETION: &str = r#"{"id":"c1","object":"chat.completion","created":1,"model":"served","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":4}}}"#;
pub const SAID: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"served","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":5,"cache_read_input_tokens":4,"output_tokens":5}}"#;

/// A gateway whose only provider speaks this dialect.
pub fn gateway(dialect: ProviderDialect) -> Gateway {
    start(settings(), vec![provider(dialect)], |_| {})
}

pub fn tokens(gateway: &Gateway, kind: &str) -> u64 {
    gateway.counter(catalog::AI_TOKENS.name, &[("listener", "test"), ("model", "any"), ("kind", kind)])
}

pub fn flagged(gateway: &Gateway, flag: &str) -> u64 {
    gateway.counter(catalog::AI_FLAGGED.name, &[("listener", "test"), ("model", "any"), ("flag", flag)])
}

/// The head in lower case, and the JSON body, of a request of the gateway.
pub fn parts(request: &str) -> (String, Value) {
    let (head, body) = request.split_once("\r\n\r\n").expect("a head");
    (head.to_ascii_lowercase(), serde_json::from_str(body).expect("JSON"))
}

/// A response with a status and fields, behind which the provider closes.
pub fn response(status: u16, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} Status\r\nConnection: close\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// One exchange: the request of the gateway, and the response for the client.
pub fn exchange(gateway: &Gateway, path: &str, body: &str, response: &str) -> (String, String, Value) {
    let mut client = gateway.client();
    client.send(&post(path, body));
    let request = respond(&mut gateway.origin.accept(), response);
    let (head, body) = read(&mut client);
    drop(client);
    gateway.rests();
    (request, head, body)
}

/// The tokens and flags in the accounts of one exchange.
pub fn accounts(gateway: &Gateway) -> [u64; 6] {
    let [input, cached, output] = ["input", "cached_input", "output"].map(|kind| tokens(gateway, kind));
    let [partial, estimated, implausible] = ["partial", "estimated", "implausible"].map(|flag| flagged(gateway, flag));
    [input, cached, output, partial, estimated, implausible]
}

#[test]
fn a_provider_without_the_option_for_usage_does_not_get_it_by_translation() {
    let own = Provider { include_usage: false, ..provider(ProviderDialect::OpenAi) };
    for (own, has_option) in [(own, false), (provider(ProviderDialect::OpenAi), true)] {
        let gateway = start(settings(), vec![own], |_| {});
        let stream = MESSAGE.replace("\"max_tokens\"", "\"stream\":true,\"max_tokens\"");
        let mut client = gateway.client();
        client.send(&post(MESSAGES, &stream));
        let request = respond(&mut gateway.origin.accept(), &response(429, "", "{}"));
        let (_, body) = parts(&request);
        assert_eq!(body.get("stream_options").is_some(), has_option, "{body}");
        assert_eq!(refused(&mut client, 429).1["type"], "rate_limit_error");
    }
}

#[test]
fn a_chat_is_served_by_a_provider_of_messages() {
    let gateway = gateway(ProviderDialect::Anthropic);
    let mut client = gateway.client();
    let extra = "OpenAI-Organization: o\r\nAnthropic-Version: 1999\r\nUser-Agent: u\r\nX-Stainless-Lang: p\r\n";
    client.send(&post(&format!("{CHATS}?x=1"), CHAT).replacen("Content-Type", &format!("{extra}Content-Type"), 1));
    let fields = "Request-Id: r1\r\nAnthropic-Ratelimit-Requests-Limit: 7\r\nAnthropic-Organization-Id: o\r\n";
    let said = ok(SAID).replacen("Content-Type", &format!("{fields}Content-Type"), 1);
    let (head, body) = parts(&respond(&mut gateway.origin.accept(), &said));
    assert!(head.contains("\r\naccept-encoding: identity\r\n"), "{head}");
    assert!(head.starts_with("post /v1/messages http/1.1\r\n"), "{head}");
    for line in ["x-api-key: provider-key", "anthropic-version: 2023-06-01", "user-agent: u", "x-stainless-lang: p"] {
        assert_eq!(head.matches(&format!("\r\n{line}")).count(), 1, "{line}: {head}");
    }
    for gone in ["authorization", "openai-", "1999", &KEY.to_ascii_lowercase()] {
        assert!(!head.contains(gone), "{gone}: {head}");
    }
    let wanted = json!([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]);
    assert_eq!(
        (&body["messages"], &body["model"], &body["max_tokens"]),
        (&wanted, &json!("m"), &json!(8192)),
        "{body}"
    );
    let (head, body) = read(&mut client);
    assert!(head.starts_with("http/1.1 200 ") && head.contains("\r\ncontent-type: application/json"), "{head}");
    assert!(head.contains("\r\nx-request-id: r1\r\n") && head.contains("x-ratelimit-limit-requests: 7"), "{head}");
    assert!(
        !head.contains("anthropic-") && !head.contains("\r\nrequest-id") && head.contains("server-timing"),
        "{head}"
    );
    assert_eq!((&body["object"], &body["id"]), (&json!("chat.completion"), &json!("msg_1")));
    assert_eq!(body["choices"][0]["message"]["content"], "hello");
    assert_eq!((&body["usage"]["prompt_tokens"], &body["usage"]["completion_tokens"]), (&json!(9), &json!(5)));
    drop(client);
    gateway.rests();
    assert_eq!(accounts(&gateway), [9, 4, 5, 0, 0, 0]);
}

#[test]
fn a_message_is_served_by_a_provider_of_chats() {
    for (dialect, key) in [
        (ProviderDialect::OpenAi, "authorization: bearer provider-key"),
        (ProviderDialect::Azure, "api-key: provider-key"),
    ] {
        let gateway = gateway(dialect);
        let mut client = gateway.client();
        let extra = "Anthropic-Version: 2023-06-01\r\nAnthropic-Beta: b\r\nx-api-key: ";
        client.send(&post(&format!("{MESSAGES}?beta=true"), MESSAGE).replacen("Authorization: Bearer ", extra, 1));
        let fields = "X-Request-Id: r1\r\nOpenAI-Version: v\r\nContent-Type";
        let said = ok(COMPLETION).replacen("Content-Type", fields, 1);
        let (head, body) = parts(&respond(&mut gateway.origin.accept(), &said));
        assert!(head.starts_with("post /v1/chat/completions http/1.1\r\n") && head.contains(key), "{head}");
        assert!(!head.contains("anthropic-") && !head.contains("x-api-key"), "{head}");
        let wanted = json!([{"role": "system", "content": "short"}, {"role": "user", "content": "hi"}]);
        assert_eq!(body["messages"].as_array().map(Vec::len), wanted.as_array().map(Vec::len), "{body}");
        assert_eq!(body["max_completion_tokens"], 50, "{body}");
        let (head, body) = read(&mut client);
        assert!(head.contains("\r\nrequest-id: r1\r\n") && !head.contains("openai-"), "{head}");
        assert_eq!((&body["type"], &body["stop_reason"]), (&json!("message"), &json!("end_turn")));
        assert_eq!(body["content"], json!([{"type": "text", "text": "hello"}]));
        assert_eq!((&body["usage"]["input_tokens"], &body["usage"]["cache_read_input_tokens"]), (&json!(5), &json!(4)));
        drop(client);
        gateway.rests();
        assert_eq!(accounts(&gateway), [9, 4, 5, 0, 0, 0]);
    }
}

#[test]
fn the_accounts_are_those_of_the_same_response_without_a_translation() {
    let bare = |body: &str| body.split_once(",\"usage\"").map(|(front, _)| format!("{front}}}")).expect("usage");
    let lying = COMPLETION.replace("\"cached_tokens\":4", "\"cached_tokens\":99");
    let (bare_completion, bare_said) = (bare(COMPLETION), bare(SAID));
    for (dialect, path, own, other, completion) in [
        (ProviderDialect::Anthropic, MESSAGES, MESSAGE, (CHATS, CHAT), SAID),
        (ProviderDialect::OpenAi, CHATS, CHAT, (MESSAGES, MESSAGE), COMPLETION),
        (ProviderDialect::OpenAi, CHATS, CHAT, (MESSAGES, MESSAGE), &lying),
    ] {
        let (direct, translated) = (gateway(dialect), gateway(dialect));
        exchange(&direct, path, own, &ok(completion));
        exchange(&translated, other.0, other.1, &ok(completion));
        assert_eq!(accounts(&direct), accounts(&translated), "{completion}");
    }
    for (dialect, path, body, bare) in [
        (ProviderDialect::Anthropic, CHATS, CHAT, bare_said),
        (ProviderDialect::OpenAi, MESSAGES, MESSAGE, bare_completion),
    ] {
        let gateway = gateway(dialect);
        exchange(&gateway, path, body, &ok(&bare));
        let [input, _, output, partial, estimated, _] = accounts(&gateway);
        assert!(input > 0);
        assert_eq!(output, estimate(&bare), "{bare}");
        assert_eq!((partial, estimated), (0, 1));
    }
}

#[test]
fn tools_are_called_across_dialects() {
    let chat = json!({"model": "m", "messages": [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": null, "tool_calls":
            [{"id": "t1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"B\"}"}}]},
        {"role": "tool", "tool_call_id": "t1", "content": "12"}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]});
    let said = r#"{"id":"m1","type":"message","role":"assistant","model":"s","content":[{"type":"tool_use","id":"t2","name":"weather","input":{"city":"C"}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":1}}"#;
    let (request, _, body) = exchange(&gateway(ProviderDialect::Anthropic), CHATS, &chat.to_string(), &ok(said));
    let sent = parts(&request).1;
    assert_eq!(sent["messages"][1]["content"][0]["input"], json!({"city": "B"}), "{sent}");
    assert_eq!(sent["messages"][2]["content"][0]["tool_use_id"], "t1", "{sent}");
    assert_eq!(sent["tools"][0]["input_schema"], json!({"type": "object"}), "{sent}");
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"city\":\"C\"}", "{body}");
    let message = json!({"model": "m", "max_tokens": 9, "messages": [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "B"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "12"}]}],
        "tools": [{"name": "weather", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"}});
    let completion = r#"{"id":"c","object":"chat.completion","created":1,"model":"s","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"t2","type":"function","function":{"name":"weather","arguments":"{\"city\":\"C\"}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    let (request, _, body) =
        exchange(&gateway(ProviderDialect::OpenAi), MESSAGES, &message.to_string(), &ok(completion));
    let sent = parts(&request).1;
    assert_eq!(sent["messages"][1]["tool_calls"][0]["function"]["arguments"], "{\"city\":\"B\"}", "{sent}");
    assert_eq!((&sent["messages"][2]["role"], &sent["tool_choice"]), (&json!("tool"), &json!("required")), "{sent}");
    assert_eq!((&body["stop_reason"], &body["content"][0]["input"]), (&json!("tool_use"), &json!({"city": "C"})));
}

#[test]
fn errors_come_in_the_form_of_the_client_with_the_same_meaning() {
    let json = "Content-Type: application/json\r\nRetry-After: 7\r\n";
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#;
    let limited = r#"{"error":{"message":"slow","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
    for (dialect, path, request, came, status, kind, message) in [
        (ProviderDialect::Anthropic, CHATS, CHAT, response(529, json, overloaded), 503, "server_error", "busy"),
        (ProviderDialect::OpenAi, MESSAGES, MESSAGE, response(429, json, limited), 429, "rate_limit_error", "slow"),
        (ProviderDialect::OpenAi, MESSAGES, MESSAGE, response(503, json, limited), 529, "overloaded_error", "slow"),
    ] {
        let gateway = gateway(dialect);
        let mut client = gateway.client();
        client.send(&post(path, request));
        respond(&mut gateway.origin.accept(), &came);
        let (head, error) = refused(&mut client, status);
        assert!(head.contains("\r\nretry-after: 7\r\n"), "{head}");
        assert_eq!((&error["type"], &error["message"]), (&json!(kind), &json!(message)));
        drop(client);
        gateway.rests();
        assert_eq!(accounts(&gateway), [0; 6], "an error is free");
    }
    let empty = response(529, "Anthropic-Organization-Id: o\r\n", "");
    let (_, head, body) = exchange(&gateway(ProviderDialect::Anthropic), CHATS, CHAT, &empty);
    assert!(head.starts_with("http/1.1 503 ") && body["error"]["code"] == "overloaded", "{head}");
    assert!(!head.contains("organization"), "{head}");
    // A page of a proxy does not pass.
    let page = response(500, "Content-Type: text/html\r\n", "<html>at 10.0.0.1</html>");
    let (_, head, body) = exchange(&gateway(ProviderDialect::Anthropic), CHATS, CHAT, &page);
    assert!(head.starts_with("http/1.1 500 ") && body["error"]["type"] == "server_error", "{head}");
    assert!(!body.to_string().contains("10.0.0.1"), "{body}");
}

#[test]
fn a_request_without_a_counterpart_is_refused_and_no_provider_sees_it() {
    let several = CHAT.replace("\"model\"", "\"n\":2,\"model\"");
    let server = MESSAGE.replace("\"model\"", "\"mcp_servers\":[{\"name\":\"x\"}],\"model\"");
    for (dialect, path, body, at_fault) in [
        (ProviderDialect::Anthropic, CHATS, several, "'n'"),
        (ProviderDialect::OpenAi, MESSAGES, server, "'mcp_servers'"),
    ] {
        let gateway = gateway(dialect);
        let mut client = gateway.client();
        client.send(&post(path, &body));
        let (_, error) = refused(&mut client, 400);
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(at_fault)), "{error}");
        assert!(gateway.origin.is_untouched());
        drop(client);
        gateway.rests();
        assert_eq!(accounts(&gateway), [0; 6]);
    }
    let gateway = gateway(ProviderDialect::Anthropic);
    let mut client = gateway.client();
    for (path, body) in
        [("/v1/responses", r#"{"model":"m","input":"x"}"#), ("/v1/embeddings", r#"{"model":"m","input":"x"}"#)]
    {
        client.send(&post(path, body));
        assert_eq!(refused(&mut client, 400).1["code"], "unsupported_endpoint", "{path}");
    }
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_response_that_cannot_be_translated_is_a_502_that_is_not_repeated_and_is_billed() {
    let broken = SAID.replace("\"id\":\"msg_1\",", "");
    let gateway = gateway(ProviderDialect::Anthropic);
    let (_, head, body) = exchange(&gateway, CHATS, CHAT, &ok(&broken));
    assert!(head.starts_with("http/1.1 502 ") && head.contains("\r\nx-should-retry: false\r\n"), "{head}");
    assert_eq!(body["error"]["code"], "upstream_bad_response");
    assert_eq!(accounts(&gateway), [9, 4, 5, 0, 0, 0], "the provider has billed it");
}

#[test]
fn a_response_beyond_the_limit_is_a_502_that_is_not_repeated_and_holds_no_memory() {
    const MOST: usize = 8 << 20;
    let text = |bytes: usize| COMPLETION.replace("hello", &"x".repeat(bytes));
    for (length, is_declared) in [(MOST + 1, true), (MOST + 1, false)] {
        let gateway = gateway(ProviderDialect::OpenAi);
        let mut client = gateway.client();
        client.send(&post(MESSAGES, MESSAGE));
        let mut end = gateway.origin.accept();
        end.request();
        let whole = ok(&text(length));
        let whole = match is_declared {
            true => whole,
            false => {
                let (head, body) = whole.split_once("\r\n\r\n").expect("a head");
                let head: Vec<_> = head.lines().filter(|line| !line.starts_with("Content-Length")).collect();
                format!("{}\r\n\r\n{body}", head.join("\r\n"))
            }
        };
        let writing = std::thread::spawn(move || {
            let _ = std::io::Write::write_all(&mut end.0.stream, whole.as_bytes());
        });
        let (head, error) = refused(&mut client, 502);
        assert!(head.contains("\r\nx-should-retry: false\r\n"), "{head}");
        assert_eq!(error["type"], "api_error");
        drop(client);
        writing.join().expect("no panic");
        gateway.rests();
        assert_eq!(
            (flagged(&gateway, "partial"), flagged(&gateway, "estimated")),
            (1, 1),
            "the provider has billed it"
        );
    }
    // Nearly as long, it passes.
    let gateway = gateway(ProviderDialect::OpenAi);
    let mut client = gateway.client();
    client.send(&post(MESSAGES, MESSAGE));
    let mut end = gateway.origin.accept();
    end.request();
    let whole = ok(&text(MOST - 1000));
    let writing = std::thread::spawn(move || end.send(&whole));
    let (_, body) = read(&mut client);
    assert_eq!(body["content"][0]["text"].as_str().map(str::len), Some(MOST - 1000));
    writing.join().expect("no panic");
    drop(client);
    gateway.rests();
    assert_eq!(accounts(&gateway), [9, 4, 5, 0, 0, 0]);
}

#[test]
fn the_name_of_the_target_and_the_limit_of_the_key_are_in_the_translated_request() {
    let cap = OutputCap { tokens: 7, action: OutputAction::Clamp };
    let policy = Policy { output: Some(cap), ..Policy::default() };
    let models = vec![model("m", &[(0, Some("claude"))])].into();
    let settings = AiListenerSettings { models, prices: prices("*"), ..with_key(policy) };
    let gateway = start(settings, vec![provider(ProviderDialect::Anthropic)], |_| {});
    let (request, head, _) = exchange(&gateway, CHATS, &CHAT.replace("\"model\"", "\"seed\":3,\"model\""), &ok(SAID));
    let sent = parts(&request).1;
    assert_eq!((&sent["model"], &sent["max_tokens"]), (&json!("claude"), &json!(7)), "{sent}");
    assert!(head.contains("\r\nx-weir-translation-loss: seed\r\n"), "{head}");
}

#[test]
fn without_a_key_of_the_provider_that_of_the_client_goes_on_in_its_field() {
    let open = Provider { api_key: None, ..provider(ProviderDialect::Anthropic) };
    let gateway = start(settings(), vec![open], |_| {});
    let (request, ..) = exchange(&gateway, CHATS, CHAT, &ok(SAID));
    assert!(request.contains(&format!("x-api-key: {KEY}\r\n")) && !request.contains("Bearer"), "{request}");
}

pub const BUSY: &str =
    "HTTP/1.1 429 Busy\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// A model whose first target speaks one dialect, and whose second one speaks another.
pub fn pair(other: &Origin, dialects: [ProviderDialect; 2]) -> Gateway {
    let models = vec![model("m", &[(0, None), (1, Some("spare"))])].into();
    let settings = AiListenerSettings { models, upstreams: vec!["a".into(), "b".into()], ..settings() };
    start(settings, dialects.map(provider).to_vec(), |setup| {
        setup.upstreams = vec![Vec::new(), vec![other.address]];
    })
}

#[test]
fn a_fallback_crosses_dialects_in_both_orders() {
    use ProviderDialect::{Anthropic, OpenAi};
    for (dialects, second) in [([OpenAi, Anthropic], SAID), ([Anthropic, OpenAi], COMPLETION)] {
        for (path, body) in [(CHATS, CHAT), (MESSAGES, MESSAGE)] {
            let other = Origin::new();
            let gateway = pair(&other, dialects);
            let mut client = gateway.client();
            client.send(&post(path, body));
            let first = respond(&mut gateway.origin.accept(), BUSY);
            let then = respond(&mut other.accept(), &ok(second));
            for (request, dialect) in [(&first, dialects[0]), (&then, dialects[1])] {
                let own = if dialect == Anthropic { MESSAGES } else { CHATS };
                assert!(request.starts_with(&format!("POST {own} HTTP/1.1\r\n")), "{request}");
                let name = if std::ptr::eq(request, &first) { "m" } else { "spare" };
                let is_same = own == path;
                let wanted = body.replace("\"m\"", &format!("\"{name}\""));
                assert_eq!(request.ends_with(&format!("\r\n\r\n{wanted}")), is_same, "{request}");
                assert_eq!(parts(request).1["model"], name);
                assert_eq!(request.contains("x-api-key: provider-key"), dialect == Anthropic, "{request}");
                assert_eq!(request.contains("earer provider-key"), dialect == OpenAi, "{request}");
            }
            let (head, found) = read(&mut client);
            assert!(head.starts_with("http/1.1 200 "), "{head}");
            let text =
                if path == CHATS { &found["choices"][0]["message"]["content"] } else { &found["content"][0]["text"] };
            assert_eq!(text, "hello", "{found}");
        }
    }
}

#[test]
fn a_target_of_the_other_dialect_is_left_out_for_a_request_that_it_cannot_get() {
    use ProviderDialect::{Anthropic, OpenAi};
    let several = CHAT.replace("\"model\"", "\"n\":2,\"model\"");
    let other = Origin::new();
    let gateway = pair(&other, [Anthropic, OpenAi]);
    let mut client = gateway.client();
    client.send(&post(CHATS, &several));
    let request = respond(&mut other.accept(), &ok(COMPLETION));
    assert!(request.ends_with(&several.replace("\"m\"", "\"spare\"")), "{request}");
    assert!(gateway.origin.is_untouched() && read(&mut client).0.starts_with("http/1.1 200 "));
    // After a failure the client gets one of its kind, not the fault of a request that its own dialect allows.
    let other = Origin::new();
    let gateway = pair(&other, [OpenAi, Anthropic]);
    let mut client = gateway.client();
    client.send(&post(CHATS, &several));
    respond(&mut gateway.origin.accept(), BUSY);
    assert_eq!(refused(&mut client, 429).1["code"], "rate_limit_exceeded");
    assert!(other.is_untouched());
}

#[test]
fn a_held_response_that_breaks_off_goes_to_the_next_target_and_is_charged_once() {
    use ProviderDialect::{Anthropic, OpenAi};
    let other = Origin::new();
    let gateway = pair(&other, [Anthropic, OpenAi]);
    let mut client = gateway.client();
    client.send(&post(CHATS, CHAT));
    let cut = ok(SAID);
    respond(&mut gateway.origin.accept(), &cut[..cut.len() - 20]);
    respond(&mut other.accept(), &ok(COMPLETION));
    assert_eq!(read(&mut client).1["id"], "c1");
    drop(client);
    gateway.rests();
    let named = [("listener", "test"), ("model", "m"), ("kind", "output")];
    assert_eq!(gateway.counter(catalog::AI_TOKENS.name, &named), 5);
}
