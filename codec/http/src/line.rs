//! The lines of a head or a trailer section.

use memchr::memchr;

use crate::{
    error::WireError,
    fields::Fields,
    known::Known,
    token::{is_field_value, token_bytes, trim},
};

/// The line at the front of `input`, without its end; `None` while it is not whole. A CR that is not part of the line end
/// is an error, as is LF alone: other parsers might end the line there.
#[inline]
pub(crate) fn next(input: &[u8]) -> Result<Option<&[u8]>, WireError> {
    let Some(end) = memchr(b'\n', input) else { return Ok(None) };
    match &input[..end] {
        [line @ .., b'\r'] => Ok(Some(line)),
        _ => Err(WireError::LineEnd),
    }
}

/// Adds the field that `line` is.
#[inline]
pub(crate) fn push_field(line: &[u8], fields: &mut Fields) -> Result<(), WireError> {
    if matches!(line, [b' ' | b'\t', ..]) {
        return Err(WireError::FieldFolded);
    }
    // The first byte that is none of a name has to be the colon: one look at the name, and none for its end.
    let (name, rest) = line.split_at(token_bytes(line));
    let (colon, [b':', value @ ..]) = (name.len(), rest) else { return Err(WireError::FieldName) };
    if name.is_empty() {
        return Err(WireError::FieldName);
    }
    let value = trim(value);
    // A bare CR is a control character too.
    if !is_field_value(value) {
        return Err(WireError::FieldValue);
    }
    // Nearly every line is as it would be written: one copy.
    match line.len() == colon + 2 + value.len() && line.get(colon + 1) == Some(&b' ') {
        true => fields.push_line(Known::of(name), line, colon),
        false => fields.push_known(Known::of(name), name, value),
    }
    Ok(())
}
