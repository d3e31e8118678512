//! From a method and a target to an endpoint.

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint<'a> {
    /// OpenAI's chat completions.
    Chat,
    /// Its completions of a prompt.
    Completions,
    /// Its responses.
    Responses,
    /// Its embeddings.
    Embeddings,
    /// Anthropic's messages.
    Messages,
    /// The count of their tokens.
    CountTokens,
    /// All models.
    Models,
    /// One of them.
    Model(&'a str),
    /// The ledger, with its query.
    Ledger(&'a str),
    /// An empty ledger from now on.
    ClearLedger,
    /// The number of requests so far.
    Requests,
    /// Whether it serves.
    Health,
    /// A path that is there, with another method; the right one.
    WrongMethod(&'static str),
    /// Nothing.
    Unknown,
}

impl Endpoint<'_> {
    /// As the ledger calls it; `None`: no model is behind it.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::Messages => "messages",
            _ => return None,
        })
    }

    /// Errors have Anthropic's form.
    pub fn is_anthropic(self) -> bool {
        matches!(self, Self::Messages | Self::CountTokens)
    }
}

/// The endpoint of a request.
pub fn endpoint<'a>(method: &[u8], target: &'a [u8]) -> Endpoint<'a> {
    let Ok(target) = std::str::from_utf8(target) else { return Endpoint::Unknown };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let is = |wanted: &str| method == wanted.as_bytes() || (wanted == "GET" && method == b"HEAD");
    let found = match stripped(path) {
        "/chat/completions" => ("POST", Endpoint::Chat),
        "/completions" => ("POST", Endpoint::Completions),
        "/responses" => ("POST", Endpoint::Responses),
        "/embeddings" => ("POST", Endpoint::Embeddings),
        "/messages" => ("POST", Endpoint::Messages),
        "/messages/count_tokens" => ("POST", Endpoint::CountTokens),
        "/models" => ("GET", Endpoint::Models),
        "/ledger" if is("DELETE") => ("DELETE", Endpoint::ClearLedger),
        "/ledger" => ("GET", Endpoint::Ledger(query)),
        "/requests" => ("GET", Endpoint::Requests),
        "/health" | "/" => ("GET", Endpoint::Health),
        path => match path.strip_prefix("/models/") {
            Some(model) if !model.is_empty() => ("GET", Endpoint::Model(model)),
            _ => return Endpoint::Unknown,
        },
    };
    if is(found.0) { found.1 } else { Endpoint::WrongMethod(found.0) }
}

/// The path behind `/v1`, `/openai/v1` or `/openai/deployments/MODEL`, which is Azure's.
fn stripped(path: &str) -> &str {
    if let Some(rest) = path.strip_prefix("/openai/deployments/") {
        return rest.find('/').map_or("", |at| &rest[at..]);
    }
    let path = path.strip_prefix("/openai").unwrap_or(path);
    match path.strip_prefix("/v1") {
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_its_aliases() {
        for path in [
            "/v1/chat/completions",
            "/chat/completions",
            "/openai/v1/chat/completions",
            "/openai/deployments/gpt-x/chat/completions?api-version=2024-10-21",
        ] {
            assert_eq!(endpoint(b"POST", path.as_bytes()), Endpoint::Chat, "{path}");
        }
        assert_eq!(endpoint(b"GET", b"/v1/models/a/b"), Endpoint::Model("a/b"));
        assert_eq!(endpoint(b"GET", b"/ledger?from=3"), Endpoint::Ledger("from=3"));
        assert_eq!(endpoint(b"DELETE", b"/ledger"), Endpoint::ClearLedger);
        assert_eq!(endpoint(b"GET", b"/v1/chat/completions"), Endpoint::WrongMethod("POST"));
        for unknown in ["/v1", "/v2/models", "/v1/models/", "/openai/deployments/x", "chat/completions"] {
            assert_eq!(endpoint(b"POST", unknown.as_bytes()), Endpoint::Unknown, "{unknown}");
        }
    }
}
