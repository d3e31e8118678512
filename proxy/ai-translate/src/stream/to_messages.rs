//! Chunks of a chat as Anthropic's events.
//!
//! Blocks of Anthropic follow one another, while the calls of a chat may interleave. A call whose arguments are a whole
//! object ends before the next block begins, so calls that come one after the other become such blocks. Calls that do
//! interleave are open at once: readers go by the index of a block.

use weir_ai_session::End;
use weir_json_codec::integer;
use weir_sse_codec::write::event;

use super::Event;
use crate::content::{Part, parts};
use crate::json::{Check, Json, Object};
use crate::limits::{CALLS_MAX, NAME_BYTES_MAX};
use crate::loss::Losses;
use crate::mistake::Mistake;
use crate::reason::{Finish, Reason};
use crate::response::write_stop;
use crate::usage::Tokens;
use crate::write::Members;

/// A call of a tool.
#[derive(Debug)]
struct Call {
    /// The index that joins its fragments, unless the server sends none.
    index: Option<u64>,
    /// Its id as JSON: another one under the same index is another call.
    id: Box<str>,
    /// The index of its block.
    block: u64,
    /// The arguments so far; `None`: the block has ended.
    arguments: Option<Box<Check>>,
}

/// The events of one message.
#[derive(Debug, Default)]
pub(super) struct Events {
    is_started: bool,
    /// Blocks that have begun: the index of the next.
    blocks: u64,
    /// The block of text that is open.
    text: Option<u64>,
    calls: Vec<Call>,
    finish: Finish,
    /// The sequence that has ended the text, as JSON.
    matched: Option<Box<str>>,
    tokens: Tokens,
}

impl Events {
    /// Bytes of its state.
    pub(super) fn memory_bytes(&self) -> usize {
        let of_call = |call: &Call| call.id.len() + call.arguments.as_deref().map_or(0, size_of_val);
        self.calls.capacity() * size_of::<Call>() + self.calls.iter().map(of_call).sum::<usize>()
    }

    /// The choice has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.reason.is_some()
    }

    /// Takes a chunk.
    pub(super) fn chunk(&mut self, event: &mut Event<'_>) -> Result<End, Mistake> {
        if event.data.has("error") || is_report(&event.data) {
            return Ok(End::Failed);
        }
        let choices = event.data.items("choices")?;
        if !choices.is_empty() && !self.is_started {
            let names = (event.data.string("id")?, event.data.string("model")?);
            self.start(names.0.map_or("\"\"", Json::raw), names.1.map_or("\"\"", Json::raw), event.out)?;
        }
        if let Some(usage) = event.data.take("usage") {
            self.tokens = Tokens::of_chat(usage, event.losses);
        }
        for choice in choices {
            let mut choice = Object::read(choice, "choices")?;
            if choice.take("index").is_some_and(|index| index.raw() != "0") {
                event.losses.add("", "choices");
                continue;
            }
            if self.choice(choice, event.losses, event.out)? == End::Failed {
                return Ok(End::Failed);
            }
        }
        // The random text hides the length of the chunk.
        for name in ["id", "object", "created", "model", "system_fingerprint", "service_tier", "obfuscation"] {
            event.data.take(name);
        }
        event.data.rest(event.losses);
        Ok(End::Missing)
    }

    fn choice(&mut self, mut choice: Object<'_>, losses: &mut Losses, out: &mut Vec<u8>) -> Result<End, Mistake> {
        if choice.has("error") {
            return Ok(End::Failed);
        }
        if let Some(mut delta) = choice.object("delta", "choices.delta")? {
            if let Some(content) = delta.take("content") {
                let mut content = parts(content, "choices.delta.content")?;
                while let Some(part) = content.next(losses)? {
                    match part {
                        Part::Text(text) => self.say(text, out),
                        Part::Other(kind, _) => losses.add("content", &kind),
                    }
                }
            }
            if let Some(text) = delta.string("refusal")?.filter(|text| !text.is_empty_string()) {
                self.finish.has_refusal = true;
                self.say(text, out);
            }
            for call in delta.items("tool_calls")? {
                self.call(Object::read(call, "choices.delta.tool_calls")?, losses, out)?;
            }
            delta.take("role");
            delta.rest(losses);
        }
        if let Some(word) = choice.text("finish_reason")? {
            let Some(reason) = Reason::of(&word, losses) else { return Ok(End::Failed) };
            self.finish.reason = Some(reason);
        }
        // The word of vLLM for the sequence that ended the text.
        if let Some(matched) = choice.take("stop_reason").filter(|value| value.is_string()) {
            if matched.raw().len() > NAME_BYTES_MAX {
                return Err(choice.mistake("stop_reason", "the text is too long"));
            }
            self.matched = Some(matched.raw().into());
        }
        // Moonshot reports usage here.
        if let Some(usage) = choice.take("usage") {
            self.tokens = Tokens::of_chat(usage, losses);
        }
        choice.rest(losses);
        Ok(End::Missing)
    }

    /// The tokens of the input are not known yet: the last event but one has them.
    fn start(&mut self, id: &str, model: &str, out: &mut Vec<u8>) -> Result<(), Mistake> {
        if id.len().max(model.len()) > NAME_BYTES_MAX {
            return Err(Mistake::new("id", "the id or the model is too long"));
        }
        self.is_started = true;
        emit("message_start", out, |data| {
            let mut message = data.object("message");
            message.raw("id", id).text("type", "message").text("role", "assistant").raw("model", model);
            message.raw("content", "[]").raw("stop_reason", "null").raw("stop_sequence", "null");
            Tokens::default().write_messages(&mut message);
        });
        Ok(())
    }

    fn say(&mut self, text: Json<'_>, out: &mut Vec<u8>) {
        let block = match self.text {
            Some(block) => block,
            None => {
                self.stop_whole_calls(out);
                let block = self.open(out, |block| {
                    block.text("type", "text").text("text", "");
                });
                self.text = Some(block);
                block
            }
        };
        emit("content_block_delta", out, |data| {
            data.number("index", block).object("delta").text("type", "text_delta").raw("text", text.raw());
        });
    }

    /// Takes a fragment of a call. Some servers send no index, and some the same for all calls: an id that is not that
    /// of the call, with a name, begins the next call. An id without a name does not: some servers invent one for each
    /// fragment.
    fn call(&mut self, mut fragment: Object<'_>, losses: &mut Losses, out: &mut Vec<u8>) -> Result<(), Mistake> {
        let index = fragment.take("index").map(|index| integer(index.raw().as_bytes(), u64::MAX)).transpose();
        let index = index.map_err(|_| fragment.mistake("index", "the value is no index"))?;
        let id = fragment.string("id")?;
        let mut function = fragment.object("function", "choices.delta.tool_calls.function")?;
        let name = function.as_mut().map(|function| function.string("name")).transpose()?.flatten();
        let known = match (index, self.calls.len().checked_sub(1)) {
            (Some(_), _) => self.calls.iter().rposition(|call| call.index == index),
            (None, last) => last,
        };
        let has_name = name.is_some_and(|name| !name.is_empty_string());
        let is_other = |at: usize| {
            let id = id.filter(|id| !id.is_empty_string());
            has_name && id.map_or(index.is_none(), |id| id.raw() != &*self.calls[at].id)
        };
        let at = match (known.filter(|at| !is_other(*at)), id, name) {
            (Some(at), ..) => at,
            (None, Some(id), Some(name)) => {
                if let Some(known) = known {
                    self.end_call_before(known)?;
                }
                self.begin_call(index, id, name, out)?
            }
            (None, None, _) => return Err(fragment.mistake("id", "the member is missing")),
            (None, _, None) => return Err(fragment.mistake("function", "the name is missing")),
        };
        let part = function.as_mut().map(|function| function.string("arguments")).transpose()?.flatten();
        fragment.take("type");
        fragment.rest(losses);
        if let Some(function) = function {
            function.rest(losses);
        }
        match part.and_then(|part| Some((part, part.text()?))) {
            Some((raw, part)) if !part.is_empty() => self.arguments(at, raw, &part, out),
            _ => Ok(()),
        }
    }

    /// No fragment can follow for a call whose key another call has taken.
    fn end_call_before(&self, at: usize) -> Result<(), Mistake> {
        let is_partial = |arguments: &Check| !arguments.is_whole() && !arguments.is_empty();
        match self.calls[at].arguments.as_deref().is_some_and(is_partial) {
            true => Err(Mistake::new("choices.delta.tool_calls.index", "another call has the index")),
            false => Ok(()),
        }
    }

    /// The position of the call.
    fn begin_call(
        &mut self,
        index: Option<u64>,
        id: Json<'_>,
        name: Json<'_>,
        out: &mut Vec<u8>,
    ) -> Result<usize, Mistake> {
        if id.raw().len() > NAME_BYTES_MAX {
            return Err(Mistake::new("choices.delta.tool_calls.id", "the id is too long"));
        }
        if self.calls.len() == CALLS_MAX {
            return Err(Mistake::new("choices.delta.tool_calls", "there are too many calls"));
        }
        if let Some(block) = self.text.take() {
            stop(block, out);
        }
        self.stop_whole_calls(out);
        self.finish.has_calls = true;
        let block = self.open(out, |block| {
            block.text("type", "tool_use").raw("id", id.raw()).raw("name", name.raw()).raw("input", "{}");
        });
        self.calls.push(Call { index, id: id.raw().into(), block, arguments: Some(Box::new(Check::new())) });
        Ok(self.calls.len() - 1)
    }

    /// The next part of the arguments of a call.
    fn arguments(&mut self, at: usize, raw: Json<'_>, part: &str, out: &mut Vec<u8>) -> Result<(), Mistake> {
        let wrong = |text| Mistake::new("choices.delta.tool_calls.function.arguments", text);
        let call = &mut self.calls[at];
        // The word of some servers for a call without arguments.
        let is_null = |arguments: &Check| arguments.is_empty() && part.trim_ascii() == "null";
        let is_blank = part.trim_ascii().is_empty() || call.arguments.as_deref().is_some_and(is_null);
        let Some(arguments) = &mut call.arguments else {
            return if is_blank { Ok(()) } else { Err(wrong("the call has ended")) };
        };
        if arguments.is_empty() {
            if is_blank {
                return Ok(());
            }
            if !part.trim_ascii_start().starts_with('{') {
                return Err(wrong("the arguments are no JSON object"));
            }
        }
        arguments.push(part).map_err(|_| wrong("the arguments are no JSON object"))?;
        let block = call.block;
        emit("content_block_delta", out, |data| {
            data.number("index", block).object("delta").text("type", "input_json_delta").raw("partial_json", raw.raw());
        });
        Ok(())
    }

    /// Begins a block. Its index.
    fn open(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Members<'_>)) -> u64 {
        let index = self.blocks;
        self.blocks += 1;
        emit("content_block_start", out, |data| write(&mut data.number("index", index).object("content_block")));
        index
    }

    /// Ends the blocks of the calls that are whole.
    fn stop_whole_calls(&mut self, out: &mut Vec<u8>) {
        for call in &mut self.calls {
            if call.arguments.take_if(|arguments| arguments.is_whole()).is_some() {
                stop(call.block, out);
            }
        }
    }

    /// The stream has ended.
    pub(super) fn end(&mut self, losses: &mut Losses, out: &mut Vec<u8>) -> Result<(), Mistake> {
        if !self.is_finished() {
            return Err(Mistake::new("choices.finish_reason", "the stream ends without a reason"));
        }
        if self.finish.lacks_calls() {
            losses.add("choices", "finish_reason");
        }
        if self.tokens.is_empty() {
            // The zeros are no figures of the provider.
            losses.add("", "usage");
        }
        if let Some(block) = self.text.take() {
            stop(block, out);
        }
        for call in &mut self.calls {
            let Some(arguments) = call.arguments.take() else { continue };
            if !arguments.is_whole() && !arguments.is_empty() {
                if !self.finish.is_cut() {
                    let param = "choices.delta.tool_calls.function.arguments";
                    return Err(Mistake::new(param, "the arguments are no JSON object"));
                }
                losses.add("choices.message.tool_calls", "arguments");
            }
            stop(call.block, out);
        }
        emit("message_delta", out, |data| {
            write_stop(&mut data.object("delta"), self.finish, self.matched.as_deref());
            self.tokens.write_messages(data);
        });
        emit("message_stop", out, |_| {});
        Ok(())
    }
}

/// An object that is no chunk but an error, without the usual member around it.
fn is_report(data: &Object<'_>) -> bool {
    !data.has("choices") && ["message", "detail"].iter().any(|name| data.has(name))
}

fn stop(block: u64, out: &mut Vec<u8>) {
    emit("content_block_stop", out, |data| {
        data.number("index", block);
    });
}

/// Appends an event whose data has its name as type.
fn emit(name: &'static str, out: &mut Vec<u8>, write: impl FnOnce(&mut Members<'_>)) {
    let mut data = Vec::with_capacity(256);
    let mut members = Members::new(&mut data);
    members.text("type", name);
    write(&mut members);
    drop(members);
    event(out, Some(name), &data);
}
