//! Any bytes as a request, a response, an error and a stream of one dialect, translated into the other.

use serde_json::Value;
use weir_ai_session::{Dialect, End};
use weir_ai_translate::limits::{LOSS_BYTES_MAX, LOSSES_MAX};
use weir_ai_translate::{
    Direction, Losses, Options, StreamTranslator, translate_error, translate_request, translate_response,
};
use weir_sse_codec::{Limits, Splitter};

/// Small enough for inputs of a few bytes to reach them.
const LIMITS: Limits = Limits { line_bytes: 2048, event_bytes: 2048 };

/// Bytes of a translation for each byte of its source at most, and beside them: `""` becomes a block.
const GROWTH_MAX: usize = 48;
const FRAME_MAX: usize = 8 * 1024;

/// A translation is JSON of the other dialect and bounded. A response translates back. Where a stream is cut
/// changes nothing, and its events come in an order that clients take.
pub fn ai_translate(data: &[u8]) {
    let [choice, body @ ..] = data else { return };
    let direction = Direction::ALL[usize::from(choice & 1)];
    match (choice >> 1) & 3 {
        0 => request(direction, body),
        1 => response(direction, body),
        2 => error(direction, body),
        _ => stream(direction, choice & 8 != 0, 1 + usize::from(choice >> 4), body),
    }
}

fn back(direction: Direction) -> Direction {
    match direction {
        Direction::ChatToMessages => Direction::MessagesToChat,
        Direction::MessagesToChat => Direction::ChatToMessages,
    }
}

fn request(direction: Direction, body: &[u8]) {
    match translate_request(direction, body, &Options::default()) {
        Ok(there) => {
            check(&there.body, body);
            check_losses(&there.losses);
            if let Ok(back) = translate_request(back(direction), &there.body, &Options::default()) {
                check(&back.body, &there.body);
            }
        }
        Err(mistake) => drop(object(&mistake.body(direction.client()))),
    }
}

fn response(direction: Direction, body: &[u8]) {
    if let Ok(there) = translate_response(direction, body, 1) {
        check(&there.body, body);
        check_losses(&there.losses);
        let again = translate_response(back(direction), &there.body, 1).expect("a response is one of its dialect");
        check(&again.body, &there.body);
    }
}

fn error(direction: Direction, body: &[u8]) {
    for status in [400, 401, 404, 429, 500, 503, 529] {
        let (_, body) = translate_error(direction, status, body);
        let error = object(&body);
        assert!(error["error"]["message"].is_string() && error["error"]["type"].is_string());
    }
}

fn stream(direction: Direction, includes_usage: bool, piece: usize, stream: &[u8]) {
    let whole = translated(direction, includes_usage, stream, stream.len().max(1));
    for piece in [1, 7, piece] {
        assert_eq!(translated(direction, includes_usage, stream, piece), whole, "pieces of {piece}");
    }
    let (out, end, has_error) = whole;
    // Each event of a chat repeats the names of the first.
    assert!(out.len() <= (GROWTH_MAX + 2 * 1024) * stream.len() + FRAME_MAX);
    let names = events(direction.client(), &out);
    let last = names.last().map(String::as_str);
    match (end, direction.client()) {
        (End::Done, Dialect::Anthropic) => assert_eq!(last, Some("message_stop")),
        (End::Done, _) => assert_eq!(last, Some("[DONE]")),
        (End::Failed, _) => assert_eq!(last, Some("error")),
        (End::Missing, _) => assert!(!matches!(last, Some("message_stop" | "[DONE]" | "error"))),
    }
    assert!(!has_error || end == End::Missing);
}

fn translated(direction: Direction, includes_usage: bool, stream: &[u8], piece: usize) -> (Vec<u8>, End, bool) {
    let mut translator = StreamTranslator::new(direction, 1, includes_usage, LIMITS);
    let mut out = Vec::new();
    let pushed = stream.chunks(piece).try_for_each(|piece| translator.push(piece, &mut out));
    let has_error = pushed.is_err() || translator.finish(&mut out).is_err();
    check_losses(translator.losses());
    (out, translator.end(), has_error)
}

/// Names of the events for a client, which are in an order that its SDK takes.
fn events(client: Dialect, out: &[u8]) -> Vec<String> {
    let (mut splitter, mut rest, mut names) = (Splitter::default(), out, Vec::new());
    let (mut open, mut blocks): (Vec<u64>, u64) = (Vec::new(), 0);
    while let Some(unit) = splitter.next(rest).expect("within limits") {
        rest = &rest[unit.bytes..];
        let Some(data) = unit.data else { continue };
        if data == b"[DONE]" {
            names.push("[DONE]".to_owned());
            continue;
        }
        let Some(event) = parsed(data) else { continue };
        if client == Dialect::Chat {
            assert!(unit.name.is_none());
            names.push(if event["error"].is_object() { "error" } else { "chunk" }.to_owned());
            continue;
        }
        let name = event["type"].as_str().expect("a type").to_owned();
        assert_eq!(unit.name, Some(name.as_bytes()));
        assert!(names.is_empty() == (name == "message_start") || name == "error", "one start, in front of all others");
        let index = event["index"].as_u64();
        match (&*name, index) {
            ("content_block_start", Some(index)) => {
                assert_eq!(index, blocks, "blocks are numbered");
                blocks += 1;
                open.push(index);
            }
            ("content_block_delta", Some(index)) => assert!(open.contains(&index)),
            ("content_block_stop", Some(index)) => {
                assert!(open.contains(&index));
                open.retain(|open| *open != index);
            }
            ("message_delta", _) => assert!(open.is_empty(), "every block has ended"),
            _ => assert!(index.is_none()),
        }
        names.push(name);
    }
    assert!(rest.is_empty());
    names
}

/// A text is JSON, and not out of proportion to its source.
fn check(text: &[u8], source: &[u8]) {
    assert!(text.len() <= GROWTH_MAX * source.len() + FRAME_MAX);
    if let Some(value) = parsed(text) {
        assert!(value.is_object());
    }
}

fn object(text: &[u8]) -> Value {
    parsed(text).expect("small")
}

/// The value of a text. The other reader has no opinion about large numbers and deep texts.
fn parsed(text: &[u8]) -> Option<Value> {
    match serde_json::from_slice(text) {
        Ok(value) => Some(value),
        Err(error) => {
            let limits = ["number out of range", "recursion limit"];
            assert!(limits.iter().any(|words| error.to_string().starts_with(words)), "{error}");
            None
        }
    }
}

fn check_losses(losses: &Losses) {
    let value = losses.header_value();
    assert!(value.len() <= (LOSSES_MAX + 1) * (LOSS_BYTES_MAX + 2));
    assert!(value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
}
