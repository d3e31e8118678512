//! The handshakes of several servers as one.

use bytes::Bytes;
use weir_http::filter::{FilterResponse, OwnResponse, SeenBody};
use weir_http_codec::RequestHead;
use weir_mcp_session::federation::{self, JointOffer, Offer, REVISION_MIN};
use weir_upstream::affinity_hash;

use super::{
    AgentFilter, Done, LeftOut, SERVER_TIMEOUT, WorkKind, error_word, json, message_word, request::ServerRequest,
};
use crate::agents::{
    refusal::AgentRefusal,
    response::{SESSION, has_bad_session, is_event_stream},
    session::{FederatedSession, ServerSession, Session},
    settings::AgentServer,
};

/// Bytes of a response to a handshake. Default 256 KiB: it has instructions.
const OFFER_BYTES_MAX: usize = 256 << 10;

impl AgentFilter {
    /// The handshake of the client, for each server.
    pub(super) fn send_handshake(
        &mut self,
        head: &RequestHead,
        seen: SeenBody<'_>,
    ) -> Result<OwnResponse, AgentRefusal> {
        // The message for the servers is hardly longer than that of the client.
        let permit = seen.room(seen.bytes.len() as u64).ok_or(AgentRefusal::NO_ROOM)?;
        let id = self.own_id();
        let (revision, body) = federation::initialize_for_servers(seen.bytes, &id)
            .map_err(|error| AgentRefusal::of_message(&error.into()))?;
        let revision = revision.filter(|revision| **revision >= *REVISION_MIN).ok_or(AgentRefusal::NO_REVISION)?;
        let body = Bytes::from(body);
        let (mut requests, mut sent) = (Vec::new(), Vec::new());
        for number in self.federated_servers() {
            let request = ServerRequest {
                method: b"POST",
                part: None,
                body: body.clone(),
                timeout: SERVER_TIMEOUT,
                response_bytes_max: OFFER_BYTES_MAX,
            };
            if let Some(request) = self.server_request(head, number, request) {
                requests.push(request);
                sent.push((number, id.clone()));
            }
        }
        Ok(self.send(WorkKind::Handshake(revision), (sent, Some(permit)), requests, "initialize"))
    }

    /// One offer of all servers that made one. Sessions of the others end.
    pub(super) fn join_offers(
        &mut self,
        head: &RequestHead,
        wanted: &[u8],
        done: Vec<Done>,
    ) -> Result<OwnResponse, AgentRefusal> {
        let (mut joint, mut session, mut unused) = (JointOffer::default(), FederatedSession::default(), Vec::new());
        for ((number, id), outcome) in done {
            let Some(server) = self.worker.settings.agents.get(number) else { continue };
            let response = match outcome {
                Ok(response) => response,
                Err(error) => {
                    self.left_out(server, error_word(error));
                    continue;
                }
            };
            let begun = self.begun(server, &response);
            let offered = begun.and_then(|begun| offer(&response, &id, wanted, begun));
            match offered.and_then(|(offer, part)| if session.add(part) { Ok(offer) } else { Err("session_id") }) {
                Ok(offer) => joint.add(&server.name, &offer),
                Err(reason) => {
                    self.left_out(server, reason);
                    unused.extend(self.begun(server, &response).ok().map(|begun| (number, begun)));
                }
            }
        }
        let then = self.joint_offer(&joint, &session);
        self.leave(head, unused, then)
    }

    /// The response of all servers that are in the session.
    fn joint_offer(&self, joint: &JointOffer, session: &FederatedSession) -> Result<OwnResponse, AgentRefusal> {
        if session.servers().is_empty() {
            return Err(AgentRefusal::ALL_DOWN);
        }
        let name = self.federation().map(|federation| federation.name.clone()).unwrap_or_default();
        let sealed = session.seal(&name, self.key_name()).ok_or(AgentRefusal::NO_ROOM)?;
        let id = self.message.as_ref().and_then(|message| message.id.as_deref()).unwrap_or_default();
        Ok(json(joint.response(id, (&name, env!("CARGO_PKG_VERSION"))), Some(&sealed)))
    }

    /// The sessions that the responses to handshakes have begun.
    pub(super) fn all_begun(&self, done: &[Done]) -> Vec<(usize, ServerSession)> {
        let begun = |((number, _), outcome): &Done| {
            let server = self.worker.settings.agents.get(*number)?;
            Some((*number, self.begun(server, outcome.as_ref().ok()?).ok()?))
        };
        done.iter().filter_map(begun).collect()
    }

    /// The session that a response to a handshake has begun, in the first revision and without abilities.
    fn begun(&self, server: &AgentServer, response: &FilterResponse) -> Result<ServerSession, LeftOut> {
        if has_bad_session(&response.fields) {
            return Err("session_id");
        }
        let own_id = response.fields.all_named(SESSION).next().unwrap_or_default().into();
        let endpoint = self.worker.endpoints.get(server.upstream).and_then(|all| all.get(response.endpoint));
        Ok(ServerSession {
            server: affinity_hash(server.name.as_bytes()),
            has_tools: false,
            has_prompts: false,
            revision: REVISION_MIN.try_into().map_err(|_| "revision")?,
            session: Session { endpoint: endpoint.copied().ok_or("failed")?, own_id },
        })
    }
}

/// The offer of one server, and the session that it has begun.
fn offer(
    response: &FilterResponse,
    id: &[u8],
    wanted: &[u8],
    begun: ServerSession,
) -> Result<(Offer, ServerSession), LeftOut> {
    if !(200..300).contains(&response.status) {
        return Err("status");
    }
    let message = federation::response(&response.body, is_event_stream(&response.fields), id).ok_or("unreadable")?;
    let offer = Offer::read(&message).map_err(message_word)?;
    // Another revision than the client knows has no meaning for it.
    if !offer.is_fit(wanted) {
        return Err("revision");
    }
    let revision = (*offer.revision).try_into().map_err(|_| "revision")?;
    let session = ServerSession { has_tools: offer.has_tools, has_prompts: offer.has_prompts, revision, ..begun };
    Ok((offer, session))
}
