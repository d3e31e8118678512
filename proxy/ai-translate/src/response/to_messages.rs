//! A completion of a chat as Anthropic's message.

use crate::content::{Part, input_of, parts};
use crate::json::{Json, Object};
use crate::loss::Losses;
use crate::mistake::Mistake;
use crate::reason::{Finish, Reason};
use crate::usage::Tokens;
use crate::write::{Members, listed};

/// Writes the message.
pub(super) fn translate(mut completion: Object<'_>, losses: &mut Losses, out: &mut Vec<u8>) -> Result<(), Mistake> {
    let choices = completion.need("choices")?.items("choices")?;
    let [choice, others @ ..] = &*choices else {
        return Err(Mistake::new("choices", "the response has no choice"));
    };
    if !others.is_empty() {
        losses.add("", "choices");
    }
    let mut choice = Object::read(*choice, "choices")?;
    let mut message = choice.need_object("message", "choices.message")?;
    let failed = |choice: &Object<'_>| choice.mistake("finish_reason", "the provider has failed");
    let Some(word) = choice.text("finish_reason")? else {
        return Err(choice.mistake("finish_reason", "the response has not ended"));
    };
    let reason = Reason::of(&word, losses).filter(|_| !choice.has("error")).ok_or_else(|| failed(&choice))?;
    let mut finish = Finish { reason: Some(reason), ..Finish::default() };
    let blocks = blocks(&mut message, &mut finish, losses)?;
    if finish.lacks_calls() {
        losses.add("choices", "finish_reason");
    }
    message.take("role");
    message.rest(losses);
    // The word of vLLM for the sequence that ended the text.
    let matched = choice.take("stop_reason").filter(|value| value.is_string());
    choice.take("index");
    choice.rest(losses);

    let mut body = Members::new(out);
    body.raw("id", completion.need_string("id")?.raw()).text("type", "message").text("role", "assistant");
    body.raw("model", completion.need_string("model")?.raw()).list("content", &blocks);
    write_stop(&mut body, finish, matched.map(Json::raw));
    let tokens = completion.take("usage").map_or(Tokens::default(), |usage| Tokens::of_chat(usage, losses));
    if tokens.is_empty() {
        // The zeros are no figures of the provider.
        losses.add("", "usage");
    }
    tokens.write_messages(&mut body);
    drop(body);
    for name in ["object", "created", "system_fingerprint", "service_tier"] {
        completion.take(name);
    }
    completion.rest(losses);
    Ok(())
}

/// Writes the two members that say why a message ended.
pub(crate) fn write_stop(message: &mut Members<'_>, finish: Finish, matched: Option<&str>) {
    let reason = finish.stop_reason(matched.is_some());
    let matched = matched.filter(|_| reason == "stop_sequence");
    message.text("stop_reason", reason).raw("stop_sequence", matched.unwrap_or("null"));
}

fn blocks(message: &mut Object<'_>, finish: &mut Finish, losses: &mut Losses) -> Result<Vec<u8>, Mistake> {
    let mut blocks = Vec::new();
    if let Some(content) = message.take("content") {
        let mut content = parts(content, "choices.message.content")?;
        while let Some(part) = content.next(losses)? {
            match part {
                Part::Text(text) => {
                    listed(&mut blocks).text("type", "text").raw("text", text.raw());
                }
                Part::Other(kind, _) => losses.add("content", &kind),
            }
        }
    }
    if let Some(refusal) = message.string("refusal")?.filter(|text| !text.is_empty_string()) {
        finish.has_refusal = true;
        listed(&mut blocks).text("type", "text").raw("text", refusal.raw());
    }
    for call in message.items("tool_calls")? {
        let mut call = Object::read(call, "choices.message.tool_calls")?;
        let mut function = call.need_object("function", "choices.message.tool_calls.function")?;
        let arguments = function.need_text("arguments")?;
        // A limit may have cut it: then its client knows by the reason that the call is not whole.
        let input = match input_of(&arguments) {
            Some(input) => input,
            None if finish.is_cut() => {
                losses.add("choices.message.tool_calls", "arguments");
                "{}"
            }
            None => return Err(function.mistake("arguments", "the arguments are no JSON object")),
        };
        finish.has_calls = true;
        let mut block = listed(&mut blocks);
        block.text("type", "tool_use").raw("id", call.need_string("id")?.raw());
        block.raw("name", function.need_string("name")?.raw()).raw("input", input);
        call.take("type");
        call.rest(losses);
        function.rest(losses);
    }
    Ok(blocks)
}
