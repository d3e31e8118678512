//! Writes as change streams see them: the last ones, in order.

use std::collections::VecDeque;

use weir_mongodb_codec::bson::{Document, Kind, Value, Writer};

use super::store::Stored;

/// Changes that are kept. 10,000 in about 1 MiB: more than a reader of a test is behind.
const CHANGES_MAX: usize = 10_000;

/// A write.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// `insert`, `update`, `delete`.
    pub operation: &'static str,
    /// Database and collection, with a dot between them.
    pub namespace: Vec<u8>,
    /// `_id` of the document: its type and its bytes. `None`: it has none.
    pub id: Option<(Kind, Vec<u8>)>,
    /// The document behind the write, if the origin stores documents.
    pub document: Option<Stored>,
}

/// The changes of the deployment.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The position of the first that is kept.
    first: u64,
    kept: VecDeque<Change>,
}

impl Changes {
    /// The position behind the last.
    pub fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    pub fn note(&mut self, change: Change) {
        if self.kept.len() >= CHANGES_MAX {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(change);
    }

    /// Changes of a stream from this position on, with the position of each; `None`: the position is no longer kept.
    pub fn since(&self, position: u64, namespace: &[u8], count: usize) -> Option<Vec<(u64, Change)>> {
        let skip = position.checked_sub(self.first)? as usize;
        let all = self.kept.iter().enumerate().skip(skip).filter(|(_, change)| is_in(&change.namespace, namespace));
        Some(all.take(count).map(|(at, change)| (self.first + at as u64, change.clone())).collect())
    }
}

/// Whether a change belongs to a stream: of its collection, or with the collection `$cmd.aggregate` of its whole database, or behind
/// `admin` of the whole deployment.
fn is_in(change: &[u8], stream: &[u8]) -> bool {
    match stream.strip_suffix(b"$cmd.aggregate") {
        Some(b"admin.") => true,
        Some(database) => change.starts_with(database),
        None => change == stream,
    }
}

impl Change {
    /// Writes the event of the change under this name.
    pub fn write(&self, body: &mut Writer<'_>, name: &str, position: u64, cluster_time: &[u8]) {
        let (database, collection) = split(&self.namespace);
        body.document(name, |event| {
            write_token(event, "_id", position);
            event.string("operationType", self.operation);
            event.value("clusterTime", Value { kind: Kind::Timestamp, bytes: cluster_time });
            event.document("ns", |ns| {
                ns.string("db", database);
                ns.string("coll", collection);
            });
            event.document("documentKey", |key| self.write_id(key));
            let document = self.document.as_deref().and_then(|bytes| Document::read(bytes).ok());
            match document {
                Some(document) => event.embed("fullDocument", document),
                None if self.operation == "insert" => {
                    event.document("fullDocument", |document| self.write_id(document))
                }
                None => {}
            }
        });
    }

    fn write_id(&self, body: &mut Writer<'_>) {
        if let Some((kind, bytes)) = &self.id {
            body.value("_id", Value { kind: *kind, bytes });
        }
    }
}

/// Writes the token from which a stream resumes behind the change of this position.
pub(super) fn write_token(body: &mut Writer<'_>, name: &str, position: u64) {
    body.document(name, |token| token.string("_data", format!("{position:016x}")));
}

/// The position of a token; `None`: it is none of this server.
pub(super) fn read_token(token: Value<'_>) -> Option<u64> {
    let data = token.as_document().ok()??.get(b"_data").ok()??.as_string()?;
    u64::from_str_radix(std::str::from_utf8(data).ok()?, 16).ok()
}

fn split(namespace: &[u8]) -> (&[u8], &[u8]) {
    let dot = namespace.iter().position(|byte| *byte == b'.').unwrap_or(namespace.len());
    (&namespace[..dot], namespace.get(dot + 1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_sees_its_own_changes_from_its_position_on() {
        let mut changes = Changes::default();
        for namespace in ["a.x", "a.y", "b.x", "a.x"] {
            changes.note(Change { operation: "insert", namespace: namespace.into(), id: None, document: None });
        }
        let seen = |position, stream: &str| -> Option<Vec<u64>> {
            Some(changes.since(position, stream.as_bytes(), 10)?.into_iter().map(|(at, _)| at).collect())
        };
        assert_eq!(seen(0, "a.x"), Some(vec![0, 3]));
        assert_eq!(seen(1, "a.$cmd.aggregate"), Some(vec![1, 3]));
        assert_eq!(seen(0, "admin.$cmd.aggregate"), Some(vec![0, 1, 2, 3]));
        assert_eq!((seen(4, "a.x"), changes.end()), (Some(Vec::new()), 4));
        for _ in 0..CHANGES_MAX {
            changes.note(Change { operation: "delete", namespace: b"a.x".to_vec(), id: None, document: None });
        }
        assert!(changes.since(3, b"a.x", 1).is_none());
    }
}
