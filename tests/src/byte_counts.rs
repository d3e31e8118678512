//! The counters of bytes, as a test compares them with what it sent and received.

use std::ops::Sub;

use crate::deadline::{WAIT, until};
use crate::gateway::Gateway;
use crate::metrics::Metrics;

/// Equal scrapes in a row that show that the counters rest.
const SCRAPES_AT_REST: u32 = 3;

/// The four counters, each as the sum of all listeners or endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ByteCounts {
    /// `weir_client_read_bytes_total`.
    pub client_read: usize,
    /// `weir_client_written_bytes_total`.
    pub client_written: usize,
    /// `weir_upstream_read_bytes_total`.
    pub upstream_read: usize,
    /// `weir_upstream_written_bytes_total`.
    pub upstream_written: usize,
}

impl ByteCounts {
    /// Those of one scrape.
    pub fn of(metrics: &Metrics) -> Self {
        let of = |name: &str| metrics.sum(name) as usize;
        Self {
            client_read: of("weir_client_read_bytes_total"),
            client_written: of("weir_client_written_bytes_total"),
            upstream_read: of("weir_upstream_read_bytes_total"),
            upstream_written: of("weir_upstream_written_bytes_total"),
        }
    }

    /// Those of a scrape now.
    pub fn now(gateway: &Gateway) -> Self {
        Self::of(&gateway.metrics())
    }

    /// Those of now, once the last ones have come: the kernel reports bytes as taken behind their receipt by the peer.
    ///
    /// # Panics
    /// If the counters of clients never rest.
    pub fn at_rest(gateway: &Gateway) -> Self {
        let (mut last, mut equal) = (Self::default(), 0);
        until("the counters rest", WAIT, || {
            let now = Self::now(gateway);
            let is_same = (now.client_read, now.client_written) == (last.client_read, last.client_written);
            (last, equal) = (now, if is_same { equal + 1 } else { 0 });
            (equal >= SCRAPES_AT_REST).then_some(now)
        })
    }

    fn has_reached(self, other: Self) -> bool {
        self.client_read >= other.client_read
            && self.client_written >= other.client_written
            && self.upstream_read >= other.upstream_read
            && self.upstream_written >= other.upstream_written
    }
}

impl Sub for ByteCounts {
    type Output = Self;

    /// The bytes since `before`.
    fn sub(self, before: Self) -> Self {
        Self {
            client_read: self.client_read - before.client_read,
            client_written: self.client_written - before.client_written,
            upstream_read: self.upstream_read - before.upstream_read,
            upstream_written: self.upstream_written - before.upstream_written,
        }
    }
}

/// Waits until the counters are at least `expected`.
///
/// # Panics
/// If they do not get there.
pub fn wait_for(gateway: &Gateway, expected: ByteCounts) {
    wait_since(gateway, ByteCounts::default(), expected);
}

/// Waits until the counters have moved by at least `expected` since `before`, and returns by how much they have.
///
/// # Panics
/// If they do not.
pub fn wait_since(gateway: &Gateway, before: ByteCounts, expected: ByteCounts) -> ByteCounts {
    let what = format!("{expected:?} of {:?}", ByteCounts::now(gateway) - before);
    until(what, WAIT, || {
        let moved = ByteCounts::now(gateway) - before;
        moved.has_reached(expected).then_some(moved)
    })
}

/// Waits until the counters are at least `expected`, and holds them against it: no byte counts twice.
///
/// # Panics
/// If they are not `expected`.
pub fn assert_exactly(gateway: &Gateway, expected: ByteCounts) {
    wait_for(gateway, expected);
    assert_eq!(ByteCounts::now(gateway), expected);
}
