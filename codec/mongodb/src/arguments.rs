//! The arguments of a command that may be document sequences, in the place of an array in its body.
//!
//! Source: the commands that drivers send. insert, update, delete and bulkWrite have such arguments, and no other command has one. Some
//! servers make a field of the body from any sequence. A pipeline, a filter or a session that came so would
//! pass by a reader of the body alone.

use bitflags::bitflags;

use crate::bson::Document;
use crate::error::BsonError;

bitflags! {
    /// A set of arguments.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Arguments: u8 {
        /// `documents` of insert.
        const DOCUMENTS = 1;
        /// `updates` of update.
        const UPDATES = 1 << 1;
        /// `deletes` of delete.
        const DELETES = 1 << 2;
        /// `ops` of bulkWrite.
        const OPS = 1 << 3;
        /// `nsInfo` of bulkWrite.
        const NS_INFO = 1 << 4;
    }
}

/// Bytes of the longest name.
pub(crate) const NAME_BYTES_MAX: usize = 9;

impl Arguments {
    /// Those that the command of this name may have as sequences.
    #[must_use]
    pub const fn of_command(name: &[u8]) -> Self {
        match name {
            b"insert" => Self::DOCUMENTS,
            b"update" => Self::UPDATES,
            b"delete" => Self::DELETES,
            b"bulkWrite" => Self::OPS.union(Self::NS_INFO),
            _ => Self::empty(),
        }
    }

    /// The one of this name; none has another name.
    #[must_use]
    pub const fn of_name(name: &[u8]) -> Self {
        match name {
            b"documents" => Self::DOCUMENTS,
            b"updates" => Self::UPDATES,
            b"deletes" => Self::DELETES,
            b"ops" => Self::OPS,
            b"nsInfo" => Self::NS_INFO,
            _ => Self::empty(),
        }
    }

    /// Those that may stand beside this body: its command has them, and the body does not.
    ///
    /// # Errors
    /// The body is broken.
    pub fn beside(body: Document<'_>) -> Result<Self, BsonError> {
        let Some(first) = body.first_element()? else { return Ok(Self::empty()) };
        let mut possible = Self::of_command(first.name);
        if possible.is_empty() {
            return Ok(possible);
        }
        for element in body.elements() {
            possible = possible.difference(Self::of_name(element?.name));
        }
        Ok(possible)
    }

    /// Whether a sequence of this name may stand there.
    #[must_use]
    pub const fn has(self, name: &[u8]) -> bool {
        let one = Self::of_name(name);
        !one.is_empty() && self.contains(one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bson;

    #[test]
    fn a_sequence_belongs_to_its_command_and_is_not_in_the_body_as_well() {
        let beside = |command: &str, field: Option<&str>| {
            let mut body = Vec::new();
            bson::document(&mut body, |body| {
                body.string(command, "orders");
                if let Some(field) = field {
                    body.array(field, 0..0, |writer, name, _: i32| writer.int32(name, 1));
                }
            });
            Arguments::beside(Document::read(&body).unwrap()).unwrap()
        };
        assert_eq!(beside("insert", None), Arguments::DOCUMENTS);
        assert_eq!(beside("insert", Some("documents")), Arguments::empty());
        assert_eq!(beside("bulkWrite", Some("ops")), Arguments::NS_INFO);
        assert_eq!(beside("aggregate", None), Arguments::empty());
        assert!(beside("update", None).has(b"updates") && !beside("update", None).has(b"documents"));
        for name in [&b"pipeline"[..], b"filter", b"$db", b"lsid", b""] {
            assert!(!Arguments::all().has(name));
        }
    }

    #[test]
    fn no_name_is_longer_than_the_longest() {
        let names = ["documents", "updates", "deletes", "ops", "nsInfo"];
        assert_eq!(names.iter().map(|name| name.len()).max(), Some(NAME_BYTES_MAX));
        assert_eq!(
            names.iter().map(|name| Arguments::of_name(name.as_bytes())).collect::<Arguments>(),
            Arguments::all()
        );
    }
}
