//! A request to several servers of MCP under one name.
//!
//! Handshakes, lists, notifications and the end of a session become requests to each server, and one response. A call of a tool, and a
//! prompt, is an ordinary exchange with the server of its prefix, so its streams pass as they do for one server. Everything else has no
//! meaning for several servers, and is an error.

use std::time::Duration;

use bytes::Bytes;
use weir_base::BytesPermit;
use weir_http::filter::{
    BodyChange, FilterRequest, FilterRequestError, FilterRequestOutcome, FilterResponse, HandlerResponse, OwnResponse,
    SeenBody, Splice, WholeResponse,
};
use weir_http_codec::{Fields, Known, RequestHead};
use weir_json_codec::write::string;
use weir_mcp_session::{
    MessageKind,
    federation::{self, JointOffer, ListKind, Offer, PrefixedList, ServerMessageError},
    header,
};
use weir_upstream::affinity_hash;

use super::{AgentFilter, make_head, session_field};
use crate::{
    agents::{
        account::{Call, MessageRecord},
        admission,
        refusal::AgentRefusal,
        response::{LIST_BYTES_MAX, NamedSession, SESSION, has_bad_session},
        session::{FederatedSession, ServerSession, Session},
        settings::{AgentProtocol, AgentServer, Federation},
        surface::AgentRequest,
    },
    credentials,
};

/// For each request to a server. Default 10 s: one server that hangs holds up the others no longer than that.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Pages of one list. Default 64; the servers of SDKs have one page.
const PAGES_MAX: u32 = 64;

/// Bytes of a response to a handshake. Default 256 KiB: it has instructions.
const OFFER_BYTES_MAX: usize = 256 << 10;

/// Bytes of a response whose body has no meaning.
const ACCEPTED_BYTES_MAX: usize = 16 << 10;

/// The field with the revision of a session.
const REVISION: &[u8] = b"mcp-protocol-version";

/// The field with the name of a tool.
const NAME: &[u8] = b"mcp-name";

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
    /// The requests under way are over.
    pub(super) fn done(&mut self, outcomes: Vec<FilterRequestOutcome>) {
        self.outcomes = outcomes;
    }
}

/// Requests to servers under way.
struct Work {
    kind: WorkKind,
    /// In the order of the requests: the server by its position, and the id of the message.
    sent: Vec<(usize, Box<[u8]>)>,
}

enum WorkKind {
    /// The revision that the client wants.
    Handshake(Box<[u8]>),
    List(Box<Lists>),
    /// A notification, a response, or the end of a session.
    Each,
}

/// Lists while they are read.
struct Lists {
    kind: ListKind,
    /// Each with its server.
    lists: Vec<(usize, PrefixedList)>,
    pages: u32,
    /// The right to the lists, and to the joint one.
    permit: Option<BytesPermit>,
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
        let Some(Work { kind, sent }) = federated.work.take() else { return self.begin(head, seen) };
        let done = sent.into_iter().zip(outcomes).collect();
        match kind {
            WorkKind::Handshake(revision) => self.join_offers(&revision, done),
            WorkKind::List(lists) => self.add_pages(head, seen, *lists, done),
            WorkKind::Each => self.all_have_it(done),
        }
    }

    fn federation(&self) -> Option<&Federation> {
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
        let (kind, method, id) = match &self.message {
            Some(message) => {
                if !header::agree(message, head.fields.all_named(b"mcp-method"), head.fields.all_named(NAME)) {
                    return Err(AgentRefusal::MISMATCH);
                }
                (message.kind, message.method.clone(), message.id.clone().unwrap_or_default())
            }
            None if !has_session => return Err(AgentRefusal::NEEDS_SESSION),
            None => {
                self.count(request);
                return self.send_each(head, Bytes::new());
            }
        };
        let is_request = kind == MessageKind::Request;
        let list = ListKind::of_method(&method).filter(|_| is_request);
        if is_request && &*method == "initialize" {
            self.admit_federated(request)?;
            return self.send_handshake(head, seen.bytes);
        }
        if !has_session {
            return Err(AgentRefusal::NEEDS_SESSION);
        }
        if [ListKind::Tools, ListKind::Prompts].into_iter().any(|kind| kind.use_method() == &*method) {
            self.count(request);
            return Ok(OwnResponse::None);
        }
        if !is_request {
            self.count(request);
            return self.send_each(head, Bytes::copy_from_slice(seen.bytes));
        }
        self.admit_federated(request)?;
        match list {
            Some(kind) => self.send_lists(head, kind, &id),
            None if &*method == "ping" => Ok(json(federation::empty_result(&id), None)),
            None => Err(AgentRefusal::NO_METHOD),
        }
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
        let (Some(federation), Some(message)) = (self.federation(), &self.message) else { return Ok(()) };
        let record = MessageRecord {
            request: self.request.clone(),
            key: self.key.as_ref().map(|key| key.name.clone()),
            server: federation.name.clone(),
            method: message.method.clone(),
            tool: None,
            call: None,
        };
        let reserved = admission::reserve(&self.worker, self.key.as_deref(), &record);
        let reservation = reserved.map_err(|denial| AgentRefusal::of_denial(&denial))?;
        self.admitted = Some((reservation, record));
        self.count(request);
        Ok(())
    }

    /// The handshake of the client, for each server.
    fn send_handshake(&mut self, head: &RequestHead, message: &[u8]) -> Result<OwnResponse, AgentRefusal> {
        let id = self.own_id();
        let (revision, body) = federation::initialize_for_servers(message, &id)
            .map_err(|error| AgentRefusal::of_message(&error.into()))?;
        let revision = revision.ok_or(AgentRefusal::NO_REVISION)?;
        let body = Bytes::from(body);
        let (mut requests, mut sent) = (Vec::new(), Vec::new());
        for number in self.federated_servers() {
            if let Some(request) = self.request(head, number, None, body.clone(), OFFER_BYTES_MAX) {
                requests.push(request);
                sent.push((number, id.clone()));
            }
        }
        Ok(self.send(WorkKind::Handshake(revision), sent, requests, "initialize"))
    }

    /// One offer of all servers that made one.
    fn join_offers(&mut self, wanted: &[u8], done: Vec<Done>) -> Result<OwnResponse, AgentRefusal> {
        let (mut joint, mut session) = (JointOffer::default(), FederatedSession::default());
        for ((number, id), outcome) in done {
            let Some(server) = self.worker.settings.agents.get(number) else { continue };
            let offered = self.offer(server, &id, wanted, outcome);
            match offered.and_then(|(offer, part)| if session.add(part) { Ok(offer) } else { Err("session_id") }) {
                Ok(offer) => joint.add(&server.name, &offer),
                Err(reason) => self.left_out(server, reason),
            }
        }
        if session.servers().is_empty() {
            return Err(AgentRefusal::ALL_DOWN);
        }
        let name = self.federation().map(|federation| federation.name.clone()).unwrap_or_default();
        let sealed = session.seal(&name, self.key_name()).ok_or(AgentRefusal::NO_ROOM)?;
        let id = self.message.as_ref().and_then(|message| message.id.as_deref()).unwrap_or_default();
        Ok(json(joint.response(id, (&name, env!("CARGO_PKG_VERSION"))), Some(&sealed)))
    }

    /// The offer of one server, and its session.
    fn offer(
        &self,
        server: &AgentServer,
        id: &[u8],
        wanted: &[u8],
        outcome: FilterRequestOutcome,
    ) -> Result<(Offer, ServerSession), LeftOut> {
        let response = outcome.map_err(error_word)?;
        let offer = Offer::read(&message_of(&response, id)?).map_err(message_word)?;
        // A later revision than the client knows has no meaning for it.
        if *offer.revision > *wanted {
            return Err("revision");
        }
        if has_bad_session(&response.fields) {
            return Err("session_id");
        }
        let own_id = response.fields.all_named(SESSION).next().unwrap_or_default().into();
        let endpoint = self.worker.endpoints.get(server.upstream).and_then(|all| all.get(response.endpoint));
        let session = ServerSession {
            server: affinity_hash(server.name.as_bytes()),
            has_tools: offer.has_tools,
            has_prompts: offer.has_prompts,
            revision: (*offer.revision).try_into().map_err(|_| "revision")?,
            session: Session { endpoint: endpoint.copied().ok_or("failed")?, own_id },
        };
        Ok((offer, session))
    }

    /// The first page of each server's list.
    fn send_lists(&mut self, head: &RequestHead, kind: ListKind, id: &[u8]) -> Result<OwnResponse, AgentRefusal> {
        let own_id = self.own_id();
        let (mut requests, mut sent, mut lists) = (Vec::new(), Vec::new(), Vec::new());
        for (number, part) in self.session_servers() {
            let has_list = if kind == ListKind::Tools { part.has_tools } else { part.has_prompts };
            let Some(server) = self.worker.settings.agents.get(number).filter(|_| has_list) else { continue };
            let body = kind.request(&own_id, None).into();
            let request = self.request(head, number, Some(&part), body, LIST_BYTES_MAX);
            requests.push(request.ok_or(AgentRefusal::NO_SESSION)?);
            sent.push((number, own_id.clone()));
            lists.push((number, PrefixedList::new(kind, &server.name)));
        }
        if requests.is_empty() {
            return Ok(json(federation::joint_list(kind, id, []), None));
        }
        let lists = Box::new(Lists { kind, lists, pages: 1, permit: None });
        Ok(self.send(WorkKind::List(lists), sent, requests, kind.method()))
    }

    /// Adds the next pages, and wants those behind them.
    fn add_pages(
        &mut self,
        head: &RequestHead,
        seen: SeenBody<'_>,
        mut all: Lists,
        done: Vec<Done>,
    ) -> Result<OwnResponse, AgentRefusal> {
        let own_id = self.own_id();
        let parts = self.session_servers();
        let (mut requests, mut sent) = (Vec::new(), Vec::new());
        for ((number, id), outcome) in done {
            let Some(server) = self.worker.settings.agents.get(number) else { continue };
            let Some((_, part)) = parts.iter().find(|(one, _)| *one == number) else { continue };
            // The server does not know the session any more: another handshake has all servers again.
            if outcome.as_ref().is_ok_and(|response| response.status == 404) && !part.session.own_id.is_empty() {
                return Err(AgentRefusal::NO_SESSION);
            }
            let next = self.add_page(&mut all, server, (number, &id), outcome).and_then(|next| match next {
                Some(_) if all.pages >= PAGES_MAX => Err("pages"),
                next => Ok(next),
            });
            match next {
                Ok(None) => {}
                Ok(Some(cursor)) => {
                    let body = all.kind.request(&own_id, Some(&cursor)).into();
                    let request = self.request(head, number, Some(part), body, LIST_BYTES_MAX);
                    requests.push(request.ok_or(AgentRefusal::NO_SESSION)?);
                    sent.push((number, own_id.clone()));
                }
                Err(reason) => {
                    all.lists.retain(|(one, _)| *one != number);
                    self.left_out(server, reason);
                }
            }
            let bytes: usize = all.lists.iter().map(|(_, list)| list.bytes()).sum();
            all.permit = None;
            all.permit = Some(seen.room(2 * bytes as u64).ok_or(AgentRefusal::NO_ROOM)?);
        }
        if all.lists.is_empty() {
            return Err(AgentRefusal::ALL_DOWN);
        }
        if !requests.is_empty() {
            all.pages += 1;
            let method = all.kind.method();
            return Ok(self.send(WorkKind::List(Box::new(all)), sent, requests, method));
        }
        let id = self.message.as_ref().and_then(|message| message.id.as_deref()).unwrap_or_default();
        Ok(json(federation::joint_list(all.kind, id, all.lists.iter().map(|(_, list)| list)), None))
    }

    /// Adds one page to the list of its server. Returns the cursor of the next one.
    fn add_page(
        &self,
        all: &mut Lists,
        server: &AgentServer,
        (number, id): (usize, &[u8]),
        outcome: FilterRequestOutcome,
    ) -> Result<Option<Box<[u8]>>, LeftOut> {
        let response = outcome.map_err(error_word)?;
        let message = message_of(&response, id)?;
        let is_tools = all.kind == ListKind::Tools;
        let may_use = |name: &str| !is_tools || admission::may_list(self.key.as_deref(), &server.name, name);
        let (_, list) = all.lists.iter_mut().find(|(one, _)| *one == number).ok_or("failed")?;
        let next = list.add_page(&message, &may_use).map_err(message_word)?;
        let bytes: usize = all.lists.iter().map(|(_, list)| list.bytes()).sum();
        if bytes > LIST_BYTES_MAX { Err("too_long") } else { Ok(next) }
    }

    /// The request of the client, for each server of its session.
    fn send_each(&mut self, head: &RequestHead, body: Bytes) -> Result<OwnResponse, AgentRefusal> {
        let (mut requests, mut sent) = (Vec::new(), Vec::new());
        let is_end = self.message.is_none();
        for (number, part) in self.session_servers() {
            // Without a session there is none to end.
            if is_end && part.session.own_id.is_empty() {
                continue;
            }
            let request = self.request(head, number, Some(&part), body.clone(), ACCEPTED_BYTES_MAX);
            requests.push(request.ok_or(AgentRefusal::NO_SESSION)?);
            sent.push((number, Box::default()));
        }
        if requests.is_empty() {
            return self.all_have_it(Vec::new());
        }
        let word = self.federated.as_ref().map(|federated| self.word(AgentProtocol::Mcp, federated.request));
        Ok(self.send(WorkKind::Each, sent, requests, word.unwrap_or("other")))
    }

    /// Each server has the notification, or has ended its session. One that cannot be reached has its session no longer than it likes.
    fn all_have_it(&mut self, done: Vec<Done>) -> Result<OwnResponse, AgentRefusal> {
        let is_end = self.message.is_none();
        for ((number, _), outcome) in done {
            let Some(server) = self.worker.settings.agents.get(number) else { continue };
            match outcome {
                Ok(response) if response.status == 404 && !is_end => return Err(AgentRefusal::NO_SESSION),
                // A server need not let clients end sessions: 405.
                Ok(response) if response.status < 500 => {}
                Ok(_) => self.left_out(server, "status"),
                Err(error) => self.left_out(server, error_word(error)),
            }
        }
        let (status, fields, body) = (if is_end { 200 } else { 202 }, Fields::new(), Bytes::new());
        Ok(OwnResponse::Respond(HandlerResponse::Whole(WholeResponse { status, fields, body })))
    }

    /// Notes the work under way, and counts its requests.
    fn send(
        &mut self,
        kind: WorkKind,
        sent: Vec<(usize, Box<[u8]>)>,
        requests: Vec<FilterRequest>,
        word: &'static str,
    ) -> OwnResponse {
        for (number, _) in &sent {
            if let Some(server) = self.worker.settings.agents.get(*number) {
                self.worker.metrics.agents.sent(server.protocol, &server.name, word);
            }
        }
        if let Some(federated) = &mut self.federated {
            federated.work = Some(Work { kind, sent });
        }
        OwnResponse::Send(requests)
    }

    /// A request to a server, with its part of the session. `None`: the endpoint of the session is gone.
    fn request(
        &self,
        head: &RequestHead,
        number: usize,
        part: Option<&ServerSession>,
        body: Bytes,
        response_bytes_max: usize,
    ) -> Option<FilterRequest> {
        let server = self.worker.settings.agents.get(number)?;
        let provider = self.worker.providers.get(server.upstream)?;
        let endpoint = match part.map(|part| &part.session).filter(|session| !session.own_id.is_empty()) {
            Some(session) => Some(self.worker.endpoint(server.upstream, session.endpoint)?),
            None => None,
        };
        let mut head = head.clone();
        make_head(&mut head, server, "");
        join_head(&mut head.fields, part);
        head.fields.set(Known::Accept, b"application/json, text/event-stream");
        head.fields.remove(Known::AcceptEncoding);
        credentials::swap(&mut head.fields, provider, true);
        Some(FilterRequest {
            upstream: self.worker.settings.upstreams.get(server.upstream)?.clone(),
            endpoint,
            host: Some(provider.host.as_bytes().into()),
            head,
            body,
            // At most a second handshake leaves a session that its server ends by itself.
            is_repeatable: true,
            timeout: SERVER_TIMEOUT.min(self.worker.settings.request_timeout),
            response_bytes_max,
        })
    }

    /// The id of a message of the gateway: within a session none may be used twice.
    fn own_id(&self) -> Box<[u8]> {
        format!("\"weir-{:016x}\"", self.worker.random()).into_bytes().into()
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
        join_head(&mut head.fields, Some(&part));
        self.target = Some((number, request));
        let session = Some(part.session).filter(|session| !session.own_id.is_empty());
        self.session = session.map(|session| NamedSession { session, sent });
        Ok(BodyChange::Splice(vec![splice]))
    }
}

/// A request of which this server got a message with this id, and its outcome.
type Done = ((usize, Box<[u8]>), FilterRequestOutcome);

/// Puts the part of a session into a head in place of the session of the client.
fn join_head(fields: &mut Fields, part: Option<&ServerSession>) {
    // The name is another one for the server, and the server reads the message.
    for field in [SESSION, REVISION, NAME] {
        fields.remove_named(field);
    }
    let Some(part) = part else { return };
    fields.push(REVISION, &part.revision);
    if !part.session.own_id.is_empty() {
        fields.push(SESSION, &part.session.own_id);
    }
}

/// The message in a response.
fn message_of<'a>(response: &'a FilterResponse, id: &[u8]) -> Result<std::borrow::Cow<'a, [u8]>, LeftOut> {
    if !(200..300).contains(&response.status) {
        return Err("status");
    }
    let media_type = response.fields.get(Known::ContentType).unwrap_or_default();
    let media_type = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    federation::response(&response.body, media_type.eq_ignore_ascii_case(b"text/event-stream"), id).ok_or("unreadable")
}

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
        ServerMessageError::Json(_) | ServerMessageError::Form => "unreadable",
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
