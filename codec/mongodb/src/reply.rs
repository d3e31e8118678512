//! The fields of a reply that change its session: whether it succeeded, its cursor, its labels.
//!
//! | file | concept |
//! |---|---|
//! | `labels` | labels of errors, by which drivers decide about another attempt |
//! | `follow` | a reply that arrives in pieces and is never held whole |

mod follow;
mod labels;

pub use follow::ReplyFollower;
pub use labels::Labels;

use crate::bson::{Document, Element, Kind, Value};
use crate::error::BsonError;

/// The facts of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// `ok`: the command has succeeded. Single writes of it may have failed.
    pub is_ok: bool,
    /// `code` of an error.
    pub code: Option<i32>,
    /// `errorLabels`.
    pub labels: Labels,
    /// `cursor.id`: 0 if the cursor is exhausted; `None` if there is no cursor.
    pub cursor: Option<i64>,
    /// `writeConcernError` is there: the write may be lost although `ok` is 1.
    pub has_write_concern_error: bool,
    /// `writeConcernError.code`: it may say that the server is no primary any more. `None` also if the error has more than
    /// [`REPLY_ELEMENT_BYTES_MAX`](crate::limits::REPLY_ELEMENT_BYTES_MAX) bytes in a reply in pieces.
    pub write_concern_code: Option<i32>,
    /// `writeErrors` is there.
    pub has_write_errors: bool,
}

impl Reply {
    /// Reads the body of a whole reply.
    ///
    /// # Errors
    /// The body is broken.
    #[inline]
    pub fn read(body: Document<'_>) -> Result<Self, BsonError> {
        let mut reply = Self::default();
        for element in body.elements() {
            let element = element?;
            if is_cursor(element.name, element.value.kind) {
                for inside in Document::read(element.value.bytes)?.elements() {
                    reply.note_in_cursor(inside?);
                }
            } else {
                reply.note(element)?;
            }
        }
        Ok(reply)
    }

    /// An element of the reply itself.
    #[inline]
    fn note(&mut self, Element { name, value }: Element<'_>) -> Result<(), BsonError> {
        match name {
            b"ok" => self.is_ok = value.is_true(),
            b"code" => self.code = int32(value),
            b"errorLabels" => {
                if let Some(labels) = value.as_document()? {
                    self.labels = Labels::read(labels)?;
                }
            }
            b"writeConcernError" => {
                self.has_write_concern_error = true;
                let code = value.as_document().ok().flatten().and_then(|error| error.get(b"code").ok().flatten());
                self.write_concern_code = code.and_then(int32);
            }
            b"writeErrors" => self.has_write_errors = true,
            _ => {}
        }
        Ok(())
    }

    /// An element of its `cursor`.
    #[inline]
    fn note_in_cursor(&mut self, Element { name, value }: Element<'_>) {
        if name == b"id" {
            self.cursor = value.as_integer();
        }
    }
}

fn int32(value: Value<'_>) -> Option<i32> {
    value.as_integer().and_then(|code| i32::try_from(code).ok())
}

/// Whether this is the document with the cursor.
fn is_cursor(name: &[u8], kind: Kind) -> bool {
    name == b"cursor" && kind == Kind::Document
}

/// The text of an error, for logs: `errmsg`.
pub fn error_text(body: Document<'_>) -> Option<&[u8]> {
    body.get(b"errmsg").ok().flatten().and_then(Value::as_string)
}

#[cfg(test)]
mod tests;
