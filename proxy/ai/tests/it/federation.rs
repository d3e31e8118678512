//! Several servers of MCP under one name: one handshake, one list, calls by prefix, servers that are out of reach.

use std::{path::Path, sync::Arc, time::Duration};

use serde_json::{Value, json};
use weir_ai::settings::{AgentProtocol, AgentServer, AiListenerSettings, Federation, ProviderDialect};
use weir_spend::{
    Glob,
    policy::{Policy, ServerTool},
    rate::Pace,
};
use weir_telemetry::catalog;

use crate::{
    gateway::{EVENTS, KEY, chunk, ok, provider, read, respond, start_with, usage, with_key},
    support::{Client, Gateway, Origin, OriginEnd, PATIENCE},
};

pub const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"c"}}}"#;
pub const LIST: &str = r#"{"jsonrpc":"2.0","id":"a-1","method":"tools/list"}"#;

pub fn call(tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"arguments":{{"a":1}},"name":{tool}}}}}"#)
}

/// `git` at the first upstream and `files` at the second, both under the name `all`.
pub fn settings(policy: Policy) -> AiListenerSettings {
    let server = |name: &str, upstream| AgentServer {
        protocol: AgentProtocol::Mcp,
        name: name.into(),
        upstream,
        path: format!("/{name}").into(),
        idle_timeout: Duration::from_secs(5),
    };
    let federation = Federation { name: "all".into(), servers: vec![0, 1] };
    AiListenerSettings {
        upstreams: vec!["a".into(), "b".into()],
        agents: [server("git", 0), server("files", 1)].into(),
        federations: Arc::new([federation]),
        ..with_key(policy)
    }
}

fn only(patterns: &[(&str, &str)]) -> Policy {
    let glob = |text| Glob::new(text).expect("a pattern");
    let rules = patterns.iter().map(|(server, tool)| ServerTool { server: glob(server), tool: glob(tool) });
    Policy { server_tools: Some(rules.collect()), ..Policy::default() }
}

pub fn gateway(policy: Policy, files: &Origin, state: Option<&Path>) -> Gateway {
    let providers = vec![provider(ProviderDialect::OpenAi); 2];
    start_with(settings(policy), providers, state, |setup| setup.upstreams = vec![Vec::new(), vec![files.address]])
}

/// A request of a session, if it has one.
pub fn request(method: &str, session: &str, body: &str) -> String {
    let length = body.len();
    let about = if body.is_empty() { String::new() } else { format!("Content-Length: {length}\r\n") };
    let session = if session.is_empty() { String::new() } else { format!("Mcp-Session-Id: {session}\r\n") };
    format!(
        "{method} /mcp/all HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nX-Forwarded-For: 9.9.9.9\r\n\
         Mcp-Protocol-Version: 2025-06-18\r\n{session}{about}\r\n{body}"
    )
}

/// Status and JSON of the next response.
pub fn got(client: &mut Client) -> (u16, Value) {
    let (head, body) = read(client);
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), body)
}

/// The message of a request.
pub fn message(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").expect("a head").1).expect("JSON")
}

/// Responds to a request with a result, by its id.
pub fn result(end: &mut OriginEnd, result: &Value, fields: &str) -> String {
    let request = end.request();
    let response = json!({"jsonrpc": "2.0", "id": message(&request)["id"], "result": result}).to_string();
    end.send(&ok(&response).replacen("\r\n", &format!("\r\n{fields}"), 1));
    request
}

pub fn offer(revision: &str) -> Value {
    json!({"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}})
}

/// The id of a session with both servers.
pub fn session(gateway: &Gateway, files: &Origin) -> String {
    let mut client = gateway.client();
    client.send(&request("POST", "", INITIALIZE));
    let seen = result(&mut gateway.origin.accept(), &offer("2025-11-25"), "Mcp-Session-Id: own-git\r\n");
    assert!(seen.starts_with("POST /git HTTP/1.1\r\n"), "{seen}");
    result(&mut files.accept(), &offer("2025-06-18"), "Mcp-Session-Id: own-files\r\n");
    id_of(&client.response())
}

pub fn id_of(response: &str) -> String {
    let of = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let mut fields = response.lines().filter_map(of);
    let id = fields.find(|(name, _)| name == "mcp-session-id").expect("a session").1;
    assert!(!id.contains("own-"), "{id}");
    id
}

pub fn tools(names: &[&str]) -> Value {
    json!({"tools": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()})
}

pub fn names(list: &Value) -> Vec<&str> {
    let tools = list["result"]["tools"].as_array().expect("a list");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

pub fn left_out(gateway: &Gateway, server: &str, reason: &str) -> u64 {
    let labels = [("listener", "test"), ("server", server), ("reason", reason)];
    gateway.counter(catalog::AI_FEDERATION_FAILURES.name, &labels)
}

pub fn counted(gateway: &Gateway, server: &str, method: &str) -> u64 {
    let labels = [("listener", "test"), ("protocol", "mcp"), ("server", server), ("method", method)];
    gateway.counter(catalog::AI_AGENT_MESSAGES.name, &labels)
}

#[test]
fn a_handshake_goes_to_each_server_and_the_client_sees_one() {
    let files = Origin::new();
    let gateway = gateway(Policy::default(), &files, None);
    let mut client = gateway.client();
    client.send(&request("POST", "", INITIALIZE));
    let seen = result(&mut gateway.origin.accept(), &offer("2025-11-25"), "Mcp-Session-Id: own-git\r\n");
    let (head, sent) = (seen.to_ascii_lowercase(), message(&seen));
    assert!(head.contains("authorization: bearer provider-key\r\n") && !head.contains("x-forwarded-for"), "{seen}");
    assert_eq!(sent["params"], json!({"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c"}}));
    result(&mut files.accept(), &offer("2025-06-18"), "");
    let response = client.response();
    let body: Value = serde_json::from_str(response.split_once("\r\n\r\n").expect("a head").1).expect("JSON");
    assert_eq!((&body["id"], &body["result"]["protocolVersion"]), (&json!(0), &json!("2025-06-18")));
    assert_eq!(body["result"]["capabilities"], json!({"tools": {}}));
    assert_eq!(body["result"]["serverInfo"]["name"], "all");
    let id = id_of(&response);
    // Each gets its own session and revision; the second has no session.
    client.send(&request("POST", &id, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
    let accepted = "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let first = respond(&mut gateway.origin.accept(), accepted).to_ascii_lowercase();
    let second = respond(&mut files.accept(), accepted).to_ascii_lowercase();
    assert!(first.contains("mcp-session-id: own-git\r\n") && first.contains("version: 2025-11-25\r\n"), "{first}");
    assert!(!second.contains("mcp-session-id") && second.contains("version: 2025-06-18\r\n"), "{second}");
    assert_eq!(first.matches("mcp-protocol-version").count(), 1, "{first}");
    assert!(client.response().starts_with("HTTP/1.1 202 "));
    client.send(&request("POST", &id, r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#));
    assert_eq!(got(&mut client), (200, json!({"jsonrpc":"2.0","id":"p","result":{}})));
    client.send(&request("DELETE", &id, ""));
    let ended = respond(&mut gateway.origin.accept(), &ok(""));
    assert!(ended.starts_with("DELETE /git ") && ended.contains("own-git"), "{ended}");
    assert!(client.response().starts_with("HTTP/1.1 200 ") && files.is_untouched());
    for (server, wanted) in [("all", [1, 1, 1, 1]), ("git", [1, 1, 0, 1]), ("files", [1, 1, 0, 0])] {
        let methods = ["initialize", "notification", "ping", "end_session"];
        assert_eq!(methods.map(|method| counted(&gateway, server, method)), wanted, "{server}");
    }
}

#[test]
fn lists_are_joined_in_the_order_of_the_servers_page_by_page() {
    let files = Origin::new();
    let gateway = gateway(Policy::default(), &files, None);
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    client.send(&request("POST", &id, LIST));
    let mut first = tools(&["add"]);
    first["nextCursor"] = json!("c\"2");
    let seen = result(&mut gateway.origin.accept(), &first, "");
    assert!(seen.contains("mcp-session-id: own-git\r\n") && message(&seen)["params"].is_null(), "{seen}");
    // The second server responds with a stream.
    let mut end = files.accept();
    let own_id = &message(&end.request())["id"];
    let list = json!({"jsonrpc": "2.0", "id": own_id, "result": tools(&["read", "write"])});
    end.send(EVENTS);
    end.send(&chunk("event: message\ndata: {\"method\":\"notifications/message\"}\n\n"));
    end.send(&chunk(&format!("data: {list}\n\n")));
    end.send("0\r\n\r\n");
    let seen = result(&mut gateway.origin.accept(), &tools(&["sub"]), "");
    assert_eq!(message(&seen)["params"], json!({"cursor": "c\"2"}));
    let (status, body) = got(&mut client);
    assert_eq!((status, &body["id"]), (200, &json!("a-1")));
    assert_eq!(names(&body), ["git__add", "git__sub", "files__read", "files__write"]);
    // No server has prompts.
    client.send(&request("POST", &id, r#"{"jsonrpc":"2.0","id":2,"method":"prompts/list"}"#));
    assert_eq!(got(&mut client).1["result"], json!({"prompts": []}));
    drop((client, end));
    gateway.rests();
}

#[test]
fn a_call_goes_to_the_server_of_its_prefix_with_its_own_name() {
    let (files, folder) = (Origin::new(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(Policy::default(), &files, Some(folder.path()));
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    for (sent, own) in [(r#""files__read""#, "read"), (r#""files\u005f_a__\"b\"""#, "a__\"b\"")] {
        client.send(&request("POST", &id, &call(sent)));
        let mut end = files.accept();
        let seen = respond(&mut end, EVENTS);
        let (head, body) = seen.split_once("\r\n\r\n").expect("a head");
        assert_eq!(body, call(&json!(own).to_string()), "{sent}");
        assert!(head.contains("mcp-session-id: own-files") && head.contains("version: 2025-06-18"), "{head}");
        // Events pass as they come.
        end.send(&chunk("data: {\"method\":\"notifications/progress\"}\n\n"));
        client.head();
        assert_eq!(client.0.chunk().as_deref(), Some(&b"data: {\"method\":\"notifications/progress\"}\n\n"[..]));
        end.send("0\r\n\r\n");
        assert_eq!(client.0.chunk_or_last(), None, "the last chunk");
    }
    for unknown in [r#""read""#, r#""jira__read""#, r#""git_add""#] {
        client.send(&request("POST", &id, &call(unknown)));
        let (status, body) = got(&mut client);
        assert_eq!((status, &body["error"]["code"], &body["id"]), (200, &json!(-32602), &json!(7)), "{unknown}");
    }
    drop(client);
    gateway.rests();
    let lines = usage(folder.path(), 2);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line["server"] == "files" && line["provider"] == "b"), "{lines:?}");
    assert_eq!(lines[0]["tool"], "read");
    assert_eq!((counted(&gateway, "all", "tools/call"), counted(&gateway, "files", "tools/call")), (5, 2));
}

#[test]
fn a_key_sees_and_calls_its_own_tools_of_its_own_servers() {
    let files = Origin::new();
    let gateway = gateway(only(&[("git", "add")]), &files, None);
    let mut client = gateway.client();
    client.send(&request("POST", "", INITIALIZE));
    result(&mut gateway.origin.accept(), &offer("2025-11-25"), "Mcp-Session-Id: own-git\r\n");
    let id = id_of(&client.response());
    client.send(&request("POST", &id, LIST));
    result(&mut gateway.origin.accept(), &tools(&["secret", "add", "add2"]), "");
    assert_eq!(names(&got(&mut client).1), ["git__add"]);
    for tool in [r#""git__secret""#, r#""git__add2""#, r#""files__read""#, r#""files__add""#] {
        client.send(&request("POST", &id, &call(tool)));
        let (status, body) = got(&mut client);
        assert_eq!((status, &body["error"]["code"]), (200, &json!(-32602)), "{tool}");
    }
    assert!(files.is_untouched() && gateway.origin.is_untouched());
    client.send(&request("POST", &id, &call(r#""git__add""#)));
    assert!(respond(&mut gateway.origin.accept(), &ok("{}")).ends_with(&call(r#""add""#)));
    assert_eq!(got(&mut client).0, 200);
}

#[test]
fn a_server_that_is_down_or_of_no_use_is_left_out_and_counted() {
    let gone = Origin::new();
    let gateway = gateway(Policy::default(), &gone, None);
    drop(gone);
    let mut client = gateway.client();
    client.send(&request("POST", "", INITIALIZE));
    result(&mut gateway.origin.accept(), &offer("2025-11-25"), "Mcp-Session-Id: own-git\r\n");
    let id = id_of(&client.response());
    assert_eq!(left_out(&gateway, "files", "unreachable"), 1);
    client.send(&request("POST", &id, LIST));
    result(&mut gateway.origin.accept(), &tools(&["add"]), "");
    assert_eq!(names(&got(&mut client).1), ["git__add"]);
    client.send(&request("POST", &id, &call(r#""files__read""#)));
    assert_eq!(got(&mut client).1["error"]["code"], json!(-32602));
    // Nothing is left.
    let error = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32600, "message": "x"}}).to_string();
    for (response, reason) in [
        (ok("no JSON"), "unreadable"),
        (ok(&error), "unreadable"),
        (ok("{}").replace("200 OK", "500 Bad"), "status"),
        (ok("{}").replace("\r\n\r\n{}", "\r\nContent-Length: 9\r\n\r\n{}"), "failed"),
    ] {
        let before = left_out(&gateway, "git", reason);
        client.send(&request("POST", "", INITIALIZE));
        respond(&mut gateway.origin.accept(), &response);
        let (status, body) = got(&mut client);
        assert_eq!(
            (status, &body["error"]["data"]["reason"], &body["id"]),
            (502, &json!("upstream_unavailable"), &json!(0))
        );
        assert_eq!(left_out(&gateway, "git", reason), before + 1, "{reason}");
    }
    for (offer, fields, reason) in [
        (offer("2026-07-28"), "", "revision"),
        (offer("2025-11-25"), "Mcp-Session-Id: a b\r\n", "session_id"),
        (offer("1999-01-01"), "", "revision"),
        (json!({}), "", "unreadable"),
    ] {
        client.send(&request("POST", "", INITIALIZE));
        result(&mut gateway.origin.accept(), &offer, fields);
        assert_eq!(got(&mut client).0, 502, "{reason}");
    }
    assert_eq!((left_out(&gateway, "git", "revision"), left_out(&gateway, "git", "session_id")), (2, 1));
}

#[test]
fn a_server_that_dies_later_is_left_out_and_one_that_forgets_ends_the_session() {
    let files = Origin::new();
    let gateway = gateway(Policy::default(), &files, None);
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    client.send(&request("POST", &id, LIST));
    result(&mut gateway.origin.accept(), &tools(&["add"]), "");
    respond(&mut files.accept(), &ok("{}").replace("200 OK", "404 Not Found"));
    // The session is over for the client, so that at the other server ends.
    let ended = respond(&mut gateway.origin.accept(), &ok(""));
    assert!(ended.starts_with("DELETE /git HTTP/1.1\r\n") && ended.contains("mcp-session-id: own-git\r\n"), "{ended}");
    let (status, body) = got(&mut client);
    assert_eq!((status, &body["error"]["code"], &body["id"]), (404, &json!(-32001), &json!("a-1")));
    drop(files);
    client.send(&request("POST", &id, LIST));
    result(&mut gateway.origin.accept(), &tools(&["add"]), "");
    assert_eq!(names(&got(&mut client).1), ["git__add"]);
    assert_eq!(left_out(&gateway, "files", "unreachable"), 1);
    client.send(&request("POST", &id, &call(r#""files__read""#)));
    let (status, body) = got(&mut client);
    assert!(status >= 500 && body["error"]["code"] == -32603 && body["id"] == 7, "{status} {body}");
}

#[test]
fn what_several_servers_do_not_have_as_one_is_refused() {
    let files = Origin::new();
    let gateway = gateway(Policy::default(), &files, None);
    let id = session(&gateway, &files);
    let mut client = gateway.client();
    let other = gateway.client();
    drop(other);
    let changed = id.replace(&id[..1], if id.starts_with('A') { "B" } else { "A" });
    let of = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
    let (odd, old) = (INITIALIZE.replace("2025-11-25", "newest"), INITIALIZE.replace("2025-11-25", "2024-11-05"));
    let mismatch = request("POST", &id, &call(r#""git__add""#)).replacen("\r\n", "\r\nMcp-Name: add\r\n", 1);
    let rows: &[(String, u16, i32)] = &[
        (request("POST", "", LIST), 400, -32600),
        (request("POST", "", &of("server/discover")), 400, -32600),
        (request("POST", &changed, LIST), 404, -32001),
        (request("POST", &id, &of("resources/list")), 200, -32601),
        (request("POST", &id, &of("made/up")), 200, -32601),
        (request("POST", "", &odd), 200, -32602),
        (request("POST", "", &old), 200, -32602),
        (request("POST", &id, &of("prompts/get")), 400, -32602),
        (
            request("POST", &id, &of("prompts/get").replace("\"id\"", "\"params\":{\"name\":\"x__y\"},\"id\"")),
            200,
            -32602,
        ),
        (mismatch, 400, -32020),
        (request("GET", &id, ""), 405, -32600),
        (request("DELETE", "", ""), 400, -32600),
        (request("POST", &id, "[]"), 400, -32600),
    ];
    for (request, status, code) in rows {
        client.send(request);
        let (got, body) = got(&mut client);
        assert_eq!((got, &body["error"]["code"]), (*status, &json!(code)), "{request}\n{body}");
    }
    assert!(gateway.origin.is_untouched() && files.is_untouched());
    // A member has its own path, too, and its sessions are others.
    client.send(&request("POST", &id, LIST).replace("/mcp/all", "/mcp/git"));
    assert_eq!(got(&mut client).0, 404);
}

#[test]
fn limits_of_the_key_hold_for_each_message_of_its_client() {
    let files = Origin::new();
    let pace = Pace::per_minute(60).with_burst(2);
    for (policy, lists_pass) in [
        (Policy { requests: Some(pace), ..Policy::default() }, false),
        (Policy { tool_calls: Some(Pace::per_minute(60).with_burst(1)), ..Policy::default() }, true),
    ] {
        let gateway = gateway(policy, &files, None);
        let id = session(&gateway, &files);
        let mut client = gateway.client();
        client.send(&request("POST", &id, &call(r#""git__add""#)));
        respond(&mut gateway.origin.accept(), &ok("{}"));
        assert_eq!(got(&mut client).0, 200);
        client.send(&request("POST", &id, &call(r#""git__add""#)));
        assert_eq!(got(&mut client).0, 429);
        client.send(&request("POST", &id, LIST));
        if lists_pass {
            result(&mut gateway.origin.accept(), &tools(&[]), "");
            result(&mut files.accept(), &tools(&[]), "");
        }
        assert_eq!(got(&mut client).0, if lists_pass { 200 } else { 429 });
    }
}

#[test]
fn a_list_of_endless_pages_ends() {
    let files = Origin::new();
    let gateway = gateway(only(&[("git", "*")]), &files, None);
    let mut client = gateway.client();
    client.send(&request("POST", "", INITIALIZE));
    result(&mut gateway.origin.accept(), &offer("2025-11-25"), "");
    let id = id_of(&client.response());
    client.send(&request("POST", &id, LIST));
    let mut page = tools(&["add"]);
    page["nextCursor"] = json!("again");
    let begun = std::time::Instant::now();
    for _ in 0..64 {
        result(&mut gateway.origin.accept(), &page, "");
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(got(&mut client).0, 502);
    assert_eq!(left_out(&gateway, "git", "pages"), 1);
    assert!(gateway.origin.is_untouched());
}
