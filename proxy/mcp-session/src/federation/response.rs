//! The response to a request within the body of an HTTP response.

use std::borrow::Cow;

use weir_sse_codec::{Kind, Limits, Splitter};

use super::begin_response;
use crate::message::{MessageKind, MessageReader};

/// The message that responds to the request of this id. In a stream of events, other messages of the server are passed over.
/// `None`: there is none, or it could be read in two ways.
pub fn response<'a>(body: &'a [u8], is_stream: bool, id: &[u8]) -> Option<Cow<'a, [u8]>> {
    if !is_stream {
        return responds(body, id).then_some(Cow::Borrowed(body));
    }
    find_event(body, |data| responds(data, id).then(|| Cow::Owned(data.to_vec())))
}

/// The first find among the messages of a whole stream of events. One event may be as long as the body, which is here.
pub(super) fn find_event<T>(body: &[u8], mut find: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let limits = Limits { line_bytes: body.len(), event_bytes: body.len() };
    let (mut splitter, mut rest) = (Splitter::new(limits), body);
    while let Ok(Some(unit)) = splitter.next(rest) {
        let is_message = unit.name.is_none_or(|name| name.is_empty() || name == b"message");
        let data = unit.data.filter(|_| unit.kind == Kind::Event && is_message);
        if let Some(found) = data.and_then(&mut find) {
            return Some(found);
        }
        rest = &rest[unit.bytes..];
    }
    None
}

/// Whether a message is the response to the request of this id.
fn responds(message: &[u8], id: &[u8]) -> bool {
    MessageReader::read(message)
        .is_ok_and(|message| message.kind == MessageKind::Response && message.id.as_deref() == Some(id))
}

/// The response without content to the request of this id.
pub fn empty_result(id: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    begin_response(id, &mut out);
    out.extend_from_slice(b"{}}");
    out
}
