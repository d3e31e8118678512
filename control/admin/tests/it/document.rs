//! The OpenAPI document against the running router, and against itself.

use serde_json::Value;

use crate::support::{FakeGateway, ask, fetch, start};

/// Every value of the document with its JSON pointer, without recursion.
fn values(document: &Value) -> Vec<(String, &Value)> {
    let mut open = vec![(String::from("#"), document)];
    let mut all = Vec::new();
    while let Some((pointer, value)) = open.pop() {
        match value {
            Value::Object(members) => open.extend(members.iter().map(|(key, member)| {
                let key = key.replace('~', "~0").replace('/', "~1");
                (format!("{pointer}/{key}"), member)
            })),
            Value::Array(items) => {
                open.extend(items.iter().enumerate().map(|(index, item)| (format!("{pointer}/{index}"), item)))
            }
            _ => {}
        }
        all.push((pointer, value));
    }
    all
}

#[test]
fn the_document_is_served_as_it_is_generated() {
    let server = start(&FakeGateway::new());
    let response = fetch(&server, "/api/v1/openapi.json");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    let document = response.json();
    assert_eq!(document, weir_admin::openapi_document("0.1.0"));
    assert_eq!(document["openapi"], "3.1.0");
}

#[test]
fn every_operation_of_the_document_is_routed_and_responses_as_it_says() {
    let server = start(&FakeGateway::new());
    let document = weir_admin::openapi_document("0");
    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), 24);
    for (path, item) in paths {
        for verb in ["get", "post", "put", "delete", "patch", "options"] {
            let response = ask(&server, &verb.to_ascii_uppercase(), path, &[]);
            let Some(operation) = item.get(verb) else {
                assert_eq!(response.status, 405, "{verb} {path}");
                continue;
            };
            let described = &operation["responses"][response.status.to_string()];
            assert!(described.is_object(), "{verb} {path}: {} is not in the document", response.status);
            let content_type = response.header("content-type").expect("a content type");
            let kind = content_type.split(';').next().expect("a media type");
            assert!(described["content"].get(kind).is_some(), "{verb} {path}: {kind}");
        }
    }
}

#[test]
fn every_path_that_the_index_names_is_in_the_document() {
    let server = start(&FakeGateway::new());
    let document = weir_admin::openapi_document("0");
    let index = fetch(&server, "/").body;
    let mut count = 0;
    for line in index.lines().skip(2) {
        let mut words = line.split_ascii_whitespace();
        let verb = words.next().expect("a method").to_ascii_lowercase();
        let path = words.next().expect("a path");
        assert!(document["paths"][path][&verb].is_object(), "{line}");
        count += 1;
    }
    assert_eq!(count, 27);
}

#[test]
fn every_reference_resolves_and_every_schema_is_used() {
    let document = weir_admin::openapi_document("0");
    let mut used = Vec::new();
    for (pointer, value) in values(&document) {
        let Some(reference) = value.get("$ref").and_then(Value::as_str) else {
            continue;
        };
        let target = reference.strip_prefix('#').expect("a local reference");
        assert!(document.pointer(target).is_some(), "{reference} at {pointer}");
        used.push(target.to_owned());
    }
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    assert!(schemas.len() >= 20, "{:?}", schemas.keys());
    for name in schemas.keys() {
        assert!(used.contains(&format!("/components/schemas/{name}")), "{name} is not used");
    }
}

#[test]
fn operation_ids_are_unique_and_everything_is_described() {
    let document = weir_admin::openapi_document("0");
    let mut ids = Vec::new();
    for (pointer, value) in values(&document) {
        if let Some(id) = value.get("operationId").and_then(Value::as_str) {
            assert!(!ids.contains(&id.to_owned()), "{id} twice");
            ids.push(id.to_owned());
            assert!(value["summary"].as_str().is_some_and(|text| !text.is_empty()), "{pointer}");
        }
    }
    assert_eq!(ids.len(), 27);
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    for (name, schema) in schemas {
        assert!(schema["description"].is_string(), "{name}");
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            assert!(property["description"].is_string(), "{name}.{field}");
        }
    }
}
