//! Several MCP servers under one name: two real servers by the official SDKs, and the SDKs' clients.

use serde_json::Value;
use weir_tests::ai::usage;
use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::http::{HttpClient, Response};
use weir_tests::mcp::{KEY, LIMITED_KEY, McpSdk, McpServer, federated_gateway};
use weir_tests::port;
use weir_tests::stream::Address;

use crate::sdks::holds;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

fn url(gateway: &Gateway) -> String {
    format!("http://{}/mcp/joint", gateway.address.text())
}

/// A message of a session, if it has one.
fn post(gateway: &Gateway, key: &str, session: &str, body: &str) -> Response {
    let session = if session.is_empty() { String::new() } else { format!("Mcp-Session-Id: {session}\r\n") };
    let mut client = HttpClient::connect(&gateway.address);
    client.send(format!(
        "POST /mcp/joint HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{session}Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.response()
}

fn session(gateway: &Gateway, key: &str) -> String {
    let response = post(gateway, key, "", INITIALIZE);
    assert_eq!(response.status, 200, "{}", response.text());
    let id = response.field("mcp-session-id").expect("a session");
    assert_eq!(post(gateway, key, &id, INITIALIZED).status, 202);
    id
}

/// The servers whose tools are listed, each once.
fn listed(gateway: &Gateway, session: &str) -> Vec<String> {
    let response = post(gateway, KEY, session, LIST);
    assert_eq!(response.status, 200, "{}", response.text());
    let body: Value = serde_json::from_str(&response.content()).expect("JSON");
    let tools = body["result"]["tools"].as_array().expect("tools").iter();
    let names =
        tools.map(|tool| tool["name"].as_str().expect("a name").split_once("__").expect("a prefix").0.to_owned());
    let mut servers: Vec<String> = names.collect();
    servers.dedup();
    servers
}

fn code(response: &Response) -> i64 {
    let body: Value = serde_json::from_str(&response.content()).expect("JSON");
    body["error"]["code"].as_i64().unwrap_or_default()
}

fn call(tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"{tool}"}}}}"#)
}

fn left_out(gateway: &Gateway, server: &str) -> f64 {
    gateway.metrics().sum_where("weir_ai_federation_failures_total", &[("server", server)])
}

#[test]
fn the_sdks_see_two_servers_as_one() {
    let (python, node) = (McpServer::start(McpSdk::Python), McpServer::start(McpSdk::Node));
    let state = tempfile::tempdir().expect("a folder");
    let gateway = federated_gateway(&python.address, &node.address, state.path());
    let words = [&*python.url("/mcp"), &node.url("/mcp"), &url(&gateway), KEY, LIMITED_KEY];
    holds(&McpSdk::Python.run("mcp_federated", &words), 7);
    holds(&McpSdk::Node.run("mcp_federated", &words), 4);
    let counted = |server: &str| {
        let labels = [("server", server), ("method", "tools/call")];
        gateway.metrics().sum_where("weir_ai_agent_messages_total", &labels) as usize
    };
    let (of_python, of_node) = (counted("python"), counted("node"));
    assert_eq!((left_out(&gateway, "python"), left_out(&gateway, "node")), (0.0, 0.0), "{}", gateway.log());
    gateway.finish();
    let lines = usage(state.path());
    let of = |server: &str| lines.iter().filter(|line| line["server"] == server).count();
    assert_eq!((of("python"), of("node")), (of_python, of_node));
    assert!(of_python > 10 && of_node > 10 && lines.len() == of_python + of_node, "{}", lines.len());
    for line in &lines {
        let is_own = line["tool"].as_str().is_some_and(|tool| !tool.contains("__"));
        assert!(is_own && line["provider"] == line["server"] && line["status"] == 200, "{line}");
    }
}

#[test]
fn a_session_of_several_servers_is_of_no_use_to_another_key() {
    let (python, node) = (McpServer::start(McpSdk::Python), McpServer::start(McpSdk::Node));
    let state = tempfile::tempdir().expect("a folder");
    let gateway = federated_gateway(&python.address, &node.address, state.path());
    let id = session(&gateway, KEY);
    assert_eq!(post(&gateway, KEY, &id, &call("node__place")).status, 200);
    let foreign = post(&gateway, LIMITED_KEY, &id, LIST);
    assert_eq!((foreign.status, code(&foreign)), (404, -32001), "{}", foreign.text());
    let none = post(&gateway, KEY, "", LIST);
    assert_eq!((none.status, code(&none)), (400, -32600), "{}", none.text());
    // A DELETE ends the sessions at the servers.
    let mut client = HttpClient::connect(&gateway.address);
    client.send(format!(
        "DELETE /mcp/joint HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nMcp-Session-Id: {id}\r\n\r\n"
    ));
    assert_eq!(client.response().status, 200);
    for tool in ["node__place", "python__place"] {
        assert_eq!(post(&gateway, KEY, &id, &call(tool)).status, 404, "{tool}");
    }
    assert_eq!(post(&gateway, KEY, &id, LIST).status, 404);
}

#[test]
fn a_server_that_is_down_is_left_out_and_comes_back_with_another_session() {
    let (node, state) = (McpServer::start(McpSdk::Node), tempfile::tempdir().expect("a folder"));
    let away = Address::port(port::free());
    let gateway = federated_gateway(&away, &node.address, state.path());
    let id = session(&gateway, KEY);
    assert_eq!(listed(&gateway, &id), ["node"]);
    assert_eq!(left_out(&gateway, "python"), 1.0);
    gateway.wait_log("left_out");
    let refused = post(&gateway, KEY, &id, &call("python__place"));
    assert_eq!((refused.status, code(&refused)), (200, -32602), "{}", refused.text());
    let python = McpServer::start_at(McpSdk::Python, away);
    let mut both = String::new();
    until_true("both servers", || {
        both = session(&gateway, KEY);
        listed(&gateway, &both).len() == 2
    });
    assert_eq!(listed(&gateway, &both), ["python", "node"]);
    // One dies later, with a session of both: the other one goes on.
    drop(python);
    assert_eq!(listed(&gateway, &both), ["node"]);
    assert_eq!(post(&gateway, KEY, &both, &call("node__place")).status, 200);
    let dead = post(&gateway, KEY, &both, &call("python__place"));
    assert!(dead.status >= 500 && code(&dead) == -32603, "{}", dead.text());
    drop(node);
    let none = post(&gateway, KEY, "", INITIALIZE);
    assert_eq!((none.status, code(&none)), (502, -32603), "{}", none.text());
}
