//! Stored documents in batches.

use std::collections::VecDeque;

use weir_mongodb_codec::bson::{Document, Writer};
use weir_mongodb_codec::limits::STORED_DOCUMENT_BYTES_MAX;

use super::batches::{ELEMENT_BYTES, FIRST_BATCH, batch_size};
use super::cursors::{Content, Cursor};
use super::dispatch::{Context, Fate};
use super::failure::Failure;
use super::matching::matches;
use super::request::Options;
use super::store::Stored;

/// Writes the first batch, and opens a cursor for the others, or for those of `tail` that come later.
pub(super) fn first(
    at: &mut Context<'_>,
    mut documents: VecDeque<Stored>,
    tail: Option<Content>,
    options: &Options<'_>,
    body: &mut Writer<'_>,
) -> Result<Fate, Failure> {
    let namespace = at.request.namespace()?;
    let size = batch_size(options.batch_size)?.unwrap_or(FIRST_BATCH);
    // A tail has no batches before its own: tests have few documents there.
    let batch = split(&mut documents, if tail.is_some() { u64::MAX } else { size });
    let is_tailable = tail.is_some();
    let content = match tail {
        Some(tail) => Some(tail),
        None if documents.is_empty() || options.is_single_batch => None,
        None => Some(Content::Stored(documents)),
    };
    let mut id = 0;
    if let Some(content) = content {
        let mut cursor = Cursor::new(content, namespace.clone(), at.request, at.connection());
        cursor.is_tailable = is_tailable;
        id = at.core.state.cursors().open(cursor, at.now)?;
    }
    write(&batch, "firstBatch", id, &namespace, body)?;
    Ok(Fate::Done)
}

/// The next batch. Whether the cursor stays open.
pub(super) fn more(
    at: &Context<'_>,
    id: i64,
    size: Option<u64>,
    mut cursor: Cursor,
    mut documents: VecDeque<Stored>,
    body: &mut Writer<'_>,
) -> Result<bool, Failure> {
    let batch = split(&mut documents, size.unwrap_or(u64::MAX));
    let (namespace, is_open) = (cursor.namespace.clone(), !documents.is_empty());
    if is_open {
        cursor.content = Content::Stored(documents);
        at.core.state.cursors().put(id, cursor, at.now);
    }
    write(&batch, "nextBatch", if is_open { id } else { 0 }, &namespace, body)?;
    Ok(is_open)
}

/// The documents that came to the end of a tailable cursor; `None`: there are none yet.
pub(super) fn more_of_tail(
    at: &Context<'_>,
    id: i64,
    mut cursor: Cursor,
    next: u64,
    filter: Option<Vec<u8>>,
    body: &mut Writer<'_>,
) -> Result<Option<bool>, Failure> {
    let (new, end) = at.core.state.store().since(&cursor.namespace, next);
    let mut batch = Vec::new();
    for document in new {
        let fits = match &filter {
            Some(filter) => matches(Document::read(filter)?, Document::read(&document)?)?,
            None => true,
        };
        if fits {
            batch.push(document);
        }
    }
    let namespace = cursor.namespace.clone();
    cursor.content = Content::Tail { next: end, filter };
    at.core.state.cursors().put(id, cursor, at.now);
    if batch.is_empty() && !at.is_late() {
        return Ok(None);
    }
    write(&batch, "nextBatch", id, &namespace, body)?;
    Ok(Some(true))
}

/// The first documents, at most `size` and within the bytes of a stored document, at least one.
fn split(documents: &mut VecDeque<Stored>, size: u64) -> Vec<Stored> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while (batch.len() as u64) < size
        && let Some(document) = documents.pop_front()
    {
        bytes += document.len() + ELEMENT_BYTES;
        if bytes > STORED_DOCUMENT_BYTES_MAX && !batch.is_empty() {
            documents.push_front(document);
            break;
        }
        batch.push(document);
    }
    batch
}

fn write(batch: &[Stored], name: &str, id: i64, namespace: &[u8], body: &mut Writer<'_>) -> Result<(), Failure> {
    let documents = batch.iter().map(|document| Document::read(document)).collect::<Result<Vec<_>, _>>()?;
    body.document("cursor", |cursor| {
        cursor.array(name, documents, |array, name, document| array.embed(name, document));
        cursor.int64("id", id);
        cursor.string("ns", namespace);
    });
    Ok(())
}
