//! A chat's request for Anthropic.

mod tools;
mod turns;

use std::borrow::Cow;

use crate::json::{Json, Object};
use crate::loss::Losses;
use crate::mistake::Mistake;
use crate::request::Options;
use crate::write::Members;

use turns::Turns;

/// Members that change the meaning of a response and have no counterpart, unless they are neutral.
const REFUSED: [(&str, &str); 7] = [
    ("logprobs", "Anthropic reports no probabilities"),
    ("top_logprobs", "Anthropic reports no probabilities"),
    ("logit_bias", "Anthropic has no bias of tokens"),
    ("audio", "Anthropic has no output of audio"),
    ("functions", "the member is deprecated: use `tools`"),
    ("function_call", "the member is deprecated: use `tool_choice`"),
    ("moderation", "Anthropic has no moderation of a request"),
];

/// Writes the request. Whether the client requests usage in a stream.
pub(super) fn translate(
    mut request: Object<'_>,
    is_stream: bool,
    options: &Options,
    losses: &mut Losses,
    out: &mut Vec<u8>,
) -> Result<bool, Mistake> {
    refuse(&mut request)?;
    let mut body = Members::new(out);
    body.raw("model", request.need_string("model")?.raw());
    // `max_tokens` is the older name: it counts only alone.
    let limits = (request.number("max_completion_tokens")?, request.number("max_tokens")?);
    match limits.0.or(limits.1) {
        Some(limit) => body.raw("max_tokens", limit.raw()),
        None => body.number("max_tokens", options.tokens_max),
    };
    let mut turns = Turns::new(body.open_list("messages"));
    for message in request.need("messages")?.items("messages")? {
        turns.message(message, losses)?;
    }
    let conversation = turns.end()?;
    if !conversation.system.is_empty() {
        body.list("system", &conversation.system);
    }
    tools::write(&mut request, &mut body, losses)?;
    sampling(&mut request, &mut body, losses)?;
    if conversation.has_calls && request.has("thinking") {
        // Anthropic then requires the thinking in front of those calls, which a chat has not kept.
        losses.add("", "thinking");
        request.take("thinking");
    }
    output(&mut request, &mut body, options, losses)?;
    if is_stream {
        body.raw("stream", "true");
    }
    drop(body);
    let mut stream_options = request.object("stream_options", "stream_options")?;
    // Padding against observers is not part of the message.
    let includes_usage = stream_options.as_mut().map(|options| {
        options.take("include_obfuscation");
        options.flag("include_usage")
    });
    if let Some(options) = stream_options {
        options.rest(losses);
    }
    request.rest(losses);
    Ok(includes_usage.transpose()?.unwrap_or(false))
}

fn refuse(request: &mut Object<'_>) -> Result<(), Mistake> {
    for (name, text) in REFUSED {
        if request.take(name).is_some_and(|value| !value.is_neutral()) {
            return Err(Mistake::new(name, text));
        }
    }
    // An empty object turns it on.
    if request.take("web_search_options").is_some() {
        return Err(Mistake::new("web_search_options", "Anthropic has another tool for it"));
    }
    if request.take("n").is_some_and(|count| count.raw() != "1") {
        return Err(Mistake::new("n", "Anthropic gives one choice: `n` must be 1"));
    }
    let is_text = |kind: &Json<'_>| kind.raw() == "\"text\"";
    if !request.items("modalities")?.iter().all(is_text) {
        return Err(Mistake::new("modalities", "Anthropic gives text alone"));
    }
    Ok(())
}

fn sampling(request: &mut Object<'_>, body: &mut Members<'_>, losses: &mut Losses) -> Result<(), Mistake> {
    let temperature = request.number("temperature")?;
    let has_temperature = temperature.is_some();
    if let Some(temperature) = temperature {
        // A chat's scale ends at 2, Anthropic's at 1.
        let is_above = temperature.raw().parse::<f64>().is_ok_and(|value| value > 1.0);
        if is_above {
            losses.add("", "temperature");
        }
        body.raw("temperature", if is_above { "1" } else { temperature.raw() });
    }
    // Newer models take one of both. A `top_p` of 1 excludes no token.
    match request.number("top_p")? {
        Some(top_p) if top_p.raw().parse::<f64>().is_ok_and(|value| value == 1.0) => {}
        Some(_) if has_temperature => losses.add("", "top_p"),
        top_p => {
            body.raw_if("top_p", top_p.map(Json::raw));
        }
    }
    body.raw_if("top_k", request.number("top_k")?.map(Json::raw));
    stop(request, body)?;
    // The newer name counts; the other is a loss if both are there.
    let user = match request.string("safety_identifier")? {
        Some(user) => Some(user),
        None => request.string("user")?,
    };
    if let Some(user) = user {
        body.object("metadata").raw("user_id", user.raw());
    }
    match request.text("service_tier")?.as_deref() {
        None | Some("auto") => {}
        Some("default") => {
            body.text("service_tier", "standard_only");
        }
        Some(_) => losses.add("", "service_tier"),
    }
    Ok(())
}

/// The sequences that end a response.
fn stop(request: &mut Object<'_>, body: &mut Members<'_>) -> Result<(), Mistake> {
    let Some(stop) = request.take("stop") else { return Ok(()) };
    let sequences = match (stop.is_string(), stop.is_array()) {
        (true, _) => vec![stop],
        (_, true) => stop.items("stop")?,
        _ => return Err(request.mistake("stop", "the value is neither a string nor an array")),
    };
    if sequences.iter().any(|sequence| sequence.is_blank_string()) {
        return Err(request.mistake("stop", "Anthropic takes no sequence of white space alone"));
    }
    match stop.is_string() {
        true => body.list("stop_sequences", stop.raw().as_bytes()),
        false => body.raw("stop_sequences", stop.raw()),
    };
    Ok(())
}

/// The form of the output, and the effort that it is worth.
fn output(
    request: &mut Object<'_>,
    body: &mut Members<'_>,
    options: &Options,
    losses: &mut Losses,
) -> Result<(), Mistake> {
    let effort = request.text("reasoning_effort")?;
    let thinking = request.object_text("thinking")?;
    match (thinking, effort.as_deref()) {
        (Some(thinking), _) => {
            body.raw("thinking", thinking.raw());
        }
        (None, Some("none")) => {
            body.object("thinking").text("type", "disabled");
        }
        _ => {}
    }
    let effort: Option<Cow<'_, str>> = match effort.as_deref() {
        Some("none") => None,
        Some(_) if !options.has_effort => {
            losses.add("", "reasoning_effort");
            None
        }
        Some("minimal") => {
            losses.add("", "reasoning_effort");
            Some("low".into())
        }
        _ => effort,
    };
    let schema = match request.object("response_format", "response_format")? {
        Some(format) => schema(format, losses)?,
        None => None,
    };
    if effort.is_none() && schema.is_none() {
        return Ok(());
    }
    let mut config = body.object("output_config");
    if let Some(effort) = effort {
        config.text("effort", &effort);
    }
    if let Some(schema) = schema {
        config.object("format").text("type", "json_schema").raw("schema", schema.raw());
    }
    Ok(())
}

/// The schema of a `response_format`; `None`: plain text.
fn schema<'a>(mut format: Object<'a>, losses: &mut Losses) -> Result<Option<Json<'a>>, Mistake> {
    match &*format.need_text("type")? {
        "text" => {
            format.rest(losses);
            Ok(None)
        }
        "json_schema" => {
            let mut named = format.need_object("json_schema", "response_format.json_schema")?;
            let schema = named.need("schema")?;
            // Anthropic has one schema without a name, and always keeps to it.
            named.take("name");
            named.take("strict");
            named.rest(losses);
            format.rest(losses);
            Ok(Some(schema))
        }
        _ => Err(format.mistake("type", "Anthropic has no JSON without a schema: use `json_schema`")),
    }
}
