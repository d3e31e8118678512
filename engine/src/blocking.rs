//! Work that takes milliseconds, on a thread that serves no connections.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Runs `work` on a thread of the runtime's pool and waits for it, while the worker serves others.
///
/// Threads of that pool begin where they were asked for, which is the core of the worker: its connections would take
/// turns with a password hash. So the thread is let go to all cores of the process first.
///
/// # Errors
/// The work panicked.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    // The pool does not say when its thread panics: who waits would wait for ever.
    let run = move || {
        leave_core();
        catch_unwind(AssertUnwindSafe(work))
    };
    let panicked = || io::Error::other("the work panicked");
    compio::runtime::spawn_blocking(run).await.map_err(|_| panicked())?.map_err(|_| panicked())
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
    }
}
