//! Any bytes as a message of MCP, as a list of tools, and as a stream that may have such lists.

use serde_json::Value;
use weir_mcp_session::federation::{ListKind, Offer, PrefixedList, initialize_for_servers, joint_list, response};
use weir_mcp_session::{Message, MessageError, MessageKind, MessageReader, ToolEvents, permitted_tools};
use weir_sse_codec::{Kind, Limits, Splitter};

/// Small enough for inputs of a few bytes to reach them.
const LIMITS: Limits = Limits { line_bytes: 512, event_bytes: 1024 };

/// The rule of the lists: half of all names.
fn may_use(name: &str) -> bool {
    name.len().is_multiple_of(2)
}

/// The facts of a message are those that another reader sees, and cuts change nothing. A list has exactly the permitted tools of the one
/// that came; so has each list within a stream, whose other events pass as they came. A joint list has exactly these tools with the name
/// of their server, and a handshake changes two members and no other.
pub fn mcp_session(data: &[u8]) {
    let [choice, text @ ..] = data else { return };
    message(text, 1 + usize::from(*choice));
    if let Ok(value) = serde_json::from_slice::<Value>(text) {
        list(text, &value);
        joint(text, &value);
        handshake(text, &value);
    }
    stream(text, 1 + usize::from(*choice));
}

fn message(text: &[u8], piece: usize) {
    let facts = MessageReader::read(text);
    for piece in [1, 3, piece] {
        assert_eq!(in_pieces(text, piece), facts, "pieces of {piece}");
    }
    let Ok(facts) = facts else { return };
    // Numbers may be too large for the other reader.
    let Ok(value) = serde_json::from_slice::<Value>(text) else { return };
    assert_eq!(value["method"].as_str().unwrap_or_default(), &*facts.method);
    assert_eq!(value.get("id").is_some(), facts.id.is_some());
    assert_eq!(facts.kind == MessageKind::Response, value.get("method").is_none());
    if let Some(name) = &facts.name {
        assert_eq!(value["params"]["name"].as_str(), Some(&**name));
    }
    if let Some(id) = &facts.id {
        assert_eq!(serde_json::from_slice::<Value>(id).ok().as_ref(), value.get("id"));
    }
}

fn in_pieces(text: &[u8], piece: usize) -> Result<Message, MessageError> {
    let mut reader = MessageReader::default();
    text.chunks(piece).try_for_each(|piece| reader.push(piece))?;
    reader.finish()
}

fn list(text: &[u8], value: &Value) {
    let Ok(changed) = permitted_tools(text, &may_use) else { return };
    let mut wanted = value.clone();
    let tools = wanted.get_mut("result").and_then(|result| result.get_mut("tools")).and_then(Value::as_array_mut);
    if let Some(tools) = tools {
        tools.retain(|tool| tool["name"].as_str().is_some_and(may_use));
    }
    let left: Value = serde_json::from_slice(changed.as_deref().unwrap_or(text)).expect("still JSON");
    // Longer names than any tool has are no names here.
    if text.len() <= 1_024 {
        assert_eq!(left, wanted);
        assert_eq!(permitted_tools(text, &|_| true) == Ok(None), !has_nameless(value), "all are permitted");
    }
}

/// The list of one server, under the name of several.
fn joint(text: &[u8], value: &Value) {
    let mut list = PrefixedList::new(ListKind::Tools, "server");
    let Ok(Message { id: Some(id), kind: MessageKind::Response, .. }) = MessageReader::read(text) else {
        assert!(list.add_page(text, b"1", &may_use).is_err(), "it is no response");
        return;
    };
    assert!(list.add_page(text, b"\"another\"", &may_use).is_err() || *id == b"\"another\""[..]);
    let mut list = PrefixedList::new(ListKind::Tools, "server");
    let Ok(next) = list.add_page(text, &id, &may_use) else { return };
    if let Some(next) = next {
        let next: Value = serde_json::from_slice(&next).expect("a cursor");
        assert_eq!(next, value["result"]["nextCursor"]);
    }
    // Longer names than any tool has are no names here.
    if text.len() > 1_000 {
        return;
    }
    let mut wanted = value["result"]["tools"].clone();
    let tools = wanted.as_array_mut().expect("a list that was read");
    tools.retain(|tool| tool["name"].as_str().is_some_and(may_use));
    for tool in tools {
        tool["name"] = format!("server__{}", tool["name"].as_str().unwrap_or_default()).into();
    }
    let joint: Value = serde_json::from_slice(&joint_list(ListKind::Tools, b"1", [&list])).expect("JSON");
    assert_eq!(joint["result"]["tools"], wanted);
}

/// The handshake for servers, and the offer of one.
fn handshake(text: &[u8], value: &Value) {
    if let Ok((revision, changed)) = initialize_for_servers(text, b"7") {
        let mut wanted = value.clone();
        if let Some(id) = wanted.get_mut("id") {
            *id = 7.into();
        }
        if let Some(abilities) = wanted.get_mut("params").and_then(|params| params.get_mut("capabilities")) {
            *abilities = Value::Object(serde_json::Map::new());
        }
        assert_eq!(serde_json::from_slice::<Value>(&changed).ok(), Some(wanted));
        if let Some(revision) = revision {
            assert_eq!(value["params"]["protocolVersion"].as_str().map(str::as_bytes), Some(&*revision));
        }
    }
    if let Ok(offer) = Offer::read(text) {
        assert_eq!(value["result"]["protocolVersion"].as_str().map(str::as_bytes), Some(&*offer.revision));
        assert_eq!(offer.has_tools, value["result"]["capabilities"]["tools"].is_object());
    }
}

/// A tool without a name goes whatever the rule says.
fn has_nameless(value: &Value) -> bool {
    let tools = value["result"]["tools"].as_array();
    tools.is_some_and(|tools| tools.iter().any(|tool| tool["name"].as_str().is_none()))
}

/// The bytes that pass of a stream in pieces of this size, and whether it breaks off.
fn filtered(stream: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let (mut events, mut out) = (ToolEvents::new(LIMITS), Vec::new());
    for piece in stream.chunks(piece) {
        if events.push(piece, &may_use, &mut out).is_err() {
            return (out, true);
        }
        assert!(events.held_bytes() <= LIMITS.event_bytes + 8, "{} bytes are held", events.held_bytes());
    }
    (out, false)
}

fn stream(text: &[u8], piece: usize) {
    let (whole, is_broken) = filtered(text, text.len().max(1));
    for piece in [1, 2, 7, piece] {
        assert_eq!(filtered(text, piece), (whole.clone(), is_broken), "pieces of {piece}");
    }
    if let Some(found) = response(text, true, b"1") {
        let found = MessageReader::read(&found).expect("a message");
        assert_eq!((found.kind, found.id.as_deref()), (MessageKind::Response, Some(&b"1"[..])));
    }
    // No event that passes has a tool that may not be used.
    let (mut splitter, mut rest) = (Splitter::new(Limits::default()), &whole[..]);
    while let Ok(Some(unit)) = splitter.next(rest) {
        let name = unit.name.unwrap_or_default();
        if let Some(data) = unit.data.filter(|data| unit.kind == Kind::Event && !data.is_empty())
            && (name.is_empty() || name == b"message")
        {
            assert_eq!(permitted_tools(data, &may_use).ok(), Some(None), "{}", String::from_utf8_lossy(data));
        }
        rest = &rest[unit.bytes..];
    }
}
