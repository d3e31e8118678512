//! Writes of stored documents.

use std::sync::atomic::Ordering;

use weir_mongodb_codec::bson::{self, Document, Kind, Value, Writer};

use super::changes::Change;
use super::dispatch::{Context, Fate};
use super::failure::Failure;
use super::modifying::modified;
use super::request::wrong_type;
use super::state::unix_millis;
use super::store::{Stored, Write, key_of};
use super::stored::{fitting, part, sorted};
use super::write::{argument, batch, has};

/// Code of a document whose `_id` is there.
const DUPLICATE_KEY: i32 = 11_000;

/// `insert`.
pub(super) fn insert(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let documents = batch(at, "documents")?;
    let is_ordered = at.request.get(b"ordered")?.is_none_or(Value::is_true);
    let namespace = at.request.namespace()?;
    let (mut inserted, mut failed) = (0, Vec::new());
    for (index, document) in documents.iter().enumerate() {
        if at.is_repeated {
            inserted += 1;
            continue;
        }
        let document = with_id(at, *document)?;
        let key = key_of(Document::read(&document)?.get(b"_id")?.ok_or_else(|| wrong_type("_id"))?);
        let is_there = at.core.state.store().get(&namespace, &key, part(at)).is_some();
        if is_there {
            failed.push((index as i32, document));
            if is_ordered {
                break;
            }
            continue;
        }
        write(at, "insert", Write { namespace: namespace.clone(), key, document: Some(document) })?;
        inserted += 1;
    }
    if !at.is_repeated {
        at.core.state.inserted.fetch_add(inserted, Ordering::Relaxed);
    }
    body.int32("n", inserted as i32);
    if !failed.is_empty() {
        write_duplicates(&namespace, &failed, body)?;
    }
    Ok(Fate::Done)
}

fn write_duplicates(namespace: &[u8], failed: &[(i32, Stored)], body: &mut Writer<'_>) -> Result<(), Failure> {
    let mut ids = Vec::with_capacity(failed.len());
    for (index, document) in failed {
        ids.push((*index, Document::read(document)?.get(b"_id")?.ok_or_else(|| wrong_type("_id"))?));
    }
    let namespace = String::from_utf8_lossy(namespace);
    body.array("writeErrors", ids, |body, name, (index, id)| {
        body.document(name, |error| {
            error.int32("index", index);
            error.int32("code", DUPLICATE_KEY);
            error.document("keyPattern", |pattern| pattern.int32("_id", 1));
            error.document("keyValue", |value| value.value("_id", id));
            error.string("errmsg", format!("E11000 duplicate key error collection: {namespace} index: _id_"));
        });
    });
    Ok(())
}

/// `update`.
pub(super) fn update(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let updates = batch(at, "updates")?;
    let (mut matched, mut changed, mut upserted) = (0, 0, Vec::new());
    for (index, one) in updates.iter().enumerate() {
        let filter = argument(*one, b"q")?.ok_or_else(|| wrong_type("update.updates.q"))?;
        let update = one.get(b"u")?.ok_or_else(|| wrong_type("update.updates.u"))?;
        let mut found = fitting(at, Some(filter))?;
        if !has(*one, b"multi")? {
            found.truncate(1);
        }
        matched += found.len();
        if at.is_repeated {
            changed += found.len();
            continue;
        }
        if found.is_empty() && has(*one, b"upsert")? {
            upserted.push((index as i32, upsert(at, filter, update)?));
        }
        for (key, document) in found {
            let new = modified(Document::read(&document)?, update, false)?;
            if *new != *document {
                changed += 1;
                let namespace = at.request.namespace()?;
                write(at, "update", Write { namespace, key, document: Some(new.into()) })?;
            }
        }
    }
    body.int32("n", (matched + upserted.len()) as i32);
    if !upserted.is_empty() {
        let mut ids = Vec::with_capacity(upserted.len());
        for (index, document) in &upserted {
            ids.push((*index, Document::read(document)?.get(b"_id")?.ok_or_else(|| wrong_type("_id"))?));
        }
        body.array("upserted", ids, |body, name, (index, id)| {
            body.document(name, |one| {
                one.int32("index", index);
                one.value("_id", id);
            });
        });
    }
    body.int32("nModified", changed as i32);
    Ok(Fate::Done)
}

/// A new document with the fields that a filter wants to be equal.
fn upsert(at: &Context<'_>, filter: Document<'_>, update: Value<'_>) -> Result<Stored, Failure> {
    let mut fields = Vec::new();
    for condition in filter.elements() {
        let condition = condition?;
        if !condition.name.starts_with(b"$") && condition.value.kind != Kind::Document {
            fields.push((condition.name, condition.value));
        }
    }
    let mut base = Vec::new();
    bson::document(&mut base, |body| fields.iter().for_each(|(name, value)| body.value(name, *value)));
    let new = modified(Document::read(&base)?, update, true)?;
    let new = with_id(at, Document::read(&new)?)?;
    let key = key_of(Document::read(&new)?.get(b"_id")?.ok_or_else(|| wrong_type("_id"))?);
    let namespace = at.request.namespace()?;
    write(at, "insert", Write { namespace, key, document: Some(new.clone()) })?;
    Ok(new)
}

/// `delete`.
pub(super) fn delete(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let deletes = batch(at, "deletes")?;
    let mut deleted = 0;
    for one in &deletes {
        let filter = argument(*one, b"q")?.ok_or_else(|| wrong_type("delete.deletes.q"))?;
        let mut found = fitting(at, Some(filter))?;
        if one.get(b"limit")?.and_then(Value::as_integer) == Some(1) {
            found.truncate(1);
        }
        for (key, _) in found {
            deleted += 1;
            if !at.is_repeated {
                write(at, "delete", Write { namespace: at.request.namespace()?, key, document: None })?;
            }
        }
    }
    body.int32("n", deleted);
    Ok(Fate::Done)
}

/// `findAndModify`.
pub(super) fn find_and_modify(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let options = at.request.options()?;
    let filter = at.request.document(b"query")?;
    let found = fitting(at, filter)?;
    let documents = sorted(found.iter().map(|(_, document)| document.clone()).collect(), options.sort)?;
    let before = documents.first().cloned();
    let key = found.into_iter().find(|(_, document)| Some(document) == before.as_ref()).map(|(key, _)| key);
    let mut after = None;
    let mut is_upserted = false;
    if at.request.has(b"remove")? {
        if let Some(key) = key.filter(|_| !at.is_repeated) {
            write(at, "delete", Write { namespace: at.request.namespace()?, key, document: None })?;
        }
    } else {
        let update = at.request.get(b"update")?.ok_or_else(|| wrong_type("findAndModify.update"))?;
        if let (Some(before), Some(key)) = (&before, key) {
            let new: Stored = modified(Document::read(before)?, update, false)?.into();
            after = Some(new.clone());
            if !at.is_repeated {
                write(at, "update", Write { namespace: at.request.namespace()?, key, document: Some(new) })?;
            }
        } else if let Some(filter) = filter
            && at.request.has(b"upsert")?
        {
            after = Some(upsert(at, filter, update)?);
            is_upserted = true;
        }
    }
    body.document("lastErrorObject", |error| {
        error.int32("n", i32::from(before.is_some() || is_upserted));
        error.bool("updatedExisting", before.is_some() && after.is_some());
    });
    let shown = if at.request.has(b"new")? { after } else { before };
    match &shown {
        Some(document) => body.embed("value", Document::read(document)?),
        None => body.value("value", Value { kind: Kind::Null, bytes: &[] }),
    }
    Ok(Fate::Done)
}

/// The end of the transaction of a command.
pub(super) fn end(at: &Context<'_>, is_committed: bool) {
    let Some(part) = part(at) else { return };
    let writes = at.core.state.store().end(part, is_committed);
    for write in &writes {
        let operation = if write.document.is_some() { "insert" } else { "delete" };
        note(at, operation, write);
    }
}

fn write(at: &Context<'_>, operation: &'static str, write: Write) -> Result<(), Failure> {
    let part = part(at);
    at.core.state.store().write(write.clone(), part)?;
    if part.is_none() {
        note(at, operation, &write);
    }
    Ok(())
}

/// Counts a write, and shows it to change streams.
fn note(at: &Context<'_>, operation: &'static str, write: &Write) {
    let state = &at.core.state;
    state.writes.fetch_add(1, Ordering::Relaxed);
    if state.watchers.load(Ordering::Acquire) > 0 {
        let id = write.key.split_first().and_then(|(kind, bytes)| Some((Kind::of(*kind)?, bytes.to_vec())));
        let document = write.document.clone();
        state.changes().note(Change { operation, namespace: write.namespace.clone(), id, document });
    }
}

/// The document, with an ObjectId in front if it has no `_id`.
fn with_id(at: &Context<'_>, document: Document<'_>) -> Result<Stored, Failure> {
    if document.get(b"_id")?.is_some() {
        return Ok(document.bytes().into());
    }
    let state = &at.core.state;
    let mut id = state.process;
    id[..4].copy_from_slice(&((unix_millis() / 1000) as u32).to_be_bytes());
    let number = state.ids.fetch_add(1, Ordering::Relaxed) as u32;
    id[8..].copy_from_slice(&number.to_be_bytes());
    let mut out = Vec::with_capacity(document.bytes().len() + 17);
    bson::document(&mut out, |body| {
        body.object_id("_id", id);
        // An element that is broken was found above.
        document.elements().flatten().for_each(|element| body.value(element.name, element.value));
    });
    Ok(out.into())
}
