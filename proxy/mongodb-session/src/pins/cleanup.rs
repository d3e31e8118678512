//! Commands for things that have lost their client: a server would keep them until its own time is over.

use weir_mongodb_codec::message::{self, Flags, Ids};

use super::ServerId;

/// A command that the gateway sends on its own behalf, on any connection of the server. Its reply is read and dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// killCursors.
    KillCursor {
        /// Where the cursor lives.
        server: ServerId,
        /// Its database.
        db: Box<[u8]>,
        /// Its collection.
        collection: Box<[u8]>,
        /// Its id.
        id: i64,
    },
    /// abortTransaction.
    AbortTransaction {
        /// Where the transaction is under way.
        server: ServerId,
        /// Its logical session.
        session: [u8; 16],
        /// Its number.
        number: i64,
    },
}

impl Cleanup {
    /// The server that must get it.
    #[must_use]
    pub const fn server(&self) -> ServerId {
        match self {
            Cleanup::KillCursor { server, .. } | Cleanup::AbortTransaction { server, .. } => *server,
        }
    }

    /// Appends the command as a message with this id.
    pub fn write(&self, out: &mut Vec<u8>, request: i32) {
        let ids = Ids { request, response_to: 0 };
        message::write(out, ids, Flags::empty(), |body| match self {
            Cleanup::KillCursor { db, collection, id, .. } => {
                body.string("killCursors", collection);
                body.array("cursors", [*id], |writer, name, id| writer.int64(name, id));
                body.string("$db", db);
            }
            Cleanup::AbortTransaction { session, number, .. } => {
                body.int32("abortTransaction", 1);
                body.document("lsid", |lsid| lsid.binary("id", 4, session));
                body.int64("txnNumber", *number);
                body.bool("autocommit", false);
                body.string("$db", "admin");
            }
        });
    }
}
