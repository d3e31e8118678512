//! The two pairs of dialects.

use weir_ai_session::Dialect;

/// The dialect of the client, and that of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The client speaks OpenAI's chat completions, the provider Anthropic's messages.
    ChatToMessages,
    /// The client speaks Anthropic's messages, the provider OpenAI's chat completions.
    MessagesToChat,
}

impl Direction {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::ChatToMessages, Self::MessagesToChat];

    /// Between a client and a provider. `None`: no translation exists, or none is needed.
    pub const fn between(client: Dialect, provider: Dialect) -> Option<Self> {
        match (client, provider) {
            (Dialect::Chat, Dialect::Anthropic) => Some(Self::ChatToMessages),
            (Dialect::Anthropic, Dialect::Chat) => Some(Self::MessagesToChat),
            _ => None,
        }
    }

    /// The dialect of the client.
    pub const fn client(self) -> Dialect {
        match self {
            Self::ChatToMessages => Dialect::Chat,
            Self::MessagesToChat => Dialect::Anthropic,
        }
    }

    /// The dialect of the provider.
    pub const fn provider(self) -> Dialect {
        match self {
            Self::ChatToMessages => Dialect::Anthropic,
            Self::MessagesToChat => Dialect::Chat,
        }
    }

    /// The path of a translated request, below the provider's `/v1`.
    pub const fn path(self) -> &'static str {
        match self {
            Self::ChatToMessages => "/messages",
            Self::MessagesToChat => "/chat/completions",
        }
    }
}
