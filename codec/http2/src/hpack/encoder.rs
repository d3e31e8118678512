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

/// Lists of the fields of a table by their hash.
const BUCKETS: usize = 64;

/// Hashes of fields that were not indexed when they came, the last ones.
const SEEN: usize = 32;

const INDEXED: u8 = 0x80;
const INSERTED: u8 = 0x40;
const TABLE_SIZE: u8 = 0x20;
const NEVER_INDEXED: u8 = 0x10;
const LITERAL: u8 = 0;

/// What the encoder notes of a field in its table.
#[derive(Clone, Copy, Debug)]
struct Note {
    hash: u32,
    /// The number of the field before it in its bucket. It has gone if it is older than the oldest of the table.
    before: u32,
    /// See [`static_table::find`].
    static_name: u8,
}

/// Encodes the header blocks of one direction: [`Encoder::begin`], then each field in order, pseudo-header fields first. A block that has
/// begun must be sent, or the peer's table is out of step.
#[derive(Debug)]
pub struct Encoder {
    table: Table<Note>,
    /// The number of the newest field of each bucket.
    buckets: Option<Box<[u32; BUCKETS]>>,
    seen: [u16; SEEN],
    /// What the table's size will be, and the least that it had to be since the last block.
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
        Self { table: Table::new(size), buckets: None, seen: [0; SEEN], size_next: size, size_least: size }
    }

    /// Takes the peer's SETTINGS_HEADER_TABLE_SIZE. The next block begins with what it needs to know of that. The caller takes all
    /// settings in the order in which they came.
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
            Indexing::Once => self.indexed(into, static_name, name, value, true),
            Indexing::Cookie if value.len() < COOKIE_BYTES_MIN => {
                literal(into, NEVER_INDEXED, static_name, name, value)
            }
            Indexing::Repeated | Indexing::Cookie => self.indexed(into, static_name, name, value, false),
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

    /// Appends a field as its place in the table, or as a literal that goes into the table: at once, or when it was seen before.
    fn indexed(&mut self, into: &mut Vec<u8>, static_name: u8, name: &[u8], value: &[u8], at_once: bool) {
        let hash = hash(static_name, name, value);
        if let Some(index) = self.find(hash, static_name, name, value) {
            integer::encode(into, index, 7, INDEXED);
            return;
        }
        // A field that takes the place of most others is not worth it.
        let fits = name.len() + value.len() + FIELD_BYTES_EXTRA <= self.table.size_max() / 4 * 3;
        if fits && (at_once || self.is_seen(hash)) {
            literal(into, INSERTED, static_name, name, value);
            self.insert(hash, static_name, name, value);
        } else {
            literal(into, LITERAL, static_name, name, value);
        }
    }

    /// The index of a field of the table.
    #[inline]
    fn find(&self, hash: u32, static_name: u8, name: &[u8], value: &[u8]) -> Option<u32> {
        let newest = self.table.newest();
        let mut number = self.buckets.as_ref()?[hash as usize % BUCKETS];
        let mut index_min = 0;
        // The list ends at the first field that has gone: those before it went earlier.
        loop {
            let index = newest.wrapping_sub(number);
            let field = self.table.get(index as usize)?;
            // A number is taken again after 2^32 fields.
            if index < index_min {
                return None;
            }
            index_min = index + 1;
            let is_same = field.note.hash == hash
                && field.value == value
                && field.note.static_name == static_name
                && (static_name != 0 || field.name == name);
            if is_same {
                return Some(static_table::COUNT as u32 + 1 + index);
            }
            number = field.note.before;
        }
    }

    fn insert(&mut self, hash: u32, static_name: u8, name: &[u8], value: &[u8]) {
        let gone = self.table.newest();
        let buckets = self.buckets.get_or_insert_with(|| Box::new([gone; BUCKETS]));
        let bucket = &mut buckets[hash as usize % BUCKETS];
        let note = Note { hash, before: *bucket, static_name };
        let is_inserted = self.table.insert(name, value, note);
        debug_assert!(is_inserted);
        *bucket = self.table.newest();
    }

    /// True if the field came before, not long ago. Other fields with its hash pass for it, which costs their room in the table.
    fn is_seen(&mut self, hash: u32) -> bool {
        let (place, mark) = (hash as usize / BUCKETS % SEEN, (hash >> 16) as u16 | 1);
        std::mem::replace(&mut self.seen[place], mark) == mark
    }
}

/// Appends a literal, whose first byte begins with `pattern`.
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
    let bytes = huffman::encoded_bytes(text);
    if bytes < text.len() {
        integer::encode(into, bytes as u32, 7, 0x80);
        huffman::encode(into, text);
    } else {
        integer::encode(into, text.len() as u32, 7, 0);
        into.extend_from_slice(text);
    }
}

/// A hash of the field. Its lists are short, whatever a peer makes them: the table holds 128 fields at most.
#[inline]
fn hash(static_name: u8, name: &[u8], value: &[u8]) -> u32 {
    let name = if static_name == 0 { hash_bytes(0, name) } else { u64::from(static_name) };
    let hash = hash_bytes(name, value);
    (hash ^ hash >> 32) as u32
}

#[inline]
fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(FACTOR);
        product as u64 ^ (product >> 64) as u64
    };
    let (words, rest) = bytes.as_chunks();
    let hash = words.iter().fold(seed ^ bytes.len() as u64 ^ FACTOR, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(hash, u64::from_le_bytes(last))
}
