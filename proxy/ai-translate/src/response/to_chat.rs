//! Anthropic's message as a completion of a chat.

use crate::content::{Part, parts, write_joined};
use crate::json::Object;
use crate::loss::Losses;
use crate::mistake::Mistake;
use crate::reason;
use crate::usage::Tokens;
use crate::write::{Members, listed};

/// Writes the completion.
pub(super) fn translate(
    mut message: Object<'_>,
    created: u64,
    losses: &mut Losses,
    out: &mut Vec<u8>,
) -> Result<(), Mistake> {
    let Some(reason) = message.text("stop_reason")? else {
        return Err(Mistake::new("stop_reason", "the message has not ended"));
    };
    let reason = reason::to_chat(&reason, losses);
    let (mut texts, mut calls) = (Vec::new(), Vec::new());
    let is_cut = reason == "length";
    let mut content = parts(message.need("content")?, "content")?;
    while let Some(part) = content.next(losses)? {
        match part {
            Part::Text(text) => texts.push(text),
            Part::Other(kind, mut block) if kind == "tool_use" => {
                let input = block.need_object_text("input")?;
                // A limit that cut the message may have cut the input before its first byte.
                let is_bare = is_cut && content.is_at_end() && input.is_empty();
                let mut call = listed(&mut calls);
                call.raw("id", block.need_string("id")?.raw()).text("type", "function");
                let mut function = call.object("function");
                function
                    .raw("name", block.need_string("name")?.raw())
                    .text("arguments", if is_bare { "" } else { input.raw() });
                block.rest(losses);
            }
            Part::Other(kind, _) => losses.add("content", &kind),
        }
    }
    let mut body = Members::new(out);
    body.raw("id", message.need_string("id")?.raw()).text("object", "chat.completion").number("created", created);
    body.raw("model", message.need_string("model")?.raw());
    let mut choices = body.array("choices");
    let mut choice = choices.object();
    choice.raw("index", "0");
    let mut chat_message = choice.object("message");
    write_joined(chat_message.text("role", "assistant"), "content", &texts);
    chat_message.raw("refusal", "null");
    if !calls.is_empty() {
        chat_message.list("tool_calls", &calls);
    }
    drop(chat_message);
    choice.raw("logprobs", "null").text("finish_reason", reason);
    drop(choice);
    drop(choices);
    let mut tokens = Tokens::default();
    if let Some(usage) = message.take("usage") {
        tokens.take_messages(usage, losses);
    }
    if !tokens.is_empty() {
        tokens.write_chat(&mut body);
    }
    message.take("type");
    message.take("role");
    message.rest(losses);
    Ok(())
}
