//! The bytes that a loop turn appended to outputs leave at its end, in one send for each of them.
//!
//! A task for each output did that before: waking, queueing and polling two of them cost a request of HTTP/1.1 a tenth of the
//! gateway's own time. Those tasks are still there for what takes longer than one call.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{before_send, output::Output};

thread_local! {
    static DUE: RefCell<Vec<Output>> = const { RefCell::new(Vec::new()) };
}

/// `output` has something to send.
pub(crate) fn at_end_of_turn(output: Output) {
    DUE.with_borrow_mut(|due| due.push(output));
}

/// Sends what is due; whether there was anything. That it has left may wake tasks, and these may append more. So may work that came before,
/// even if it left nothing to send.
pub(crate) fn run() -> bool {
    let has_run = before_send::run();
    let mut due = DUE.take();
    let has_some = has_run || !due.is_empty();
    for output in due.drain(..) {
        // An observer of the flush may panic: as in a task, that costs one connection and not the worker.
        if catch_unwind(AssertUnwindSafe(|| output.flush())).is_err() {
            output.abort();
        }
    }
    // Its memory serves the next turn, unless something became due meanwhile.
    DUE.with_borrow_mut(|next| {
        if next.is_empty() {
            *next = due;
        }
    });
    has_some
}
