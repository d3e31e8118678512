//! Names and texts as the server understands them.

use std::borrow::Cow;

use super::lexer::{Kind, Lexer, Reading, Token};
use super::limits::NAME_BYTES_MAX;
use super::range::Range;

/// A qualified name in its one form: parts without quotes, unquoted ones in lower case, each cut at 63 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QualifiedName<'a> {
    /// The part in front of the last, if there is one. A database in front of it is dropped: it can only be the
    /// current.
    pub schema: Option<Cow<'a, [u8]>>,
    /// The last part.
    pub object: Cow<'a, [u8]>,
}

/// The name at `range`, one of an analysis of `text`. Empty if the range has none.
pub fn name(text: &[u8], range: Range) -> QualifiedName<'_> {
    let (mut schema, mut object) = (None, Cow::Borrowed(&[][..]));
    let mut lexer = Lexer::new(range.of(text), Reading::Conforming);
    while let Ok(Some(token)) = lexer.next() {
        if let Some(part) = identifier(range.of(text), token) {
            if !object.is_empty() {
                schema = Some(object);
            }
            object = part;
        }
    }
    QualifiedName { schema, object }
}

/// The one form of a token that is a name; `None` if it is something else.
pub(super) fn identifier(text: &[u8], token: Token) -> Option<Cow<'_, [u8]>> {
    let bytes = token.range.of(text);
    let name = match token.kind {
        Kind::Word if bytes.iter().any(u8::is_ascii_uppercase) => Cow::Owned(bytes.to_ascii_lowercase()),
        Kind::Word => Cow::Borrowed(bytes),
        Kind::QuotedName => undoubled(inside(bytes, 1), b'"'),
        Kind::UnicodeName => Cow::Owned(unescaped_unicode(&undoubled(inside(bytes, 3), b'"')).unwrap_or_default()),
        _ => return None,
    };
    Some(cut(name))
}

/// The content of a string that has one in every reading; `None` with an escape or a prefix that changes its meaning.
pub(super) fn plain_text(text: &[u8], token: Token) -> Option<Cow<'_, [u8]>> {
    let bytes = token.range.of(text);
    match (token.kind, bytes.first()?) {
        _ if bytes.contains(&b'\\') => None,
        (Kind::Text, b'$') => {
            let tag = 2 + bytes[1..].iter().position(|&byte| byte == b'$')?;
            bytes.get(tag..bytes.len() - tag).map(Cow::Borrowed)
        }
        // Continued over lines: rare, and not worth the glue.
        (Kind::Text | Kind::EscapedText, b'\'') if !bytes.contains(&b'\n') && !bytes.contains(&b'\r') => {
            Some(undoubled(inside(bytes, 1), b'\''))
        }
        _ => None,
    }
}

/// Without the `opening` bytes in front and the closing quote.
fn inside(bytes: &[u8], opening: usize) -> &[u8] {
    bytes.get(opening..bytes.len().saturating_sub(1)).unwrap_or_default()
}

fn undoubled(bytes: &[u8], quote: u8) -> Cow<'_, [u8]> {
    if !bytes.contains(&quote) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut is_second = false;
    for &byte in bytes {
        is_second = byte == quote && !is_second;
        if !is_second {
            out.push(byte);
        }
    }
    Cow::Owned(out)
}

/// `\0061` and `\+000061` as UTF-8; `None` for what is no such escape, or half of a pair.
pub(super) fn unescaped_unicode(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte != b'\\' {
            out.push(byte);
            at += 1;
        } else if bytes.get(at + 1) == Some(&b'\\') {
            out.push(byte);
            at += 2;
        } else {
            let (skip, digits) = if bytes.get(at + 1) == Some(&b'+') { (2, 6) } else { (1, 4) };
            let hex = bytes.get(at + skip..at + skip + digits)?;
            // `from_str_radix` takes a sign.
            let hex = str::from_utf8(hex).ok().filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
            let code = char::from_u32(u32::from_str_radix(hex, 16).ok()?)?;
            out.extend_from_slice(code.encode_utf8(&mut [0; 4]).as_bytes());
            at += skip + digits;
        }
    }
    Some(out)
}

/// Whether a name with Unicode escapes can be read here: with the usual escape character, and without surrogate pairs.
pub(super) fn is_readable_unicode(text: &[u8], token: Token) -> bool {
    unescaped_unicode(inside(token.range.of(text), 3)).is_some()
}

/// The first 63 bytes, whole characters only.
fn cut(name: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    let mut end = NAME_BYTES_MAX;
    while end > 0 && name[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    match name {
        Cow::Borrowed(name) => Cow::Borrowed(&name[..end]),
        Cow::Owned(mut name) => {
            name.truncate(end);
            Cow::Owned(name)
        }
    }
}
