//! Timers of single tasks, as precise as the kernel: those of the runtime. Connections have their deadlines on the wheel.
//!
//! The runtime gives the time until its first timer, for a read of the clock. A worker looks only after a task has polled a timer or the
//! first one is due, and not in each turn.

use std::{
    cell::Cell,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use compio::{
    runtime::Runtime,
    time::{self, Elapsed},
};
use weir_base::time::Time;

thread_local! {
    /// A timer may be earlier than the first that the worker knows.
    static HAS_NEW: Cell<bool> = const { Cell::new(true) };
}

/// Waits for `duration`.
pub fn sleep(duration: Duration) -> impl Future<Output = ()> {
    Timed(time::sleep(duration))
}

/// Waits for `future`, no longer than `duration`.
///
/// # Errors
/// It took longer, and was dropped.
pub fn timeout<F: Future>(duration: Duration, future: F) -> impl Future<Output = Result<F::Output, Elapsed>> {
    Timed(time::timeout(duration, future))
}

/// A future that sets a timer in one of its polls.
struct Timed<F>(F);

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        HAS_NEW.set(true);
        // SAFETY: the future is never moved: nothing else gives it out, and there is no `Drop`.
        unsafe { self.map_unchecked_mut(|timed| &mut timed.0) }.poll(context)
    }
}

/// The first timer of a worker.
pub(crate) struct FirstTimer(Time);

impl FirstTimer {
    pub(crate) fn new() -> Self {
        Self(Time::ZERO)
    }

    /// When the first timer of `runtime` is due, up to `now` if it is: the caller polls the runtime then. [`Time::NEVER`]: there is none.
    /// The time may be that of a timer that was dropped since.
    pub(crate) fn due(&mut self, runtime: &Runtime, now: Time) -> Time {
        if HAS_NEW.take() || self.0 <= now {
            self.0 = match runtime.current_timeout() {
                None => Time::NEVER,
                Some(Duration::ZERO) => Time::ZERO,
                Some(left) => Time::now().saturating_add(left),
            };
        }
        self.0
    }
}
