//! Logins by SCRAM. Every user has the one password, if there is one.
//!
//! Source: "Driver Authentication" of the driver specifications.

use weir_mongodb_codec::bson::{Document, Value, Writer};
use weir_sasl::limits::NONCE_RANDOM_BYTES;
use weir_sasl::{ChannelBinding, ClientFirst, Mechanism, Nonce, ScramServer};

use super::dispatch::{Context, Fate};
use super::failure::{Failure, code};

/// The id of every conversation: a connection has one at a time.
const CONVERSATION: i32 = 1;

/// A conversation that is under way.
#[derive(Debug)]
pub(super) struct Conversation {
    user: Vec<u8>,
    /// The client needs no empty exchange at the end.
    skips_empty: bool,
    /// `None`: the proof was right, and the empty exchange is left.
    server: Option<Box<ScramServer>>,
}

/// The reply to a message of SASL.
struct Answer {
    payload: Vec<u8>,
    is_done: bool,
}

impl Answer {
    fn write(&self, body: &mut Writer<'_>) {
        body.int32("conversationId", CONVERSATION);
        body.bool("done", self.is_done);
        body.binary("payload", 0, &self.payload);
    }
}

/// `saslStart`.
pub(super) fn sasl_start(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let answer = begin(at, at.request.command.body)?;
    answer.write(body);
    Ok(Fate::Done)
}

/// `saslContinue`.
pub(super) fn sasl_continue(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let id = at.request.get(b"conversationId")?.and_then(Value::as_integer);
    let payload = payload(at.request.command.body)?;
    let no_session = || Failure::new(code::PROTOCOL_ERROR, "No SASL session state found");
    let conversation = at.client.conversation.take().ok_or_else(no_session)?;
    if id != Some(i64::from(CONVERSATION)) {
        return Err(Failure::new(code::PROTOCOL_ERROR, "sasl: Mismatched conversation id"));
    }
    let answer = match &conversation.server {
        Some(server) => {
            let proven = server.finish(payload).map_err(|_| failed())?;
            Answer { payload: proven.message, is_done: conversation.skips_empty }
        }
        None if payload.is_empty() => Answer { payload: Vec::new(), is_done: true },
        None => return Err(failed()),
    };
    answer.write(body);
    if answer.is_done {
        at.client.user = Some(conversation.user);
    } else {
        at.client.conversation = Some(Conversation { server: None, ..conversation });
    }
    Ok(Fate::Done)
}

/// `speculativeAuthenticate` of hello. If it fails nothing is said about it, and the client begins again.
pub(super) fn speculate(at: &mut Context<'_>, start: Document<'_>, body: &mut Writer<'_>) {
    let is_start = start.first_element().ok().flatten().is_some_and(|first| first.name == b"saslStart");
    if is_start && let Ok(answer) = begin(at, start) {
        body.document("speculativeAuthenticate", |body| answer.write(body));
    }
}

/// `logout`.
pub(super) fn logout(at: &mut Context<'_>, _body: &mut Writer<'_>) -> Result<Fate, Failure> {
    at.client.user = None;
    Ok(Fate::Done)
}

fn begin(at: &mut Context<'_>, start: Document<'_>) -> Result<Answer, Failure> {
    at.client.conversation = None;
    let name = start.get(b"mechanism")?.and_then(Value::as_string).unwrap_or_default();
    let mechanism = Mechanism::from_name(name).filter(|mechanism| !mechanism.is_bound());
    let mechanism = mechanism.ok_or_else(|| {
        let text =
            format!("Received authentication for mechanism {} which is not enabled", String::from_utf8_lossy(name));
        Failure::new(334, text)
    })?;
    let options = start.get(b"options")?.map(Value::as_document).transpose()?.flatten();
    let skips = options.map(|options| options.get(b"skipEmptyExchange")).transpose()?.flatten();
    let first = ClientFirst::read(payload(start)?, mechanism, &ChannelBinding::None).map_err(|_| failed())?;
    let user = first.user().to_vec();
    let verifier = at.core.verifier(mechanism, &user).ok_or_else(failed)?;
    let mut random = [0; NONCE_RANDOM_BYTES];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| Failure::new(1, "could not generate random nonce"))?;
    let (server, challenge) = first.challenge(verifier, &Nonce::from_random(&random));
    at.client.conversation =
        Some(Conversation { user, skips_empty: skips.is_some_and(Value::is_true), server: Some(Box::new(server)) });
    Ok(Answer { payload: challenge, is_done: false })
}

fn payload(body: Document<'_>) -> Result<&[u8], Failure> {
    let payload = body.get(b"payload")?.and_then(Value::as_binary);
    let (_, payload) =
        payload.ok_or_else(|| Failure::new(code::FAILED_TO_PARSE, "a payload of binary data is needed"))?;
    Ok(payload)
}

fn failed() -> Failure {
    Failure::new(code::AUTHENTICATION_FAILED, "Authentication failed.")
}
