//! How an upstream with exclusive lanes spreads what it gets over its endpoints.

use weir_upstream::Balance;

use crate::checks::error_at;
use crate::document::At;
use crate::reader::Reader;
use crate::texts::{Choice, Endpoint};

/// The shares of endpoints; empty if none are written.
pub(crate) fn weights(
    written: Option<&At<Vec<At<u32>>>>,
    endpoints: &[At<Endpoint>],
    path: &str,
    reader: &mut Reader<'_>,
) -> Vec<u32> {
    let Some(weights) = written else { return Vec::new() };
    if weights.value.len() != endpoints.len() {
        let what = format!("has {} entries for {} endpoints", weights.value.len(), endpoints.len());
        error_at(weights, path, "weights", &what, "write one number for each endpoint, in their order", reader);
    }
    if weights.value.iter().all(|weight| weight.value == 0) {
        error_at(weights, path, "weights", "gives no endpoint a share", "write a number above 0", reader);
    }
    weights.value.iter().map(|weight| weight.value).collect()
}

impl Choice for Balance {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("round_robin", Self::RoundRobin),
        ("least_request", Self::LeastRequest),
        ("power_of_two", Self::PowerOfTwo),
        ("peak_ewma", Self::PeakEwma),
        ("random", Self::Random),
        ("ring_hash", Self::RingHash),
        ("maglev", Self::Maglev),
    ];
}
