//! Fields of saslStart and saslContinue, and their replies.

use std::fmt;

use weir_mongodb_codec::bson::{Document, Value, Writer};
use weir_mongodb_codec::command::Command;

/// saslStart.
pub(super) struct Start<'a> {
    pub(super) db: &'a [u8],
    pub(super) mechanism: &'a [u8],
    pub(super) payload: &'a [u8],
    /// The reply to the proof ends the exchange.
    pub(super) skips_empty_exchange: bool,
    /// A part of a hello: the client does not yet know which mechanisms the user has.
    pub(super) is_speculative: bool,
}

impl<'a> Start<'a> {
    /// A command of its own.
    pub(super) fn read(command: &Command<'a>) -> Option<Start<'a>> {
        Self::of(command.body, command.db)
    }

    /// A part of a hello, with its database in `db`.
    pub(super) fn read_speculative(document: Document<'a>) -> Option<Start<'a>> {
        let db = document.get(b"db").ok()?.and_then(Value::as_string).unwrap_or(b"admin");
        Self::of(document, db).map(|start| Start { is_speculative: true, ..start })
    }

    fn of(document: Document<'a>, db: &'a [u8]) -> Option<Start<'a>> {
        let field = |name: &[u8]| document.get(name).ok().flatten();
        let options = field(b"options").and_then(|options| options.as_document().ok().flatten());
        let skip = options.and_then(|options| options.get(b"skipEmptyExchange").ok().flatten());
        Some(Start {
            db,
            mechanism: field(b"mechanism")?.as_string()?,
            payload: payload(field(b"payload")?)?,
            skips_empty_exchange: skip.is_some_and(Value::is_true),
            is_speculative: false,
        })
    }
}

/// saslContinue.
pub(super) struct Continue<'a> {
    pub(super) conversation: i64,
    pub(super) payload: &'a [u8],
}

impl<'a> Continue<'a> {
    pub(super) fn read(command: &Command<'a>) -> Option<Continue<'a>> {
        let field = |name: &[u8]| command.body.get(name).ok().flatten();
        let conversation = field(b"conversationId")?.as_integer()?;
        Some(Continue { conversation, payload: payload(field(b"payload")?)? })
    }
}

fn payload(value: Value<'_>) -> Option<&[u8]> {
    value.as_binary().map(|(_, data)| data)
}

/// The reply to a message of SASL.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslReply {
    /// The number of the conversation.
    pub conversation: i32,
    /// The server's message.
    pub payload: Vec<u8>,
    /// The client is logged in.
    pub is_done: bool,
}

impl fmt::Debug for SaslReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslReply").field("is_done", &self.is_done).finish_non_exhaustive()
    }
}

impl SaslReply {
    /// Writes the fields, without `ok`.
    pub fn write(&self, body: &mut Writer<'_>) {
        body.int32("conversationId", self.conversation);
        body.bool("done", self.is_done);
        body.binary("payload", 0, &self.payload);
    }
}

/// The database and the user of `saslSupportedMechs`: the first dot parts them, for no database has one.
pub(super) fn split_user(text: &[u8]) -> (&[u8], &[u8]) {
    let dot = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    (&text[..dot], text.get(dot + 1..).unwrap_or_default())
}
