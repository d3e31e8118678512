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
    let (mut splitter, mut rest) = (Splitter::new(Limits::default()), body);
    while let Ok(Some(unit)) = splitter.next(rest) {
        let is_message = unit.name.is_none_or(|name| name.is_empty() || name == b"message");
        if let Some(data) = unit.data.filter(|data| unit.kind == Kind::Event && is_message && responds(data, id)) {
            return Some(Cow::Owned(data.to_vec()));
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
