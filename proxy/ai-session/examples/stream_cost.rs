//! Measures the cost of an event that is followed: `cargo run --release -p weir-ai-session --example stream_cost`.

use std::hint::black_box;
use std::time::Instant;

use weir_ai_session::{BufferedUsage, Dialect, End, ResponseStream, UsageChunk};
use weir_sse_codec::Limits;

const EVENTS: usize = 1000;

const CHAT: &[u8] = br#"data: {"id":"chatcmpl-Bx3yZ0a1","object":"chat.completion.chunk","created":1741570283,"model":"gpt-4o-2024-08-06","service_tier":"default","system_fingerprint":"fp_b376dfbbd5","choices":[{"index":0,"delta":{"content":" water"},"logprobs":null,"finish_reason":null}],"usage":null}

"#;
const RESPONSES: &[u8] = br#"event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":12,"item_id":"msg_67c9fdcf37fc8190ba82116e33fb28c507b8b0ad4e5eb654","output_index":0,"content_index":0,"delta":" water","obfuscation":"q8sD1fkZ2w"}

"#;
const ANTHROPIC: &[u8] = br#"event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" water"}}

"#;

fn main() {
    for (name, dialect, event, end) in [
        ("chat", Dialect::Chat, CHAT, &b"data: [DONE]\n\n"[..]),
        ("responses", Dialect::Responses, RESPONSES, b"event: response.completed\ndata: {}\n\n"),
        ("Anthropic", Dialect::Anthropic, ANTHROPIC, b"event: message_stop\ndata: {}\n\n"),
    ] {
        let stream = [event.repeat(EVENTS), end.to_vec()].concat();
        for piece in [16 * 1024, event.len()] {
            let nanoseconds = per_event(dialect, &stream, piece);
            println!("{name}, events of {} bytes in pieces of {piece}: {nanoseconds} ns", event.len());
        }
    }
    let text = "It is water. ".repeat(80);
    let event =
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n").into_bytes();
    let stream = [event.repeat(EVENTS), b"data: [DONE]\n\n".to_vec()].concat();
    let nanoseconds = per_event(Dialect::Chat, &stream, 16 * 1024);
    println!("chat, events of {} bytes of text: {nanoseconds} ns", event.len());
    let text = "It is water. ".repeat(5000);
    let body = format!(
        r#"{{"choices":[{{"message":{{"content":"{text}"}}}}],"usage":{{"prompt_tokens":9,"completion_tokens":4}}}}"#
    );
    let nanoseconds = (0..200).map(|_| buffered(body.as_bytes())).min().expect("rounds");
    println!("a buffered response of {} bytes: {nanoseconds} ns", body.len());
}

/// Nanoseconds for one event, in the best of 200 rounds.
fn per_event(dialect: Dialect, stream: &[u8], piece: usize) -> u128 {
    (0..200).map(|_| follow(dialect, stream, piece)).min().expect("rounds") / EVENTS as u128
}

/// Nanoseconds for all events.
fn follow(dialect: Dialect, stream: &[u8], piece: usize) -> u128 {
    let (mut follower, mut passed) = (ResponseStream::new(dialect, UsageChunk::Drop, Limits::default()), 0);
    let begin = Instant::now();
    for piece in stream.chunks(piece) {
        follower.push(black_box(piece), &mut |bytes| passed += bytes.len()).expect("within limits");
    }
    let time = begin.elapsed().as_nanos();
    assert_eq!((passed, follower.end()), (stream.len(), End::Done));
    assert_eq!(follower.progress().output_events, EVENTS as u64);
    time
}

/// Nanoseconds for the usage of a response that declares its length.
fn buffered(body: &[u8]) -> u128 {
    let begin = Instant::now();
    let mut usage = BufferedUsage::new(Dialect::Chat, Some(body.len() as u64));
    body.chunks(16 * 1024).for_each(|piece| usage.push(black_box(piece)));
    assert_eq!(usage.finish().map(|usage| usage.output), Some(4));
    begin.elapsed().as_nanos()
}
