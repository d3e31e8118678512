//! Anthropic's events as chunks of a chat.

use weir_ai_session::End;
use weir_json_codec::integer;
use weir_json_codec::write::string;
use weir_sse_codec::write::{comment, event};

use super::Event;
use crate::json::{Json, Object};
use crate::limits::{HELD_BYTES_MAX, NAME_BYTES_MAX, OPEN_BLOCKS_MAX};
use crate::mistake::Mistake;
use crate::reason;
use crate::usage::Tokens;
use crate::write::Members;

/// A content block between its start and its stop.
#[derive(Debug)]
enum Block {
    Text,
    /// The number among the calls, and their arguments so far.
    Call(u64, Arguments),
    /// A type without a counterpart.
    Dropped,
}

/// The arguments of a call that is open.
#[derive(Debug)]
enum Arguments {
    /// None has come.
    Absent,
    /// The input of the start, which counts only if no delta comes: Anthropic's SDK replaces it.
    Held(Box<str>),
    /// A part has been written.
    Begun,
}

/// The chunks of one completion.
#[derive(Debug)]
pub(super) struct Chunks {
    created: u64,
    includes_usage: bool,
    /// Id and model as JSON, which each chunk repeats. `None`: the message has not started.
    names: Option<(Box<str>, Box<str>)>,
    /// Open blocks by their index.
    blocks: Vec<(u64, Block)>,
    calls: u64,
    /// Bytes of inputs that are held in all blocks.
    held: usize,
    /// The last call, if it has ended without arguments: either it takes none, or a limit has cut it.
    bare: Option<u64>,
    /// `None`: Anthropic has not said why the message ends.
    finish_reason: Option<&'static str>,
    tokens: Tokens,
}

impl Chunks {
    pub(super) fn new(created: u64, includes_usage: bool) -> Self {
        Self {
            created,
            includes_usage,
            names: None,
            blocks: Vec::new(),
            calls: 0,
            held: 0,
            bare: None,
            finish_reason: None,
            tokens: Tokens::default(),
        }
    }

    /// Bytes of its state.
    pub(super) fn memory_bytes(&self) -> usize {
        self.held + self.blocks.capacity() * size_of::<(u64, Block)>()
    }

    /// Anthropic has said why the message ends.
    pub(super) fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// Takes an event.
    pub(super) fn event(&mut self, event: &mut Event<'_>) -> Result<End, Mistake> {
        let kind = event.data.need_text("type")?;
        match &*kind {
            "ping" => comment(event.out, b"ping"),
            "error" => return Ok(End::Failed),
            "message_start" => self.start(event)?,
            _ if self.names.is_none() => return Err(Mistake::new("type", "the stream has no start")),
            "content_block_start" => self.block_start(event)?,
            "content_block_delta" => self.block_delta(event)?,
            "content_block_stop" => self.block_stop(event)?,
            "message_delta" => self.message_delta(event)?,
            "message_stop" => {
                if !self.is_finished() {
                    return Err(Mistake::new("delta.stop_reason", "the message ends without a reason"));
                }
                self.end(event.out);
                return Ok(End::Done);
            }
            _ => event.losses.add("event", &kind),
        }
        Ok(End::Missing)
    }

    fn start(&mut self, event: &mut Event<'_>) -> Result<(), Mistake> {
        if self.names.is_some() {
            return Err(Mistake::new("type", "the stream has a second start"));
        }
        let mut message = event.data.need_object("message", "message")?;
        let (id, model) = (message.need_string("id")?.raw(), message.need_string("model")?.raw());
        if id.len().max(model.len()) > NAME_BYTES_MAX {
            return Err(Mistake::new("message", "the id or the model is too long"));
        }
        if let Some(usage) = message.take("usage") {
            self.tokens.take_messages(usage, event.losses);
        }
        for name in ["type", "role", "content", "stop_reason", "stop_sequence"] {
            message.take(name);
        }
        message.rest(event.losses);
        self.names = Some((id.into(), model.into()));
        self.chunk(event.out, None, |delta| {
            delta.text("role", "assistant").text("content", "").raw("refusal", "null");
        });
        Ok(())
    }

    fn block_start(&mut self, event: &mut Event<'_>) -> Result<(), Mistake> {
        let index = index_of(&mut event.data)?;
        if self.blocks.iter().any(|(open, _)| *open == index) {
            return Err(Mistake::new("index", "the block is open already"));
        }
        if self.blocks.len() == OPEN_BLOCKS_MAX {
            return Err(Mistake::new("index", "too many blocks are open"));
        }
        // Only the last call can be one that a limit has cut.
        self.end_bare_call(event.out);
        let mut block = event.data.need_object("content_block", "content_block")?;
        let kind = block.need_text("type")?;
        let opened = match &*kind {
            "text" => {
                self.text(block.string("text")?, event.out);
                block.rest(event.losses);
                Block::Text
            }
            "tool_use" => {
                let call = self.call_start(&mut block, event.out)?;
                block.rest(event.losses);
                call
            }
            _ => {
                event.losses.add("content", &kind);
                Block::Dropped
            }
        };
        self.blocks.push((index, opened));
        Ok(())
    }

    fn call_start(&mut self, block: &mut Object<'_>, out: &mut Vec<u8>) -> Result<Block, Mistake> {
        let (id, name) = (block.need_string("id")?, block.need_string("name")?);
        let number = self.calls;
        self.calls += 1;
        // Some servers send the whole input at once.
        let input = block.object_text("input")?.filter(|input| !input.is_empty()).map(Json::raw);
        self.held += input.map_or(0, str::len);
        if self.held > HELD_BYTES_MAX {
            return Err(block.mistake("input", "the inputs of open blocks are too large"));
        }
        self.chunk(out, None, |delta| {
            let mut calls = delta.array("tool_calls");
            let mut call = calls.object();
            call.number("index", number).raw("id", id.raw()).text("type", "function");
            let mut function = call.object("function");
            function.raw("name", name.raw()).text("arguments", "");
        });
        Ok(Block::Call(number, input.map_or(Arguments::Absent, |input| Arguments::Held(input.into()))))
    }

    fn block_delta(&mut self, event: &mut Event<'_>) -> Result<(), Mistake> {
        let index = index_of(&mut event.data)?;
        let Some(at) = self.blocks.iter().position(|(open, _)| *open == index) else {
            return Err(Mistake::new("index", "the block is not open"));
        };
        let mut delta = event.data.need_object("delta", "delta")?;
        let kind = delta.need_text("type")?;
        match (&*kind, &mut self.blocks[at].1) {
            (_, Block::Dropped) => return Ok(()),
            ("text_delta", Block::Text) => self.text(Some(delta.need_string("text")?), event.out),
            ("input_json_delta", Block::Call(number, arguments)) => {
                let (number, part) = (*number, delta.need_string("partial_json")?);
                if !part.is_empty_string() {
                    if let Arguments::Held(input) = std::mem::replace(arguments, Arguments::Begun) {
                        self.held -= input.len();
                    }
                    self.arguments(number, part.raw(), event.out);
                }
            }
            ("text_delta" | "input_json_delta", _) => return Err(delta.mistake("type", "the block has another type")),
            _ => {
                event.losses.add("content", &kind);
                return Ok(());
            }
        }
        delta.rest(event.losses);
        Ok(())
    }

    fn block_stop(&mut self, event: &mut Event<'_>) -> Result<(), Mistake> {
        let index = index_of(&mut event.data)?;
        let Some(at) = self.blocks.iter().position(|(open, _)| *open == index) else {
            return Err(Mistake::new("index", "the block is not open"));
        };
        let (_, block) = self.blocks.swap_remove(at);
        self.close(block, event.out);
        Ok(())
    }

    fn message_delta(&mut self, event: &mut Event<'_>) -> Result<(), Mistake> {
        if let Some(mut delta) = event.data.object("delta", "delta")? {
            if let Some(reason) = delta.text("stop_reason")? {
                self.finish_reason = Some(reason::to_chat(&reason, event.losses));
            }
            delta.rest(event.losses);
        }
        if let Some(usage) = event.data.take("usage") {
            self.tokens.take_messages(usage, event.losses);
        }
        event.data.rest(event.losses);
        Ok(())
    }

    /// The message has ended.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        for (_, block) in std::mem::take(&mut self.blocks) {
            self.close(block, out);
        }
        if self.finish_reason != Some("length") {
            self.end_bare_call(out);
        }
        self.chunk(out, self.finish_reason, |_| {});
        if self.includes_usage && !self.tokens.is_empty() {
            let mut data = Vec::new();
            let mut chunk = self.head(&mut data);
            chunk.raw("choices", "[]");
            self.tokens.write_chat(&mut chunk);
            drop(chunk);
            event(out, None, &data);
        }
        event(out, None, b"[DONE]");
    }

    fn close(&mut self, block: Block, out: &mut Vec<u8>) {
        match block {
            Block::Call(number, Arguments::Held(input)) => {
                self.held -= input.len();
                let mut text = Vec::with_capacity(input.len() + 16);
                string(&mut text, &input);
                self.arguments(number, &text, out);
            }
            Block::Call(number, Arguments::Absent) => {
                self.end_bare_call(out);
                self.bare = Some(number);
            }
            _ => {}
        }
    }

    /// A call without arguments has an empty object: clients parse the text.
    fn end_bare_call(&mut self, out: &mut Vec<u8>) {
        if let Some(number) = self.bare.take() {
            self.arguments(number, "\"{}\"", out);
        }
    }

    fn text(&self, text: Option<Json<'_>>, out: &mut Vec<u8>) {
        if let Some(text) = text.filter(|text| !text.is_empty_string()) {
            self.chunk(out, None, |delta| {
                delta.raw("content", text.raw());
            });
        }
    }

    fn arguments(&self, number: u64, part: impl AsRef<[u8]>, out: &mut Vec<u8>) {
        self.chunk(out, None, |delta| {
            let mut calls = delta.array("tool_calls");
            calls.object().number("index", number).object("function").raw("arguments", part);
        });
    }

    /// Begins a chunk.
    fn head<'a>(&self, data: &'a mut Vec<u8>) -> Members<'a> {
        let mut chunk = Members::new(data);
        if let Some((id, model)) = &self.names {
            chunk.raw("id", &**id).text("object", "chat.completion.chunk").number("created", self.created);
            chunk.raw("model", &**model);
        }
        chunk
    }

    fn chunk(&self, out: &mut Vec<u8>, finish_reason: Option<&str>, write: impl FnOnce(&mut Members<'_>)) {
        let mut data = Vec::with_capacity(256);
        let mut chunk = self.head(&mut data);
        let mut choices = chunk.array("choices");
        let mut choice = choices.object();
        choice.raw("index", "0");
        write(&mut choice.object("delta"));
        match finish_reason {
            Some(reason) => choice.raw("logprobs", "null").text("finish_reason", reason),
            None => choice.raw("logprobs", "null").raw("finish_reason", "null"),
        };
        drop(choice);
        drop(choices);
        if self.includes_usage {
            chunk.raw("usage", "null");
        }
        drop(chunk);
        event(out, None, &data);
    }
}

/// The index of the block that an event is about.
fn index_of(data: &mut Object<'_>) -> Result<u64, Mistake> {
    let index = data.need("index")?;
    integer(index.raw().as_bytes(), u64::MAX).map_err(|_| data.mistake("index", "the value is no index"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Losses;

    #[test]
    fn an_open_block_is_small_and_their_number_is_bounded() {
        assert!(size_of::<(u64, Block)>() <= 48);
        let mut chunks = Chunks::new(1, false);
        let (mut out, mut losses) = (Vec::new(), Losses::default());
        let mut take = |chunks: &mut Chunks, data: &str| {
            let data = Object::read(Json::check(data.as_bytes()).expect("JSON"), "").expect("an object");
            chunks.event(&mut Event { data, losses: &mut losses, out: &mut out })
        };
        take(&mut chunks, r#"{"type":"message_start","message":{"id":"a","model":"m"}}"#).expect("a start");
        let mut start = |at: usize| {
            let data =
                format!(r#"{{"type":"content_block_start","index":{at},"content_block":{{"type":"text","text":""}}}}"#);
            take(&mut chunks, &data)
        };
        for at in 0..OPEN_BLOCKS_MAX {
            start(at).expect("within the limit");
        }
        assert_eq!(start(OPEN_BLOCKS_MAX).expect_err("refused").text, "too many blocks are open");
    }
}
