//! The result of an update of a stored document: another one, or the same with some top-level fields changed.

use weir_mongodb_codec::bson::{Document, Kind, Value, Writer, document};

use super::failure::{Failure, code};
use super::matching::double;
use super::request::wrong_type;

/// Changes of fields, in the order of the update.
#[derive(Debug, Default)]
struct Changes<'a> {
    set: Vec<(&'a [u8], Value<'a>)>,
    added: Vec<(&'a [u8], Value<'a>)>,
    unset: Vec<&'a [u8]>,
}

/// The document behind an update. `is_new`: it comes into being by this update.
pub(super) fn modified(present: Document<'_>, update: Value<'_>, is_new: bool) -> Result<Vec<u8>, Failure> {
    let Some(update) = update.as_document()?.filter(|_| update.kind == Kind::Document) else {
        return Err(Failure::new(code::FAILED_TO_PARSE, "weir origin: an update by a pipeline is not stored"));
    };
    let is_change = update.first_element()?.is_some_and(|first| first.name.starts_with(b"$"));
    let mut out = Vec::new();
    if !is_change {
        let id = present.get(b"_id")?;
        let mut fields = Ok(());
        document(&mut out, |body| {
            id.into_iter().for_each(|id| body.value("_id", id));
            fields = copy(update, body, |name| name == b"_id" && id.is_some());
        });
        return fields.map(|()| out);
    }
    let changes = read(update, is_new)?;
    let mut fields = Ok(());
    document(&mut out, |body| fields = write(present, &changes, body));
    fields.map(|()| out)
}

/// Copies the fields of a document but those that `leaves_out` names.
fn copy(from: Document<'_>, body: &mut Writer<'_>, leaves_out: impl Fn(&[u8]) -> bool) -> Result<(), Failure> {
    for element in from.elements() {
        let element = element?;
        if !leaves_out(element.name) {
            body.value(element.name, element.value);
        }
    }
    Ok(())
}

fn read(update: Document<'_>, is_new: bool) -> Result<Changes<'_>, Failure> {
    let mut changes = Changes::default();
    for operator in update.elements() {
        let operator = operator?;
        let fields = operator.value.as_document()?.ok_or_else(|| wrong_type("update.updates.u"))?;
        for field in fields.elements() {
            let field = field?;
            match operator.name {
                b"$set" => changes.set.push((field.name, field.value)),
                b"$setOnInsert" if is_new => changes.set.push((field.name, field.value)),
                b"$setOnInsert" => {}
                b"$inc" => changes.added.push((field.name, field.value)),
                b"$unset" => changes.unset.push(field.name),
                name => {
                    let text = format!("weir origin: no update by {}", String::from_utf8_lossy(name));
                    return Err(Failure::new(code::FAILED_TO_PARSE, text));
                }
            }
        }
    }
    Ok(changes)
}

fn write(present: Document<'_>, changes: &Changes<'_>, body: &mut Writer<'_>) -> Result<(), Failure> {
    let Changes { set, added, unset } = changes;
    let of = |list: &[(&[u8], Value<'_>)], name: &[u8]| list.iter().position(|(known, _)| *known == name);
    let mut known: Vec<&[u8]> = Vec::new();
    for element in present.elements() {
        let element = element?;
        known.push(element.name);
        if let Some(at) = of(set, element.name) {
            body.value(element.name, set[at].1);
        } else if let Some(at) = of(added, element.name) {
            add(body, element.name, element.value, added[at].1)?;
        } else if !unset.contains(&element.name) {
            body.value(element.name, element.value);
        }
    }
    let fresh = set.iter().chain(added).filter(|(name, _)| !known.contains(name));
    fresh.for_each(|(name, value)| body.value(name, *value));
    Ok(())
}

fn add(body: &mut Writer<'_>, name: &[u8], one: Value<'_>, other: Value<'_>) -> Result<(), Failure> {
    let is_double = one.kind == Kind::Double || other.kind == Kind::Double;
    match (one.as_integer(), other.as_integer(), double(one), double(other)) {
        (Some(one), Some(other), ..) if !is_double => match one.checked_add(other) {
            Some(sum) => body.int64(name, sum),
            None => return Err(Failure::new(code::BAD_VALUE, "Failed to apply $inc: the sum is too large")),
        },
        (.., Some(one), Some(other)) => body.double(name, one + other),
        _ => return Err(Failure::new(code::TYPE_MISMATCH, "Cannot apply $inc to a value of non-numeric type")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        document(&mut out, write);
        out
    }

    fn after(update: impl FnOnce(&mut Writer<'_>), is_new: bool) -> Result<Vec<u8>, i32> {
        let present = made(|body| {
            body.int32("_id", 1);
            body.int32("a", 5);
            body.string("b", "x");
        });
        let update = made(update);
        let value = Value { kind: Kind::Document, bytes: &update };
        modified(Document::read(&present).expect("a document"), value, is_new).map_err(|failure| failure.code)
    }

    #[test]
    fn fields_are_changed_in_their_place() {
        let changed = after(
            |update| {
                update.document("$set", |set| set.string("b", "y"));
                update.document("$inc", |inc| {
                    inc.int32("a", 2);
                    inc.int32("c", 1);
                });
            },
            false,
        );
        let wanted = made(|body| {
            body.int32("_id", 1);
            body.int64("a", 7);
            body.string("b", "y");
            body.int32("c", 1);
        });
        assert_eq!(changed, Ok(wanted));
        let without = after(|update| update.document("$unset", |unset| unset.string("b", "")), false);
        let wanted = made(|body| {
            body.int32("_id", 1);
            body.int32("a", 5);
        });
        assert_eq!(without, Ok(wanted));
    }

    #[test]
    fn a_replacement_keeps_the_id() {
        let replaced = after(|update| update.string("b", "z"), false);
        let wanted = made(|body| {
            body.int32("_id", 1);
            body.string("b", "z");
        });
        assert_eq!(replaced, Ok(wanted));
        assert_eq!(
            after(|update| update.document("$push", |push| push.int32("a", 1)), false),
            Err(code::FAILED_TO_PARSE)
        );
        assert_eq!(after(|update| update.document("$inc", |inc| inc.int32("b", 1)), false), Err(code::TYPE_MISMATCH));
    }
}
