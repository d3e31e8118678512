//! The byte-exact rule: what no edit names passes as it came, wherever it is cut.

use proptest::prelude::*;
use weir_ai_session::{Dialect, End, UsageChunk};
use weir_sse_codec::{Kind, Limits, Splitter};

use crate::support::{CHAT, STREAMS, follow, follow_at_every_cut};

#[test]
fn every_fixture_passes_unchanged() {
    for (dialect, stream) in STREAMS {
        let followed = follow_at_every_cut(dialect, UsageChunk::Forward, stream);
        assert_eq!(followed.passed, stream, "{}", String::from_utf8_lossy(&followed.passed));
        assert_eq!((followed.end, followed.error), (End::Done, None));
    }
}

#[test]
fn exactly_the_chunk_of_usage_is_dropped() {
    let text = std::str::from_utf8(CHAT).expect("UTF-8");
    let begin = text
        .find("data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],")
        .expect("it has one");
    let end = text.find("data: [DONE]").expect("it has an end");
    let golden = format!("{}{}", &text[..begin], &text[end..]);
    let followed = follow_at_every_cut(Dialect::Chat, UsageChunk::Drop, CHAT);
    assert_eq!(String::from_utf8_lossy(&followed.passed), golden);
    assert_eq!(followed.usage.map(|usage| usage.output), Some(14), "it counts all the same");
}

#[test]
fn line_ends_of_any_kind_go_with_their_event() {
    for end in ["\n", "\r\n", "\r"] {
        let stream = String::from_utf8_lossy(CHAT).replace('\n', end);
        let dropped = follow_at_every_cut(Dialect::Chat, UsageChunk::Drop, stream.as_bytes());
        let golden = follow_at_every_cut(Dialect::Chat, UsageChunk::Drop, CHAT).passed;
        assert_eq!(String::from_utf8_lossy(&dropped.passed), String::from_utf8_lossy(&golden).replace('\n', end));
    }
}

#[test]
fn a_stream_without_the_chunk_and_other_dialects_lose_nothing() {
    for (dialect, stream) in STREAMS.into_iter().filter(|(_, stream)| *stream != CHAT) {
        assert_eq!(follow_at_every_cut(dialect, UsageChunk::Drop, stream).passed, stream);
    }
}

/// Chunks of chats, some of which report usage, and some of which are for it alone.
const CHUNKS: [&str; 10] = [
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{\"}}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n",
    "data: {\"usage\" : {\"completion_tokens\":3},\ndata: \"choices\":[ ]}\r\n\r\n",
    "data: {\"choices\":[{\"delta\":{}}],\"usage\":{\"completion_tokens\":2}}\n\n",
    "data: {\"choices\":[],\"usage\":{}}\n\n",
    "data: {\"choices\":[]}\r\r",
    ": comment\n",
    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":2}\n\n",
    "data: [DONE]\n\n",
];

/// The bytes that pass, by another reader: serde_json decides which event is for usage alone.
fn expected(stream: &[u8]) -> Vec<u8> {
    let (mut splitter, mut passed, mut rest) = (Splitter::default(), Vec::new(), stream);
    while let Some(unit) = splitter.next(rest).expect("within limits") {
        let json: serde_json::Value = unit.data.and_then(|data| serde_json::from_slice(data).ok()).unwrap_or_default();
        let is_for_usage = json["usage"].is_object() && json["choices"].as_array().is_some_and(Vec::is_empty);
        let is_dropped = unit.kind == Kind::Event && is_for_usage;
        if !is_dropped {
            passed.extend_from_slice(&rest[..unit.bytes]);
        }
        rest = &rest[unit.bytes..];
    }
    passed.extend_from_slice(rest);
    passed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_streams_lose_only_chunks_of_usage(
        chunks in prop::collection::vec(prop::sample::select(CHUNKS.to_vec()), 0..8),
        cuts in prop::collection::vec(0..400_usize, 0..8),
        lost in 0..40_usize,
    ) {
        let mut stream = chunks.concat().into_bytes();
        stream.truncate(stream.len().saturating_sub(lost));
        let mut cuts = cuts;
        cuts.sort_unstable();
        let dropped = follow(Dialect::Chat, UsageChunk::Drop, &stream, &cuts, Limits::default());
        let wanted = expected(&stream);
        prop_assert_eq!(String::from_utf8_lossy(&dropped.passed), String::from_utf8_lossy(&wanted));
        let forwarded = follow(Dialect::Chat, UsageChunk::Forward, &stream, &cuts, Limits::default());
        prop_assert_eq!(&forwarded.passed, &stream);
        prop_assert_eq!((forwarded.usage, forwarded.end), (dropped.usage, dropped.end));
    }
}
