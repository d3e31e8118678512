//! Cancel requests: keys of the gateway's own, and the way from the worker that accepted a request to the one that owns the client.
//!
//! A key is a process number and a secret. The number names process, worker and client, so a request at any worker goes straight to
//! the owner of the client. The owner forwards it only while the client holds a server, and that server stays out of the pool until the connection
//! of the forwarded request is closed: a signal that comes late would end the query of the next client.

mod sources;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::poll_fn,
    net::IpAddr,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use weir_base::time::turn;
use weir_engine::{mailbox, timeout};
use weir_postgres_codec::Version;
use weir_postgres_session::cancel_key::{CancelKey, Place, SECRET_BYTES, SLOTS_MAX};

use self::sources::CancelSources;
use crate::relay::{ForeignCancel, Over, UpgradeRelay};
use weir_listener::login::{entropy, network};

/// The time of a forwarded request, and of the client that waits for it. Default 10 s, as PgBouncer's `cancel_wait_timeout`.
pub(crate) const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// The key of one client, and the requests that have come for it.
pub(crate) struct CancelSlot {
    number: u32,
    key: CancelKey,
    /// Requests that its task has not seen.
    requests: RefCell<Vec<Over>>,
    /// Forwarded requests whose connections are open.
    under_way: Cell<u32>,
    waiters: RefCell<Vec<Waker>>,
    /// Servers for which a request may still come: they serve no other client.
    spoiled: RefCell<Vec<u64>>,
    clients: Weak<Clients>,
}

/// The clients of a worker by their numbers.
type Clients = RefCell<HashMap<u32, Client>>;

impl Drop for CancelSlot {
    fn drop(&mut self) {
        // No task looks at them any more.
        self.requests.take().iter().for_each(|over| over());
        let Some(clients) = self.clients.upgrade() else { return };
        let is_own = clients.borrow().get(&self.number).is_some_and(|(slot, _)| std::ptr::eq(slot.as_ptr(), self));
        // The waker of the client may end with it, outside of the borrow.
        let _gone = is_own.then(|| clients.borrow_mut().remove(&self.number));
    }
}

impl CancelSlot {
    /// The key that the client is given.
    pub(crate) fn key(&self) -> &CancelKey {
        &self.key
    }

    /// Takes the requests that have come.
    pub(crate) fn take(&self) -> Vec<Over> {
        self.requests.take()
    }

    /// A forwarded request keeps the server of the client out of the pool until the result is dropped.
    pub(crate) fn hold(self: &Rc<Self>, requests: Vec<Over>) -> CancelHold {
        self.under_way.set(self.under_way.get() + 1);
        CancelHold { slot: self.clone(), requests }
    }

    /// A forwarded request is under way.
    pub(crate) fn is_held(&self) -> bool {
        self.under_way.get() > 0
    }

    /// A request to that connection was sent, and may come at any time.
    pub(crate) fn spoil(&self, connection: u64) {
        self.spoiled.borrow_mut().push(connection);
    }

    /// Whether a request may still come to that connection. It is forgotten: it is about to be closed.
    pub(crate) fn forget_spoiled(&self, connection: u64) -> bool {
        let mut spoiled = self.spoiled.borrow_mut();
        let before = spoiled.len();
        spoiled.retain(|known| *known != connection);
        spoiled.len() < before
    }

    /// Waits until none is.
    pub(crate) async fn released(&self) {
        poll_fn(|context| {
            if !self.is_held() {
                return Poll::Ready(());
            }
            let mut waiters = self.waiters.borrow_mut();
            if !waiters.iter().any(|waiter| waiter.will_wake(context.waker())) {
                waiters.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// See [`CancelSlot::hold`].
pub(crate) struct CancelHold {
    slot: Rc<CancelSlot>,
    requests: Vec<Over>,
}

impl Drop for CancelHold {
    fn drop(&mut self) {
        let slot = &self.slot;
        slot.under_way.set(slot.under_way.get() - 1);
        self.requests.iter().for_each(|over| over());
        slot.waiters.take().into_iter().for_each(Waker::wake);
    }
}

/// A request on its way to the worker of its client.
pub struct CancelMessage {
    pid: u32,
    secret: Box<[u8]>,
    over: Over,
}

impl CancelMessage {
    /// A request that came to another process, and the worker of its client; `None`: no key has this process id.
    #[must_use]
    pub fn of(pid: u32, secret: Box<[u8]>, over: Over) -> Option<(usize, Self)> {
        Some((Place::of(pid)?.worker as usize, Self { pid, secret, over }))
    }
}

/// A client, and how its task is woken.
type Client = (Weak<CancelSlot>, Rc<dyn Fn()>);

/// The keys of one listener's clients on one worker.
pub(crate) struct CancelKeys {
    place: Place,
    next: Cell<u32>,
    clients: Rc<Clients>,
    sources: RefCell<CancelSources>,
}

impl CancelKeys {
    pub(crate) fn new(process: u32, worker: usize) -> Self {
        let place = Place { process, worker: worker as u32, slot: 0 };
        Self { place, next: Cell::new(0), clients: Rc::default(), sources: RefCell::default() }
    }

    /// A key for a client of that version of the protocol; `wake` lets its task look at the slot. `None`: the system has no
    /// randomness, or there are too many workers or clients for keys.
    pub(crate) fn enter(&self, version: Version, wake: Rc<dyn Fn()>) -> Option<Rc<CancelSlot>> {
        let mut secret = [0; SECRET_BYTES];
        if !entropy::fill(&mut secret) {
            return None;
        }
        let mut clients = self.clients.borrow_mut();
        if clients.len() >= SLOTS_MAX as usize {
            return None;
        }
        let number = loop {
            let number = (self.next.get() + 1) % SLOTS_MAX;
            self.next.set(number);
            if !clients.contains_key(&number) {
                break number;
            }
        };
        let key = CancelKey::new(Place { slot: number, ..self.place }, version, secret)?;
        let slot = Rc::new(CancelSlot {
            number,
            key,
            requests: RefCell::default(),
            under_way: Cell::new(0),
            waiters: RefCell::default(),
            spoiled: RefCell::default(),
            clients: Rc::downgrade(&self.clients),
        });
        clients.insert(number, (Rc::downgrade(&slot), wake));
        Some(slot)
    }

    /// The client of `slot` is gone.
    pub(crate) fn leave(&self, slot: &CancelSlot) {
        self.clients.borrow_mut().remove(&slot.number);
    }

    /// Tells whether a source may send one more request.
    pub(crate) fn admits(&self, source: Option<IpAddr>) -> bool {
        let Some(source) = source.map(network) else { return true };
        self.sources.borrow_mut().admits(source, turn::now())
    }

    /// Sends a request to the worker that owns its client by `post`, or to the process before, and waits until it is over; false: its
    /// client is in no process that lives.
    pub(crate) async fn route(
        &self,
        (pid, secret): (u32, &[u8]),
        (relay, listener): (&UpgradeRelay, &Arc<str>),
        post: impl FnOnce(usize, CancelMessage) -> bool,
    ) -> bool {
        let (over, is_over) = mailbox();
        let over: Over = Arc::new(move || over.send(()));
        let secret = secret.into();
        let is_sent = match Place::of(pid) {
            None => false,
            Some(place) if place.process == self.place.process => {
                post(place.worker as usize, CancelMessage { pid, secret, over })
            }
            Some(_) => relay.forward(ForeignCancel { listener: listener.clone(), pid, secret, over }),
        };
        if is_sent {
            // One without a taker is dropped, and the inbox stays silent.
            let _ = timeout(CANCEL_TIMEOUT, is_over.receive()).await;
        }
        is_sent
    }

    /// Gives a request to its client, if the secret is right; false: its key is none of a client.
    pub(crate) fn deliver(&self, message: &CancelMessage) -> bool {
        let number = Place::of(message.pid).map(|place| place.slot);
        let found = number.and_then(|number| {
            let clients = self.clients.borrow();
            let (slot, wake) = clients.get(&number)?;
            Some((slot.upgrade()?, wake.clone()))
        });
        match found.filter(|(slot, _)| slot.key.matches(message.pid, &message.secret)) {
            Some((slot, wake)) => {
                slot.requests.borrow_mut().push(message.over.clone());
                wake();
                true
            }
            None => {
                (message.over)();
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        task::Wake,
    };

    /// A request, and how often it was over.
    fn message(slot: &CancelSlot, change: impl FnOnce(&mut Vec<u8>)) -> (CancelMessage, Arc<AtomicU32>) {
        let mut secret = slot.key().secret().to_vec();
        change(&mut secret);
        let over = Arc::<AtomicU32>::default();
        let own = over.clone();
        let count = Arc::new(move || {
            own.fetch_add(1, Ordering::Relaxed);
        });
        (CancelMessage { pid: slot.key().pid(), secret: secret.into(), over: count }, over)
    }

    fn slot(keys: &CancelKeys) -> (Rc<CancelSlot>, Rc<Cell<u32>>) {
        let woken = Rc::<Cell<u32>>::default();
        let wakes = woken.clone();
        let slot = keys.enter(Version::V3_0, Rc::new(move || wakes.set(wakes.get() + 1)));
        (slot.expect("randomness"), woken)
    }

    #[test]
    fn a_key_names_its_worker_and_no_other_client_has_it() {
        let keys = CancelKeys::new(1, 7);
        let ((first, _), (second, _)) = (slot(&keys), slot(&keys));
        assert_ne!(first.key().pid(), second.key().pid());
        assert_eq!(Place::of(first.key().pid()).expect("a place").worker, 7);
    }

    #[test]
    fn p16_only_the_right_secret_reaches_the_client() {
        let keys = CancelKeys::new(1, 0);
        let (slot, woken) = slot(&keys);
        for change in [
            |secret: &mut Vec<u8>| secret[3] ^= 1,
            |secret: &mut Vec<u8>| secret.push(0),
            |secret: &mut Vec<u8>| secret.truncate(3),
        ] {
            let (wrong, over) = message(&slot, change);
            assert!(!keys.deliver(&wrong));
            assert_eq!(
                (woken.get(), slot.take().len(), over.load(Ordering::Relaxed)),
                (0, 0, 1),
                "it is over, and nothing came of it"
            );
        }
        let (right, over) = message(&slot, |_| {});
        assert!(keys.deliver(&right));
        assert_eq!((woken.get(), over.load(Ordering::Relaxed)), (1, 0));
        let hold = slot.hold(slot.take());
        assert!(slot.is_held());
        drop(hold);
        assert_eq!((slot.is_held(), over.load(Ordering::Relaxed)), (false, 1));
        keys.leave(&slot);
        assert!(!keys.deliver(&right));
        assert_eq!((woken.get(), slot.take().len()), (1, 0));
    }

    #[test]
    fn a_slot_that_is_dropped_leaves_no_entry_and_all_that_wait_for_a_request_are_woken() {
        use std::{pin::pin, task::Context};
        let keys = CancelKeys::new(1, 0);
        let slot = keys.enter(Version::V3_0, Rc::new(|| {})).expect("a slot");
        let hold = slot.hold(Vec::new());
        let (mut first, mut second) = (pin!(slot.released()), pin!(slot.released()));
        let counts = [Arc::new(WakeCount::default()), Arc::new(WakeCount::default())];
        for (future, count) in [first.as_mut(), second.as_mut()].into_iter().zip(&counts) {
            let waker = Waker::from(count.clone());
            assert!(Future::poll(future, &mut Context::from_waker(&waker)).is_pending());
        }
        drop(hold);
        assert_eq!(counts.map(|count| count.0.load(Ordering::Relaxed)), [1, 1]);
        assert_eq!(keys.clients.borrow().len(), 1);
        drop(keys.enter(Version::V3_0, Rc::new(|| {})).expect("a slot of a login that fails"));
        assert_eq!(keys.clients.borrow().len(), 1);
    }

    #[derive(Default)]
    struct WakeCount(AtomicU32);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
