//! One exchange with a server of MCP or an agent of A2A: the order of its key, its message, its session and its record.

mod federated;
mod remember;

use std::{net::IpAddr, rc::Rc, sync::Arc};

use weir_base::time::turn;
use weir_http::{
    filter::{
        AfterFailure, BodyAborted, Caller, CompletionStatus, Deadlines, ExchangeSummary, ExchangeTiming, FailedAttempt,
        FilterRequestOutcome, HttpFilter, Inspect, OwnResponse, ReplacedResponse, RequestChoice, RetryCause, SeenBody,
        Tap, UpstreamChoice, WholeResponse,
    },
    refusal_format::{FormattedRefusal, RefusalFacts},
};
use weir_http_codec::{BodyLength, Fields, Known, RequestHead};
use weir_listener::CloseReason;
use weir_mcp_session::{Message, MessageKind, MessageReader};
use weir_spend::{keys::Key, meter::Reservation};

use super::{
    account::{Call, MessageRecord, method_label},
    admission,
    refusal::{AgentRefusal, formatted},
    response::{self, Listed, NamedSession, SESSION},
    session::Session,
    settings::{AgentProtocol, AgentServer, Federation},
    surface::{self, AgentRequest, NoRequest},
};
use crate::{
    admission::{key, source},
    attribution::Attribution,
    credentials,
    metrics::Treatment,
    spend::unix_time,
    surface::split_query,
    web_page,
    worker::Worker,
};

use federated::Federated;

/// Reasons of the HTTP session for an endpoint that cannot be reached: its sessions are gone, or out of reach.
const UNREACHABLE: [&str; 2] = ["connect", "no_healthy_endpoint"];

/// The filter of one exchange.
pub(crate) struct AgentFilter {
    worker: Rc<Worker>,
    source: IpAddr,
    request: String,
    key: Option<Arc<Key>>,
    attribution: Attribution,
    /// That of the path.
    protocol: AgentProtocol,
    /// The server by its position, and the meaning of the request.
    target: Option<(usize, AgentRequest)>,
    /// The federation of the request. Its target is the server of a call.
    federated: Option<Box<Federated>>,
    /// The refusal of the head alone.
    own: Option<WholeResponse>,
    /// Reads the message, until its end.
    reader: Option<MessageReader>,
    body_bytes: u64,
    message: Option<Message>,
    session: Option<NamedSession>,
    /// The endpoint of the last attempt, by its position.
    endpoint: Option<usize>,
    admitted: Option<(Reservation, MessageRecord)>,
    listed: Listed,
    /// The reason for which the gateway has refused the request.
    refused: Option<&'static str>,
}

impl AgentFilter {
    /// The filter of a request from `source`.
    pub(crate) fn new(worker: Rc<Worker>, source: IpAddr) -> Self {
        Self {
            worker,
            source,
            request: String::new(),
            key: None,
            attribution: Attribution::default(),
            protocol: AgentProtocol::Mcp,
            target: None,
            federated: None,
            own: None,
            reader: None,
            body_bytes: 0,
            message: None,
            session: None,
            endpoint: None,
            admitted: None,
            listed: Listed::No,
            refused: None,
        }
    }

    /// Looks at the head: the key first, so that a stranger learns nothing.
    fn enter(&mut self, head: &RequestHead) -> Result<Inspect, AgentRefusal> {
        let worker = self.worker.clone();
        if worker.settings.refuses_web_pages && web_page::is_foreign(head) {
            return Err(AgentRefusal::WEB_PAGE);
        }
        let sent = credentials::of_client(&head.fields);
        self.key = key(&worker, sent, unix_time()).map_err(|denial| AgentRefusal::of_denial(&denial))?;
        self.attribution = Attribution::of(&worker.settings.attribution, &head.fields);
        let key = self.key.as_deref();
        source(&worker, key, self.source).map_err(|denial| AgentRefusal::of_denial(&denial))?;
        let (path, _) = split_query(std::str::from_utf8(head.target()).unwrap_or_default());
        self.protocol = surface::protocol(path).unwrap_or(AgentProtocol::Mcp);
        let permits = |server: &AgentServer| admission::permits_server(&worker, key, server);
        let permits_one = |all: &Federation| {
            all.servers.iter().any(|number| {
                worker.settings.agents.get(*number).is_some_and(|server| admission::may_reach(key, server))
            })
        };
        let federations = &worker.settings.federations;
        let refused = |none| match none {
            NoRequest::Unknown => AgentRefusal::UNKNOWN,
            NoRequest::WrongMethod(allow) => AgentRefusal::wrong_method(allow),
        };
        let request = if let Some(found) = surface::of_federation(federations, head.method(), path, permits_one) {
            let (number, request) = found.map_err(refused)?;
            self.federated = Some(self.enter_federation(number, request, &head.fields)?);
            request
        } else {
            let found = surface::of(&worker.settings.agents, head.method(), path, permits);
            let (number, request) = found.map_err(refused)?;
            self.target = Some((number, request));
            if let Some(server) = worker.settings.agents.get(number) {
                self.session = self.named_session(&head.fields, server)?;
            }
            request
        };
        let most = worker.settings.body_bytes_max;
        match (request, head.body()) {
            (AgentRequest::Message, _) if head.fields.has(Known::ContentEncoding) => Err(AgentRefusal::CODING),
            (AgentRequest::Message, BodyLength::Exact(length)) if length > most => Err(AgentRefusal::TOO_LARGE),
            (AgentRequest::Message, _) => {
                self.reader = Some(MessageReader::default());
                // A body of the longest length is not full before its end.
                Ok(Inspect::Buffered(usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1)))
            }
            (_, BodyLength::Exact(0)) => Ok(Inspect::Buffered(1)),
            _ => Err(AgentRefusal::UNEXPECTED_BODY),
        }
    }

    /// The session that a request names.
    fn named_session(&self, fields: &Fields, server: &AgentServer) -> Result<Option<NamedSession>, AgentRefusal> {
        if server.protocol != AgentProtocol::Mcp {
            return Ok(None);
        }
        let Some(id) = session_field(fields)? else { return Ok(None) };
        let session = Session::open(id, &server.name, self.key_name()).ok_or(AgentRefusal::NO_SESSION)?;
        Ok(Some(NamedSession { session, sent: id.into() }))
    }

    fn key_name(&self) -> Option<&str> {
        self.key.as_ref().map(|key| &*key.name)
    }

    fn server(&self) -> Option<&AgentServer> {
        self.target.and_then(|(number, _)| self.worker.settings.agents.get(number))
    }

    /// The message has ended.
    fn finish(&mut self) -> Result<(), AgentRefusal> {
        if let Some(reader) = self.reader.take() {
            self.message = Some(reader.finish().map_err(|error| AgentRefusal::of_message(&error))?);
        }
        Ok(())
    }

    /// The endpoint, with the head that it gets.
    fn choose(&mut self, head: &mut RequestHead) -> Result<RequestChoice, AgentRefusal> {
        let worker = self.worker.clone();
        let body = self.choose_server(head)?;
        let (number, request) = self.target.ok_or(AgentRefusal::UNKNOWN)?;
        let server = worker.settings.agents.get(number).ok_or(AgentRefusal::UNKNOWN)?;
        let (provider, name) =
            match (worker.providers.get(server.upstream), worker.settings.upstreams.get(server.upstream)) {
                (Some(provider), Some(name)) => (provider, name.clone()),
                _ => return Err(AgentRefusal::UNKNOWN),
            };
        let endpoint = match &self.session {
            None => None,
            Some(named) => {
                let number = worker.endpoint(server.upstream, named.session.endpoint);
                Some(number.ok_or(AgentRefusal::NO_SESSION)?)
            }
        };
        if let Some(message) = &self.message {
            admission::judge(&worker, self.key.as_deref(), server, message, &head.fields)?;
            self.admitted = self.admit(server, message)?;
        } else if server.protocol == AgentProtocol::Mcp {
            // An open stream holds a connection for long, so it counts as a request as long as it lasts.
            let method = request.word().unwrap_or_default().into();
            self.admitted = Some(self.reserve(MessageRecord { method, ..self.record(server.protocol, &server.name) })?);
        }
        worker.metrics.agents.sent(server.protocol, &server.name, self.word(server.protocol, request));
        self.forward(head, server, request);
        credentials::swap(&mut head.fields, provider, worker.ring.is_some() || self.federated.is_some());
        let host = Some(provider.host.as_bytes().into());
        let upstream = match endpoint {
            None => UpstreamChoice::Upstream { name, host },
            Some(number) => UpstreamChoice::Endpoint { name, host, number },
        };
        Ok(RequestChoice { upstream, body })
    }

    /// Takes a request from the rates of the key. Notifications and responses belong to requests that were counted.
    fn admit(
        &self,
        server: &AgentServer,
        message: &Message,
    ) -> Result<Option<(Reservation, MessageRecord)>, AgentRefusal> {
        if message.kind == MessageKind::Response {
            return Ok(None);
        }
        let call = Call::of(server.protocol, &message.method);
        if message.kind == MessageKind::Notification && call.is_none() {
            return Ok(None);
        }
        self.reserve(self.message_record(self.record(server.protocol, &server.name), message)).map(Some)
    }

    /// The record of a message that may be a call.
    fn message_record(&self, record: MessageRecord, message: &Message) -> MessageRecord {
        let call = Call::of(record.protocol, &message.method).filter(|_| message.kind != MessageKind::Response);
        let tool = message.name.clone().filter(|_| call == Some(Call::Tool));
        MessageRecord { method: message.method.clone(), tool, call, ..record }
    }

    /// The record of a request that is no call. `name`: that of the server, or of the federation.
    fn record(&self, protocol: AgentProtocol, name: &Arc<str>) -> MessageRecord {
        MessageRecord {
            request: self.request.clone(),
            key: self.key.as_ref().map(|key| key.name.clone()),
            protocol,
            server: name.clone(),
            method: Box::default(),
            tool: None,
            call: None,
            attribution: self.attribution.clone(),
        }
    }

    fn reserve(&self, record: MessageRecord) -> Result<(Reservation, MessageRecord), AgentRefusal> {
        let reservation = admission::reserve(&self.worker, self.key.as_deref(), &record);
        reservation.map(|reservation| (reservation, record)).map_err(|denial| AgentRefusal::of_denial(&denial))
    }

    /// The word of the metrics.
    fn word(&self, protocol: AgentProtocol, request: AgentRequest) -> &'static str {
        match (request.word(), &self.message) {
            (Some(word), _) => word,
            (None, Some(message)) => match message.kind {
                MessageKind::Request => method_label(protocol, &message.method),
                MessageKind::Notification => "notification",
                MessageKind::Response => "response",
            },
            (None, None) => "other",
        }
    }

    /// Makes the head that of the server, except its key.
    fn forward(&self, head: &mut RequestHead, server: &AgentServer, request: AgentRequest) {
        let below = if let AgentRequest::Card(path) = request { path } else { "" };
        make_head(head, server, below);
        self.worker.settings.attribution.hide(&mut head.fields);
        if let Some(named) = &self.session {
            head.fields.remove_named(SESSION);
            head.fields.push(SESSION, &named.session.own_id);
        }
        if self.is_restricted() {
            // Lists are read in the response: no coding may be on it.
            head.fields.remove(Known::AcceptEncoding);
        }
    }

    /// Lists of tools lose some.
    fn is_restricted(&self) -> bool {
        let is_mcp = self.server().is_some_and(|server| server.protocol == AgentProtocol::Mcp);
        is_mcp && admission::is_restricted(self.key.as_deref())
    }

    /// Whether the client may use a tool.
    fn may_use(&self) -> impl Fn(&str) -> bool + use<> {
        let (key, server) = (self.key.clone(), self.server().map(|server| server.name.clone()).unwrap_or_default());
        move |tool: &str| admission::may_list(key.as_deref(), &server, tool)
    }

    /// Counts a refusal, and gives its response.
    fn refusal(&mut self, refusal: &AgentRefusal) -> WholeResponse {
        self.worker.metrics.denied(refusal.reason, Treatment::Refused);
        self.refused = Some(refusal.reason);
        refusal.response(self.message.as_ref())
    }
}

/// The id of a session that a request names.
fn session_field(fields: &Fields) -> Result<Option<&[u8]>, AgentRefusal> {
    let mut sent = fields.all_named(SESSION);
    let id = sent.next();
    if sent.next().is_some() { Err(AgentRefusal::SESSIONS) } else { Ok(id) }
}

/// Makes the target of a head that of a server, at this path below its own, and removes fields about the client.
fn make_head(head: &mut RequestHead, server: &AgentServer, below: &str) {
    let own = String::from_utf8_lossy(head.target()).into_owned();
    let (_, query) = split_query(&own);
    let base = if below.is_empty() { &*server.path } else { server.path.trim_end_matches('/') };
    head.set_target(format!("{base}{below}{query}").as_bytes());
    credentials::hide_client(&mut head.fields);
}

impl HttpFilter for AgentFilter {
    fn inspect(&mut self, head: &RequestHead, caller: &Caller) -> Inspect {
        let id = caller.request_id.as_deref().unwrap_or_default();
        self.request = String::from_utf8_lossy(id).into_owned();
        self.enter(head).unwrap_or_else(|refusal| {
            self.own = Some(self.refusal(&refusal));
            Inspect::Buffered(1)
        })
    }

    fn refuse_head(&mut self) -> Option<WholeResponse> {
        self.own.take()
    }

    fn request_data(&mut self, piece: &[u8]) -> Result<(), WholeResponse> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        self.body_bytes += piece.len() as u64;
        let read = match self.body_bytes > self.worker.settings.body_bytes_max {
            true => Err(AgentRefusal::TOO_LARGE),
            false => reader.push(piece).map_err(|error| AgentRefusal::of_message(&error)),
        };
        read.map_err(|refusal| self.refusal(&refusal))
    }

    fn request_end(&mut self) -> Result<(), WholeResponse> {
        self.finish().map_err(|refusal| self.refusal(&refusal))
    }

    fn own_response(&mut self, head: &RequestHead, seen: SeenBody<'_>) -> Result<OwnResponse, WholeResponse> {
        if self.federated.is_none() {
            return Ok(OwnResponse::None);
        }
        // A request without a body has no call for its end.
        self.request_end()?;
        self.federated_response(head, seen).map_err(|refusal| self.refusal(&refusal))
    }

    fn own_requests_done(&mut self, outcomes: Vec<FilterRequestOutcome>) {
        if let Some(federated) = &mut self.federated {
            federated.done(outcomes);
        }
    }

    fn choose_upstream(&mut self, head: &mut RequestHead, seen: SeenBody<'_>) -> Result<RequestChoice, WholeResponse> {
        if seen.is_whole {
            // A request without a body has no call for its end.
            self.request_end()?;
        }
        // The budget of all bodies is used up: what is not seen is not judged.
        let chosen = if self.reader.is_some() { Err(AgentRefusal::NO_ROOM) } else { self.choose(head) };
        chosen.map_err(|refusal| self.refusal(&refusal))
    }

    fn attempt_begins(&mut self, endpoint: usize) {
        self.endpoint = Some(endpoint);
    }

    fn attempt_failed(&mut self, failed: &FailedAttempt<'_>) -> AfterFailure {
        let Some(server) = self.server() else { return AfterFailure::Respond };
        let has_others = self.worker.endpoints.get(server.upstream).is_some_and(|all| all.len() > 1);
        let is_out_of_reach = failed.cause == RetryCause::ConnectFailure && UNREACHABLE.contains(&failed.reason);
        // The session is bound to an endpoint that cannot be reached: another session goes elsewhere.
        match self.session.is_some() && has_others && is_out_of_reach {
            true => AfterFailure::Refuse(self.refusal(&AgentRefusal::NO_SESSION)),
            false => AfterFailure::Respond,
        }
    }

    fn deadlines(&mut self) -> Deadlines {
        Deadlines { idle: self.server().map(|server| server.idle_timeout), ..Deadlines::default() }
    }

    fn tap(&mut self, status: u16, fields: &mut Fields) -> Tap {
        if response::has_bad_session(fields) {
            fields.remove_named(SESSION);
            return response::UNREADABLE;
        }
        if !self.is_restricted() {
            return Tap::No;
        }
        let is_listening = self.target.is_some_and(|(_, request)| request == AgentRequest::Listen);
        let is_list = self.message.as_ref().is_some_and(|message| &*message.method == "tools/list");
        let (listed, tap) = Listed::new(status, fields, is_list || is_listening);
        self.listed = listed;
        tap
    }

    fn response_head(&mut self, _: u16, fields: &mut Fields, _: &ExchangeTiming) {
        if !fields.has(Known::XRequestId) && !self.request.is_empty() {
            fields.set(Known::XRequestId, self.request.as_bytes());
        }
        let Some(server) = self.server() else { return };
        if let Some(provider) = self.worker.providers.get(server.upstream) {
            credentials::hide_account(fields, provider);
        }
        if server.protocol == AgentProtocol::Mcp {
            let all = self.worker.endpoints.get(server.upstream);
            let endpoint = self.endpoint.and_then(|number| all?.get(number).copied());
            // One server cannot begin a session of several.
            let endpoint = endpoint.filter(|_| self.federated.is_none());
            response::name_session(fields, self.session.as_ref(), endpoint, (&server.name, self.key_name()));
        }
    }

    fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        let may_use = self.may_use();
        self.listed.edit(piece, &may_use, out)
    }

    fn replace_response(&mut self, status: u16, fields: &mut Fields, body: &[u8]) -> ReplacedResponse {
        response::replaced((status, fields), body, self.message.as_ref(), &self.may_use())
    }

    fn format_refusal(&mut self, facts: &RefusalFacts) -> Option<FormattedRefusal> {
        Some(formatted(facts, self.message.as_ref()))
    }

    fn on_complete(&mut self, summary: &ExchangeSummary<'_>) {
        if summary.end == CompletionStatus::Aborted && summary.reason == CloseReason::InternalInvariant.name() {
            // A panic: the reservation is dropped with the filter, and its line has the flag `crash`.
            return;
        }
        let Some((reservation, record)) = self.admitted.take() else { return self.remember_refused(summary) };
        if let Some(server) = self.server().filter(|_| record.call.is_some()) {
            self.worker.metrics.agents.called(server, summary.timing.total);
        }
        let (time, mut line) = (unix_time(), Vec::new());
        let is_remembered = !self.worker.recent.is_off();
        reservation.release(turn::now(), |day, out| {
            record.write(summary, (time, day), out);
            if is_remembered {
                record.write_line(summary, (time, day), &mut line);
            }
        });
        if is_remembered {
            self.remember(&record, line);
        }
    }
}
