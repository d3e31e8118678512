//! Any bytes as a stream of events, as a request, and as a response of a provider of models.

use serde_json::{Value, json};
use weir_ai_session::usage::TOKENS_MAX;
use weir_ai_session::{BufferedUsage, Dialect, End, ResponseStream, Splice, Usage, UsageChunk};
use weir_analysis::ai::{BodyError, BodyReader, Endpoint, Facts, Tool, Wanted, read};
use weir_json_codec::Rule;
use weir_sse_codec::{Kind, Limits, Splitter, SseError};

/// Small enough for inputs of a few bytes to reach them.
const LIMITS: Limits = Limits { line_bytes: 512, event_bytes: 1024 };

/// A unit: its kind, its bytes, name and data.
type Event = (Kind, Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);

/// Wherever a stream of events is cut, it has the same events, and all of them together are the stream.
pub fn ai_events(data: &[u8]) {
    let [choice, stream @ ..] = data else { return };
    let whole = events(stream, stream.len().max(1));
    for piece in [1, 2, 7, 1 + usize::from(*choice)] {
        assert_eq!(events(stream, piece), whole, "pieces of {piece}");
    }
    let together: Vec<u8> = whole.0.iter().flat_map(|(_, bytes, ..)| bytes.clone()).collect();
    assert!(stream.starts_with(&together));
    // A unit that has not ended has no blank line in it.
    let rest = &stream[together.len()..];
    assert!(whole.1.is_some() || !rest.windows(2).any(|pair| pair == b"\n\n" || pair == b"\r\r"));
}

/// Events of a stream in pieces of this size, and its error.
fn events(stream: &[u8], piece: usize) -> (Vec<Event>, Option<SseError>) {
    let (mut splitter, mut events): (_, Vec<Event>) = (Splitter::new(LIMITS), Vec::new());
    for mut piece in stream.chunks(piece) {
        loop {
            let unit = match splitter.next(piece) {
                Ok(Some(unit)) => unit,
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            };
            let bytes = stream[unit.start as usize..unit.end as usize].to_vec();
            match (unit.kind, events.last_mut()) {
                // It belongs to the end of the unit before.
                (Kind::LineFeed, Some(before)) => before.1.extend(bytes),
                _ => events.push((unit.kind, bytes, unit.name.map(<[u8]>::to_vec), unit.data.map(<[u8]>::to_vec))),
            }
            piece = &piece[unit.bytes..];
        }
    }
    (events, None)
}

/// The values that a policy sees in a request are those that another reader sees in the forwarded bytes; an edit
/// changes its member and nothing else.
pub fn ai_request(data: &[u8]) {
    let [choice, body @ ..] = data else { return };
    let endpoint = Endpoint::ALL[usize::from(choice >> 1) % Endpoint::ALL.len()];
    let wanted = Wanted { prompts: choice & 1 == 1 };
    let facts = read(endpoint, body, wanted);
    for piece in [1, 3, 1 + usize::from(choice >> 4)] {
        assert_eq!(in_pieces(endpoint, body, wanted, piece), facts, "pieces of {piece}");
    }
    let tree = serde_json::from_slice::<Value>(body);
    let has_opinion = has_opinion(&tree);
    match (&facts, tree) {
        (Ok(facts), Ok(tree)) => compare(endpoint, facts, body, &tree),
        (Ok(_), Err(error)) => assert!(!has_opinion, "the other reader: {error}"),
        (Err(BodyError::Json(error)), tree) => {
            assert!(tree.is_err() || matches!(error.rule, Rule::Duplicate | Rule::Case | Rule::Depth), "{error}");
        }
        (Err(_), _) => {}
    }
}

fn in_pieces(endpoint: Endpoint, body: &[u8], wanted: Wanted, piece: usize) -> Result<Facts, BodyError> {
    let mut reader = BodyReader::new(endpoint, wanted);
    body.chunks(piece).try_for_each(|piece| reader.push(piece))?;
    reader.finish().map(|facts| *facts)
}

fn compare(endpoint: Endpoint, facts: &Facts, body: &[u8], tree: &Value) {
    let options = &facts.options;
    assert_eq!(options.model.as_ref().map(|named| &*named.text), tree["model"].as_str());
    assert_eq!(options.stream.map(|flag| flag.value), tree["stream"].as_bool());
    let tools = tree["tools"].as_array().map_or(&[][..], Vec::as_slice);
    let name = |tool: &Tool| tool.name.as_deref().map(str::to_owned);
    let names: Vec<Option<String>> = facts.tools.list.iter().map(name).collect();
    if matches!(endpoint, Endpoint::Responses | Endpoint::Messages) {
        let theirs: Vec<Option<String>> = tools.iter().map(|tool| tool["name"].as_str().map(str::to_owned)).collect();
        assert_eq!(names, theirs);
    }
    for text in &facts.prompts.texts {
        let _: String = serde_json::from_slice(text.span.of(body)).expect("a text is a string of the body");
    }
    let (mut splice, mut wanted) = (Splice::default(), tree.clone());
    if splice.set_model(facts, "alias \"\n") {
        wanted["model"] = json!("alias \"\n");
    }
    if splice.include_usage(facts) {
        if wanted["stream_options"].is_null() {
            wanted["stream_options"] = json!({});
        }
        wanted["stream_options"]["include_usage"] = json!(true);
    }
    let edited = splice.apply(body);
    assert_eq!(edited.len() as u64, splice.length(body.len() as u64));
    assert!(!splice.is_empty() || edited == body);
    assert_eq!(serde_json::from_slice::<Value>(&edited).expect("still JSON"), wanted);
}

/// A stream passes as it came, except for the chunks that another reader takes for usage alone; cuts change nothing; no
/// report of usage passes its bounds.
pub fn ai_usage(data: &[u8]) {
    let [choice, stream @ ..] = data else { return };
    let dialect = Dialect::ALL[usize::from(*choice) % Dialect::ALL.len()];
    for chunk in [UsageChunk::Forward, UsageChunk::Drop] {
        let whole = followed(dialect, chunk, stream, stream.len().max(1));
        for piece in [1, 3, 1 + usize::from(choice >> 2)] {
            assert_eq!(followed(dialect, chunk, stream, piece), whole, "pieces of {piece}");
        }
        let (passed, usage, _, error) = whole;
        if error.is_none() && is_clear(stream) {
            let is_for_usage =
                |json: &Value| chunk == UsageChunk::Drop && dialect == Dialect::Chat && is_usage_chunk(json);
            assert_eq!(String::from_utf8_lossy(&passed), String::from_utf8_lossy(&filtered(stream, is_for_usage)));
        }
        usage.iter().for_each(check);
    }
    let buffered = |piece: usize, length: Option<u64>| {
        let mut usage = BufferedUsage::new(dialect, length);
        stream.chunks(piece).for_each(|piece| usage.push(piece));
        usage.finish()
    };
    let usage = buffered(stream.len().max(1), None);
    assert_eq!(buffered(3, None), usage);
    assert_eq!(buffered(7, Some(stream.len() as u64)), usage);
    usage.iter().for_each(check);
}

/// The bytes that pass, the usage, the end and the error of a stream in pieces of this size.
type Followed = (Vec<u8>, Option<Usage>, End, Option<SseError>);

fn followed(dialect: Dialect, chunk: UsageChunk, stream: &[u8], piece: usize) -> Followed {
    let (mut follower, mut passed) = (ResponseStream::new(dialect, chunk, LIMITS), Vec::new());
    for piece in stream.chunks(piece) {
        if let Err(error) = follower.push(piece, &mut |bytes| passed.extend_from_slice(bytes)) {
            return (passed, follower.usage(), follower.end(), Some(error));
        }
        assert!(follower.held_bytes() <= LIMITS.event_bytes + 4);
    }
    let end = follower.finish(&mut |bytes| passed.extend_from_slice(bytes));
    (passed, follower.usage(), end, None)
}

/// Whether the other reader has an opinion about every event. It knows escaped spellings of a key, too, which no
/// provider sends.
fn is_clear(stream: &[u8]) -> bool {
    let (mut splitter, mut rest) = (Splitter::new(LIMITS), stream);
    while let Some(unit) = splitter.next(rest).expect("within limits") {
        let data = unit.data.unwrap_or_default();
        if data.windows(2).any(|part| part == b"\\u") || !has_opinion(&serde_json::from_slice(data)) {
            return false;
        }
        rest = &rest[unit.bytes..];
    }
    true
}

/// The stream without the events that match.
fn filtered(stream: &[u8], matches: impl Fn(&Value) -> bool) -> Vec<u8> {
    let (mut splitter, mut passed, mut rest) = (Splitter::new(LIMITS), Vec::new(), stream);
    while let Some(unit) = splitter.next(rest).expect("within limits") {
        let json = unit.data.and_then(|data| serde_json::from_slice(data).ok());
        if !json.is_some_and(|json| matches(&json)) {
            passed.extend_from_slice(&rest[..unit.bytes]);
        }
        rest = &rest[unit.bytes..];
    }
    passed.extend_from_slice(rest);
    passed
}

/// A chunk of a chat that has no choice and reports usage.
fn is_usage_chunk(json: &Value) -> bool {
    json["usage"].is_object() && json["choices"].as_array().is_some_and(Vec::is_empty)
}

/// The other reader has no opinion about large numbers and deep texts.
fn has_opinion(json: &Result<Value, serde_json::Error>) -> bool {
    let limits = ["number out of range", "recursion limit"];
    !json.as_ref().is_err_and(|error| limits.iter().any(|words| error.to_string().starts_with(words)))
}

fn check(usage: &Usage) {
    // Anthropic's input is the sum of three figures.
    assert!(usage.input <= 3 * TOKENS_MAX && usage.output <= TOKENS_MAX);
    assert!(usage.cached + usage.cache_write <= usage.input && usage.reasoning <= usage.output);
}
