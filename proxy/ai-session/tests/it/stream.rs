//! Streams that break, end early, or are too large.

use weir_ai_session::response_stream::HELD_BYTES_MAX;
use weir_ai_session::{Dialect, End, Failure, ResponseStream, UsageChunk};
use weir_sse_codec::{Limits, SseError};

use crate::support::{CHAT, RESPONSES, chat, follow, follow_at_every_cut};

const FAILURE: Failure<'static> =
    Failure { kind: "server_error", anthropic_kind: "api_error", code: "idle_timeout", message: "no event came" };

fn stream(dialect: Dialect) -> ResponseStream {
    ResponseStream::new(dialect, UsageChunk::Forward, Limits::default())
}

/// Bytes that pass of one piece.
fn pushed(stream: &mut ResponseStream, piece: &[u8]) -> Vec<u8> {
    let mut passed = Vec::new();
    stream.push(piece, &mut |bytes| passed.extend_from_slice(bytes)).expect("within limits");
    passed
}

#[test]
fn only_whole_events_pass_so_that_an_error_may_follow() {
    let mut stream = stream(Dialect::Chat);
    assert_eq!(pushed(&mut stream, b": ping\ndata: {}\n\ndata: {\"ch"), b": ping\ndata: {}\n\n");
    assert_eq!(stream.held_bytes(), 10);
    let mut out = Vec::new();
    stream.fail(&FAILURE, &mut out);
    let wanted = "data: {\"error\":{\"message\":\"no event came\",\"type\":\"server_error\",\"param\":null,\"code\":\"idle_timeout\"}}\n\n";
    assert_eq!(String::from_utf8_lossy(&out), wanted);
    assert_eq!((stream.held_bytes(), stream.end()), (0, End::Failed));
}

#[test]
fn a_whole_piece_passes_in_one_part_and_is_not_copied() {
    let (mut stream, mut parts) = (stream(Dialect::Chat), Vec::new());
    stream.push(CHAT, &mut |bytes| parts.push((bytes.as_ptr(), bytes.len()))).expect("within limits");
    assert_eq!(parts, [(CHAT.as_ptr(), CHAT.len())]);
    assert_eq!((stream.held_bytes(), stream.end()), (0, End::Done));
}

#[test]
fn an_error_of_responses_continues_their_numbers() {
    let mut stream = stream(Dialect::Responses);
    let cut = RESPONSES.windows(22).position(|part| part == b"\"sequence_number\":5,\"i").expect("it has one");
    pushed(&mut stream, &RESPONSES[..cut]);
    let mut out = Vec::new();
    stream.fail(&FAILURE, &mut out);
    assert!(
        out.starts_with(b"event: error\ndata: {\"type\":\"error\",\"sequence_number\":5,"),
        "{}",
        String::from_utf8_lossy(&out)
    );
}

#[test]
fn an_event_beyond_the_buffer_passes_while_it_arrives() {
    let mut stream = stream(Dialect::Responses);
    let mut large = b"event: x\ndata: ".to_vec();
    large.resize(HELD_BYTES_MAX, b'a');
    assert_eq!(pushed(&mut stream, &large), b"");
    assert_eq!(stream.held_bytes(), HELD_BYTES_MAX);
    assert_eq!(pushed(&mut stream, b"b").len(), HELD_BYTES_MAX + 1);
    assert_eq!(pushed(&mut stream, b"c"), b"c", "half of it has passed, so the rest follows at once");
    let mut cut = stream.clone();
    let mut out = Vec::new();
    cut.fail(&FAILURE, &mut out);
    assert!(out.starts_with(b"\n\nevent: error\n"), "the half event is ended first");
    assert_eq!(pushed(&mut stream, b"\n\ndata: d"), b"\n\n");
    assert_eq!(stream.held_bytes(), 7, "the next is held again");
}

#[test]
fn a3_a_line_without_an_end_is_an_error_behind_the_events_before_it() {
    let limits = Limits { line_bytes: 64, event_bytes: 64 };
    let stream = [b"data: {}\n\ndata: ".to_vec(), vec![b'x'; 100]].concat();
    for cut in 0..stream.len() {
        let followed = follow(Dialect::Chat, UsageChunk::Forward, &stream, &[cut], limits);
        assert_eq!(
            (followed.error, followed.passed),
            (Some(SseError::LineTooLong), b"data: {}\n\n".to_vec()),
            "cut at {cut}"
        );
    }
}

#[test]
fn a7_a_stream_says_how_it_ended() {
    let end = |dialect, stream: &[u8]| {
        let followed = follow_at_every_cut(dialect, UsageChunk::Forward, stream);
        assert_eq!(followed.passed, stream);
        followed.end
    };
    let text = r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    assert_eq!(end(Dialect::Chat, &chat(&[text])), End::Missing, "no [DONE]");
    assert_eq!(end(Dialect::Chat, b"data: [DONE]\n"), End::Missing, "no blank line");
    assert_eq!(end(Dialect::Chat, &chat(&[text, r#"{"error":{"message":"late"}}"#])), End::Failed);
    assert_eq!(end(Dialect::Chat, b"event: error\ndata: late\n\n"), End::Failed);
    assert_eq!(
        end(Dialect::Chat, &chat(&[r#"{"choices":[{"delta":{"content":"{\"error\":{"}}]}"#, "[DONE]"])),
        End::Done
    );
    let unnamed = chat(&[r#"{"type":"response.created"}"#, r#"{"type": "response.incomplete","response":{}}"#]);
    assert_eq!(end(Dialect::Responses, &unnamed), End::Done);
    assert_eq!(end(Dialect::Responses, b"event: response.failed\ndata: {}\n\n"), End::Failed);
    assert_eq!(end(Dialect::Responses, &chat(&[r#"{"type":"error","message":"x"}"#])), End::Failed);
    let overloaded =
        b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n";
    assert_eq!(end(Dialect::Anthropic, overloaded), End::Failed);
    assert_eq!(end(Dialect::Anthropic, b"event: message_stop\ndata: {}\n\n"), End::Done);
    // A failure stays one: some servers end each stream with their last event.
    assert_eq!(end(Dialect::Chat, &chat(&[text, r#"{"error":{"message":"late"}}"#, "[DONE]"])), End::Failed);
    assert_eq!(end(Dialect::Anthropic, b"event: error\ndata: {}\n\nevent: message_stop\ndata: {}\n\n"), End::Failed);
    // Half a character, mixed line ends, and bytes that are no text pass as they are.
    assert_eq!(end(Dialect::Chat, b"data: \xf0\x9f\r\ndata: \x98\x80\r\rdata: [DONE]\n\r\n"), End::Done);
}

#[test]
fn an_idle_stream_keeps_little() {
    let mut stream = stream(Dialect::Chat);
    let large = [b"data: ".to_vec(), vec![b'x'; 60_000]].concat();
    pushed(&mut stream, &large);
    pushed(&mut stream, b"\n\n");
    assert_eq!(stream.held_bytes(), 0);
    assert!(size_of::<ResponseStream>() <= 512, "{} bytes", size_of::<ResponseStream>());
}

#[test]
fn events_that_differ_in_their_text_alone_are_found_like_any_others() {
    let texts = [" a", "b\\n", "", "\\\"usage\\\":{", "c\\\\", "delta", "usage"];
    let behinds =
        ["}}],\"usage\":null}", "},\"finish_reason\":\"stop\"}]}", "}}],\"usage\":{\"completion_tokens\":40}}"];
    for behind in behinds {
        // A space in front of every second event: none is like the one before.
        let stream = |space: &str| -> Vec<u8> {
            let event = |(number, text): (usize, &&str)| {
                let space = if number % 2 == 1 { space } else { "" };
                format!("data: {{{space}\"choices\":[{{\"delta\":{{\"content\":\"{text}\"{behind}\n\n")
            };
            texts.iter().enumerate().map(event).collect::<String>().into_bytes()
        };
        let found = |space| {
            let found = follow(Dialect::Chat, UsageChunk::Drop, &stream(space), &[], Limits::default());
            (found.progress, found.usage, found.end)
        };
        assert_eq!(found(""), found(" "), "{behind}");
        assert_eq!(found("").0.output_bytes as usize, texts.concat().len(), "{behind}");
    }
}
