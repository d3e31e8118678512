//! Shared parts of the tests: translations with readable results, and a stream in pieces.

use serde_json::Value;
use weir_ai_session::End;
use weir_ai_translate::{
    Direction, Mistake, Options, StreamError, StreamTranslator, translate_request, translate_response,
};
use weir_sse_codec::{Limits, Splitter};

pub const CREATED: u64 = 1_700_000_000;

pub fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)))
}

/// A translated request, and its losses.
pub fn request(direction: Direction, body: &str) -> Result<(Value, String), Mistake> {
    let request = translate_request(direction, body.as_bytes(), &Options::default())?;
    Ok((json(&request.body), request.losses.header_value()))
}

/// A translated response, and its losses.
pub fn response(direction: Direction, body: &str) -> Result<(Value, String), Mistake> {
    let response = translate_response(direction, body.as_bytes(), CREATED)?;
    Ok((json(&response.body), response.losses.header_value()))
}

/// The findings in a translated stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    pub out: String,
    pub end: End,
    pub losses: String,
    pub error: Option<StreamError>,
}

/// Translates a stream in pieces that end at `cuts`.
pub fn translate(direction: Direction, includes_usage: bool, stream: &[u8], cuts: &[usize]) -> Translated {
    let mut translator = StreamTranslator::new(direction, CREATED, includes_usage, Limits::default());
    let (mut out, mut at, mut error) = (Vec::new(), 0, None);
    for cut in cuts.iter().copied().chain([stream.len()]) {
        let cut = cut.clamp(at, stream.len());
        error = translator.push(&stream[at..cut], &mut out).err();
        at = cut;
        if error.is_some() {
            break;
        }
    }
    if error.is_none() {
        error = translator.finish(&mut out).err();
    }
    let out = String::from_utf8(out).expect("UTF-8");
    Translated { out, end: translator.end(), losses: translator.losses().header_value(), error }
}

/// The same, wherever the stream is cut.
pub fn translate_at_every_cut(direction: Direction, includes_usage: bool, stream: &[u8]) -> Translated {
    let whole = translate(direction, includes_usage, stream, &[]);
    for cut in 0..=stream.len() {
        assert_eq!(translate(direction, includes_usage, stream, &[cut]), whole, "cut at {cut}");
    }
    let bytes: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(translate(direction, includes_usage, stream, &bytes), whole, "byte by byte");
    whole
}

/// Names and data of the events of a stream.
pub fn events(stream: &[u8]) -> Vec<(Option<String>, String)> {
    let (mut splitter, mut rest, mut found) = (Splitter::default(), stream, Vec::new());
    while let Some(unit) = splitter.next(rest).expect("within limits") {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        if let Some(data) = unit.data {
            found.push((unit.name.map(text), text(data)));
        }
        rest = &rest[unit.bytes..];
    }
    assert!(rest.is_empty() || splitter.is_between_units(), "the last event is whole");
    found
}

/// A stream of Anthropic's, from the data of its events.
pub fn messages_stream(events: &[Value]) -> Vec<u8> {
    let event = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or("x"));
    events.iter().flat_map(|data| event(data).into_bytes()).collect()
}

/// A stream of a chat, from its chunks.
pub fn chat_stream(chunks: &[Value]) -> Vec<u8> {
    let chunk = |data: &Value| format!("data: {data}\n\n");
    let mut stream: String = chunks.iter().map(chunk).collect();
    stream.push_str("data: [DONE]\n\n");
    stream.into_bytes()
}
