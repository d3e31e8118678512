//! News about claims on shared budgets, from the thread that claims to the requests that wait for them.

use std::{
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// The news so far, and those who wait for the next.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Each request reads it, without the lock. It grows under the lock.
    number: AtomicU64,
    /// One for each task. A task that has gone leaves its waker to the next news, half a second later at most.
    waiting: Mutex<Vec<Waker>>,
}

impl News {
    /// The number of the latest.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// There are news.
    pub(super) fn announce(&self) {
        let waiting = {
            let mut waiting = self.lock();
            self.number.fetch_add(1, Ordering::Release);
            mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits for news behind those of `number`. `registered` is the waker of this wait, at first none.
    pub(super) fn poll_after(&self, number: u64, registered: &mut Option<Waker>, context: &Context<'_>) -> Poll<()> {
        let mut waiting = self.lock();
        if self.number() != number {
            return Poll::Ready(());
        }
        // Many wait at a time: a search for the waker would make each poll as long as all of them.
        if !registered.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
            *registered = Some(context.waker().clone());
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        // No panic leaves it half changed: each change is a call of a collection.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_wake_each_task_once_and_are_not_missed_in_between() {
        let (news, context) = (News::default(), Context::from_waker(Waker::noop()));
        let (number, mut registered) = (news.number(), None);
        assert!((0..3).all(|_| news.poll_after(number, &mut registered, &context).is_pending()));
        assert_eq!(news.lock().len(), 1);
        news.announce();
        assert!(news.lock().is_empty());
        assert!(news.poll_after(number, &mut registered, &context).is_ready());
        assert!(news.poll_after(news.number(), &mut None, &context).is_pending());
        assert_eq!(news.lock().len(), 1);
    }
}
