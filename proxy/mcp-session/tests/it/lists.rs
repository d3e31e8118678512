//! Lists of tools.

use proptest::prelude::*;
use serde_json::{Value, json};
use weir_mcp_session::permitted_tools;

fn may_use(name: &str) -> bool {
    name.starts_with("ok")
}

/// The list without tools that may not be used. The text itself if it stays.
fn left(message: &str) -> String {
    let changed = permitted_tools(message.as_bytes(), &may_use).expect("valid");
    changed.map_or_else(|| message.to_owned(), |bytes| String::from_utf8(bytes).expect("UTF-8"))
}

#[test]
fn tools_go_with_the_comma_beside_them_and_nothing_else() {
    for (tools, wanted) in [
        (r#"[{"name":"ok"}]"#, r#"[{"name":"ok"}]"#),
        (r#"[{"name":"no"}]"#, "[]"),
        (r#"[ {"name":"no"} , {"name":"ok"} ]"#, r#"[ {"name":"ok"} ]"#),
        (r#"[{"name":"ok"} , {"name":"no"} ]"#, r#"[{"name":"ok"} ]"#),
        (
            r#"[{"name":"no"},{"name":"ok"},{"name":"no"},{"name":"no"},{"name":"ok2"},{"name":"no"}]"#,
            r#"[{"name":"ok"},{"name":"ok2"}]"#,
        ),
        (r#"[ {"name":"no"},{"name":"no"} ]"#, "[  ]"),
        (r#"[{"na\u006de":"o\u006b"}]"#, r#"[{"na\u006de":"o\u006b"}]"#),
        (r#"[{"title":"ok"},{"name":7},7,"ok",[{"name":"ok"}],null]"#, "[]"),
        (r#"[{"inputSchema":{"name":"ok"},"name":"no"}]"#, "[]"),
        (r#"[{"name":"ok","inputSchema":{"name":"no"}}]"#, r#"[{"name":"ok","inputSchema":{"name":"no"}}]"#),
        (r#"{"name":"no"}"#, r#"{"name":"no"}"#),
        ("[]", "[]"),
    ] {
        let message = |tools: &str| {
            format!(r#"{{"n":1e999, "result":{{"_meta":{{"tools":[{{"name":"no"}}]}},"tools":{tools} }},"id":1}}"#)
        };
        assert_eq!(left(&message(tools)), message(wanted), "{tools}");
    }
}

#[test]
fn other_messages_stay_and_those_of_two_meanings_are_refused() {
    for other in [
        r#"{"params":{"tools":[{"name":"no"}]},"method":"sampling/createMessage"}"#,
        r#"{"result":{"content":[{"name":"no"}]}}"#,
        "7",
    ] {
        assert_eq!(left(other), other);
    }
    for bad in [
        "",
        "x",
        r#"{"result":{"tools":[{"name":"ok","name":"no"}]}}"#,
        r#"{"result":{"tools":[{"name":"ok","Name":"no"}]}}"#,
        r#"{"result":{"tools":[]},"result":{"tools":[{"name":"no"}]}}"#,
        r#"{"result":{"tools":[],"Tools":[{"name":"no"}]}}"#,
        // A batch of the revision of 2025-03.
        r#"[{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"no"}]}}]"#,
        " []",
    ] {
        assert!(permitted_tools(bad.as_bytes(), &may_use).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn another_reader_sees_the_list_without_these_tools(
        names in prop::collection::vec((any::<bool>(), "[a-z\"\\\\é]{0,6}", " {0,2}"), 0..8),
        space in " {0,2}",
    ) {
        let tools: Vec<Value> = names
            .iter()
            .map(|(is_permitted, name, _)| json!({"name": format!("{}{name}", if *is_permitted { "ok" } else { "-" }), "x": 1}))
            .collect();
        let texts: Vec<String> =
            tools.iter().zip(&names).map(|(tool, (_, _, space))| format!("{space}{tool}{space}")).collect();
        let message = format!(r#"{{"result":{{"tools":[{space}{}{space}]}},"id":"é"}}"#, texts.join(","));
        let value: Value = serde_json::from_str(&left(&message)).expect("JSON");
        let wanted: Vec<&Value> = tools.iter().filter(|tool| may_use(tool["name"].as_str().expect("a name"))).collect();
        prop_assert_eq!(&value, &json!({"result": {"tools": wanted}, "id": "é"}));
        prop_assert_eq!(permitted_tools(message.as_bytes(), &|_| true).expect("valid"), None);
    }
}
