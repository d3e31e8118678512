//! Values of parameters and columns.

use weir_postgres_codec::sqlstate;

use super::statement::Failure;

/// OIDs of types.
pub(super) const INT8: u32 = 20;
pub(super) const INT2: u32 = 21;
pub(super) const INT4: u32 = 23;
pub(super) const TEXT: u32 = 25;

/// A value of a parameter or of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// SQL's NULL.
    Null,
    /// A whole number with the OID of its type.
    Whole(i64, u32),
    /// Anything else, in the form in which it came.
    Bytes(Vec<u8>),
}

impl Value {
    /// From the wire.
    pub(super) fn read(bytes: Option<&[u8]>, type_oid: u32, format: i16) -> Result<Self, Failure> {
        let Some(bytes) = bytes else { return Ok(Self::Null) };
        let whole = match (type_oid, format) {
            (INT2 | INT4 | INT8, 0) => std::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse().ok()),
            (INT2, _) => bytes.try_into().ok().map(|bytes| i64::from(i16::from_be_bytes(bytes))),
            (INT4, _) => bytes.try_into().ok().map(|bytes| i64::from(i32::from_be_bytes(bytes))),
            (INT8, _) => bytes.try_into().ok().map(i64::from_be_bytes),
            _ => return Ok(Self::Bytes(bytes.to_vec())),
        };
        whole.map(|whole| Self::Whole(whole, type_oid)).ok_or_else(|| {
            let text = String::from_utf8_lossy(bytes);
            let name = if type_oid == INT8 {
                "bigint"
            } else if type_oid == INT2 {
                "smallint"
            } else {
                "integer"
            };
            Failure::new(
                sqlstate::INVALID_TEXT_REPRESENTATION,
                format!("invalid input syntax for type {name}: \"{text}\""),
            )
        })
    }

    /// For the wire.
    pub(super) fn write(&self, format: i16) -> Option<Vec<u8>> {
        Some(match self {
            Self::Null => return None,
            Self::Bytes(bytes) => bytes.clone(),
            Self::Whole(whole, _) if format == 0 => whole.to_string().into_bytes(),
            Self::Whole(whole, INT8) => whole.to_be_bytes().to_vec(),
            Self::Whole(whole, INT2) => (*whole as i16).to_be_bytes().to_vec(),
            Self::Whole(whole, _) => (*whole as i32).to_be_bytes().to_vec(),
        })
    }
}

/// A text between quotes as the value that it means.
pub(super) fn unquoted(text: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        value.push(*byte);
        if *byte == b'\'' {
            bytes.next();
        }
    }
    value
}
