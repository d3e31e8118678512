//! A value for a JSON schema, for its simple cases: what structured outputs and tools of applications use.
//!
//! Read are `const`, `enum`, `$ref` within the document, `anyOf`, `oneOf`, `allOf`, `type` (also a list), `properties`, `items`,
//! `prefixItems`, `minItems`, `minLength`, `maxLength`, `minimum`, `exclusiveMinimum`, `maximum` and some `format`s. `pattern` is not.

use std::cell::Cell;

use serde_json::{Map, Value, json};

use super::text::Word;

/// Nesting up to which a schema is followed. 32: a schema that refers to itself has to end.
const DEPTH_MAX: usize = 32;

/// Entries of a list that names no number.
const ITEMS: u64 = 2;

/// Most entries of a list, and bytes of a string, that a schema can demand. 1,000: a reply stays small.
const LENGTH_MAX: u64 = 1_000;

/// Values within one value. 10,000: references that branch double with every level.
const VALUES_MAX: u32 = 10_000;

/// A value for `schema`, whose strings have `word` in them.
pub fn value(schema: &Value, word: Word) -> Value {
    Maker { root: schema, word, left: Cell::new(VALUES_MAX) }.value(schema, "value", 0)
}

struct Maker<'a> {
    root: &'a Value,
    word: Word,
    /// Values that may still be made.
    left: Cell<u32>,
}

impl Maker<'_> {
    /// `name` is that of the property.
    fn value(&self, schema: &Value, name: &str, depth: usize) -> Value {
        let left = self.left.get();
        if depth > DEPTH_MAX || left == 0 {
            return Value::Null;
        }
        self.left.set(left - 1);
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array).filter(|values| !values.is_empty()) {
            let at = self.word.as_str().bytes().map(usize::from).sum::<usize>() % values.len();
            return values[at].clone();
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let found = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            return found.map_or(Value::Null, |found| self.value(found, name, depth + 1));
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            if let Some(choices) = schema.get(key).and_then(Value::as_array) {
                // A value that is there says more than null.
                let is_null = |choice: &&Value| choice.get("type").and_then(Value::as_str) == Some("null");
                let chosen = choices.iter().find(|choice| !is_null(choice)).or(choices.first());
                return chosen.map_or(Value::Null, |chosen| self.value(chosen, name, depth + 1));
            }
        }
        match kind(schema) {
            "object" => self.object(schema, depth),
            "array" => self.list(schema, name, depth),
            "string" => Value::String(self.text(schema, name)),
            "integer" => json!(number(schema).ceil() as i64),
            "number" => json!(number(schema)),
            "boolean" => Value::Bool(true),
            _ => Value::Null,
        }
    }

    fn object(&self, schema: &Value, depth: usize) -> Value {
        let properties = schema.get("properties").and_then(Value::as_object);
        let value = |(name, of): (&String, &Value)| (name.clone(), self.value(of, name, depth + 1));
        Value::Object(properties.map_or(Map::new(), |all| all.iter().map(value).collect()))
    }

    fn list(&self, schema: &Value, name: &str, depth: usize) -> Value {
        if let Some(places) = schema.get("prefixItems").and_then(Value::as_array) {
            return places.iter().map(|place| self.value(place, name, depth + 1)).collect();
        }
        let Some(items) = schema.get("items") else { return Value::Array(Vec::new()) };
        let bound = |key| schema.get(key).and_then(Value::as_u64);
        let count = bound("minItems").unwrap_or(ITEMS).min(bound("maxItems").unwrap_or(LENGTH_MAX)).min(LENGTH_MAX);
        (0..count).map(|_| self.value(items, name, depth + 1)).collect()
    }

    fn text(&self, schema: &Value, name: &str) -> String {
        let word = self.word.as_str();
        match schema.get("format").and_then(Value::as_str) {
            Some("date-time") => return "2026-01-02T03:04:05Z".to_owned(),
            Some("date") => return "2026-01-02".to_owned(),
            Some("time") => return "03:04:05Z".to_owned(),
            Some("email") => return format!("{word}@lab.example"),
            Some("uri") => return format!("https://lab.example/{word}"),
            Some("uuid") => return format!("{word}-0000-4000-8000-000000000000"),
            _ => {}
        }
        let bound = |key| schema.get(key).and_then(Value::as_u64).map(|bound| bound.min(LENGTH_MAX) as usize);
        let mut text = format!("{name} {word}");
        while text.chars().count() < bound("minLength").unwrap_or(0) {
            text.push('x');
        }
        match bound("maxLength") {
            Some(most) => text.chars().take(most).collect(),
            None => text,
        }
    }
}

/// The type, or the first of several that is not null. Without a word about it, properties make an object.
fn kind(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("null")
        }
        _ if schema.get("properties").is_some() => "object",
        _ => "string",
    }
}

/// A number within the bounds.
fn number(schema: &Value) -> f64 {
    let bound = |key| schema.get(key).and_then(Value::as_f64);
    let least = bound("minimum").or_else(|| bound("exclusiveMinimum").map(|bound| bound + 1.0));
    let most = bound("maximum").or_else(|| bound("exclusiveMaximum").map(|bound| bound - 1.0));
    match (least, most) {
        (Some(least), _) if least > 7.0 => least,
        (_, Some(most)) if most < 7.0 => most,
        _ => 7.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_schemas_have_a_value() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "maxLength": 6 },
                "unit": { "enum": ["celsius"] },
                "days": { "type": "array", "items": { "$ref": "#/$defs/Day" }, "minItems": 1 },
                "note": { "anyOf": [{ "type": "null" }, { "type": "string", "minLength": 40 }] },
                "count": { "type": ["null", "integer"], "minimum": 9.5 },
                "share": { "type": "number", "maximum": 1 },
                "when": { "type": "string", "format": "date-time" },
            },
            "$defs": { "Day": { "properties": { "wet": { "type": "boolean" }, "kind": { "const": "day" } } } },
        });
        let value = value(&schema, Word::of(0x5eed_0001));
        let wanted = json!({
            "name": "name 5",
            "unit": "celsius",
            "days": [{ "wet": true, "kind": "day" }],
            "note": "note 5eed0001xxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "count": 10,
            "share": 1.0,
            "when": "2026-01-02T03:04:05Z",
        });
        assert_eq!(value, wanted);
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends_and_nonsense_is_null() {
        let list = json!({ "properties": { "next": { "$ref": "#" } } });
        let text = value(&list, Word::of(1)).to_string();
        assert!(text.contains("null") && text.len() < 1_000, "{text}");
        let tree = json!({ "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#" } } });
        assert!(value(&tree, Word::of(1)).to_string().len() < 1_000_000);
        assert_eq!(value(&json!({ "$ref": "#/nothing" }), Word::of(1)), Value::Null);
        let long = json!({ "type": "array", "items": {}, "minItems": 1u64 << 60 });
        assert_eq!(value(&long, Word::of(1)).as_array().map(Vec::len), Some(1_000));
    }
}
