//! The batch that runs again if its statement has to be prepared again: `cached plan must not change result type`, a type
//! of its parameters that is gone, or a statement that some client's function has dropped.
//!
//! The server raises this error at Bind and Describe, after somebody has changed a table. A client that has just prepared the statement
//! does not expect it: its server had the statement from others. So the gateway closes the statement, prepares it again and repeats
//! the batch, once: outside of a transaction block, and while the client has not seen a byte of the reply. A client that knows the
//! old row type gets the error, as from a server of its own: it would misread the new rows.

use std::rc::Rc;

use weir_postgres_codec::{
    backend::{ErrorFields, tag},
    sqlstate,
};

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
    /// Statements that the batch binds or describes.
    statements: Vec<Rc<Statement>>,
    /// Replies due for the batch.
    entries: Vec<Expected>,
    /// The client's Sync ends it.
    has_sync: bool,
    /// ParameterDescription, which comes before the error of a Describe.
    held: Vec<u8>,
}

/// A batch to repeat.
pub(crate) struct Batch {
    /// Statements that it binds or describes.
    pub(crate) statements: Vec<Rc<Statement>>,
    /// Replies due for it, without the Sync.
    pub(crate) entries: Vec<Expected>,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// The client's Sync ends it.
    pub(crate) has_sync: bool,
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

    /// The batch binds or describes a statement.
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

    /// Statements that the batch binds or describes.
    pub(crate) fn statements(&self) -> &[Rc<Statement>] {
        &self.statements
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
    pub(crate) fn fail(&mut self, has_sync: bool) {
        self.phase = Phase::Fails;
        self.has_sync = has_sync;
        self.held.clear();
    }

    /// Keeps a ParameterDescription back while the batch may yet be repeated; false: it may not.
    pub(crate) fn hold(&mut self, body: &[u8]) -> bool {
        if self.phase != Phase::Records {
            return false;
        }
        self.held.push(tag::PARAMETER_DESCRIPTION);
        self.held.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        self.held.extend_from_slice(body);
        true
    }

    /// Bytes that were kept back, and come before whatever the client gets next.
    #[inline]
    pub(crate) fn take_held(&mut self) -> Option<Vec<u8>> {
        (!self.held.is_empty()).then(|| std::mem::take(&mut self.held))
    }

    /// A request of the failed batch, the last first.
    pub(crate) fn keep(&mut self, entry: Expected) {
        self.entries.push(entry);
    }

    /// Everything to repeat. Nothing is kept any more.
    pub(crate) fn take(&mut self) -> Batch {
        self.phase = Phase::Off;
        self.entries.reverse();
        Batch {
            statements: std::mem::take(&mut self.statements),
            entries: std::mem::take(&mut self.entries),
            bytes: std::mem::take(&mut self.bytes),
            has_sync: self.has_sync,
        }
    }
}

/// The error of a statement that was prepared before a change: of its row type, or of a type of its parameters that is gone (as one
/// that an extension had, which was created again).
pub(crate) fn is_outdated(fields: &ErrorFields<'_>) -> bool {
    let is_same = |text: &[u8]| text == b"cached plan must not change result type";
    let is_gone = |text: &[u8]| text.starts_with(b"cache lookup failed for type ");
    match fields.sqlstate() {
        // In another language the routine of the server still has its name.
        Some(sqlstate::FEATURE_NOT_SUPPORTED) => {
            fields.message().is_some_and(is_same) || fields.get(b'R') == Some(b"RevalidateCachedQuery")
        }
        // No server translates it.
        Some(sqlstate::INTERNAL_ERROR) => fields.message().is_some_and(is_gone),
        _ => false,
    }
}
