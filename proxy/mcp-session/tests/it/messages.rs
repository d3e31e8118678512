//! Messages and their facts.

use serde_json::{Value, json};
use weir_mcp_session::{
    ErrorReply, Message, MessageError, MessageKind, MessageReader,
    error::{INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR},
    header,
};

/// The facts of a message, wherever it is cut.
fn read(message: &str) -> Result<Message, MessageError> {
    let whole = MessageReader::read(message.as_bytes());
    for cut in 0..=message.len() {
        let mut reader = MessageReader::default();
        let (front, back) = message.as_bytes().split_at(cut);
        let read = reader.push(front).and_then(|()| reader.push(back)).and_then(|()| reader.finish());
        assert_eq!(read, whole, "{message} cut at {cut}");
    }
    whole
}

#[test]
fn each_kind_is_known_by_its_members() {
    let call = read(r#" {"params":{"name":"a\u0064d","arguments":{"name":"x"}},"method":"tools/call","id":"7"} "#);
    let wanted = Message {
        kind: MessageKind::Request,
        id: Some(br#""7""#[..].into()),
        method: "tools/call".into(),
        name: Some("add".into()),
        name_range: Some(19..29),
        uri: None,
        has_empty_result: false,
    };
    assert_eq!(call, Ok(wanted));
    let notification = read(r#"{"method":"notifications/initialized"}"#).expect("valid");
    assert_eq!((notification.kind, notification.id), (MessageKind::Notification, None));
    for response in [r#"{"id":1,"result":{"name":"x"}}"#, r#"{"id":1,"error":{"code":1}}"#] {
        let response = read(response).expect("valid");
        assert_eq!((response.kind, &*response.method, response.name), (MessageKind::Response, "", None));
    }
    for (response, is_empty) in [
        (r#"{"id":1,"result":{}}"#, true),
        (r#"{"id":1,"result":{ } }"#, true),
        (r#"{"id":1,"result":{"action":"accept"}}"#, false),
        (r#"{"id":1,"result":[]}"#, false),
        (r#"{"id":1,"result":null}"#, false),
        (r#"{"id":1,"error":{}}"#, false),
        (r#"{"id":1,"method":"x","params":{"result":{}}}"#, false),
    ] {
        assert_eq!(read(response).expect("valid").has_empty_result, is_empty, "{response}");
    }
}

#[test]
fn a_message_that_could_be_read_in_two_ways_is_refused() {
    for (message, code) in [
        (r#"{"id":1,"method":"a","method":"b"}"#, PARSE_ERROR),
        (r#"{"id":1,"method":"a","m\u0065thod":"b"}"#, PARSE_ERROR),
        (r#"{"id":1,"method":"a","Method":"b"}"#, PARSE_ERROR),
        (r#"{"id":1,"method":"a","params":{"name":"b","name":"c"}}"#, PARSE_ERROR),
        (r#"{"id":1,"method":"a","params":{"name":"b"},"params":{}}"#, PARSE_ERROR),
        (r#"{"id":1,"method":"a","result":{}}"#, INVALID_REQUEST),
        (r#"{"id":1,"result":{},"error":{}}"#, INVALID_REQUEST),
        (r#"[{"id":1,"method":"a"}]"#, INVALID_REQUEST),
        (r#"{"method":7,"id":1}"#, INVALID_REQUEST),
        (r#"{"method":"a","id":null}"#, INVALID_REQUEST),
        (r#"{"method":"a","id":[1]}"#, INVALID_REQUEST),
        (r#"{"id":1}"#, INVALID_REQUEST),
        (r#"{"result":{}}"#, INVALID_REQUEST),
        ("7", INVALID_REQUEST),
        ("", PARSE_ERROR),
        (r#"{"id":1,"method":"a"} {}"#, PARSE_ERROR),
        (r#"{"id":1,"method":"a"#, PARSE_ERROR),
    ] {
        assert_eq!(read(message).map_err(|error| error.code()), Err(code), "{message}");
    }
}

#[test]
fn long_values_are_refused_or_unknown_and_depth_is_bounded() {
    let long = "x".repeat(5_000);
    let of = |message: String| MessageReader::read(message.as_bytes());
    assert_eq!(of(format!(r#"{{"id":"{long}","method":"a"}}"#)), Err(MessageError::Id));
    assert_eq!(of(format!(r#"{{"id":1,"method":"{long}"}}"#)), Err(MessageError::Method));
    let named = of(format!(r#"{{"id":1,"method":"a","params":{{"name":"{long}"}}}}"#)).expect("valid");
    assert_eq!(named.name, None);
    let deep = format!(r#"{{"id":1,"method":"a","params":{}"#, "[".repeat(100_000));
    assert!(matches!(of(deep), Err(MessageError::Json(_))));
}

#[test]
fn a_field_of_the_head_says_the_same_or_is_refused() {
    let call = read(r#"{"id":1,"method":"tools/call","params":{"name":"S\u00e3o"}}"#).expect("valid");
    let resource = read(r#"{"id":1,"method":"resources/read","params":{"uri":"a:b","name":"x"}}"#).expect("valid");
    let list = read(r#"{"id":1,"method":"tools/list"}"#).expect("valid");
    let agree = |message: &Message, methods: &[&str], names: &[&str]| {
        header::agree(message, methods.iter().map(|one| one.as_bytes()), names.iter().map(|one| one.as_bytes()))
    };
    assert!(agree(&call, &[], &[]) && agree(&call, &["tools/call"], &["=?base64?U8Ojbw==?="]));
    assert!(agree(&resource, &["resources/read"], &["a:b"]) && !agree(&resource, &[], &["x"]));
    for (methods, names) in [
        (&["tools/list"][..], &[][..]),
        (&["tools/call", "ping"], &[]),
        (&[], &["Sao"]),
        (&[], &["=?base64?!!?="]),
        (&[], &["=?base64?U8Ojbw==?=", "x"]),
    ] {
        assert!(!agree(&call, methods, names), "{methods:?} {names:?}");
    }
    assert!(!agree(&list, &[], &["x"]), "it names nothing");
}

#[test]
fn an_error_repeats_the_id_as_it_came() {
    for id in ["7", r#""a\"\u0041""#, "-1.5e3"] {
        let message = read(&format!(r#"{{"id":{id},"method":"a"}}"#)).expect("valid");
        let reply = ErrorReply {
            id: message.id.as_deref(),
            code: INVALID_PARAMS,
            message: "line\r\n\"end\"",
            reason: Some("word"),
            retry_after_ms: Some(5),
        };
        let bytes = reply.bytes();
        assert!(!bytes.contains(&b'\n'));
        let value: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(value["id"], serde_json::from_str::<Value>(id).expect("JSON"));
        let error =
            json!({"code": -32602, "message": "line\r\n\"end\"", "data": {"reason": "word", "retry_after_ms": 5}});
        assert_eq!((&value["error"], &value["jsonrpc"]), (&error, &json!("2.0")));
    }
    let bare = ErrorReply { id: None, code: 1, message: "m", reason: None, retry_after_ms: Some(5) };
    let value: Value = serde_json::from_slice(&bare.bytes()).expect("JSON");
    assert_eq!(value, json!({"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "m"}}));
}
