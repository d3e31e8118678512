//! Headers that belong to one dialect, or to the bytes of a body that is translated. All others pass; the credentials,
//! and the length of the new body, are those of the shell.

use std::borrow::Cow;

use crate::direction::Direction;

/// The version of Anthropic's API that the translation writes: the value of `anthropic-version` in a translated request.
pub const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Whether a header of the client's request goes on to the provider. `name` is in lower case.
///
/// A client of the other dialect sends no version, or one that means nothing to the provider. The shell adds
/// `anthropic-version` in [`Direction::ChatToMessages`].
pub fn passes_request(direction: Direction, name: &str) -> bool {
    let foreign = match direction {
        Direction::ChatToMessages => "openai-",
        Direction::MessagesToChat => "anthropic-",
    };
    // The shell adds the version, and there must be one.
    !name.starts_with(foreign) && name != "anthropic-version" && !is_of_bytes(name)
}

/// The header describes the bytes of a body, which the translation replaces.
fn is_of_bytes(name: &str) -> bool {
    let names = [
        "content-length",
        "content-encoding",
        "content-md5",
        "content-digest",
        "repr-digest",
        "digest",
        "etag",
        "last-modified",
        "transfer-encoding",
        "trailer",
        "content-range",
        "accept-ranges",
    ];
    names.contains(&name)
}

/// The name that a header of the provider's response has for the client. `name` is in lower case. `None`: the header is
/// left out, since its value has another form there.
///
/// A limit and its rest are counts in both dialects. The time of the reset is a duration in one and a date in the other.
/// Anthropic's separate limits of input and output have no counterpart.
pub fn response_name(direction: Direction, name: &str) -> Option<Cow<'_, str>> {
    if is_of_bytes(name) {
        return None;
    }
    match direction {
        Direction::ChatToMessages => match name {
            "request-id" => Some("x-request-id".into()),
            _ => match name.strip_prefix("anthropic-") {
                None => Some(name.into()),
                Some(rest) => {
                    let (kind, part) = rest.strip_prefix("ratelimit-")?.rsplit_once('-')?;
                    is_count(kind, part).then(|| format!("x-ratelimit-{part}-{kind}").into())
                }
            },
        },
        Direction::MessagesToChat => match name {
            "x-request-id" => Some("request-id".into()),
            _ if name.starts_with("openai-") => None,
            _ => match name.strip_prefix("x-ratelimit-") {
                None => Some(name.into()),
                Some(rest) => {
                    let (part, kind) = rest.split_once('-')?;
                    is_count(kind, part).then(|| format!("anthropic-ratelimit-{kind}-{part}").into())
                }
            },
        },
    }
}

fn is_count(kind: &str, part: &str) -> bool {
    matches!(kind, "requests" | "tokens") && matches!(part, "limit" | "remaining")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_dialect_are_renamed_or_left_out() {
        use Direction::{ChatToMessages, MessagesToChat};
        for (direction, name, wanted) in [
            (ChatToMessages, "request-id", Some("x-request-id")),
            (ChatToMessages, "anthropic-ratelimit-requests-limit", Some("x-ratelimit-limit-requests")),
            (ChatToMessages, "anthropic-ratelimit-tokens-remaining", Some("x-ratelimit-remaining-tokens")),
            (ChatToMessages, "anthropic-ratelimit-tokens-reset", None),
            (ChatToMessages, "anthropic-ratelimit-input-tokens-limit", None),
            (ChatToMessages, "anthropic-organization-id", None),
            (ChatToMessages, "retry-after", Some("retry-after")),
            (MessagesToChat, "x-request-id", Some("request-id")),
            (MessagesToChat, "x-ratelimit-limit-requests", Some("anthropic-ratelimit-requests-limit")),
            (MessagesToChat, "x-ratelimit-reset-tokens", None),
            (MessagesToChat, "openai-processing-ms", None),
            (MessagesToChat, "content-type", Some("content-type")),
        ] {
            assert_eq!(response_name(direction, name).as_deref(), wanted, "{name}");
        }
        assert!(!passes_request(MessagesToChat, "anthropic-beta") && passes_request(MessagesToChat, "user-agent"));
        assert!(!passes_request(ChatToMessages, "openai-organization"));
        for direction in Direction::ALL {
            assert!(!passes_request(direction, "anthropic-version"), "the shell adds the only one");
            for name in ["content-length", "content-encoding", "etag", "transfer-encoding"] {
                assert!(!passes_request(direction, name) && response_name(direction, name).is_none(), "{name}");
            }
        }
    }
}
