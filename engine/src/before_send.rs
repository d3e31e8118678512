//! Work that must be over before a byte leaves the worker: a record on disk before the request that it stands for.
//!
//! All requests of a loop turn share it: ten records are one system call. [`Output`](crate::Output)s alone wait for it, and no datagram.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

type Work = Box<dyn FnOnce()>;

thread_local! {
    static DUE: RefCell<Vec<Work>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` on this worker before the next byte leaves it, at the end of the present loop turn at the latest. It may not block. On a
/// thread that is no worker it never runs.
pub fn before_send(work: impl FnOnce() + 'static) {
    DUE.with_borrow_mut(|due| due.push(Box::new(work)));
}

/// Runs what is due; whether there was anything.
#[inline]
pub(crate) fn run() -> bool {
    let mut has_run = false;
    while let Some(work) = DUE.with_borrow_mut(Vec::pop) {
        // A panic belongs to the work, and not to the connection that happens to send.
        let _ = catch_unwind(AssertUnwindSafe(work));
        has_run = true;
    }
    has_run
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use super::*;

    #[test]
    fn work_runs_once_also_work_that_work_has_ordered_and_behind_a_panic() {
        let runs = Rc::new(Cell::new(0));
        let count = |runs: &Rc<Cell<u32>>| {
            let runs = runs.clone();
            move || runs.set(runs.get() + 1)
        };
        let next = count(&runs);
        before_send(count(&runs));
        before_send(move || before_send(next));
        before_send(|| panic!("a test panics here"));
        for has_run in [true, false] {
            assert_eq!((run(), runs.get()), (has_run, 2));
        }
    }
}
