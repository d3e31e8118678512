//! Cancel requests: keys of the gateway's own, and the way from the worker that accepted a request to the one that owns the client.
//!
//! A key is a process number and a secret. The number names process, worker and client, so a request at any worker goes straight to
//! the owner of the client. The owner forwards it only while the client holds a server, and that server stays out of the pool until the connection
//! of the forwarded request is closed: a signal that comes late would end the query of the next client.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::poll_fn,
    net::IpAddr,
    rc::{Rc, Weak},
    task::{Poll, Waker},
    time::Duration,
};

use weir_base::{rate::LocalRate, time::turn};
use weir_engine::{Mailbox, mailbox, timeout};
use weir_postgres_codec::Version;
use weir_postgres_session::cancel_key::{CancelKey, PROCESSES_MAX, Place, SECRET_BYTES, SLOTS_MAX};

/// The time of a forwarded request, and of the client that waits for it. Default 10 s, as PgBouncer's `cancel_wait_timeout`.
pub(crate) const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests of one source per worker and second. Default 20: a person cancels now and then, a driver with a timeout in each of its
/// connections some times a second; each costs a connection to the server.
const PER_SOURCE_AND_SECOND: f64 = 20.0;
/// Sources whose rate is remembered. Beyond it all are forgotten: 64 KiB per worker at the most.
const SOURCES_MAX: usize = 1_024;

/// The key of one client, and the requests that have come for it.
pub(crate) struct CancelSlot {
    number: u32,
    key: CancelKey,
    /// Requests that its task has not seen; each gets a message when it is over.
    requests: RefCell<Vec<Mailbox<()>>>,
    /// Forwarded requests whose connections are open.
    under_way: Cell<u32>,
    waiters: RefCell<Vec<Waker>>,
    clients: Weak<Clients>,
}

/// The clients of a worker by their numbers.
type Clients = RefCell<HashMap<u32, Client>>;

impl Drop for CancelSlot {
    fn drop(&mut self) {
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
    pub(crate) fn take(&self) -> Vec<Mailbox<()>> {
        self.requests.take()
    }

    /// A forwarded request keeps the server of the client out of the pool until the result is dropped.
    pub(crate) fn hold(self: &Rc<Self>, requests: Vec<Mailbox<()>>) -> CancelHold {
        self.under_way.set(self.under_way.get() + 1);
        CancelHold { slot: self.clone(), requests }
    }

    /// A forwarded request is under way.
    pub(crate) fn is_held(&self) -> bool {
        self.under_way.get() > 0
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
    requests: Vec<Mailbox<()>>,
}

impl Drop for CancelHold {
    fn drop(&mut self) {
        let slot = &self.slot;
        slot.under_way.set(slot.under_way.get() - 1);
        self.requests.iter().for_each(|request| request.send(()));
        slot.waiters.take().into_iter().for_each(Waker::wake);
    }
}

/// A request on its way to the worker of its client.
pub(crate) struct CancelMessage {
    pid: u32,
    secret: Box<[u8]>,
    over: Mailbox<()>,
}

/// A client, and how its task is woken.
type Client = (Weak<CancelSlot>, Rc<dyn Fn()>);

/// The keys of one listener's clients on one worker.
pub(crate) struct CancelKeys {
    place: Place,
    next: Cell<u32>,
    clients: Rc<Clients>,
    sources: RefCell<HashMap<IpAddr, LocalRate>>,
}

impl CancelKeys {
    pub(crate) fn new(worker: usize) -> Self {
        let process = std::process::id() % PROCESSES_MAX + 1;
        let place = Place { process, worker: worker as u32, slot: 0 };
        Self { place, next: Cell::new(0), clients: Rc::default(), sources: RefCell::default() }
    }

    /// A key for a client of that version of the protocol; `wake` lets its task look at the slot. `None`: the system has no
    /// randomness, or there are too many workers or clients for keys.
    pub(crate) fn enter(&self, version: Version, wake: Rc<dyn Fn()>) -> Option<Rc<CancelSlot>> {
        let mut secret = [0; SECRET_BYTES];
        aws_lc_rs::rand::fill(&mut secret).ok()?;
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
        let Some(source) = source else { return true };
        let (now, mut sources) = (turn::now(), self.sources.borrow_mut());
        if sources.len() >= SOURCES_MAX && !sources.contains_key(&source) {
            sources.clear();
        }
        let rate = sources.entry(source).or_insert_with(|| LocalRate::new(Some(PER_SOURCE_AND_SECOND), now));
        rate.try_take(1, now)
    }

    /// Sends a request to the worker that owns its client by `post`, and waits until it is over.
    pub(crate) async fn route(&self, pid: u32, secret: &[u8], post: impl FnOnce(usize, CancelMessage) -> bool) {
        let (over, is_over) = mailbox();
        let message = CancelMessage { pid, secret: secret.into(), over };
        let is_sent = match Place::of(pid).filter(|place| place.process == self.place.process) {
            Some(place) if place.worker == self.place.worker => {
                self.deliver(&message);
                true
            }
            Some(place) => post(place.worker as usize, message),
            None => false,
        };
        if is_sent {
            // One without a taker is dropped, and the inbox stays silent.
            let _ = timeout(CANCEL_TIMEOUT, is_over.receive()).await;
        }
    }

    /// Gives a request to its client, if the secret is right.
    pub(crate) fn deliver(&self, message: &CancelMessage) {
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
            }
            None => message.over.send(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        task::Wake,
    };

    fn message(slot: &CancelSlot, change: impl FnOnce(&mut Vec<u8>)) -> CancelMessage {
        let mut secret = slot.key().secret().to_vec();
        change(&mut secret);
        CancelMessage { pid: slot.key().pid(), secret: secret.into(), over: mailbox().0 }
    }

    fn slot(keys: &CancelKeys) -> (Rc<CancelSlot>, Rc<Cell<u32>>) {
        let woken = Rc::<Cell<u32>>::default();
        let wakes = woken.clone();
        let slot = keys.enter(Version::V3_0, Rc::new(move || wakes.set(wakes.get() + 1)));
        (slot.expect("randomness"), woken)
    }

    #[test]
    fn a_key_names_its_worker_and_no_other_client_has_it() {
        let keys = CancelKeys::new(7);
        let ((first, _), (second, _)) = (slot(&keys), slot(&keys));
        assert_ne!(first.key().pid(), second.key().pid());
        assert_eq!(Place::of(first.key().pid()).expect("a place").worker, 7);
    }

    #[test]
    fn p16_only_the_right_secret_reaches_the_client() {
        let keys = CancelKeys::new(0);
        let (slot, woken) = slot(&keys);
        for change in [
            |secret: &mut Vec<u8>| secret[3] ^= 1,
            |secret: &mut Vec<u8>| secret.push(0),
            |secret: &mut Vec<u8>| secret.truncate(3),
        ] {
            let wrong = message(&slot, change);
            keys.deliver(&wrong);
            assert_eq!(
                (woken.get(), slot.take().len(), wrong.over.depth()),
                (0, 0, 1),
                "it is over, and nothing came of it"
            );
        }
        let right = message(&slot, |_| {});
        keys.deliver(&right);
        assert_eq!((woken.get(), right.over.depth()), (1, 0));
        let hold = slot.hold(slot.take());
        assert!(slot.is_held());
        drop(hold);
        assert_eq!((slot.is_held(), right.over.depth()), (false, 1));
        keys.leave(&slot);
        keys.deliver(&right);
        assert_eq!((woken.get(), slot.take().len()), (1, 0));
    }

    #[test]
    fn a_slot_that_is_dropped_leaves_no_entry_and_all_that_wait_for_a_request_are_woken() {
        use std::{pin::pin, task::Context};
        let keys = CancelKeys::new(0);
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
