//! The list of a provider's models, for keys that may not see all.

use serde_json::json;
use weir_ai::settings::ProviderDialect;
use weir_spend::{Glob, policy::Policy};

use crate::{
    gateway::{KEY, ok, plain, provider, read, refused, respond, start, with_key},
    support::Gateway,
};

const LIST: &str =
    r#"{"object":"list","data":[{"id":"gpt-4o","object":"model"}, {"id":"gpt-4o-preview"},{"id":"o3"}]}"#;

fn gateway() -> Gateway {
    let models_denied = vec![Glob::new("*-preview").expect("a pattern"), Glob::new("o3").expect("a name")];
    plain(with_key(Policy { models_denied, ..Policy::default() }))
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {KEY}\r\nAccept-Encoding: gzip\r\n\r\n")
}

#[test]
fn models_that_a_key_is_denied_are_not_in_the_list() {
    let gateway = gateway();
    for (path, upstream) in [("/v1/models", "/v1/models"), ("/models?limit=9", "/v1/models?limit=9")] {
        let mut client = gateway.client();
        client.send(&get(path));
        let request = respond(&mut gateway.origin.accept(), &ok(LIST));
        assert!(request.starts_with(&format!("GET {upstream} HTTP/1.1\r\n")), "{request}");
        assert!(!request.to_ascii_lowercase().contains("accept-encoding"), "{request}");
        let (head, body) = read(&mut client);
        assert!(head.starts_with("http/1.1 200 ") && head.contains("content-type: application/json"), "{head}");
        assert_eq!(body, json!({"object": "list", "data": [{"id": "gpt-4o", "object": "model"}]}));
    }
}

#[test]
fn a_key_without_such_a_rule_gets_the_list_as_it_is() {
    let gateway = plain(with_key(Policy::default()));
    let mut client = gateway.client();
    client.send(&get("/v1/models"));
    let request = respond(&mut gateway.origin.accept(), &ok(LIST));
    assert!(request.to_ascii_lowercase().contains("accept-encoding: gzip"), "{request}");
    assert!(client.response().ends_with(LIST));
}

#[test]
fn an_error_of_the_provider_passes_and_a_list_that_cannot_be_read_does_not() {
    let gateway = gateway();
    let mut client = gateway.client();
    client.send(&get("/v1/models"));
    let error = r#"{"error":{"message":"o3"}}"#;
    respond(&mut gateway.origin.accept(), &ok(error).replacen("200 OK", "401 No", 1));
    assert_eq!(refused(&mut client, 401).1, json!({"message": "o3"}));
    for body in [r#"{"models":["o3"]}"#, r#"{"data":[{"id":"a","id":"o3"}]}"#, "o3"] {
        let mut client = gateway.client();
        client.send(&get("/v1/models"));
        respond(&mut gateway.origin.accept(), &ok(body));
        let (_, error) = refused(&mut client, 502);
        assert_eq!(error["code"], "upstream_bad_response");
        assert!(!error.to_string().contains("o3"), "{error}");
    }
    let mut client = gateway.client();
    client.send(&get("/v1/models"));
    let coded = ok(LIST).replacen("Content-Type", "Content-Encoding: gzip\r\nContent-Type", 1);
    respond(&mut gateway.origin.accept(), &coded);
    refused(&mut client, 502);
}

#[test]
fn the_list_of_anthropic_has_the_same_form() {
    let models_denied = vec![Glob::new("*opus*").expect("a pattern")];
    let own = with_key(Policy { models_denied, ..Policy::default() });
    let gateway = start(own, vec![provider(ProviderDialect::Anthropic)], |_| {});
    let mut client = gateway.client();
    client.send(&get("/v1/models"));
    let list =
        r#"{"data":[{"type":"model","id":"claude-opus"},{"type":"model","id":"claude-haiku"}],"has_more":false}"#;
    respond(&mut gateway.origin.accept(), &ok(list));
    let wanted = json!({"data": [{"type": "model", "id": "claude-haiku"}], "has_more": false});
    assert_eq!(read(&mut client).1, wanted);
}
