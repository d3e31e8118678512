//! The tasks of a worker, and the wakes that end its sleep.
//!
//! The runtime's own executor wakes through the runtime's driver, with a write to an eventfd for each turn that begins at the sockets.

use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::Wake,
};

use compio_executor::{Executor, ExecutorConfig, JoinHandle};

/// Tasks run between two looks at the clock, which ends the turn when it has been long enough. A new connection or an HTTP request
/// takes tens of microseconds: with 64 of them a flood made turns of 2 ms.
const TASKS_PER_ROUND_MAX: u32 = 16;
/// Tasks that other threads may have woken since the last look. Default 4,096, 64 KiB per worker: beyond it the other threads spin.
const CROSS_THREAD_WAKES: usize = 4_096;

const ASLEEP: u8 = 0;
const NOTIFIED: u8 = 1;
const AWAKE: u8 = 2;

thread_local! {
    static EXECUTOR: RefCell<Option<Rc<Executor>>> = const { RefCell::new(None) };
    /// Address of the wakes of this thread's worker.
    static OWN_WAKES: Cell<usize> = const { Cell::new(0) };
}

/// Starts a task on the calling worker. A handle that is dropped cancels it; `detach` lets it run.
///
/// # Panics
/// Outside a worker thread.
pub fn spawn<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    EXECUTOR.with_borrow(|executor| executor.as_ref().expect("on a worker thread").spawn(future))
}

/// The tasks of the calling thread, until the value is dropped.
pub(crate) struct Tasks(Rc<Executor>);

impl Tasks {
    pub(crate) fn start(wakes: Arc<Wakes>) -> Self {
        OWN_WAKES.set(Arc::as_ptr(&wakes).addr());
        let executor = Rc::new(Executor::with_config(ExecutorConfig {
            sync_queue_size: CROSS_THREAD_WAKES,
            max_interval: TASKS_PER_ROUND_MAX,
            waker: Some(wakes.into()),
            ..ExecutorConfig::default()
        }));
        EXECUTOR.set(Some(executor.clone()));
        Self(executor)
    }

    /// Runs some of the tasks that are ready. Returns whether there are more.
    pub(crate) fn run(&self) -> bool {
        self.0.tick()
    }

    /// A task of this thread's own wakes is ready.
    pub(crate) fn has_ready(&self) -> bool {
        self.0.has_task()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        // The drop of a task may start another one, which is dropped as well.
        let executor = EXECUTOR.replace(Some(Rc::new(Executor::new())));
        self.0.clear();
        if let Some(late) = EXECUTOR.take() {
            late.clear();
        }
        OWN_WAKES.set(0);
        // Another thread may be in the middle of a wake, and the executor does not wait for all of them. An ended worker thus leaves its
        // queue of 64 KiB and its eventfd.
        std::mem::forget(executor);
    }
}

/// Ends the sleep of a worker. A wake of an awake worker costs no call, and a wake by its own thread costs nothing: the worker has to
/// look at its tasks between such a wake and its sleep.
pub(crate) struct Wakes {
    state: AtomicU8,
    eventfd: OwnedFd,
}

impl Wakes {
    /// The worker is awake.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        // SAFETY: takes plain numbers; the result is checked before it is owned.
        let eventfd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if eventfd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that has no other owner.
        let eventfd = unsafe { OwnedFd::from_raw_fd(eventfd) };
        Ok(Arc::new(Self { state: AtomicU8::new(AWAKE), eventfd }))
    }

    /// The worker is about to sleep: wakes from now on are written to the eventfd. `false`: another thread woke a task before, so it
    /// must not. [`Wakes::end_sleep`] follows in either case.
    pub(crate) fn begin_sleep(&self) -> bool {
        self.state.swap(ASLEEP, Ordering::AcqRel) & NOTIFIED == 0
    }

    /// The worker is awake, and looks at its tasks next. The swap, unlike a store, shows it those that were woken before.
    pub(crate) fn end_sleep(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if Arc::as_ptr(self).addr() == OWN_WAKES.get() {
            return;
        }
        if self.state.fetch_or(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            let one = 1_u64.to_ne_bytes();
            // Each write is an edge, so the eventfd is never read: its counter is full after 2^64 writes.
            // SAFETY: the pointer is valid for eight bytes.
            unsafe { libc::write(self.eventfd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }
}

impl AsRawFd for Wakes {
    fn as_raw_fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }
}
