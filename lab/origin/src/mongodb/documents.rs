//! Documents that follow from their numbers.

use weir_base::rng::{GOLDEN, mix};
use weir_mongodb_codec::bson::{Value, Writer};

/// Digits of a number in a filler.
const DIGITS: usize = 16;

/// Bytes of a document around its namespace, its mark and its filler: length and end, `_id`, and the heads of `ns` and `filler`.
const FRAME_BYTES: usize = 5 + 13 + 9 + 13;
/// Bytes of the head of a mark: its type, and its name `request`.
const MARK_HEAD_BYTES: usize = 9;

/// Appends `bytes` digits that no other document has: 16 hexadecimal digits of a number that follows from `id`, of the next one, and so on.
pub fn filler(id: i64, bytes: usize, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let end = out.len() + bytes;
    out.reserve(bytes);
    let mut number = (id as u64).wrapping_mul(GOLDEN);
    while out.len() < end {
        let hash = mix(number).to_be_bytes();
        let mut digits = [0; DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(hash) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        out.extend_from_slice(&digits[..DIGITS.min(end - out.len())]);
        number = number.wrapping_add(1);
    }
}

/// The form of the documents of one result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form<'a> {
    /// Bytes of a document, if its other fields leave room.
    pub bytes: usize,
    pub namespace: &'a [u8],
    /// The comment of the command that requests the documents.
    pub mark: Option<Value<'a>>,
}

impl Form<'_> {
    /// Bytes of each document.
    pub fn document_bytes(&self) -> usize {
        self.least().max(self.bytes)
    }

    fn least(&self) -> usize {
        FRAME_BYTES + self.namespace.len() + self.mark.map_or(0, |mark| MARK_HEAD_BYTES + mark.bytes.len())
    }

    /// Writes a document under this name.
    pub fn write(&self, body: &mut Writer<'_>, name: &str, id: i64, scratch: &mut Vec<u8>) {
        scratch.clear();
        filler(id, self.document_bytes() - self.least(), scratch);
        body.document(name, |document| {
            document.int64("_id", id);
            document.string("ns", self.namespace);
            if let Some(mark) = self.mark {
                document.value("request", mark);
            }
            document.string("filler", &*scratch);
        });
    }
}

#[cfg(test)]
mod tests {
    use weir_mongodb_codec::bson::{Document, Kind, document};

    use super::*;

    #[test]
    fn a_document_has_exactly_its_bytes_unless_its_fields_need_more() {
        let mark = 7_i64.to_le_bytes();
        for (bytes, mark) in [
            (1024, None),
            (1024, Some(Value { kind: Kind::Int64, bytes: &mark })),
            (49, None),
            (1, Some(Value { kind: Kind::Int64, bytes: &mark })),
        ] {
            let form = Form { bytes, namespace: b"a.b", mark };
            let mut out = Vec::new();
            document(&mut out, |body| form.write(body, "d", 7, &mut Vec::new()));
            let inner = Document::read(&out).unwrap().get(b"d").unwrap().unwrap().as_document().unwrap().unwrap();
            assert_eq!(inner.bytes().len(), form.document_bytes());
            assert_eq!(inner.get(b"_id").unwrap().unwrap().as_integer(), Some(7));
            assert_eq!(inner.get(b"request").unwrap(), mark);
        }
    }

    #[test]
    fn fillers_of_two_documents_have_no_digits_in_common() {
        let of = |id| {
            let mut out = Vec::new();
            filler(id, 1_000, &mut out);
            out
        };
        assert_eq!((of(1).len(), of(1)), (1_000, of(1)));
        for other in [2, 3, 100_000] {
            let (one, other) = (of(1), of(other));
            assert!(one.chunks(16).all(|digits| other.chunks(16).all(|others| digits != others)));
        }
    }
}
