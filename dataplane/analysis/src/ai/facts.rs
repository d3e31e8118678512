//! The facts of a body.

use super::endpoint::Endpoint;
use super::options::Options;
use super::prompts::Prompts;
use super::span::Span;
use super::tools::Tools;

/// The parts of a body that a policy needs beside the options and the tools, which every body has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The texts of prompts per role, and the calls of tools.
    pub prompts: bool,
}

/// The items of a prompt that is an array, in completions and embeddings. One text has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptItems {
    /// Prompts: texts, and arrays of tokens. Completions generate output for each.
    pub prompts: u64,
    /// Tokens by their numbers, in the array itself or in arrays within it. A token has two bytes at the least.
    pub tokens: u64,
}

/// The facts of one body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The kind of the body.
    pub endpoint: Endpoint,
    /// The object that the body is: the last byte of the span is its closing brace.
    pub body: Span,
    /// Members of that object.
    pub members: u64,
    /// Model, limits, attribution.
    pub options: Options,
    /// Tools that the model may call.
    pub tools: Tools,
    /// The messages, the input or the prompt.
    pub messages: Span,
    /// Items of it, if it is an array: messages, texts or tokens.
    pub messages_count: u64,
    /// The kinds of these items, if the endpoint takes prompts: completions and embeddings.
    pub items: PromptItems,
    /// The instructions, or the system prompt, if they stand apart.
    pub instructions: Span,
    /// Empty unless [`Wanted::prompts`] was set.
    pub prompts: Prompts,
}

impl Facts {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            body: Span::default(),
            members: 0,
            options: Options::default(),
            tools: Tools::default(),
            messages: Span::default(),
            messages_count: 0,
            items: PromptItems::default(),
            instructions: Span::default(),
            prompts: Prompts::default(),
        }
    }

    /// Choices that the request makes a server generate, at least 1: so many for each prompt.
    pub fn choices(&self) -> u64 {
        let prompts = if self.endpoint == Endpoint::Completions { self.items.prompts.max(1) } else { 1 };
        self.options.choices().saturating_mul(prompts)
    }

    /// Bytes of the prompt as it came, tools included: the base of an estimate.
    pub fn prompt_bytes(&self) -> u64 {
        let parts = [self.messages, self.instructions, self.tools.span, self.tools.more_span];
        parts.iter().map(|span| u64::from(span.len())).sum()
    }
}
