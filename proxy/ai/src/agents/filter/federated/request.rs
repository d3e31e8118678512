//! Requests of the gateway to the servers of a federation, and the part of a client's head that they get.

use std::time::Duration;

use bytes::Bytes;
use weir_http::filter::FilterRequest;
use weir_http_codec::{Field, Fields, HeadLimits, Known, RequestHead, Version};

use crate::{
    agents::{filter::AgentFilter, response::SESSION, session::ServerSession},
    credentials,
    surface::split_query,
};

/// The field with the revision of a session.
const REVISION: &[u8] = b"mcp-protocol-version";

/// The field with the name of a tool.
pub(super) const NAME: &[u8] = b"mcp-name";

/// The beginning of the names of fields that repeat a part of a message.
const MESSAGE_FIELDS: &[u8] = b"mcp-";

/// Fields of a client that every server gets. All others may be a secret for one of the servers, and so may the query.
const PASSED: [Known; 4] = [Known::UserAgent, Known::XRequestId, Known::Traceparent, Known::Tracestate];

/// Fields about the body of a call and its response, which the server of the call gets.
const PASSED_WITH_CALL: [Known; 3] = [Known::ContentType, Known::Accept, Known::AcceptEncoding];

/// A request to one server.
pub(super) struct ServerRequest<'a> {
    pub(super) method: &'static [u8],
    /// The server's part of the session.
    pub(super) part: Option<&'a ServerSession>,
    pub(super) body: Bytes,
    pub(super) timeout: Duration,
    pub(super) response_bytes_max: usize,
}

impl AgentFilter {
    /// A request to the server of this number, for a request of a client with this head. `None`: the endpoint of the session is gone.
    pub(super) fn server_request(
        &self,
        head: &RequestHead,
        number: usize,
        request: ServerRequest<'_>,
    ) -> Option<FilterRequest> {
        let ServerRequest { method, part, body, timeout, response_bytes_max } = request;
        let server = self.worker.settings.agents.get(number)?;
        let provider = self.worker.providers.get(server.upstream)?;
        let endpoint = match part.map(|part| &part.session).filter(|session| !session.own_id.is_empty()) {
            Some(session) => Some(self.worker.endpoint(server.upstream, session.endpoint)?),
            None => None,
        };
        let mut fields = head.fields.clone();
        fields.retain(|field| PASSED.contains(&field.known));
        if !body.is_empty() {
            fields.set(Known::ContentType, b"application/json");
        }
        fields.set(Known::Accept, b"application/json, text/event-stream");
        join_session(&mut fields, part);
        credentials::swap(&mut fields, provider, true);
        let line = (method, server.path.as_bytes(), provider.host.as_bytes());
        let head = RequestHead::from_parts(Version::Http11, line, fields, body.is_empty(), &HeadLimits::default());
        Some(FilterRequest {
            upstream: self.worker.settings.upstreams.get(server.upstream)?.clone(),
            endpoint,
            host: Some(provider.host.as_bytes().into()),
            head: head.ok()?,
            body,
            // At most a second handshake leaves a session that its server ends by itself.
            is_repeatable: true,
            timeout: timeout.min(self.worker.settings.request_timeout),
            response_bytes_max,
        })
    }

    /// The id of a message of the gateway: within a session none may be used twice.
    pub(super) fn own_id(&self) -> Box<[u8]> {
        format!("\"weir-{:016x}\"", self.worker.random()).into_bytes().into()
    }
}

/// Leaves the part of a client's head that the server of a call gets, with its part of the session.
pub(super) fn limit_call(head: &mut RequestHead, part: &ServerSession) {
    let path = split_query(&String::from_utf8_lossy(head.target())).0.to_owned();
    head.set_target(path.as_bytes());
    let is_about_message = |field: Field<'_>| {
        field.name.get(..MESSAGE_FIELDS.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(MESSAGE_FIELDS))
    };
    head.fields.retain(|field| {
        PASSED.contains(&field.known) || PASSED_WITH_CALL.contains(&field.known) || is_about_message(field)
    });
    join_session(&mut head.fields, Some(part));
}

/// Puts the part of a session in place of the session of the client.
fn join_session(fields: &mut Fields, part: Option<&ServerSession>) {
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
