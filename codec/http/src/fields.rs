//! Header fields, in the order they came.

use crate::{known::Known, token};

/// What a line has besides name and value.
const LINE_BYTES: usize = b": \r\n".len();

/// Where one field stands in the bytes of its [`Fields`].
#[derive(Clone, Copy, Debug)]
struct Span {
    known: Known,
    start: u32,
    name_end: u32,
    value_start: u32,
    value_end: u32,
}

impl Span {
    /// Behind the line end.
    fn end(self) -> usize {
        self.value_end as usize + 2
    }
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// What the name is, if the gateway knows it.
    pub known: Known,
    /// As it came.
    pub name: &'a [u8],
    /// Without the blanks around it.
    pub value: &'a [u8],
}

/// Header fields in order, each kept as its line on the wire (`Name: value CRLF`): those that are forwarded as they came
/// are one copy.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Fields {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// None, with room for so many whose names and values have so many bytes in all.
    pub fn with_room(count: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes + LINE_BYTES * count), spans: Vec::with_capacity(count) }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True without one.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Forgets all, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Adds a field at the end. The caller has checked that the name is a token and the value has no line end in it:
    /// see [`token`].
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_known(Known::of(name), name, value);
    }

    pub(crate) fn push_known(&mut self, known: Known, name: &[u8], value: &[u8]) {
        debug_assert!(token::is_token(name) && token::is_field_value(value));
        let start = self.bytes.len();
        self.bytes.reserve(name.len() + value.len() + LINE_BYTES);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        let name_end = start + name.len();
        let value_start = name_end + 2;
        self.spans.push(Span {
            known,
            start: start as u32,
            name_end: name_end as u32,
            value_start: value_start as u32,
            value_end: (value_start + value.len()) as u32,
        });
    }

    /// Adds a field of a known name in lower case.
    pub fn add(&mut self, known: Known, value: &[u8]) {
        self.push_known(known, known.name().as_bytes(), value);
    }

    /// Replaces all fields of a known name by one.
    pub fn set(&mut self, known: Known, value: &[u8]) {
        self.remove(known);
        self.add(known, value);
    }

    /// Replaces all fields called `name` by one.
    pub fn set_named(&mut self, name: &[u8], value: &[u8]) {
        self.remove_named(name);
        self.push(name, value);
    }

    /// Takes all fields of a known name away; whether there was one.
    pub fn remove(&mut self, known: Known) -> bool {
        self.retain(|field| field.known != known)
    }

    /// Takes all fields called `name` away; whether there was one.
    pub fn remove_named(&mut self, name: &[u8]) -> bool {
        self.retain(|field| !field.name.eq_ignore_ascii_case(name))
    }

    /// Keeps the fields that `keep` wants; whether one went.
    pub fn retain(&mut self, mut keep: impl FnMut(Field<'_>) -> bool) -> bool {
        let (bytes, before) = (&self.bytes, self.spans.len());
        self.spans.retain(|span| keep(field(bytes, *span)));
        self.spans.len() < before
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        self.spans.iter().map(|span| field(&self.bytes, *span))
    }

    /// The value of the first field of a known name.
    pub fn get(&self, known: Known) -> Option<&[u8]> {
        self.all(known).next()
    }

    /// The values of all fields of a known name.
    pub fn all(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        self.iter().filter(move |field| field.known == known).map(|field| field.value)
    }

    /// The values of all fields called `name`.
    pub fn all_named<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// True if there is one.
    pub fn has(&self, known: Known) -> bool {
        self.spans.iter().any(|span| span.known == known)
    }

    /// Appends all lines, each with its line end, as few copies as there are gaps between what is left.
    pub fn write(&self, into: &mut Vec<u8>) {
        let mut spans = self.spans.iter();
        let Some(first) = spans.next() else { return };
        let (mut start, mut end) = (first.start as usize, first.end());
        for span in spans {
            if span.start as usize != end {
                into.extend_from_slice(&self.bytes[start..end]);
                start = span.start as usize;
            }
            end = span.end();
        }
        into.extend_from_slice(&self.bytes[start..end]);
    }
}

fn field(bytes: &[u8], span: Span) -> Field<'_> {
    Field {
        known: span.known,
        name: &bytes[span.start as usize..span.name_end as usize],
        value: &bytes[span.value_start as usize..span.value_end as usize],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(fields: &Fields) -> String {
        let mut bytes = Vec::new();
        fields.write(&mut bytes);
        String::from_utf8(bytes).expect("ASCII")
    }

    #[test]
    fn fields_keep_their_order_and_case_and_lose_only_what_is_removed() {
        let mut fields = Fields::new();
        assert_eq!(written(&fields), "");
        for (name, value) in [("Host", "a"), ("X-One", "1"), ("Connection", "close"), ("x-one", "2"), ("Accept", "")] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        assert!(fields.remove(Known::Connection) && !fields.remove(Known::Te));
        assert_eq!(written(&fields), "Host: a\r\nX-One: 1\r\nx-one: 2\r\nAccept: \r\n");
        assert_eq!(fields.all_named(b"X-ONE").collect::<Vec<_>>(), [b"1", b"2"]);
        fields.set(Known::Host, b"b");
        assert!(fields.remove_named(b"X-One"));
        assert_eq!(written(&fields), "Accept: \r\nhost: b\r\n");
        assert_eq!((fields.len(), fields.get(Known::Host)), (2, Some(&b"b"[..])));
        fields.clear();
        assert_eq!(written(&fields), "");
    }
}
