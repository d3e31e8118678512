//! The batch that runs again if its statement has to be prepared again: `cached plan must not change result type`.
//!
//! The server raises this error at Bind, after somebody has changed a table. A client that prepares by itself can do nothing about it,
//! so the gateway closes the statement, prepares it again and repeats the batch, once: outside of a transaction
//! block, and while the client has not seen a byte of the reply.

use std::rc::Rc;

use crate::outstanding::Expected;
use crate::statements::Statement;

/// Bytes of a batch that are kept. Larger ones are not repeated.
const BATCH_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the buffer that stay with an idle session.
const BYTES_KEPT: usize = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing is kept.
    #[default]
    Off,
    /// A batch is under way.
    Records,
    /// Its error has come; its ReadyForQuery has not.
    Fails,
}

/// A batch under way.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    phase: Phase,
    bytes: Vec<u8>,
    /// Statements that the batch binds.
    statements: Vec<Rc<Statement>>,
    /// Replies due for the batch.
    entries: Vec<Expected>,
}

impl Retry {
    /// A batch begins with the next bytes.
    pub(crate) fn begin(&mut self) {
        self.forget();
        self.phase = Phase::Records;
    }

    /// Bytes of the batch go to the server.
    #[inline]
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        if self.phase != Phase::Records {
            return;
        }
        if self.bytes.len() + bytes.len() > BATCH_BYTES_MAX {
            return self.forget();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The batch binds a statement.
    #[inline]
    pub(crate) fn note_statement(&mut self, statement: &Rc<Statement>) {
        if self.phase == Phase::Records && !self.statements.iter().any(|known| Rc::ptr_eq(known, statement)) {
            self.statements.push(statement.clone());
        }
    }

    /// The batch is over, or cannot be repeated.
    #[inline]
    pub(crate) fn forget(&mut self) {
        if self.phase != Phase::Off {
            self.phase = Phase::Off;
            self.statements.clear();
            self.entries.clear();
            self.bytes.clear();
            if self.bytes.capacity() > BYTES_KEPT {
                self.bytes = Vec::new();
            }
        }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.phase == Phase::Records
    }

    /// The batch has failed, and will be repeated.
    #[inline]
    pub(crate) fn is_repeating(&self) -> bool {
        self.phase == Phase::Fails
    }

    /// The error of the batch has come.
    pub(crate) fn fail(&mut self) {
        self.phase = Phase::Fails;
    }

    /// A request of the failed batch, the last first.
    pub(crate) fn keep(&mut self, entry: Expected) {
        self.entries.push(entry);
    }

    /// Everything to repeat. Nothing is kept any more.
    pub(crate) fn take(&mut self) -> (Vec<Rc<Statement>>, Vec<Expected>, Vec<u8>) {
        self.phase = Phase::Off;
        self.entries.reverse();
        (std::mem::take(&mut self.statements), std::mem::take(&mut self.entries), std::mem::take(&mut self.bytes))
    }
}
