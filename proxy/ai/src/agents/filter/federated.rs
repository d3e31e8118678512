//! A request to several servers of MCP under one name.
//!
//! Handshakes, lists, notifications and the end of a session become requests to each server, and one response. A call of a tool, and a
//! prompt, is an ordinary exchange with the server of its prefix, so its streams pass as they do for one server. Everything else has no
//! meaning for several servers, and is an error.
//!
//! | file | concept |
//! |---|---|
//! | `each` | a message that each server gets, and the end of sessions |
//! | `handshake` | offers, and sessions that no client will use |
//! | `lists` | pages, one in each turn of the worker |
//! | `request` | a request to a server, and the fields of the client in it |

mod each;
mod handshake;
mod lists;
mod request;

use std::time::Duration;

use bytes::Bytes;
use weir_base::BytesPermit;
use weir_http::filter::{
    BodyChange, FilterRequest, FilterRequestError, FilterRequestOutcome, HandlerResponse, OwnResponse, SeenBody,
    Splice, WholeResponse,
};
use weir_http_codec::{Fields, Known, RequestHead};
use weir_json_codec::write::string;
use weir_mcp_session::{
    MessageKind,
    federation::{self, ListKind, ServerMessageError},
    header,
};
use weir_upstream::affinity_hash;

use self::{
    each::accepted,
    lists::Lists,
    request::{NAME, limit_call},
};
use super::{AgentFilter, session_field};
use crate::agents::{
    account::{Call, MessageRecord},
    admission,
    refusal::AgentRefusal,
    response::{NamedSession, SESSION},
    session::{FederatedSession, ServerSession},
    settings::{AgentProtocol, AgentServer, Federation},
    surface::AgentRequest,
};

/// For all requests to one server together. Default 10 s: one server that hangs holds up the others no longer than that.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a message that is no call. Default 1 MiB: handshakes and notifications have a few kilobytes, and up to 16 servers get a copy.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The federation of a request, and the work for it.
pub(super) struct Federated {
    /// By its position.
    number: usize,
    request: AgentRequest,
    session: Option<FederatedSession>,
    /// The id of the session as the client has sent it.
    sent_id: Box<[u8]>,
    work: Option<Work>,
    outcomes: Vec<FilterRequestOutcome>,
}

impl Federated {
    /// The meaning of the request.
    pub(super) fn request(&self) -> AgentRequest {
        self.request
    }

    /// The requests under way are over.
    pub(super) fn done(&mut self, outcomes: Vec<FilterRequestOutcome>) {
        self.outcomes = outcomes;
    }
}

/// Requests to servers under way.
struct Work {
    kind: WorkKind,
    /// In the order of the requests.
    sent: Vec<Sent>,
    /// The right to the body that all of them share.
    _permit: Option<BytesPermit>,
}

enum WorkKind {
    /// The revision that the client wants.
    Handshake(Box<[u8]>),
    List(Box<Lists>),
    /// A notification, a response, or the end of a session.
    Each,
    /// The end of sessions that no client will use. Then comes this response.
    Leave(Box<Result<OwnResponse, AgentRefusal>>),
}

/// The reason why a server is of no use, as a word of metrics.
type LeftOut = &'static str;

impl AgentFilter {
    /// The federation of a request, with the session that its head names.
    pub(super) fn enter_federation(
        &self,
        number: usize,
        request: AgentRequest,
        fields: &Fields,
    ) -> Result<Box<Federated>, AgentRefusal> {
        let federation = self.worker.settings.federations.get(number).ok_or(AgentRefusal::UNKNOWN)?;
        let id = session_field(fields)?;
        let session = match id {
            Some(id) => {
                let session = FederatedSession::open(id, &federation.name, self.key_name());
                Some(session.ok_or(AgentRefusal::NO_SESSION)?)
            }
            None => None,
        };
        let (sent_id, work, outcomes) = (id.unwrap_or_default().into(), None, Vec::new());
        Ok(Box::new(Federated { number, request, session, sent_id, work, outcomes }))
    }

    /// The response to a request that no single server can give, or the next requests for it.
    pub(super) fn federated_response(
        &mut self,
        head: &RequestHead,
        seen: SeenBody<'_>,
    ) -> Result<OwnResponse, AgentRefusal> {
        let Some(federated) = &mut self.federated else { return Ok(OwnResponse::None) };
        let outcomes = std::mem::take(&mut federated.outcomes);
        let Some(Work { kind, sent, .. }) = federated.work.take() else { return self.begin(head, seen) };
        let done: Vec<Done> = sent.into_iter().zip(outcomes).collect();
        // The gateway's own want of memory is no fault of a server.
        let has_room = !done.iter().any(|(_, outcome)| matches!(outcome, Err(FilterRequestError::NoRoom)));
        match kind {
            WorkKind::Leave(then) => *then,
            WorkKind::Handshake(_) if !has_room => {
                let begun = self.all_begun(&done);
                self.leave(head, begun, Err(AgentRefusal::NO_ROOM))
            }
            _ if !has_room => Err(AgentRefusal::NO_ROOM),
            WorkKind::Handshake(revision) => self.join_offers(head, &revision, done),
            WorkKind::List(lists) => self.add_pages(head, seen, lists, done),
            WorkKind::Each => self.all_have_it(head, done),
        }
    }

    pub(super) fn federation(&self) -> Option<&Federation> {
        self.worker.settings.federations.get(self.federated.as_ref()?.number)
    }

    /// The servers of the federation that the key may reach, by their positions.
    fn federated_servers(&self) -> Vec<usize> {
        let key = self.key.as_deref();
        let permits = |number: &usize| {
            let server = self.worker.settings.agents.get(*number);
            server.is_some_and(|server| admission::may_reach(key, server))
        };
        self.federation().into_iter().flat_map(|federation| &federation.servers).copied().filter(permits).collect()
    }

    /// Those that take part in the session, with their part of it.
    fn session_servers(&self) -> Vec<(usize, ServerSession)> {
        let session = self.federated.as_ref().and_then(|federated| federated.session.as_ref());
        let all = session.map_or(&[][..], FederatedSession::servers);
        let with_session = |number: usize| {
            let hash = affinity_hash(self.worker.settings.agents.get(number)?.name.as_bytes());
            Some((number, all.iter().find(|one| one.server == hash)?.clone()))
        };
        self.federated_servers().into_iter().filter_map(with_session).collect()
    }

    /// Looks at a request for the first time.
    fn begin(&mut self, head: &RequestHead, seen: SeenBody<'_>) -> Result<OwnResponse, AgentRefusal> {
        let (request, has_session) = match &self.federated {
            Some(federated) => (federated.request, federated.session.is_some()),
            None => return Ok(OwnResponse::None),
        };
        let Some(message) = &self.message else {
            if !has_session {
                return Err(AgentRefusal::NEEDS_SESSION);
            }
            self.admit_federated(request)?;
            return self.send_each(head, seen, Bytes::new());
        };
        if !header::agree(message, head.fields.all_named(b"mcp-method"), head.fields.all_named(NAME)) {
            return Err(AgentRefusal::MISMATCH);
        }
        let (kind, method, id) = (message.kind, message.method.clone(), message.id.clone().unwrap_or_default());
        let (is_handshake, is_use) = (&*method == "initialize", ListKind::of_use_method(&method).is_some());
        if !is_use && seen.bytes.len() > MESSAGE_BYTES_MAX {
            return Err(AgentRefusal::TOO_LARGE);
        }
        match kind {
            MessageKind::Request if is_handshake => {
                self.admit_federated(request)?;
                self.send_handshake(head, seen)
            }
            _ if !has_session => Err(AgentRefusal::NEEDS_SESSION),
            _ if is_use => {
                self.count(request);
                Ok(OwnResponse::None)
            }
            MessageKind::Request => {
                self.admit_federated(request)?;
                match ListKind::of_method(&method) {
                    Some(kind) => self.send_lists(head, kind, &id),
                    None if &*method == "ping" => Ok(json(federation::empty_result(&id), None)),
                    None => Err(AgentRefusal::NO_METHOD),
                }
            }
            MessageKind::Notification => {
                self.admit_federated(request)?;
                self.send_each(head, seen, Bytes::copy_from_slice(seen.bytes))
            }
            MessageKind::Response => self.respond_to_servers(head, seen, (request, &id)),
        }
    }

    /// A response of the client. Nothing tells whose request it belongs to, so servers get no more of it than that it has come: a `ping`
    /// wants no more, and other requests were never due, since servers learn of no abilities of the client.
    fn respond_to_servers(
        &mut self,
        head: &RequestHead,
        seen: SeenBody<'_>,
        (request, id): (AgentRequest, &[u8]),
    ) -> Result<OwnResponse, AgentRefusal> {
        if self.message.as_ref().is_some_and(|message| message.has_empty_result) {
            self.admit_federated(request)?;
            return self.send_each(head, seen, federation::empty_result(id).into());
        }
        self.count(request);
        Ok(accepted(false))
    }

    /// Counts a request by the name of the federation.
    fn count(&self, request: AgentRequest) {
        if let Some(federation) = self.federation() {
            let word = self.word(AgentProtocol::Mcp, request);
            self.worker.metrics.agents.sent(AgentProtocol::Mcp, &federation.name, word);
        }
    }

    /// Takes a request, of which no single server has a call, from the rates of the key.
    fn admit_federated(&mut self, request: AgentRequest) -> Result<(), AgentRefusal> {
        let Some(federation) = self.federation() else { return Ok(()) };
        let method = match &self.message {
            Some(message) => message.method.clone(),
            None => request.word().unwrap_or_default().into(),
        };
        self.admitted =
            Some(self.reserve(MessageRecord { method, ..self.record(AgentProtocol::Mcp, &federation.name) })?);
        self.count(request);
        Ok(())
    }

    /// Notes the work under way, and counts its requests.
    fn send(
        &mut self,
        kind: WorkKind,
        (sent, permit): (Vec<Sent>, Option<BytesPermit>),
        requests: Vec<FilterRequest>,
        word: &'static str,
    ) -> OwnResponse {
        for (number, _) in &sent {
            if let Some(server) = self.worker.settings.agents.get(*number) {
                self.worker.metrics.agents.sent(server.protocol, &server.name, word);
            }
        }
        self.keep(Work { kind, sent, _permit: permit });
        OwnResponse::Send(requests)
    }

    fn keep(&mut self, work: Work) {
        if let Some(federated) = &mut self.federated {
            federated.work = Some(work);
        }
    }

    fn left_out(&self, server: &AgentServer, reason: LeftOut) {
        if let Some(upstream) = self.worker.settings.upstreams.get(server.upstream) {
            self.worker.metrics.agents.left_out(upstream, server, reason);
        }
    }

    /// Finds the server of a call by the prefix of its name. The message becomes that of the server; returns the change of its bytes.
    pub(super) fn choose_server(&mut self, head: &mut RequestHead) -> Result<BodyChange, AgentRefusal> {
        let Some(federated) = &self.federated else { return Ok(BodyChange::Keep) };
        let (request, sent) = (federated.request, federated.sent_id.clone());
        let parts = self.session_servers();
        let agents = &self.worker.settings.agents;
        let message = self.message.as_mut().ok_or(AgentRefusal::UNKNOWN)?;
        let (Some(name), Some(range)) = (&message.name, &message.name_range) else { return Err(AgentRefusal::NO_NAME) };
        let unknown = match Call::of(AgentProtocol::Mcp, &message.method) {
            Some(_) => AgentRefusal::TOOL,
            None => AgentRefusal::PROMPT,
        };
        let Some((prefix, own)) = federation::split(name) else { return Err(unknown) };
        let is_it = |number: usize| agents.get(number).is_some_and(|server| *server.name == *prefix);
        let Some((number, part)) = parts.into_iter().find(|(number, _)| is_it(*number)) else { return Err(unknown) };
        let mut replacement = Vec::with_capacity(own.len() + 2);
        string(&mut replacement, own);
        let splice = Splice { range: range.clone(), replacement: replacement.into() };
        message.name = Some(own.into());
        limit_call(head, &part);
        self.target = Some((number, request));
        let session = Some(part.session).filter(|session| !session.own_id.is_empty());
        self.session = session.map(|session| NamedSession { session, sent });
        Ok(BodyChange::Splice(vec![splice]))
    }
}

/// The server of a request, by its position, and the id of the message.
type Sent = (usize, Box<[u8]>);

/// A request, and its outcome.
type Done = (Sent, FilterRequestOutcome);

fn error_word(error: FilterRequestError) -> LeftOut {
    match error {
        FilterRequestError::Unreachable => "unreachable",
        FilterRequestError::Failed => "failed",
        FilterRequestError::TooLong => "too_long",
        FilterRequestError::NoRoom => "no_room",
    }
}

fn message_word(error: ServerMessageError) -> LeftOut {
    match error {
        ServerMessageError::Json(_) | ServerMessageError::Form | ServerMessageError::Other => "unreadable",
        ServerMessageError::Error => "error",
    }
}

/// A response of the gateway itself.
fn json(body: Vec<u8>, session: Option<&str>) -> OwnResponse {
    let mut fields = Fields::new();
    fields.set(Known::ContentType, b"application/json");
    if let Some(id) = session {
        fields.push(SESSION, id.as_bytes());
    }
    OwnResponse::Respond(HandlerResponse::Whole(WholeResponse { status: 200, fields, body: body.into() }))
}
