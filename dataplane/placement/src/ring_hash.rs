//! Envoy's ring hash (`source/extensions/load_balancing_policies/ring_hash`), for hosts of equal weight and the default
//! size.

use xxhash_rust::xxh64::xxh64;

use super::ring::Ring;

/// Points on the ring, at least (`minimum_ring_size`).
const RING_SIZE_MIN: usize = 1_024;

/// The ring of the hosts with these names.
pub(super) fn ring(names: &[String]) -> Ring<u64> {
    let per_host = RING_SIZE_MIN.div_ceil(names.len());
    let points = |(name, host): (&String, u16)| {
        let name = name.clone();
        (0..per_host).map(move |n| (xxh64(format!("{name}_{n}").as_bytes(), 0), host))
    };
    Ring::new(names.iter().zip(0u16..).flat_map(points))
}
