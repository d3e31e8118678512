//! An error behind the head of a response: an event in the form that the SDKs of the dialect raise.

use weir_json_codec::write::string;
use weir_sse_codec::write::event;

use crate::dialect::Dialect;

/// A failure of a stream. The texts are those of the gateway: no prompt, key or address is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The class, such as `server_error`. Anthropic's is [`anthropic_kind`](Self::anthropic_kind).
    pub kind: &'a str,
    /// The class in Anthropic's words, such as `api_error` or `overloaded_error`.
    pub anthropic_kind: &'a str,
    /// The code that clients branch on, such as `idle_timeout`.
    pub code: &'a str,
    /// The text.
    pub message: &'a str,
}

impl Failure<'_> {
    /// Appends the event. `sequence` is the number of the event in a stream of [`Dialect::Responses`].
    pub fn write(&self, dialect: Dialect, sequence: u64, out: &mut Vec<u8>) {
        let mut data = Vec::with_capacity(192);
        match dialect {
            Dialect::Chat => {
                data.extend_from_slice(b"{\"error\":");
                self.object(&mut data);
                data.push(b'}');
                event(out, None, &data);
            }
            // The members beside the type are those of the specification. The object is that of the live service, and
            // of the SDKs: an event without it is an event like any other to them, and the stream ends as if by itself.
            Dialect::Responses => {
                data.extend_from_slice(b"{\"type\":\"error\",\"sequence_number\":");
                data.extend_from_slice(itoa::Buffer::new().format(sequence).as_bytes());
                data.extend_from_slice(b",\"code\":");
                string(&mut data, self.code);
                data.extend_from_slice(b",\"message\":");
                string(&mut data, self.message);
                data.extend_from_slice(b",\"param\":null,\"error\":");
                self.object(&mut data);
                data.push(b'}');
                event(out, Some("error"), &data);
            }
            Dialect::Anthropic => {
                data.extend_from_slice(b"{\"type\":\"error\",\"error\":{\"type\":");
                string(&mut data, self.anthropic_kind);
                data.extend_from_slice(b",\"message\":");
                string(&mut data, self.message);
                data.extend_from_slice(b"}}");
                event(out, Some("error"), &data);
            }
        }
    }

    /// OpenAI's error object.
    fn object(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"message\":");
        string(out, self.message);
        out.extend_from_slice(b",\"type\":");
        string(out, self.kind);
        out.extend_from_slice(b",\"param\":null,\"code\":");
        string(out, self.code);
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a11_each_dialect_gets_one_event_of_valid_json() {
        let message = "late:\r\n\r\ndata: {\"x\":1}\u{7}";
        let failure = Failure { kind: "server_error", anthropic_kind: "api_error", code: "idle_timeout", message };
        for dialect in Dialect::ALL {
            let mut out = Vec::new();
            failure.write(dialect, 7, &mut out);
            let mut splitter = weir_sse_codec::Splitter::default();
            let unit = splitter.next(&out).expect("within limits").expect("an event");
            assert_eq!(unit.bytes, out.len(), "one event and no more");
            assert_eq!(unit.name.is_some(), dialect != Dialect::Chat);
            let data: serde_json::Value = serde_json::from_slice(unit.data.expect("data")).expect("JSON");
            assert_eq!(data["error"]["message"], message);
            let kind = if dialect == Dialect::Anthropic { "api_error" } else { "server_error" };
            assert_eq!(data["error"]["type"], kind);
            if dialect == Dialect::Responses {
                assert_eq!((&data["sequence_number"], &data["code"]), (&7.into(), &"idle_timeout".into()));
            }
        }
    }
}
