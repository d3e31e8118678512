//! Prepared statements: texts of a worker, names of a client, and what each server has prepared.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use weir_postgres_codec::{backend::ErrorFields, sqlstate};

use crate::facts::{Facts, Known, Prepare};
use crate::row_type::RowType;
use crate::variables::Variables;

/// Texts of a worker that are kept although nothing uses them.
const TEXTS_MAX: usize = 10_000;
/// Bytes of these texts. Worst case: as much per worker, besides the texts in use.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The beginning of each name at a server.
pub(crate) const PREFIX: &[u8] = b"weir_";

/// The error of a server that lacks a statement of the gateway's. No server translates a name.
pub(crate) fn is_missing(fields: &ErrorFields<'_>) -> bool {
    let names_one = |text: &[u8]| memchr::memmem::find(text, PREFIX).is_some();
    fields.sqlstate() == Some(sqlstate::INVALID_SQL_STATEMENT_NAME) && fields.message().is_some_and(names_one)
}

/// A statement without its name: what stands behind the name in a Parse.
pub struct Statement {
    /// Unique in the worker.
    id: u64,
    /// Text, NUL, types of parameters, as on the wire. Other workers get it with a server.
    rest: Arc<[u8]>,
    /// Effects of the text.
    facts: Option<Rc<Facts>>,
    is_read_only: bool,
    proof: RefCell<Option<Proof>>,
}

/// A server has taken the statement.
struct Proof {
    /// The pool of the server.
    pool: Rc<str>,
    /// The parameters with which it did. A proof keeps no set: texts outlive their clients.
    variables: Weak<Variables>,
}

impl Statement {
    /// It writes nothing, as far as its text shows.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Text, NUL, types.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// The text alone.
    pub(crate) fn text(&self) -> &[u8] {
        &self.rest[..memchr::memchr(0, &self.rest).unwrap_or(self.rest.len())]
    }

    /// A server checks its row type before each use. It does not for statements that run another one (`StmtPlanRequiresRevalidation` in
    /// plancache.c): their rows are of whatever that is at the time.
    pub(crate) fn is_revalidated(&self) -> bool {
        !self.begins_with([b"fetch", b"execute"])
    }

    /// The text begins with one of these words, in lower or upper case; a comment in front hides them.
    pub(crate) fn begins_with<const COUNT: usize>(&self, words: [&[u8]; COUNT]) -> bool {
        let text = self.text().trim_ascii_start();
        words.iter().any(|word| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)))
    }

    /// A server of this pool has taken it, with these parameters.
    pub(crate) fn prove(&self, pool: &Rc<str>, variables: &Rc<Variables>) {
        *self.proof.borrow_mut() = Some(Proof { pool: pool.clone(), variables: Rc::downgrade(variables) });
    }

    /// A server of the pool would take it, unless the schema has changed.
    pub(crate) fn is_proven(&self, pool: &str, variables: &Rc<Variables>) -> bool {
        let proof = self.proof.borrow();
        // The memory of a set that is gone is not another's while the proof is there.
        let is_same = |proof: &Proof| std::ptr::eq(proof.variables.as_ptr(), Rc::as_ptr(variables));
        proof.as_ref().is_some_and(|proof| *proof.pool == *pool && is_same(proof))
    }

    /// The same for another worker.
    pub(crate) fn shared_rest(&self) -> Arc<[u8]> {
        self.rest.clone()
    }

    /// Effects on the session; `None`: it has none.
    #[inline]
    pub(crate) fn facts(&self) -> Option<&Rc<Facts>> {
        self.facts.as_ref()
    }
}

impl std::fmt::Debug for Statement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Statement").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Numbers are spread already.
#[derive(Clone, Copy, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub(crate) type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// The texts of a worker. Equal statements are one object.
#[derive(Default)]
pub(crate) struct Texts {
    /// Strangers choose the texts: the hash is keyed.
    hashes: foldhash::quality::RandomState,
    /// By hash; content decides.
    buckets: ByNumber<Vec<Rc<Statement>>>,
    count: usize,
    bytes: usize,
    /// Texts and bytes of them that are in use, when what is unused was dropped last.
    used: (usize, usize),
    last_id: u64,
}

impl Texts {
    /// The one object of this statement. `known` runs if it is new.
    pub(crate) fn intern(&mut self, rest: &[u8], known: impl FnOnce() -> Known) -> Rc<Statement> {
        let hash = self.hashes.hash_one(rest);
        if let Some(known) = self.buckets.get(&hash).and_then(|bucket| bucket.iter().find(|known| *known.rest == *rest))
        {
            return known.clone();
        }
        self.insert(hash, rest.into(), known())
    }

    /// The same for a text that comes with a server of another worker.
    pub(crate) fn adopt(&mut self, rest: Arc<[u8]>, known: impl FnOnce() -> Known) -> Rc<Statement> {
        let hash = self.hashes.hash_one(&*rest);
        if let Some(known) = self.buckets.get(&hash).and_then(|bucket| bucket.iter().find(|known| known.rest == rest)) {
            return known.clone();
        }
        self.insert(hash, rest, known())
    }

    fn insert(&mut self, hash: u64, rest: Arc<[u8]>, known: Known) -> Rc<Statement> {
        // As much as is in use may be unused besides: the work of a sweep is spread over as many texts.
        if self.count >= TEXTS_MAX.max(2 * self.used.0) || self.bytes >= TEXT_BYTES_MAX.max(2 * self.used.1) {
            self.sweep();
        }
        self.last_id += 1;
        let statement = Rc::new(Statement {
            id: self.last_id,
            rest,
            facts: known.facts,
            is_read_only: known.is_read_only,
            proof: RefCell::default(),
        });
        // Limits of clients and servers bound the texts in use.
        self.count += 1;
        self.bytes += statement.rest.len();
        self.buckets.entry(hash).or_default().push(statement.clone());
        statement
    }

    /// Drops what nothing uses.
    fn sweep(&mut self) {
        self.buckets.retain(|_, bucket| {
            bucket.retain(|statement| Rc::strong_count(statement) > 1);
            !bucket.is_empty()
        });
        let kept = || self.buckets.values().flatten();
        self.count = kept().count();
        self.bytes = kept().map(|statement| statement.rest.len()).sum();
        self.used = (self.count, self.bytes);
    }
}

/// The meaning of a client's name.
#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    /// A Parse.
    Protocol(Rc<Statement>),
    /// SQL's PREPARE: the whole statement.
    Sql(Rc<[u8]>),
}

/// A name that a client gave to a statement.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: Box<[u8]>,
    pub(crate) meaning: Meaning,
    /// Effects of a statement of SQL's PREPARE when it is executed. Those of the protocol have their own.
    pub(crate) effects: Option<Rc<Facts>>,
    /// The client has bound or described it: it may know the row type.
    pub(crate) is_seen: Cell<bool>,
    /// The row type that the client has learned; see `row_type.rs`.
    pub(crate) row_type: Cell<Option<RowType>>,
    /// The rules by which the client may run it; see `judge.rs`.
    pub(crate) rules_generation: Cell<u32>,
}

impl Named {
    pub(crate) fn new(name: &[u8], meaning: Meaning) -> Self {
        Self {
            name: name.into(),
            meaning,
            effects: None,
            is_seen: Cell::new(false),
            row_type: Cell::new(None),
            rules_generation: Cell::new(0),
        }
    }

    fn bytes(&self) -> usize {
        let text = match &self.meaning {
            Meaning::Protocol(statement) => statement.rest.len(),
            Meaning::Sql(text) => text.len(),
        };
        self.name.len() + text
    }

    /// A name of SQL's PREPARE.
    pub(crate) fn of_sql(name: &[u8], prepare: &Prepare) -> Self {
        Self { effects: prepare.effects.clone(), ..Self::new(name, Meaning::Sql(prepare.text.clone())) }
    }
}

/// The names of a client.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: HashMap<Box<[u8]>, Rc<Named>>,
    /// Bytes of names and texts, each text counted in full although clients may share it.
    bytes: usize,
}

impl Names {
    #[inline]
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Rc<Named>> {
        self.by_name.get(name)
    }

    pub(crate) fn insert(&mut self, named: Rc<Named>) {
        self.bytes += named.bytes();
        if let Some(before) = self.by_name.insert(named.name.clone(), named) {
            self.bytes -= before.bytes();
        }
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Rc<Named>> {
        let named = self.by_name.remove(name)?;
        self.bytes -= named.bytes();
        Some(named)
    }

    /// Removes a name if it still stands for this.
    pub(crate) fn undo(&mut self, named: &Rc<Named>) {
        if self.by_name.get(&named.name).is_some_and(|now| Rc::ptr_eq(now, named)) {
            self.remove(&named.name);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.by_name.clear();
        self.bytes = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Bytes of names and texts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A statement at a server.
#[derive(Debug)]
struct Slot {
    statement: Rc<Statement>,
    /// Its name there is `weir_` and this.
    number: u64,
    /// When it was used last.
    used: u64,
    /// The batch of its Parse, while that has no reply.
    since: Option<u64>,
    /// The row type with which the server has prepared it. `None`: no Describe has shown it.
    row_type: Option<RowType>,
}

/// The statements of one server.
#[derive(Debug, Default)]
pub(crate) struct ServerStatements {
    slots: ByNumber<Slot>,
    last_number: u64,
    clock: u64,
}

impl ServerStatements {
    /// The number of a statement that the server has.
    #[inline]
    pub(crate) fn use_number(&mut self, statement: &Statement) -> Option<u64> {
        self.clock += 1;
        let slot = self.slots.get_mut(&statement.id)?;
        slot.used = self.clock;
        Some(slot.number)
    }

    /// Enters a statement whose Parse belongs to this batch: its new number.
    pub(crate) fn insert(&mut self, statement: Rc<Statement>, batch: u64) -> u64 {
        self.last_number += 1;
        let id = statement.id;
        self.restore(statement, self.last_number);
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.since = Some(batch);
        }
        self.last_number
    }

    /// The Parse has its reply.
    pub(crate) fn confirm(&mut self, statement: &Statement) {
        if let Some(slot) = self.slots.get_mut(&statement.id) {
            slot.since = None;
        }
    }

    /// Its Parse is outstanding, in an earlier batch than this: an error there may yet skip it.
    #[inline]
    pub(crate) fn is_uncertain(&self, statement: &Statement, batch: u64) -> bool {
        self.slots.get(&statement.id).and_then(|slot| slot.since).is_some_and(|since| since != batch)
    }

    /// Enters a statement that the server has under this number after all.
    pub(crate) fn restore(&mut self, statement: Rc<Statement>, number: u64) {
        self.clock += 1;
        let slot = Slot { statement, number, used: self.clock, since: None, row_type: None };
        self.slots.insert(slot.statement.id, slot);
    }

    /// The row type with which the server has prepared the statement, if a Describe has shown it.
    #[inline]
    pub(crate) fn row_type(&self, statement: &Statement) -> Option<RowType> {
        self.slots.get(&statement.id)?.row_type
    }

    /// A Describe has shown the row type of the statement that has this number.
    pub(crate) fn set_row_type(&mut self, statement: &Statement, number: u64, row_type: RowType) {
        if let Some(slot) = self.slots.get_mut(&statement.id).filter(|slot| slot.number == number) {
            slot.row_type = Some(row_type);
        }
    }

    /// The server prepares the statement again, under the same number.
    pub(crate) fn forget_row_type(&mut self, statement: &Statement) {
        if let Some(slot) = self.slots.get_mut(&statement.id) {
            slot.row_type = None;
        }
    }

    /// The server does not have the statement.
    pub(crate) fn remove(&mut self, statement: &Statement) -> Option<u64> {
        self.slots.remove(&statement.id).map(|slot| slot.number)
    }

    /// Removes the statement that was not used for the longest time, if there are `max` or more.
    pub(crate) fn evict(&mut self, max: usize) -> Option<(Rc<Statement>, u64)> {
        if self.slots.len() < max.max(1) {
            return None;
        }
        let oldest = self.slots.iter().min_by_key(|(_, slot)| slot.used).map(|(&id, _)| id)?;
        self.slots.remove(&oldest).map(|slot| (slot.statement, slot.number))
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Forgets all but some.
    pub(crate) fn keep_only(&mut self, kept: &[Rc<Statement>]) {
        self.slots.retain(|id, _| kept.iter().any(|statement| statement.id == *id));
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Texts and numbers, for another worker.
    pub(crate) fn pack(self) -> PackedStatements {
        let packed = |slot: Slot| PackedSlot {
            number: slot.number,
            used: slot.used,
            row_type: slot.row_type,
            rest: slot.statement.rest.clone(),
        };
        let slots = self.slots.into_values().map(packed).collect();
        PackedStatements { slots, last_number: self.last_number, clock: self.clock }
    }
}

/// A statement of a server on its way to another worker.
#[derive(Debug)]
struct PackedSlot {
    number: u64,
    used: u64,
    row_type: Option<RowType>,
    rest: Arc<[u8]>,
}

/// The statements of a server on its way to another worker.
#[derive(Debug)]
pub(crate) struct PackedStatements {
    slots: Vec<PackedSlot>,
    last_number: u64,
    clock: u64,
}

impl PackedStatements {
    pub(crate) fn unpack(self, texts: &mut Texts, mut known: impl FnMut(&[u8]) -> Known) -> ServerStatements {
        let mut slots = ByNumber::default();
        for PackedSlot { number, used, row_type, rest } in self.slots {
            let statement = texts.adopt(rest.clone(), || known(&rest));
            slots.insert(statement.id, Slot { statement, number, used, since: None, row_type });
        }
        ServerStatements { slots, last_number: self.last_number, clock: self.clock }
    }
}

/// A name at a server, on the stack.
pub(crate) struct ServerName {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

impl ServerName {
    /// Bytes of the longest name: the prefix and the digits of a `u64`.
    pub(crate) const BYTES_MAX: usize = PREFIX.len() + 20;

    #[inline]
    pub(crate) fn new(number: u64) -> Self {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[..PREFIX.len()].copy_from_slice(PREFIX);
        let len = PREFIX.len() + digits.len();
        bytes[PREFIX.len()..len].copy_from_slice(digits);
        Self { bytes, len }
    }

    /// A name under which no server has a statement.
    pub(crate) fn none() -> Self {
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[..PREFIX.len()].copy_from_slice(PREFIX);
        bytes[PREFIX.len()..PREFIX.len() + 4].copy_from_slice(b"none");
        Self { bytes, len: PREFIX.len() + 4 }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Known = Known { facts: None, is_read_only: false };

    #[test]
    fn equal_statements_are_one_and_others_are_not() {
        let mut texts = Texts::default();
        let one = texts.intern(b"select 1\0\0\0", || NOTHING);
        assert!(Rc::ptr_eq(&one, &texts.intern(b"select 1\0\0\0", || panic!("it is known"))));
        let typed = texts.intern(b"select 1\0\0\x01\0\0\0\x17", || NOTHING);
        assert!(!Rc::ptr_eq(&one, &typed));
    }

    #[test]
    fn texts_are_bounded_and_those_in_use_stay() {
        let mut texts = Texts::default();
        let used = texts.intern(b"used\0\0\0", || NOTHING);
        for number in 0..3 * TEXTS_MAX {
            texts.intern(format!("{number}\0\0\0").as_bytes(), || NOTHING);
        }
        assert!(texts.count <= TEXTS_MAX);
        assert!(Rc::ptr_eq(&used, &texts.intern(b"used\0\0\0", || NOTHING)));
    }

    /// Whatever some clients keep, the statements of all others are known again.
    #[test]
    fn texts_in_use_leave_room_for_others() {
        let mut texts = Texts::default();
        let large = "x".repeat(1 << 20);
        let held: Vec<_> = (0..40).map(|at| texts.intern(format!("{at}{large}").as_bytes(), || NOTHING)).collect();
        for round in 0..1_000 {
            let one = texts.intern(format!("{round}").as_bytes(), || NOTHING);
            assert!(Rc::ptr_eq(&one, &texts.intern(format!("{round}").as_bytes(), || panic!("it is known"))));
        }
        drop(held);
        for at in 0..100 {
            texts.intern(format!("{at}{large}").as_bytes(), || NOTHING);
        }
        assert!(texts.bytes <= TEXT_BYTES_MAX + (2 << 20), "{} bytes", texts.bytes);
    }

    #[test]
    fn p13_the_least_recently_used_statement_leaves_first() {
        let mut texts = Texts::default();
        let mut server = ServerStatements::default();
        let [a, b, c] = [b"a", b"b", b"c"].map(|text| texts.intern(text, || NOTHING));
        server.insert(a.clone(), 0);
        server.insert(b.clone(), 0);
        assert!(server.evict(3).is_none());
        server.use_number(&a);
        let (evicted, number) = server.evict(2).unwrap();
        assert!(Rc::ptr_eq(&evicted, &b));
        assert_eq!(number, 2);
        assert_eq!(server.insert(c, 0), 3, "no number comes twice");
    }

    #[test]
    fn a_server_that_moves_keeps_its_statements() {
        let mut here = Texts::default();
        let mut server = ServerStatements::default();
        let statement = here.intern(b"select 1\0\0\0", || NOTHING);
        let number = server.insert(statement, 0);
        let mut there = Texts::default();
        there.intern(b"other\0\0\0", || NOTHING);
        let known = there.intern(b"select 1\0\0\0", || NOTHING);
        let mut moved = server.pack().unpack(&mut there, |_| NOTHING);
        assert_eq!(moved.use_number(&known), Some(number));
        assert_eq!(ServerName::new(u64::MAX).bytes(), b"weir_18446744073709551615");
    }
}
