//! Prompts for language models, and the replies that the origin is to give.

use std::time::Duration;

use weir_base::secret::Secret;

/// The prompts of a scenario of language models, and the replies that the origin is to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ai {
    /// Kind of request and reply.
    pub workload: AiWorkload,
    /// Bytes of the user's message. Default 512.
    pub prompt_bytes: usize,
    /// Events with text of a stream. Default 64.
    pub events: u32,
    /// Wait of the origin before the first event of a paced stream. Default 200 ms.
    pub first: Duration,
    /// The same before each further event. Default 20 ms: 50 events per second.
    pub gap: Duration,
    /// Schemas of tools in each request of an agent. Default 8.
    pub tools: u32,
    /// The model. Default `weir-small`.
    pub model: String,
    /// The key; `None`: requests have none.
    pub key: Option<Secret>,
    /// Header lines that a gateway needs in each request, without line ends: its description says which. Not of a file.
    pub fields: Vec<String>,
}

impl Default for Ai {
    fn default() -> Self {
        Self {
            workload: AiWorkload::Llm,
            prompt_bytes: 512,
            events: 64,
            first: Duration::from_millis(200),
            gap: Duration::from_millis(20),
            tools: 8,
            model: "weir-small".to_owned(),
            key: None,
            fields: Vec::new(),
        }
    }
}

/// Kinds of requests to a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AiWorkload {
    /// A prompt, and a whole reply.
    Llm,
    /// The same as events.
    Stream,
    /// The same with waits between the events.
    Paced,
    /// A conversation with the schemas of tools, and a call of one.
    Agent,
}

impl AiWorkload {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Llm, Self::Stream, Self::Paced, Self::Agent];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Stream => "stream",
            Self::Paced => "paced",
            Self::Agent => "agent",
        }
    }

    /// Replies come as events.
    #[must_use]
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::Paced)
    }
}
