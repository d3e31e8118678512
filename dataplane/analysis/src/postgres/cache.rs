//! Analyses by text, the least recently used ones dropped at a bound of memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use super::analyse::analyse_as;
use super::lexer::Reading;
use super::limits::Limits;
use super::statement::Analysis;

/// Analyses of one worker. A hit costs a hash of the text and a comparison with the text that is kept, and allocates
/// nothing. The comparison is no luxury: a client that could find two texts with one hash would otherwise have the
/// facts of a harmless text for another.
///
/// Pure: the same calls give the same results and the same evictions, whatever the seed.
#[derive(Debug)]
pub struct Cache {
    limits: Limits,
    seed: u64,
    bytes_max: usize,
    bytes: usize,
    by_hash: HashMap<u64, usize, BuildHasherDefault<Ready>>,
    entries: Vec<Entry>,
    free: Vec<usize>,
    /// The most and the least recently used entry; [`NONE`] in an empty cache.
    newest: usize,
    oldest: usize,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    reading: Reading,
    text: Box<[u8]>,
    analysis: Rc<Analysis>,
    newer: usize,
    older: usize,
}

const NONE: usize = usize::MAX;
/// Bytes of an entry beside its text and the heap of its analysis: itself, its analysis, its place in the table.
const ENTRY_BYTES: usize = size_of::<Entry>() + size_of::<Analysis>() + 48;

impl Cache {
    /// An empty cache that keeps up to `bytes_max` bytes, texts included. `seed` should be secret and random: it
    /// decides which texts share a hash, and of those only the last is kept.
    pub fn new(limits: Limits, bytes_max: usize, seed: u64) -> Self {
        Self {
            limits,
            seed,
            bytes_max,
            bytes: 0,
            by_hash: HashMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    /// The result of [`analyse_as`], from memory if the text is there. A text that would take more than an eighth of
    /// the memory is not kept, so that a few long texts cannot drive out all others.
    pub fn analyse(&mut self, text: &[u8], reading: Reading) -> Rc<Analysis> {
        if text.len() > self.limits.bytes_max {
            return Rc::new(analyse_as(text, reading, &self.limits));
        }
        let hash = hash(text, self.seed ^ reading as u64);
        if let Some(&at) = self.by_hash.get(&hash) {
            let entry = &self.entries[at];
            if *entry.text == *text && entry.reading == reading {
                self.use_again(at);
                return Rc::clone(&self.entries[at].analysis);
            }
            self.remove(at);
        }
        let analysis = Rc::new(analyse_as(text, reading, &self.limits));
        let entry =
            Entry { hash, reading, text: text.into(), analysis: Rc::clone(&analysis), newer: NONE, older: NONE };
        if entry.cost() <= self.bytes_max / 8 {
            self.insert(entry);
        }
        analysis
    }

    /// Bytes in use, at most `bytes_max`.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Texts that are kept.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Whether no text is kept.
    pub fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    fn insert(&mut self, entry: Entry) {
        let cost = entry.cost();
        while self.bytes + cost > self.bytes_max {
            self.remove(self.oldest);
        }
        self.bytes += cost;
        let hash = entry.hash;
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.by_hash.insert(hash, at);
        self.link(at);
    }

    fn use_again(&mut self, at: usize) {
        if self.newest != at {
            self.unlink(at);
            self.link(at);
        }
    }

    fn remove(&mut self, at: usize) {
        self.unlink(at);
        let entry = &mut self.entries[at];
        self.bytes -= entry.cost();
        self.by_hash.remove(&entry.hash);
        // The place stays, its memory goes.
        entry.text = Box::default();
        entry.analysis = Rc::new(Analysis::empty());
        self.free.push(at);
    }

    /// Makes an entry the newest.
    fn link(&mut self, at: usize) {
        let before = std::mem::replace(&mut self.newest, at);
        (self.entries[at].older, self.entries[at].newer) = (before, NONE);
        match before {
            NONE => self.oldest = at,
            before => self.entries[before].newer = at,
        }
    }

    fn unlink(&mut self, at: usize) {
        let (older, newer) = (self.entries[at].older, self.entries[at].newer);
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer].older = older,
        }
    }
}

impl Entry {
    fn cost(&self) -> usize {
        self.text.len() + self.analysis.heap_bytes() + ENTRY_BYTES
    }
}

/// Hash of a text: eight bytes a step, folded by a multiplication of 128 bits. Not for hostile inputs alone: the caller
/// compares texts.
fn hash(text: &[u8], seed: u64) -> u64 {
    const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
    const SECOND: u64 = 0xd6e8_feb8_6659_fd93;
    let fold = |left: u64, right: u64| {
        let product = u128::from(left) * u128::from(right);
        (product as u64) ^ (product >> 64) as u64
    };
    let word = |bytes: &[u8]| {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(whole)
    };
    let mut state = seed ^ FIRST;
    let mut pairs = text.chunks_exact(16);
    for pair in &mut pairs {
        state = fold(word(&pair[..8]) ^ state, word(&pair[8..]) ^ SECOND);
    }
    let rest = pairs.remainder();
    let (low, high) = rest.split_at(rest.len().min(8));
    state = fold(word(low) ^ state, word(high) ^ SECOND);
    fold(state ^ text.len() as u64, FIRST)
}

/// The hash is made already.
#[derive(Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(bytes_max: usize) -> Cache {
        Cache::new(Limits::default(), bytes_max, 7)
    }

    fn get(cache: &mut Cache, text: &str) -> Rc<Analysis> {
        cache.analyse(text.as_bytes(), Reading::Conforming)
    }

    #[test]
    fn a_hit_is_the_same_analysis_and_a_reading_is_part_of_the_key() {
        let mut cache = cache(1 << 20);
        let text = r"SELECT 'a\'; SET x = y; --'";
        let first = get(&mut cache, text);
        assert_eq!(first.statements.len(), 2);
        assert!(Rc::ptr_eq(&first, &get(&mut cache, text)));
        let escaping = cache.analyse(text.as_bytes(), Reading::Escaping);
        assert_eq!(escaping.statements.len(), 1);
        assert!(!cache.analyse(text.as_bytes(), Reading::Unknown).is_whole);
        assert_eq!(cache.len(), 3);
    }

    #[test]
    fn the_least_recently_used_text_goes_first() {
        let texts: Vec<String> = (0..40).map(|number| format!("SELECT {number:03}")).collect();
        let mut measure = cache(1 << 20);
        get(&mut measure, &texts[0]);
        let one = measure.bytes();
        let mut cache = cache(one * 10);
        let first = get(&mut cache, &texts[0]);
        for text in &texts[1..] {
            get(&mut cache, text);
            assert!(Rc::ptr_eq(&first, &get(&mut cache, &texts[0])), "it was used just now");
            assert!(cache.bytes() <= one * 10);
        }
        assert_eq!(cache.len(), 10);
        let last = get(&mut cache, &texts[39]);
        assert!(Rc::strong_count(&last) == 2, "kept");
        assert!(cache.entries.len() <= 11, "places are used again");
    }

    #[test]
    fn a_hash_that_two_texts_share_never_gives_the_facts_of_the_other() {
        let mut cache = cache(1 << 20);
        get(&mut cache, "SELECT 1");
        // As if both had this hash.
        let entry = cache.by_hash.remove(&cache.entries[0].hash).expect("there");
        let stolen = hash(b"SET x = y", 7 ^ Reading::Conforming as u64);
        cache.by_hash.insert(stolen, entry);
        cache.entries[0].hash = stolen;
        assert_eq!(get(&mut cache, "SET x = y").statements[0].effects.len(), 1);
        assert_eq!(cache.len(), 1);
        assert!(get(&mut cache, "SELECT 1").is_plain());
    }

    #[test]
    fn long_texts_are_analysed_and_not_kept() {
        let mut cache = cache(8 * 1024);
        let long = format!("SELECT '{}'", "x".repeat(2000));
        assert!(get(&mut cache, &long).is_plain());
        assert!(!get(&mut cache, &format!("SELECT '{}'", "x".repeat(200_000))).is_whole);
        assert!(cache.is_empty() && cache.bytes() == 0);
    }

    #[test]
    fn every_byte_and_the_length_change_the_hash() {
        let text = b"SELECT abalance FROM pgbench_accounts WHERE aid = 1234567;";
        let whole = hash(text, 1);
        for at in 0..text.len() {
            let mut other = *text;
            other[at] ^= 1;
            assert_ne!(hash(&other, 1), whole, "{at}");
            assert_ne!(hash(&text[..at], 1), whole);
        }
        assert_ne!(hash(b"\0", 1), hash(b"\0\0", 1));
        assert_ne!(hash(text, 2), whole);
    }
}
