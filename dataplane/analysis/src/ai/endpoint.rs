//! The kinds of bodies.

/// An endpoint with a body that has facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// OpenAI's `/chat/completions`.
    Chat,
    /// OpenAI's `/responses`.
    Responses,
    /// OpenAI's legacy `/completions`.
    Completions,
    /// OpenAI's `/embeddings`.
    Embeddings,
    /// Anthropic's `/messages`.
    Messages,
}

impl Endpoint {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Chat, Self::Responses, Self::Completions, Self::Embeddings, Self::Messages];

    /// By the path of a POST, with or without the `/v1` in front. `None`: another endpoint, whose body has no facts.
    pub fn of_path(path: &str) -> Option<Self> {
        match path.strip_prefix("/v1").unwrap_or(path) {
            "/chat/completions" => Some(Self::Chat),
            "/responses" => Some(Self::Responses),
            "/completions" => Some(Self::Completions),
            "/embeddings" => Some(Self::Embeddings),
            "/messages" => Some(Self::Messages),
            _ => None,
        }
    }

    /// The name of its operation in OpenTelemetry's conventions for generative AI (`gen_ai.operation.name`).
    pub const fn operation(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses | Self::Messages => "chat",
            Self::Completions => "text_completion",
            Self::Embeddings => "embeddings",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_an_endpoint_with_and_without_the_version() {
        assert_eq!(Endpoint::of_path("/v1/chat/completions"), Some(Endpoint::Chat));
        assert_eq!(Endpoint::of_path("/messages"), Some(Endpoint::Messages));
        for path in
            ["/v1/messages/count_tokens", "/v1/models", "/v1", "/v1/v1/responses", "chat/completions", "/Responses"]
        {
            assert_eq!(Endpoint::of_path(path), None, "{path}");
        }
    }
}
