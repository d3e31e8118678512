//! The check of each reply: its text byte by byte, or its call, then its end and its usage.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::text::{Texts, Word, tokens_of, word};
use crate::protocols::messages::name_of;
use crate::requests::{Expectation, Integrity, PlanPosition};
use crate::shard::Shard;
use crate::values::Values;

/// Properties of every reply of a scenario.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) is_stream: bool,
    pub(super) is_call: bool,
    /// Bytes of the text.
    pub(super) bytes: usize,
    pub(super) prompt_tokens: u64,
}

/// The replies of a shard.
#[derive(Debug)]
pub(super) struct Replies {
    pub(super) shard: Shard,
    pub(super) values: Values,
    pub(super) texts: Texts,
    pub(super) expected: Expected,
}

impl Expectation for Replies {
    fn check(&self, place: PlanPosition, reply: &[u8]) -> Option<Integrity> {
        let word = word(self.values.word(name_of(self.shard, place.at)));
        let reading = Reading {
            replies: self,
            word,
            said: 0,
            arguments: String::new(),
            is_foreign: false,
            finish: None,
            usage: None,
        };
        let found = if self.expected.is_stream { reading.stream(reply) } else { reading.whole(reply) };
        Some(found.unwrap_or(Integrity::Mismatch))
    }
}

#[derive(Deserialize)]
struct Completion<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
}

/// A choice of a whole reply, or of a chunk.
#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    message: Option<Said<'a>>,
    #[serde(borrow)]
    delta: Option<Said<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    content: Option<Text<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Call<'a>>>,
}

/// A string that is not copied if nothing in it has to be undone.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    arguments: Option<Text<'a>>,
}

#[derive(Clone, Copy, Deserialize)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

/// One reply, as far as it was read.
struct Reading<'a> {
    replies: &'a Replies,
    word: Word,
    /// Bytes of its text.
    said: usize,
    /// Arguments of its calls.
    arguments: String,
    /// A piece of its text is not its own.
    is_foreign: bool,
    finish: Option<bool>,
    usage: Option<Usage>,
}

impl Reading<'_> {
    /// `None`: it has another form.
    fn whole(mut self, reply: &[u8]) -> Option<Integrity> {
        self.read(reply)?;
        self.judge()
    }

    /// The same for the events of a stream, which must end with `[DONE]`.
    fn stream(mut self, reply: &[u8]) -> Option<Integrity> {
        let mut is_done = false;
        for line in reply.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii_start) else { continue };
            if is_done {
                return None;
            }
            if data == b"[DONE]" {
                is_done = true;
            } else {
                self.read(data)?;
            }
        }
        if is_done { self.judge() } else { None }
    }

    fn read(&mut self, json: &[u8]) -> Option<()> {
        let completion: Completion<'_> = serde_json::from_slice(json).ok()?;
        for choice in &completion.choices {
            for said in [&choice.message, &choice.delta].into_iter().flatten() {
                if let Some(Text(content)) = &said.content {
                    self.is_foreign |= !self.replies.texts.has(&self.word, self.said, content.as_bytes());
                    self.said += content.len();
                }
                for call in said.tool_calls.iter().flatten() {
                    let Some(Text(piece)) = call.function.as_ref().and_then(|function| function.arguments.as_ref())
                    else {
                        continue;
                    };
                    self.arguments.push_str(piece);
                }
            }
            if let Some(reason) = &choice.finish_reason {
                let wanted = if self.replies.expected.is_call { "tool_calls" } else { "stop" };
                self.finish = Some(reason == wanted);
            }
        }
        self.usage = completion.usage.or(self.usage);
        Some(())
    }

    fn judge(&self) -> Option<Integrity> {
        let Expected { is_call, bytes, prompt_tokens, .. } = self.replies.expected;
        let completion_tokens = match is_call {
            true if !self.is_call() => return None,
            true => tokens_of(self.arguments.len()),
            false if self.said == 0 => return Some(Integrity::Missing),
            false if self.is_foreign || self.said != bytes => return None,
            false => tokens_of(bytes),
        };
        let usage = self.usage?;
        let is_right = usage.prompt_tokens == prompt_tokens
            && usage.completion_tokens == completion_tokens
            && usage.total_tokens == prompt_tokens + completion_tokens
            && self.finish == Some(true);
        is_right.then_some(Integrity::Ok)
    }

    /// Its arguments are those that the origin makes for the schemas of the plan.
    fn is_call(&self) -> bool {
        let word = String::from_utf8_lossy(&self.word);
        let wanted = json!({
            "query": format!("query {word}"),
            "limit": 7,
            "unit": "metric",
            "tags": [format!("tags {word}"), format!("tags {word}")],
        });
        serde_json::from_str::<Value>(&self.arguments).is_ok_and(|found| found == wanted)
    }
}
