//! Shared parts of the tests: fixtures of the reference's shapes, and a stream in pieces.

use weir_ai_session::{Dialect, End, Progress, ResponseStream, Usage, UsageChunk};
use weir_sse_codec::{Limits, SseError};

pub const CHAT: &[u8] = include_bytes!("fixtures/chat.sse");
pub const CHAT_WITHOUT_USAGE: &[u8] = include_bytes!("fixtures/chat_without_usage.sse");
pub const RESPONSES: &[u8] = include_bytes!("fixtures/responses.sse");
pub const ANTHROPIC: &[u8] = include_bytes!("fixtures/anthropic.sse");

/// Every fixture that is a stream.
pub const STREAMS: [(Dialect, &[u8]); 4] = [
    (Dialect::Chat, CHAT),
    (Dialect::Chat, CHAT_WITHOUT_USAGE),
    (Dialect::Responses, RESPONSES),
    (Dialect::Anthropic, ANTHROPIC),
];

/// The findings in a whole stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Followed {
    pub passed: Vec<u8>,
    pub end: End,
    pub usage: Option<Usage>,
    pub progress: Progress,
    pub error: Option<SseError>,
}

/// Follows `stream` in pieces that end at `cuts`.
pub fn follow(dialect: Dialect, chunk: UsageChunk, stream: &[u8], cuts: &[usize], limits: Limits) -> Followed {
    let (mut follower, mut passed, mut at) = (ResponseStream::new(dialect, chunk, limits), Vec::new(), 0);
    let mut error = None;
    for end in cuts.iter().copied().chain([stream.len()]) {
        let end = end.clamp(at, stream.len());
        error = follower.push(&stream[at..end], &mut |bytes| passed.extend_from_slice(bytes)).err();
        at = end;
        if error.is_some() {
            break;
        }
    }
    if error.is_none() {
        follower.finish(&mut |bytes| passed.extend_from_slice(bytes));
    }
    Followed { passed, end: follower.end(), usage: follower.usage(), progress: follower.progress(), error }
}

/// The same, wherever the stream is cut.
pub fn follow_at_every_cut(dialect: Dialect, chunk: UsageChunk, stream: &[u8]) -> Followed {
    let whole = follow(dialect, chunk, stream, &[], Limits::default());
    for cut in 0..=stream.len() {
        assert_eq!(follow(dialect, chunk, stream, &[cut], Limits::default()), whole, "cut at {cut}");
    }
    let bytes: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(follow(dialect, chunk, stream, &bytes, Limits::default()), whole, "byte by byte");
    whole
}

/// A stream of a chat with these chunks as data.
pub fn chat(chunks: &[&str]) -> Vec<u8> {
    chunks.iter().flat_map(|chunk| format!("data: {chunk}\n\n").into_bytes()).collect()
}
