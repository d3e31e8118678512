//! Contexts of queries and of JSON.

use proptest::prelude::*;
use weir_flags_codec::limits::{CONTEXT_BYTES_MAX, CONTEXT_VALUE_BYTES_MAX};
use weir_flags_codec::{Context, ContextError, ContextField, UnknownFields};

fn query(text: &str) -> Context<'_> {
    Context::from_query(text, UnknownFields::Properties).expect(text)
}

fn json(text: &str) -> Context<'_> {
    Context::from_json(text.as_bytes()).expect(text)
}

#[test]
fn a_query_has_fields_and_properties_in_both_forms_of_brackets() {
    for text in [
        "userId=7&sessionId=s%20s&environment=dev&appName=a&currentTime=2022-01-29T13:00:00%2B02:00&remoteAddress=::1&properties[plan]=pro",
        "properties%5Bplan%5D=pro&appName=a&environment=dev&userId=7&sessionId=s+s&currentTime=2022-01-29T13:00:00%2b02:00&remoteAddress=%3A%3A1",
    ] {
        let context = query(text);
        let fields = ContextField::ALL.map(|field| context.field(field));
        assert_eq!(fields, ["7", "s s", "dev", "a", "2022-01-29T13:00:00+02:00", "::1"].map(Some), "{text}");
        assert_eq!(context.properties().collect::<Vec<_>>(), [("plan", "pro")], "{text}");
    }
}

#[test]
fn f9_the_first_of_equal_keys_counts() {
    let context = query("userId=1&userId=2&properties[a]=1&properties[a]=2&b=1&b=2");
    assert_eq!(context.field(ContextField::UserId), Some("1"));
    assert_eq!((context.property("a"), context.property("b")), (Some("1"), Some("1")));
}

#[test]
fn unknown_fields_of_a_query_are_properties_unless_the_peer_is_followed() {
    let text = "companyId=bricks&properties[companyId]=stones&other=1";
    assert_eq!(query(text).property("companyId"), Some("stones"), "the explicit one");
    assert_eq!(query(text).property("other"), Some("1"));
    let context = Context::from_query(text, UnknownFields::Drop).expect("a context");
    assert_eq!(context.properties().collect::<Vec<_>>(), [("companyId", "stones")]);
}

#[test]
fn a_property_with_the_name_of_a_field_stands_for_an_absent_one() {
    assert_eq!(query("properties[userId]=7").field(ContextField::UserId), Some("7"));
    assert_eq!(query("userId=8&properties[userId]=7").field(ContextField::UserId), Some("8"));
    assert_eq!(json(r#"{"properties":{"sessionId":7}}"#).field(ContextField::SessionId), Some("7"));
}

#[test]
fn inner_objects_and_arrays_of_a_query_are_left_out() {
    let context = query("properties[a][b]=1&properties[]=2&userId[]=3&x[y]=4&&=5");
    assert_eq!(context.properties().collect::<Vec<_>>(), [("", "5")]);
    assert_eq!(context.field(ContextField::UserId), None);
}

#[test]
fn a_query_that_is_none_is_refused() {
    let refused = |text: &str| Context::from_query(text, UnknownFields::Properties).expect_err("refused");
    assert_eq!(refused("properties[a=1"), ContextError::Bracket);
    assert_eq!(refused("userId=%ff"), ContextError::Utf8);
    assert_eq!(refused(&"a".repeat(CONTEXT_BYTES_MAX + 1)), ContextError::TooLarge);
}

#[test]
fn a_body_is_a_context_or_wraps_one() {
    let bare = json(r#"{"userId":"7","properties":{"plan":"pro","none":null},"extra":"x"}"#);
    assert_eq!(bare.field(ContextField::UserId), Some("7"));
    assert_eq!(bare.properties().collect::<Vec<_>>(), [("plan", "pro"), ("extra", "x")]);
    let wrapped =
        r#"{"userId":"no","context":{"userId":"7","properties":{"plan":"pro","none":null},"extra":"x"},"toggles":[]}"#;
    assert_eq!(json(wrapped), bare, "the wrapper wins");
    for text in [r#"{"userId":"7","context":null}"#, r#"{"userId":"7","context":"x"}"#, r#"{"context":[1],"userId":7}"#]
    {
        assert_eq!(json(text).field(ContextField::UserId), Some("7"), "{text}");
    }
    let inner = json(r#"{"context":{"context":{"userId":"7"}}}"#);
    assert_eq!(inner, Context::default(), "no wrapper within a wrapper");
}

#[test]
fn values_of_a_body_are_texts_and_the_last_of_equal_keys_counts() {
    let context = json(
        r#"{"userId":1,"userId":12,"properties":{"a":0},"properties":{"b":1.5,"c":{"d":1},"e":["f"],"h":true,"h":false},"g":-3}"#,
    );
    assert_eq!(context.field(ContextField::UserId), Some("12"));
    let texts = ["a", "b", "c", "e", "g", "h"].map(|name| context.property(name));
    assert_eq!(texts, [None, Some("1.5"), None, None, Some("-3"), Some("false")]);
    assert_eq!(json(r#"{"userId":"7","userId":null}"#).field(ContextField::UserId), None);
}

#[test]
fn f5_a_body_that_is_none_or_too_large_is_refused() {
    for text in ["", "[]", "null", "7", "{", r#"{"a":}"#, "{}x"] {
        assert!(matches!(Context::from_json(text.as_bytes()), Err(ContextError::Json(_))), "{text}");
    }
    let deep = format!("{{\"a\":{}", "[".repeat(60_000));
    assert!(matches!(Context::from_json(deep.as_bytes()), Err(ContextError::Json(_))));
    let large = format!("{{\"a\":\"{}\"}}", "a".repeat(CONTEXT_BYTES_MAX));
    assert_eq!(Context::from_json(large.as_bytes()), Err(ContextError::TooLarge));
    for (bytes, is_good) in [(CONTEXT_VALUE_BYTES_MAX, true), (CONTEXT_VALUE_BYTES_MAX + 1, false)] {
        for name in ["a", "userId"] {
            let long = format!("{{\"{name}\":\"{}\"}}", "a".repeat(bytes));
            assert_eq!(Context::from_json(long.as_bytes()).err(), (!is_good).then_some(ContextError::ValueTooLarge));
        }
        let long = format!("userId={}", "a".repeat(bytes));
        assert_eq!(Context::from_query(&long, UnknownFields::Drop).is_ok(), is_good);
    }
}

#[test]
fn the_client_address_fills_an_absent_field_alone() {
    let mut context = query("remoteAddress=10.0.0.1");
    context.set_field_if_absent(ContextField::RemoteAddress, "192.0.2.1");
    assert_eq!(context.field(ContextField::RemoteAddress), Some("10.0.0.1"));
    let mut context = query("");
    context.set_field_if_absent(ContextField::RemoteAddress, "192.0.2.1");
    assert_eq!(context.field(ContextField::RemoteAddress), Some("192.0.2.1"));
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

proptest! {
    #[test]
    fn a_query_and_a_body_with_the_same_values_are_the_same_context(
        user in ".*",
        properties in proptest::collection::btree_map("[a-z]{1,4}", ".*", 0..5)
    ) {
        let members: Vec<String> =
            properties.iter().map(|(name, value)| format!("properties%5B{name}%5D={}", escaped(value))).collect();
        let text = format!("userId={}&{}", escaped(&user), members.join("&"));
        let body = serde_json::to_vec(&serde_json::json!({"userId": user, "properties": properties})).expect("JSON");
        let (query, json) = (query(&text), Context::from_json(&body).expect("a context"));
        prop_assert_eq!(query.field(ContextField::UserId), Some(&*user));
        prop_assert_eq!(json.field(ContextField::UserId), Some(&*user));
        for (name, value) in &properties {
            prop_assert_eq!(query.property(name), Some(&**value));
            prop_assert_eq!(json.property(name), Some(&**value));
        }
    }
}
