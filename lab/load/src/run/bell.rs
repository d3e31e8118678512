//! Wakes the one task that decides what is sent.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};

use weir_base::Time;
use weir_engine::sleep;

/// Something happened: a slot became free, a connection came or went. Lives on one core.
#[derive(Default)]
pub(super) struct Bell {
    has_rung: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Bell {
    /// Wakes the waiting task, or lets its next wait return at once.
    pub(super) fn ring(&self) {
        self.has_rung.set(true);
        if let Some(waker) = self.waiting.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Until the bell rings or `deadline` has come; [`Time::NEVER`] for the bell alone.
    pub(super) async fn wait(&self, deadline: Time) {
        let mut timer = pin!(async {
            match deadline {
                Time::NEVER => pending().await,
                deadline => sleep(deadline.since(Time::now())).await,
            }
        });
        poll_fn(|context| {
            if self.has_rung.take() {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(context.waker().clone());
            timer.as_mut().poll(context)
        })
        .await;
    }
}
