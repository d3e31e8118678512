//! Stages and operators that do more than compute: each key with `$` that a policy must know of.

use weir_mongodb_codec::bson::{Document, Value};

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    /// Writes its result to a collection: `$out`, `$merge`.
    Writes,
    /// Reads another collection: `$lookup`, `$graphLookup`, `$unionWith`.
    Reads,
    /// Runs JavaScript: `$where`, `$function`, `$accumulator`.
    JavaScript,
    /// Shows operations or sessions, also those of others.
    Watches,
    /// Streams changes: of a collection, or of all in a database or cluster.
    Streams,
}

impl Operator {
    /// The operator of a key, or nothing.
    pub(super) fn of(key: &[u8]) -> Option<Self> {
        if key.first() != Some(&b'$') {
            return None;
        }
        match key {
            b"$out" | b"$merge" => Some(Self::Writes),
            b"$lookup" | b"$graphLookup" | b"$unionWith" => Some(Self::Reads),
            b"$where" | b"$function" | b"$accumulator" => Some(Self::JavaScript),
            b"$changeStream" => Some(Self::Streams),
            b"$currentOp" | b"$listLocalSessions" | b"$listSessions" => Some(Self::Watches),
            _ => None,
        }
    }
}

/// The collection that a stage names: database, if it names one, and name. A stage without a name, such as a `$lookup` of documents,
/// has none.
pub(super) fn collection(stage: Value<'_>) -> Option<(Option<&[u8]>, &[u8])> {
    if let Some(name) = stage.as_string() {
        return Some((None, name));
    }
    let document = stage.as_document().ok()??;
    if let Some(found) = db_and_collection(document) {
        return Some(found);
    }
    let field = |name: &[u8]| document.get(name).ok().flatten();
    let named = field(b"from").or_else(|| field(b"into")).or_else(|| field(b"coll"))?;
    if let Some(name) = named.as_string() {
        return Some((None, name));
    }
    db_and_collection(named.as_document().ok()??)
}

/// `{db: .., coll: ..}`.
fn db_and_collection(document: Document<'_>) -> Option<(Option<&[u8]>, &[u8])> {
    let text = |name: &[u8]| document.get(name).ok().flatten().and_then(Value::as_string);
    Some((Some(text(b"db")?), text(b"coll")?))
}
