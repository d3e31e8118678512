//! The filter of an exchange, and the guarantee that it gets its last call once.

use std::{
    cell::{Cell, OnceCell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
};

use weir_base::{error::Culprit, time::Time};
use weir_http_codec::{Fields, Known};
use weir_listener::CloseReason;
use weir_upstream::Retry;

use crate::{
    access_notes::SentBytes,
    filter::{AfterFailure, BrokenEnd, Caller, CompletionStatus, Deadlines, ExchangeSummary, HttpFilter},
    stopwatch::{Phase, Stopwatch},
};

/// A filter that has not had its last call. If the handle is dropped before, it reports that the client disconnected, since the exchange
/// ended with its connection, or that a panic ended it.
pub(crate) struct FilterHandle {
    filter: RefCell<Box<dyn HttpFilter>>,
    caller: RefCell<Caller>,
    /// The phases of the exchange.
    stopwatch: Stopwatch,
    /// Bytes of the request body.
    pub(crate) body_bytes: Cell<u64>,
    /// Counts the bytes sent to the client, from the second value on.
    sent: OnceCell<(SentBytes, u64)>,
    is_complete: Cell<bool>,
    /// The choices of the filter.
    pub(crate) choices: Choices,
    /// The deadlines that it has set.
    pub(crate) deadlines: Cell<Deadlines>,
    /// The end that it has given a response that broke off.
    pub(crate) broken_end: Cell<Option<BrokenEnd>>,
    /// When the origin had the whole request.
    pub(crate) sent_at: Cell<Option<Time>>,
}

/// The choices of a filter for one request.
#[derive(Default)]
pub(crate) struct Choices {
    /// So many were made.
    pub(crate) made: Cell<u32>,
    /// So many may be made.
    pub(crate) most: Cell<u32>,
    /// The decision on the response whose head has just come.
    pub(crate) decision: RefCell<Option<AfterFailure>>,
    /// The last one follows an attempt that the retry budget counts.
    pub(crate) retry: RefCell<Option<Retry>>,
}

impl FilterHandle {
    pub(crate) fn new(filter: Box<dyn HttpFilter>, caller: Caller, arrived: Time) -> Self {
        let (filter, caller) = (RefCell::new(filter), RefCell::new(caller));
        let (body_bytes, sent, is_complete) = (Cell::new(0), OnceCell::new(), Cell::new(false));
        let (choices, deadlines, sent_at) = (Choices::default(), Cell::default(), Cell::new(None));
        let (broken_end, stopwatch) = (Cell::new(None), Stopwatch::new(arrived));
        Self { filter, caller, stopwatch, body_bytes, sent, is_complete, choices, deadlines, broken_end, sent_at }
    }

    /// Calls the filter. None of its methods leads back here.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut dyn HttpFilter) -> T) -> T {
        call(&mut **self.filter.borrow_mut())
    }

    /// The caller, which is completed while the request is processed.
    pub(crate) fn caller(&self) -> &RefCell<Caller> {
        &self.caller
    }

    /// Counts what the client is sent from now on.
    pub(crate) fn count(&self, sent: SentBytes) {
        let before = sent();
        let _ = self.sent.set((sent, before));
    }

    /// A phase of the exchange begins.
    pub(crate) fn enter(&self, phase: Phase) {
        self.stopwatch.enter(phase, Time::now());
    }

    /// Lets the filter change the head of the response that is about to be sent.
    pub(crate) fn change_head(&self, status: u16, fields: &mut Fields) {
        let now = Time::now();
        self.stopwatch.enter(Phase::Response, now);
        let timing = self.stopwatch.timing(now);
        self.keeping_length(fields, |filter, fields| filter.response_head(status, fields, &timing));
    }

    /// Lets the filter change the fields of a response, but not the length that they say.
    pub(crate) fn keeping_length<T>(
        &self,
        fields: &mut Fields,
        change: impl FnOnce(&mut dyn HttpFilter, &mut Fields) -> T,
    ) -> T {
        let said = fields.get(Known::ContentLength).map(Box::<[u8]>::from);
        let changed = self.with(|filter| change(filter, fields));
        if !fields.all(Known::ContentLength).eq(said.as_deref()) {
            fields.remove(Known::ContentLength);
            said.iter().for_each(|length| fields.add(Known::ContentLength, length));
        }
        changed
    }

    /// Reports the end of the exchange, once.
    pub(crate) fn complete(
        &self,
        status: u16,
        upstream: &str,
        (end, culprit): (CompletionStatus, Option<Culprit>),
        reason: &str,
    ) {
        if self.is_complete.replace(true) {
            return;
        }
        let timing = self.stopwatch.timing(Time::now());
        let summary = ExchangeSummary {
            status,
            caller: &self.caller.borrow(),
            request_bytes: self.body_bytes.get(),
            response_bytes: self.sent.get().map_or(0, |(sent, before)| sent() - before),
            duration: timing.total,
            timing,
            upstream,
            end,
            culprit,
            broken_end: self.broken_end.get(),
            reason,
        };
        self.with(|filter| filter.on_complete(&summary));
    }
}

impl Drop for FilterHandle {
    fn drop(&mut self) {
        let (end, reason) = match std::thread::panicking() {
            true => (CompletionStatus::Aborted, CloseReason::InternalInvariant),
            false => (CompletionStatus::ClientGone, CloseReason::ClientReset),
        };
        // A panic on top of another would end the process, and a first one the task that drops this.
        let _ = catch_unwind(AssertUnwindSafe(|| self.complete(0, "", (end, reason.culprit()), reason.name())));
    }
}
