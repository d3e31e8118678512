//! Measures the cost of an event: `cargo run --release -p weir-sse-codec --example sse_cost`.

use std::hint::black_box;
use std::time::Instant;

use weir_sse_codec::{Kind, Splitter};

const CHAT: &[u8] = br#"data: {"id":"chatcmpl-Bx3yZ0a1","object":"chat.completion.chunk","created":1741570283,"model":"gpt-4o-2024-08-06","service_tier":"default","system_fingerprint":"fp_b376dfbbd5","choices":[{"index":0,"delta":{"content":" water"},"logprobs":null,"finish_reason":null}],"usage":null}

"#;

const EVENTS: usize = 1000;

fn main() {
    let delta = br#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" water"}}"#;
    let anthropic = [b"event: content_block_delta\ndata: ", &delta[..], b"\n\n"].concat();
    for (name, event) in [("chat chunk", CHAT), ("Anthropic delta", &anthropic)] {
        let stream = event.repeat(EVENTS);
        for piece in [usize::MAX, 16 * 1024, event.len()] {
            let pieces: Vec<&[u8]> = stream.chunks(piece.min(stream.len())).collect();
            let nanoseconds = (0..200).map(|_| split(&pieces)).min().expect("rounds") / EVENTS as u128;
            println!("{name} of {} bytes, pieces of {}: {nanoseconds} ns", event.len(), pieces[0].len());
        }
    }
}

/// Nanoseconds for all events. Every event is found, or the measurement means nothing.
fn split(pieces: &[&[u8]]) -> u128 {
    let (mut splitter, mut events) = (Splitter::default(), 0);
    let begin = Instant::now();
    for piece in pieces {
        let mut rest = black_box(*piece);
        while let Some(unit) = splitter.next(rest).expect("within limits") {
            events += usize::from(unit.kind == Kind::Event && unit.data.is_some());
            rest = &rest[unit.bytes..];
        }
    }
    let passed = begin.elapsed().as_nanos();
    assert_eq!(events, EVENTS);
    passed
}
