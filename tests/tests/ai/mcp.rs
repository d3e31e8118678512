//! MCP and A2A with the official SDKs: real servers, and the SDKs' clients, which find the same objects directly and through the gateway.

use std::path::Path;

use serde_json::Value;
use weir_tests::ai::usage;
use weir_tests::gateway::Gateway;
use weir_tests::http::{HttpClient, Response};
use weir_tests::mcp::{KEY, LIMITED_KEY, McpSdk, McpServer, gateway, gateway_at};
use weir_tests::port;
use weir_tests::stream::Address;

use crate::sdks::holds;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// The URL of the server through the gateway.
fn url(gateway: &Gateway) -> String {
    format!("http://{}/mcp/test", gateway.address.text())
}

/// A message with a key and further lines in its head, of which each ends.
fn post(gateway: &Gateway, key: &str, lines: &str, body: &str) -> Response {
    let mut client = HttpClient::connect(&gateway.address);
    client.send(format!(
        "POST /mcp/test HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{lines}Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.response()
}

/// The id of another session.
fn session(gateway: &Gateway, key: &str) -> String {
    let response = post(gateway, key, "", INITIALIZE);
    assert_eq!(response.status, 200, "{}", response.text());
    response.field("mcp-session-id").expect("a session")
}

fn code(response: &Response) -> i64 {
    let body: Value = serde_json::from_str(&response.content()).expect("JSON");
    body["error"]["code"].as_i64().unwrap_or_default()
}

/// The books of calls: each has its names, a status and a duration, and nothing of its arguments.
fn books(gateway: Gateway, state: &Path, least: usize) {
    let metrics = gateway.metrics();
    let counted = metrics.sum_where("weir_ai_agent_messages_total", &[("server", "test"), ("method", "tools/call")]);
    let timed = metrics.sum("weir_ai_agent_call_seconds_count");
    let log = gateway.log();
    gateway.finish();
    let lines = usage(state);
    assert!(lines.len() >= least, "only {} calls", lines.len());
    assert_eq!((counted as usize, timed as usize), (lines.len(), lines.len()));
    for line in &lines {
        let is_named = line["server"] == "test" && line["tool"].is_string() && line["key"].is_string();
        let is_measured = line["status"] == 200 && line["total_us"].as_u64().is_some_and(|took| took > 0);
        assert!(is_named && is_measured && line["charged_tokens"] == 0, "{line}");
        assert!(line.get("arguments").is_none() && line["tool"] != "secret", "{line}");
    }
    let text = lines.iter().map(ToString::to_string).collect::<String>() + &log;
    assert!(!text.contains(KEY) && !text.contains(LIMITED_KEY) && !text.contains("steps\""), "a secret or an argument");
}

#[test]
fn the_sdk_of_python_finds_the_same_objects_as_directly() {
    let servers = [McpServer::start(McpSdk::Python), McpServer::start(McpSdk::Python)];
    let state = tempfile::tempdir().expect("a folder");
    let gateway = gateway(&servers.each_ref().map(|server| &server.address), state.path(), "");
    let (direct, through) = (servers[0].url("/mcp"), url(&gateway));
    holds(&McpSdk::Python.run("mcp_sdk", &[&direct, &through, KEY]), 11);
    holds(&McpSdk::Python.run("mcp_limited", &[&direct, &through, LIMITED_KEY]), 2);
    books(gateway, state.path(), 30);
}

#[test]
fn the_sdk_of_typescript_finds_the_same_objects_as_directly() {
    let servers = [McpServer::start(McpSdk::Node), McpServer::start(McpSdk::Node)];
    let state = tempfile::tempdir().expect("a folder");
    let gateway = gateway(&servers.each_ref().map(|server| &server.address), state.path(), "");
    holds(&McpSdk::Node.run("mcp_sdk", &[&servers[0].url("/mcp"), &url(&gateway), KEY, LIMITED_KEY]), 11);
    books(gateway, state.path(), 8);
}

#[test]
fn the_client_of_one_sdk_works_with_the_server_of_the_other() {
    let (node, state) = (McpServer::start(McpSdk::Node), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&[&node.address], state.path(), "");
    // It falls back to the handshake of earlier revisions.
    holds(&McpSdk::Python.run("mcp_limited", &[&node.url("/mcp"), &url(&gateway), LIMITED_KEY]), 2);
}

#[test]
fn the_sdk_of_a2a_finds_the_same_objects_as_directly() {
    let address = Address::port(port::free());
    let through = format!("http://{}/a2a/test", address.text());
    let (agent, state) = (McpServer::start_agent(&through), tempfile::tempdir().expect("a folder"));
    let gateway = gateway_at(address, &[&agent.address], state.path(), "");
    holds(&McpSdk::Python.run("a2a_sdk", &[&agent.url("/agent"), &through, KEY, LIMITED_KEY]), 4);
    let counted = |method: &str| gateway.metrics().sum_where("weir_ai_agent_messages_total", &[("method", method)]);
    // Both versions, at once and as a stream.
    assert_eq!(["SendMessage", "SendStreamingMessage", "message/send", "message/stream"].map(counted), [1.0; 4]);
    gateway.finish();
    let lines = usage(state.path());
    let methods: Vec<&str> = lines.iter().filter_map(|line| line["tags"].as_str()).collect();
    assert_eq!(methods, ["SendMessage", "message/send", "SendStreamingMessage", "message/stream"]);
    assert!(lines.iter().all(|line| line["agent"] == "test" && line["key"] == "all"), "{lines:?}");
    assert!(lines.iter().all(|line| !line.to_string().contains("hello")), "{lines:?}");
}

#[test]
fn a_session_belongs_to_its_key_and_to_the_process() {
    let (server, state) = (McpServer::start(McpSdk::Node), tempfile::tempdir().expect("a folder"));
    let first = gateway(&[&server.address], state.path(), "");
    let id = session(&first, KEY);
    let line = format!("Mcp-Session-Id: {id}\r\n");
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    assert_eq!(post(&first, KEY, &line, ping).status, 200);
    let foreign = post(&first, LIMITED_KEY, &line, ping);
    assert_eq!((foreign.status, code(&foreign)), (404, -32001), "{}", foreign.text());
    first.finish();
    let second = gateway(&[&server.address], state.path(), "");
    let unknown = post(&second, KEY, &line, ping);
    assert_eq!((unknown.status, code(&unknown)), (404, -32001), "{}", unknown.text());
    let line = format!("Mcp-Session-Id: {}\r\n", session(&second, KEY));
    assert_eq!(post(&second, KEY, &line, ping).status, 200, "clients initialise again");
}

#[test]
fn a_hostile_message_reaches_no_server_and_leaves_no_trace() {
    let (server, state) = (McpServer::start(McpSdk::Node), tempfile::tempdir().expect("a folder"));
    let mut gateway = gateway(&[&server.address], state.path(), "");
    let line = format!("Mcp-Session-Id: {}\r\n", session(&gateway, LIMITED_KEY));
    let before = gateway.process().resident();
    let of = |gateway: &Gateway, body: &str| post(gateway, LIMITED_KEY, &line, body);
    let huge = format!(r#"{{"jsonrpc":"2.0","id":3,"method":"x","params":{{"y":"{}"}}}}"#, "y".repeat(1 << 20));
    assert_eq!(of(&gateway, &huge).status, 413);
    let deep =
        format!(r#"{{"jsonrpc":"2.0","id":3,"method":"x","params":{}{}}}"#, "[".repeat(50_000), "]".repeat(50_000));
    assert_eq!(of(&gateway, &deep).status, 400);
    let call = |name: &str| format!(r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"{name}"}}}}"#);
    for name in [r"x\r\nX-Injected: 1\r\n\r\nGET / HTTP/1.1", r"secret", r"add\u0000", r"ADD"] {
        let refused = of(&gateway, &call(name));
        assert_eq!((refused.status, code(&refused)), (200, -32602), "{name}: {}", refused.text());
        assert!(refused.field("x-injected").is_none(), "{}", refused.text());
    }
    let twice = call("add").replace(r#""name""#, r#""name":"secret","name""#);
    assert_eq!(of(&gateway, &twice).status, 400);
    let grown = gateway.process().resident_peak().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
    assert_eq!(gateway.metrics().sum_where("weir_ai_agent_messages_total", &[("method", "tools/call")]), 0.0);
    let log = gateway.log();
    gateway.finish();
    assert!(usage(state.path()).is_empty() && !log.contains("X-Injected"), "{log}");
}

#[test]
fn calls_per_minute_are_an_error_that_sdks_raise() {
    let (server, state) = (McpServer::start(McpSdk::Node), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&[&server.address], state.path(), "tool_calls_per_minute = 1");
    let line = format!("Mcp-Session-Id: {}\r\n", session(&gateway, KEY));
    let call = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"place"}}"#;
    assert_eq!(post(&gateway, KEY, &line, call).status, 200);
    let refused = post(&gateway, KEY, &line, call);
    assert_eq!((refused.status, code(&refused)), (429, -32000), "{}", refused.text());
    assert!(refused.field("retry-after").is_some(), "{}", refused.text());
    assert_eq!(post(&gateway, KEY, &line, r#"{"jsonrpc":"2.0","id":4,"method":"tools/list"}"#).status, 200);
}
