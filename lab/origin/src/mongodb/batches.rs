//! Results in batches, and the commands about cursors.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_base::Time;
use weir_mongodb_codec::bson::{Document, Kind, Value, Writer};
use weir_mongodb_codec::limits::STORED_DOCUMENT_BYTES_MAX;
use weir_mongodb_codec::message::Flags;

use super::changes::{Change, write_token};
use super::cursors::{Content, Cursor};
use super::dispatch::{Context, Fate};
use super::documents::Form;
use super::failure::{Failure, code};
use super::request::{Options, wrong_type};
use super::selection::Selection;
use super::stored_batches;

/// Documents of a first batch whose size the client does not say.
pub(super) const FIRST_BATCH: u64 = 101;

/// Changes of a batch.
const CHANGES_OF_BATCH: usize = 1_000;

/// Bytes of a document in an array, beside its own: its type and its name, at most seven digits.
pub(super) const ELEMENT_BYTES: usize = 9;

/// How long getMore waits at the end of a tailable cursor, where the client does not say.
const AWAIT: Duration = Duration::from_secs(1);

/// Code of a stream whose position is no longer kept: ChangeStreamHistoryLost.
const HISTORY_LOST: i32 = 286;

/// Writes the first batch of documents, and opens a cursor for the others.
pub(super) fn first(
    at: &mut Context<'_>,
    mut selection: Selection,
    options: &Options<'_>,
    body: &mut Writer<'_>,
) -> Result<Fate, Failure> {
    let namespace = at.request.namespace()?;
    let size = batch_size(options.batch_size)?.unwrap_or(FIRST_BATCH);
    let form = Form { bytes: at.core.settings.document_bytes, namespace: &namespace, mark: options.mark };
    let batch = selection.split(size.min(fitting(&form)));
    let mut id = 0;
    if !options.is_single_batch && (selection.left() > 0 || options.is_tailable) {
        let content = Content::Documents(selection);
        let mut cursor = Cursor::new(content, namespace.clone(), at.request, at.connection());
        cursor.is_tailable = options.is_tailable;
        id = at.core.state.cursors().open(cursor, at.now)?;
    }
    write_batch(at, "firstBatch", batch, id, &form, body);
    Ok(Fate::Done)
}

/// Writes the first batch of a change stream, which is empty, and opens its cursor.
pub(super) fn watch(
    at: &mut Context<'_>,
    namespace: Vec<u8>,
    position: u64,
    body: &mut Writer<'_>,
) -> Result<Fate, Failure> {
    let content = Content::Changes { next: position };
    let mut cursor = Cursor::new(content, namespace.clone(), at.request, at.connection());
    cursor.is_tailable = true;
    let id = at.core.state.cursors().open(cursor, at.now)?;
    at.core.state.watchers.fetch_add(1, Ordering::AcqRel);
    write_changes(at, "firstBatch", &[], id, &namespace, position, body);
    Ok(Fate::Done)
}

/// `getMore`.
pub(super) fn get_more(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let request = at.request;
    let id = request.command.cursor().ok_or_else(|| wrong_type("getMore.getMore"))?;
    let size = batch_size(request.get(b"batchSize")?.and_then(Value::as_integer))?.filter(|size| *size > 0);
    let cursor = at.core.state.cursors().take(id, request, at.connection(), at.now)?;
    let is_open = match cursor.content.clone() {
        Content::Documents(selection) if selection.left() == 0 && cursor.is_tailable && !at.is_late() => {
            at.core.state.cursors().put(id, cursor, at.now);
            return Ok(wait(at));
        }
        Content::Documents(selection) => more_documents(at, id, size, cursor, selection, body),
        Content::Changes { next } => match more_changes(at, id, size, cursor, next, body)? {
            Some(is_open) => is_open,
            None => return Ok(wait(at)),
        },
        Content::Stored(documents) => stored_batches::more(at, id, size, cursor, documents, body)?,
        Content::Tail { next, filter } => match stored_batches::more_of_tail(at, id, cursor, next, filter, body)? {
            Some(is_open) => is_open,
            None => return Ok(wait(at)),
        },
    };
    // Only a stream of replies that has an end may begin.
    let is_stream = is_open && request.flags.contains(Flags::EXHAUST_ALLOWED);
    Ok(if is_stream { Fate::More } else { Fate::Done })
}

/// Whether the cursor stays open.
fn more_documents(
    at: &Context<'_>,
    id: i64,
    size: Option<u64>,
    mut cursor: Cursor,
    mut selection: Selection,
    body: &mut Writer<'_>,
) -> bool {
    let namespace = cursor.namespace.clone();
    let owned = cursor.mark().map(|mark| (mark.kind, mark.bytes.to_vec()));
    let mark = owned.as_ref().map(|(kind, bytes)| Value { kind: *kind, bytes });
    let form = Form { bytes: at.core.settings.document_bytes, namespace: &namespace, mark };
    let fitting = fitting(&form);
    let batch = selection.split(size.unwrap_or(fitting).min(fitting));
    let is_open = selection.left() > 0 || cursor.is_tailable;
    if is_open {
        cursor.content = Content::Documents(selection);
        at.core.state.cursors().put(id, cursor, at.now);
    }
    write_batch(at, "nextBatch", batch, if is_open { id } else { 0 }, &form, body);
    is_open
}

/// Whether the cursor stays open; `None`: there is nothing yet.
fn more_changes(
    at: &Context<'_>,
    id: i64,
    size: Option<u64>,
    mut cursor: Cursor,
    next: u64,
    body: &mut Writer<'_>,
) -> Result<Option<bool>, Failure> {
    let count = size.map_or(CHANGES_OF_BATCH, |size| CHANGES_OF_BATCH.min(size as usize));
    let (found, end) = {
        let changes = at.core.state.changes();
        (changes.since(next, &cursor.namespace, count), changes.end())
    };
    let Some(found) = found else {
        at.core.state.watchers.fetch_sub(1, Ordering::AcqRel);
        return Err(Failure::new(HISTORY_LOST, "weir origin: the changes behind this position are no longer kept"));
    };
    if found.is_empty() && !at.is_late() {
        at.core.state.cursors().put(id, cursor, at.now);
        return Ok(None);
    }
    // Changes of other collections are passed over as well, unless the batch is full.
    let position = if found.len() < count { end } else { found.last().map_or(end, |(last, _)| last + 1) };
    let namespace = cursor.namespace.clone();
    cursor.content = Content::Changes { next: position };
    at.core.state.cursors().put(id, cursor, at.now);
    write_changes(at, "nextBatch", &found, id, &namespace, position, body);
    Ok(Some(true))
}

/// Until `maxTimeMS` from the beginning on.
fn wait(at: &Context<'_>) -> Fate {
    let most = at.request.command.max_time_ms.and_then(|time| u64::try_from(time).ok()).map(Duration::from_millis);
    let until: Time = at.until.unwrap_or_else(|| at.now.saturating_add(most.unwrap_or(AWAIT)));
    Fate::Wait(until)
}

/// `killCursors`.
pub(super) fn kill_cursors(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let ids = at.request.command.cursors.ok_or_else(|| wrong_type("killCursors.cursors"))?;
    let (mut killed, mut unknown) = (Vec::new(), Vec::new());
    for element in ids.elements() {
        let id = element?.value.as_integer().ok_or_else(|| wrong_type("killCursors.cursors"))?;
        match at.core.state.cursors().kill(id, at.connection()) {
            Some(cursor) => {
                let is_watcher = matches!(cursor.content, Content::Changes { .. });
                at.core.state.watchers.fetch_sub(u64::from(is_watcher), Ordering::AcqRel);
                killed.push(id);
            }
            None => unknown.push(id),
        }
    }
    body.array("cursorsKilled", killed, |body, name, id| body.int64(name, id));
    body.array("cursorsNotFound", unknown, |body, name, id| body.int64(name, id));
    for name in ["cursorsAlive", "cursorsUnknown"] {
        body.array(name, [0; 0], |body, name, id| body.int64(name, id));
    }
    Ok(Fate::Done)
}

/// Documents of a batch that stay within the bytes of a stored document, at least one.
fn fitting(form: &Form<'_>) -> u64 {
    (STORED_DOCUMENT_BYTES_MAX / (form.document_bytes() + ELEMENT_BYTES)).max(1) as u64
}

/// `batchSize` of a command.
pub(super) fn batch_size(size: Option<i64>) -> Result<Option<u64>, Failure> {
    let size = size.map(u64::try_from).transpose();
    size.map_err(|_| Failure::new(code::BAD_VALUE, "BSON field 'batchSize' value must be >= 0"))
}

fn write_batch(at: &Context<'_>, name: &str, batch: Selection, id: i64, form: &Form<'_>, body: &mut Writer<'_>) {
    let mut scratch = at.core.scratch.borrow_mut();
    body.document("cursor", |cursor| {
        cursor.array(name, batch, |array, name, number| form.write(array, name, number, &mut scratch));
        cursor.int64("id", id);
        cursor.string("ns", form.namespace);
    });
}

fn write_changes(
    at: &Context<'_>,
    name: &str,
    batch: &[(u64, Change)],
    id: i64,
    namespace: &[u8],
    position: u64,
    body: &mut Writer<'_>,
) {
    let time = at.core.state.cluster_time();
    body.document("cursor", |cursor| {
        // The token of a change names the position behind it, from which a stream goes on.
        cursor.array(name, batch, |array, name, (position, change)| change.write(array, name, position + 1, &time));
        write_token(cursor, "postBatchResumeToken", position);
        cursor.int64("id", id);
        cursor.string("ns", namespace);
    });
}

/// A result of one document that is no document of a collection.
pub(super) fn only(
    at: &Context<'_>,
    document: impl FnOnce(&mut Writer<'_>),
    body: &mut Writer<'_>,
) -> Result<Fate, Failure> {
    let namespace = at.request.namespace().unwrap_or_else(|_| [at.request.command.db, b".$cmd.aggregate"].concat());
    let mut document = Some(document);
    body.document("cursor", |cursor| {
        cursor.array("firstBatch", [()], |array, name, ()| array.document(name, document.take().expect("one")));
        cursor.int64("id", 0);
        cursor.string("ns", &namespace);
    });
    Ok(Fate::Done)
}

/// The number of an option such as `{$limit: 5}`.
pub(super) fn count_of(value: Value<'_>) -> Result<u64, Failure> {
    let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| Failure::new(code::BAD_VALUE, "a number that is not negative is needed"))
}

/// Whether a sort is from the last number down.
pub(super) fn is_falling(sort: Option<Document<'_>>) -> bool {
    let first = sort.and_then(|sort| sort.first_element().ok().flatten());
    first.is_some_and(|element| {
        element.name == b"_id" && element.value.kind != Kind::Document && element.value.as_integer() == Some(-1)
    })
}
