//! The forms of responses.

use weir_analysis::ai::Endpoint;

/// The form of a response, buffered and as a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's chat completions, completions and embeddings: `usage` in the last chunk, then `[DONE]`.
    Chat,
    /// OpenAI's responses: named events, and `response.usage` in the last.
    Responses,
    /// Anthropic's messages: named events; input is reported at the beginning, output at the end.
    Anthropic,
}

impl Dialect {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Anthropic];

    /// The form in which an endpoint responds.
    pub const fn of(endpoint: Endpoint) -> Self {
        match endpoint {
            Endpoint::Chat | Endpoint::Completions | Endpoint::Embeddings => Self::Chat,
            Endpoint::Responses => Self::Responses,
            Endpoint::Messages => Self::Anthropic,
        }
    }
}
