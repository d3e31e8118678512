//! Inserts, updates and deletes: confirmed, and forgotten. Change streams see them.

use std::sync::atomic::Ordering;

use weir_mongodb_codec::bson::{Document, Kind, Value, Writer};
use weir_mongodb_codec::limits::WRITE_BATCH_MAX;

use super::changes::Change;
use super::dispatch::{Context, Fate};
use super::documents::Form;
use super::failure::{Failure, code};
use super::request::wrong_type;
use super::selection::Selection;

/// `insert`.
pub(super) fn insert(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let documents = batch(at, "documents")?;
    if !at.is_repeated {
        at.core.state.inserted.fetch_add(documents.len() as u64, Ordering::Relaxed);
        note(at, "insert", &documents)?;
    }
    body.int32("n", documents.len() as i32);
    Ok(Fate::Done)
}

/// `update`.
pub(super) fn update(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let updates = batch(at, "updates")?;
    let (mut matched, mut upserted) = (0, Vec::new());
    for (index, update) in updates.iter().enumerate() {
        let filter = argument(*update, b"q")?.ok_or_else(|| wrong_type("update.updates.q"))?;
        let found = found(at, filter, has(*update, b"multi")?)?;
        matched += found;
        if found == 0 && has(*update, b"upsert")? {
            upserted.push((index as i32, id_of(filter)?));
        }
    }
    if !at.is_repeated {
        let filters: Vec<_> = updates.iter().filter_map(|update| argument(*update, b"q").ok().flatten()).collect();
        note(at, "update", &filters)?;
    }
    body.int32("n", (matched + upserted.len() as u64) as i32);
    if !upserted.is_empty() {
        body.array("upserted", upserted, |body, name, (index, (kind, bytes))| {
            body.document(name, |one| {
                one.int32("index", index);
                one.value("_id", Value { kind, bytes: &bytes });
            });
        });
    }
    body.int32("nModified", matched as i32);
    Ok(Fate::Done)
}

/// `delete`.
pub(super) fn delete(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let deletes = batch(at, "deletes")?;
    let mut deleted = 0;
    let mut filters = Vec::with_capacity(deletes.len());
    for delete in &deletes {
        let filter = argument(*delete, b"q")?.ok_or_else(|| wrong_type("delete.deletes.q"))?;
        let is_single = delete.get(b"limit")?.and_then(Value::as_integer) == Some(1);
        deleted += found(at, filter, !is_single)?;
        filters.push(filter);
    }
    if !at.is_repeated {
        note(at, "delete", &filters)?;
    }
    body.int32("n", deleted as i32);
    Ok(Fate::Done)
}

/// `findAndModify`: the document is the same before and behind the change.
pub(super) fn find_and_modify(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let options = at.request.options()?;
    let filter = at.request.document(b"query")?;
    let found = Selection::of(filter, at.core.settings.documents)?.next();
    if !at.is_repeated
        && let Some(filter) = filter.filter(|_| found.is_some())
    {
        let operation = if at.request.has(b"remove")? { "delete" } else { "update" };
        note(at, operation, &[filter])?;
    }
    body.document("lastErrorObject", |error| {
        error.int32("n", i32::from(found.is_some()));
        error.bool("updatedExisting", found.is_some());
    });
    let namespace = at.request.namespace()?;
    let form = Form { bytes: at.core.settings.document_bytes, namespace: &namespace, mark: options.mark };
    match found {
        Some(id) => form.write(body, "value", id, &mut at.core.scratch.borrow_mut()),
        None => body.value("value", Value { kind: Kind::Null, bytes: &[] }),
    }
    Ok(Fate::Done)
}

/// `bulkWrite`: writes of every kind in several collections.
pub(super) fn bulk_write(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let operations = batch(at, "ops")?;
    let namespaces = at.request.documents("nsInfo")?;
    let (mut inserted, mut matched, mut deleted) = (0, 0, 0);
    let mut results = Vec::with_capacity(operations.len());
    for operation in &operations {
        let first = operation.first_element()?.ok_or_else(|| wrong_type("bulkWrite.ops"))?;
        let number = first.value.as_integer().and_then(|number| usize::try_from(number).ok());
        if number.and_then(|number| namespaces.get(number)).is_none() {
            return Err(Failure::new(code::BAD_VALUE, "BulkWrite ops entry provided an invalid namespace index"));
        }
        let affected = match first.name {
            b"insert" => 1,
            _ => {
                let filter = argument(*operation, b"filter")?.ok_or_else(|| wrong_type("bulkWrite.ops.filter"))?;
                found(at, filter, has(*operation, b"multi")?)?
            }
        };
        match first.name {
            b"insert" => inserted += affected,
            b"update" => matched += affected,
            b"delete" => deleted += affected,
            _ => return Err(wrong_type("bulkWrite.ops")),
        }
        results.push((first.name == b"update", affected as i32));
    }
    if !at.is_repeated {
        at.core.state.inserted.fetch_add(inserted, Ordering::Relaxed);
        at.core.state.writes.fetch_add(operations.len() as u64, Ordering::Relaxed);
    }
    let shown = if at.request.has(b"errorsOnly")? { Vec::new() } else { results };
    body.document("cursor", |cursor| {
        cursor.int64("id", 0);
        let numbered = shown.into_iter().enumerate();
        cursor.array("firstBatch", numbered, |array, name, (index, (is_update, affected))| {
            array.document(name, |one| {
                one.double("ok", 1.0);
                one.int32("idx", index as i32);
                one.int32("n", affected);
                if is_update {
                    one.int32("nModified", affected);
                }
            });
        });
        cursor.string("ns", "admin.$cmd.bulkWrite");
    });
    for (name, count) in [
        ("nErrors", 0),
        ("nInserted", inserted),
        ("nMatched", matched),
        ("nModified", matched),
        ("nUpserted", 0),
        ("nDeleted", deleted),
    ] {
        body.int32(name, count as i32);
    }
    Ok(Fate::Done)
}

/// The documents of a batch.
pub(super) fn batch<'a>(at: &Context<'a>, name: &str) -> Result<Vec<Document<'a>>, Failure> {
    let documents = at.request.documents(name)?;
    if !(1..=WRITE_BATCH_MAX).contains(&documents.len()) {
        let text =
            format!("Write batch sizes must be between 1 and {WRITE_BATCH_MAX}. Got {} operations.", documents.len());
        return Err(Failure::new(code::INVALID_LENGTH, text));
    }
    Ok(documents)
}

/// The document of a statement with this name.
pub(super) fn argument<'a>(document: Document<'a>, name: &[u8]) -> Result<Option<Document<'a>>, Failure> {
    match document.get(name)? {
        Some(value) => Ok(value.as_document()?),
        None => Ok(None),
    }
}

/// Whether an option of a statement is true.
pub(super) fn has(document: Document<'_>, name: &[u8]) -> Result<bool, Failure> {
    Ok(document.get(name)?.is_some_and(Value::is_true))
}

/// Documents that a filter selects, at most one unless it is for all.
fn found(at: &Context<'_>, filter: Document<'_>, is_for_all: bool) -> Result<u64, Failure> {
    let left = Selection::of(Some(filter), at.core.settings.documents)?.left();
    Ok(if is_for_all { left } else { left.min(1) })
}

/// `_id` of a filter; another one of ours if it has none.
fn id_of(filter: Document<'_>) -> Result<(Kind, Vec<u8>), Failure> {
    let id = filter.get(b"_id")?.map(|value| (value.kind, value.bytes.to_vec()));
    Ok(id.unwrap_or_else(|| (Kind::Int64, i64::MAX.to_le_bytes().to_vec())))
}

/// Counts writes, and shows them to change streams.
fn note(at: &Context<'_>, operation: &'static str, documents: &[Document<'_>]) -> Result<(), Failure> {
    let state = &at.core.state;
    state.writes.fetch_add(documents.len() as u64, Ordering::Relaxed);
    if state.watchers.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let namespace = at.request.namespace()?;
    let mut changes = state.changes();
    for document in documents {
        let id = document.get(b"_id")?.map(|value| (value.kind, value.bytes.to_vec()));
        changes.note(Change { operation, namespace: namespace.clone(), id, document: None });
    }
    Ok(())
}
