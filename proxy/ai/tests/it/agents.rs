//! Servers of MCP and agents of A2A: sessions at their endpoint, lists and calls of tools by the key's rules, records, hostile peers.

use std::{path::Path, sync::Arc, time::Duration};

use serde_json::{Value, json};
use weir_ai::settings::{AgentProtocol, AgentServer, AiListenerSettings, ProviderDialect};
use weir_spend::{
    Glob,
    policy::{Mode, Policy, ServerTool},
    rate::Pace,
};
use weir_telemetry::catalog;

use crate::{
    gateway::{EVENTS, KEY, chunk, ok, provider, read, respond, settings, start_with, usage, with_key},
    support::{Client, Gateway, Origin, OriginEnd, PATIENCE},
};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":"a-1","method":"tools/list"}"#;
const TOOLS: &str =
    r#"{"result" : {"tools" : [ {"name":"add","x":1e999}, {"name":"secret"} ,{"name":"add2"}],"z":[]},"id":"a-1"}"#;

fn call(tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"arguments":{{"a":1}},"name":{tool}}}}}"#)
}

fn agents() -> Arc<[AgentServer]> {
    let agent = |protocol, path: &str| AgentServer {
        protocol,
        name: "git".into(),
        upstream: 0,
        path: path.into(),
        idle_timeout: Duration::from_secs(5),
    };
    [agent(AgentProtocol::Mcp, "/base/mcp"), agent(AgentProtocol::A2a, "/agent/")].into()
}

fn tools(patterns: &[(&str, &str)]) -> Policy {
    let glob = |text| Glob::new(text).expect("a pattern");
    let rules = patterns.iter().map(|(server, tool)| ServerTool { server: glob(server), tool: glob(tool) });
    Policy { server_tools: Some(rules.collect()), ..Policy::default() }
}

/// A key that may call `add` alone.
fn limited() -> AiListenerSettings {
    AiListenerSettings { agents: agents(), ..with_key(tools(&[("git", "add")])) }
}

fn everything() -> AiListenerSettings {
    AiListenerSettings { agents: agents(), ..with_key(Policy::default()) }
}

fn gateway(settings: AiListenerSettings) -> Gateway {
    gateway_with(settings, None, None)
}

/// The gateway in front of its origin and another endpoint of the same upstream.
fn gateway_with(settings: AiListenerSettings, state: Option<&Path>, other: Option<&Origin>) -> Gateway {
    let endpoints = other.iter().map(|other| other.address).collect();
    start_with(settings, vec![provider(ProviderDialect::OpenAi)], state, |setup| setup.upstreams = vec![endpoints])
}

/// A request with these lines in its head, of which each ends.
fn request(method: &str, path: &str, lines: &str, body: &str) -> String {
    let length = body.len();
    let about = if body.is_empty() { String::new() } else { format!("Content-Length: {length}\r\n") };
    format!("{method} {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\n{lines}{about}\r\n{body}")
}

fn post(body: &str) -> String {
    request("POST", "/mcp/git", "", body)
}

/// Status, head and JSON of a request that no server sees.
fn refused(gateway: &Gateway, request: &str) -> (u16, String, Value) {
    let mut client = gateway.client();
    client.send(request);
    let (head, body) = read(&mut client);
    assert!(gateway.origin.is_untouched(), "{request}");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head, body)
}

/// The value of a field in a head in lower case.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The same in a head as it came: an id has capital letters.
fn id_of(response: &str) -> String {
    let of = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let mut fields = response.lines().filter_map(of);
    fields.find(|(name, _)| name == "mcp-session-id").expect("a session").1
}

/// The endpoint that gets the next request, by its number.
fn served(origins: [&Origin; 2]) -> (usize, OriginEnd) {
    let begun = std::time::Instant::now();
    loop {
        for (number, origin) in origins.into_iter().enumerate() {
            if let Some(end) = origin.waiting() {
                return (number, end);
            }
        }
        assert!(begun.elapsed() < PATIENCE, "no endpoint gets the request");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Begins a session: the endpoint that has it, and the id of the client.
fn begin(client: &mut Client, origins: [&Origin; 2]) -> (usize, String) {
    client.send(&post(INITIALIZE));
    let (number, mut end) = served(origins);
    let response = ok("{}").replace("\r\n\r\n", &format!("\r\nMcp-Session-Id: own-{number}\r\n\r\n"));
    let request = respond(&mut end, &response);
    assert!(request.starts_with("POST /base/mcp HTTP/1.1\r\n") && request.ends_with(INITIALIZE), "{request}");
    assert!(request.to_ascii_lowercase().contains("authorization: bearer provider-key\r\n"), "{request}");
    let response = client.response();
    assert!(!response.contains("own-"), "{response}");
    (number, id_of(&response))
}

#[test]
fn a_session_stays_at_the_endpoint_that_gave_it() {
    let other = Origin::new();
    let gateway = gateway_with(everything(), None, Some(&other));
    let origins = [&gateway.origin, &other];
    let mut begun = [0; 2];
    for _ in 0..12 {
        let mut client = gateway.client();
        let (number, id) = begin(&mut client, origins);
        begun[number] += 1;
        let line = format!("Mcp-Session-Id: {id}\r\n");
        for (method, body) in [("POST", LIST), ("GET", ""), ("POST", LIST), ("DELETE", "")] {
            client.send(&request(method, "/mcp/git", &line, body));
            let (at, mut end) = served(origins);
            // Servers repeat the id.
            let response = ok("{}").replace("\r\n\r\n", &format!("\r\nMcp-Session-Id: own-{number}\r\n\r\n"));
            let request = respond(&mut end, &response);
            assert_eq!(at, number, "{method}");
            assert!(request.contains(&format!("mcp-session-id: own-{number}\r\n")), "{request}");
            assert_eq!(request.matches("ession-").count(), 1, "{request}");
            assert_eq!(id_of(&client.response()), id, "{method}");
        }
    }
    assert!(begun[0] > 0 && begun[1] > 0, "sessions begin at both: {begun:?}");
}

#[test]
fn a_session_of_another_key_or_process_is_not_found() {
    let (first, second) = (gateway(everything()), gateway(everything()));
    let other = Origin::new();
    let id = begin(&mut first.client(), [&first.origin, &other]).1;
    // The key of sealed ids is that of the process, so the other endpoint decides here: it has another address.
    let changed = id.replace(&id[..1], if id.starts_with('A') { "B" } else { "A" });
    for id in [&*id, &changed, "own-0", "", "x\u{e4}"] {
        let (status, _, body) =
            refused(&second, &request("POST", "/mcp/git", &format!("Mcp-Session-Id: {id}\r\n"), LIST));
        assert_eq!((status, &body["error"]["code"]), (404, &json!(-32001)), "{id}");
    }
    let twice = format!("Mcp-Session-Id: {id}\r\nMcp-Session-Id: {id}\r\n");
    assert_eq!(refused(&first, &request("POST", "/mcp/git", &twice, LIST)).0, 400);
}

#[test]
fn a_session_whose_endpoint_is_out_of_reach_begins_elsewhere() {
    let other = Origin::new();
    let gateway = gateway_with(everything(), None, Some(&other));
    let mut sessions = Vec::new();
    while !sessions.iter().any(|(number, _)| *number == 1) {
        sessions.push(begin(&mut gateway.client(), [&gateway.origin, &other]));
    }
    let (_, lost) = sessions.pop().expect("one at the other");
    drop(other);
    let (status, _, body) =
        refused(&gateway, &request("POST", "/mcp/git", &format!("Mcp-Session-Id: {lost}\r\n"), LIST));
    assert_eq!((status, &body["error"]["code"], &body["id"]), (404, &json!(-32001), &json!("a-1")));
}

#[test]
fn a_server_whose_id_no_client_could_send_is_refused() {
    for bad in ["a b", &"x".repeat(513), "a\r\nMcp-Session-Id: b"] {
        let gateway = gateway(everything());
        let mut client = gateway.client();
        client.send(&post(INITIALIZE));
        let response = ok("{}").replace("\r\n\r\n", &format!("\r\nMcp-Session-Id: {bad}\r\n\r\n"));
        respond(&mut gateway.origin.accept(), &response);
        let (head, body) = read(&mut client);
        assert!(head.starts_with("http/1.1 502 ") && field(&head, "mcp-session-id").is_none(), "{head}");
        assert_eq!((&body["id"], body["error"]["code"].is_i64()), (&json!(0), true));
    }
}

#[test]
fn a_list_of_tools_loses_those_that_the_key_may_not_call() {
    let left = TOOLS.replace(r#", {"name":"secret"} ,{"name":"add2"}"#, "");
    for content_type in ["application/json", "text/plain", ""] {
        let gateway = gateway(limited());
        let mut client = gateway.client();
        client.send(&request("POST", "/mcp/git", "Accept-Encoding: gzip\r\n", LIST));
        let response = ok(TOOLS).replace("application/json", content_type);
        let request = respond(&mut gateway.origin.accept(), &response).to_ascii_lowercase();
        assert!(!request.contains("accept-encoding"), "{request}");
        let response = client.response();
        assert!(response.ends_with(&format!("\r\n\r\n{left}")), "{content_type}: {response}");
    }
    // With all tools it is not looked at.
    let gateway = gateway(everything());
    let mut client = gateway.client();
    client.send(&post(LIST));
    respond(&mut gateway.origin.accept(), &ok("no JSON"));
    assert!(client.response().ends_with("\r\n\r\nno JSON"));
}

#[test]
fn a_list_that_cannot_be_read_does_not_pass() {
    for (bad, about) in [
        ("no JSON", ""),
        (r#"{"result":{"tools":[{"name":"add"}],"tools":[{"name":"secret"}]}}"#, ""),
        (TOOLS, "Content-Encoding: gzip\r\n"),
    ] {
        let gateway = gateway(limited());
        let mut client = gateway.client();
        client.send(&post(LIST));
        let response = ok(bad).replacen("Content-Type", &format!("{about}Content-Type"), 1);
        respond(&mut gateway.origin.accept(), &response);
        let (head, body) = read(&mut client);
        assert!(head.starts_with("http/1.1 502 "), "{head}");
        assert_eq!(body["id"], "a-1", "{body}");
    }
}

#[test]
fn a_list_within_a_stream_loses_the_same_also_when_the_stream_is_resumed() {
    let events = format!(
        "id: 1\r\ndata:\r\n\r\n: comment\n\nevent: message\ndata: {{\"method\":\"notifications/progress\"}}\nid: 2\n\n\
         event: message\r\ndata: {TOOLS}\r\nid: 3\r\n\r\n"
    );
    let left = events.replace(r#", {"name":"secret"} ,{"name":"add2"}"#, "");
    for (method, lines, body) in [("POST", "", LIST), ("GET", "Last-Event-ID: 1\r\n", "")] {
        let gateway = gateway(limited());
        let mut client = gateway.client();
        client.send(&request(method, "/mcp/git", lines, body));
        let mut end = gateway.origin.accept();
        let request = respond(&mut end, EVENTS);
        assert!(lines.is_empty() || request.to_ascii_lowercase().contains("last-event-id: 1\r\n"), "{request}");
        for piece in events.as_bytes().chunks(11) {
            end.send(&chunk(std::str::from_utf8(piece).expect("ASCII")));
        }
        end.send("0\r\n\r\n");
        client.head();
        let mut got = Vec::new();
        while let Some(piece) = client.0.chunk_or_last().filter(|piece| !piece.is_empty()) {
            got.extend(piece);
        }
        assert_eq!(String::from_utf8_lossy(&got), left);
    }
}

#[test]
fn an_event_without_an_end_is_cut_and_the_slot_is_free() {
    let gateway = gateway(limited());
    let mut client = gateway.client();
    client.send(&post(LIST));
    let mut end = gateway.origin.accept();
    respond(&mut end, EVENTS);
    end.send(&chunk("data: {\"method\":\"x\"}\n\n"));
    let piece = chunk(&"x".repeat(64 << 10));
    // The gateway closes meanwhile: not all of it can be sent.
    let mut stream = end.0.stream.try_clone().expect("a clone");
    let writer =
        std::thread::spawn(move || (0..64).try_for_each(|_| std::io::Write::write_all(&mut stream, piece.as_bytes())));
    let rest = client.0.rest();
    assert!(rest.contains("data: {\"method\":\"x\"}\n\n") && !rest.contains("xxxx"), "{} bytes", rest.len());
    assert!(!rest.ends_with("0\r\n\r\n"), "it does not look whole");
    drop((client, end));
    let _ = writer.join().expect("no panic");
    gateway.rests();
}

#[test]
fn only_tools_of_the_key_are_called() {
    let gateway = gateway(limited());
    for tool in [r#""secret""#, r#""Add""#, r#""add\u0000""#, r#""""#, r#""secret\r\nX-Injected: 1""#] {
        let (status, head, body) = refused(&gateway, &post(&call(tool)));
        assert_eq!((status, &body["id"], &body["error"]["code"]), (200, &json!(7), &json!(-32602)), "{tool}");
        assert!(
            field(&head, "x-injected").is_none()
                && body["error"]["message"].as_str().is_some_and(|text| text.contains("Unknown tool"))
        );
    }
    let mut client = gateway.client();
    // An escape is the letter that it stands for.
    for tool in [r#""add""#, r#""a\u0064d""#] {
        client.send(&post(&call(tool)));
        let request = respond(&mut gateway.origin.accept(), &ok("{}"));
        assert!(request.ends_with(&call(tool)), "{request}");
        assert_eq!(read(&mut client).1, json!({}));
    }
    let labels = [("listener", "test"), ("reason", "tool_not_allowed"), ("treatment", "refused")];
    assert_eq!(gateway.counter(catalog::AI_REFUSALS.name, &labels), 5);
    // A notification has no response, so its refusal is one of HTTP.
    let notification = call(r#""secret""#).replace(r#""id":7,"#, "");
    assert_eq!(refused(&gateway, &post(&notification)).0, 403);
}

#[test]
fn a_message_that_can_be_read_in_two_ways_is_refused() {
    let gateway = gateway(AiListenerSettings { body_bytes_max: 30_000, ..limited() });
    let deep = format!(r#"{{"id":1,"method":"x","params":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let long = format!(r#"{{"id":1,"method":"x","y":"{}"}}"#, "y".repeat(40_000));
    let add = call(r#""add""#);
    let rows: &[(String, u16, i32)] = &[
        (add.replace(r#""name""#, r#""name":"secret","name""#), 400, -32700),
        (add.replace(r#""name""#, r#""Name":"secret","name""#), 400, -32700),
        (add.replace(r#""method""#, r#""method":"ping","meth\u006fd""#), 400, -32700),
        (add.replace(r#""method""#, r#""result":{},"method""#), 400, -32600),
        (format!("[{add}]"), 400, -32600),
        (deep, 400, -32700),
        (add.replace(r#""id":7"#, r#""id":{}"#), 400, -32600),
        (add.replace(r#""id":7"#, r#""id":null"#), 400, -32600),
        (add.replace(r#""add""#, "7"), 400, -32602),
        (long, 413, -32600),
        ("{}".into(), 400, -32600),
        (String::from("x"), 400, -32700),
    ];
    for (body, status, code) in rows {
        let (got, _, error) = refused(&gateway, &post(body));
        let shown = &body[..body.len().min(120)];
        assert_eq!((got, &error["error"]["code"]), (*status, &json!(code)), "{shown}: {error}");
    }
    for lines in ["Mcp-Name: secret\r\n", "Mcp-Name: add\r\nMcp-Name: secret\r\n", "Mcp-Method: ping\r\n"] {
        let (status, _, body) = refused(&gateway, &request("POST", "/mcp/git", lines, &add));
        assert_eq!((status, &body["error"]["code"]), (400, &json!(-32020)), "{lines}");
    }
    assert_eq!(refused(&gateway, &request("POST", "/mcp/git", "Content-Encoding: gzip\r\n", &add)).0, 415);
    assert_eq!(refused(&gateway, &request("GET", "/mcp/git", "", &add)).0, 400);
    let mut client = gateway.client();
    client.send(&request("POST", "/mcp/git", "Mcp-Method: tools/call\r\nMcp-Name: =?base64?YWRk?=\r\n", &add));
    respond(&mut gateway.origin.accept(), &ok("{}"));
    assert!(read(&mut client).0.starts_with("http/1.1 200 "));
}

#[test]
fn a_response_of_a_client_is_no_call_by_its_head() {
    let response = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    for lines in
        ["Mcp-Method: tools/call\r\nMcp-Name: secret\r\n", "Mcp-Method: tools/call\r\n", "Mcp-Name: secret\r\n"]
    {
        let (status, _, body) = refused(&gateway(limited()), &request("POST", "/mcp/git", lines, response));
        assert_eq!((status, &body["error"]["code"]), (400, &json!(-32020)), "{lines}");
    }
    let gateway = gateway(limited());
    let mut client = gateway.client();
    client.send(&request("POST", "/mcp/git", "", response));
    respond(&mut gateway.origin.accept(), "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 202 "));
}

#[test]
fn streams_and_ends_of_sessions_take_a_permit_and_count_as_requests() {
    let key = |policy| AiListenerSettings { agents: agents(), ..with_key(policy) };
    let listen = || request("GET", "/mcp/git", "Accept: text/event-stream\r\n", "");
    let gateway = self::gateway(key(Policy { concurrent_max: Some(1), ..Policy::default() }));
    let mut first = gateway.client();
    first.send(&listen());
    let mut end = gateway.origin.accept();
    respond(&mut end, &format!("{EVENTS}{}", chunk(": open\n\n")));
    first.head();
    for other in [listen(), request("DELETE", "/mcp/git", "", ""), post(LIST)] {
        let mut client = gateway.client();
        client.send(&other);
        assert!(read(&mut client).0.starts_with("http/1.1 429 "), "{other}");
    }
    end.send("0\r\n\r\n");
    while first.0.chunk().is_some() {}
    drop((first, end));
    gateway.rests();
    let mut client = gateway.client();
    client.send(&listen());
    respond(&mut gateway.origin.accept(), &ok("{}"));
    client.response();
    drop(client);
    gateway.rests();
    let gateway = self::gateway(key(Policy { requests: Some(Pace::per_minute(1)), ..Policy::default() }));
    let mut client = gateway.client();
    client.send(&request("DELETE", "/mcp/git", "", ""));
    respond(&mut gateway.origin.accept(), &ok("{}"));
    client.response();
    client.send(&listen());
    assert!(read(&mut client).0.starts_with("http/1.1 429 "));
}

#[test]
fn paths_methods_and_keys_are_refused_in_the_form_of_the_protocol() {
    let gateway = gateway(limited());
    let no_key = request("POST", "/mcp/git", "", LIST).replace(KEY, "sk-weir-unknown");
    let rows: &[(String, u16, &str)] = &[
        (no_key, 401, "invalid_api_key"),
        (request("POST", "/mcp/other", "", LIST), 404, "server_not_found"),
        (request("POST", "/mcp/git/x", "", LIST), 404, "server_not_found"),
        (request("POST", "/mcp/git/../../v1/models", "", LIST), 404, "server_not_found"),
        (request("PUT", "/mcp/git", "", LIST), 405, "method_not_allowed"),
        (request("GET", "/a2a/git", "", ""), 405, "method_not_allowed"),
    ];
    for (request, status, reason) in rows {
        let (got, head, body) = refused(&gateway, request);
        assert_eq!((got, &body["error"]["data"]["reason"]), (*status, &json!(reason)), "{request}\n{head}");
        assert_eq!(body["jsonrpc"], "2.0", "{request}");
    }
}

#[test]
fn a_server_of_which_a_key_may_call_nothing_does_not_exist_for_it() {
    let elsewhere = AiListenerSettings { agents: agents(), ..with_key(tools(&[("github", "*")])) };
    let (status, _, body) = refused(&gateway(elsewhere), &post(LIST));
    assert_eq!((status, &body["error"]["data"]["reason"]), (404, &json!("server_not_found")));
    let none = Policy { agents: Some(Vec::new()), ..Policy::default() };
    let none = AiListenerSettings { agents: agents(), ..with_key(none) };
    assert_eq!(refused(&gateway(none), &request("POST", "/a2a/git", "", LIST)).0, 404);
    let observing = Policy { mode: Mode::Observe, ..tools(&[("github", "*")]) };
    let observing = gateway(AiListenerSettings { agents: agents(), ..with_key(observing) });
    let mut client = observing.client();
    client.send(&post(&call(r#""secret""#)));
    respond(&mut observing.origin.accept(), &ok("{}"));
    assert!(read(&mut client).0.starts_with("http/1.1 200 "));
    let labels = [("listener", "test"), ("reason", "tool_not_allowed"), ("treatment", "observed")];
    assert_eq!(observing.counter(catalog::AI_REFUSALS.name, &labels), 1);
}

#[test]
fn calls_have_a_line_in_the_usage_log_and_other_messages_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway_with(everything(), Some(folder.path()), None);
    let mut client = gateway.client();
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"text":"planted"}}}"#;
    let made_up = r#"{"jsonrpc":"2.0","id":2,"method":"made\nup"}"#;
    for request in [
        post(LIST),
        post(&call(r#""sec\nret""#)),
        post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
        post(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#),
        post(made_up),
        request("POST", "/a2a/git", "", message),
        request("GET", "/a2a/git/.well-known/agent-card.json", "", ""),
    ] {
        client.send(&request);
        let seen = respond(&mut gateway.origin.accept(), &ok("{}"));
        let path = if request.contains("/mcp/") { "/base/mcp" } else { "/agent/" };
        let path = if request.contains("agent-card") { "/agent/.well-known/agent-card.json" } else { path };
        assert_eq!(seen.split(' ').nth(1), Some(path), "{seen}");
        client.response();
    }
    drop(client);
    gateway.rests();
    let lines = usage(folder.path(), 2);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let [tool, agent] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&tool["key"], &tool["server"], &tool["tool"]), (&json!("team"), &json!("git"), &json!("sec?ret")));
    assert_eq!((&tool["status"], &tool["provider"], &tool["charged_tokens"]), (&json!(200), &json!("a"), &json!(0)));
    assert!(tool["total_us"].as_u64().is_some_and(|took| took > 0) && tool["flags"] == json!([]), "{tool}");
    assert_eq!((&agent["agent"], &agent["tags"]), (&json!("git"), &json!("message/send")));
    assert!(lines.iter().all(|line| !line.to_string().contains("planted")), "{lines:?}");
    let count = |protocol: &str, method: &str| {
        let labels = [("listener", "test"), ("protocol", protocol), ("server", "git"), ("method", method)];
        gateway.counter(catalog::AI_AGENT_MESSAGES.name, &labels)
    };
    for method in ["tools/list", "tools/call", "notification", "response", "other"] {
        assert_eq!(count("mcp", method), 1, "{method}");
    }
    assert_eq!((count("a2a", "message/send"), count("a2a", "card")), (1, 1));
    let labels = [("listener", "test"), ("protocol", "mcp"), ("server", "git")];
    assert_eq!(gateway.count(catalog::AI_AGENT_CALLS.name, &labels), 1);
}

#[test]
fn calls_have_a_limit_of_their_own_and_requests_that_of_the_key() {
    let two = |policy| AiListenerSettings { agents: agents(), ..with_key(policy) };
    let pace = Pace::per_minute(60).with_burst(2);
    for (policy, reason, others_pass) in [
        (Policy { tool_calls: Some(pace), ..Policy::default() }, "tool_calls_per_minute", true),
        (Policy { requests: Some(pace), ..Policy::default() }, "requests_per_minute", false),
    ] {
        let gateway = gateway(two(policy));
        let mut client = gateway.client();
        for _ in 0..2 {
            client.send(&post(&call(r#""add""#)));
            respond(&mut gateway.origin.accept(), &ok("{}"));
            assert!(read(&mut client).0.starts_with("http/1.1 200 "));
        }
        let (status, head, body) = refused(&gateway, &post(&call(r#""add""#)));
        assert_eq!(
            (status, &body["id"], &body["error"]["data"]["reason"]),
            (429, &json!(7), &json!("rate_limit_exceeded"))
        );
        assert!(field(&head, "retry-after").is_some(), "{head}");
        assert!(body["error"]["data"]["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0), "{body}");
        let labels = [("listener", "test"), ("reason", reason), ("treatment", "refused")];
        assert_eq!(gateway.counter(catalog::AI_REFUSALS.name, &labels), 1);
        client.send(&post(LIST));
        if others_pass {
            respond(&mut gateway.origin.accept(), &ok("{}"));
        }
        let status = if others_pass { "http/1.1 200 " } else { "http/1.1 429 " };
        assert!(read(&mut client).0.starts_with(status), "{reason}");
        // A notification belongs to a request that was counted.
        client.send(&post(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#));
        respond(&mut gateway.origin.accept(), &ok("{}"));
        assert!(read(&mut client).0.starts_with("http/1.1 200 "), "{reason}");
    }
}

#[test]
fn a_stream_outlives_the_deadline_of_requests_and_not_that_of_pauses() {
    let mut own = AiListenerSettings { request_timeout: Duration::from_millis(300), ..everything() };
    own.agents =
        own.agents.iter().map(|one| AgentServer { idle_timeout: Duration::from_secs(1), ..one.clone() }).collect();
    let gateway = gateway(own);
    let mut client = gateway.client();
    client.send(&request("GET", "/mcp/git", "", ""));
    let mut end = gateway.origin.accept();
    respond(&mut end, EVENTS);
    client.head();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(250));
        end.send(&chunk(": ping\n\n"));
        assert_eq!(client.0.chunk().as_deref(), Some(&b": ping\n\n"[..]));
    }
    let begun = std::time::Instant::now();
    assert_eq!(client.0.rest(), "", "it breaks off");
    assert!(begun.elapsed() < PATIENCE && begun.elapsed() > Duration::from_millis(500), "{:?}", begun.elapsed());
}

#[test]
fn without_agents_their_paths_are_unknown_to_the_api() {
    let gateway = gateway(settings());
    let (status, _, body) = refused(&gateway, &post(LIST));
    assert_eq!((status, &body["error"]["code"]), (404, &json!("unknown_url")));
}

#[test]
fn calls_are_attributed_and_servers_do_not_see_by_whom() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway_with(everything(), Some(folder.path()), None);
    let mut client = gateway.client();
    let fields = "X-Weir-User: u\r\nX-Weir-Agent: coder\r\nX-Weir-Conversation: c\r\nX-Weir-Tags: t\r\n";
    let send = r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}"#;
    for (path, body) in [("/mcp/git", &*call("\"add\"")), ("/a2a/git", send)] {
        client.send(&request("POST", path, fields, body));
        let request = respond(&mut gateway.origin.accept(), &ok("{}"));
        assert!(!request.to_ascii_lowercase().contains("x-weir-"), "{request}");
        client.response();
    }
    let lines = usage(folder.path(), 2);
    for line in &lines {
        assert_eq!((&line["user"], &line["conversation"]), (&json!("u"), &json!("c")), "{line}");
    }
    assert_eq!((&lines[0]["agent"], &lines[0]["tags"]), (&json!("coder"), &json!("t")), "the agent that calls");
    assert_eq!(
        (&lines[1]["agent"], &lines[1]["tags"]),
        (&json!("git"), &json!("message/send")),
        "the one that is called"
    );
}
