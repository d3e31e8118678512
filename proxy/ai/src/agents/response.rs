//! A response of a server: its session, and the lists of tools in it.

use bytes::Bytes;
use weir_http::filter::{BodyAborted, HoldLimits, ReplacedResponse, Tap};
use weir_http_codec::{Fields, Known};
use weir_mcp_session::{Message, ToolEvents, limits::MEMORY_PER_BYTE, permitted_tools};
use weir_sse_codec::Limits;

use super::{
    refusal::AgentRefusal,
    session::{self, Session},
};

/// The field with the id of a session.
pub(crate) const SESSION: &[u8] = b"mcp-session-id";

/// Bytes of a list of tools that is no stream. Default 8 MiB: a thousand tools with long schemas. A longer one is a 502.
const LIST_BYTES_MAX: usize = 8 << 20;

/// A refusal of the whole response: not a byte of it is held.
pub(crate) const UNREADABLE: Tap =
    Tap::Replace(HoldLimits { bytes_max: 0, memory_per_byte: MEMORY_PER_BYTE, may_be_cut: false });

/// Whether a response with these fields is a stream of events.
pub(crate) fn is_event_stream(fields: &Fields) -> bool {
    let media_type = fields.get(Known::ContentType).unwrap_or_default();
    let media_type = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    media_type.eq_ignore_ascii_case(b"text/event-stream")
}

/// A response while it passes.
#[derive(Default)]
pub(crate) enum Listed {
    /// It passes as it comes.
    #[default]
    No,
    /// Events, which are judged one by one.
    Events(Box<ToolEvents>),
}

impl Listed {
    /// The response with this head, for a key that may call only some tools. `is_list`: tools were requested, or a stream of which a
    /// part may have been.
    pub(crate) fn new(status: u16, fields: &Fields, is_list: bool) -> (Self, Tap) {
        if !(200..300).contains(&status) {
            return (Self::No, Tap::No);
        }
        let is_coded = fields.all(Known::ContentEncoding).any(|coding| !coding.eq_ignore_ascii_case(b"identity"));
        match is_event_stream(fields) {
            // It was not requested, and cannot be read.
            _ if is_coded => (Self::No, UNREADABLE),
            true => (Self::Events(Box::new(ToolEvents::new(Limits::default()))), Tap::Edit),
            // Whatever the server calls it: a client might read it.
            false if is_list => {
                let limits =
                    HoldLimits { bytes_max: LIST_BYTES_MAX, memory_per_byte: MEMORY_PER_BYTE, may_be_cut: false };
                (Self::No, Tap::Replace(limits))
            }
            false => (Self::No, Tap::No),
        }
    }

    /// Takes a piece of a stream, and appends the part that goes on.
    ///
    /// # Errors
    /// An event that cannot be judged.
    pub(crate) fn edit(
        &mut self,
        piece: &[u8],
        may_use: &dyn Fn(&str) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<(), BodyAborted> {
        match self {
            Self::No => out.extend_from_slice(piece),
            Self::Events(events) => events.push(piece, may_use, out).map_err(|_| BodyAborted)?,
        }
        Ok(())
    }
}

/// A whole list of tools without those that the client may not use.
pub(crate) fn replaced(
    (status, fields): (u16, &mut Fields),
    body: &[u8],
    message: Option<&Message>,
    may_use: &dyn Fn(&str) -> bool,
) -> ReplacedResponse {
    match permitted_tools(body, may_use) {
        Ok(list) => {
            let body = list.map_or_else(|| Bytes::copy_from_slice(body), Bytes::from);
            ReplacedResponse { status, body }
        }
        Err(_) => {
            let refused = AgentRefusal::BAD_LIST.response(message);
            fields.set(Known::ContentType, b"application/json");
            ReplacedResponse { status: refused.status, body: refused.body }
        }
    }
}

/// A session as a request names it.
pub(crate) struct NamedSession {
    pub(crate) session: Session,
    /// The id of the client.
    pub(crate) sent: Box<[u8]>,
}

/// A server gives ids that no client could send back: its response cannot go on.
pub(crate) fn has_bad_session(fields: &Fields) -> bool {
    let mut ids = fields.all_named(SESSION);
    ids.next().is_some_and(|id| !session::is_server_id(id)) || ids.next().is_some()
}

/// Puts the id of the gateway into the place of that of a server. `endpoint`: the hash of the one that has responded.
pub(crate) fn name_session(
    fields: &mut Fields,
    known: Option<&NamedSession>,
    endpoint: Option<u64>,
    (server, key): (&str, Option<&str>),
) {
    let own = fields.all_named(SESSION).next().map(Box::<[u8]>::from);
    let Some(own_id) = own else { return };
    fields.remove_named(SESSION);
    if let Some(known) = known.filter(|known| known.session.own_id == own_id) {
        fields.push(SESSION, &known.sent);
        return;
    }
    let Some(endpoint) = endpoint.filter(|_| session::is_server_id(&own_id)) else { return };
    if let Some(id) = (Session { endpoint, own_id }).seal(server, key) {
        fields.push(SESSION, id.as_bytes());
    }
}
