//! Tools that a chat's request offers, and the choice among them.

use crate::json::{Json, Object};
use crate::loss::Losses;
use crate::mistake::Mistake;
use crate::write::{Members, listed};

/// A function without parameters.
const NO_PARAMETERS: &str = r#"{"type":"object","properties":{}}"#;
const AUTO: &[u8] = br#"{"type":"auto"}"#;
const NONE: &[u8] = br#"{"type":"none"}"#;

/// Writes `tools` and `tool_choice`.
pub(super) fn write(request: &mut Object<'_>, body: &mut Members<'_>, losses: &mut Losses) -> Result<(), Mistake> {
    let mut list = Vec::new();
    for tool in request.items("tools")? {
        tool_of(tool, &mut list, losses)?;
    }
    if !list.is_empty() {
        body.list("tools", &list);
    }
    // Absent, it is true.
    let is_parallel = request.take("parallel_tool_calls").is_none_or(|value| value.raw() != "false");
    let mut choice = match request.take("tool_choice") {
        Some(value) => choice_of(value)?,
        None if !is_parallel => AUTO.to_vec(),
        None => return Ok(()),
    };
    // Anthropic takes no choice without tools.
    if list.is_empty() && (choice == AUTO || choice == NONE) {
        return Ok(());
    }
    if !is_parallel && choice != NONE {
        choice.pop();
        choice.extend_from_slice(b",\"disable_parallel_tool_use\":true}");
    }
    body.raw("tool_choice", choice);
    Ok(())
}

fn tool_of(tool: Json<'_>, list: &mut Vec<u8>, losses: &mut Losses) -> Result<(), Mistake> {
    let mut tool = Object::read(tool, "tools")?;
    if tool.need_text("type")? != "function" {
        return Err(tool.mistake("type", "Anthropic's tools of a client are functions"));
    }
    let mut function = tool.need_object("function", "tools.function")?;
    let mut out = listed(list);
    out.raw("name", function.need_string("name")?.raw());
    out.raw_if("description", function.string("description")?.map(Json::raw));
    // Anthropic requires a schema with a type.
    let parameters = function.object_text("parameters")?.filter(|parameters| !parameters.is_empty());
    out.raw("input_schema", parameters.map_or(NO_PARAMETERS, Json::raw));
    if function.flag("strict")? {
        out.raw("strict", "true");
    }
    function.rest(losses);
    tool.rest(losses);
    Ok(())
}

fn choice_of(value: Json<'_>) -> Result<Vec<u8>, Mistake> {
    let wrong = || Mistake::new("tool_choice", "the choice has no counterpart at Anthropic");
    let mut out = Vec::new();
    if let Some(word) = value.text() {
        let kind = match &*word {
            "auto" => "auto",
            "none" => "none",
            "required" => "any",
            _ => return Err(wrong()),
        };
        Members::new(&mut out).text("type", kind);
        return Ok(out);
    }
    let mut named = Object::read(value, "tool_choice")?;
    if named.need_text("type")? != "function" {
        return Err(wrong());
    }
    let name = named.need_object("function", "tool_choice.function")?.need_string("name")?;
    Members::new(&mut out).text("type", "tool").raw("name", name.raw());
    Ok(out)
}
