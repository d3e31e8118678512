//! Whether a stored document fits a filter: equality of fields, and the usual comparisons.

use std::cmp::Ordering;

use weir_mongodb_codec::bson::{Document, Kind, Value};

use super::failure::{Failure, code};

/// Whether a document fits a filter. Fields are named by paths with dots; an array fits if one of its values does.
pub(super) fn matches(filter: Document<'_>, document: Document<'_>) -> Result<bool, Failure> {
    for condition in filter.elements() {
        let condition = condition?;
        if condition.name == b"$comment" {
            continue;
        }
        if condition.name.starts_with(b"$") {
            let text = format!("unknown top level operator: {}", String::from_utf8_lossy(condition.name));
            return Err(Failure::new(code::BAD_VALUE, text));
        }
        let found = at_path(document, condition.name)?;
        let fits = match operators(condition.value)? {
            Some(operators) => fits_all(operators, found)?,
            None => is_equal(found, condition.value)?,
        };
        if !fits {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The value at a path of names with dots between them.
pub(super) fn at_path<'a>(document: Document<'a>, path: &[u8]) -> Result<Option<Value<'a>>, Failure> {
    let mut document = Some(document);
    let mut found = None;
    for name in path.split(|byte| *byte == b'.') {
        let Some(present) = document else { return Ok(None) };
        found = present.get(name)?;
        document = found.map(Value::as_document).transpose()?.flatten();
    }
    Ok(found)
}

/// The document of a condition with operators; `None`: the value itself is meant.
fn operators(value: Value<'_>) -> Result<Option<Document<'_>>, Failure> {
    if value.kind != Kind::Document {
        return Ok(None);
    }
    let Some(document) = value.as_document()? else { return Ok(None) };
    let is_operator = document.first_element()?.is_some_and(|first| first.name.starts_with(b"$"));
    Ok(is_operator.then_some(document))
}

fn fits_all(operators: Document<'_>, found: Option<Value<'_>>) -> Result<bool, Failure> {
    for operator in operators.elements() {
        let operator = operator?;
        let value = operator.value;
        let compared = || found.and_then(|found| compare(found, value));
        let fits = match operator.name {
            b"$eq" => is_equal(found, value)?,
            b"$ne" => !is_equal(found, value)?,
            b"$gt" => compared() == Some(Ordering::Greater),
            b"$gte" => compared().is_some_and(Ordering::is_ge),
            b"$lt" => compared() == Some(Ordering::Less),
            b"$lte" => compared().is_some_and(Ordering::is_le),
            b"$exists" => found.is_some() == value.is_true(),
            b"$in" => is_in(found, value)?,
            b"$nin" => !is_in(found, value)?,
            name => {
                let text = format!("unknown operator: {}", String::from_utf8_lossy(name));
                return Err(Failure::new(code::BAD_VALUE, text));
            }
        };
        if !fits {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_in(found: Option<Value<'_>>, list: Value<'_>) -> Result<bool, Failure> {
    for wanted in list.as_document()?.into_iter().flat_map(Document::elements) {
        if is_equal(found, wanted?.value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_equal(found: Option<Value<'_>>, wanted: Value<'_>) -> Result<bool, Failure> {
    let Some(found) = found else { return Ok(wanted.kind == Kind::Null) };
    if compare(found, wanted) == Some(Ordering::Equal) {
        return Ok(true);
    }
    if found.kind == Kind::Array && wanted.kind != Kind::Array {
        for element in found.as_document()?.into_iter().flat_map(Document::elements) {
            if compare(element?.value, wanted) == Some(Ordering::Equal) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The order of two values of comparable types; `None`: they are not comparable.
pub(super) fn compare(one: Value<'_>, other: Value<'_>) -> Option<Ordering> {
    if let (Some(one), Some(other)) = (one.as_integer(), other.as_integer()) {
        return Some(one.cmp(&other));
    }
    if let (Some(one), Some(other)) = (double(one), double(other)) {
        return one.partial_cmp(&other);
    }
    if one.kind != other.kind {
        return None;
    }
    match (one.as_string(), other.as_string()) {
        (Some(one), Some(other)) => Some(one.cmp(other)),
        _ if one.kind == Kind::DateTime => {
            let time = |value: Value<'_>| value.bytes.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
            Some(time(one).cmp(&time(other)))
        }
        _ => Some(one.bytes.cmp(other.bytes)),
    }
}

/// A number of any type.
pub(super) fn double(value: Value<'_>) -> Option<f64> {
    match value.kind {
        Kind::Double => value.bytes.first_chunk().map(|bytes| f64::from_le_bytes(*bytes)),
        _ => value.as_integer().map(|number| number as f64),
    }
}

#[cfg(test)]
mod tests {
    use weir_mongodb_codec::bson::{Writer, document};

    use super::*;

    fn made(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        document(&mut out, write);
        out
    }

    fn fits(filter: impl FnOnce(&mut Writer<'_>)) -> Result<bool, i32> {
        let stored = made(|body| {
            body.int32("a", 5);
            body.string("b", "x");
            body.document("c", |inner| inner.double("d", 1.5));
            body.array("e", [1, 2], |array, name, number| array.int64(name, number));
        });
        let filter = made(filter);
        let read = |bytes| Document::read(bytes).expect("a document");
        matches(read(&filter), read(&stored)).map_err(|failure| failure.code)
    }

    #[test]
    fn a_filter_names_fields_and_comparisons() {
        assert_eq!(fits(|_| {}), Ok(true));
        assert_eq!(fits(|filter| filter.double("a", 5.0)), Ok(true));
        assert_eq!(fits(|filter| filter.string("b", "y")), Ok(false));
        assert_eq!(fits(|filter| filter.double("c.d", 1.5)), Ok(true));
        assert_eq!(fits(|filter| filter.int32("e", 2)), Ok(true));
        assert_eq!(fits(|filter| filter.int32("f", 2)), Ok(false));
        let range = |filter: &mut Writer<'_>| {
            filter.document("a", |range| {
                range.int32("$gt", 4);
                range.int32("$lte", 5);
            });
        };
        assert_eq!(fits(range), Ok(true));
        let listed = |filter: &mut Writer<'_>| {
            filter.document("a", |list| list.array("$in", [1, 5], |array, name, number| array.int32(name, number)));
        };
        assert_eq!(fits(listed), Ok(true));
        assert_eq!(fits(|filter| filter.document("f", |exists| exists.bool("$exists", false))), Ok(true));
        assert_eq!(fits(|filter| filter.document("a", |odd| odd.int32("$mod", 2))), Err(code::BAD_VALUE));
        assert_eq!(fits(|filter| filter.int32("$where", 1)), Err(code::BAD_VALUE));
    }
}
