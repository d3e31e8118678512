//! Types of elements, and the bytes of a value.

use crate::bson::Document;
use crate::error::BsonError;

/// The type of an element. Deprecated types are types as well: stored documents have them.
#[expect(missing_docs, reason = "the names are those of bsonspec.org")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Double,
    String,
    Document,
    Array,
    Binary,
    Undefined,
    ObjectId,
    Bool,
    DateTime,
    Null,
    Regex,
    DbPointer,
    JavaScript,
    Symbol,
    JavaScriptWithScope,
    Int32,
    Timestamp,
    Int64,
    Decimal128,
    MinKey,
    MaxKey,
}

impl Kind {
    /// From its byte on the wire.
    #[inline]
    pub const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            0x01 => Self::Double,
            0x02 => Self::String,
            0x03 => Self::Document,
            0x04 => Self::Array,
            0x05 => Self::Binary,
            0x06 => Self::Undefined,
            0x07 => Self::ObjectId,
            0x08 => Self::Bool,
            0x09 => Self::DateTime,
            0x0a => Self::Null,
            0x0b => Self::Regex,
            0x0c => Self::DbPointer,
            0x0d => Self::JavaScript,
            0x0e => Self::Symbol,
            0x0f => Self::JavaScriptWithScope,
            0x10 => Self::Int32,
            0x11 => Self::Timestamp,
            0x12 => Self::Int64,
            0x13 => Self::Decimal128,
            0x7f => Self::MaxKey,
            0xff => Self::MinKey,
            _ => return None,
        })
    }

    /// Its byte on the wire.
    pub const fn byte(self) -> u8 {
        match self {
            Self::MaxKey => 0x7f,
            Self::MinKey => 0xff,
            other => other as u8 + 1,
        }
    }

    /// Bytes of the value that `rest` begins with. With fewer bytes than the value has, the length is found if its four bytes are
    /// there: [`BsonError::Short`] says that they are not.
    #[inline]
    pub(crate) fn length(self, rest: &[u8]) -> Result<usize, BsonError> {
        let claimed = |least: i32, more: usize| {
            let claimed = i32::from_le_bytes(*rest.first_chunk().ok_or(BsonError::Short)?);
            if claimed < least { Err(BsonError::Length { claimed }) } else { Ok(claimed as usize + more) }
        };
        match self {
            Self::Undefined | Self::Null | Self::MinKey | Self::MaxKey => Ok(0),
            Self::Bool => Ok(1),
            Self::Int32 => Ok(4),
            Self::Double | Self::DateTime | Self::Timestamp | Self::Int64 => Ok(8),
            Self::ObjectId => Ok(12),
            Self::Decimal128 => Ok(16),
            // The length counts the zero byte and not itself.
            Self::String | Self::JavaScript | Self::Symbol => claimed(1, 4),
            Self::DbPointer => claimed(1, 4 + 12),
            Self::Binary => claimed(0, 4 + 1),
            // These count themselves: the least is an empty document, or an empty text and an empty document.
            Self::Document | Self::Array => claimed(5, 0),
            Self::JavaScriptWithScope => claimed(4 + 5 + 5, 0),
            Self::Regex => {
                let pattern = memchr::memchr(0, rest).ok_or(BsonError::Short)? + 1;
                let options = memchr::memchr(0, &rest[pattern..]).ok_or(BsonError::Short)? + 1;
                Ok(pattern + options)
            }
        }
    }
}

/// A value: its type, and its bytes as they are in the document. The length of the bytes fits the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// The type.
    pub kind: Kind,
    /// The bytes, with their own length where the type has one.
    pub bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// The text of a string, without its zero byte. Text may have a zero byte inside.
    #[inline]
    pub fn as_string(self) -> Option<&'a [u8]> {
        match (self.kind, self.bytes) {
            (Kind::String, [_, _, _, _, text @ .., 0]) => Some(text),
            _ => None,
        }
    }

    /// The document, or an array as a document.
    ///
    /// # Errors
    /// It does not end with a zero byte.
    pub fn as_document(self) -> Result<Option<Document<'a>>, BsonError> {
        match self.kind {
            Kind::Document | Kind::Array => Document::read(self.bytes).map(Some),
            _ => Ok(None),
        }
    }

    /// An integer of either width, or a double that is one: drivers write numbers in all three forms.
    #[inline]
    pub fn as_integer(self) -> Option<i64> {
        match self.kind {
            Kind::Int32 => self.bytes.first_chunk().map(|bytes| i64::from(i32::from_le_bytes(*bytes))),
            Kind::Int64 => self.bytes.first_chunk().map(|bytes| i64::from_le_bytes(*bytes)),
            Kind::Double => {
                let double = f64::from_le_bytes(*self.bytes.first_chunk()?);
                // Beyond 2^53 a double is no exact number.
                let is_whole = double.fract() == 0.0 && double.abs() <= 9_007_199_254_740_992.0;
                is_whole.then_some(double as i64)
            }
            _ => None,
        }
    }

    /// A boolean.
    #[inline]
    pub fn as_bool(self) -> Option<bool> {
        match (self.kind, self.bytes) {
            (Kind::Bool, [byte]) => Some(*byte != 0),
            _ => None,
        }
    }

    /// Whether a server takes the value for true: a boolean, or a number other than zero.
    #[inline]
    pub fn is_true(self) -> bool {
        match self.kind {
            Kind::Double => self.bytes.first_chunk().is_some_and(|bytes| f64::from_le_bytes(*bytes) != 0.0),
            Kind::Decimal128 => !self.bytes[..14].iter().all(|byte| *byte == 0),
            _ => self.as_bool().unwrap_or_else(|| self.as_integer().is_some_and(|number| number != 0)),
        }
    }

    /// Binary data: its subtype and its bytes.
    #[inline]
    pub fn as_binary(self) -> Option<(u8, &'a [u8])> {
        match (self.kind, self.bytes) {
            (Kind::Binary, [_, _, _, _, subtype, data @ ..]) => Some((*subtype, data)),
            _ => None,
        }
    }

    /// An ObjectId.
    pub fn as_object_id(self) -> Option<[u8; 12]> {
        if self.kind == Kind::ObjectId { self.bytes.first_chunk().copied() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_its_byte() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|byte| Kind::of(*byte).is_some()).collect();
        assert_eq!(known.len(), 21);
        for byte in known {
            assert_eq!(Kind::of(byte).map(Kind::byte), Some(byte));
        }
    }

    #[test]
    fn numbers_of_all_forms_are_integers() {
        let integer = |kind, bytes: &[u8]| Value { kind, bytes }.as_integer();
        assert_eq!(integer(Kind::Int32, &(-3_i32).to_le_bytes()), Some(-3));
        assert_eq!(integer(Kind::Int64, &i64::MIN.to_le_bytes()), Some(i64::MIN));
        assert_eq!(integer(Kind::Double, &1.0_f64.to_le_bytes()), Some(1));
        for none in [1.5, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(integer(Kind::Double, &none.to_le_bytes()), None);
        }
        let is_true = |kind, bytes: &[u8]| Value { kind, bytes }.is_true();
        assert!(is_true(Kind::Double, &0.5_f64.to_le_bytes()) && !is_true(Kind::Double, &[0; 8]));
        assert!(is_true(Kind::Bool, &[1]) && !is_true(Kind::Bool, &[0]));
        assert!(!is_true(Kind::Null, &[]) && !is_true(Kind::Decimal128, &[0; 16]));
    }
}
