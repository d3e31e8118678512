//! Which items come most often, in little memory.
//!
//! HeavyKeeper: J. Gong, T. Yang et al., "HeavyKeeper: An Accurate Algorithm for Finding Top-k Elephant Flows", USENIX ATC
//! 2018 (it is also what `TOPK` of Redis uses). A bucket belongs to one item at a time; another item that falls into it wears
//! its count down with a probability that shrinks exponentially with the count (`1.08^-count`), so a frequent item keeps its
//! bucket and rare ones pass through. Space-Saving (Metwally et al., ICDT 2005) was the other candidate: its error is bounded
//! by N/m, but every one of its m counters must hold the item itself, here a key of up to 128 bytes. HeavyKeeper keeps the
//! text of the k items that are shown, and 8 bytes for each of the others.
//!
//! A count is never above the truth, save for two items with the same 32-bit mark in one bucket. An item of the list is
//! counted exactly from the moment it is in it.

use weir_base::rng::Rng;

/// Each item has a bucket in each row. Two suffice: a third changes the found items of a Zipf stream by less than one.
const ROWS: usize = 2;
/// Buckets of a row at least: 2 x 1,024 x 8 bytes = 16 KiB.
const WIDTH_MIN: usize = 1_024;
/// Base of the probability with which a foreign item wears a count down; the paper's choice.
const DECAY_BASE: f64 = 1.08;
/// Counts above this one are not worn down: the chance is below 1e-10.
const DECAY_COUNT_MAX: u32 = 300;
/// Odd numbers that make the place in a row from the hash of an item.
const MIX: [u64; ROWS] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

#[derive(Clone, Copy, Default)]
struct Bucket {
    /// A part of the hash of the item that it belongs to.
    mark: u32,
    /// 0: it is free.
    count: u32,
}

/// An item of the list.
pub(crate) struct Top<T> {
    hash: u64,
    /// How often it came, not above the truth.
    pub(crate) count: u32,
    /// The item.
    pub(crate) item: T,
}

/// The `capacity` most frequent items of a stream.
pub(crate) struct HeavyKeeper<T> {
    buckets: Vec<Bucket>,
    width: usize,
    top: Vec<Top<T>>,
    capacity: usize,
    /// No count of a full list is below this.
    least: u32,
    rng: Rng,
}

impl<T> HeavyKeeper<T> {
    /// An empty list. It takes its memory with the first item.
    pub(crate) fn new(capacity: usize, rng: Rng) -> Self {
        let width = (capacity * 8).next_power_of_two().max(WIDTH_MIN);
        Self { buckets: Vec::new(), width, top: Vec::new(), capacity, least: 0, rng }
    }

    /// The item with this hash came once more. If it is in the list now it is given; `make` makes it when it enters.
    pub(crate) fn add(&mut self, hash: u64, make: impl FnOnce() -> T) -> Option<&mut T> {
        let estimate = self.count(hash);
        if let Some(at) = self.top.iter().position(|top| top.hash == hash) {
            let top = &mut self.top[at];
            top.count = top.count.saturating_add(1);
            return Some(&mut top.item);
        }
        let entering = |item| Top { hash, count: estimate, item };
        if self.top.len() < self.capacity {
            self.least = 0;
            self.top.push(entering(make()));
            return self.top.last_mut().map(|top| &mut top.item);
        }
        if estimate <= self.least {
            return None;
        }
        let least = (0..self.top.len()).min_by_key(|at| self.top[*at].count)?;
        self.least = self.top[least].count;
        if estimate <= self.least {
            return None;
        }
        self.top[least] = entering(make());
        Some(&mut self.top[least].item)
    }

    /// Counts the item in the buckets; what they say of it now.
    fn count(&mut self, hash: u64) -> u32 {
        if self.buckets.is_empty() {
            self.buckets = vec![Bucket::default(); self.width * ROWS];
        }
        let mark = hash as u32;
        let mut most = 0;
        for (row, mix) in MIX.iter().enumerate() {
            let place = (hash.wrapping_mul(*mix) >> 40) as usize & (self.width - 1);
            let bucket = &mut self.buckets[row * self.width + place];
            if bucket.count > 0 && bucket.mark != mark {
                let is_worn =
                    bucket.count <= DECAY_COUNT_MAX && self.rng.unit() < DECAY_BASE.powi(-(bucket.count as i32));
                bucket.count -= u32::from(is_worn);
                if bucket.count > 0 {
                    continue;
                }
            }
            bucket.mark = mark;
            bucket.count = bucket.count.saturating_add(1);
            most = most.max(bucket.count);
        }
        most
    }

    /// Halves every count, so that what was long ago counts less; items that reach zero leave.
    pub(crate) fn halve(&mut self) {
        self.buckets.iter_mut().for_each(|bucket| bucket.count /= 2);
        self.top.iter_mut().for_each(|top| top.count /= 2);
        self.top.retain(|top| top.count > 0);
        self.least /= 2;
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.buckets.fill(Bucket::default());
        self.top.clear();
        self.least = 0;
    }

    /// The list, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Top<T>> {
        self.top.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::{prop_assert, proptest, test_runner::Config};

    use super::*;

    /// Numbers from 0, the smaller the more frequent: P(n) is proportional to 1 / (n + 1)^s.
    struct Zipf {
        sums: Vec<f64>,
    }

    impl Zipf {
        fn new(items: usize, s: f64) -> Self {
            let mut sum = 0.0;
            let sums = (1..=items).map(|n| {
                sum += (n as f64).powf(-s);
                sum
            });
            Self { sums: sums.collect() }
        }

        fn draw(&self, rng: &mut Rng) -> usize {
            let at = rng.unit() * self.sums[self.sums.len() - 1];
            self.sums.partition_point(|sum| *sum <= at)
        }
    }

    /// As good as a hash with a secret: one step of a generator.
    fn hash(item: usize) -> u64 {
        Rng::new(item as u64 ^ 0x5eed).next_u64()
    }

    /// Exact counts of a stream, and what the sketch found.
    fn run(items: usize, s: f64, length: usize, seed: u64) -> (HashMap<usize, u32>, HeavyKeeper<usize>) {
        let (zipf, mut rng) = (Zipf::new(items, s), Rng::new(seed));
        let mut sketch = HeavyKeeper::new(32, rng.fork());
        let mut exact = HashMap::new();
        for _ in 0..length {
            let item = zipf.draw(&mut rng);
            *exact.entry(item).or_insert(0) += 1;
            sketch.add(hash(item), || item);
        }
        (exact, sketch)
    }

    proptest! {
        #![proptest_config(Config::with_cases(24))]

        /// No count is above the truth; an item with more than 1% of the stream is in the list, with at most 5% of its count
        /// (and a few) missing. 50,000 items in 2,048 buckets, so nearly every bucket is fought for.
        #[test]
        fn counts_of_a_zipf_stream_are_within_the_bound(seed: u64, s in 0.8..1.4f64) {
            const LENGTH: usize = 40_000;
            let (exact, sketch) = run(50_000, s, LENGTH, seed);
            for top in sketch.iter() {
                prop_assert!(top.count <= exact[&top.item], "{} counts {} of {}", top.item, top.count, exact[&top.item]);
            }
            for (item, count) in exact.iter().filter(|(_, count)| **count as usize > LENGTH / 100) {
                let found = sketch.iter().find(|top| top.item == *item);
                let found = found.map_or(0, |top| top.count);
                let allowed = count / 20 + 16;
                prop_assert!(found + allowed >= *count, "{item} came {count} times and is told with {found}");
            }
        }
    }

    #[test]
    fn the_ten_most_frequent_of_a_zipf_stream_are_found() {
        for seed in 0..20 {
            let (exact, sketch) = run(100_000, 1.0, 60_000, seed);
            let mut exact: Vec<_> = exact.into_iter().collect();
            exact.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            for (item, count) in &exact[..10] {
                assert!(sketch.iter().any(|top| top.item == *item), "seed {seed}: {item}, which came {count} times");
            }
        }
    }

    #[test]
    fn a_list_that_is_not_full_is_exact() {
        let mut sketch = HeavyKeeper::new(8, Rng::new(1));
        for round in 0..100 {
            for item in 0..=(round % 5) {
                sketch.add(hash(item), || item);
            }
        }
        let mut counts: Vec<_> = sketch.iter().map(|top| (top.item, top.count)).collect();
        counts.sort_unstable();
        assert_eq!(counts, [(0, 100), (1, 80), (2, 60), (3, 40), (4, 20)]);
        sketch.halve();
        let mut counts: Vec<_> = sketch.iter().map(|top| top.count).collect();
        counts.sort_unstable();
        assert_eq!(counts, [10, 20, 30, 40, 50]);
        (0..6).for_each(|_| sketch.halve());
        assert_eq!(sketch.iter().count(), 0, "what does not come any more leaves");
    }

    #[test]
    fn newly_hot_keys_replace_old_ones() {
        let mut sketch = HeavyKeeper::new(4, Rng::new(3));
        for n in 0..4_000 {
            sketch.add(hash(n % 4), || n % 4);
        }
        (0..6).for_each(|_| sketch.halve());
        for n in 0..4_000 {
            sketch.add(hash(100 + n % 4), || 100 + n % 4);
        }
        let mut items: Vec<_> = sketch.iter().map(|top| top.item).collect();
        items.sort_unstable();
        assert_eq!(items, [100, 101, 102, 103]);
        sketch.clear();
        assert_eq!(sketch.iter().count(), 0);
    }
}
