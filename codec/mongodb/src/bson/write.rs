//! A writer for documents of our own: replies to hello, errors, and commands to servers.

use crate::bson::Document;
use crate::bson::value::{Kind, Value};

/// Appends a document with the elements that `body` writes.
pub fn document(out: &mut Vec<u8>, body: impl FnOnce(&mut Writer<'_>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(&mut Writer { out });
    out.push(0);
    let length = out.len() - start;
    debug_assert!(i32::try_from(length).is_ok(), "callers own the size of a document");
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
}

/// Writes elements at the end of a document. The caller owns the uniqueness of names.
#[derive(Debug)]
pub struct Writer<'v> {
    out: &'v mut Vec<u8>,
}

impl Writer<'_> {
    fn head(&mut self, kind: Kind, name: impl AsRef<[u8]>) {
        self.out.push(kind.byte());
        self.out.extend_from_slice(until_nul(name.as_ref()));
        self.out.push(0);
    }

    fn element(&mut self, kind: Kind, name: impl AsRef<[u8]>, bytes: &[u8]) {
        self.head(kind, name);
        self.out.extend_from_slice(bytes);
    }

    /// A text.
    pub fn string(&mut self, name: impl AsRef<[u8]>, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        self.element(Kind::String, name, &(text.len() as u32 + 1).to_le_bytes());
        self.out.extend_from_slice(text);
        self.out.push(0);
    }

    /// An integer of 32 bits.
    pub fn int32(&mut self, name: impl AsRef<[u8]>, number: i32) {
        self.element(Kind::Int32, name, &number.to_le_bytes());
    }

    /// An integer of 64 bits.
    pub fn int64(&mut self, name: impl AsRef<[u8]>, number: i64) {
        self.element(Kind::Int64, name, &number.to_le_bytes());
    }

    /// A double, the form of `ok`.
    pub fn double(&mut self, name: impl AsRef<[u8]>, number: f64) {
        self.element(Kind::Double, name, &number.to_le_bytes());
    }

    /// A boolean.
    pub fn bool(&mut self, name: impl AsRef<[u8]>, value: bool) {
        self.element(Kind::Bool, name, &[u8::from(value)]);
    }

    /// A time, in milliseconds since 1970.
    pub fn date_time(&mut self, name: impl AsRef<[u8]>, milliseconds: i64) {
        self.element(Kind::DateTime, name, &milliseconds.to_le_bytes());
    }

    /// An ObjectId.
    pub fn object_id(&mut self, name: impl AsRef<[u8]>, id: [u8; 12]) {
        self.element(Kind::ObjectId, name, &id);
    }

    /// Binary data.
    pub fn binary(&mut self, name: impl AsRef<[u8]>, subtype: u8, data: &[u8]) {
        self.element(Kind::Binary, name, &(data.len() as u32).to_le_bytes());
        self.out.push(subtype);
        self.out.extend_from_slice(data);
    }

    /// A value as it is in another document.
    pub fn value(&mut self, name: impl AsRef<[u8]>, value: Value<'_>) {
        self.element(value.kind, name, value.bytes);
    }

    /// A document as it is.
    pub fn embed(&mut self, name: impl AsRef<[u8]>, document: Document<'_>) {
        self.element(Kind::Document, name, document.bytes());
    }

    /// A document with the elements that `body` writes.
    pub fn document(&mut self, name: impl AsRef<[u8]>, body: impl FnOnce(&mut Writer<'_>)) {
        self.head(Kind::Document, name);
        document(self.out, body);
    }

    /// An array: each of `items` as `write` writes it under its name.
    pub fn array<T>(
        &mut self,
        name: impl AsRef<[u8]>,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Writer<'_>, &str, T),
    ) {
        self.head(Kind::Array, name);
        document(self.out, |writer| {
            items.into_iter().enumerate().for_each(|(index, item)| write(writer, &index.to_string(), item));
        });
    }
}

/// The part of a name that the wire can carry.
fn until_nul(name: &[u8]) -> &[u8] {
    &name[..memchr::memchr(0, name).unwrap_or(name.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_ends_a_name_and_not_a_text() {
        let mut out = Vec::new();
        document(&mut out, |writer| writer.string("a\0b", "c\0d"));
        let element = Document::read(&out).unwrap().first_element().unwrap().unwrap();
        assert_eq!((element.name, element.value.as_string()), (&b"a"[..], Some(&b"c\0d"[..])));
    }

    /// The second example of bsonspec.org: `{"BSON": ["awesome", 5.05, 1986]}`.
    #[test]
    fn the_example_of_the_specification_is_written() {
        let mut out = Vec::new();
        document(&mut out, |writer| {
            writer.array("BSON", 0..3, |writer, name, item| match item {
                0 => writer.string(name, "awesome"),
                1 => writer.double(name, 5.05),
                _ => writer.int32(name, 1986),
            });
        });
        let expected = b"\x31\0\0\0\x04BSON\0\x26\0\0\0\x020\0\x08\0\0\0awesome\0\x011\0\x33\x33\x33\x33\x33\x33\x14\x40\x102\0\xc2\x07\0\0\0\0";
        assert_eq!(out, expected);
    }
}
