//! Messages that each server gets as they are, and the end of its sessions.

use std::time::Duration;

use bytes::Bytes;
use weir_http::filter::{HandlerResponse, OwnResponse, SeenBody, WholeResponse};
use weir_http_codec::{Fields, RequestHead};
use weir_mcp_session::MessageKind;

use super::{AgentFilter, Done, SERVER_TIMEOUT, WorkKind, error_word, request::ServerRequest};
use crate::agents::{refusal::AgentRefusal, session::ServerSession, settings::AgentProtocol};

/// Bytes of a response whose body has no meaning.
const ACCEPTED_BYTES_MAX: usize = 16 << 10;

/// For the end of a session that no client can use. Default 2 s: a client waits for it.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

impl AgentFilter {
    /// The request of the client, for each server of its session. `body`: charged to `limits.buffered_bytes`, once for all servers.
    pub(super) fn send_each(
        &mut self,
        head: &RequestHead,
        seen: SeenBody<'_>,
        body: Bytes,
    ) -> Result<OwnResponse, AgentRefusal> {
        let permit = seen.room(body.len() as u64).ok_or(AgentRefusal::NO_ROOM)?;
        let (mut requests, mut sent) = (Vec::new(), Vec::new());
        let is_end = self.message.is_none();
        for (number, part) in self.session_servers() {
            // Without a session there is none to end.
            if is_end && part.session.own_id.is_empty() {
                continue;
            }
            let request = ServerRequest {
                method: if is_end { b"DELETE" } else { b"POST" },
                part: Some(&part),
                body: body.clone(),
                timeout: SERVER_TIMEOUT,
                response_bytes_max: ACCEPTED_BYTES_MAX,
            };
            requests.push(self.server_request(head, number, request).ok_or(AgentRefusal::NO_SESSION)?);
            sent.push((number, Box::default()));
        }
        if requests.is_empty() {
            return Ok(accepted(is_end));
        }
        let word = self.federated.as_ref().map(|federated| self.word(AgentProtocol::Mcp, federated.request));
        Ok(self.send(WorkKind::Each, (sent, Some(permit)), requests, word.unwrap_or("other")))
    }

    /// The servers have the message, or have ended their sessions: those that could be reached.
    pub(super) fn all_have_it(&mut self, head: &RequestHead, done: Vec<Done>) -> Result<OwnResponse, AgentRefusal> {
        let kind = self.message.as_ref().map(|message| message.kind);
        let mut has_one = false;
        for ((number, _), outcome) in done {
            let Some(server) = self.worker.settings.agents.get(number) else { continue };
            match outcome {
                Ok(response) if (200..300).contains(&response.status) => has_one = true,
                // A server need not let clients end sessions, and may have ended this one itself.
                Ok(response) if kind.is_none() && matches!(response.status, 404 | 405) => has_one = true,
                Ok(response) if response.status == 404 && kind == Some(MessageKind::Notification) => {
                    return self.forget(head, number);
                }
                // It has not sent the request of this response.
                Ok(_) if kind == Some(MessageKind::Response) => {}
                Ok(_) => self.left_out(server, "status"),
                Err(error) => self.left_out(server, error_word(error)),
            }
        }
        if has_one { Ok(accepted(kind.is_none())) } else { Err(AgentRefusal::ALL_DOWN) }
    }

    /// One server does not know its session any more: another handshake has all servers again, so the sessions at the others end.
    pub(super) fn forget(&mut self, head: &RequestHead, number: usize) -> Result<OwnResponse, AgentRefusal> {
        let others = self.session_servers().into_iter().filter(|(other, _)| *other != number).collect();
        self.leave(head, others, Err(AgentRefusal::NO_SESSION))
    }

    /// Ends sessions that no client will use, and then responds. A server that does not let it ends them by itself.
    pub(super) fn leave(
        &mut self,
        head: &RequestHead,
        sessions: Vec<(usize, ServerSession)>,
        then: Result<OwnResponse, AgentRefusal>,
    ) -> Result<OwnResponse, AgentRefusal> {
        let (mut requests, mut sent) = (Vec::new(), Vec::new());
        for (number, part) in sessions.iter().filter(|(_, part)| !part.session.own_id.is_empty()) {
            let request = ServerRequest {
                method: b"DELETE",
                part: Some(part),
                body: Bytes::new(),
                timeout: LEAVE_TIMEOUT,
                response_bytes_max: ACCEPTED_BYTES_MAX,
            };
            if let Some(request) = self.server_request(head, *number, request) {
                requests.push(request);
                sent.push((*number, Box::default()));
            }
        }
        if requests.is_empty() {
            return then;
        }
        Ok(self.send(WorkKind::Leave(Box::new(then)), (sent, None), requests, "end_session"))
    }
}

/// A response without a body.
pub(super) fn accepted(is_end: bool) -> OwnResponse {
    let (status, fields, body) = (if is_end { 200 } else { 202 }, Fields::new(), Bytes::new());
    OwnResponse::Respond(HandlerResponse::Whole(WholeResponse { status, fields, body }))
}
