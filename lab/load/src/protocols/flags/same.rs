//! Two values of JSON that mean the same: a gateway that reads flags and writes them again may leave out an empty member, or add one.

use serde_json::Value;

/// Whether `found` means the same as `wanted`.
pub(super) fn same(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            let has = |name: &String, value: &Value| match found.get(name) {
                Some(found) => same(found, value),
                None => is_empty(value),
            };
            wanted.iter().all(|(name, value)| has(name, value))
                && found.iter().all(|(name, value)| wanted.contains_key(name) || is_empty(value))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| same(found, wanted))
        }
        _ => found == wanted || (is_empty(found) && is_empty(wanted)),
    }
}

/// Null, and an array or an object without anything.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_empty_may_be_absent_and_nothing_else_may_differ() {
        let wanted = json!({ "name": "a", "enabled": false, "variants": [], "strategies": [{ "parameters": {} }] });
        for equal in [
            json!({ "strategies": [{ "sortOrder": null, "constraints": [] }], "enabled": false, "name": "a" }),
            json!({ "name": "a", "enabled": false, "variants": null, "strategies": [{ "parameters": {} }], "x": {} }),
        ] {
            assert!(same(&equal, &wanted), "{equal}");
        }
        for other in [
            json!({ "name": "b", "enabled": false, "strategies": [{}] }),
            json!({ "name": "a", "strategies": [{}] }),
            json!({ "name": "a", "enabled": false, "strategies": [] }),
            json!({ "name": "a", "enabled": false, "strategies": [{}], "stale": false }),
            json!([]),
        ] {
            assert!(!same(&other, &wanted), "{other}");
        }
    }
}
