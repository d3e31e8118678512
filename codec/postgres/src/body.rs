//! The checked reader behind all views.

use crate::error::MessageError;

/// The unread end of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Everything that is left.
    #[inline]
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Nothing is left.
    #[inline]
    pub(crate) const fn end(self) -> Result<(), MessageError> {
        if self.0.is_empty() { Ok(()) } else { Err(MessageError::Trailing) }
    }

    /// The bytes before the next NUL.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<&'a [u8], MessageError> {
        let end = memchr::memchr(0, self.0).ok_or(MessageError::String)?;
        let (string, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(string)
    }

    #[inline]
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], MessageError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(MessageError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(MessageError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, MessageError> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn i16(&mut self) -> Result<i16, MessageError> {
        self.array().map(i16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn i32(&mut self) -> Result<i32, MessageError> {
        self.array().map(i32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, MessageError> {
        self.array().map(u32::from_be_bytes)
    }

    /// A count in 16 bits. PostgreSQL reads it without a sign: a Bind has up to 65,535 parameters.
    #[inline]
    pub(crate) fn count(&mut self) -> Result<usize, MessageError> {
        self.array().map(|bytes| usize::from(u16::from_be_bytes(bytes)))
    }

    /// A length and as many bytes; `None`: the length is -1, which is SQL's NULL.
    #[inline]
    pub(crate) fn value(&mut self) -> Result<Option<&'a [u8]>, MessageError> {
        match self.i32()? {
            -1 => Ok(None),
            length => self.bytes(usize::try_from(length).map_err(|_| MessageError::Short)?).map(Some),
        }
    }

    /// As many format codes as the count in front of them says.
    #[inline]
    pub(crate) fn formats(&mut self) -> Result<Formats<'a>, MessageError> {
        let count = self.count()?;
        self.bytes(2 * count).map(Formats)
    }

    /// As many values as the count in front of them says.
    #[inline]
    pub(crate) fn values(&mut self) -> Result<Values<'a>, MessageError> {
        let count = self.count()?;
        let start = self.0;
        for _ in 0..count {
            self.value()?;
        }
        Ok(Values { count, body: Body(&start[..start.len() - self.0.len()]) })
    }
}

/// Type OIDs as they are in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oids<'a>(&'a [u8]);

impl<'a> Oids<'a> {
    pub(crate) fn read(body: &mut Body<'a>) -> Result<Self, MessageError> {
        let count = body.count()?;
        body.bytes(4 * count).map(Self)
    }

    /// How many.
    pub const fn len(self) -> usize {
        self.0.len() / 4
    }

    /// There are none.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// In order; 0 leaves a type to the server.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.0.chunks_exact(4).map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]))
    }
}

/// Format codes as they are in a message: 0 is text, 1 binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats<'a>(&'a [u8]);

impl<'a> Formats<'a> {
    /// How many.
    pub const fn len(self) -> usize {
        self.0.len() / 2
    }

    /// There are none: everything is text.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// In order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = i16> + 'a {
        self.0.chunks_exact(2).map(|format| i16::from_be_bytes([format[0], format[1]]))
    }

    /// The format of value `index`: none means text for all, one code means the same for all.
    pub fn of(self, index: usize) -> i16 {
        let at = if self.len() == 1 { 0 } else { index };
        self.iter().nth(at).unwrap_or(0)
    }
}

/// Values as they are in a message, already checked.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    count: usize,
    body: Body<'a>,
}

impl<'a> Values<'a> {
    /// How many.
    pub const fn len(self) -> usize {
        self.count
    }

    /// There are none.
    pub const fn is_empty(self) -> bool {
        self.count == 0
    }

    /// In order; `None` is SQL's NULL.
    pub fn iter(self) -> impl Iterator<Item = Option<&'a [u8]>> {
        let mut body = self.body;
        // The lengths were checked: a value is there while any byte is.
        std::iter::from_fn(move || if body.is_empty() { None } else { body.value().ok() })
    }
}
