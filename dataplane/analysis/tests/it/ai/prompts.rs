//! Texts of prompts per role, and calls of tools.

use weir_analysis::ai::{Endpoint, Prompts, Role, SPANS_MAX, SpanKind, Wanted, read};

use super::support::valid;

/// Each text with its role, its message and whether a tool has returned it.
fn texts(endpoint: Endpoint, body: &str) -> Vec<(Role, u32, bool, String)> {
    let facts = valid(endpoint, body);
    let text = |span: weir_analysis::ai::Span| String::from_utf8(span.of(body.as_bytes()).to_vec()).expect("UTF-8");
    let texts = facts.prompts.texts.iter();
    texts.map(|one| (one.role, one.message, one.kind == SpanKind::Result, text(one.span))).collect()
}

/// Each call as name, arguments and message.
fn calls(endpoint: Endpoint, body: &str) -> Vec<(String, String, u32)> {
    let facts = valid(endpoint, body);
    let calls = facts.prompts.calls.iter();
    calls
        .map(|call| {
            let arguments = call.arguments.expect("arguments").of(body.as_bytes()).to_vec();
            (call.name.as_deref().unwrap_or("?").into(), String::from_utf8(arguments).expect("UTF-8"), call.message)
        })
        .collect()
}

#[test]
fn texts_of_a_chat_have_the_role_of_their_message_also_if_it_comes_behind_them() {
    let body = r#"{"messages":[{"content":"s\n","role":"developer"},{"role":"user","content":[{"type":"text","text":"a"},
        {"type":"image_url","image_url":{"url":"data:","text":"no"}},{"type":"text","text":"b"}]},
        {"role":"assistant","content":null,"refusal":"r","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"x\":1}"}},
        {"custom":{"input":"raw","name":"c"}}]},{"role":"tool","tool_call_id":"1","content":"42"},{"role":"x","content":"y"}]}"#;
    let wanted = [
        (Role::System, 0, false, r#""s\n""#),
        (Role::User, 1, false, "\"a\""),
        (Role::User, 1, false, "\"b\""),
        (Role::Assistant, 2, false, "\"r\""),
        (Role::Tool, 3, true, "\"42\""),
        (Role::Other, 4, false, "\"y\""),
    ];
    assert_eq!(texts(Endpoint::Chat, body), wanted.map(|(role, at, result, text)| (role, at, result, text.to_owned())));
    let wanted = [("f", r#""{\"x\":1}""#, 2), ("c", "\"raw\"", 2)];
    assert_eq!(calls(Endpoint::Chat, body), wanted.map(|(name, text, at)| (name.to_owned(), text.to_owned(), at)));
}

#[test]
fn items_of_responses_have_roles_by_their_type() {
    let body = r#"{"instructions":"i","input":[{"role":"user","content":"a"},
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"b"}]},
        {"type":"reasoning","summary":[{"type":"summary_text","text":"c"}]},
        {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"1","output":"d"},
        {"type":"function_call_output","output":[{"type":"input_text","text":"e"}]}]}"#;
    let wanted = [
        (Role::System, 0, false, "\"i\""),
        (Role::User, 0, false, "\"a\""),
        (Role::Assistant, 1, false, "\"b\""),
        (Role::Assistant, 2, false, "\"c\""),
        (Role::Tool, 4, true, "\"d\""),
        (Role::Tool, 5, true, "\"e\""),
    ];
    assert_eq!(
        texts(Endpoint::Responses, body),
        wanted.map(|(role, at, result, text)| (role, at, result, text.to_owned()))
    );
    assert_eq!(calls(Endpoint::Responses, body), [("f".to_owned(), "\"{}\"".to_owned(), 3)]);
    assert_eq!(texts(Endpoint::Responses, r#"{"input":"a"}"#), [(Role::User, 0, false, "\"a\"".to_owned())]);
}

#[test]
fn parts_of_anthropics_messages_are_texts_calls_and_results() {
    let body = r#"{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"a"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"b"},
        {"type":"tool_use","id":"1","name":"f","input":{"x":1}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"c"}]},
        {"type":"tool_result","content":"d"},{"type":"text","text":"e"}]}]}"#;
    let wanted = [
        (Role::System, 0, false, "\"s\""),
        (Role::User, 0, false, "\"a\""),
        (Role::Assistant, 1, false, "\"t\""),
        (Role::Assistant, 1, false, "\"b\""),
        (Role::Tool, 2, true, "\"c\""),
        (Role::Tool, 2, true, "\"d\""),
        (Role::User, 2, false, "\"e\""),
    ];
    assert_eq!(
        texts(Endpoint::Messages, body),
        wanted.map(|(role, at, result, text)| (role, at, result, text.to_owned()))
    );
    assert_eq!(calls(Endpoint::Messages, body), [("f".to_owned(), "{\"x\":1}".to_owned(), 1)]);
}

#[test]
fn texts_beside_the_messages_are_found() {
    let chat = r#"{"prediction":{"type":"content","content":[{"type":"text","text":"p"}]},"messages":[
        {"role":"assistant","reasoning_content":"r","content":"a"}]}"#;
    let wanted = [(Role::User, 0, "\"p\""), (Role::Assistant, 0, "\"r\""), (Role::Assistant, 0, "\"a\"")];
    assert_eq!(texts(Endpoint::Chat, chat), wanted.map(|(role, at, text)| (role, at, false, text.to_owned())));
    let body = r#"{"messages":[{"role":"user","content":"a"}],"prediction":{"content":"p"}}"#;
    assert_eq!(texts(Endpoint::Chat, body)[1], (Role::User, 0, false, "\"p\"".to_owned()));
    let completion = r#"{"prompt":"a","suffix":"b"}"#;
    let wanted = ["\"a\"", "\"b\""].map(|text| (Role::User, 0, false, text.to_owned()));
    assert_eq!(texts(Endpoint::Completions, completion), wanted);
    assert_eq!(valid(Endpoint::Completions, completion).choices(), 1, "a suffix is no prompt");
}

#[test]
fn documents_are_texts_and_files_are_none() {
    let body = r#"{"messages":[{"role":"user","content":[
        {"type":"document","title":"t","context":"c","source":{"data":"d","type":"text","media_type":"text/plain"}},
        {"type":"document","source":{"type":"base64","data":"JVBERi0="}},
        {"type":"image","source":{"type":"base64","data":"iVBORw0K"}},
        {"type":"document","source":{"type":"content","content":[{"type":"text","text":"e"}]}},
        {"type":"search_result","source":"https://a.example","title":"f","content":[{"type":"text","text":"g"}]},
        {"type":"tool_result","content":[{"type":"document","source":{"type":"text","data":"h"}},
            {"type":"document","source":{"type":"content","content":[{"type":"text","text":"i"}]}},
            {"type":"search_result","title":"j","content":[{"type":"text","text":"k"}]}]},
        {"type":"bash_code_execution_tool_result","content":{"stdout":"l","stderr":"m","return_code":0}}]}]}"#;
    let found: Vec<_> = texts(Endpoint::Messages, body).into_iter().map(|(role, _, _, text)| (role, text)).collect();
    let of = |role, text: &str| (role, format!("\"{text}\""));
    let mut wanted: Vec<_> = ["t", "c", "d", "e", "f"].map(|text| of(Role::User, text)).to_vec();
    wanted.extend(["g", "h", "i", "j", "k", "l", "m"].map(|text| of(Role::Tool, text)));
    assert_eq!(found, wanted);
    assert!(calls(Endpoint::Messages, body).is_empty());
}

#[test]
fn tools_of_a_provider_have_calls_and_results() {
    let body = r#"{"input":[
        {"type":"code_interpreter_call","code":"1+1","outputs":[{"type":"logs","logs":"2"}]},
        {"type":"file_search_call","queries":["a"],"results":[{"file_id":"f","text":"b"}]},
        {"type":"shell_call","action":{"commands":["ls"]}},
        {"type":"shell_call_output","output":[{"stdout":"c","stderr":"d","outcome":{"type":"exit"}}]},
        {"type":"mcp_call","name":"n","arguments":"{}","output":"e"}]}"#;
    let found: Vec<_> = texts(Endpoint::Responses, body).into_iter().map(|(role, _, _, text)| (role, text)).collect();
    assert_eq!(found, ["2", "b", "c", "d", "e"].map(|text| (Role::Tool, format!("\"{text}\""))));
    let wanted = [("?", "\"1+1\"", 0), ("?", "[\"a\"]", 1), ("?", r#"{"commands":["ls"]}"#, 2), ("n", "\"{}\"", 4)];
    assert_eq!(calls(Endpoint::Responses, body), wanted.map(|(name, text, at)| (name.to_owned(), text.to_owned(), at)));
}

#[test]
fn calls_have_the_role_of_their_message() {
    let body = r#"{"messages":[{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}],"role":"user"},
        {"role":"assistant","tool_calls":[{"function":{"name":"g","arguments":"{}"}}]}]}"#;
    let calls: Vec<_> = valid(Endpoint::Chat, body).prompts.calls.iter().map(|call| call.role).collect();
    assert_eq!(calls, [Role::User, Role::Assistant]);
}

#[test]
fn descriptions_of_tools_are_texts() {
    for (endpoint, body) in [
        (
            Endpoint::Chat,
            r#"{"tools":[{"type":"function","function":{"description":"a\u0062","name":"f"}},{"type":"function","function":{"name":"g"}}]}"#,
        ),
        (Endpoint::Chat, r#"{"functions":[{"name":"f","description":"a\u0062"},{"name":"g"}]}"#),
        (
            Endpoint::Responses,
            r#"{"tools":[{"type":"function","name":"f","description":"a\u0062"},{"type":"web_search"}]}"#,
        ),
        (Endpoint::Messages, r#"{"tools":[{"name":"f","description":"a\u0062"},{"name":"g","description":null}]}"#),
    ] {
        let facts = valid(endpoint, body);
        let found: Vec<_> =
            facts.tools.list.iter().map(|tool| tool.description.map(|one| one.of(body.as_bytes()))).collect();
        assert_eq!(found, [Some(&br#""a\u0062""#[..]), None], "{body}");
    }
}

#[test]
fn a_body_whose_prompts_are_not_wanted_is_not_looked_into() {
    let many = vec![r#"{"role":"user","content":"a"}"#; SPANS_MAX + 1].join(",");
    for messages in [&*many, r#"{"role":7,"content":[{"text":["a"]}]}"#, "7"] {
        let body = format!("{{\"messages\":[{messages}]}}");
        let read = |prompts| read(Endpoint::Chat, body.as_bytes(), Wanted { prompts });
        assert!(read(false).is_ok_and(|facts| facts.prompts == Prompts::default()));
        assert!(read(true).is_err(), "it looks there otherwise");
    }
}

#[test]
fn inputs_and_prompts_are_the_users_texts() {
    let wanted = |texts: &[&str]| -> Vec<(Role, u32, bool, String)> {
        texts.iter().map(|text| (Role::User, 0, false, (*text).to_owned())).collect()
    };
    assert_eq!(texts(Endpoint::Completions, r#"{"prompt":"a"}"#), wanted(&["\"a\""]));
    assert_eq!(texts(Endpoint::Completions, r#"{"prompt":["a",[1,2],"b"]}"#), wanted(&["\"a\"", "\"b\""]));
    assert_eq!(texts(Endpoint::Embeddings, r#"{"input":["a","b"]}"#), wanted(&["\"a\"", "\"b\""]));
    assert!(texts(Endpoint::Embeddings, r#"{"input":[1,2]}"#).is_empty(), "tokens are no text");
}
