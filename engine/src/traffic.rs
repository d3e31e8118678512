//! The bytes that a connection moves, counted as they flow.

use std::{
    cell::{Cell, OnceCell},
    rc::Rc,
};

/// Counters for the bytes of connections, above TLS. See [`Stream::count_into`](crate::Stream::count_into).
pub trait Traffic {
    /// The peer sent so many bytes.
    fn received(&self, bytes: usize);

    /// The socket took so many bytes.
    fn sent(&self, bytes: usize);
}

/// The traffic of one connection, and the counters that it moves.
#[derive(Default)]
pub(crate) struct Tally {
    counters: OnceCell<Rc<dyn Traffic>>,
    /// Plain bytes of the batch under way that the socket has not taken.
    left: Cell<usize>,
}

impl Tally {
    /// Counts with `counters` from now on. The first call decides.
    pub(crate) fn count_into(&self, counters: Rc<dyn Traffic>) {
        let _ = self.counters.set(counters);
    }

    /// The session receives so many bytes.
    #[inline]
    pub(crate) fn received(&self, bytes: usize) {
        if let Some(counters) = self.counters.get() {
            counters.received(bytes);
        }
    }

    /// A batch with so many plain bytes goes to the socket.
    #[inline]
    pub(crate) fn batch_begins(&self, plain_bytes: usize) {
        self.left.set(plain_bytes);
    }

    /// The socket took so many bytes of the batch. Records of TLS are longer than their plain bytes, so no more than the batch counts.
    #[inline]
    pub(crate) fn socket_took(&self, wire_bytes: usize) {
        self.sent(wire_bytes.min(self.left.get()));
    }

    /// The socket took all of the batch.
    #[inline]
    pub(crate) fn batch_ends(&self) {
        self.sent(self.left.get());
    }

    #[inline]
    fn sent(&self, bytes: usize) {
        self.left.set(self.left.get() - bytes);
        if bytes > 0
            && let Some(counters) = self.counters.get()
        {
            counters.sent(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct ByteCounts(Cell<usize>, Cell<usize>);

    impl Traffic for ByteCounts {
        fn received(&self, bytes: usize) {
            self.0.set(self.0.get() + bytes);
        }

        fn sent(&self, bytes: usize) {
            self.1.set(self.1.get() + bytes);
        }
    }

    #[test]
    fn a_batch_counts_its_plain_bytes_whatever_its_records_have() {
        let (tally, seen) = (Tally::default(), Rc::new(ByteCounts::default()));
        tally.count_into(seen.clone());
        // Plain: the socket takes it in two parts.
        tally.batch_begins(100);
        tally.socket_took(60);
        assert_eq!(seen.1.get(), 60);
        tally.socket_took(40);
        tally.batch_ends();
        assert_eq!(seen.1.get(), 100);
        // TLS: 122 bytes on the wire.
        tally.batch_begins(100);
        tally.socket_took(110);
        tally.socket_took(12);
        tally.batch_ends();
        assert_eq!(seen.1.get(), 200);
        // A handshake has no plain bytes.
        tally.batch_begins(0);
        tally.socket_took(500);
        tally.batch_ends();
        // The connection breaks with half of a batch.
        tally.batch_begins(100);
        tally.socket_took(50);
        assert_eq!((seen.0.get(), seen.1.get()), (0, 250));
    }
}
