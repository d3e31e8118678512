//! Bells between workers: one waits for what another one may have.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Poll, Waker},
};

use weir_engine::wake_elsewhere;

/// The bell of the pool of one worker: another worker waits for a connection that is idle here.
#[derive(Default)]
pub(crate) struct Bell(Mutex<(bool, Option<Waker>)>);

impl Bell {
    pub(crate) fn ring(&self) {
        let waker = {
            let mut bell = self.bell();
            bell.0 = true;
            bell.1.take()
        };
        waker.into_iter().for_each(wake_elsewhere);
    }

    /// Waits until it is rung.
    pub(crate) async fn rung(&self) {
        poll_fn(|context| {
            let mut bell = self.bell();
            if std::mem::take(&mut bell.0) {
                return Poll::Ready(());
            }
            bell.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// It was rung and not heard yet; from now on it was heard.
    #[cfg(test)]
    pub(crate) fn take_ring(&self) -> bool {
        std::mem::take(&mut self.bell().0)
    }

    fn bell(&self) -> MutexGuard<'_, (bool, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bells of all workers.
#[derive(Default)]
pub(crate) struct Bells(Vec<Weak<Bell>>);

impl Bells {
    /// One more worker.
    pub(crate) fn enter(&mut self, bell: &Arc<Bell>) {
        self.0.retain(|bell| bell.strong_count() > 0);
        self.0.push(Arc::downgrade(bell));
    }

    /// All but `own`.
    pub(crate) fn others(&self, own: &Arc<Bell>) -> Vec<Arc<Bell>> {
        self.0.iter().filter_map(Weak::upgrade).filter(|one| !Arc::ptr_eq(one, own)).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Bell>> {
        self.0.iter().filter_map(Weak::upgrade).collect()
    }
}
