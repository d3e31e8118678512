//! The promise that the end of an exchange is told once.

use std::{
    cell::{Cell, OnceCell},
    sync::Arc,
};

use weir_base::time::Time;

use crate::{
    doors::{End, Settle, Settled},
    notes::SentBytes,
};

/// A hook that is still to hear of the end of its exchange. Dropped before, it hears that the client went away: the exchange was cut
/// with its connection.
pub(crate) struct Settling {
    hook: Arc<dyn Settle>,
    arrived: Time,
    /// Of the request.
    pub(crate) body_bytes: Cell<u64>,
    /// Counts what the client is sent, and what it had been sent before.
    sent: OnceCell<(SentBytes, u64)>,
    is_settled: Cell<bool>,
}

impl Settling {
    pub(crate) fn new(hook: Arc<dyn Settle>, arrived: Time) -> Self {
        let (body_bytes, sent, is_settled) = (Cell::new(0), OnceCell::new(), Cell::new(false));
        Self { hook, arrived, body_bytes, sent, is_settled }
    }

    /// Counts what the client is sent from now on.
    pub(crate) fn count(&self, sent: SentBytes) {
        let before = sent();
        let _ = self.sent.set((sent, before));
    }

    /// Tells the end, unless it has been told.
    pub(crate) fn settle(&self, status: u16, upstream: &str, end: End, reason: &str) {
        if self.is_settled.replace(true) {
            return;
        }
        self.hook.settled(&Settled {
            status,
            request_bytes: self.body_bytes.get(),
            response_bytes: self.sent.get().map_or(0, |(sent, before)| sent() - before),
            duration: Time::now().since(self.arrived),
            upstream,
            end,
            reason,
        });
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        self.settle(0, "", End::ClientGone, "client_reset");
    }
}
