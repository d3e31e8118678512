//! Tokens in the words of both dialects.

use weir_ai_session::usage::TOKENS_MAX;
use weir_json_codec::{IntegerError, integer};

use crate::json::{Json, Object};
use crate::loss::Losses;
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
    pub(crate) fn take_messages(&mut self, usage: Json<'_>, losses: &mut Losses) {
        let Ok(mut usage) = Object::read(usage, "usage") else { return };
        let mut replace = |place: &mut Option<u64>, name| *place = usage.take(name).and_then(tokens).or(*place);
        replace(&mut self.input, "input_tokens");
        replace(&mut self.cached, "cache_read_input_tokens");
        replace(&mut self.written, "cache_creation_input_tokens");
        replace(&mut self.output, "output_tokens");
        if let Some(mut details) = details(&mut usage, "output_tokens_details", "usage.output_tokens_details") {
            self.reasoning = details.take("thinking_tokens").and_then(tokens).or(self.reasoning);
            details.rest(losses);
        }
        // Its sum is a figure of its own; the part of an hour has another price.
        if let Some(mut written) = details(&mut usage, "cache_creation", "usage.cache_creation") {
            written.take("ephemeral_5m_input_tokens");
            written.rest(losses);
        }
        if let Some(used) = details(&mut usage, "server_tool_use", "usage.server_tool_use") {
            used.rest(losses);
        }
        if let Some(tier) = usage.take("service_tier").filter(|tier| tier.raw() != "\"standard\"") {
            losses.add_value("usage", "service_tier", tier);
        }
        usage.rest(losses);
    }

    /// A report of a chat. It replaces all earlier ones. Compatible servers mix the words of chats and responses, and
    /// `weir_ai_session::usage` bills by the same words.
    pub(crate) fn of_chat(usage: Json<'_>, losses: &mut Losses) -> Self {
        let Ok(mut usage) = Object::read(usage, "usage") else { return Self::default() };
        let mut either = |names: [&str; 2]| {
            let [first, second] = names.map(|name| usage.take(name).and_then(tokens));
            first.or(second)
        };
        let prompt = either(["prompt_tokens", "input_tokens"]);
        let output = either(["completion_tokens", "output_tokens"]);
        // DeepSeek's words.
        let hit = either(["prompt_cache_hit_tokens", ""]);
        let mut either = |names: [&str; 2], place| {
            let [first, second] = names.map(|name| details(&mut usage, name, place));
            first.or(second)
        };
        let of_prompt = ["prompt_tokens_details", "input_tokens_details"];
        let mut of_prompt = either(of_prompt, "usage.prompt_tokens_details");
        let of_output = ["completion_tokens_details", "output_tokens_details"];
        let mut of_output = either(of_output, "usage.completion_tokens_details");
        let figure = |details: &mut Option<Object<'_>>, name| details.as_mut()?.take(name).and_then(tokens);
        let part = |part: Option<u64>, whole: Option<u64>| part.map(|part| part.min(whole.unwrap_or(0)));
        let cached = part(figure(&mut of_prompt, "cached_tokens").or(hit), prompt);
        let uncached = prompt.map(|prompt| prompt - cached.unwrap_or(0));
        let written = part(figure(&mut of_prompt, "cache_write_tokens"), uncached);
        let reasoning = part(figure(&mut of_output, "reasoning_tokens"), output);
        for details in of_prompt.iter().chain(&of_output) {
            details.rest(losses);
        }
        // Sums and differences of the others.
        for name in ["total_tokens", "prompt_cache_miss_tokens"] {
            usage.take(name);
        }
        usage.rest(losses);
        Self { input: uncached.map(|uncached| uncached - written.unwrap_or(0)), cached, written, output, reasoning }
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

/// The details of a figure. Details of another type are not reported.
fn details<'a>(usage: &mut Object<'a>, name: &str, place: &'static str) -> Option<Object<'a>> {
    usage.object(name, place).ok().flatten()
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
