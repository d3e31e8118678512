//! Commands about logical sessions and the ends of their transactions.

use std::sync::atomic::Ordering;

use weir_mongodb_codec::bson::{Kind, Value, Writer};

use super::dispatch::{Context, Fate};
use super::failure::{Failure, code};
use super::request::wrong_type;
use super::stored_writes;
use super::transactions::SessionId;

/// `commitTransaction`.
pub(super) fn commit(at: &mut Context<'_>, _body: &mut Writer<'_>) -> Result<Fate, Failure> {
    if let Some(token) = at.request.document(b"recoveryToken")? {
        let shard = token.get(b"recoveryShardId")?.and_then(Value::as_object_id);
        if shard.is_some_and(|shard| shard != at.core.state.process) {
            return Err(Failure::new(code::NO_SUCH_TRANSACTION, "the recovery token is that of another server"));
        }
    }
    finish(at, true)
}

/// `abortTransaction`.
pub(super) fn abort(at: &mut Context<'_>, _body: &mut Writer<'_>) -> Result<Fate, Failure> {
    finish(at, false)
}

fn finish(at: &Context<'_>, is_committed: bool) -> Result<Fate, Failure> {
    let command = &at.request.command;
    match command.session.filter(|_| command.is_in_transaction) {
        Some(session) => {
            at.core.state.transactions().end(session, is_committed);
            stored_writes::end(at, is_committed);
            Ok(Fate::Done)
        }
        None => {
            let text = format!("{} must be run within a transaction", at.request.name());
            Err(Failure::new(125, text))
        }
    }
}

/// `startSession`.
pub(super) fn start(_at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let mut id = [0; 16];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| Failure::new(1, "could not generate an id"))?;
    // A random UUID (RFC 9562, 5.4).
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    body.document("id", |session| session.binary("id", 4, &id));
    body.int32("timeoutMinutes", 30);
    Ok(Fate::Done)
}

/// `endSessions` and `killSessions`: their transactions are aborted, and their cursors killed.
pub(super) fn end(at: &mut Context<'_>, _body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let command = &at.request.command;
    let list = command.value.as_document()?.filter(|_| command.value.kind == Kind::Array);
    let list = list.ok_or_else(|| wrong_type("endSessions.endSessions"))?;
    let mut sessions: Vec<SessionId> = Vec::new();
    for element in list.elements() {
        let session = element?.value.as_document()?.map(|session| session.get(b"id")).transpose()?.flatten();
        let id = session.and_then(Value::as_binary).and_then(|(_, id)| SessionId::try_from(id).ok());
        sessions.push(id.ok_or_else(|| wrong_type("endSessions.endSessions"))?);
    }
    let state = &at.core.state;
    {
        let mut transactions = state.transactions();
        sessions.iter().for_each(|session| transactions.forget(session));
    }
    let is_theirs = |session: Option<&SessionId>| session.is_some_and(|session| sessions.contains(session));
    let watchers = state.cursors().kill_all(|cursor| is_theirs(cursor.session.as_ref()));
    state.watchers.fetch_sub(watchers, Ordering::AcqRel);
    Ok(Fate::Done)
}

/// `killAllSessions`, of whichever users it names.
pub(super) fn kill_all(at: &mut Context<'_>, _body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let state = &at.core.state;
    state.transactions().abort_all();
    let watchers = state.cursors().kill_all(|cursor| cursor.session.is_some());
    state.watchers.fetch_sub(watchers, Ordering::AcqRel);
    Ok(Fate::Done)
}
