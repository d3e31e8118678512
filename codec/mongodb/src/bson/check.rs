//! Everything inside of a document, without recursion.

use crate::bson::read::Document;
use crate::bson::value::Kind;
use crate::error::BsonError;
use crate::limits::DEPTH_MAX;

impl Document<'_> {
    /// Checks every element, also of the documents inside: types, lengths, ends, booleans, and that at most `depth_max` documents are
    /// inside of each other, this one included. Beyond [`DEPTH_MAX`] nothing passes.
    ///
    /// Scopes of JavaScript count as documents, so that no type starts the count again (CVE-2026-9740). Text is not checked for UTF-8.
    ///
    /// # Errors
    /// The first flaw.
    pub fn check(self, depth_max: usize) -> Result<(), BsonError> {
        let bytes = self.bytes();
        let mut ends = Vec::with_capacity(8);
        ends.push(bytes.len());
        let mut at = 4;
        while let Some(&end) = ends.last() {
            let byte = bytes[at];
            if byte == 0 {
                at += 1;
                if at != end {
                    return Err(BsonError::Terminator);
                }
                ends.pop();
                continue;
            }
            let kind = Kind::of(byte).ok_or(BsonError::Kind(byte))?;
            // The last byte of a document is its end: no element reaches it.
            let rest = &bytes[at + 1..end - 1];
            let name = memchr::memchr(0, rest).ok_or(BsonError::Short)?;
            let value = &rest[name + 1..];
            let value = value.get(..kind.length(value)?).ok_or(BsonError::Short)?;
            at += 1 + name + 1;
            match inner(kind, value)? {
                None => at += value.len(),
                Some(start) => {
                    if ends.len() >= depth_max.min(DEPTH_MAX) {
                        return Err(BsonError::Depth);
                    }
                    ends.push(at + value.len());
                    at += start + 4;
                }
            }
        }
        Ok(())
    }
}

/// Where the document inside of a value begins; `None`: there is none. Everything in front of it is checked.
fn inner(kind: Kind, value: &[u8]) -> Result<Option<usize>, BsonError> {
    match kind {
        Kind::Document | Kind::Array => Document::read(value).map(|_| Some(0)),
        Kind::JavaScriptWithScope => {
            let code = text(&value[4..])?;
            Document::read(&value[4 + code..]).map(|_| Some(4 + code))
        }
        Kind::String | Kind::JavaScript | Kind::Symbol | Kind::DbPointer => text(value).map(|_| None),
        // The old form has its length twice.
        Kind::Binary if value[4] == 2 => {
            let claimed = i32::from_le_bytes(*value[5..].first_chunk().ok_or(BsonError::Short)?);
            let fits = usize::try_from(claimed).is_ok_and(|length| length == value.len() - 9);
            if fits { Ok(None) } else { Err(BsonError::Length { claimed }) }
        }
        Kind::Bool if value[0] > 1 => Err(BsonError::Length { claimed: i32::from(value[0]) }),
        _ => Ok(None),
    }
}

/// Bytes of the text that `bytes` begin with, its length and its zero byte included.
fn text(bytes: &[u8]) -> Result<usize, BsonError> {
    let length = Kind::String.length(bytes)?;
    let text = bytes.get(..length).ok_or(BsonError::Short)?;
    if text[length - 1] == 0 { Ok(length) } else { Err(BsonError::Terminator) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `depth` documents inside of each other, as elements of this kind.
    fn nested(depth: usize, kind: u8) -> Vec<u8> {
        let mut document = b"\x05\0\0\0\0".to_vec();
        for _ in 1..depth {
            let mut outer = vec![0; 4];
            outer.extend_from_slice(&[kind, b'a', 0]);
            if kind == 0x0f {
                outer.extend_from_slice(&(document.len() as i32 + 9).to_le_bytes());
                outer.extend_from_slice(b"\x01\0\0\0\0");
            }
            outer.extend_from_slice(&document);
            outer.push(0);
            let length = outer.len() as i32;
            outer[..4].copy_from_slice(&length.to_le_bytes());
            document = outer;
        }
        document
    }

    fn check(bytes: &[u8], depth_max: usize) -> Result<(), BsonError> {
        Document::read(bytes).unwrap().check(depth_max)
    }

    #[test]
    fn m3_depth_is_counted_through_every_type_that_nests() {
        for kind in [3, 4, 0x0f] {
            assert_eq!(check(&nested(100, kind), 100), Ok(()), "{kind}");
            assert_eq!(check(&nested(101, kind), 100), Err(BsonError::Depth), "{kind}");
            assert_eq!(check(&nested(DEPTH_MAX + 1, kind), usize::MAX), Err(BsonError::Depth), "{kind}");
        }
        assert_eq!(check(&nested(5_000, 3), 100), Err(BsonError::Depth));
    }

    #[test]
    fn m4_flaws_below_the_first_level_are_found() {
        let inside = |elements: &[u8]| {
            let inner = [&(elements.len() as i32 + 5).to_le_bytes()[..], elements, &[0]].concat();
            let outer = [b"\x03a\x00", &inner[..]].concat();
            [&(outer.len() as i32 + 5).to_le_bytes()[..], &outer, &[0]].concat()
        };
        for (elements, error) in [
            (&b"\x10b\x00\x01\x00"[..], BsonError::Short),
            (b"\x02b\x00\x02\x00\x00\x00ab", BsonError::Terminator),
            (b"\x08b\x00\x02", BsonError::Length { claimed: 2 }),
            (b"\x05b\x00\x05\0\0\0\x02\x02\0\0\0a", BsonError::Length { claimed: 2 }),
            (b"\x05b\x00\x02\0\0\0\x02ab", BsonError::Short),
            (b"\x20b\x00", BsonError::Kind(0x20)),
            (b"\x03b\x00\x06\0\0\0\x00\x00", BsonError::Terminator),
            (b"\x0fb\x00\x0f\0\0\0\x02\0\0\0ax\x05\0\0\0\0", BsonError::Terminator),
            (b"\x0fb\x00\x0f\0\0\0\x03\0\0\0a\x00\x05\0\0\0\0", BsonError::Terminator),
        ] {
            assert_eq!(check(&inside(elements), 10), Err(error), "{elements:?}");
        }
        assert_eq!(check(&inside(b"\x05b\x00\x05\0\0\0\x02\x01\0\0\0a"), 2), Ok(()));
    }
}
