//! The row type of a prepared statement, which a client may have learned.
//!
//! A driver that has described a statement reads all later rows by that description. PostgreSQL never breaks this: after a change of the
//! table, a Bind fails with `cached plan must not change result type` (`RevalidateCachedQuery` in plancache.c). A server that prepares the
//! statement after the change does not know what the client has learned at another server. So the gateway keeps the row type for the
//! client's name and for the server's statement, and a Bind goes on if the two are equal. If the server's is another, or not known, the
//! statement is prepared again and described there first. If that does not give the row type of the client, the Bind fails as it
//! would at a server of the client's own.

use std::{
    hash::{BuildHasher, Hash, Hasher},
    num::NonZeroU64,
    rc::Rc,
};

use weir_postgres_codec::{
    MessageError, TransactionStatus,
    backend::{RowDescription, tag},
    frame::Head,
    frontend::{self, Kind},
};

use crate::client::Turn;
use crate::io::Io;
use crate::outstanding::{Expected, Note, Request};
use crate::server::ServerState;
use crate::session::{Next, Session};
use crate::statements::{Named, ServerName, Statement};

/// Names, types and type modifiers of the columns, as one number. PostgreSQL compares the same (`equalRowTypes` in tupdesc.c); the form
/// of the values is no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowType(NonZeroU64);

impl RowType {
    /// That of a RowDescription or NoData.
    ///
    /// # Errors
    /// The body does not have the form of its type.
    pub(crate) fn read(tag: u8, body: &[u8]) -> Result<Self, MessageError> {
        let mut hasher = foldhash::quality::FixedState::default().build_hasher();
        if tag == tag::ROW_DESCRIPTION {
            let columns = RowDescription::read(body)?;
            columns.len().hash(&mut hasher);
            for column in columns.iter() {
                (column.name, column.type_oid, column.type_modifier).hash(&mut hasher);
            }
        }
        Ok(Self(NonZeroU64::MIN | hasher.finish()))
    }
}

impl Session {
    /// The Bind may go on: the client knows no row type of the statement, or the server has the same. In a failed batch or block, the
    /// server refuses the Bind itself.
    #[inline]
    pub(crate) fn has_row_type(named: &Named, statement: &Statement, server: &ServerState) -> bool {
        let Some(known) = named.row_type.get() else { return true };
        server.statements.row_type(statement) == Some(known)
            || server.queue.is_skipping()
            || server.status == TransactionStatus::Failed
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
        if self.described_at == Some(place) && server.statements.row_type(statement).is_some() {
            self.refuse_row_type(head, turn, server);
            return None;
        }
        self.described_at = Some(place);
        server.stale.extend(server.statements.remove(statement));
        let name = ServerName::new(self.prepare(statement, turn, server));
        turn.io.encode_to_server(|out| frontend::describe(out, Kind::Statement, name.bytes()));
        server.queue.push(Expected::swallow(Request::Describe, Note::Described(statement.clone())));
        Some(self.wait_for_replies(turn, server))
    }

    /// The server has to fail too, because the error ends a transaction: it gets a Bind that it refuses, and the client another error.
    fn refuse_row_type<I: Io>(&mut self, head: Head, turn: &mut Turn<'_, '_, I>, server: &mut ServerState) {
        turn.feed.flush(&mut self.retry, turn.io);
        self.retry.forget();
        turn.io.encode_to_server(|out| frontend::bind(out, b"", ServerName::none().bytes(), []));
        server.queue.push(Expected::forward(Request::Bind, Note::OtherRowType));
        self.drop_message(head, turn.feed, turn.io);
    }

    /// The portal of this name is about to be bound to the statement.
    #[inline]
    pub(crate) fn note_bound(&mut self, portal: &[u8], named: Option<&Rc<Named>>) {
        let unknown = named.filter(|named| named.row_type.get().is_none());
        self.last_bound = unknown.map(|named| (portal.into(), named.clone()));
    }

    /// The note of a Describe of a portal. It shows the row type of the statement that was bound just before.
    pub(crate) fn note_of_portal(&mut self, portal: &[u8]) -> Note {
        match self.last_bound.take() {
            Some((bound, named)) if *bound == *portal => Note::Bound(named),
            _ => Note::None,
        }
    }
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
        RowType::read(tag::ROW_DESCRIPTION, &message[HEAD_BYTES..]).expect("it is well formed")
    }

    #[test]
    fn names_types_and_modifiers_make_the_row_type_and_forms_and_tables_do_not() {
        let a = Column::text(b"a", 23, 4);
        let same = Column { format: 1, table_oid: 7, attribute: 2, ..a };
        assert_eq!(of(&[a]), of(&[same]));
        let others = [
            of(&[]),
            of(&[a, a]),
            of(&[Column { name: b"b", ..a }]),
            of(&[Column { type_oid: 25, ..a }]),
            of(&[Column { type_modifier: 14, ..a }]),
            RowType::read(tag::NO_DATA, b"").expect("it is well formed"),
        ];
        assert!(others.iter().all(|other| *other != of(&[a])));
        assert_ne!(of(&[]), others[5], "no columns are not no rows");
    }
}
