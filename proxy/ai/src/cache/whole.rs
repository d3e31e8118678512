//! Whether a whole body is fit to be stored.

use weir_analysis::ai::Endpoint;
use weir_json_codec::{Duplicates, Kind, Node, Scanner, Sink, Value};

/// The members that say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Body,
    Error,
    Status,
}

static RESPONSE: Node<Member> = Node::value(Member::Body)
    .members(&[("error", Node::value(Member::Error)), ("status", Node::value(Member::Status))]);

/// Whether the body of a 200 is one whole object without an error. A connection that ends early can cut a body without a sign, and a
/// response may say within that it failed.
pub(crate) fn is_fit(endpoint: Endpoint, body: &[u8]) -> bool {
    let mut found = Found { endpoint, is_object: false, is_failed: false };
    let mut scanner = Scanner::new(&RESPONSE, Duplicates::Report);
    let is_json = scanner.push(body, &mut found).is_ok() && scanner.finish(&mut found).is_ok();
    is_json && found.is_object && !found.is_failed
}

struct Found {
    endpoint: Endpoint,
    is_object: bool,
    is_failed: bool,
}

impl Sink<Member> for Found {
    fn value(&mut self, value: Value<'_, Member>) {
        match value.path {
            Member::Body => self.is_object = value.kind == Kind::Object,
            Member::Error => self.is_failed |= value.kind != Kind::Null,
            Member::Status if self.endpoint == Endpoint::Responses => {
                self.is_failed |= !matches!(value.string(), Some(b"completed" | b"incomplete"));
            }
            Member::Status => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_object_without_an_error_is_fit() {
        for (endpoint, body, wanted) in [
            (Endpoint::Chat, r#"{"choices":[{"message":{"content":"a"}}],"usage":{}}"#, true),
            (Endpoint::Chat, r#"{"choices":[],"error":null,"status":"x"}"#, true),
            (Endpoint::Chat, r#"{"error":{"message":"m"}}"#, false),
            (Endpoint::Chat, r#"{"choices":[{"mess"#, false),
            (Endpoint::Chat, r#"{"choices":[]} {"#, false),
            (Endpoint::Chat, "[]", false),
            (Endpoint::Chat, "", false),
            (Endpoint::Chat, "<html>", false),
            (Endpoint::Responses, r#"{"status":"completed","error":null}"#, true),
            (Endpoint::Responses, r#"{"status":"incomplete"}"#, true),
            (Endpoint::Responses, r#"{"status":"failed"}"#, false),
            (Endpoint::Responses, r#"{"status":"in_progress"}"#, false),
        ] {
            assert_eq!(is_fit(endpoint, body.as_bytes()), wanted, "{body}");
        }
    }
}
