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
fn tools_have_a_budget() {
    let body = |count: usize| format!("{{\"tools\":[{}]}}", vec!["{}"; count].join(","));
    let read = |count| read(Endpoint::Chat, body(count).as_bytes(), Wanted::default());
    assert_eq!(read(TOOLS_MAX).expect("within it").tools.list.len(), TOOLS_MAX);
    assert_eq!(read(TOOLS_MAX + 1), Err(BodyError::TooMany(Field::Tool)));
}
