//! A request of a client, and a reply in its form.

use weir_mongodb_codec::bson::{Document, Writer};
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::header::{Header, OpCode};
use weir_mongodb_codec::legacy::{self, Query};
use weir_mongodb_codec::message::{self, Flags, Ids, Message};
use weir_mongodb_codec::{CommandError, MessageError};

use crate::refusal::Refusal;

/// The form of a request and of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OP_MSG.
    Msg,
    /// OP_QUERY, answered by OP_REPLY.
    Legacy,
}

/// A request: its header, flags and body. The body of a long message is enough.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The id that its reply must name.
    pub id: i32,
    /// Its flags; none in an OP_QUERY.
    pub flags: Flags,
    /// Its form.
    pub form: Form,
    /// The command.
    pub body: Document<'a>,
    /// The database of an OP_QUERY.
    database: Option<&'a [u8]>,
    /// The OP_MSG, if all of it is there.
    whole: Option<Message<'a>>,
}

impl<'a> Request<'a> {
    /// A message of which all bytes are there.
    ///
    /// # Errors
    /// It is no request, or breaks a rule. The connection ends.
    pub fn read(message: &'a [u8]) -> Result<Request<'a>, MessageError> {
        let header = Header::read(message)?.ok_or(MessageError::Short)?;
        match header.op_code {
            OpCode::Msg => {
                let whole = Message::read(message)?;
                let Message { header, flags, body, .. } = whole;
                Ok(Request { id: header.request, flags, form: Form::Msg, body, database: None, whole: Some(whole) })
            }
            OpCode::Query => {
                let query = Query::read(message)?;
                let (form, database) = (Form::Legacy, Some(query.database().unwrap_or_default()));
                Ok(Request { id: header.request, flags: Flags::empty(), form, body: query.body, database, whole: None })
            }
            OpCode::Compressed | OpCode::Reply | OpCode::Retired(_) => {
                Err(MessageError::OpCode(header.op_code.number()))
            }
        }
    }

    /// A message whose first bytes are there; `None`: they do not hold the body yet, or it is no OP_MSG.
    ///
    /// # Errors
    /// As [`Request::read`], as far as the bytes show it.
    pub fn read_first(header: &Header, available: &'a [u8]) -> Result<Option<Request<'a>>, MessageError> {
        if header.op_code != OpCode::Msg {
            return Ok(None);
        }
        let found = message::first_body(available)?;
        let (id, form) = (header.request, Form::Msg);
        Ok(found.map(|(flags, body)| Request { id, flags, form, body, database: None, whole: None }))
    }

    /// The command in it.
    ///
    /// # Errors
    /// The client gets an error, and the connection goes on.
    pub fn command(&self) -> Result<Command<'a>, CommandError> {
        // Those of a long message are checked on their way: see `SectionFramer::of_request`.
        self.whole.map_or(Ok(()), Message::check_arguments)?;
        match self.database {
            None => Command::read(self.body),
            database => Command::read_in(self.body, database),
        }
    }

    /// All bytes of the message are there.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.is_some() || self.form == Form::Legacy
    }

    /// The client expects no reply.
    pub fn is_unacknowledged(&self) -> bool {
        self.flags.contains(Flags::MORE_TO_COME)
    }

    /// The address of its reply.
    pub fn asker(&self) -> Asker {
        Asker { id: self.id, form: self.form, wants_reply: !self.is_unacknowledged() }
    }
}

/// A request that is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its id.
    pub id: i32,
    /// Its form.
    pub form: Form,
    /// Otherwise nothing is written (L2).
    pub wants_reply: bool,
}

impl Asker {
    /// Appends the reply with this id and body.
    pub fn reply(self, out: &mut Vec<u8>, id: i32, body: impl FnOnce(&mut Writer<'_>)) {
        self.reply_with(out, id, Flags::empty(), body);
    }

    /// The same with flags. An OP_REPLY has none of them.
    pub fn reply_with(self, out: &mut Vec<u8>, id: i32, flags: Flags, body: impl FnOnce(&mut Writer<'_>)) {
        let ids = Ids { request: id, response_to: self.id };
        if !self.wants_reply {
            return;
        }
        match self.form {
            Form::Msg => message::write(out, ids, flags, body),
            Form::Legacy => legacy::write_reply(out, ids, false, body),
        }
    }

    /// Appends an error.
    pub fn refuse(self, out: &mut Vec<u8>, id: i32, refusal: &Refusal) {
        self.reply(out, id, |body| refusal.write(body));
    }
}
