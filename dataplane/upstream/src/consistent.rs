//! Consistent hashing over endpoints of different weights, some of which may be out.

use xxhash_rust::xxh64::xxh64;

use weir_placement::Walk;

/// Places of all endpoints together: enough for shares to be right within a few percent.
const PLACES_MAX: u64 = 256;

/// Which endpoint has what.
#[derive(Debug)]
pub(crate) struct Consistent {
    walk: Walk,
    /// The endpoint of each place of the walk.
    numbers: Vec<usize>,
}

impl Consistent {
    /// On Envoy's ring.
    pub(crate) fn ring_hash(endpoints: &[(String, u32)]) -> Self {
        Self::new(endpoints, Walk::ring_hash)
    }

    /// In Maglev's table.
    pub(crate) fn maglev(endpoints: &[(String, u32)]) -> Self {
        Self::new(endpoints, Walk::maglev)
    }

    /// An endpoint has a place, or several if it weighs more than the lightest one.
    fn new(endpoints: &[(String, u32)], walk: impl FnOnce(&[String]) -> Walk) -> Self {
        let weights = endpoints.iter().map(|(_, weight)| u64::from(*weight));
        let (divisor, total) = (weights.clone().fold(0, common_divisor).max(1), weights.sum::<u64>());
        let places_max = PLACES_MAX.max(4 * endpoints.len() as u64);
        let (mut names, mut numbers) = (Vec::new(), Vec::new());
        for (number, (name, weight)) in endpoints.iter().enumerate() {
            let weight = u64::from(*weight);
            let places = match total / divisor > places_max {
                true => (weight * places_max).div_ceil(total),
                false => weight / divisor,
            };
            for place in 0..places {
                // The first is named as in Envoy, so that endpoints of equal weight have the places that they have there.
                names.push(if place == 0 { name.clone() } else { format!("{name}#{place}") });
                numbers.push(number);
            }
        }
        if names.is_empty() {
            names.push(String::new());
            numbers.push(0);
        }
        Self { walk: walk(&names), numbers }
    }

    /// The endpoint of `hash`, or the next one that is there.
    pub(crate) fn find(&self, hash: u64, is_there: impl Fn(usize) -> bool) -> Option<usize> {
        let place =
            self.walk.find(hash, |place| self.numbers.get(usize::from(place)).is_some_and(|&one| is_there(one)))?;
        self.numbers.get(usize::from(place)).copied()
    }
}

/// Hash of an affinity value.
pub fn affinity_hash(what: &[u8]) -> u64 {
    xxh64(what, 0)
}

fn common_divisor(first: u64, second: u64) -> u64 {
    if second == 0 { first } else { common_divisor(second, first % second) }
}
