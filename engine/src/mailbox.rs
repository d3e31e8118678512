//! Messages to a worker from other threads: hand-offs, snapshots, drain. Never on the request path.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

/// Wakes a task that may be another thread's.
pub fn wake_elsewhere(waker: Waker) {
    if std::thread::panicking() {
        // The executor aborts the process if a thread that unwinds wakes its tasks, and the panic would go unread.
        // Without a thread for it the wake is lost, as the task would be with the process.
        let _ = std::thread::Builder::new().spawn(move || waker.wake());
    } else {
        waker.wake();
    }
}

struct Shared<T> {
    queue: Mutex<(VecDeque<T>, Option<Waker>)>,
    depth: AtomicUsize,
}

/// The sending half: any thread, any number of clones.
pub struct Mailbox<T>(Arc<Shared<T>>);

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The receiving half: one task on the worker.
pub struct Inbox<T>(Arc<Shared<T>>);

/// A mailbox and its inbox. The queue is bounded by its senders: one snapshot at a time, and hand-offs by the
/// connection limit.
pub fn mailbox<T>() -> (Mailbox<T>, Inbox<T>) {
    let shared = Arc::new(Shared { queue: Mutex::new((VecDeque::new(), None)), depth: AtomicUsize::new(0) });
    (Mailbox(shared.clone()), Inbox(shared))
}

impl<T> Mailbox<T> {
    /// Queues a message; wakes the worker only if it waits, so a burst costs one wake.
    pub fn send(&self, message: T) {
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.0.push_back(message);
        self.0.depth.store(queue.0.len(), Ordering::Relaxed);
        let waker = queue.1.take();
        drop(queue);
        if let Some(waker) = waker {
            wake_elsewhere(waker);
        }
    }

    /// Messages waiting.
    pub fn depth(&self) -> usize {
        self.0.depth.load(Ordering::Relaxed)
    }
}

impl<T> Inbox<T> {
    /// All waiting messages, at least one.
    pub async fn receive(&self) -> VecDeque<T> {
        poll_fn(|context| {
            let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.0.is_empty() {
                queue.1 = Some(context.waker().clone());
                return Poll::Pending;
            }
            self.0.depth.store(0, Ordering::Relaxed);
            Poll::Ready(std::mem::take(&mut queue.0))
        })
        .await
    }
}
