//! The counters of bytes, for tests that know the bytes on both sides of a gateway.

use std::cell::Cell;
use std::fmt::{Display, Formatter, Result};
use std::net::TcpStream;
use std::ops::Sub;

use socket2::SockRef;

use crate::deadline::{WAIT, until};
use crate::gateway::Gateway;
use crate::metrics::Metrics;

/// Bytes that the kernel keeps for a slow client: without a limit it would keep the greater part of a transfer.
const KERNEL_BYTES: usize = 256 << 10;

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

    /// Those after the client has sent and received so many bytes, each of which has gone through.
    pub fn through(sent: usize, received: usize) -> Self {
        Self { client_read: sent, client_written: received, upstream_read: received, upstream_written: sent }
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

/// The counters that a test waits for, and those of the last scrape.
struct Awaited {
    expected: ByteCounts,
    moved: Cell<ByteCounts>,
}

impl Display for Awaited {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{:?}; so far {:?}", self.expected, self.moved.get())
    }
}

/// Bounds the bytes that the kernel keeps for a client.
///
/// # Panics
/// If the socket refuses the bound.
pub fn read_slowly(client: &TcpStream) {
    SockRef::from(client).set_recv_buffer_size(KERNEL_BYTES).expect("a limit");
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
    let awaited = Awaited { expected, moved: Cell::default() };
    until(&awaited, WAIT, || {
        awaited.moved.set(ByteCounts::now(gateway) - before);
        awaited.moved.get().has_reached(expected).then(|| awaited.moved.get())
    })
}

/// Waits until all bytes of the clients so far are counted, and returns the counters: a transfer starts there. A response can be
/// with its client before it is counted.
///
/// # Panics
/// If the clients have sent or received other sums.
pub fn wait_start(gateway: &Gateway, sent: usize, received: usize) -> ByteCounts {
    wait_for(gateway, ByteCounts { client_read: sent, client_written: received, ..ByteCounts::default() });
    let start = ByteCounts::now(gateway);
    assert_eq!((start.client_read, start.client_written), (sent, received));
    start
}

/// Waits until the counters are at least `expected`, and holds them against it: no byte counts twice.
///
/// # Panics
/// If they are not `expected`.
pub fn assert_exactly(gateway: &Gateway, expected: ByteCounts) {
    wait_for(gateway, expected);
    assert_eq!(ByteCounts::now(gateway), expected);
}

/// Since `start`, both sides have counted all bytes that the client has sent and received, and no more. `besides`: fewer bytes than
/// these may have gone to and fro between the gateway and the server alone.
///
/// # Panics
/// If they have not.
pub fn assert_sums(gateway: &Gateway, start: ByteCounts, (sent, received): (usize, usize), besides: usize) {
    let moved = wait_since(gateway, start, ByteCounts::through(sent, received));
    assert_eq!((moved.client_read, moved.client_written), (sent, received));
    let further = [moved.upstream_read - received, moved.upstream_written - sent];
    assert!(further.iter().all(|bytes| *bytes < besides), "{further:?} of {moved:?}");
}

/// The counters of both sides moved between the scrapes of a transfer of so many bytes to a client, each made after a part of it.
///
/// # Panics
/// If they did not, or had all bytes early.
pub fn assert_moved_on_the_way(scrapes: &[ByteCounts], whole: usize) {
    let (first, later) = (scrapes[0], scrapes[scrapes.len() / 4]);
    for (first, later) in [(first.client_written, later.client_written), (first.upstream_read, later.upstream_read)] {
        assert!(first < later && later < whole, "{first}, {later} of {whole}: {scrapes:?}");
    }
}
