//! Tokens in the words of both dialects.

use weir_ai_session::usage::TOKENS_MAX;
use weir_json_codec::{IntegerError, integer};

use crate::json::{Json, Object};
use crate::write::Members;

/// Tokens as Anthropic counts them: the three figures of input are apart. Each is at most [`TOKENS_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    input: Option<u64>,
    cached: Option<u64>,
    written: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
}

impl Tokens {
    /// Neither input nor output is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_none() && self.output.is_none()
    }

    /// Takes a report of Anthropic's. Figures come at different times, and each replaces its own.
    pub(crate) fn take_messages(&mut self, usage: Json<'_>) {
        let Ok(mut usage) = Object::read(usage, "usage") else { return };
        let mut replace = |place: &mut Option<u64>, name| *place = usage.take(name).and_then(tokens).or(*place);
        replace(&mut self.input, "input_tokens");
        replace(&mut self.cached, "cache_read_input_tokens");
        replace(&mut self.written, "cache_creation_input_tokens");
        replace(&mut self.output, "output_tokens");
        let details = usage.object("output_tokens_details", "usage").ok().flatten();
        let thinking = details.and_then(|mut details| details.take("thinking_tokens"));
        self.reasoning = thinking.and_then(tokens).or(self.reasoning);
    }

    /// A report of a chat. It replaces all earlier ones.
    pub(crate) fn of_chat(usage: Json<'_>) -> Self {
        let Ok(mut usage) = Object::read(usage, "usage") else { return Self::default() };
        let mut figure = |name| usage.take(name).and_then(tokens);
        let (prompt, output) = (figure("prompt_tokens"), figure("completion_tokens"));
        let mut details = |name| usage.object(name, "usage").ok().flatten();
        let (mut of_prompt, mut of_output) = (details("prompt_tokens_details"), details("completion_tokens_details"));
        let part = |details: &mut Option<Object<'_>>, name, whole: Option<u64>| {
            let part = details.as_mut()?.take(name).and_then(tokens)?;
            Some(part.min(whole.unwrap_or(0)))
        };
        let cached = part(&mut of_prompt, "cached_tokens", prompt);
        let uncached = prompt.map(|prompt| prompt - cached.unwrap_or(0));
        let written = part(&mut of_prompt, "cache_write_tokens", uncached);
        Self {
            input: uncached.map(|uncached| uncached - written.unwrap_or(0)),
            cached,
            written,
            output,
            reasoning: part(&mut of_output, "reasoning_tokens", output),
        }
    }

    /// Writes `usage` of a chat. Its input includes the cached part.
    pub(crate) fn write_chat(&self, message: &mut Members<'_>) {
        let figure = |figure: Option<u64>| figure.unwrap_or(0);
        let prompt = figure(self.input) + figure(self.cached) + figure(self.written);
        let output = figure(self.output);
        let mut usage = message.object("usage");
        usage.number("prompt_tokens", prompt).number("completion_tokens", output);
        usage.number("total_tokens", prompt + output);
        if self.cached.is_some() || self.written.is_some() {
            let mut details = usage.object("prompt_tokens_details");
            details.number("cached_tokens", figure(self.cached));
            if let Some(written) = self.written {
                details.number("cache_write_tokens", written);
            }
        }
        if let Some(reasoning) = self.reasoning {
            usage.object("completion_tokens_details").number("reasoning_tokens", reasoning);
        }
    }

    /// Writes Anthropic's `usage`. A figure that is required and unknown is zero.
    pub(crate) fn write_messages(&self, message: &mut Members<'_>) {
        let mut usage = message.object("usage");
        usage.number("input_tokens", self.input.unwrap_or(0));
        for (name, figure) in [("cache_creation_input_tokens", self.written), ("cache_read_input_tokens", self.cached)]
        {
            if let Some(figure) = figure {
                usage.number(name, figure);
            }
        }
        usage.number("output_tokens", self.output.unwrap_or(0));
        if let Some(reasoning) = self.reasoning {
            usage.object("output_tokens_details").number("thinking_tokens", reasoning);
        }
    }
}

/// The tokens that a number stands for. A lie is cut to a bound. A value that is no integer is not reported.
fn tokens(number: Json<'_>) -> Option<u64> {
    match integer(number.raw().as_bytes(), TOKENS_MAX) {
        Ok(tokens) => Some(tokens),
        Err(IntegerError::Negative) => Some(0),
        Err(IntegerError::TooLarge) => Some(TOKENS_MAX),
        Err(IntegerError::Form) => None,
    }
}
