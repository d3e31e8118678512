//! Rows and their description (`T`, `D`), and the columns of a COPY (`G`, `H`, `W`).

use super::tag;
use crate::body::{Body, Formats, Values};
use crate::error::MessageError;
use crate::write::{counted, message, string, values};

/// A column of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// Name.
    pub name: &'a [u8],
    /// OID of the table it comes from, or 0.
    pub table_oid: u32,
    /// Its number in this table, or 0.
    pub attribute: i16,
    /// OID of its type.
    pub type_oid: u32,
    /// Bytes of a value; negative for types of variable size.
    pub type_size: i16,
    /// Modifier of the type; -1 for none.
    pub type_modifier: i32,
    /// 0 is text, 1 binary.
    pub format: i16,
}

impl<'a> Column<'a> {
    /// A column of no table, in text form, of a type with this OID and size.
    pub const fn text(name: &'a [u8], type_oid: u32, type_size: i16) -> Self {
        Self { name, table_oid: 0, attribute: 0, type_oid, type_size, type_modifier: -1, format: 0 }
    }

    fn read(body: &mut Body<'a>) -> Result<Self, MessageError> {
        Ok(Self {
            name: body.string()?,
            table_oid: body.u32()?,
            attribute: body.i16()?,
            type_oid: body.u32()?,
            type_size: body.i16()?,
            type_modifier: body.i32()?,
            format: body.i16()?,
        })
    }

    fn write(self, out: &mut Vec<u8>) {
        string(out, self.name);
        out.extend_from_slice(&self.table_oid.to_be_bytes());
        out.extend_from_slice(&self.attribute.to_be_bytes());
        out.extend_from_slice(&self.type_oid.to_be_bytes());
        out.extend_from_slice(&self.type_size.to_be_bytes());
        out.extend_from_slice(&self.type_modifier.to_be_bytes());
        out.extend_from_slice(&self.format.to_be_bytes());
    }
}

/// The columns of the rows that follow (`T`), already checked.
#[derive(Clone, Copy, Debug)]
pub struct RowDescription<'a> {
    count: usize,
    columns: Body<'a>,
}

impl<'a> RowDescription<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let count = body.count()?;
        let columns = body;
        for _ in 0..count {
            Column::read(&mut body)?;
        }
        body.end()?;
        Ok(Self { count, columns })
    }

    /// How many columns.
    pub const fn len(self) -> usize {
        self.count
    }

    /// A row without columns.
    pub const fn is_empty(self) -> bool {
        self.count == 0
    }

    /// In order.
    pub fn iter(self) -> impl Iterator<Item = Column<'a>> {
        let mut columns = self.columns;
        // All were checked: a column is there while any byte is.
        std::iter::from_fn(move || Column::read(&mut columns).ok())
    }
}

/// A row (`D`), already checked.
#[derive(Clone, Copy, Debug)]
pub struct DataRow<'a>(Values<'a>);

impl<'a> DataRow<'a> {
    /// # Errors
    /// The body does not have this form.
    #[inline]
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let values = body.values()?;
        body.end()?;
        Ok(Self(values))
    }

    /// How many values.
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// A row without columns.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// In order; `None` is SQL's NULL.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Option<&'a [u8]>> {
        self.0.iter()
    }
}

/// A COPY begins (`G`, `H`, `W`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyResponse<'a> {
    /// The data is binary.
    pub is_binary: bool,
    /// Formats of the columns.
    pub columns: Formats<'a>,
}

impl<'a> CopyResponse<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let is_binary = match body.u8()? {
            0 => false,
            1 => true,
            _ => return Err(MessageError::CopyFormat),
        };
        let columns = body.formats()?;
        body.end()?;
        Ok(Self { is_binary, columns })
    }
}

/// RowDescription.
pub fn row_description<'a>(out: &mut Vec<u8>, columns: impl IntoIterator<Item = Column<'a>>) {
    message(out, tag::ROW_DESCRIPTION, |out| counted(out, columns, |out, column| column.write(out)));
}

/// DataRow.
#[inline]
pub fn data_row<'a>(out: &mut Vec<u8>, row: impl IntoIterator<Item = Option<&'a [u8]>>) {
    message(out, tag::DATA_ROW, |out| values(out, row));
}
