//! Fields to header blocks (RFC 7541 sections 4.2 and 6).
//!
//! The encoder looks for a field in the static table, then in its own. A field that neither has goes out as a literal, and into the table
//! if the policy of its name says so: see [`Indexing`]. Strings are in Huffman code where that is shorter.

use super::{
    FIELD_BYTES_EXTRA, TABLE_BYTES_DEFAULT, huffman, integer,
    static_table::{self, Indexing},
    table::Table,
};

/// Bytes of the dynamic table, even where the peer allows more. Worst case with its indices: 15 KiB for a connection.
pub const ENCODER_TABLE_BYTES_MAX: u32 = 4096;

/// Cookies below this many bytes are never indexed: a guess at them may succeed. nghttp2 draws the line here too.
const COOKIE_BYTES_MIN: usize = 20;

/// Lists of the fields of a table: one for each name of the static table, and as many for other names.
const LISTS: usize = 128;
const LISTS_STATIC: usize = 64;
const LIST_SHIFT: u32 = u32::BITS - (LISTS - LISTS_STATIC).ilog2();
const _: () = assert!(static_table::COUNT < LISTS_STATIC && LISTS == 2 * LISTS_STATIC);

/// Hashes of fields that were not indexed when they came, the last ones.
const SEEN: usize = 32;

/// The index of the newest field of the dynamic table.
const INDEX_MIN: u32 = static_table::COUNT as u32 + 1;

const INDEXED: u8 = 0x80;
const INSERTED: u8 = 0x40;
const TABLE_SIZE: u8 = 0x20;
const NEVER_INDEXED: u8 = 0x10;
const LITERAL: u8 = 0;
const HUFFMAN: u8 = 0x80;

/// The encoder's notes about a field of its table.
#[derive(Clone, Copy, Debug)]
struct Note {
    /// See [`tag`].
    value: u32,
    /// The number of the field before it in its list. It has gone if it is older than the oldest of the table.
    before: u32,
}

/// Encodes the header blocks of one direction: [`Encoder::begin`], then each field in order, pseudo-header fields first. A block that has
/// begun must be sent, or the peer's table is out of step.
#[derive(Debug)]
pub struct Encoder {
    table: Table<Note>,
    /// The number of the newest field of each list.
    lists: Option<Box<[u32; LISTS]>>,
    seen: [u16; SEEN],
    /// The table's next size, and the least one that the peer has allowed since the last block.
    size_next: u32,
    size_least: u32,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// With an empty table. Allocates with the first entry.
    pub fn new() -> Self {
        let size = TABLE_BYTES_DEFAULT.min(ENCODER_TABLE_BYTES_MAX);
        Self { table: Table::new(size), lists: None, seen: [0; SEEN], size_next: size, size_least: size }
    }

    /// Takes the peer's SETTINGS_HEADER_TABLE_SIZE. The next block begins with the sizes that the peer has to know.
    /// The caller takes all settings in the order in which they came.
    pub fn set_table_bytes_max(&mut self, table_bytes_max: u32) {
        self.size_next = table_bytes_max.min(ENCODER_TABLE_BYTES_MAX);
        self.size_least = self.size_least.min(self.size_next);
    }

    /// Begins a block.
    #[inline]
    pub fn begin(&mut self, into: &mut Vec<u8>) {
        let size = self.table.size_max() as u32;
        if self.size_least != size || self.size_next != size {
            self.resize(into);
        }
    }

    /// Appends the least size and then the last one (section 4.2).
    #[cold]
    fn resize(&mut self, into: &mut Vec<u8>) {
        for size in [self.size_least, self.size_next] {
            if self.table.size_max() != size as usize {
                integer::encode(into, size, 5, TABLE_SIZE);
                self.table.set_size_max(size);
            }
        }
        self.size_least = self.size_next;
    }

    /// Appends a field with a name in lower case.
    pub fn field(&mut self, into: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let (static_name, indexing) = static_table::find(name);
        if let Some(index) = static_table::find_value(static_name, value) {
            into.push(INDEXED | index);
            return;
        }
        match indexing {
            Indexing::Cookie if value.len() < COOKIE_BYTES_MIN => {
                literal(into, NEVER_INDEXED, static_name, name, value)
            }
            Indexing::Once | Indexing::Repeated | Indexing::Cookie => match self.find(static_name, name, value) {
                Some(index) => integer::encode(into, index, 7, INDEXED),
                None => self.not_found(into, static_name, name, value, indexing == Indexing::Once),
            },
            Indexing::Literal => literal(into, LITERAL, static_name, name, value),
            Indexing::Never => literal(into, NEVER_INDEXED, static_name, name, value),
        }
    }

    /// Appends a field that no table on the way may hold (RFC 7541 section 6.2.3).
    pub fn field_never_indexed(&mut self, into: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        literal(into, NEVER_INDEXED, static_table::find(name).0, name, value);
    }

    /// Appends `:status`. `status`: from 100 to 999.
    #[inline]
    pub fn status(&mut self, into: &mut Vec<u8>, status: u16) {
        debug_assert!((100..=999).contains(&status));
        if status == 200 {
            into.push(INDEXED | 8);
            return;
        }
        let digits = [status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
        self.field(into, b":status", &digits);
    }

    /// Appends a literal that goes into the table at once, or when it was seen before.
    #[cold]
    fn not_found(&mut self, into: &mut Vec<u8>, static_name: u8, name: &[u8], value: &[u8], at_once: bool) {
        // A field that takes the place of most others is not worth it.
        let fits = name.len() + value.len() + FIELD_BYTES_EXTRA <= self.table.size_max() / 4 * 3;
        if fits && (at_once || self.is_seen(name, value)) {
            literal(into, INSERTED, static_name, name, value);
            self.insert(static_name, name, value);
        } else {
            literal(into, LITERAL, static_name, name, value);
        }
    }

    /// The index of a field of the table: most often of the newest of its list.
    #[inline]
    fn find(&self, static_name: u8, name: &[u8], value: &[u8]) -> Option<u32> {
        let number = self.lists.as_ref()?[list(static_name, name)];
        let index = self.table.newest().wrapping_sub(number);
        let note = self.table.note(index as usize)?;
        if note.value == tag(value) && self.is_field(index, static_name, name, value) {
            return Some(index.wrapping_add(INDEX_MIN));
        }
        self.find_older(index, note, static_name, name, value)
    }

    /// The index of an older field of a list. The list is short, whatever a peer does: the table holds 128 fields at most.
    #[cold]
    fn find_older(&self, newer: u32, note: Note, static_name: u8, name: &[u8], value: &[u8]) -> Option<u32> {
        let (tag, newest) = (tag(value), self.table.newest());
        let (mut newer, mut number) = (newer, note.before);
        // The list ends at the first field that has gone: those before it went earlier.
        loop {
            let index = newest.wrapping_sub(number);
            let note = self.table.note(index as usize)?;
            // A number is taken again after 2^32 fields.
            if index <= newer {
                return None;
            }
            if note.value == tag && self.is_field(index, static_name, name, value) {
                return Some(index.wrapping_add(INDEX_MIN));
            }
            (newer, number) = (index, note.before);
        }
    }

    #[inline]
    fn is_field(&self, index: u32, static_name: u8, name: &[u8], value: &[u8]) -> bool {
        let field = self.table.get(index as usize);
        // A list of the static table's has one name.
        field.is_some_and(|field| field.value == value && (static_name != 0 || field.name == name))
    }

    fn insert(&mut self, static_name: u8, name: &[u8], value: &[u8]) {
        let gone = self.table.newest();
        let lists = self.lists.get_or_insert_with(|| Box::new([gone; LISTS]));
        let list = &mut lists[list(static_name, name)];
        let is_inserted = self.table.insert(name, value, Note { value: tag(value), before: *list });
        debug_assert!(is_inserted);
        *list = self.table.newest();
    }

    /// True if the field came before, not long ago. Other fields with its hash pass for it, which costs their room in the table.
    fn is_seen(&mut self, name: &[u8], value: &[u8]) -> bool {
        let hash = hash(hash(0, name), value);
        let (place, mark) = (hash as usize % SEEN, (hash >> 48) as u16 | 1);
        std::mem::replace(&mut self.seen[place], mark) == mark
    }
}

/// The list of a name.
#[inline]
fn list(static_name: u8, name: &[u8]) -> usize {
    if static_name != 0 {
        return usize::from(static_name);
    }
    LISTS_STATIC + (tag(name).wrapping_mul(0x9e37_79b1) >> LIST_SHIFT) as usize
}

/// Length and last bytes of a text: most other texts have another tag.
#[inline]
fn tag(text: &[u8]) -> u32 {
    let last =
        text.last_chunk().map_or_else(|| text.last().map_or(0, |&byte| byte.into()), |last| u32::from_le_bytes(*last));
    last ^ text.len() as u32
}

fn hash(seed: u64, text: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product as u64 ^ (product >> 64) as u64
    };
    let (words, rest) = text.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let start = seed ^ (text.len() as u64).rotate_left(32);
    mix(words.iter().chain([&last]).fold(start, |hash, word| mix(hash, u64::from_le_bytes(*word))), seed)
}

/// Appends a literal, whose first byte begins with `pattern`.
#[inline(never)]
fn literal(into: &mut Vec<u8>, pattern: u8, static_name: u8, name: &[u8], value: &[u8]) {
    let prefix_bits = if pattern == INSERTED { 6 } else { 4 };
    integer::encode(into, u32::from(static_name), prefix_bits, pattern);
    if static_name == 0 {
        text(into, name);
    }
    text(into, value);
}

/// Appends a string (section 5.2).
#[inline]
fn text(into: &mut Vec<u8>, text: &[u8]) {
    let start = into.len();
    integer::encode(into, text.len() as u32, 7, 0);
    let text_start = into.len();
    // Room for the text, with the text in it unless its code is shorter.
    into.resize(text_start + text.len(), 0);
    let Some(bytes) = huffman::encode(&mut into[text_start..], text) else {
        into[text_start..].copy_from_slice(text);
        return;
    };
    into.truncate(text_start + bytes);
    if text_start - start == 1 {
        into[start] = HUFFMAN | bytes as u8;
    } else {
        put_length(into, start, text_start);
    }
}

/// Replaces the length of a text, which stands at `start`, by that of the code that stands at `text_start`.
#[cold]
fn put_length(into: &mut Vec<u8>, start: usize, text_start: usize) {
    let mut length = Vec::new();
    integer::encode(&mut length, (into.len() - text_start) as u32, 7, HUFFMAN);
    into.splice(start..text_start, length);
}
