//! The companion of an exchange, and the promise that it hears of the end once.

use std::{
    cell::{Cell, OnceCell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
};

use weir_base::time::Time;
use weir_listener::CloseReason;

use crate::{
    doors::{Caller, Companion, End, Settled},
    notes::SentBytes,
};

/// A companion that is still to hear of the end of its exchange. Dropped before, it hears that the client went away, for the exchange was
/// cut with its connection, or that a panic ended it.
pub(crate) struct Company {
    companion: RefCell<Box<dyn Companion>>,
    caller: RefCell<Caller>,
    arrived: Time,
    /// Of the request.
    pub(crate) body_bytes: Cell<u64>,
    /// Counts what the client is sent, and what it had been sent before.
    sent: OnceCell<(SentBytes, u64)>,
    is_settled: Cell<bool>,
}

impl Company {
    pub(crate) fn new(companion: Box<dyn Companion>, caller: Caller, arrived: Time) -> Self {
        let (companion, caller) = (RefCell::new(companion), RefCell::new(caller));
        let (body_bytes, sent, is_settled) = (Cell::new(0), OnceCell::new(), Cell::new(false));
        Self { companion, caller, arrived, body_bytes, sent, is_settled }
    }

    /// Calls the companion. None of its methods leads back here.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut dyn Companion) -> T) -> T {
        call(&mut **self.companion.borrow_mut())
    }

    /// The caller, about whom more becomes known.
    pub(crate) fn caller(&self) -> &RefCell<Caller> {
        &self.caller
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
        let settled = Settled {
            status,
            caller: &self.caller.borrow(),
            request_bytes: self.body_bytes.get(),
            response_bytes: self.sent.get().map_or(0, |(sent, before)| sent() - before),
            duration: Time::now().since(self.arrived),
            upstream,
            end,
            reason,
        };
        self.with(|companion| companion.settled(&settled));
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        let (end, reason) = match std::thread::panicking() {
            true => (End::BrokenOff, CloseReason::InternalInvariant),
            false => (End::ClientGone, CloseReason::ClientReset),
        };
        // A panic on top of another would end the process, and one of its own whoever drops this.
        let _ = catch_unwind(AssertUnwindSafe(|| self.settle(0, "", end, reason.name())));
    }
}
