//! Calls of the tools that a request offers, with arguments that fit their schemas.

use serde_json::{Value, json};

use super::{request::Ask, schema, text::Word};

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The id that its result refers to.
    pub id: String,
    /// The function.
    pub name: String,
    /// An object as JSON text.
    pub arguments: String,
}

/// How many calls the reply has: those of the directive, else one if the request demands it.
pub fn count(ask: &Ask<'_>) -> usize {
    if let Some(calls) = ask.directives.calls {
        return calls;
    }
    let choice = ask.fields.tool_choice.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
    let is_demanded = match &choice {
        Some(Value::String(word)) => word == "required",
        Some(Value::Object(choice)) => {
            !matches!(choice.get("type").and_then(Value::as_str), Some("auto" | "none" | "allowed_tools"))
        }
        _ => false,
    };
    usize::from(is_demanded)
}

/// `count` calls of the functions that are offered, in turn; the one that the request names comes first.
pub fn calls(ask: &Ask<'_>, count: usize) -> Vec<Call> {
    let parse = |raw: &serde_json::value::RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    let tools = ask.fields.tools.and_then(parse).unwrap_or_default();
    let mut offered: Vec<(&str, Option<&Value>)> =
        tools.as_array().into_iter().flatten().filter_map(|tool| function(tool)).collect();
    let choice = ask.fields.tool_choice.and_then(parse).unwrap_or_default();
    let named = choice.get("name").or_else(|| choice.get("function")?.get("name")).and_then(Value::as_str);
    if let Some(at) = named.and_then(|named| offered.iter().position(|(name, _)| *name == named)) {
        offered.swap(0, at);
    }
    (0..count).map(|at| call(ask, at, offered.get(at % offered.len().max(1)).copied())).collect()
}

/// Name and schema of a tool in any of the three dialects; `None`: it is built in.
fn function(tool: &Value) -> Option<(&str, Option<&Value>)> {
    let inner = tool.get("function").unwrap_or(tool);
    let schema = ["parameters", "input_schema"].iter().find_map(|key| inner.get(key));
    Some((inner.get("name")?.as_str()?, schema))
}

fn call(ask: &Ask<'_>, at: usize, offered: Option<(&str, Option<&Value>)>) -> Call {
    // Calls of one reply differ.
    let number = u64::from_str_radix(ask.word.as_str(), 16).unwrap_or(0) + at as u64;
    let word = Word::of(number);
    let (name, schema) = offered.unwrap_or(("lab_tool", None));
    let arguments = schema.map_or_else(|| json!({ "word": word.as_str() }), |schema| schema::value(schema, word));
    Call { id: format!("call_{}{at:02}", ask.word.as_str()), name: name.to_owned(), arguments: arguments.to_string() }
}
