//! Header fields, in the order they came.

use crate::{
    known::{Known, KnownSet},
    token,
};

/// Bytes of a line besides name and value.
const LINE_BYTES: usize = b": \r\n".len();

/// Position of one field in the bytes of its [`Fields`].
#[derive(Clone, Copy, Debug)]
struct Span {
    known: Known,
    is_never_indexed: bool,
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
    /// The name as a known one, if the gateway knows it.
    pub known: Known,
    /// The name as received.
    pub name: &'a [u8],
    /// Without the blanks around it.
    pub value: &'a [u8],
    /// Its sender forbids tables of compression for it on all further hops: see [`Fields::never_index_last`].
    pub is_never_indexed: bool,
}

/// Header fields in order, each stored as its line on the wire (`Name: value CRLF`): forwarding unchanged fields is one copy.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// The names of the fields: most questions are about names that no field has.
    names: KnownSet,
}

impl Fields {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// None, with room for so many whose names and values have so many bytes in all.
    pub fn with_room(count: usize, bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes + LINE_BYTES * count),
            spans: Vec::with_capacity(count),
            names: KnownSet::default(),
        }
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True without one.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes of memory that it has, in use or not.
    pub fn room(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    /// Forgets all, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.names = KnownSet::default();
    }

    /// Adds a field at the end. The caller has checked that the name is a token and the value has no line end in it:
    /// see [`token`].
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_known(Known::of(name), name, value);
    }

    /// Adds a field at the end whose name the caller knows: `known` is [`Known::of`] of it. The same holds as for [`Fields::push`].
    pub fn push_known(&mut self, known: Known, name: &[u8], value: &[u8]) {
        debug_assert!(token::is_token(name) && token::is_field_value(value) && known == Known::of(name));
        self.bytes.reserve(name.len() + value.len() + LINE_BYTES);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        self.note(known, start, name.len());
    }

    /// Adds the field that `line` is, with one blank between colon and value, none behind it and no line end. `name_bytes`: the name's.
    pub(crate) fn push_line(&mut self, known: Known, line: &[u8], name_bytes: usize) {
        debug_assert!(line[name_bytes..].starts_with(b": ") && token::is_field_value(&line[name_bytes + 2..]));
        self.bytes.reserve(line.len() + 2);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(line);
        self.bytes.extend_from_slice(b"\r\n");
        self.note(known, start, name_bytes);
    }

    /// Notes the field whose line was added last.
    #[inline]
    fn note(&mut self, known: Known, start: usize, name_bytes: usize) {
        let name_end = start + name_bytes;
        self.spans.push(Span {
            known,
            is_never_indexed: false,
            start: start as u32,
            name_end: name_end as u32,
            value_start: (name_end + 2) as u32,
            value_end: (self.bytes.len() - 2) as u32,
        });
        self.names.insert(known);
    }

    /// Marks the last field as one that no table of compression may hold, on this hop and those behind it (RFC 7541 section 6.2.3): its value
    /// could be guessed by the lengths of messages. HTTP/1.1 knows no such mark.
    pub fn never_index_last(&mut self) {
        if let Some(last) = self.spans.last_mut() {
            last.is_never_indexed = true;
        }
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
        self.has(known) && self.retain(|field| field.known != known)
    }

    /// Takes all fields called `name` away; whether there was one.
    pub fn remove_named(&mut self, name: &[u8]) -> bool {
        self.retain(|field| !field.name.eq_ignore_ascii_case(name))
    }

    /// Removes all fields of several names in one pass: `known`, and `others`, which [`Known`] has not. True: there was one.
    pub fn remove_all(&mut self, known: &[Known], others: &[&[u8]]) -> bool {
        let names = KnownSet::of(known);
        let is_other = |name: &[u8]| others.iter().any(|other| name.eq_ignore_ascii_case(other));
        let is_one = |field: Field<'_>| match field.known {
            Known::Other => is_other(field.name),
            known => names.has(known),
        };
        let has_other = || !others.is_empty() && self.has(Known::Other) && self.iter().any(is_one);
        (self.has_any(names) || has_other()) && self.retain(|field| !is_one(field))
    }

    /// Keeps the fields that `keep` wants; whether one went.
    pub fn retain(&mut self, mut keep: impl FnMut(Field<'_>) -> bool) -> bool {
        let (bytes, before, names) = (&self.bytes, self.spans.len(), &mut self.names);
        *names = KnownSet::default();
        self.spans.retain(|span| {
            let is_kept = keep(field(bytes, *span));
            if is_kept {
                names.insert(span.known);
            }
            is_kept
        });
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
        let spans = if self.has(known) { &self.spans[..] } else { &[] };
        spans.iter().filter(move |span| span.known == known).map(|span| field(&self.bytes, *span).value)
    }

    /// The values of all fields called `name`.
    pub fn all_named<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// True if there is one.
    #[inline]
    pub fn has(&self, known: Known) -> bool {
        self.names.has(known)
    }

    /// True if there is one of `names`.
    #[inline]
    pub(crate) fn has_any(&self, names: KnownSet) -> bool {
        self.names.meets(names)
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
        is_never_indexed: span.is_never_indexed,
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
    fn fields_keep_their_order_and_case_and_only_removed_ones_go() {
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
        assert!(!fields.remove_all(&[Known::Cookie], &[b"x-two"]));
        fields.push(b"X-Two", b"2");
        fields.push(b"X-Three", b"3");
        fields.add(Known::Cookie, b"c");
        assert!(fields.remove_all(&[Known::Cookie], &[b"x-two", b"x-three"]));
        assert_eq!(fields.len(), 2);
        assert!(fields.has(Known::Accept) && !fields.has(Known::Connection) && !fields.has(Known::Other));
        fields.clear();
        assert_eq!(written(&fields), "");
        assert!(!fields.has(Known::Host) && fields.all(Known::Host).next().is_none());
    }
}
