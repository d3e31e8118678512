//! Results that are read in several replies. Their ids are random, and any connection may go on with them, unless they are bound to one.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use weir_base::{Rng, Time};
use weir_mongodb_codec::bson::{Kind, Value};

use super::failure::{Failure, code};
use super::request::Request;
use super::selection::Selection;
use super::settings::CURSORS_MAX;
use super::store::Stored;
use super::transactions::SessionId;

/// How long a cursor is kept without use: `cursorTimeoutMillis` of MongoDB.
const IDLE: Duration = Duration::from_secs(600);

/// The content of a cursor.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Documents(Selection),
    /// A change stream: the position of the next change.
    Changes {
        next: u64,
    },
    /// Documents that were stored when the cursor was opened.
    Stored(VecDeque<Stored>),
    /// Documents that will be stored from this place on, if they fit the filter.
    Tail {
        next: u64,
        filter: Option<Vec<u8>>,
    },
}

/// A cursor.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    pub content: Content,
    pub namespace: Vec<u8>,
    /// The comment of the command that opened it.
    mark: Option<(Kind, Vec<u8>)>,
    pub session: Option<SessionId>,
    /// It was opened in this transaction.
    pub transaction: Option<i64>,
    /// It is bound to this connection.
    pub connection: Option<u64>,
    /// It stays open at its end, and getMore waits there.
    pub is_tailable: bool,
    used: Time,
}

impl Cursor {
    /// A cursor that a command opens.
    pub fn new(content: Content, namespace: Vec<u8>, request: &Request<'_>, connection: Option<u64>) -> Self {
        let command = &request.command;
        Self {
            content,
            namespace,
            mark: request.mark().map(|mark| (mark.kind, mark.bytes.to_vec())),
            session: command.session.copied(),
            transaction: command.txn_number.filter(|_| command.is_in_transaction),
            connection,
            is_tailable: false,
            used: Time::ZERO,
        }
    }

    pub fn mark(&self) -> Option<Value<'_>> {
        self.mark.as_ref().map(|(kind, bytes)| Value { kind: *kind, bytes })
    }

    /// Whether this command may go on with the cursor.
    fn check(&self, id: i64, request: &Request<'_>, connection: Option<u64>) -> Result<(), Failure> {
        let command = &request.command;
        if self.connection != connection {
            return Err(not_found(id));
        }
        let (number, text) = match (&self.session, command.session) {
            (None, Some(_)) => (code::CURSOR_WITHOUT_SESSION, "which was not created in a session, in a session"),
            (Some(_), None) => (code::CURSOR_IN_SESSION, "which was created in a session, without an lsid"),
            (Some(own), Some(other)) if own != other => {
                (code::CURSOR_IN_OTHER_SESSION, "which was created in another session")
            }
            _ if self.transaction != command.txn_number.filter(|_| command.is_in_transaction) => {
                (code::CURSOR_IN_OTHER_TRANSACTION, "which was not created in this transaction")
            }
            _ if self.namespace != request.namespace()? => (code::UNAUTHORIZED, "which belongs to another collection"),
            _ => return Ok(()),
        };
        Err(Failure::new(number, format!("Cannot run getMore on cursor {id}, {text}")))
    }
}

/// All cursors that are open.
#[derive(Debug)]
pub(super) struct Cursors {
    open: HashMap<i64, Cursor>,
    rng: Rng,
    pub opened: u64,
    pub killed: u64,
}

impl Cursors {
    pub fn new(rng: Rng) -> Self {
        Self { open: HashMap::new(), rng, opened: 0, killed: 0 }
    }

    /// Keeps a cursor that was opened now; its id.
    pub fn open(&mut self, cursor: Cursor, now: Time) -> Result<i64, Failure> {
        if self.open.len() >= CURSORS_MAX {
            self.open.retain(|_, cursor| now.since(cursor.used) < IDLE);
        }
        if self.open.len() >= CURSORS_MAX {
            let text = format!("weir origin: {CURSORS_MAX} cursors are open; close some, or read them to their end");
            return Err(Failure::new(code::EXCEEDED_MEMORY_LIMIT, text));
        }
        let id = loop {
            // From 1 on, as MongoDB has them.
            let id = (self.rng.next_u64() >> 1) as i64;
            if id != 0 && !self.open.contains_key(&id) {
                break id;
            }
        };
        self.opened += 1;
        self.put(id, cursor, now);
        Ok(id)
    }

    /// Takes a cursor for a batch: no other command has it meanwhile.
    pub fn take(
        &mut self,
        id: i64,
        request: &Request<'_>,
        connection: Option<u64>,
        now: Time,
    ) -> Result<Cursor, Failure> {
        let cursor = self.open.get(&id).filter(|cursor| now.since(cursor.used) < IDLE);
        cursor.ok_or_else(|| not_found(id))?.check(id, request, connection)?;
        self.open.remove(&id).ok_or_else(|| not_found(id))
    }

    /// Keeps a cursor for a further batch.
    pub fn put(&mut self, id: i64, cursor: Cursor, now: Time) {
        self.open.insert(id, Cursor { used: now, ..cursor });
    }

    /// Kills a cursor; false: there is none.
    pub fn kill(&mut self, id: i64, connection: Option<u64>) -> Option<Cursor> {
        self.open.get(&id).filter(|cursor| cursor.connection == connection)?;
        self.killed += 1;
        self.open.remove(&id)
    }

    /// Kills those that `wanted` names; the result is how many of them were change streams.
    pub fn kill_all(&mut self, wanted: impl Fn(&Cursor) -> bool) -> u64 {
        let ids: Vec<i64> = self.open.iter().filter(|(_, cursor)| wanted(cursor)).map(|(id, _)| *id).collect();
        let mut watchers = 0;
        for id in ids {
            let cursor = self.open.remove(&id);
            self.killed += 1;
            watchers += u64::from(cursor.is_some_and(|cursor| matches!(cursor.content, Content::Changes { .. })));
        }
        watchers
    }

    /// Cursors that are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }
}

fn not_found(id: i64) -> Failure {
    Failure::new(code::CURSOR_NOT_FOUND, format!("cursor id {id} not found"))
}
