//! Values of the four types, each of which knows its bytes.

use std::collections::{HashMap, HashSet, VecDeque};

use super::errors::{Refusal, WRONG_TYPE};

/// A member of a list, set or hash.
pub type Item = Box<[u8]>;

/// Beside the bytes of a list element: its place in the ring and the allocator's share.
const LIST_ITEM_BYTES: usize = 32;
/// Beside the bytes of a set member: its place in a table that is at most seven eighths full.
const SET_ITEM_BYTES: usize = 48;
/// Beside the bytes of a hash field and its value.
const HASH_ITEM_BYTES: usize = 80;

/// The value of a key.
#[derive(Debug)]
pub enum Value {
    /// Bytes, or digits.
    Str(Vec<u8>),
    /// Never empty once stored.
    List(List),
    /// Never empty once stored.
    Hash(Hash),
    /// Never empty once stored.
    Set(Set),
}

/// A list and the bytes it holds.
#[derive(Debug, Default)]
pub struct List {
    items: VecDeque<Item>,
    bytes: usize,
}

/// A hash and the bytes it holds.
#[derive(Debug, Default)]
pub struct Hash {
    fields: HashMap<Item, Item>,
    bytes: usize,
}

/// A set and the bytes it holds.
#[derive(Debug, Default)]
pub struct Set {
    members: HashSet<Item>,
    bytes: usize,
}

impl Value {
    /// The name that `TYPE` returns.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Str(_) => "string",
            Value::List(_) => "list",
            Value::Hash(_) => "hash",
            Value::Set(_) => "set",
        }
    }

    /// Bytes to account for.
    pub fn bytes(&self) -> usize {
        match self {
            Value::Str(text) => text.capacity(),
            Value::List(list) => list.bytes,
            Value::Hash(hash) => hash.bytes,
            Value::Set(set) => set.bytes,
        }
    }

    /// A container without members, whose key is removed.
    pub fn is_vacant(&self) -> bool {
        match self {
            Value::Str(_) => false,
            Value::List(list) => list.items.is_empty(),
            Value::Hash(hash) => hash.fields.is_empty(),
            Value::Set(set) => set.members.is_empty(),
        }
    }

    pub fn string(&self) -> Result<&[u8], Refusal> {
        if let Value::Str(text) = self { Ok(text) } else { Err(WRONG_TYPE) }
    }

    pub fn string_mut(&mut self) -> Result<&mut Vec<u8>, Refusal> {
        if let Value::Str(text) = self { Ok(text) } else { Err(WRONG_TYPE) }
    }

    pub fn list(&self) -> Result<&List, Refusal> {
        if let Value::List(list) = self { Ok(list) } else { Err(WRONG_TYPE) }
    }

    pub fn list_mut(&mut self) -> Result<&mut List, Refusal> {
        if let Value::List(list) = self { Ok(list) } else { Err(WRONG_TYPE) }
    }

    pub fn hash(&self) -> Result<&Hash, Refusal> {
        if let Value::Hash(hash) = self { Ok(hash) } else { Err(WRONG_TYPE) }
    }

    pub fn hash_mut(&mut self) -> Result<&mut Hash, Refusal> {
        if let Value::Hash(hash) = self { Ok(hash) } else { Err(WRONG_TYPE) }
    }

    pub fn set(&self) -> Result<&Set, Refusal> {
        if let Value::Set(set) = self { Ok(set) } else { Err(WRONG_TYPE) }
    }

    pub fn set_mut(&mut self) -> Result<&mut Set, Refusal> {
        if let Value::Set(set) = self { Ok(set) } else { Err(WRONG_TYPE) }
    }
}

/// Which end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Left,
    Right,
}

impl List {
    pub fn push(&mut self, end: End, item: &[u8]) {
        self.bytes += LIST_ITEM_BYTES + item.len();
        match end {
            End::Left => self.items.push_front(item.into()),
            End::Right => self.items.push_back(item.into()),
        }
    }

    pub fn pop(&mut self, end: End) -> Option<Item> {
        let item = match end {
            End::Left => self.items.pop_front(),
            End::Right => self.items.pop_back(),
        }?;
        self.bytes -= LIST_ITEM_BYTES + item.len();
        Some(item)
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Elements from `first` to `last`, both included; negative ones count from the end, as in `LRANGE`.
    pub fn range(&self, first: i64, last: i64) -> impl ExactSizeIterator<Item = &Item> {
        let len = self.items.len() as i64;
        let from_start = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
        let first = from_start(first).clamp(0, len);
        let end = from_start(last).saturating_add(1).clamp(first, len);
        self.items.range(first as usize..end as usize)
    }
}

impl Hash {
    /// True if the field is new.
    pub fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        if let Some(held) = self.fields.get_mut(field) {
            self.bytes = self.bytes - held.len() + value.len();
            *held = value.into();
            return false;
        }
        self.bytes += HASH_ITEM_BYTES + field.len() + value.len();
        self.fields.insert(field.into(), value.into());
        true
    }

    pub fn remove(&mut self, field: &[u8]) -> bool {
        let Some((field, value)) = self.fields.remove_entry(field) else { return false };
        self.bytes -= HASH_ITEM_BYTES + field.len() + value.len();
        true
    }

    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.fields.get(field).map(|value| &**value)
    }

    pub fn len(&self) -> usize {
        self.fields.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Item, &Item)> {
        self.fields.iter()
    }
}

impl Set {
    /// True if the member is new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        let is_new = !self.members.contains(member) && self.members.insert(member.into());
        self.bytes += if is_new { SET_ITEM_BYTES + member.len() } else { 0 };
        is_new
    }

    pub fn remove(&mut self, member: &[u8]) -> bool {
        let was_there = self.members.remove(member);
        self.bytes -= if was_there { SET_ITEM_BYTES + member.len() } else { 0 };
        was_there
    }

    pub fn contains(&self, member: &[u8]) -> bool {
        self.members.contains(member)
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Item> {
        self.members.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_give_back_every_byte_they_took() {
        let (mut list, mut hash, mut set) = (List::default(), Hash::default(), Set::default());
        for item in [&b"a"[..], b"bb", b"a", b""] {
            list.push(End::Left, item);
            hash.insert(item, b"value");
            hash.insert(item, b"longer value");
            set.insert(item);
        }
        assert_eq!((list.len(), hash.len(), set.len()), (4, 3, 3));
        for item in [&b"a"[..], b"bb", b""] {
            list.pop(End::Right);
            assert!(hash.remove(item) && set.remove(item));
            assert!(!hash.remove(item) && !set.remove(item));
        }
        list.pop(End::Left);
        assert_eq!((list.bytes, hash.bytes, set.bytes), (0, 0, 0));
    }

    #[test]
    fn ranges_count_from_both_ends_and_never_overrun() {
        let mut list = List::default();
        for item in [b"0", b"1", b"2"] {
            list.push(End::Right, item);
        }
        let range = |first, last| list.range(first, last).flat_map(|item| item.to_vec()).collect::<Vec<u8>>();
        assert_eq!(range(0, -1), b"012");
        assert_eq!(range(-2, 9), b"12");
        assert_eq!(range(2, 1), b"");
        assert_eq!(range(5, 9), b"");
        assert_eq!(range(i64::MIN, i64::MAX), b"012");
        assert_eq!(range(0, i64::MIN), b"");
    }
}
