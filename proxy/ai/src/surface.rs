//! The paths and methods of the APIs.

use weir_analysis::ai::Endpoint;

/// The meaning of a request by its method and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surface {
    /// A body with facts.
    Body(Endpoint),
    /// The list of models.
    Models,
    /// One model; where its name begins in the path.
    Model(usize),
    /// It is forwarded as it is.
    Forwarded,
    /// A body with facts that no provider bills: the tokens of such a request are counted.
    Count(Endpoint),
    /// The path exists, and not with this method.
    WrongMethod(&'static str),
    /// The path does not exist.
    Unknown,
}

/// Paths that are forwarded as they are, with what follows them behind a slash. Their bodies may be of any type and size.
const FORWARDED: [&str; 16] = [
    "/chat/completions",
    "/responses",
    "/messages/batches",
    "/moderations",
    "/images",
    "/audio",
    "/videos",
    "/files",
    "/uploads",
    "/batches",
    "/vector_stores",
    "/conversations",
    "/containers",
    "/fine_tuning",
    "/evals",
    "/rerank",
];

/// The endpoint whose tokens a path counts.
fn counted(path: &str) -> Option<Endpoint> {
    match path {
        "/messages/count_tokens" => Some(Endpoint::Messages),
        "/responses/input_tokens" => Some(Endpoint::Responses),
        _ => None,
    }
}

/// The path without the version in front, which is optional.
pub(crate) fn without_version(path: &str) -> &str {
    match path.strip_prefix("/v1") {
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

/// Splits a target at its query, which keeps its question mark.
pub(crate) fn split_query(target: &str) -> (&str, &str) {
    target.split_at(target.find('?').unwrap_or(target.len()))
}

impl Surface {
    /// The meaning of a request. `path`: without the query.
    pub(crate) fn of(method: &[u8], path: &str) -> Self {
        let own = without_version(path);
        if let Some(endpoint) = Endpoint::of_path(path) {
            return match (method, endpoint) {
                (b"POST", _) => Self::Body(endpoint),
                // The list of stored completions.
                (b"GET", Endpoint::Chat) => Self::Forwarded,
                (_, Endpoint::Chat) => Self::WrongMethod("GET, POST"),
                _ => Self::WrongMethod("POST"),
            };
        }
        if let Some(endpoint) = counted(own) {
            return if method == b"POST" { Self::Count(endpoint) } else { Self::WrongMethod("POST") };
        }
        let model = own.strip_prefix("/models/").filter(|name| !name.is_empty());
        match (method, model) {
            (b"GET" | b"HEAD", None) if own == "/models" => Self::Models,
            (b"GET" | b"HEAD", Some(name)) => Self::Model(path.len() - name.len()),
            (_, model) if model.is_some() || own == "/models" => Self::WrongMethod("GET, HEAD"),
            _ if is_forwarded(own) => Self::Forwarded,
            _ => Self::Unknown,
        }
    }
}

fn is_forwarded(path: &str) -> bool {
    FORWARDED.iter().any(|known| path.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_methods() {
        let rows: &[(&str, &str, Surface)] = &[
            ("POST", "/v1/chat/completions", Surface::Body(Endpoint::Chat)),
            ("POST", "/embeddings", Surface::Body(Endpoint::Embeddings)),
            ("GET", "/v1/chat/completions", Surface::Forwarded),
            ("DELETE", "/v1/chat/completions", Surface::WrongMethod("GET, POST")),
            ("DELETE", "/v1/chat/completions/chatcmpl-1", Surface::Forwarded),
            ("GET", "/v1/responses", Surface::WrongMethod("POST")),
            ("GET", "/v1/responses/resp_1/input_items", Surface::Forwarded),
            ("GET", "/v1/models", Surface::Models),
            ("GET", "/models/a/b", Surface::Model(8)),
            ("GET", "/v1/models/m", Surface::Model(11)),
            ("GET", "/v1/models/", Surface::Unknown),
            ("POST", "/v1/models", Surface::WrongMethod("GET, HEAD")),
            ("DELETE", "/v1/models/m", Surface::WrongMethod("GET, HEAD")),
            ("POST", "/v1/audio/speech", Surface::Forwarded),
            ("POST", "/v1/messages/count_tokens", Surface::Count(Endpoint::Messages)),
            ("POST", "/responses/input_tokens", Surface::Count(Endpoint::Responses)),
            ("GET", "/v1/responses/input_tokens", Surface::WrongMethod("POST")),
            ("POST", "/v1/audiobooks", Surface::Unknown),
            ("POST", "/v1/v1/chat/completions", Surface::Unknown),
            ("POST", "/v2/chat/completions", Surface::Unknown),
            ("GET", "/", Surface::Unknown),
        ];
        for (method, path, wanted) in rows {
            assert_eq!(Surface::of(method.as_bytes(), path), *wanted, "{method} {path}");
        }
    }
}
