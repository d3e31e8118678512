//! The declarations as JSON Schema (draft 2020-12), for editors: completion, hover texts, red underlines.
//!
//! It says what a single key may be. Relations between keys (references, duplicates, low below high) are only in the
//! checker, which has the last word.

use serde_json::{Map, Value as Json, json};

use crate::section::Section as _;
use crate::sections::FileSection;
use crate::value::{FieldInfo, Presence, Shape, TableInfo, prose};

/// The schema of `weir.toml`.
pub fn schema() -> Json {
    let mut schema = table(&FileSection::info());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("weir.toml");
    schema["required"] = json!(["listener"]);
    schema
}

fn table(info: &TableInfo) -> Json {
    let properties: Map<String, Json> = info.fields.iter().map(|one| (one.key.to_owned(), field(one))).collect();
    let required: Vec<&str> =
        info.fields.iter().filter(|one| one.presence == Presence::Required).map(|one| one.key).collect();
    let mut schema = json!({
        "type": "object",
        "description": prose(info.doc),
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn field(info: &FieldInfo) -> Json {
    let mut schema = shape(&info.shape);
    schema["description"] = json!(prose(&info.doc));
    if let Presence::Default(default) = &info.presence {
        schema["default"] = default.clone();
    }
    // Sizes and durations are text here; their range stands in the reference and is checked by the checker.
    if let (Some((low, high)), Shape::Integer) = (&info.range, &info.shape) {
        schema["minimum"] = low.clone();
        schema["maximum"] = high.clone();
    }
    schema
}

fn shape(shape: &Shape) -> Json {
    match shape {
        Shape::Boolean => json!({ "type": "boolean" }),
        Shape::Integer => json!({ "type": "integer" }),
        Shape::Ratio => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Shape::Size => json!({ "anyOf": [
            { "type": "string", "pattern": "^[0-9]+ *(B|KiB|MiB|GiB|TiB)?$" },
            { "type": "integer", "minimum": 0 },
        ] }),
        Shape::Period => json!({ "type": "string", "pattern": "^[0-9]+ *(us|ms|s|m|h|d)$" }),
        Shape::Text { example, .. } => json!({ "type": "string", "minLength": 1, "examples": [example] }),
        Shape::Choice(words) => json!({ "type": "string", "enum": words }),
        Shape::List(inner) => json!({ "type": "array", "items": self::shape(inner) }),
        Shape::Secret => json!({ "anyOf": [
            {
                "type": "object", "required": ["env"], "additionalProperties": false,
                "properties": { "env": { "type": "string", "description": "Name of an environment variable." } },
            },
            {
                "type": "object", "required": ["file"], "additionalProperties": false,
                "properties": { "file": { "type": "string", "description": "Path of a file that only its owner can read." } },
            },
            { "type": "string", "pattern": "^(env|file):.+$" },
        ] }),
        Shape::Table(info) => table(info),
        Shape::Tables(info) => json!({ "type": "array", "minItems": 1, "items": table(info) }),
    }
}
