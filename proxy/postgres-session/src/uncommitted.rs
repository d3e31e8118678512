//! Objects at a server that the end of a transaction decides about: temporary tables, and cursors WITH HOLD.
//!
//! They pin from the commit on. Before it the open transaction keeps the server, and a rollback leaves nothing.

use crate::io::Io;
use crate::pin::PinReasons;
use crate::server::ServerState;
use crate::session::Session;

/// Cursors WITH HOLD of a client that are known by name. A client with more keeps its server up to DISCARD ALL.
const CURSORS_MAX: usize = 256;

/// An object that a statement has made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// Some temporary table.
    Table,
    /// A cursor WITH HOLD.
    Cursor(Box<[u8]>),
    /// A further one: its name is not kept.
    Cursors,
}

/// Objects of the open transaction, each with the number of savepoints before it.
#[derive(Debug, Default)]
pub(crate) struct Uncommitted(Vec<(usize, Made)>);

impl Uncommitted {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A statement has made an object behind so many savepoints.
    pub(crate) fn note(&mut self, savepoints: usize, made: Made) {
        let made = if self.0.len() < CURSORS_MAX { made } else { Made::Cursors };
        if !self.0.iter().any(|(depth, known)| *depth <= savepoints && *known == made) {
            self.0.push((savepoints, made));
        }
    }

    /// CLOSE, which no rollback undoes; `None`: ALL.
    pub(crate) fn close(&mut self, name: Option<&[u8]>) {
        self.0.retain(|(_, made)| match made {
            Made::Table => true,
            Made::Cursor(known) => name.is_some_and(|name| **known != *name),
            Made::Cursors => name.is_some(),
        });
    }

    /// The transaction was rolled back, or is over with its connection.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// ROLLBACK TO: so many savepoints are left, the last of them included.
    pub(crate) fn roll_back_to(&mut self, savepoints: usize) {
        self.0.retain(|(depth, _)| *depth < savepoints);
    }

    /// RELEASE: so many savepoints are left.
    pub(crate) fn release_to(&mut self, savepoints: usize) {
        self.0.iter_mut().for_each(|(depth, _)| *depth = savepoints.min(*depth));
    }
}

impl Session {
    /// The transaction has committed: its objects are there.
    pub(crate) fn commit_made(&mut self, server: &mut ServerState, io: &impl Io) {
        for (_, made) in std::mem::take(&mut self.uncommitted.0) {
            match made {
                Made::Table => self.add_pin(PinReasons::TEMPORARY_TABLE, server, io),
                Made::Cursor(name) if self.cursors.len() < CURSORS_MAX => {
                    if !self.cursors.contains(&name) {
                        self.cursors.push(name);
                    }
                    self.add_pin(PinReasons::HELD_CURSOR, server, io);
                }
                Made::Cursor(_) | Made::Cursors => self.add_pin(PinReasons::OPAQUE, server, io),
            }
        }
    }

    /// The server is outside of a transaction again.
    #[inline]
    pub(crate) fn end_made(&mut self, server: &mut ServerState, io: &impl Io) {
        match self.uncommitted.is_empty() {
            true => {}
            false if server.has_failed => self.uncommitted.clear(),
            false => self.commit_made(server, io),
        }
    }

    /// The client is gone: the end of its transaction may yet come, and nothing will know what it leaves.
    pub(crate) fn abandon_made(&mut self, server: &mut ServerState) {
        if !self.uncommitted.is_empty() {
            server.dirt |= PinReasons::TEMPORARY_TABLE | PinReasons::HELD_CURSOR;
            self.uncommitted.clear();
        }
    }
}
