//! A model server: cursors with small ids, so that those of two servers are often the same, and transactions.

use std::collections::BTreeMap;

use weir_mongodb_codec::bson::{Value, Writer};
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::message::{self, Flags, Ids, Message};
use weir_mongodb_codec::reply::Reply;
use weir_mongodb_session::pins::ServerId;

/// The logical session of a command.
pub type Lsid = [u8; 16];

#[derive(Debug)]
struct Cursor {
    session: Option<Lsid>,
    tag: i64,
    batches: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    UnderWay(i64),
    Committed(i64),
}

/// One server.
#[derive(Debug)]
pub struct ModelServer {
    /// This run of it.
    pub id: ServerId,
    last_cursor: i64,
    last_message: i32,
    cursors: BTreeMap<i64, Cursor>,
    transactions: BTreeMap<Lsid, Transaction>,
}

/// The content of a reply.
enum Content {
    Plain,
    Batch { tag: i64, id: i64 },
    Error(i32),
}

impl ModelServer {
    /// A server that has just started.
    #[must_use]
    pub fn new(id: ServerId) -> ModelServer {
        ModelServer { id, last_cursor: 0, last_message: 1_000, cursors: BTreeMap::new(), transactions: BTreeMap::new() }
    }

    /// Cursors that are open, and transactions that are under way.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        let under_way = |transaction: &&Transaction| matches!(transaction, Transaction::UnderWay(_));
        (self.cursors.len(), self.transactions.values().filter(under_way).count())
    }

    /// A reply that reached nothing: the server reaps its cursor when its own time is over, for no gateway knows the id.
    pub(crate) fn reap(&mut self, reply: &[u8]) {
        let message = Message::read(reply).expect("a reply");
        if let Some(id) = Reply::read(message.body).expect("a reply").cursor {
            self.cursors.remove(&id);
        }
    }

    /// A request and its replies: none, one, or a stream.
    pub fn on_request(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let message = Message::read(bytes).expect("a session forwards whole messages");
        let command = Command::read(message.body).expect("a session forwards commands");
        let may_stream = message.flags.contains(Flags::EXHAUST_ALLOWED) && command.name == b"getMore";
        let (mut replies, mut to) = (Vec::new(), message.header.request);
        loop {
            let content = self.execute(&command);
            let follows = may_stream && matches!(content, Content::Batch { id, .. } if id != 0);
            if message.flags.contains(Flags::MORE_TO_COME) {
                return replies;
            }
            self.last_message += 1;
            let (ids, mut out) = (Ids { request: self.last_message, response_to: to }, Vec::new());
            let flags = if follows { Flags::MORE_TO_COME } else { Flags::empty() };
            message::write(&mut out, ids, flags, |body| write(&content, body));
            replies.push(out);
            to = self.last_message;
            if !follows {
                return replies;
            }
        }
    }

    fn execute(&mut self, command: &Command<'_>) -> Content {
        let part = command.session.zip(command.txn_number).filter(|_| command.is_in_transaction);
        if let Some((session, number)) = part
            && let Err(code) = self.transact(command, *session, number)
        {
            return Content::Error(code);
        }
        if command.name == b"endSessions" {
            self.end_sessions(command);
        }
        // A write with a newer number ends the transaction of its session.
        if let (Some(session), Some(number), false) = (command.session, command.txn_number, command.is_in_transaction)
            && matches!(self.transactions.get(session), Some(Transaction::UnderWay(its)) if *its < number)
        {
            self.transactions.remove(session);
        }
        match command.name {
            b"find" => {
                let tag = command.body.get(b"tag").ok().flatten().and_then(Value::as_integer).expect("a tag");
                let batches = tag % 5;
                if batches == 0 {
                    return Content::Batch { tag, id: 0 };
                }
                self.last_cursor += 1;
                self.cursors.insert(self.last_cursor, Cursor { session: command.session.copied(), tag, batches });
                Content::Batch { tag, id: self.last_cursor }
            }
            b"getMore" => self.more(command.cursor().expect("a cursor"), command.session.copied()),
            b"killCursors" => {
                for id in command.cursors.expect("cursors").elements() {
                    self.cursors.remove(&id.expect("whole").value.as_integer().expect("an id"));
                }
                Content::Plain
            }
            _ => Content::Plain,
        }
    }

    fn end_sessions(&mut self, command: &Command<'_>) {
        let sessions = command.value.as_document().expect("whole").expect("a list");
        for session in sessions.elements() {
            let lsid = session.expect("whole").value.as_document().expect("whole").expect("a document");
            let id = lsid.get(b"id").expect("whole").and_then(Value::as_binary).expect("an id").1;
            let id: Lsid = id.try_into().expect("sixteen bytes");
            self.transactions.remove(&id);
            self.cursors.retain(|_, cursor| cursor.session != Some(id));
        }
    }

    fn more(&mut self, id: i64, session: Option<Lsid>) -> Content {
        let Some(cursor) = self.cursors.get_mut(&id).filter(|cursor| cursor.session == session) else {
            return Content::Error(43);
        };
        cursor.batches -= 1;
        let (tag, is_over) = (cursor.tag, cursor.batches == 0);
        if is_over {
            self.cursors.remove(&id);
        }
        Content::Batch { tag, id: if is_over { 0 } else { id } }
    }

    fn transact(&mut self, command: &Command<'_>, session: Lsid, number: i64) -> Result<(), i32> {
        let known = self.transactions.get(&session).copied();
        match (command.name, known) {
            (b"commitTransaction", Some(Transaction::UnderWay(its) | Transaction::Committed(its))) if its == number => {
                self.transactions.insert(session, Transaction::Committed(number));
                Ok(())
            }
            (b"abortTransaction", Some(Transaction::UnderWay(its))) if its == number => {
                self.transactions.remove(&session);
                Ok(())
            }
            (_, Some(Transaction::UnderWay(its))) if its == number => Ok(()),
            (_, Some(Transaction::UnderWay(its) | Transaction::Committed(its))) if its > number => Err(225),
            _ if command.is_transaction_start => {
                self.transactions.insert(session, Transaction::UnderWay(number));
                Ok(())
            }
            _ => Err(251),
        }
    }
}

fn write(content: &Content, body: &mut Writer<'_>) {
    match content {
        Content::Plain => {}
        Content::Batch { tag, id } => {
            body.document("cursor", |cursor| {
                cursor.array("nextBatch", 0..3, |writer, name, _| {
                    writer.document(name, |document| document.int64("tag", *tag));
                });
                cursor.int64("id", *id);
                cursor.string("ns", "shop.orders");
            });
            body.int64("tag", *tag);
        }
        Content::Error(code) => {
            body.double("ok", 0.0);
            body.string("errmsg", "refused");
            body.int32("code", *code);
            return;
        }
    }
    body.double("ok", 1.0);
}
