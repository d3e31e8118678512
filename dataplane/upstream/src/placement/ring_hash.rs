//! Envoy's ring hash (`source/extensions/load_balancing_policies/ring_hash`), for hosts of equal weight and the default
//! size.

use xxhash_rust::xxh64::xxh64;

/// Points on the ring, at least (`minimum_ring_size`).
const RING_SIZE_MIN: usize = 1_024;

/// Points of the ring, by value.
#[derive(Debug)]
pub(super) struct Ring {
    points: Vec<(u64, u16)>,
}

impl Ring {
    pub(super) fn new(names: &[String]) -> Self {
        let per_host = RING_SIZE_MIN.div_ceil(names.len());
        let points = names.iter().zip(0u16..).flat_map(|(name, host)| {
            (0..per_host).map(move |n| (xxh64(format!("{name}_{n}").as_bytes(), 0), host))
        });
        let mut points: Vec<_> = points.collect();
        points.sort_by_key(|&(value, _)| value);
        Self { points }
    }

    /// The host of the first point that is not below `hash`; past the last one, of the first.
    pub(super) fn place(&self, hash: u64) -> u16 {
        let at = self.points.partition_point(|&(value, _)| value < hash);
        self.points.get(at).or(self.points.first()).map_or(0, |&(_, host)| host)
    }
}
