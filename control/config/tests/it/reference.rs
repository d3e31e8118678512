//! `docs/CONFIG.md` is what the declarations say. `WEIR_WRITE_REFERENCE=1` writes it again.

use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};
use weir_config::{reference, schema};

#[test]
fn the_committed_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CONFIG.md");
    if std::env::var_os("WEIR_WRITE_REFERENCE").is_some() {
        fs::write(&path, reference()).expect("write the reference");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, reference(), "run this test with WEIR_WRITE_REFERENCE=1");
}

#[test]
fn every_table_of_the_schema_is_closed_and_described() {
    fn walk(schema: &Json, path: &str) {
        assert!(schema["description"].as_str().is_some_and(|text| text.len() > 5), "{path} has no description");
        let table = schema.get("items").filter(|items| items.get("properties").is_some()).unwrap_or(schema);
        if let Some(properties) = table.get("properties").and_then(Json::as_object) {
            assert_eq!(table["additionalProperties"], json!(false), "{path} is open");
            for (key, value) in properties {
                walk(value, &format!("{path}.{key}"));
            }
        }
    }
    let schema = schema();
    walk(&schema, "");
    assert_eq!(schema["properties"]["listener"]["items"]["required"], json!(["name", "bind", "protocol"]));
    assert_eq!(schema["properties"]["limits"]["properties"]["connections"]["default"], json!(16_384));
    assert_eq!(schema["properties"]["runtime"]["properties"]["driver"]["enum"], json!(["auto", "io_uring", "polling"]));
}
