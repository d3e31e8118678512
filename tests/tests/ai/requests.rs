//! The last requests in the admin API, over the real program: their attribution, their times and their bodies.

use serde_json::Value;
use weir_tests::ai::{AiOrigin, KEY, PROVIDER_KEY, gateway, gateway_with_key, usage};
use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::http::HttpClient;

use crate::through::{chat, post};

/// The requests that the admin API finds.
fn search(gateway: &Gateway, query: &str) -> Vec<Value> {
    let found = gateway.admin.get(&format!("/api/v1/ai/requests?{query}")).json();
    found["requests"].as_array().expect("requests").clone()
}

/// A request with further fields, of which each ends.
fn with_fields(request: &str, fields: &str) -> String {
    request.replacen("Content-Type", &format!("{fields}Content-Type"), 1)
}

/// The status of a request.
fn status(gateway: &Gateway, request: &str) -> u16 {
    let mut client = HttpClient::connect(&gateway.address);
    client.send(request);
    client.response().status
}

#[test]
fn requests_are_found_by_the_fields_that_attribute_them() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let attribution = "[listener.ai.attribution]\nuser = \"x-litellm-end-user-id\"";
    let gateway = gateway(&origin, "openai", state.path(), attribution);
    let fields = "X-LiteLLM-End-User-Id: ada\r\nX-Weir-Agent: planner\r\nX-Weir-Tags: eu, prod\r\n";
    assert_eq!(status(&gateway, &with_fields(&chat("bytes=20", ""), fields)), 200);
    assert_eq!(status(&gateway, &chat("bytes=20", ",\"user\":\"bob\"")), 200);
    gateway.wait_at_rest();
    for (query, count) in
        [("", 2), ("user=ada", 1), ("user=bob", 1), ("agent=planner&tag=prod", 1), ("tag=pro", 0), ("user=eve", 0)]
    {
        assert_eq!(search(&gateway, query).len(), count, "{query}");
    }
    let metrics = gateway.metrics();
    assert!(!metrics.label_values().any(|value| ["ada", "planner", "eu", "bob"].contains(&value)), "a client's word");
    gateway.finish();
    let lines = usage(state.path());
    let mut users: Vec<&str> = lines.iter().map(|line| line["user"].as_str().expect("a user")).collect();
    // Each worker writes its own.
    users.sort_unstable();
    assert_eq!(users, ["ada", "bob"]);
}

#[test]
fn streams_have_a_time_per_output_token() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "");
    assert_eq!(status(&gateway, &chat("bytes=40 events=5 gap=50ms", ",\"stream\":true")), 200);
    assert_eq!(status(&gateway, &chat("bytes=40", "")), 200);
    gateway.wait_at_rest();
    let metrics = gateway.metrics();
    let tokens = search(&gateway, "").last().expect("the stream")["gen_ai.usage.output_tokens"].as_f64();
    let behind_first = tokens.expect("tokens") - 1.0;
    let sum = |part: &str| metrics.sum(&format!("weir_ai_time_per_output_token_seconds_{part}"));
    assert_eq!(sum("count"), 1.0, "the stream alone");
    assert!((0.15..5.0).contains(&(sum("sum") * behind_first)), "four pauses of 50 ms: {}", sum("sum") * behind_first);
    gateway.finish();
}

/// Requests with prompts: whole, as a stream, and one that the provider refuses.
fn prompts() -> [String; 3] {
    [
        chat("bytes=5000", ",\"user\":\"first\""),
        chat("bytes=40 events=3", ",\"stream\":true,\"user\":\"second\""),
        chat("status=429 code=slow", ",\"user\":\"third\""),
    ]
}

#[test]
fn no_prompt_and_no_response_is_kept_by_default() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "");
    assert_eq!(prompts().map(|request| status(&gateway, &request)), [200, 200, 429]);
    gateway.wait_at_rest();
    let found = search(&gateway, "bodies=true");
    assert_eq!(found.len(), 3);
    for request in found {
        let members = request.as_object().expect("an object");
        assert!(!members.keys().any(|member| member.contains("body")), "{request}");
        assert!(!request.to_string().contains("[weir "), "{request}");
    }
}

#[test]
fn bodies_are_kept_by_an_explicit_setting_without_keys() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "recent_body_bytes_max = \"4KiB\"");
    let secrets = format!(
        "\"metadata\":{{\"password\":\"p-1\",\"a\":\"{KEY}\",\"b\":\"{PROVIDER_KEY}\",\"c\":\"ghp_0123456789abcdefghij\"}}"
    );
    let requests = prompts().map(|request| {
        let (head, body) = request.split_once("\r\n\r\n").expect("a head");
        let body = body.replacen('{', &format!("{{{secrets},"), 1);
        let head = head.rsplit_once("Content-Length: ").expect("a length").0;
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
    });
    assert_eq!(requests.map(|request| status(&gateway, &request)), [200, 200, 429]);
    gateway.wait_at_rest();
    let find = |query: &str| search(&gateway, query).remove(0);
    assert!(find("user=first").get("request_body").is_none(), "a list has no bodies unless it is wanted");
    let [whole, stream, refused] = ["first", "second", "third"].map(|user| find(&format!("user={user}&bodies=true")));
    for request in [&whole, &stream, &refused] {
        let text = request["request_body"].as_str().expect("a body");
        assert!(text.contains("[weir ") && text.contains("\"password\":\"[redacted]\""), "{text}");
        for secret in ["p-1", KEY, PROVIDER_KEY, "ghp_"] {
            assert!(!request.to_string().contains(secret), "{secret}: {request}");
        }
    }
    let text = |request: &Value| request["response_body"].as_str().expect("a body").to_owned();
    assert!(text(&whole).starts_with('{') && text(&whole).len() <= 4_096, "{whole}");
    assert!(whole["response_body_bytes"].as_u64().is_some_and(|bytes| bytes > 5_000), "{whole}");
    assert!(text(&stream).starts_with("data: ") && text(&stream).ends_with("data: [DONE]\n\n"), "{stream}");
    assert!(text(&refused).contains("slow") && refused["status"] == 429, "{refused}");
    gateway.rewrite(|text| text.replace("recent_body_bytes_max = \"4KiB\"\n", ""));
    let reloaded = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reloaded.json()["outcome"], "applied", "{}", reloaded.json());
    until_true("bodies to be forgotten", || find("user=first&bodies=true").get("request_body").is_none());
    let log = gateway.log();
    gateway.finish();
    assert!(!log.contains("[weir ") && !usage(state.path()).iter().any(|line| line.to_string().contains("[weir ")));
}

#[test]
fn messages_to_servers_and_agents_are_found_by_tool_method_and_outcome() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let servers = "mcp_tools = [\"git/get_*\"]\n[[listener.ai.mcp]]\nname = \"git\"\nupstream = \"provider\"\n\
                   [[listener.ai.a2a]]\nname = \"planner\"\nupstream = \"provider\"\n";
    let gateway = gateway_with_key(&origin, state.path(), servers, "");
    let message = |method: &str, name: &str| {
        let params = format!("{{\"name\":\"{name}\",\"arguments\":{{\"x\":\"an argument\"}}}}");
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{params}}}")
    };
    for (path, method, name) in [
        ("/mcp/git", "tools/call", "get_issue"),
        ("/mcp/git", "tools/call", "delete_issue"),
        ("/mcp/git", "tools/list", "none"),
        ("/mcp/other", "tools/list", "none"),
        ("/a2a/planner", "message/send", "none"),
    ] {
        status(&gateway, &post(path, &message(method, name)));
    }
    gateway.wait_at_rest();
    let find = |query: &str| {
        let mut found = search(&gateway, query);
        assert_eq!(found.len(), 1, "{query}: {found:?}");
        found.remove(0)
    };
    let call = find("server=git&tool=get_issue&method=tools/call&key=sdk");
    assert_eq!((&call["protocol"], &call["gen_ai.operation.name"]), (&"mcp".into(), &"execute_tool".into()), "{call}");
    // The origin is none of MCP: the outcome is its status.
    assert_eq!((&call["status"], &call["provider"]), (&404.into(), &"provider".into()), "{call}");
    assert!(call["total_us"].as_u64().is_some_and(|took| took > 0), "{call}");
    let refused = find("tool=delete_issue");
    assert!(refused["error.type"].is_string() && refused["provider"].is_null(), "{refused}");
    assert_eq!(find("method=tools/list&status=404&server=git")["gen_ai.tool.name"], Value::Null);
    assert_eq!(search(&gateway, "method=tools/list").len(), 1, "the message to a server that is not there is not read");
    assert_eq!(find("status=405&limit=1000&key=sdk&method=message/send")["gen_ai.agent.name"], "planner");
    let sent = find("agent=planner&method=message/send");
    assert_eq!((&sent["protocol"], &sent["gen_ai.operation.name"]), (&"a2a".into(), &"invoke_agent".into()), "{sent}");
    let all = search(&gateway, "bodies=true");
    assert!(all.len() == 5 && !all.iter().any(|one| one.to_string().contains("an argument")), "{all:?}");
    gateway.finish();
    assert_eq!(usage(state.path()).len(), 2, "the log has the calls that a server got");
}
