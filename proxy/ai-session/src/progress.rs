//! Output of a stream so far: what a client that leaves has received, and the least that a report may claim.

use std::sync::LazyLock;

use memchr::memchr2;
use memchr::memmem::Finder;

use crate::dialect::Dialect;
use crate::estimate::TokenEstimate;

static DELTA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"delta\":"));
/// Completions have no delta.
static TEXT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"text\":"));
/// The reason for the end of a choice or message, in chats and messages: a key, since the quotes within a string have backslashes.
static FINISH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"finish_reason\":"));
static STOP: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"stop_reason\":"));
/// The end of a part of the output, in responses.
static PART_ENDS: LazyLock<[Finder<'static>; 3]> = LazyLock::new(|| {
    [
        Finder::new(b"\"response.output_text.done\""),
        Finder::new(b"\"response.refusal.done\""),
        Finder::new(b"\"response.function_call_arguments.done\""),
    ]
});
static KEY_END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\":"));

/// Members of a delta that are output of the model.
const OUTPUT: [&[u8]; 8] =
    [b"content", b"reasoning_content", b"reasoning", b"refusal", b"arguments", b"text", b"thinking", b"partial_json"];

/// Bytes of text for which one token is assumed at least. The usual average of vocabularies.
const TOKEN_BYTES: u64 = 4;

/// Counts of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events, the last one and those that were dropped included.
    pub events: u64,
    /// Events with output of the model: text, reasoning, arguments of a call.
    pub output_events: u64,
    /// Bytes of that output as JSON has them.
    pub output_bytes: u64,
    /// Tokens of that output by estimate.
    pub estimate: TokenEstimate,
    /// A response has come to its end: its reason to finish, or the end of its text. Only the report may be missing.
    pub is_generated: bool,
}

impl Progress {
    /// Tokens that the output has at least. A provider sends one token or more in an event. A server that replays a
    /// text may send each letter in an event of its own, so the bytes count, too.
    pub fn tokens_min(&self) -> u64 {
        self.output_events.min(self.output_bytes / TOKEN_BYTES)
    }

    /// Tokens of the output by estimate.
    pub fn tokens(&self) -> u64 {
        self.estimate.tokens().max(self.tokens_min())
    }

    /// Takes an event with one text of output and nothing else.
    pub(crate) fn take_text(&mut self, text: &[u8]) {
        self.events += 1;
        self.output_events += u64::from(!text.is_empty());
        self.output_bytes += text.len() as u64;
        self.estimate.push(text);
    }

    /// Takes the data of an event. Returns the parts in front of its longest text and behind it: no key stands in a text, since the
    /// quotes there have backslashes.
    pub(crate) fn take<'a>(&mut self, dialect: Dialect, data: &'a [u8]) -> [&'a [u8]; 2] {
        self.events += 1;
        let (mut bytes, mut longest) = (0, &data[..0]);
        output(dialect, data, |text| {
            bytes += text.len() as u64;
            self.estimate.push(text);
            longest = if text.len() > longest.len() { text } else { longest };
        });
        self.output_events += u64::from(bytes > 0);
        self.output_bytes += bytes;
        let around = around(data, longest);
        self.is_generated = self.is_generated || around.iter().any(|part| is_generated(dialect, part));
        around
    }
}

/// The parts of `data` in front of `text`, which is a part of it, and behind it.
fn around<'a>(data: &'a [u8], text: &[u8]) -> [&'a [u8]; 2] {
    let start = text.as_ptr().addr() - data.as_ptr().addr();
    [&data[..start], &data[start + text.len()..]]
}

/// Whether a response ends with an event, by a part of its data. A `null` is no reason.
fn is_generated(dialect: Dialect, data: &[u8]) -> bool {
    let has_reason = |key: &Finder<'_>| {
        let behind = key.find(data).map(|at| data[at + key.needle().len()..].trim_ascii_start());
        behind.is_some_and(|value| value.starts_with(b"\""))
    };
    match dialect {
        Dialect::Chat => has_reason(&FINISH),
        Dialect::Anthropic => has_reason(&STOP),
        Dialect::Responses => PART_ENDS.iter().any(|name| name.find(data).is_some()),
    }
}

/// Gives the texts of the output in an event. A quote within a string has a backslash, so a bare `":` is the end of a key.
fn output<'a>(dialect: Dialect, data: &'a [u8], mut take: impl FnMut(&'a [u8])) {
    let mut rest = match (DELTA.find(data), dialect) {
        (Some(at), _) => data[at + DELTA.needle().len()..].trim_ascii_start(),
        (None, Dialect::Chat) => TEXT.find(data).map_or(&[][..], |at| &data[at..]),
        // Other events repeat what their deltas have brought.
        (None, _) => return,
    };
    // In responses the delta is the text.
    if let (Dialect::Responses, [b'"', text @ ..]) = (dialect, rest) {
        return take(&text[..string_bytes(text)]);
    }
    while let Some(at) = KEY_END.find(rest) {
        let key = &rest[..at];
        rest = rest[at + KEY_END.needle().len()..].trim_ascii_start();
        if let [b'"', text @ ..] = rest {
            let length = string_bytes(text);
            let is_key = |name: &[u8]| key.strip_suffix(name).is_some_and(|before| before.ends_with(b"\""));
            if OUTPUT.iter().any(|name| is_key(name)) {
                take(&text[..length]);
            }
            rest = &text[length..];
        }
    }
}

/// Bytes of the string that begins here, without its last quote.
pub(crate) fn string_bytes(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = memchr2(b'"', b'\\', &text[at..]) {
        at += found;
        if text[at] == b'"' {
            return at;
        }
        at = (at + 2).min(text.len());
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output_bytes(dialect: Dialect, data: &[u8]) -> u64 {
        let mut bytes = 0;
        output(dialect, data, |text| bytes += text.len() as u64);
        bytes
    }

    #[test]
    fn output_is_estimated_by_its_text_wherever_events_cut_it() {
        let mut progress = Progress::default();
        for text in ["inter", "nation", "ally ", "\\u4f60", "\\u597d"] {
            let data = format!("{{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}");
            progress.take(Dialect::Chat, data.as_bytes());
        }
        let mut whole = TokenEstimate::default();
        whole.push("internationally \u{4f60}\u{597d}".as_bytes());
        assert_eq!((progress.estimate.tokens(), progress.output_events), (whole.tokens(), 5));
    }

    #[test]
    fn output_of_each_dialect_is_counted_and_nothing_else_is() {
        let (chat, responses, anthropic) = (Dialect::Chat, Dialect::Responses, Dialect::Anthropic);
        for (dialect, data, bytes) in [
            (chat, r#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#, 0),
            (chat, r#"{"choices":[{"delta":{"content":" a\"b"},"finish_reason":"stop"}],"id":"x"}"#, 5),
            (chat, r#"{"choices": [{"delta": {"content": "abc"}, "finish_reason": null}]}"#, 3),
            (chat, r#"{"choices":[{"delta":{"content":null,"reasoning_content":"abc"}}]}"#, 3),
            (chat, r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{\"a"}}]}}]}"#, 4),
            (
                chat,
                r#"{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"token":"a"}]}},{"delta":{"content":"bc"}}]}"#,
                3,
            ),
            (chat, r#"{"choices":[{"text":"abc","index":0}]}"#, 3),
            (chat, r#"{"choices":[],"usage":{"prompt_tokens":9}}"#, 0),
            (responses, r#"{"type":"response.output_text.delta","delta":"text","obfuscation":"xyz"}"#, 4),
            (responses, r#"{"type":"response.output_text.done","text":"In all"}"#, 0),
            (anthropic, r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hello"}}"#, 5),
            (
                anthropic,
                r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\"l"}}"#,
                4,
            ),
            (anthropic, r#"{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"EqQB"}}"#, 0),
            (anthropic, r#"{"type":"content_block_start","content_block":{"type":"text","text":"x"}}"#, 0),
            (chat, "[DONE]", 0),
            (responses, "{\"delta\":\"cut \\", 5),
            (chat, "{\"delta\":", 0),
        ] {
            assert_eq!(output_bytes(dialect, data.as_bytes()), bytes, "{data}");
        }
    }

    #[test]
    fn the_end_of_a_response_is_known_before_its_usage() {
        for (dialect, data, is_end) in [
            (Dialect::Chat, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#, true),
            (Dialect::Chat, r#"{"choices":[{"delta":{},"finish_reason": "length"}]}"#, true),
            (Dialect::Chat, r#"{"choices":[{"delta":{"content":"a"},"finish_reason":null}]}"#, false),
            (Dialect::Chat, r#"{"choices":[{"delta":{"content":"\"finish_reason\":\"stop\""}}]}"#, false),
            (Dialect::Anthropic, r#"{"type":"message_start","message":{"stop_reason":null}}"#, false),
            (Dialect::Anthropic, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#, true),
            (Dialect::Responses, r#"{"type":"response.output_text.delta","delta":"a"}"#, false),
            (Dialect::Responses, r#"{"type":"response.output_text.done","text":"a"}"#, true),
        ] {
            assert_eq!(is_generated(dialect, data.as_bytes()), is_end, "{data}");
        }
    }

    #[test]
    fn the_least_of_tokens_is_the_smaller_of_both_counts() {
        let progress =
            |output_events, output_bytes| Progress { output_events, output_bytes, ..Progress::default() }.tokens_min();
        assert_eq!((progress(10, 400), progress(400, 400), progress(3, 3)), (10, 100, 0));
        let estimate = TokenEstimate::of_tokens(2);
        let streamed = Progress { output_events: 3, output_bytes: 12, estimate, ..Progress::default() };
        assert_eq!(streamed.tokens(), 3, "an estimate is no less");
    }
}
