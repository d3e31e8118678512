//! Anthropic's turns as the messages of a chat.

use crate::content::{Part, no_counterpart, parts, write_joined};
use crate::json::{Json, Object};
use crate::loss::Losses;
use crate::mistake::Mistake;
use crate::write::listed;

use super::system_message;

/// Appends the messages that a turn becomes: each result of a call is one of its own. Whether it is the assistant's.
pub(super) fn write(message: Json<'_>, list: &mut Vec<u8>, losses: &mut Losses) -> Result<bool, Mistake> {
    let mut message = Object::read(message, "messages")?;
    let role = message.need_text("role")?;
    let content = message.need("content")?;
    match &*role {
        "user" => user(content, list, losses)?,
        "assistant" => assistant(content, list, losses)?,
        "system" => system_message(content, list, losses)?,
        _ => return Err(message.mistake("role", "the role has no counterpart in a chat")),
    }
    message.rest(losses);
    Ok(role == "assistant")
}

/// A user's turn. Results come first, right behind their calls, as a chat wants it.
fn user(content: Json<'_>, list: &mut Vec<u8>, losses: &mut Losses) -> Result<(), Mistake> {
    let mut said = UserParts::default();
    let mut content = parts(content, "messages.content")?;
    while let Some(part) = content.next(losses)? {
        match part {
            Part::Other(kind, block) if kind == "tool_result" => result(block, list, &mut said, losses)?,
            part => said.part(part, losses)?,
        }
    }
    match (said.count, said.text) {
        (0, _) => {}
        (1, Some(text)) => {
            listed(list).text("role", "user").raw("content", text);
        }
        _ => {
            listed(list).text("role", "user").list("content", &said.parts);
        }
    }
    Ok(())
}

/// Parts of a user's message.
#[derive(Default)]
struct UserParts<'a> {
    parts: Vec<u8>,
    count: usize,
    /// The first part, if it is a text.
    text: Option<&'a str>,
}

impl<'a> UserParts<'a> {
    fn part(&mut self, part: Part<'a>, losses: &mut Losses) -> Result<(), Mistake> {
        let (kind, mut block) = match part {
            Part::Text(text) => {
                if self.count == 0 {
                    self.text = Some(text.raw());
                }
                self.text_part(text);
                return Ok(());
            }
            Part::Other(kind, block) => (kind, block),
        };
        let mut source = match &*kind {
            "image" | "document" => block.need_object("source", "messages.content.source")?,
            _ => return Err(no_counterpart("messages.content.type")),
        };
        let form = source.need_text("type")?;
        match (&*kind, &*form) {
            ("image", "url") => self.image(&source.need_text("url")?),
            ("image", "base64") => {
                let (media, data) = (source.need_string("media_type")?, source.need_string("data")?);
                let mut part = listed(&mut self.parts);
                let mut image = part.text("type", "image_url").object("image_url");
                image.joined("url", &["data:", media.inner(), ";base64,", data.inner()]);
                drop(image);
                drop(part);
                self.count += 1;
            }
            ("document", "base64") => {
                if source.need_text("media_type")? != "application/pdf" {
                    return Err(source.mistake("media_type", "a chat takes no file but a PDF"));
                }
                let data = source.need_string("data")?;
                // Providers go by the end of the name.
                let title = block.text("title")?.unwrap_or("document".into());
                let title = title.strip_suffix(".pdf").unwrap_or(&title);
                let mut part = listed(&mut self.parts);
                let mut file = part.text("type", "file").object("file");
                file.text("filename", &format!("{title}.pdf"));
                file.joined("file_data", &["data:application/pdf;base64,", data.inner()]);
                drop(file);
                drop(part);
                self.count += 1;
            }
            ("document", "text") => {
                source.take("media_type");
                self.text_part(source.need_string("data")?);
            }
            _ => return Err(source.mistake("type", "this source has no counterpart in a chat")),
        }
        source.rest(losses);
        block.rest(losses);
        Ok(())
    }

    fn text_part(&mut self, text: Json<'_>) {
        listed(&mut self.parts).text("type", "text").raw("text", text.raw());
        self.count += 1;
    }

    fn image(&mut self, url: &str) {
        listed(&mut self.parts).text("type", "image_url").object("image_url").text("url", url);
        self.count += 1;
    }
}

/// The result of a call. A chat's has texts alone: images follow in a message of the user.
fn result<'a>(
    mut block: Object<'a>,
    list: &mut Vec<u8>,
    said: &mut UserParts<'a>,
    losses: &mut Losses,
) -> Result<(), Mistake> {
    let id = block.need_string("tool_use_id")?;
    let mut texts = Vec::new();
    if let Some(content) = block.take("content") {
        let mut content = parts(content, "messages.content.content")?;
        while let Some(part) = content.next(losses)? {
            match part {
                Part::Text(text) => texts.push(text),
                other => {
                    // Nothing says any more to which call it belongs.
                    losses.add("messages.content.content", "position");
                    said.part(other, losses)?;
                }
            }
        }
    }
    let mut message = listed(list);
    message.text("role", "tool").raw("tool_call_id", id.raw());
    match &*texts {
        [] => {
            message.text("content", "");
        }
        [text] => {
            message.raw("content", text.raw());
        }
        texts => {
            let mut content = message.array("content");
            for text in texts {
                content.object().text("type", "text").raw("text", text.raw());
            }
        }
    }
    block.rest(losses);
    Ok(())
}

fn assistant(content: Json<'_>, list: &mut Vec<u8>, losses: &mut Losses) -> Result<(), Mistake> {
    let (mut texts, mut calls) = (Vec::new(), Vec::new());
    let mut content = parts(content, "messages.content")?;
    while let Some(part) = content.next(losses)? {
        let (kind, mut block) = match part {
            Part::Text(text) => {
                texts.push(text);
                continue;
            }
            Part::Other(kind, block) => (kind, block),
        };
        match &*kind {
            "tool_use" => {
                let input = block.need_object_text("input")?;
                let mut call = listed(&mut calls);
                call.raw("id", block.need_string("id")?.raw()).text("type", "function");
                let mut function = call.object("function");
                function.raw("name", block.need_string("name")?.raw()).text("arguments", input.raw());
                block.rest(losses);
            }
            // A signature means something to one provider alone.
            "thinking" | "redacted_thinking" => losses.add("messages.content", &kind),
            _ => return Err(no_counterpart("messages.content.type")),
        }
    }
    if texts.is_empty() && calls.is_empty() {
        return Ok(());
    }
    let mut message = listed(list);
    write_joined(message.text("role", "assistant"), "content", &texts);
    if !calls.is_empty() {
        message.list("tool_calls", &calls);
    }
    Ok(())
}
