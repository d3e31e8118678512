//! Tools of requests, in the dialects that spell them differently.

use weir_analysis::ai::{BodyError, Choice, Endpoint, Facts, Field, TOOLS_MAX, ToolKind, Wanted, read};

use super::support::valid;

/// Names of functions, and types of built-in tools.
fn names(facts: &Facts) -> Vec<String> {
    let name = |name: &Option<Box<str>>| name.as_deref().unwrap_or("?").to_owned();
    let tools = facts.tools.list.iter();
    tools
        .map(|tool| match &tool.kind {
            ToolKind::Function => name(&tool.name),
            ToolKind::BuiltIn(kind) => format!("{kind}/{}", name(&tool.name)),
        })
        .collect()
}

#[test]
fn chats_nest_the_name_and_others_have_it_beside_the_type() {
    let chat = r#"{"tools":[{"type":"function","name":"decoy","function":{"parameters":{"name":"no"},"name":"f"}},
        {"custom":{"name":"c"},"type":"custom"},{"type":"function"},{"function":{"name":"g"}}],"functions":[{"name":"old"}]}"#;
    let facts = valid(Endpoint::Chat, chat);
    assert_eq!(names(&facts), ["f", "c", "?", "g", "old"]);
    assert_eq!(facts.tools.list[1].span.of(chat.as_bytes()), br#"{"custom":{"name":"c"},"type":"custom"}"#);
    let responses = r#"{"tools":[{"type":"function","function":{"name":"decoy"},"name":"f"},{"type":"web_search"},
        {"type":"mcp","server_label":"x"},{"type":"custom","name":"c"}]}"#;
    assert_eq!(names(&valid(Endpoint::Responses, responses)), ["f", "web_search/?", "mcp/?", "c"]);
    let anthropic =
        r#"{"tools":[{"name":"f","input_schema":{"type":"object"}},{"type":"bash_20250124","name":"bash"}]}"#;
    assert_eq!(names(&valid(Endpoint::Messages, anthropic)), ["f", "bash_20250124/bash"]);
}

#[test]
fn a_choice_is_a_word_a_tool_or_a_type() {
    let choice = |endpoint, choice: &str| valid(endpoint, &format!("{{\"tool_choice\":{choice}}}")).tools.choice;
    assert_eq!(choice(Endpoint::Chat, "null"), Choice::Absent);
    assert_eq!(choice(Endpoint::Chat, "\"required\""), Choice::Mode("required".into()));
    assert_eq!(choice(Endpoint::Chat, r#"{"type":"function","function":{"name":"f"}}"#), Choice::Tool("f".into()));
    assert_eq!(choice(Endpoint::Responses, r#"{"name":"f","type":"function"}"#), Choice::Tool("f".into()));
    assert_eq!(choice(Endpoint::Responses, r#"{"type":"file_search"}"#), Choice::Type("file_search".into()));
    assert_eq!(choice(Endpoint::Messages, r#"{"type":"any"}"#), Choice::Mode("any".into()));
    assert_eq!(choice(Endpoint::Messages, r#"{"type":"tool","name":"f"}"#), Choice::Tool("f".into()));
}

#[test]
fn both_lists_of_tools_are_bytes_of_the_prompt() {
    let tools = r#"[{"type":"function","function":{"name":"f"}}]"#;
    for (more, bytes) in [("[]", 2), ("null", 0), (r#"[{"name":"g"}]"#, 14)] {
        for body in
            [format!(r#"{{"tools":{tools},"functions":{more}}}"#), format!(r#"{{"functions":{more},"tools":{tools}}}"#)]
        {
            let facts = valid(Endpoint::Chat, &body);
            assert_eq!(facts.prompt_bytes(), tools.len() as u64 + bytes, "{body}");
        }
    }
}

#[test]
fn servers_and_searches_beside_the_tools_are_tools_of_the_provider() {
    let messages =
        r#"{"mcp_servers":[{"type":"url","url":"https://x","name":"crm"},{"name":"b"}],"tools":[{"name":"f"}]}"#;
    assert_eq!(names(&valid(Endpoint::Messages, messages)), ["mcp/crm", "mcp/b", "f"]);
    let chat = |value: &str| names(&valid(Endpoint::Chat, &format!(r#"{{"web_search_options":{value}}}"#)));
    assert_eq!(chat("{}"), ["web_search/?"]);
    assert_eq!(chat(r#"{"search_context_size":"low"}"#), ["web_search/?"]);
    assert!(chat("null").is_empty());
    for none in [r#"{"mcp_servers":[]}"#, r#"{"mcp_servers":null}"#] {
        assert!(names(&valid(Endpoint::Messages, none)).is_empty(), "{none}");
    }
    for (endpoint, body, field) in [
        (Endpoint::Messages, r#"{"mcp_servers":{"name":"crm"}}"#, "mcp_servers"),
        (Endpoint::Messages, r#"{"mcp_servers":["crm"]}"#, "mcp_servers"),
        (Endpoint::Chat, r#"{"web_search_options":true}"#, "web_search_options"),
    ] {
        let error = read(endpoint, body.as_bytes(), Wanted::default()).expect_err(body);
        assert!(matches!(error, BodyError::Type(at) if at.name() == field), "{error:?}");
    }
}

#[test]
fn tools_have_a_budget() {
    let body = |count: usize| format!("{{\"tools\":[{}]}}", vec!["{}"; count].join(","));
    let read = |count| read(Endpoint::Chat, body(count).as_bytes(), Wanted::default());
    assert_eq!(read(TOOLS_MAX).expect("within it").tools.list.len(), TOOLS_MAX);
    assert_eq!(read(TOOLS_MAX + 1), Err(BodyError::TooMany(Field::Tool)));
}
