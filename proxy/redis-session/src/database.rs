//! Which database a session is in once a SELECT, or an EXEC with SELECTs in it, has been answered.

use std::{iter::Peekable, vec};

use crate::exec_reply::{ExecReply, Piece};

/// An exchange that changes the database where the server carries it out.
#[derive(Debug)]
pub(crate) struct DbChange {
    exchange: u64,
    pending: PendingChange,
}

#[derive(Debug)]
enum PendingChange {
    Select { db: u32 },
    Exec(Selects),
}

impl DbChange {
    /// SELECT by itself.
    pub(crate) fn select(exchange: u64, db: u32) -> Self {
        Self { exchange, pending: PendingChange::Select { db } }
    }

    /// EXEC with SELECTs at these places among its commands.
    pub(crate) fn exec(exchange: u64, selects: Vec<(u32, u32)>) -> Self {
        let pending = selects.into_iter().peekable();
        Self { exchange, pending: PendingChange::Exec(Selects { pending, reply: ExecReply::default(), db: None }) }
    }

    pub(crate) fn exchange(&self) -> u64 {
        self.exchange
    }

    /// Takes a piece of the reply to `exchange`.
    pub(crate) fn note(&mut self, exchange: u64, bytes: &[u8]) {
        if exchange == self.exchange
            && let PendingChange::Exec(selects) = &mut self.pending
        {
            selects.note(bytes);
        }
    }

    /// The database after the reply, which was an error or not; `None` if it is the one before.
    pub(crate) fn outcome(&self, is_error: bool) -> Option<u32> {
        match &self.pending {
            _ if is_error => None,
            PendingChange::Select { db } => Some(*db),
            PendingChange::Exec(selects) => selects.db,
        }
    }
}

/// The replies to the SELECTs of a transaction.
#[derive(Debug)]
struct Selects {
    /// Place among the commands, and database; those that have not been answered yet, in order.
    pending: Peekable<vec::IntoIter<(u32, u32)>>,
    reply: ExecReply,
    /// The database of the last successful SELECT.
    db: Option<u32>,
}

impl Selects {
    fn note(&mut self, mut bytes: &[u8]) {
        while let Some(piece) = self.reply.next(&mut bytes) {
            if let Piece::Inside { place, end: Some(is_error), .. } = piece
                && let Some((_, db)) = self.pending.next_if(|select| select.0 == place)
                && !is_error
            {
                self.db = Some(db);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(selects: &[(u32, u32)], reply: &[u8], piece: usize) -> Option<u32> {
        let mut change = DbChange::exec(7, selects.to_vec());
        for part in reply.chunks(piece) {
            change.note(7, part);
        }
        change.note(8, b"*1\r\n+OK\r\n");
        change.outcome(reply.starts_with(b"-"))
    }

    #[test]
    fn the_last_select_that_succeeded_counts() {
        for piece in 1..40 {
            let both = [(0, 5), (2, 6)];
            assert_eq!(outcome(&both, b"*3\r\n+OK\r\n$2\r\nhi\r\n+OK\r\n", piece), Some(6));
            assert_eq!(outcome(&both, b"*3\r\n+OK\r\n*1\r\n$1\r\nx\r\n-ERR DB\r\n", piece), Some(5));
            assert_eq!(outcome(&both, b"*3\r\n-ERR DB\r\n*0\r\n-ERR DB\r\n", piece), None);
        }
    }

    #[test]
    fn an_exec_that_was_not_carried_out_changes_nothing() {
        for reply in [&b"*-1\r\n"[..], b"_\r\n", b"-EXECABORT no\r\n", b"*0\r\n"] {
            assert_eq!(outcome(&[(0, 5)], reply, 1), None);
        }
    }
}
