//! Anthropic's request for a provider of chats.

mod messages;

use crate::content::{Part, no_counterpart, parts};
use crate::json::{Json, Object};
use crate::limits::USER_CHARS_MAX;
use crate::loss::Losses;
use crate::mistake::Mistake;
use crate::request::Options;
use crate::write::{Members, listed};

/// Members that change the meaning of a response and have no counterpart.
const REFUSED: [(&str, &str); 3] = [
    ("mcp_servers", "a chat has no servers of tools"),
    ("container", "a chat has no container"),
    ("inference_geo", "a chat has no choice of a region"),
];

/// Writes the request.
pub(super) fn translate(
    mut request: Object<'_>,
    is_stream: bool,
    options: &Options,
    losses: &mut Losses,
    out: &mut Vec<u8>,
) -> Result<(), Mistake> {
    for (name, text) in REFUSED {
        if request.take(name).is_some_and(|value| !value.is_neutral()) {
            return Err(Mistake::new(name, text));
        }
    }
    let mut body = Members::new(out);
    body.raw("model", request.need_string("model")?.raw());
    let limit = if options.has_completion_limit { "max_completion_tokens" } else { "max_tokens" };
    body.raw_if(limit, request.number("max_tokens")?.map(Json::raw));
    let list = body.open_list("messages");
    if let Some(system) = request.take("system") {
        system_message(system, list, losses)?;
    }
    let mut is_prefilled = false;
    for message in request.need("messages")?.items("messages")? {
        is_prefilled = messages::write(message, list, losses)?;
    }
    list.push(b']');
    if is_prefilled {
        return Err(Mistake::new("messages", "a chat does not continue a message of the assistant"));
    }
    tools(&mut request, &mut body, losses)?;
    sampling(&mut request, &mut body, losses)?;
    output(&mut request, &mut body, losses)?;
    if is_stream {
        body.raw("stream", "true");
        if options.has_stream_usage {
            body.object("stream_options").raw("include_usage", "true");
        }
    }
    drop(body);
    request.rest(losses);
    Ok(())
}

/// Writes instructions as a message. Several blocks stay apart: nothing says how to join them.
pub(super) fn system_message(content: Json<'_>, list: &mut Vec<u8>, losses: &mut Losses) -> Result<(), Mistake> {
    let mut texts = Vec::new();
    let mut content = parts(content, "system")?;
    while let Some(part) = content.next(losses)? {
        let Part::Text(text) = part else { return Err(no_counterpart("system.type")) };
        texts.push(text);
    }
    if texts.is_empty() {
        return Ok(());
    }
    let mut message = listed(list);
    message.text("role", "system");
    if let [text] = &*texts {
        message.raw("content", text.raw());
        return Ok(());
    }
    let mut content = message.array("content");
    for text in texts {
        content.object().text("type", "text").raw("text", text.raw());
    }
    Ok(())
}

fn tools(request: &mut Object<'_>, body: &mut Members<'_>, losses: &mut Losses) -> Result<(), Mistake> {
    let mut list = Vec::new();
    for tool in request.items("tools")? {
        let mut tool = Object::read(tool, "tools")?;
        if tool.text("type")?.is_some_and(|kind| kind != "custom") {
            return Err(tool.mistake("type", "a chat has no tools of the provider"));
        }
        let mut out = listed(&mut list);
        let mut function = out.text("type", "function").object("function");
        function.raw("name", tool.need_string("name")?.raw());
        function.raw_if("description", tool.string("description")?.map(Json::raw));
        function.raw_if("parameters", tool.take("input_schema").map(Json::raw));
        if tool.flag("strict")? {
            function.raw("strict", "true");
        }
        tool.rest(losses);
    }
    let has_tools = !list.is_empty();
    if has_tools {
        body.list("tools", &list);
    }
    let Some(mut choice) = request.object("tool_choice", "tool_choice")? else { return Ok(()) };
    match &*choice.need_text("type")? {
        // A chat refuses a choice without tools. Both are its default then.
        "auto" | "none" if !has_tools => {}
        "auto" => {
            body.text("tool_choice", "auto");
        }
        "none" => {
            body.text("tool_choice", "none");
        }
        "any" => {
            body.text("tool_choice", "required");
        }
        "tool" => {
            let mut out = body.object("tool_choice");
            out.text("type", "function").object("function").raw("name", choice.need_string("name")?.raw());
        }
        _ => return Err(choice.mistake("type", "the choice has no counterpart in a chat")),
    }
    if choice.flag("disable_parallel_tool_use")? && has_tools {
        body.raw("parallel_tool_calls", "false");
    }
    choice.rest(losses);
    Ok(())
}

fn sampling(request: &mut Object<'_>, body: &mut Members<'_>, losses: &mut Losses) -> Result<(), Mistake> {
    body.raw_if("temperature", request.number("temperature")?.map(Json::raw));
    body.raw_if("top_p", request.number("top_p")?.map(Json::raw));
    match request.take("stop_sequences") {
        Some(stop) if !stop.is_array() => return Err(request.mistake("stop_sequences", "the value is no array")),
        // OpenAI refuses an empty one.
        Some(stop) if !stop.is_neutral() => {
            body.raw("stop", stop.raw());
        }
        _ => {}
    }
    if let Some(mut metadata) = request.object("metadata", "metadata")? {
        match metadata.text("user_id")? {
            Some(user) if user.chars().count() > USER_CHARS_MAX => losses.add("metadata", "user_id"),
            Some(user) => {
                body.text("user", &user);
            }
            None => {}
        }
        metadata.rest(losses);
    }
    match request.text("service_tier")?.as_deref() {
        None | Some("auto") => {}
        Some("standard_only") => {
            body.text("service_tier", "default");
        }
        Some(_) => losses.add("", "service_tier"),
    }
    Ok(())
}

/// The form of the output, and the effort that it is worth.
fn output(request: &mut Object<'_>, body: &mut Members<'_>, losses: &mut Losses) -> Result<(), Mistake> {
    if request.take("thinking").is_some() {
        // Models of a chat think as they do. The budget has no counterpart, and many refuse the effort `none`.
        losses.add("", "thinking");
    }
    let Some(mut config) = request.object("output_config", "output_config")? else { return Ok(()) };
    body.raw_if("reasoning_effort", config.string("effort")?.map(Json::raw));
    if let Some(mut format) = config.object("format", "output_config.format")? {
        if format.need_text("type")? != "json_schema" {
            return Err(format.mistake("type", "the form has no counterpart in a chat"));
        }
        let mut out = body.object("response_format");
        let mut named = out.text("type", "json_schema").object("json_schema");
        named.text("name", "response").raw("schema", format.need("schema")?.raw()).raw("strict", "true");
        format.rest(losses);
    }
    config.rest(losses);
    Ok(())
}
