//! The messages of a chat as Anthropic's turns.
//!
//! Users and tools are one side, and adjacent messages of a side are one turn: Anthropic wants the results of all calls
//! of a turn in the next one.

use std::borrow::Cow;

use crate::content::{Part, data_url, input_of, no_counterpart, parts};
use crate::json::{Json, Object};
use crate::loss::Losses;
use crate::mistake::Mistake;
use crate::write::{Members, comma, listed};

const USER: &str = "user";
const ASSISTANT: &str = "assistant";

/// Writes turns.
pub(super) struct Turns<'a> {
    /// Blocks of the system prompt.
    system: Vec<u8>,
    /// The list of turns in the body.
    messages: &'a mut Vec<u8>,
    /// The side of the turn under way. Empty: there is none yet.
    role: &'static str,
    /// The last turn of the assistant has calls.
    has_calls: bool,
}

/// The rest of a conversation whose turns are written.
pub(super) struct Conversation {
    /// Blocks of the system prompt, without brackets.
    pub(super) system: Vec<u8>,
    /// The last turn of the assistant has calls.
    pub(super) has_calls: bool,
}

impl<'a> Turns<'a> {
    /// In a list that has its open bracket.
    pub(super) fn new(messages: &'a mut Vec<u8>) -> Self {
        Self { system: Vec::new(), messages, role: "", has_calls: false }
    }

    /// Takes the next message.
    pub(super) fn message(&mut self, message: Json<'_>, losses: &mut Losses) -> Result<(), Mistake> {
        let mut message = Object::read(message, "messages")?;
        let role = message.need_text("role")?;
        match &*role {
            "system" | "developer" => self.system(&mut message, losses)?,
            "user" => {
                let mut content = parts(message.need("content")?, "messages.content")?;
                while let Some(part) = content.next(losses)? {
                    self.user_part(part, losses)?;
                }
            }
            "assistant" => self.assistant(&mut message, losses)?,
            "tool" => self.result(&mut message, losses)?,
            _ => return Err(message.mistake("role", "the role has no counterpart at Anthropic")),
        }
        message.rest(losses);
        Ok(())
    }

    /// Ends the list.
    pub(super) fn end(self) -> Result<Conversation, Mistake> {
        let wrong = |text| Err(Mistake::new("messages", text));
        match self.role {
            "" => return wrong("Anthropic takes no conversation without a text of the user"),
            ASSISTANT => return wrong("Anthropic would continue the last message of the assistant, not answer it"),
            _ => self.messages.extend_from_slice(b"]}]"),
        }
        Ok(Conversation { system: self.system, has_calls: self.has_calls })
    }

    /// The next block of a side.
    fn block(&mut self, role: &'static str) -> Members<'_> {
        if self.role != role {
            if !self.role.is_empty() {
                self.messages.extend_from_slice(b"]}");
            }
            if role == ASSISTANT {
                self.has_calls = false;
            }
            comma(self.messages);
            for part in ["{\"role\":\"", role, "\",\"content\":["] {
                self.messages.extend_from_slice(part.as_bytes());
            }
            self.role = role;
        }
        listed(self.messages)
    }

    /// Anthropic refuses a text of white space alone.
    fn text(&mut self, role: &'static str, text: Json<'_>) {
        if !text.is_blank_string() {
            self.block(role).text("type", "text").raw("text", text.raw());
        }
    }

    /// Instructions count for the whole conversation there, not from their place on.
    fn system(&mut self, message: &mut Object<'_>, losses: &mut Losses) -> Result<(), Mistake> {
        if !self.role.is_empty() {
            losses.add("messages", "position");
        }
        let mut content = parts(message.need("content")?, "messages.content")?;
        while let Some(part) = content.next(losses)? {
            let Part::Text(text) = part else { return Err(no_counterpart("messages.content.type")) };
            if text.is_blank_string() {
                continue;
            }
            listed(&mut self.system).text("type", "text").raw("text", text.raw());
        }
        Ok(())
    }

    fn user_part(&mut self, part: Part<'_>, losses: &mut Losses) -> Result<(), Mistake> {
        let (kind, mut part) = match part {
            Part::Text(text) => {
                self.text(USER, text);
                return Ok(());
            }
            Part::Other(kind, part) => (kind, part),
        };
        match &*kind {
            "image_url" => {
                let mut image = part.need_object("image_url", "messages.content.image_url")?;
                let url = image.need_text("url")?;
                if image.text("detail")?.is_some_and(|detail| detail != "auto") {
                    losses.add("messages.content.image_url", "detail");
                }
                let Some(source) = Source::of(&url) else {
                    return Err(image.mistake("url", "a `data:` URL of an image is in base64"));
                };
                source.write(self.block(USER).text("type", "image").object("source"));
                image.rest(losses);
            }
            "file" => {
                let mut file = part.need_object("file", "messages.content.file")?;
                let data = file.text("file_data")?;
                let Some(("application/pdf", data)) = data.as_deref().and_then(data_url) else {
                    return Err(file.mistake("file_data", "only the data of a PDF has a counterpart at Anthropic"));
                };
                let mut block = self.block(USER);
                let mut source = block.text("type", "document").object("source");
                source.text("type", "base64").text("media_type", "application/pdf").text("data", data);
                drop(source);
                block.raw_if("title", file.string("filename")?.map(Json::raw));
                file.rest(losses);
            }
            _ => return Err(no_counterpart("messages.content.type")),
        }
        part.rest(losses);
        Ok(())
    }

    fn assistant(&mut self, message: &mut Object<'_>, losses: &mut Losses) -> Result<(), Mistake> {
        if let Some(content) = message.take("content") {
            let mut content = parts(content, "messages.content")?;
            while let Some(part) = content.next(losses)? {
                match part {
                    Part::Text(text) => self.text(ASSISTANT, text),
                    Part::Other(kind, mut part) if kind == "refusal" => {
                        self.text(ASSISTANT, part.need_string("refusal")?);
                        part.rest(losses);
                    }
                    Part::Other(..) => return Err(no_counterpart("messages.content.type")),
                }
            }
        }
        if let Some(refusal) = message.string("refusal")?.filter(|text| !text.is_empty_string()) {
            self.text(ASSISTANT, refusal);
        }
        for name in ["function_call", "audio"] {
            if message.take(name).is_some() {
                return Err(message.mistake(name, "the member has no counterpart at Anthropic"));
            }
        }
        for call in message.items("tool_calls")? {
            self.call(call, losses)?;
        }
        Ok(())
    }

    fn call(&mut self, call: Json<'_>, losses: &mut Losses) -> Result<(), Mistake> {
        let mut call = Object::read(call, "messages.tool_calls")?;
        if call.text("type")?.is_some_and(|kind| kind != "function") {
            return Err(call.mistake("type", "Anthropic's tools of a client are functions"));
        }
        let mut function = call.need_object("function", "messages.tool_calls.function")?;
        let arguments = function.need_text("arguments")?;
        let Some(input) = input_of(&arguments) else {
            return Err(function.mistake("arguments", "Anthropic takes arguments that are a JSON object"));
        };
        let (id, name) = (call.need_text("id")?, function.need_string("name")?);
        let mut block = self.block(ASSISTANT);
        block.text("type", "tool_use").text("id", &plain(id)).raw("name", name.raw()).raw("input", input);
        drop(block);
        self.has_calls = true;
        function.rest(losses);
        call.rest(losses);
        Ok(())
    }

    /// The result of a call.
    fn result(&mut self, message: &mut Object<'_>, losses: &mut Losses) -> Result<(), Mistake> {
        let id = message.need_text("tool_call_id")?;
        let content = message.need("content")?;
        let mut block = self.block(USER);
        block.text("type", "tool_result").text("tool_use_id", &plain(id));
        if content.is_string() {
            block.raw("content", content.raw());
            return Ok(());
        }
        let mut texts = block.array("content");
        let mut content = parts(content, "messages.content")?;
        while let Some(part) = content.next(losses)? {
            let Part::Text(text) = part else { return Err(no_counterpart("messages.content.type")) };
            if !text.is_blank_string() {
                texts.object().text("type", "text").raw("text", text.raw());
            }
        }
        Ok(())
    }
}

/// The id of a call in the letters that Anthropic takes. Some providers have others, such as `functions.f:0`, and a
/// conversation may have begun there.
fn plain(id: Cow<'_, str>) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    if id.chars().all(is_plain) {
        return id;
    }
    id.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect()
}

/// The source of an image.
enum Source<'a> {
    /// Media type and text in base64.
    Bytes(&'a str, &'a str),
    Address(&'a str),
}

impl<'a> Source<'a> {
    /// `None`: a `data:` URL that is not in base64.
    fn of(url: &'a str) -> Option<Self> {
        match data_url(url) {
            // The usual mistake for the one name that is registered.
            Some(("image/jpg", data)) => Some(Self::Bytes("image/jpeg", data)),
            Some((media, data)) => Some(Self::Bytes(media, data)),
            None if url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) => None,
            None => Some(Self::Address(url)),
        }
    }

    fn write(&self, mut source: Members<'_>) {
        match self {
            Self::Bytes(media, data) => source.text("type", "base64").text("media_type", media).text("data", data),
            Self::Address(url) => source.text("type", "url").text("url", url),
        };
    }
}
