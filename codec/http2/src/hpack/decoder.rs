//! Header blocks to fields (RFC 7541 sections 3 and 6).

use super::{FIELD_BYTES_EXTRA, HpackError, LIST_EXCESS_MAX, huffman, integer, static_table, table::Table};

/// Bytes of memory for decoded strings that a decoder keeps between blocks.
const SCRATCH_BYTES_KEPT: usize = 1024;

/// One decoded field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderField<'a> {
    /// The name as received.
    pub name: &'a [u8],
    /// The value as received.
    pub value: &'a [u8],
    /// The lowest index of this name in the static table (RFC 7541 appendix A), if the sender took the name from there: 1 is `:authority`,
    /// 8 is `:status`. 0: compare the name itself.
    pub static_name: u8,
    /// The sender forbids tables for it on all further hops (RFC 7541 section 6.2.3): see
    /// [`Encoder::field_never_indexed`](super::Encoder::field_never_indexed).
    pub is_never_indexed: bool,
}

/// The account of a whole block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodedBlock {
    /// Fields, also those beyond the limit.
    pub fields: usize,
    /// Bytes of names and values, and 32 for each field, also beyond the limit.
    pub list_bytes: usize,
    /// The limit was exceeded: the fields from there on did not go to the caller. The table is in step all the same.
    pub is_over: bool,
}

/// Decodes the header blocks of one direction.
#[derive(Debug)]
pub struct Decoder {
    /// Noted of each field: its [`HeaderField::static_name`].
    table: Table<u8>,
    /// The largest table that the peer may set.
    table_bytes_max: u32,
    /// The next block begins with a table size.
    must_resize: bool,
    /// Strings of the field at hand that are not bytes of the block.
    scratch: Vec<u8>,
}

/// A string of a field: bytes of the block, or of [`Decoder::scratch`] between two offsets.
#[derive(Clone, Copy)]
enum Text<'a> {
    Plain(&'a [u8]),
    Decoded(usize, usize),
}

impl<'a> Text<'a> {
    #[inline]
    fn bytes(self, scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Decoded(start, end) => &scratch[start..end],
        }
    }
}

/// The name of a literal.
enum Name<'a> {
    Text(Text<'a>),
    /// That of the field of the dynamic table with this index.
    Indexed(usize),
}

/// Fields on their way to the caller, up to a limit.
struct Fields<F> {
    block: DecodedBlock,
    list_bytes_max: usize,
    to: F,
}

impl<F: FnMut(HeaderField<'_>)> Fields<F> {
    #[inline]
    fn push(&mut self, field: HeaderField<'_>) -> Result<(), HpackError> {
        self.block.fields += 1;
        self.block.list_bytes += field.name.len() + field.value.len() + FIELD_BYTES_EXTRA;
        if self.block.list_bytes > self.list_bytes_max {
            return self.over();
        }
        (self.to)(field);
        Ok(())
    }

    #[cold]
    fn over(&mut self) -> Result<(), HpackError> {
        self.block.is_over = true;
        let is_bearable = self.block.list_bytes <= self.list_bytes_max.saturating_mul(LIST_EXCESS_MAX);
        if is_bearable { Ok(()) } else { Err(HpackError::ListTooLong) }
    }
}

impl Decoder {
    /// With an empty table of at most `table_bytes_max`: [`TABLE_BYTES_DEFAULT`](super::TABLE_BYTES_DEFAULT) until the peer has
    /// acknowledged another SETTINGS_HEADER_TABLE_SIZE of ours. Allocates with the first entry.
    pub fn new(table_bytes_max: u32) -> Self {
        Self { table: Table::new(table_bytes_max), table_bytes_max, must_resize: false, scratch: Vec::new() }
    }

    /// Takes another SETTINGS_HEADER_TABLE_SIZE of ours, once the peer has acknowledged it. The peer has to begin its next block with a
    /// table size if the table was larger (RFC 9113 section 4.3.1).
    pub fn set_table_bytes_max(&mut self, table_bytes_max: u32) {
        self.table_bytes_max = table_bytes_max;
        self.must_resize = self.table.size_max() > table_bytes_max as usize;
    }

    /// Decodes a whole block: the fragments of HEADERS and its CONTINUATION frames, one after the other. `field` gets every field in
    /// order, until they have more than `list_bytes_max` in all; the block is decoded to its end even then, unless the list goes beyond
    /// [`LIST_EXCESS_MAX`] times that. Work is linear in the block and in this bound.
    ///
    /// # Errors
    /// The connection ends: no further block can be decoded.
    pub fn decode(
        &mut self,
        block: &[u8],
        list_bytes_max: usize,
        field: impl FnMut(HeaderField<'_>),
    ) -> Result<DecodedBlock, HpackError> {
        let mut fields = Fields { block: DecodedBlock::default(), list_bytes_max, to: field };
        let mut rest = block;
        self.resize(&mut rest)?;
        while let Some(&first) = rest.first() {
            match first {
                0x80.. => self.indexed(integer::decode(&mut rest, 7)?, &mut fields)?,
                0x40.. => self.inserted(&mut rest, &mut fields)?,
                0x20.. => return Err(HpackError::TableSizeLate),
                _ => self.literal(&mut rest, first >= 0x10, &mut fields)?,
            }
        }
        if self.scratch.capacity() > SCRATCH_BYTES_KEPT {
            self.scratch = Vec::new();
        }
        Ok(fields.block)
    }

    /// Takes the table sizes at the start of a block (section 6.3).
    #[inline]
    fn resize(&mut self, rest: &mut &[u8]) -> Result<(), HpackError> {
        while let Some(0x20..0x40) = rest.first() {
            let size = integer::decode(rest, 5)?;
            if size > self.table_bytes_max {
                return Err(HpackError::TableSize);
            }
            self.table.set_size_max(size);
            self.must_resize = false;
        }
        if self.must_resize { Err(HpackError::TableSizeMissing) } else { Ok(()) }
    }

    /// A field of one of the tables (section 6.1).
    #[inline]
    fn indexed(&self, index: u32, fields: &mut Fields<impl FnMut(HeaderField<'_>)>) -> Result<(), HpackError> {
        let place = (index as usize).checked_sub(1).ok_or(HpackError::Index)?;
        let (name, value, static_name) = match static_table::FIELDS.get(place) {
            Some((name, value)) => (*name, *value, static_table::LOWEST[place + 1]),
            None => {
                let field = self.table.get(place - static_table::COUNT).ok_or(HpackError::Index)?;
                (field.name, field.value, field.note)
            }
        };
        fields.push(HeaderField { name, value, static_name, is_never_indexed: false })
    }

    /// A literal that the table keeps (section 6.2.1).
    fn inserted(
        &mut self,
        rest: &mut &[u8],
        fields: &mut Fields<impl FnMut(HeaderField<'_>)>,
    ) -> Result<(), HpackError> {
        let (name, static_name) = self.name(rest, 6)?;
        let name = match name {
            Name::Text(name) => name,
            Name::Indexed(index) => {
                // The insertion may evict the field that its name is taken from (section 4.4).
                self.scratch.extend_from_slice(self.table.get(index).ok_or(HpackError::Index)?.name);
                Text::Decoded(0, self.scratch.len())
            }
        };
        let value = self.text(rest)?;
        let (name, value) = (name.bytes(&self.scratch), value.bytes(&self.scratch));
        self.table.insert(name, value, static_name);
        fields.push(HeaderField { name, value, static_name, is_never_indexed: false })
    }

    /// A literal that the table does not keep (sections 6.2.2 and 6.2.3).
    fn literal(
        &mut self,
        rest: &mut &[u8],
        is_never_indexed: bool,
        fields: &mut Fields<impl FnMut(HeaderField<'_>)>,
    ) -> Result<(), HpackError> {
        let (name, static_name) = self.name(rest, 4)?;
        let value = self.text(rest)?.bytes(&self.scratch);
        let name = match name {
            Name::Text(name) => name.bytes(&self.scratch),
            Name::Indexed(index) => self.table.get(index).ok_or(HpackError::Index)?.name,
        };
        fields.push(HeaderField { name, value, static_name, is_never_indexed })
    }

    /// The name of a literal, and its place in the static table.
    #[inline]
    fn name<'a>(&mut self, rest: &mut &'a [u8], prefix_bits: u32) -> Result<(Name<'a>, u8), HpackError> {
        self.scratch.clear();
        Ok(match integer::decode(rest, prefix_bits)? as usize {
            0 => (Name::Text(self.text(rest)?), 0),
            index @ 1..=static_table::COUNT => {
                (Name::Text(Text::Plain(static_table::FIELDS[index - 1].0)), static_table::LOWEST[index])
            }
            index => {
                let index = index - static_table::COUNT - 1;
                (Name::Indexed(index), self.table.note(index).ok_or(HpackError::Index)?)
            }
        })
    }

    /// A string (section 5.2).
    #[inline]
    fn text<'a>(&mut self, rest: &mut &'a [u8]) -> Result<Text<'a>, HpackError> {
        let is_huffman = rest.first().is_some_and(|first| first & 0x80 != 0);
        let bytes = integer::decode(rest, 7)? as usize;
        let (text, behind) = rest.split_at_checked(bytes).ok_or(HpackError::Truncated)?;
        *rest = behind;
        if !is_huffman {
            return Ok(Text::Plain(text));
        }
        let start = self.scratch.len();
        huffman::decode(&mut self.scratch, text)?;
        Ok(Text::Decoded(start, self.scratch.len()))
    }
}
