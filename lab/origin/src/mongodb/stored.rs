//! Reads of stored documents, and the commands about their collections.

use std::collections::VecDeque;

use weir_mongodb_codec::bson::{Document, Kind, Value, Writer};

use super::batches::{self, count_of};
use super::cursors::Content;
use super::dispatch::{Context, Fate};
use super::failure::{Failure, code};
use super::matching::{at_path, compare, matches};
use super::request::{Options, wrong_type};
use super::store::{Key, Part, Store, Stored, key_of};
use super::stored_batches;

/// `find`.
pub(super) fn find(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let options = at.request.options()?;
    let namespace = at.request.namespace()?;
    let (found, end) = {
        // Under one lock, so that a tail has each document once.
        let store = at.core.state.store();
        (selected(at, &store, &options)?, store.since(&namespace, u64::MAX).1)
    };
    let tail = options.is_tailable.then(|| {
        let filter = options.filter.map(|filter| filter.bytes().to_vec());
        Content::Tail { next: if end == u64::MAX { 0 } else { end }, filter }
    });
    stored_batches::first(at, found, tail, &options, body)
}

/// Documents that fit a filter, with their keys.
pub(super) fn fitting(at: &Context<'_>, filter: Option<Document<'_>>) -> Result<Vec<(Key, Stored)>, Failure> {
    fitting_in(at, &at.core.state.store(), filter)
}

fn fitting_in(at: &Context<'_>, store: &Store, filter: Option<Document<'_>>) -> Result<Vec<(Key, Stored)>, Failure> {
    let namespace = at.request.namespace()?;
    let id = filter.map(|filter| filter.get(b"_id")).transpose()?.flatten();
    let all = match id.filter(|id| id.kind != Kind::Document) {
        Some(id) => {
            let key = key_of(id);
            let found = store.get(&namespace, &key, part(at));
            found.into_iter().map(|document| (key.clone(), document)).collect()
        }
        None => store.all(&namespace, part(at)),
    };
    let Some(filter) = filter else { return Ok(all) };
    let mut fitting = Vec::new();
    for (key, document) in all {
        if matches(filter, Document::read(&document)?)? {
            fitting.push((key, document));
        }
    }
    Ok(fitting)
}

fn selected(at: &Context<'_>, store: &Store, options: &Options<'_>) -> Result<VecDeque<Stored>, Failure> {
    let found = fitting_in(at, store, options.filter)?.into_iter().map(|(_, document)| document).collect();
    let mut found = sorted(found, options.sort)?;
    found.drain(..found.len().min(options.skip.unwrap_or_default().unsigned_abs() as usize));
    if let Some(limit) = options.limit.filter(|limit| *limit != 0) {
        found.truncate(limit.unsigned_abs() as usize);
    }
    Ok(found.into())
}

/// In the order of the first field of a sort.
pub(super) fn sorted(mut documents: Vec<Stored>, sort: Option<Document<'_>>) -> Result<Vec<Stored>, Failure> {
    let Some(first) = sort.map(Document::first_element).transpose()?.flatten() else { return Ok(documents) };
    let is_falling = first.value.as_integer().is_some_and(|order| order < 0);
    documents.sort_by(|one, other| {
        let value = |document| Document::read(document).ok().and_then(|document| at_path(document, first.name).ok()?);
        let order = match (value(one), value(other)) {
            (Some(one), Some(other)) => compare(one, other).unwrap_or(std::cmp::Ordering::Equal),
            (one, other) => one.is_some().cmp(&other.is_some()),
        };
        if is_falling { order.reverse() } else { order }
    });
    Ok(documents)
}

/// `aggregate`, behind the stages that read the whole collection: the others select, sort and count.
pub(super) fn aggregate(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let pipeline = at.request.command.pipeline.ok_or_else(|| wrong_type("aggregate.pipeline"))?;
    let options = at.request.options()?;
    let first = pipeline.first_element()?.map(|stage| stage.value.as_document()).transpose()?.flatten();
    let first = first.map(Document::first_element).transpose()?.flatten();
    if first.is_some_and(|first| first.name == b"$changeStream") || at.request.command.collection().is_none() {
        return super::read::aggregate(at, body);
    }
    let mut found: Vec<Stored> = fitting(at, None)?.into_iter().map(|(_, document)| document).collect();
    for stage in pipeline.elements() {
        let stage = stage?.value.as_document()?.ok_or_else(|| wrong_type("aggregate.pipeline"))?;
        let Some(operator) = stage.first_element()? else { return Err(wrong_type("aggregate.pipeline")) };
        let value = operator.value;
        match operator.name {
            b"$match" => {
                let filter = value.as_document()?.ok_or_else(|| wrong_type("$match"))?;
                let mut fits = Vec::with_capacity(found.len());
                for document in found {
                    if matches(filter, Document::read(&document)?)? {
                        fits.push(document);
                    }
                }
                found = fits;
            }
            b"$sort" => found = sorted(found, value.as_document()?)?,
            b"$skip" => drop(found.drain(..found.len().min(count_of(value)? as usize))),
            b"$limit" => found.truncate(count_of(value)? as usize),
            b"$count" | b"$group" => {
                let name = value.as_string().unwrap_or(b"n").to_vec();
                let count = found.len() as i32;
                let document = |document: &mut Writer<'_>| {
                    document.int32("_id", 1);
                    document.int32(name, count);
                };
                return batches::only(at, document, body);
            }
            b"$project" => {}
            name => {
                let text = format!("weir origin: no stage {} of stored documents", String::from_utf8_lossy(name));
                return Err(Failure::new(code::BAD_VALUE, text));
            }
        }
    }
    stored_batches::first(at, found.into(), None, &options, body)
}

/// `count`.
pub(super) fn count(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let options = at.request.options()?;
    body.int32("n", selected(at, &at.core.state.store(), &options)?.len() as i32);
    Ok(Fate::Done)
}

/// `distinct`.
pub(super) fn distinct(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let options = at.request.options()?;
    let key = at.request.get(b"key")?.and_then(Value::as_string).ok_or_else(|| wrong_type("distinct.key"))?;
    let found = selected(at, &at.core.state.store(), &options)?;
    let mut values: Vec<Value<'_>> = Vec::new();
    for document in &found {
        let value = at_path(Document::read(document)?, key)?;
        values.extend(value.filter(|value| !values.contains(value)));
    }
    body.array("values", values, |body, name, value| body.value(name, value));
    Ok(Fate::Done)
}

/// `drop` and `dropDatabase`.
pub(super) fn drop_collections(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let database = [at.request.command.db, b"."].concat();
    if at.request.command.name == b"dropDatabase" {
        at.core.state.store().remove(|namespace| namespace.starts_with(&database));
    } else {
        let wanted = at.request.namespace()?;
        at.core.state.store().remove(|namespace| namespace == wanted);
        body.string("ns", &wanted);
    }
    Ok(Fate::Done)
}

/// `create`.
pub(super) fn create(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    at.core.state.store().create(&at.request.namespace()?);
    super::administration::create(at, body)
}

/// `listCollections`.
pub(super) fn list_collections(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let database = [at.request.command.db, b"."].concat();
    let all = at.core.state.store().namespaces();
    let names: Vec<&[u8]> = all.iter().filter_map(|namespace| namespace.strip_prefix(&database[..])).collect();
    body.document("cursor", |cursor| {
        cursor.array("firstBatch", names, |array, name, collection| {
            array.document(name, |one| {
                one.string("name", collection);
                one.string("type", "collection");
                one.document("options", |_| {});
                one.document("info", |info| info.bool("readOnly", false));
            });
        });
        cursor.int64("id", 0);
        cursor.string("ns", [&database[..], b"$cmd.listCollections"].concat());
    });
    Ok(Fate::Done)
}

/// The transaction of the command; `None`: it is in none.
pub(super) fn part(at: &Context<'_>) -> Option<Part> {
    let command = &at.request.command;
    let (session, number) = command.session.zip(command.txn_number)?;
    command.is_in_transaction.then_some(Part { session: *session, number })
}
