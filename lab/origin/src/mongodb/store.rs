//! Documents in memory, for origins that store them, and the writes of transactions that are not committed yet.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use weir_mongodb_codec::bson::{Kind, Value};

use super::failure::{Failure, code};
use super::transactions::SessionId;

/// Bytes of all documents. Default 1 GiB: a test inserts 100,000 documents of 1 KiB more than once. Past it writes get code 146.
pub(super) const STORE_BYTES_MAX: usize = 1 << 30;

/// A document.
pub(super) type Stored = Arc<[u8]>;

/// The `_id` of a document, equal for equal numbers of any type.
pub(super) type Key = Vec<u8>;

/// A statement of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub session: SessionId,
    pub number: i64,
}

/// A write: `None` deletes.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub namespace: Vec<u8>,
    pub key: Key,
    pub document: Option<Stored>,
}

/// All collections.
#[derive(Debug, Default)]
pub(super) struct Store {
    collections: HashMap<Vec<u8>, Collection>,
    /// By session.
    uncommitted: HashMap<SessionId, Uncommitted>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Collection {
    /// In the order of their inserts.
    documents: BTreeMap<u64, (Key, Stored)>,
    places: HashMap<Key, u64>,
    next: u64,
}

#[derive(Debug)]
struct Uncommitted {
    number: i64,
    writes: Vec<Write>,
}

impl Store {
    /// The documents of a collection as this statement sees them, in the order of their inserts.
    pub fn all(&self, namespace: &[u8], part: Option<Part>) -> Vec<(Key, Stored)> {
        let collection = self.collections.get(namespace);
        let mut all: Vec<Option<(Key, Stored)>> =
            collection.into_iter().flat_map(|collection| collection.documents.values().cloned().map(Some)).collect();
        let own: Vec<&Write> = self.own(part).filter(|write| write.namespace == namespace).collect();
        if !own.is_empty() {
            let known = all.iter().enumerate().filter_map(|(at, one)| Some((one.as_ref()?.0.clone(), at)));
            let mut places: HashMap<Key, usize> = known.collect();
            for write in own {
                let at = *places.entry(write.key.clone()).or_insert_with(|| {
                    all.push(None);
                    all.len() - 1
                });
                all[at] = write.document.clone().map(|document| (write.key.clone(), document));
            }
        }
        all.into_iter().flatten().collect()
    }

    /// One document as this statement sees it.
    pub fn get(&self, namespace: &[u8], key: &[u8], part: Option<Part>) -> Option<Stored> {
        let own = self.own(part).filter(|write| write.namespace == namespace && write.key == key).last();
        if let Some(write) = own {
            return write.document.clone();
        }
        let collection = self.collections.get(namespace)?;
        let (_, document) = collection.documents.get(collection.places.get(key)?)?;
        Some(document.clone())
    }

    /// Documents that were inserted from this place on, with the place behind them.
    pub fn since(&self, namespace: &[u8], place: u64) -> (Vec<Stored>, u64) {
        let Some(collection) = self.collections.get(namespace) else { return (Vec::new(), place) };
        let new = collection.documents.range(place..).map(|(_, (_, document))| document.clone());
        (new.collect(), collection.next)
    }

    /// Writes, or notes the write of a transaction.
    pub fn write(&mut self, write: Write, part: Option<Part>) -> Result<(), Failure> {
        let bytes = write.document.as_ref().map_or(0, |document| document.len());
        if self.bytes + bytes > STORE_BYTES_MAX {
            let text = format!("weir origin: {STORE_BYTES_MAX} bytes of documents are stored; drop a collection");
            return Err(Failure::new(code::EXCEEDED_MEMORY_LIMIT, text));
        }
        let Some(Part { session, number }) = part else {
            self.apply(write);
            return Ok(());
        };
        self.bytes += bytes;
        let own = self.uncommitted.entry(session).or_insert_with(|| Uncommitted { number, writes: Vec::new() });
        if own.number != number {
            // That transaction has ended without a commit.
            let forgotten: usize = own.writes.iter().map(bytes_of).sum();
            self.bytes = self.bytes.saturating_sub(forgotten);
            *own = Uncommitted { number, writes: Vec::new() };
        }
        own.writes.push(write);
        Ok(())
    }

    /// The end of a transaction. The result is its writes, if they have taken effect.
    pub fn end(&mut self, part: Part, is_committed: bool) -> Vec<Write> {
        let Some(own) = self.uncommitted.remove(&part.session) else { return Vec::new() };
        self.bytes = self.bytes.saturating_sub(own.writes.iter().map(bytes_of).sum());
        if !is_committed || own.number != part.number {
            return Vec::new();
        }
        own.writes.iter().for_each(|write| self.apply(write.clone()));
        own.writes
    }

    /// Removes the collections that `wanted` names.
    pub fn remove(&mut self, wanted: impl Fn(&[u8]) -> bool) {
        self.collections.retain(|namespace, collection| {
            let stays = !wanted(namespace);
            if !stays {
                let bytes: usize = collection.documents.values().map(|(_, document)| document.len()).sum();
                self.bytes = self.bytes.saturating_sub(bytes);
            }
            stays
        });
    }

    /// Namespaces of the collections, in order.
    pub fn namespaces(&self) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = self.collections.keys().cloned().collect();
        all.sort();
        all
    }

    /// Creates an empty collection, if there is none.
    pub fn create(&mut self, namespace: &[u8]) {
        self.collections.entry(namespace.to_vec()).or_default();
    }

    fn own(&self, part: Option<Part>) -> impl Iterator<Item = &Write> {
        let own = part.and_then(|part| Some((self.uncommitted.get(&part.session)?, part.number)));
        own.filter(|(own, number)| own.number == *number).into_iter().flat_map(|(own, _)| &own.writes)
    }

    fn apply(&mut self, write: Write) {
        self.bytes += bytes_of(&write);
        let collection = self.collections.entry(write.namespace).or_default();
        let before = match (collection.places.get(&write.key).copied(), write.document) {
            (Some(place), Some(document)) => collection.documents.insert(place, (write.key, document)),
            (Some(place), None) => {
                collection.places.remove(&write.key);
                collection.documents.remove(&place)
            }
            (None, Some(document)) => {
                collection.places.insert(write.key.clone(), collection.next);
                collection.documents.insert(collection.next, (write.key, document));
                collection.next += 1;
                None
            }
            (None, None) => None,
        };
        self.bytes = self.bytes.saturating_sub(before.map_or(0, |(_, document)| document.len()));
    }
}

fn bytes_of(write: &Write) -> usize {
    write.document.as_ref().map_or(0, |document| document.len())
}

/// The key of an `_id`.
pub(super) fn key_of(id: Value<'_>) -> Key {
    match id.as_integer() {
        Some(number) => [&[Kind::Int64.byte()][..], &number.to_le_bytes()].concat(),
        None => [&[id.kind.byte()][..], id.bytes].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part = Part { session: [1; 16], number: 1 };

    fn write(key: u8, document: Option<&[u8]>) -> Write {
        Write { namespace: b"a.b".to_vec(), key: vec![key], document: document.map(Into::into) }
    }

    fn seen(store: &Store, part: Option<Part>) -> Vec<u8> {
        store.all(b"a.b", part).iter().map(|(key, _)| key[0]).collect()
    }

    #[test]
    fn writes_of_a_transaction_are_its_own_until_they_are_committed() {
        let mut store = Store::default();
        store.write(write(1, Some(b"one")), None).expect("written");
        store.write(write(2, Some(b"two")), Some(PART)).expect("written");
        store.write(write(1, None), Some(PART)).expect("written");
        assert_eq!((seen(&store, None), seen(&store, Some(PART))), (vec![1], vec![2]));
        assert_eq!(seen(&store, Some(Part { number: 2, ..PART })), [1], "another transaction");
        assert!(store.get(b"a.b", &[1], Some(PART)).is_none() && store.get(b"a.b", &[1], None).is_some());
        assert_eq!(store.end(PART, true).len(), 2);
        assert_eq!((seen(&store, None), store.bytes), (vec![2], 3));
        store.write(write(3, Some(b"three")), Some(PART)).expect("written");
        assert!(store.end(PART, false).is_empty());
        assert_eq!((seen(&store, None), store.bytes), (vec![2], 3));
        store.remove(|namespace| namespace == b"a.b");
        assert_eq!((seen(&store, None), store.bytes), (Vec::new(), 0));
    }

    #[test]
    fn documents_stay_in_the_order_of_their_inserts() {
        let mut store = Store::default();
        for key in [3, 1, 2, 1] {
            store.write(write(key, Some(b"x")), None).expect("written");
        }
        assert_eq!(seen(&store, None), [3, 1, 2]);
        assert_eq!((store.since(b"a.b", 2).0.len(), store.since(b"a.b", 0).1), (1, 3));
        assert_eq!(store.bytes, 3);
    }

    #[test]
    fn equal_numbers_are_equal_keys() {
        let key = |kind, bytes: &[u8]| key_of(Value { kind, bytes });
        assert_eq!(key(Kind::Int32, &7_i32.to_le_bytes()), key(Kind::Double, &7.0_f64.to_le_bytes()));
        assert_ne!(key(Kind::Int32, &7_i32.to_le_bytes()), key(Kind::String, b"\x02\0\0\x007\0"));
    }
}
