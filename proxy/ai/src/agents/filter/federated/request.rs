//! Requests of the gateway to the servers of a federation.

use std::time::Duration;

use bytes::Bytes;
use weir_http::filter::FilterRequest;
use weir_http_codec::{Fields, Known, RequestHead};

use crate::{
    agents::{
        filter::{AgentFilter, make_head},
        response::SESSION,
        session::ServerSession,
    },
    credentials,
};

/// The field with the revision of a session.
const REVISION: &[u8] = b"mcp-protocol-version";

/// The field with the name of a tool.
pub(super) const NAME: &[u8] = b"mcp-name";

/// A request to one server.
pub(super) struct ServerRequest<'a> {
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
        let ServerRequest { part, body, timeout, response_bytes_max } = request;
        let server = self.worker.settings.agents.get(number)?;
        let provider = self.worker.providers.get(server.upstream)?;
        let endpoint = match part.map(|part| &part.session).filter(|session| !session.own_id.is_empty()) {
            Some(session) => Some(self.worker.endpoint(server.upstream, session.endpoint)?),
            None => None,
        };
        let mut head = head.clone();
        make_head(&mut head, server, "");
        join_session(&mut head.fields, part);
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
            timeout: timeout.min(self.worker.settings.request_timeout),
            response_bytes_max,
        })
    }

    /// The id of a message of the gateway: within a session none may be used twice.
    pub(super) fn own_id(&self) -> Box<[u8]> {
        format!("\"weir-{:016x}\"", self.worker.random()).into_bytes().into()
    }
}

/// Puts the part of a session in place of the session of the client.
pub(super) fn join_session(fields: &mut Fields, part: Option<&ServerSession>) {
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
