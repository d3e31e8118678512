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

/// Bytes of the buffer that stay with memory for later batches.
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
    /// `Some` while a batch is under way. A session without a server keeps none: the sessions of a worker share the memory.
    kept: Option<Box<Kept>>,
}

/// The memory of a batch under way.
#[derive(Debug, Default)]
pub(crate) struct Kept {
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
    /// A batch begins with the next bytes. `spare` gives memory for it.
    pub(crate) fn begin(&mut self, spare: impl FnOnce() -> Box<Kept>) {
        self.forget();
        self.kept.get_or_insert_with(spare);
        self.phase = Phase::Records;
    }

    /// The session gives its server up: the memory is for other sessions.
    pub(crate) fn release(&mut self) -> Option<Box<Kept>> {
        self.forget();
        self.kept.take_if(|kept| kept.held.is_empty())
    }

    /// Bytes of the batch go to the server.
    #[inline]
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        let Some(kept) = self.kept.as_mut().filter(|_| self.phase == Phase::Records) else { return };
        if kept.bytes.len() + bytes.len() > BATCH_BYTES_MAX {
            return self.forget();
        }
        kept.bytes.extend_from_slice(bytes);
    }

    /// The batch binds or describes a statement.
    #[inline]
    pub(crate) fn note_statement(&mut self, statement: &Rc<Statement>) {
        let Some(kept) = self.kept.as_mut().filter(|_| self.phase == Phase::Records) else { return };
        if !kept.statements.iter().any(|known| Rc::ptr_eq(known, statement)) {
            kept.statements.push(statement.clone());
        }
    }

    /// The batch is over, or cannot be repeated.
    #[inline]
    pub(crate) fn forget(&mut self) {
        if self.phase != Phase::Off {
            self.phase = Phase::Off;
            let Some(kept) = &mut self.kept else { return };
            kept.statements.clear();
            kept.entries.clear();
            kept.bytes.clear();
            if kept.bytes.capacity() > BYTES_KEPT {
                kept.bytes = Vec::new();
            }
        }
    }

    /// Statements that the batch binds or describes.
    pub(crate) fn statements(&self) -> &[Rc<Statement>] {
        self.kept.as_ref().map_or(&[][..], |kept| &kept.statements)
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
        if let Some(kept) = &mut self.kept {
            kept.has_sync = has_sync;
            kept.held.clear();
        }
    }

    /// Keeps a ParameterDescription back while the batch may yet be repeated; false: it may not.
    pub(crate) fn hold(&mut self, body: &[u8]) -> bool {
        let Some(kept) = self.kept.as_mut().filter(|_| self.phase == Phase::Records) else { return false };
        kept.held.push(tag::PARAMETER_DESCRIPTION);
        kept.held.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        kept.held.extend_from_slice(body);
        true
    }

    /// Bytes that were kept back, and come before whatever the client gets next.
    #[inline]
    pub(crate) fn take_held(&mut self) -> Option<Vec<u8>> {
        let kept = self.kept.as_mut().filter(|kept| !kept.held.is_empty())?;
        Some(std::mem::take(&mut kept.held))
    }

    /// A request of the failed batch, the last first.
    pub(crate) fn keep(&mut self, entry: Expected) {
        if let Some(kept) = &mut self.kept {
            kept.entries.push(entry);
        }
    }

    /// Everything to repeat. Nothing is kept any more.
    pub(crate) fn take(&mut self) -> Batch {
        self.phase = Phase::Off;
        let Kept { bytes, statements, mut entries, has_sync, .. } = *self.kept.take().unwrap_or_default();
        entries.reverse();
        Batch { statements, entries, bytes, has_sync }
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
