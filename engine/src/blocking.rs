//! Work that takes milliseconds, on a thread that serves no connections.

use std::{
    cell::Cell,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use compio::driver::AsyncifyPool;

use crate::{
    gate::{Gate, Pass},
    mailbox::mailbox,
    names::UNDER_WAY_MAX,
};

/// Helper threads of a worker for the rare blocking work.
pub(crate) const THREADS_MAX: usize = 4;
/// Threads that are left beside those which resolve names.
const PLACES: usize = THREADS_MAX - UNDER_WAY_MAX;
/// A thread without work for this time ends.
const IDLE_MAX: Duration = Duration::from_secs(60);

thread_local! {
    static GATE: Arc<Gate<u64>> = Gate::new(PLACES);
    static NEXT: Cell<u64> = const { Cell::new(0) };
    static POOL: AsyncifyPool = AsyncifyPool::new(THREADS_MAX, IDLE_MAX);
}

/// Runs `work` on a helper thread and waits for it, while the worker serves others. It also waits here while all threads are taken,
/// because a request to the pool for one more would hold up the worker.
///
/// Helper threads begin where they were requested, which is the core of the worker: its connections would take turns with a
/// password hash. So the thread is let go to all cores of the process first.
///
/// # Errors
/// The work panicked.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let pass = GATE.with(Arc::clone).enter(&NEXT.replace(NEXT.get() + 1)).await;
    let run = move || {
        leave_core();
        work()
    };
    on_helper(pass, run).await
}

/// Runs `work` on a helper thread. There are no more passes than threads.
///
/// The result comes as a message and not as an operation of the runtime's driver: the driver may note the end of such an operation
/// without waking a worker that sleeps at its sockets.
///
/// # Errors
/// The work panicked.
pub(crate) async fn on_helper<T, K>(pass: Pass<K>, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T>
where
    T: Send + 'static,
    K: Clone + PartialEq + Send + 'static,
{
    let (mailbox, inbox) = mailbox();
    let mut run = move || {
        // The pool does not report that a thread panicked, and the caller would wait for ever.
        mailbox.send(catch_unwind(AssertUnwindSafe(work)));
        // After the result, which the next caller may find, and not by the panic: a thread that unwinds must wake no task.
        drop(pass);
    };
    // A thread gives its place back shortly before it takes new work.
    while let Err(refused) = POOL.with(|pool| pool.dispatch(run)) {
        run = refused.into_inner();
        thread::yield_now();
    }
    let result = inbox.receive().await.pop_front().and_then(Result::ok);
    result.ok_or_else(|| io::Error::other("the work panicked"))
}

/// Lets the calling thread run wherever the process may. That it may not is no error: it only is slower.
fn leave_core() {
    #[cfg(target_os = "linux")]
    // SAFETY: the set is plain bytes, for which zero is a value, and the kernel writes and reads within its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        // The mask of the process is that of its first thread, which is never pinned.
        if libc::sched_getaffinity(libc::getpid(), size, &mut set) == 0 {
            libc::sched_setaffinity(0, size, &set);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_another_thread_and_a_panic_is_an_error() {
        let runtime = compio::runtime::Runtime::new().expect("a runtime");
        let here = std::thread::current().id();
        let there = runtime.block_on(run_blocking(|| std::thread::current().id())).expect("it ran");
        assert_ne!(here, there);
        let broken: io::Result<()> = runtime.block_on(run_blocking(|| panic!("on purpose")));
        assert!(broken.is_err());
        // Far more than there are threads, and the runtime still has its turns.
        let turns = Cell::new(0_u32);
        runtime.block_on(async {
            let sleep = || std::thread::sleep(std::time::Duration::from_millis(20));
            let mut work: Vec<_> = (0..20).map(|_| Box::pin(run_blocking(sleep))).collect();
            while !work.is_empty() {
                turns.set(turns.get() + 1);
                crate::sleep(std::time::Duration::from_millis(1)).await;
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                work.retain_mut(|one| one.as_mut().poll(&mut context).is_pending());
            }
        });
        // 20 pieces of 20 ms, two at a time.
        assert!(turns.get() > 50, "{} turns", turns.get());
    }
}
