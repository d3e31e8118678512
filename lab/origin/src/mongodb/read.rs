//! find, aggregate, count and distinct.

use weir_mongodb_codec::bson::{Kind, Value, Writer};

use super::batches::{self, count_of, is_falling};
use super::changes::read_token;
use super::dispatch::{Context, Fate};
use super::failure::{Failure, code};
use super::request::{Options, wrong_type};
use super::selection::Selection;

/// Values of `distinct`. 1,000: its reply is one document.
const DISTINCT_MAX: u64 = 1_000;

/// `find`.
pub(super) fn find(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let options = at.request.options()?;
    let selection = selected(at, &options)?;
    batches::first(at, selection, &options, body)
}

fn selected(at: &Context<'_>, options: &Options<'_>) -> Result<Selection, Failure> {
    let mut selection = Selection::of(options.filter, at.core.settings.documents)?;
    if is_falling(options.sort) {
        selection = selection.reversed();
    }
    if let Some(skip) = options.skip {
        selection.omit(skip.unsigned_abs());
    }
    if let Some(limit) = options.limit.filter(|limit| *limit != 0) {
        selection.limit(limit.unsigned_abs());
    }
    Ok(selection)
}

/// `aggregate`: stages that select are followed, `$count` and `$group` count, and the others change nothing.
pub(super) fn aggregate(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let pipeline = at.request.command.pipeline.ok_or_else(|| wrong_type("aggregate.pipeline"))?;
    let options = at.request.options()?;
    let mut selection = Selection::of(None, at.core.settings.documents)?;
    let mut count: Option<Vec<u8>> = None;
    for (number, stage) in pipeline.elements().enumerate() {
        let stage = stage?.value.as_document()?.ok_or_else(|| wrong_type("aggregate.pipeline"))?;
        let Some(first) = stage.first_element()? else {
            return Err(Failure::new(40_323, "A pipeline stage specification object must contain exactly one field."));
        };
        match first.name {
            b"$changeStream" if number == 0 => return watch(at, first.value, body),
            b"$changeStream" => {
                return Err(Failure::new(40_602, "$changeStream is only valid as the first stage in a pipeline"));
            }
            b"$match" => selection = Selection::of(first.value.as_document()?, at.core.settings.documents)?,
            b"$skip" => selection.omit(count_of(first.value)?),
            b"$limit" => selection.limit(count_of(first.value)?),
            b"$sort" if is_falling(first.value.as_document()?) => selection = selection.reversed(),
            b"$count" => count = Some(first.value.as_string().unwrap_or(b"count").to_vec()),
            b"$group" => count = Some(b"n".to_vec()),
            b"$out" | b"$merge" => selection.limit(0),
            _ => {}
        }
    }
    let Some(name) = count else { return batches::first(at, selection, &options, body) };
    let left = selection.left() as i64;
    let document = |document: &mut Writer<'_>| {
        document.int32("_id", 1);
        document.int64(name, left);
    };
    batches::only(at, document, body)
}

/// A change stream, from now on or from a token on.
fn watch(at: &mut Context<'_>, stage: Value<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let mut position = at.core.state.changes().end();
    let mut is_whole = false;
    if let Some(options) = stage.as_document()? {
        for element in options.elements() {
            let element = element?;
            match element.name {
                b"resumeAfter" | b"startAfter" => {
                    let token = read_token(element.value);
                    position = token.ok_or_else(|| Failure::new(260, "the resume token is none of this server"))?;
                }
                b"allChangesForCluster" => is_whole = element.value.is_true(),
                _ => {}
            }
        }
    }
    let database = at.request.command.db;
    let namespace = match at.request.command.collection() {
        Some(_) => at.request.namespace()?,
        None if database == b"admin" && !is_whole => {
            return Err(Failure::new(code::INVALID_OPTIONS, "$changeStream on admin needs allChangesForCluster"));
        }
        None => [database, b".$cmd.aggregate"].concat(),
    };
    batches::watch(at, namespace, position, body)
}

/// `count`.
pub(super) fn count(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let options = at.request.options()?;
    body.int64("n", selected(at, &options)?.left() as i64);
    Ok(Fate::Done)
}

/// `distinct`: the numbers of the documents, whatever the field is.
pub(super) fn distinct(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let options = at.request.options()?;
    if at.request.get(b"key")?.is_none_or(|key| key.kind != Kind::String) {
        return Err(wrong_type("distinct.key"));
    }
    let mut selection = selected(at, &options)?;
    selection.limit(DISTINCT_MAX);
    body.array("values", selection, |body, name, id| body.int64(name, id));
    Ok(Fate::Done)
}
