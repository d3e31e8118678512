//! Views over headers of elements.

use crate::bson::value::{Kind, Value};
use crate::error::BsonError;

/// Bytes of an empty document.
const EMPTY_BYTES: usize = 5;

/// A document whose length and end fit. Its elements are not yet checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Document<'a>(&'a [u8]);

impl std::fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Document({} bytes)", self.0.len())
    }
}

impl<'a> Document<'a> {
    /// The document that is all of `bytes`.
    ///
    /// # Errors
    /// The length is another, or the last byte is not zero.
    pub fn read(bytes: &'a [u8]) -> Result<Self, BsonError> {
        let document = Self::first(bytes)?;
        if document.0.len() == bytes.len() {
            Ok(document)
        } else {
            Err(BsonError::Length { claimed: document.claimed() })
        }
    }

    /// The document that `bytes` begin with.
    ///
    /// # Errors
    /// The document is not whole, or does not end with a zero byte.
    #[inline]
    pub fn first(bytes: &'a [u8]) -> Result<Self, BsonError> {
        let length = Self::length(bytes)?.ok_or(BsonError::Short)?;
        let document = bytes.get(..length).ok_or(BsonError::Short)?;
        if document[length - 1] == 0 { Ok(Self(document)) } else { Err(BsonError::Terminator) }
    }

    /// Bytes of the document that `bytes` begin with; `None`: its four bytes of length are not there yet.
    ///
    /// # Errors
    /// The length is below five.
    #[inline]
    pub fn length(bytes: &[u8]) -> Result<Option<usize>, BsonError> {
        let Some(&length) = bytes.first_chunk() else { return Ok(None) };
        let claimed = i32::from_le_bytes(length);
        if claimed < EMPTY_BYTES as i32 { Err(BsonError::Length { claimed }) } else { Ok(Some(claimed as usize)) }
    }

    fn claimed(self) -> i32 {
        self.0.len() as i32
    }

    /// The bytes, with the length and the zero byte.
    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Goes over the elements.
    #[inline]
    pub fn elements(self) -> Elements<'a> {
        Elements(&self.0[4..self.0.len() - 1])
    }

    /// The first element.
    ///
    /// # Errors
    /// It is broken.
    pub fn first_element(self) -> Result<Option<Element<'a>>, BsonError> {
        self.elements().next().transpose()
    }

    /// The value of the first element of this name.
    ///
    /// # Errors
    /// An element in front of it is broken.
    pub fn get(self, name: &[u8]) -> Result<Option<Value<'a>>, BsonError> {
        for element in self.elements() {
            let element = element?;
            if element.name == name {
                return Ok(Some(element.value));
            }
        }
        Ok(None)
    }
}

/// An element of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// Its name. The elements of an array have names as well; their order counts.
    pub name: &'a [u8],
    /// Its value.
    pub value: Value<'a>,
}

/// The elements that are left. An error is the last item.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    #[inline]
    fn read(&mut self) -> Result<Element<'a>, BsonError> {
        let (&byte, rest) = self.0.split_first().ok_or(BsonError::Short)?;
        let kind = match Kind::of(byte) {
            Some(kind) => kind,
            // The end of the document before its length.
            None if byte == 0 => return Err(BsonError::Terminator),
            None => return Err(BsonError::Kind(byte)),
        };
        let end = memchr::memchr(0, rest).ok_or(BsonError::Short)?;
        let (name, rest) = (&rest[..end], &rest[end + 1..]);
        let (bytes, rest) = rest.split_at_checked(kind.length(rest)?).ok_or(BsonError::Short)?;
        if kind == Kind::String && bytes.last() != Some(&0) {
            return Err(BsonError::Terminator);
        }
        self.0 = rest;
        Ok(Element { name, value: Value { kind, bytes } })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, BsonError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let element = self.read();
        if element.is_err() {
            self.0 = &[];
        }
        Some(element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first example of bsonspec.org: `{"hello": "world"}`.
    const HELLO: &[u8] = b"\x16\x00\x00\x00\x02hello\x00\x06\x00\x00\x00world\x00\x00";

    fn names(bytes: &[u8]) -> Result<Vec<Vec<u8>>, BsonError> {
        Document::read(bytes)?.elements().map(|element| element.map(|element| element.name.to_vec())).collect()
    }

    /// A document around these bytes.
    fn around(elements: &[u8]) -> Vec<u8> {
        [&(elements.len() as i32 + 5).to_le_bytes()[..], elements, &[0]].concat()
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        let document = Document::read(HELLO).unwrap();
        let element = document.first_element().unwrap().unwrap();
        assert_eq!((element.name, element.value.as_string()), (&b"hello"[..], Some(&b"world"[..])));
        assert_eq!(document.elements().count(), 1);
        assert_eq!(document.get(b"hello").unwrap(), Some(element.value));
        assert_eq!(document.get(b"other").unwrap(), None);
    }

    #[test]
    fn m4_lengths_of_documents_that_lie_are_refused() {
        for claimed in [i32::MIN, -1, 0, 4] {
            let bytes = [&claimed.to_le_bytes()[..], &[0; 20]].concat();
            assert_eq!(Document::read(&bytes), Err(BsonError::Length { claimed }));
        }
        assert_eq!(Document::read(&HELLO[..21]), Err(BsonError::Short));
        assert_eq!(Document::read(&[HELLO, &[0]].concat()), Err(BsonError::Length { claimed: 22 }));
        let mut unended = HELLO.to_vec();
        unended[21] = 1;
        assert_eq!(Document::read(&unended), Err(BsonError::Terminator));
        assert_eq!(Document::length(&HELLO[..3]), Ok(None));
    }

    #[test]
    fn m4_elements_that_overrun_their_document_are_refused() {
        for (elements, error) in [
            (&b"\x10a\x00\x01\x00\x00"[..], BsonError::Short),
            (b"\x10a", BsonError::Short),
            (b"\x02a\x00\xff\xff\xff\xff", BsonError::Length { claimed: -1 }),
            (b"\x02a\x00\x00\x00\x00\x00", BsonError::Length { claimed: 0 }),
            (b"\x02a\x00\x03\x00\x00\x00x\x00", BsonError::Short),
            (b"\x02a\x00\x02\x00\x00\x00xy", BsonError::Terminator),
            (b"\x05a\x00\x80\x00\x00\x80\x00", BsonError::Length { claimed: i32::from_le_bytes([0x80, 0, 0, 0x80]) }),
            (b"\x03a\x00\x04\x00\x00\x00", BsonError::Length { claimed: 4 }),
            (b"\x0fa\x00\x0d\x00\x00\x00", BsonError::Length { claimed: 13 }),
            (b"\x0ba\x00x\x00y", BsonError::Short),
            (b"\x14a\x00", BsonError::Kind(0x14)),
            (b"\x00", BsonError::Terminator),
        ] {
            assert_eq!(names(&around(elements)), Err(error), "{elements:?}");
        }
    }

    #[test]
    fn every_type_is_skipped_by_its_length() {
        let elements = [
            &b"\x01d\x00\0\0\0\0\0\0\0\0"[..],
            b"\x03e\x00\x05\0\0\0\0",
            b"\x04f\x00\x05\0\0\0\0",
            b"\x05g\x00\x02\0\0\0\x00ab",
            b"\x06h\x00",
            b"\x07i\x00aaaaaaaaaaaa",
            b"\x08j\x00\x01",
            b"\x09k\x00\0\0\0\0\0\0\0\0",
            b"\x0al\x00",
            b"\x0bm\x00a.b\x00i\x00",
            b"\x0cn\x00\x02\0\0\0a\x00aaaaaaaaaaaa",
            b"\x0do\x00\x02\0\0\0a\x00",
            b"\x0ep\x00\x02\0\0\0a\x00",
            b"\x0fq\x00\x0f\0\0\0\x02\0\0\0a\x00\x05\0\0\0\0",
            b"\x10r\x00\0\0\0\0",
            b"\x11s\x00\0\0\0\0\0\0\0\0",
            b"\x12t\x00\0\0\0\0\0\0\0\0",
            b"\x13u\x00aaaaaaaaaaaaaaaa",
            b"\xffv\x00",
            b"\x7fw\x00",
        ];
        let found = names(&around(&elements.concat())).unwrap();
        assert_eq!(found.concat(), b"defghijklmnopqrstuvw");
        assert_eq!(Document::read(&around(&elements.concat())).unwrap().check(2), Ok(()));
    }
}
