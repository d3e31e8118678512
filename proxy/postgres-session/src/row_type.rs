//! The row type of a prepared statement, which a client may have learned.
//!
//! A driver that has described a statement reads all later rows by that description. PostgreSQL never breaks this: after a change of the
//! table, a Bind fails with `cached plan must not change result type` (`RevalidateCachedQuery` in plancache.c). A server that prepares the
//! statement after the change does not know what the client has learned at another server. So the gateway keeps the row type for the
//! client's name and for the server's statement, and a Bind goes on if the two are equal. If the server's is another, or not known, the
//! statement is prepared again and described there first. If that does not give the row type of the client, the Bind fails as it
//! would at a server of the client's own.
//!
//! A statement without rows (NoData) is not compared: a change of a table does not give rows to it. A change of a procedure may give some to
//! a CALL, which then passes.

use std::{
    hash::{BuildHasher, Hash, Hasher},
    num::NonZeroU64,
    rc::Rc,
};

use weir_postgres_codec::{
    MessageError, TransactionStatus,
    backend::RowDescription,
    frame::Head,
    frontend::{self, Kind},
};

use crate::client::Turn;
use crate::io::Io;
use crate::outstanding::{Expected, Note, Outstanding, Request};
use crate::refusal::Refusal;
use crate::server::ServerState;
use crate::session::{Next, Session};
use crate::statements::{Named, ServerName, Statement};

/// Names and types of the columns, as one number. PostgreSQL also compares type modifiers and collations (`equalRowTypes` in tupdesc.c).
/// They change no reading of a value, and the modifiers of a portal depend on its parameter values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowType(NonZeroU64);

impl RowType {
    /// That of the body of a RowDescription.
    ///
    /// # Errors
    /// The body does not have that form.
    pub(crate) fn read(body: &[u8]) -> Result<Self, MessageError> {
        let mut hasher = foldhash::quality::FixedState::default().build_hasher();
        let columns = RowDescription::read(body)?;
        columns.len().hash(&mut hasher);
        for column in columns.iter() {
            // Other names have other bytes in each client_encoding.
            column.name.is_ascii().then_some(column.name).hash(&mut hasher);
            column.type_oid.hash(&mut hasher);
        }
        Ok(Self(NonZeroU64::MIN | hasher.finish()))
    }
}

/// A Bind whose portal may be described next.
#[derive(Debug)]
pub(crate) struct LastBound {
    portal: Box<[u8]>,
    named: Rc<Named>,
    /// The number of the statement at the server.
    number: u64,
    /// The batch of the Bind: its portal is another one after a Sync or Query.
    batch: u64,
}

impl Session {
    /// The Bind may go on: the client knows no row type of the statement, or the server has the same. The server refuses a Bind itself if
    /// its batch has failed, or if it begins a batch in a failed block.
    #[inline]
    pub(crate) fn has_row_type(named: &Named, statement: &Statement, server: &ServerState) -> bool {
        let Some(known) = named.row_type.get() else { return true };
        server.statements.row_type(statement) == Some(known)
            || server.queue.is_skipping()
            || (server.status == TransactionStatus::Failed && server.queue.is_quiet())
    }

    /// Has the statement prepared again and described, and refuses the Bind if that did not help.
    #[cold]
    pub(crate) fn compare_row_types<I: Io>(
        &mut self,
        statement: &Rc<Statement>,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: &mut ServerState,
    ) -> Option<Next> {
        let place = self.place(turn.feed);
        if self.described_at == Some(place) {
            // Each reply of an earlier request brings the Bind here again.
            if !server.queue.is_empty() {
                return Some(self.wait_for_replies(turn, server));
            }
            // The server has described it, with another row type or without rows.
            self.refuse_at_server(&Refusal::OTHER_ROW_TYPE, head, turn, server);
            return None;
        }
        if self.is_unreadable(statement.text()) {
            let waits = self.awaits_encoding(server);
            return self.on_other_encoding(waits, head, turn, server);
        }
        self.described_at = Some(place);
        server.stale.extend(server.statements.remove(statement));
        let number = self.prepare(statement, turn, server);
        turn.io.encode_to_server(|out| frontend::describe(out, Kind::Statement, ServerName::new(number).bytes()));
        server.queue.push(Expected::swallow(Request::Describe, Note::Described(statement.clone(), number)));
        Some(self.wait_for_replies(turn, server))
    }

    /// The portal of this name is about to be bound to the statement, which has this number.
    #[inline]
    pub(crate) fn note_bound(&mut self, portal: &[u8], named: &Rc<Named>, number: u64, server: &ServerState) {
        if named.row_type.get().is_none() {
            let (portal, named) = (portal.into(), named.clone());
            self.last_bound = Some(LastBound { portal, named, number, batch: server.queue.batch() });
        }
    }

    /// The note of a Describe of a portal. It shows the row type of the statement that was bound just before.
    pub(crate) fn note_of_portal(&mut self, portal: &[u8], server: &ServerState) -> Note {
        match self.last_bound.take() {
            Some(last) if *last.portal == *portal && last.batch == server.queue.batch() => {
                Note::Bound(last.named, last.number)
            }
            _ => Note::None,
        }
    }
}

/// A request without a reply is of a statement whose row type the client knows.
pub(crate) fn awaits_known_rows(queue: &Outstanding) -> bool {
    queue.notes().any(|note| matches!(note, Note::Bound(named, _) if named.row_type.get().is_some()))
}

#[cfg(test)]
mod tests {
    use weir_postgres_codec::{
        backend::{self, Column},
        frame::HEAD_BYTES,
    };

    use super::*;

    fn of(columns: &[Column<'_>]) -> RowType {
        let mut message = Vec::new();
        backend::row_description(&mut message, columns.iter().copied());
        RowType::read(&message[HEAD_BYTES..]).expect("it is well formed")
    }

    #[test]
    fn names_and_types_make_the_row_type_and_forms_modifiers_and_tables_do_not() {
        let a = Column::text(b"a", 23, 4);
        let same = Column { format: 1, table_oid: 7, attribute: 2, type_modifier: 14, ..a };
        assert_eq!(of(&[a]), of(&[same]));
        let others = [&[][..], &[a, a], &[Column { name: b"b", ..a }], &[Column { type_oid: 25, ..a }]];
        assert!(others.iter().all(|other| of(other) != of(&[a])));
        let in_encodings = [b"\xc3\xa9".as_slice(), b"\xe9"].map(|name| of(&[Column { name, ..a }]));
        assert_eq!(in_encodings[0], in_encodings[1]);
        assert_ne!(in_encodings[0], of(&[a]));
    }
}
