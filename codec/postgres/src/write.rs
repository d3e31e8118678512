//! How all encoders write.

/// A message: its type byte, its length, and the body that `body` appends.
#[inline]
pub(crate) fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    packet(out, body);
}

/// A length and the bytes that `body` appends: a startup packet, or a message behind its type byte.
#[inline]
pub(crate) fn packet(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = out.len() - start;
    debug_assert!(i32::try_from(length).is_ok(), "callers own the size of a message");
    out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
}

/// The head of a message of `body` bytes, which the caller writes.
pub(crate) fn head(out: &mut Vec<u8>, tag: u8, body: usize) {
    debug_assert!(i32::try_from(body + 4).is_ok(), "callers own the size of a message");
    out.push(tag);
    out.extend_from_slice(&((body + 4) as u32).to_be_bytes());
}

/// A string and its NUL. A NUL inside ends it: text cannot start another field.
#[inline]
pub(crate) fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(until_nul(text));
    out.push(0);
}

/// The part of a string that the wire can carry.
pub(crate) fn until_nul(text: &[u8]) -> &[u8] {
    &text[..memchr::memchr(0, text).unwrap_or(text.len())]
}

/// A count in 16 bits.
pub(crate) fn count(out: &mut Vec<u8>, count: usize) {
    debug_assert!(count <= usize::from(u16::MAX), "callers own the number of elements");
    out.extend_from_slice(&(count as u16).to_be_bytes());
}

/// A length and the bytes; NULL as the length -1.
#[inline]
pub(crate) fn value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        Some(bytes) => {
            debug_assert!(i32::try_from(bytes.len()).is_ok(), "callers own the size of a value");
            out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            out.extend_from_slice(bytes);
        }
    }
}

/// The values of `values`, with their count in front.
pub(crate) fn values<'a>(out: &mut Vec<u8>, values: impl IntoIterator<Item = Option<&'a [u8]>>) {
    counted(out, values, value);
}

/// Each of `all` as `one` writes it, with their count in front.
pub(crate) fn counted<T>(out: &mut Vec<u8>, all: impl IntoIterator<Item = T>, one: impl Fn(&mut Vec<u8>, T)) {
    let start = out.len();
    count(out, 0);
    let mut written = 0;
    for element in all {
        one(out, element);
        written += 1;
    }
    debug_assert!(written <= usize::from(u16::MAX), "callers own the number of elements");
    out[start..start + 2].copy_from_slice(&(written as u16).to_be_bytes());
}
