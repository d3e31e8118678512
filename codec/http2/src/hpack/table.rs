//! The dynamic table (RFC 7541 sections 2.3.2 and 4).

use std::collections::VecDeque;

use super::FIELD_BYTES_EXTRA;

/// The place of a field in the bytes of its table, and a note of the table's owner.
#[derive(Clone, Copy, Debug)]
struct Entry<N> {
    /// Counted from the first byte that the table ever had, modulo 2^32.
    start: u32,
    name_bytes: u32,
    value_bytes: u32,
    note: N,
}

impl<N> Entry<N> {
    fn size(&self) -> usize {
        self.name_bytes as usize + self.value_bytes as usize + FIELD_BYTES_EXTRA
    }
}

/// A dynamic table. New fields go to its front, with index 0, and old ones fall off its end. Names and values stand one behind the other in
/// one piece of memory, of at most twice the table's size; nothing is allocated before the first field.
#[derive(Debug)]
pub(super) struct Table<N> {
    /// The oldest first.
    entries: VecDeque<Entry<N>>,
    /// Names and values. At the front are those of fields that have gone.
    bytes: Vec<u8>,
    /// The number of the first of `bytes`, as entries count.
    base: u32,
    size: usize,
    size_max: usize,
    evicted: u32,
}

/// A field of a table.
#[derive(Clone, Copy)]
pub(super) struct TableField<'a, N> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) note: N,
}

impl<N: Copy> Table<N> {
    pub(super) fn new(size_max: u32) -> Self {
        Self { entries: VecDeque::new(), bytes: Vec::new(), base: 0, size: 0, size_max: size_max as usize, evicted: 0 }
    }

    /// Bytes that the fields may have at most, as RFC 7541 section 4.1 counts them.
    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }

    /// Sets the bytes that the fields may have at most, and removes the oldest fields above it.
    pub(super) fn set_size_max(&mut self, size_max: u32) {
        self.size_max = size_max as usize;
        self.evict(self.size_max);
        if self.entries.is_empty() {
            (self.entries, self.bytes) = (VecDeque::new(), Vec::new());
        }
    }

    /// The field with this index; the newest has 0.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<TableField<'_, N>> {
        let entry = self.entry(index)?;
        let start = entry.start.wrapping_sub(self.base) as usize;
        let bytes = &self.bytes[start..];
        let (name, rest) = bytes.split_at(entry.name_bytes as usize);
        Some(TableField { name, value: &rest[..entry.value_bytes as usize], note: entry.note })
    }

    /// The note of the field with this index.
    #[inline]
    pub(super) fn note(&self, index: usize) -> Option<N> {
        Some(self.entry(index)?.note)
    }

    #[inline]
    fn entry(&self, index: usize) -> Option<&Entry<N>> {
        self.entries.get(self.entries.len().wrapping_sub(index).wrapping_sub(1))
    }

    /// The number of the newest field, counted from 0 when the table was new, modulo 2^32; meaningless without a field.
    #[inline]
    pub(super) fn newest(&self) -> u32 {
        self.evicted.wrapping_add(self.entries.len() as u32).wrapping_sub(1)
    }

    /// Inserts a field. A field that is larger than the table only empties it (section 4.4): false.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], note: N) -> bool {
        let bytes = name.len() + value.len();
        let Some(rest) = self.size_max.checked_sub(bytes + FIELD_BYTES_EXTRA) else {
            self.evict(0);
            return false;
        };
        self.evict(rest);
        self.make_room(bytes);
        let start = self.base.wrapping_add(self.bytes.len() as u32);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(Entry { start, name_bytes: name.len() as u32, value_bytes: value.len() as u32, note });
        self.size += bytes + FIELD_BYTES_EXTRA;
        true
    }

    /// Removes the oldest fields until the others have at most `size` bytes.
    #[inline]
    fn evict(&mut self, size: usize) {
        while self.size > size
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.size();
            self.evicted = self.evicted.wrapping_add(1);
        }
    }

    /// Has room for so many bytes more.
    #[inline]
    fn make_room(&mut self, bytes: usize) {
        if self.bytes.capacity() - self.bytes.len() < bytes {
            self.compact_or_grow(bytes);
        }
    }

    /// Moves the live bytes to the front if they are at most as many as those that have gone, which pays for the move. Else the memory
    /// doubles, up to twice the table's size: then one of both is always enough.
    #[cold]
    fn compact_or_grow(&mut self, bytes: usize) {
        let gone = self.entries.front().map_or(self.bytes.len(), |entry| entry.start.wrapping_sub(self.base) as usize);
        if gone >= self.bytes.len() - gone {
            self.bytes.copy_within(gone.., 0);
            self.bytes.truncate(self.bytes.len() - gone);
            self.base = self.base.wrapping_add(gone as u32);
        }
        if self.bytes.capacity() - self.bytes.len() < bytes {
            let wanted = (self.bytes.capacity() * 2).max(256).min(2 * self.size_max).max(self.bytes.len() + bytes);
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
    }
}
