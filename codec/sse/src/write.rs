//! Events as bytes. All encoders append to `out`, and end lines with LF.

/// An event. A line break in `data` (LF, CR or CRLF) begins another line of data; a reader joins them by LF.
///
/// `name` is a constant of the protocol: it has no line break.
pub fn event(out: &mut Vec<u8>, name: Option<&str>, data: &[u8]) {
    if let Some(name) = name {
        debug_assert!(!name.contains(['\r', '\n']), "a name has no line break");
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
    lines(out, b"data: ", data);
    out.push(b'\n');
}

/// A comment, which readers skip: a heartbeat. A line break in `text` begins another comment.
pub fn comment(out: &mut Vec<u8>, text: &[u8]) {
    lines(out, b": ", text);
    out.push(b'\n');
}

/// The event `data: {"error":…}`, by which OpenAI's SDKs learn of a failure behind the head of a response. `error` is
/// an object of JSON.
pub fn error(out: &mut Vec<u8>, error: &[u8]) {
    debug_assert!(!error.contains(&b'\n') && !error.contains(&b'\r'), "an encoder escapes line breaks");
    out.extend_from_slice(b"data: {\"error\":");
    out.extend_from_slice(error);
    out.extend_from_slice(b"}\n\n");
}

/// A line with `prefix` for each line of `text`.
fn lines(out: &mut Vec<u8>, prefix: &[u8], text: &[u8]) {
    let mut rest = text;
    loop {
        let end = memchr::memchr2(b'\r', b'\n', rest);
        out.extend_from_slice(prefix);
        out.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
        out.push(b'\n');
        rest = match end.map(|end| &rest[end..]) {
            Some([b'\r', b'\n', behind @ ..] | [_, behind @ ..]) => behind,
            _ => return,
        };
    }
}
