//! Several servers under one name.

use proptest::prelude::*;
use serde_json::{Value, json};
use weir_mcp_session::federation::{
    JointOffer, ListKind, Offer, PrefixedList, SEPARATOR, ServerMessageError, empty_result, initialize_for_servers,
    is_revision, is_server_prefix, joint_list, response, split,
};

fn value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

#[test]
fn a_name_leads_back_to_its_server() {
    for server in ["git", "git-hub", "a.b", "a_b", "_a"] {
        assert!(is_server_prefix(server), "{server}");
        for tool in ["add", "_add", "__add", "a__b", "", "\u{fc}"] {
            assert_eq!(split(&format!("{server}{SEPARATOR}{tool}")), Some((server, tool)));
        }
    }
    for server in ["", "a_", "a__b", "__"] {
        assert!(!is_server_prefix(server), "{server}");
    }
    assert_eq!(split("add"), None);
}

#[test]
fn pages_of_servers_become_one_list_in_their_order() {
    let may_use = |name: &str| !name.starts_with("no");
    let mut git = PrefixedList::new(ListKind::Tools, "git");
    let first = br#"{"id":1,"result":{"tools":[ {"x":1e999,"name" : "add","z":"\u00e9"}, {"name":"no"},{"n":1},7 ],"nextCursor":"a\"b"}}"#;
    let next = git.add_page(first, b"1", &may_use).expect("a page");
    assert_eq!(next.as_deref(), Some(&br#""a\"b""#[..]));
    let request = value(&ListKind::Tools.request(b"\"w-1\"", next.as_deref()));
    assert_eq!(request, json!({"jsonrpc":"2.0","id":"w-1","method":"tools/list","params":{"cursor":"a\"b"}}));
    assert_eq!(
        git.add_page(br#"{"id":"2","result":{"tools":[{"name":"\u0062"}],"nextCursor":null}}"#, br#""2""#, &may_use),
        Ok(None)
    );
    let empty = PrefixedList::new(ListKind::Tools, "empty");
    let mut files = PrefixedList::new(ListKind::Tools, "files");
    assert_eq!(files.add_page(br#"{"result":{"tools":[{"name":"read"}]},"id":3}"#, b"3", &may_use), Ok(None));
    let joint = joint_list(ListKind::Tools, b"7", [&git, &empty, &files]);
    let wanted = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"x":1e999,"name" : "git__add","z":"\u00e9"},{"name":"git__\u0062"},{"name":"files__read"}]}}"#;
    assert_eq!(String::from_utf8_lossy(&joint), wanted);
    let none = joint_list(ListKind::Prompts, b"\"a\"", []);
    assert_eq!(value(&none), json!({"jsonrpc":"2.0","id":"a","result":{"prompts":[]}}));
}

#[test]
fn a_page_that_is_of_no_use_adds_nothing() {
    let mut list = PrefixedList::new(ListKind::Prompts, "git");
    let long = format!(r#"{{"id":1,"result":{{"prompts":[],"nextCursor":"{}"}}}}"#, "c".repeat(5_000));
    for (page, wanted) in [
        (r#"{"id":1,"result":{"tools":[{"name":"x"}]}}"#, ServerMessageError::Form),
        (r#"{"id":1,"result":{"prompts":{}}}"#, ServerMessageError::Form),
        (r#"{"id":1,"result":7}"#, ServerMessageError::Form),
        (r#"{"id":1,"result":{"prompts":[{"name":"x"}],"nextCursor":7}}"#, ServerMessageError::Form),
        (&long, ServerMessageError::Form),
        (r#"{"id":1,"error":{"code":-32601,"message":"x"}}"#, ServerMessageError::Error),
        (r#"{"id":2,"result":{"prompts":[{"name":"x"}]}}"#, ServerMessageError::Other),
        (r#"{"id":"1","result":{"prompts":[{"name":"x"}]}}"#, ServerMessageError::Other),
        (r#"{"id":2,"error":{}}"#, ServerMessageError::Other),
        (r#"{"result":{"prompts":[{"name":"x"}]}}"#, ServerMessageError::Other),
        (r#"{"id":1,"result":{"prompts":[{"name":"x"}]},"error":{}}"#, ServerMessageError::Other),
        (r#"{"id":1,"method":"x","result":{"prompts":[{"name":"x"}]}}"#, ServerMessageError::Other),
        (r#"[{"id":1,"result":{"prompts":[{"name":"x"}]}}]"#, ServerMessageError::Other),
    ] {
        assert_eq!(list.add_page(page.as_bytes(), b"1", &|_| true), Err(wanted), "{page}");
    }
    let twice = br#"{"id":1,"result":{"prompts":[{"name":"x"}],"prompts":[]}}"#;
    assert!(matches!(list.add_page(twice, b"1", &|_| true), Err(ServerMessageError::Json(_))));
    let cut = br#"{"id":1,"result":{"prompts":[{"name":"x"}"#;
    assert!(matches!(list.add_page(cut, b"1", &|_| true), Err(ServerMessageError::Json(_))));
    let long = format!(r#"{{"id":1,"result":{{"prompts":[{{"name":"{}"}}]}}}}"#, "n".repeat(1_020));
    assert_eq!(list.add_page(long.as_bytes(), b"1", &|_| true), Ok(None));
    assert_eq!(list.bytes(), 0);
    assert_eq!(value(&joint_list(ListKind::Prompts, b"1", [&list]))["result"]["prompts"], json!([]));
}

#[test]
fn a_page_in_a_stream_is_one_event_of_any_length_between_others() {
    let long = "x".repeat(2 << 20);
    let page = |id: &str, name: &str| {
        format!(r#"{{"id":{id},"result":{{"tools":[{{"name":"{name}","description":"{long}"}}],"nextCursor":"c"}}}}"#)
    };
    let stream = format!(
        "id: 1\ndata:\n\ndata: {{\"method\":\"ping\",\"id\":\"w\"}}\n\ndata: no JSON\n\ndata: {}\n\nevent: other\n\
         data: {}\n\nevent: message\ndata: {}\n\ndata: {}\n\n",
        page("7", "another"),
        page("\"w\"", "named"),
        page("\"w\"", "ours"),
        page("\"w\"", "second"),
    );
    let mut list = PrefixedList::new(ListKind::Tools, "git");
    assert_eq!(list.add_response(stream.as_bytes(), true, b"\"w\"", &|_| true), Ok(Some(b"\"c\""[..].into())));
    let joint = value(&joint_list(ListKind::Tools, b"1", [&list]));
    let tools = joint["result"]["tools"].as_array().expect("a list");
    assert!(tools.len() == 1 && tools[0]["name"] == "git__ours" && list.bytes() > long.len());
    let none = list.add_response(stream.as_bytes(), true, b"\"v\"", &|_| true);
    assert_eq!(none, Err(ServerMessageError::Other));
    assert_eq!(list.add_response(page("1", "b").as_bytes(), false, b"1", &|_| false), Ok(Some(b"\"c\""[..].into())));
    assert!(list.memory() >= list.bytes());
}

#[test]
fn a_revision_fits_between_the_first_and_that_of_the_client() {
    let offer = |revision: &str| {
        let message = format!(r#"{{"id":1,"result":{{"protocolVersion":"{revision}"}}}}"#);
        Offer::read(message.as_bytes()).expect("an offer")
    };
    for (revision, wanted, is_fit) in [
        ("2025-03-26", "2025-11-25", true),
        ("2025-11-25", "2025-11-25", true),
        ("2025-03-26", "2025-03-26", true),
        ("2024-11-05", "2025-11-25", false),
        ("1999-01-01", "2025-11-25", false),
        ("2026-07-28", "2025-11-25", false),
        ("2025-03-25", "1999-01-01", false),
    ] {
        assert_eq!(offer(revision).is_fit(wanted.as_bytes()), is_fit, "{revision} for {wanted}");
    }
}

#[test]
fn a_handshake_goes_to_servers_without_the_abilities_of_the_client() {
    let message = br#"{"params":{"capabilities":{"roots":{"x":1}},"protocolVersion":"2025-06-18","clientInfo":{"name":"c"}},"id":"a","method":"initialize"}"#;
    let (revision, for_servers) = initialize_for_servers(message, b"\"w\"").expect("JSON");
    assert_eq!(revision.as_deref(), Some(&b"2025-06-18"[..]));
    let wanted = r#"{"params":{"capabilities":{},"protocolVersion":"2025-06-18","clientInfo":{"name":"c"}},"id":"w","method":"initialize"}"#;
    assert_eq!(String::from_utf8_lossy(&for_servers), wanted);
    let odd = br#"{"id":1,"params":{"protocolVersion":"new"}}"#;
    assert_eq!(initialize_for_servers(odd, b"2").map(|(revision, _)| revision), Ok(None));
    assert!(initialize_for_servers(br#"{"id":1,"params":{"capabilities":{},"Capabilities":{}}}"#, b"2").is_err());
    for (text, is_one) in [("2025-11-25", true), ("2025-11-2x", false), ("2025/11/25", false), ("", false)] {
        assert_eq!(is_revision(text.as_bytes()), is_one, "{text}");
    }
}

#[test]
fn the_joint_offer_has_the_lowest_revision_and_every_ability() {
    let offer = |revision: &str, capabilities: &str, instructions: &str| {
        let result = format!(r#"{{"protocolVersion":"{revision}","capabilities":{capabilities}{instructions}}}"#);
        Offer::read(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#).as_bytes())
    };
    let first = offer("2025-11-25", r#"{"tools":{"listChanged":true}}"#, r#","instructions":"Say \"hi\".""#);
    let second = offer("2025-06-18", r#"{"prompts":{},"resources":{}}"#, r#","instructions":"Be kind.""#);
    let long = format!(r#","instructions":"{}""#, "x".repeat(9_000));
    let third = offer("2025-11-25", r#"{"tools":null}"#, &long);
    let mut joint = JointOffer::default();
    for (server, offer) in [("a", &first), ("b", &second), ("c", &third)] {
        joint.add(server, offer.as_ref().expect("an offer"));
    }
    let wanted = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "prompts": {}},
        "serverInfo": {"name": "all", "version": "1"},
        "instructions": "a__*: Say \"hi\".\n\nb__*: Be kind.",
    });
    assert_eq!(value(&joint.response(b"3", ("all", "1"))), json!({"jsonrpc":"2.0","id":3,"result":wanted}));
    assert_eq!(offer("1.0", "{}", ""), Err(ServerMessageError::Form));
    assert_eq!(Offer::read(br#"{"id":1,"error":{}}"#), Err(ServerMessageError::Error));
    assert_eq!(Offer::read(br#"{"id":1,"result":7}"#), Err(ServerMessageError::Form));
}

#[test]
fn the_response_is_found_in_a_stream_between_other_messages() {
    let wanted = r#"{"id":"w","result":{}}"#;
    let stream = format!(
        "id: 1\ndata:\n\nevent: message\ndata: {{\"method\":\"ping\",\"id\":\"w\"}}\n\ndata: {{\"id\":1,\"result\":{{}}}}\n\n\
         event: other\ndata: {{\"id\":\"w\",\"result\":1}}\n\ndata: {wanted}\n\ndata: {{\"id\":\"w\",\"result\":2}}\n\n"
    );
    assert_eq!(response(stream.as_bytes(), true, b"\"w\"").as_deref(), Some(wanted.as_bytes()));
    assert_eq!(response(wanted.as_bytes(), false, b"\"w\"").as_deref(), Some(wanted.as_bytes()));
    assert_eq!(response(wanted.as_bytes(), false, b"\"v\""), None);
    assert_eq!(response(format!("data: {wanted}").as_bytes(), true, b"\"w\""), None, "an event without an end");
    assert_eq!(value(&empty_result(b"1")), json!({"jsonrpc":"2.0","id":1,"result":{}}));
}

proptest! {
    #[test]
    fn the_joint_list_has_the_permitted_items_with_their_prefix(
        servers in prop::collection::vec(prop::collection::vec("[a-c\"\\\\\u{e9}]{0,3}", 0..5), 0..4),
    ) {
        let may_use = |name: &str| !name.starts_with('a');
        let mut lists = Vec::new();
        let mut wanted = Vec::new();
        for (number, names) in servers.iter().enumerate() {
            let server = format!("s{number}");
            let mut list = PrefixedList::new(ListKind::Tools, &server);
            let tools: Vec<Value> = names.iter().map(|name| json!({"x": name, "name": name})).collect();
            let page = json!({"id": 1, "result": {"tools": tools}}).to_string();
            prop_assert_eq!(list.add_page(page.as_bytes(), b"1", &may_use), Ok(None));
            let permitted = names.iter().filter(|name| may_use(name));
            wanted.extend(permitted.map(|name| json!({"x": name, "name": format!("{server}__{name}")})));
            lists.push(list);
        }
        let joint = joint_list(ListKind::Tools, b"1", &lists);
        prop_assert_eq!(&value(&joint)["result"]["tools"], &Value::from(wanted));
    }
}
