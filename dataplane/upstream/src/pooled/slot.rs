//! The way to a waiter: permits and connections, from its own worker or another one.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use weir_base::exchange::Refusal;
use weir_engine::wake_elsewhere;

use super::{PooledProtocol, connection::Facts, permit::PoolPermit, shared::KeyShare};

/// A connection on its way to another worker.
pub(crate) struct Parcel<P: PooledProtocol> {
    pub(crate) socket: OwnedFd,
    pub(crate) state: P::Moved,
    pub(crate) facts: Facts,
    pub(crate) permit: PoolPermit<P>,
}

/// The end of a wait.
pub(crate) enum Delivery<P: PooledProtocol> {
    /// A connection of this worker, which its member keeps for it.
    Here,
    /// One of another worker.
    Moved(Parcel<P>),
    /// One was for it, and was lost on the way.
    Lost,
    /// There is none.
    Refused(Refusal, Option<Arc<[u8]>>),
}

/// An event for one that waits.
pub(crate) enum Event<P: PooledProtocol> {
    /// It makes a connection, and waits on.
    Launch(PoolPermit<P>),
    /// It waits no longer.
    End(Delivery<P>),
}

/// Where it comes in.
pub(crate) struct Slot<P: PooledProtocol> {
    pub(crate) share: Arc<KeyShare<P>>,
    mail: Mutex<Mail<P>>,
}

struct Mail<P: PooledProtocol> {
    launches: Vec<PoolPermit<P>>,
    end: Option<Delivery<P>>,
    waker: Option<Waker>,
    is_closed: bool,
}

impl<P: PooledProtocol> Slot<P> {
    pub(crate) fn new(share: Arc<KeyShare<P>>) -> Arc<Self> {
        let mail = Mail { launches: Vec::new(), end: None, waker: None, is_closed: false };
        Arc::new(Self { share, mail: Mutex::new(mail) })
    }

    /// It is to make a connection. If it has left, the permit is returned.
    pub(crate) fn launch(&self, permit: PoolPermit<P>) {
        let left = self.put(|mail| {
            if mail.is_closed {
                Some(permit)
            } else {
                mail.launches.push(permit);
                None
            }
        });
        // Outside of the lock: it may be given to another one.
        drop(left);
    }

    /// Ends its wait.
    ///
    /// # Errors
    /// It has left.
    pub(crate) fn deliver(&self, delivery: Delivery<P>) -> Result<(), Delivery<P>> {
        let left = self.put(|mail| {
            if mail.is_closed {
                Some(delivery)
            } else {
                mail.end = Some(delivery);
                None
            }
        });
        left.map_or(Ok(()), Err)
    }

    fn put<T>(&self, put: impl FnOnce(&mut Mail<P>) -> T) -> T {
        let mut mail = self.mail();
        let put = put(&mut mail);
        let waker = mail.waker.take();
        drop(mail);
        waker.into_iter().for_each(wake_elsewhere);
        put
    }

    /// The next event.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Event<P>> {
        let mut mail = self.mail();
        if let Some(end) = mail.end.take() {
            return Poll::Ready(Event::End(end));
        }
        if let Some(permit) = mail.launches.pop() {
            return Poll::Ready(Event::Launch(permit));
        }
        mail.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// It leaves: what was for it and has not been seen.
    pub(crate) fn close(&self) -> (Option<Delivery<P>>, Vec<PoolPermit<P>>) {
        let mut mail = self.mail();
        mail.is_closed = true;
        mail.waker = None;
        (mail.end.take(), std::mem::take(&mut mail.launches))
    }

    fn mail(&self) -> MutexGuard<'_, Mail<P>> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
