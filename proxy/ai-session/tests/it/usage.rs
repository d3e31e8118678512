//! Usage of every shape: buffered and in streams, honest and not.

use weir_ai_session::usage::{TAIL_BYTES_MAX, TOKENS_MAX};
use weir_ai_session::{BufferedUsage, Dialect, Doubts, End, Usage, UsageChunk};

use crate::support::{ANTHROPIC, CHAT, CHAT_WITHOUT_USAGE, RESPONSES, chat, follow_at_every_cut};

/// Usage of a buffered response, which is the same wherever it is cut, and whether its length is known.
fn buffered(dialect: Dialect, body: &[u8]) -> Option<Usage> {
    let read = |length: Option<u64>, cut: usize| {
        let mut usage = BufferedUsage::new(dialect, length);
        usage.push(&body[..cut]);
        usage.push(&body[cut..]);
        usage.finish()
    };
    let whole = read(None, 0);
    for cut in (0..=body.len()).step_by(1 + body.len() / 1000) {
        for length in [None, Some(body.len() as u64)] {
            assert_eq!(read(length, cut), whole, "cut at {cut}");
        }
    }
    whole
}

/// Usage of a buffered response that comes in pieces of this size.
fn in_pieces(body: &str, size: usize) -> Option<Usage> {
    let read = |length| {
        let mut usage = BufferedUsage::new(Dialect::Responses, length);
        body.as_bytes().chunks(size).for_each(|piece| usage.push(piece));
        usage.finish()
    };
    let found = read(Some(body.len() as u64));
    assert_eq!(read(None), found, "without its length");
    found
}

fn streamed(dialect: Dialect, stream: &[u8]) -> Option<Usage> {
    follow_at_every_cut(dialect, UsageChunk::Forward, stream).usage
}

#[test]
fn buffered_responses_of_each_dialect_report_their_usage() {
    let chat = buffered(Dialect::Chat, include_bytes!("fixtures/chat.json"));
    assert_eq!(chat, Some(Usage { input: 19, cached: 8, output: 10, reasoning: 2, ..Usage::default() }));
    let responses = buffered(Dialect::Responses, include_bytes!("fixtures/responses.json"));
    assert_eq!(responses, Some(Usage { input: 36, output: 87, ..Usage::default() }));
    let anthropic = buffered(Dialect::Anthropic, include_bytes!("fixtures/anthropic.json"));
    let wanted = Usage { input: 2245, cached: 100, cache_write: 50, output: 503, ..Usage::default() };
    assert_eq!(anthropic, Some(wanted), "input includes what was read from the cache and written to it");
    let thinking = br#"{"usage":{"input_tokens":1,"output_tokens":9,"output_tokens_details":{"thinking_tokens":7}}}"#;
    let wanted = Usage { input: 1, output: 9, reasoning: 7, ..Usage::default() };
    assert_eq!(buffered(Dialect::Anthropic, thinking), Some(wanted), "thinking is the part that chats call reasoning");
    let embeddings = buffered(Dialect::Chat, include_bytes!("fixtures/embeddings.json"));
    assert_eq!(embeddings, Some(Usage { input: 8, ..Usage::default() }));
}

#[test]
fn streams_of_each_dialect_report_theirs() {
    let chat = Usage { input: 9, cached: 4, output: 14, reasoning: 5, ..Usage::default() };
    assert_eq!(streamed(Dialect::Chat, CHAT), Some(chat));
    assert_eq!(streamed(Dialect::Chat, CHAT_WITHOUT_USAGE), None);
    let responses = Usage { input: 36, cached: 30, output: 87, reasoning: 64, ..Usage::default() };
    assert_eq!(streamed(Dialect::Responses, RESPONSES), Some(responses));
    let anthropic = Usage { input: 2125, cached: 2000, cache_write: 100, output: 89, ..Usage::default() };
    assert_eq!(streamed(Dialect::Anthropic, ANTHROPIC), Some(anthropic));
}

#[test]
fn the_last_report_wins_and_none_is_added() {
    let growing = chat(&[
        r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#,
        r#"{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}"#,
        r#"{"choices":[],"usage":null}"#,
        "[DONE]",
    ]);
    assert_eq!(streamed(Dialect::Chat, &growing), Some(Usage { input: 9, cached: 3, output: 2, ..Usage::default() }));
    let in_choice = chat(&[
        r#"{"choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":7}}]}"#,
    ]);
    assert_eq!(streamed(Dialect::Chat, &in_choice), Some(Usage { input: 5, output: 7, ..Usage::default() }));
    let spaced = chat(&[r#"{ "usage" : { "input_tokens" : 5, "output_tokens" : 7, "prompt_cache_hit_tokens": 2 } }"#]);
    assert_eq!(streamed(Dialect::Chat, &spaced), Some(Usage { input: 5, cached: 2, output: 7, ..Usage::default() }));
}

#[test]
fn a13_a_report_that_lies_is_cut_to_a_bound_and_flagged() {
    let report = |report: &str| {
        let body = format!("{{\"choices\":[],\"usage\":{report}}}");
        buffered(Dialect::Chat, body.as_bytes()).expect("a report")
    };
    let negative = report(r#"{"prompt_tokens":-7,"completion_tokens":3}"#);
    assert_eq!((negative.input, negative.output, negative.doubts), (0, 3, Doubts::NEGATIVE));
    let large = report(r#"{"prompt_tokens":9223372036854775808,"completion_tokens":99999999999999999999999}"#);
    assert_eq!((large.input, large.output, large.doubts), (TOKENS_MAX, TOKENS_MAX, Doubts::TOO_LARGE));
    let parts = report(
        r#"{"prompt_tokens":5,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":50},"completion_tokens_details":{"reasoning_tokens":60}}"#,
    );
    assert_eq!((parts.cached, parts.reasoning, parts.doubts), (5, 6, Doubts::PART));
    let form = report(r#"{"prompt_tokens":12.5,"completion_tokens":"6","total_tokens":[]}"#);
    assert_eq!((form.input, form.output, form.doubts), (12, 0, Doubts::FORM));
    assert_eq!(form.doubts.words(), "form");
    let anthropic = buffered(
        Dialect::Anthropic,
        br#"{"x":1,"usage":{"input_tokens":18446744073709551615,"cache_read_input_tokens":18446744073709551615,"output_tokens":1}}"#,
    );
    assert_eq!(anthropic.map(|usage| usage.input), Some(2 * TOKENS_MAX), "no sum overflows");
}

#[test]
fn a13_output_below_what_was_streamed_is_raised_to_it() {
    let chunk = r#"{"choices":[{"delta":{"content":" word"}}]}"#;
    let lie = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
    let mut chunks = vec![chunk; 40];
    chunks.extend([lie, "[DONE]"]);
    let usage = streamed(Dialect::Chat, &chat(&chunks)).expect("a report");
    assert_eq!((usage.output, usage.doubts), (40, Doubts::BELOW_STREAM));
    // A server that sends each letter by itself is no liar.
    let mut letters = vec![r#"{"choices":[{"delta":{"content":"a"}}]}"#; 40];
    let honest = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":10}}"#;
    letters.extend([honest, "[DONE]"]);
    let usage = streamed(Dialect::Chat, &chat(&letters)).expect("a report");
    assert_eq!((usage.output, usage.doubts), (10, Doubts::empty()));
}

#[test]
fn a13_a_report_that_shrinks_counts_and_is_flagged() {
    let stream = chat(&[
        r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":50}}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}"#,
        "[DONE]",
    ]);
    let usage = streamed(Dialect::Chat, &stream).expect("a report");
    assert_eq!((usage.output, usage.doubts), (5, Doubts::SHRUNK));
}

#[test]
fn a5_a_stream_that_ends_early_has_partial_usage() {
    let end = ANTHROPIC.windows(13).position(|part| part == b"message_delta").expect("it has one");
    let followed = follow_at_every_cut(Dialect::Anthropic, UsageChunk::Forward, &ANTHROPIC[..end]);
    assert_eq!((followed.end, followed.progress.output_events), (End::Missing, 2));
    let usage = followed.usage.expect("the input is reported at the beginning");
    assert_eq!((usage.input, usage.output, usage.doubts), (2125, 2, Doubts::empty()));
    let end = CHAT.windows(12).position(|part| part == b"data: [DONE]").expect("it has one");
    let followed = follow_at_every_cut(Dialect::Chat, UsageChunk::Drop, &CHAT[..end - 600]);
    assert_eq!((followed.end, followed.usage), (End::Missing, None));
    assert!(followed.progress.output_bytes >= 20, "{:?}", followed.progress);
}

#[test]
fn a_report_of_something_else_is_none() {
    let echo = br#"{"id":"r","output":[],"text":{"format":{"schema":{"properties":{"usage":{"input_tokens":1,"output_tokens":1}}}}}}"#;
    assert_eq!(buffered(Dialect::Responses, echo), None);
    assert_eq!(buffered(Dialect::Chat, br#"{"choices":[],"metadata":{"usage":{"prompt_tokens":1}}}"#), None);
    assert_eq!(buffered(Dialect::Chat, b"<html>\"usage\":{\"prompt_tokens\":1}</html>"), None);
    assert_eq!(buffered(Dialect::Chat, br#"{"error":{"message":"no"}}"#), None);
    assert_eq!(buffered(Dialect::Chat, b""), None);
    let text = chat(&[r#"{"choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":1}"}}],"usage":null}"#]);
    assert_eq!(streamed(Dialect::Chat, &text), None);
    let nested = chat(&[r#"{"choices":[],"x":{"usage":{"prompt_tokens":1}},"usage":null}"#]);
    assert_eq!(streamed(Dialect::Chat, &nested), None);
    let error = chat(&[r#"{"choices":[],"usage":{"prompt_tokens":"#]);
    assert_eq!(streamed(Dialect::Chat, &error), None);
}

#[test]
fn usage_is_found_however_much_follows_it() {
    let usage = r#""usage":{"input_tokens":3,"output_tokens":4,"output_tokens_details":{"reasoning_tokens":2}}"#;
    let decoy = r#"{"default":{"usage":{"input_tokens":0,"output_tokens":0},"x":[{"usage":{"input_tokens":1}}]}}"#;
    // The most that a client can have in its metadata, in characters of three bytes and in escaped ones.
    for (text, count) in [("\u{20ac}", 512), ("\\ud83d\\ude00", 512), ("p", 30_000)] {
        let values: Vec<String> = (0..16).map(|key| format!("\"key {key}\":\"{}\"", text.repeat(count))).collect();
        for (before, spaces) in [(10, ""), (100_000, "\n  ")] {
            let (long, metadata) = ("a".repeat(before), values.join(","));
            let body = format!(
                "{{{spaces}\"output\":[\"{long}\"],{spaces}\"tools\":[{decoy}],{spaces}{usage},{spaces}\"metadata\":{{{metadata}}}}}"
            );
            let wanted = Some(Usage { input: 3, output: 4, reasoning: 2, ..Usage::default() });
            let nested = body.replace(usage, &format!("\"x\":{{{usage}}}"));
            for size in [7, 1_000, 16 * 1024, body.len()] {
                assert_eq!(in_pieces(&body, size), wanted, "{text} {before} {size}");
                assert_eq!(in_pieces(&nested, size), None, "{text} {before} {size}");
            }
        }
    }
}

#[test]
fn the_end_of_a_large_response_suffices() {
    let usage = r#""usage":{"prompt_tokens":3,"completion_tokens":4}"#;
    let behind = format!(",\"metadata\":{{\"a\":\"{}\"}}}}", "m".repeat(9 * 1024));
    for text in [100, TAIL_BYTES_MAX - 40, TAIL_BYTES_MAX, 3 * TAIL_BYTES_MAX, 200_000] {
        let body = format!(
            "{{\"choices\":[{{\"message\":{{\"content\":\"{}\"}}}}],{usage}{behind}",
            "\\\"usage\\\": ".repeat(text / 11)
        );
        let found = buffered(Dialect::Chat, body.as_bytes());
        assert_eq!(found, Some(Usage { input: 3, output: 4, ..Usage::default() }), "{text} bytes of text");
    }
    let first = format!("{{{usage},\"choices\":[\"{}\"]}}", "x".repeat(100));
    assert!(buffered(Dialect::Chat, first.as_bytes()).is_some(), "a short response may have it in front");
}
