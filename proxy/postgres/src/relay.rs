//! The link between the processes of an upgrade: cancel requests, and orders of operators.
//!
//! The new process accepts all cancel requests, and the clients of the old one have keys that name it. While several old ones drain, each
//! sends a request on to the one before it, up to the one that the key names. PAUSE and RESUME at the new process go the same way: clients
//! of the old one may wait for the end of a pause.
//!
//! Orders that outlive the process are given while the gate is open. It is closed from the moment at which the old process says which orders
//! hold until the new one serves: no order falls between the two.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{SyncSender, TrySendError},
    },
};

use weir_postgres_session::cancel_key::{PROCESSES_MAX, Place};

/// Runs when a request is over, on any thread.
pub type Over = Arc<dyn Fn() + Send + Sync>;

/// A request for a client of the process before.
pub struct ForeignCancel {
    /// The name of its listener, in this process.
    pub listener: Arc<str>,
    /// The process id of the key.
    pub pid: u32,
    /// The secret of the key, which its owner compares.
    pub secret: Box<[u8]>,
    /// The client of the request waits for this.
    pub over: Over,
}

impl fmt::Debug for ForeignCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignCancel")
            .field("listener", &self.listener)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

/// PAUSE or RESUME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseOrder {
    /// The database as clients name it; `None`: all.
    pub database: Option<Box<[u8]>>,
    /// PAUSE.
    pub is_paused: bool,
}

/// PAUSE or RESUME at this process, for the process before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignPause {
    /// The name of the listener, in this process.
    pub listener: Arc<str>,
    /// The order.
    pub order: PauseOrder,
}

/// Something for the process before.
#[derive(Debug)]
pub enum Foreign {
    /// A cancel request.
    Cancel(ForeignCancel),
    /// An order.
    Pause(ForeignPause),
}

/// The place of a process among those of its upgrades, and the way to the one before it. Clones share it.
#[derive(Clone)]
pub struct UpgradeRelay(Arc<Relay>);

struct Relay {
    process: u32,
    way: Mutex<Option<SyncSender<Foreign>>>,
    /// Orders may be given.
    is_open: Mutex<bool>,
}

impl UpgradeRelay {
    /// For the process to which so many upgrades have led: neighbours have different numbers.
    #[must_use]
    pub fn new(restart_epoch: u64) -> Self {
        let process = (restart_epoch % u64::from(PROCESSES_MAX)) as u32 + 1;
        Self(Arc::new(Relay { process, way: Mutex::default(), is_open: Mutex::new(true) }))
    }

    /// Runs `order` if orders may be given now, and keeps the gate as it is meanwhile. `None`: they may not.
    pub(crate) fn while_open<T>(&self, order: impl FnOnce() -> T) -> Option<T> {
        let is_open = lock(&self.0.is_open);
        is_open.then(order)
    }

    /// No order is given from now on. `collect` sees all that were given before.
    pub fn close_gate<T>(&self, collect: impl FnOnce() -> T) -> T {
        let mut is_open = lock(&self.0.is_open);
        *is_open = false;
        collect()
    }

    /// Orders may be given again.
    pub fn open_gate(&self) {
        *lock(&self.0.is_open) = true;
    }

    /// The way to the process before; `None` once that has ended.
    pub fn connect(&self, way: Option<SyncSender<Foreign>>) {
        *lock(&self.0.way) = way;
    }

    /// The number of this process in keys.
    pub(crate) fn process(&self) -> u32 {
        self.0.process
    }

    /// Sends a request with the key of another process on its way, to the one before this; false: there is none, the key is one of this
    /// process, or too many are on their way.
    pub fn forward(&self, request: ForeignCancel) -> bool {
        let is_foreign = Place::of(request.pid).is_some_and(|place| place.process != self.0.process);
        is_foreign && self.send(Foreign::Cancel(request))
    }

    /// Sends an order on its way to the process before, if there is one; false: too many are on their way.
    pub fn forward_pause(&self, pause: ForeignPause) -> bool {
        let has_way = lock(&self.0.way).is_some();
        !has_way || self.send(Foreign::Pause(pause))
    }

    fn send(&self, foreign: Foreign) -> bool {
        match lock(&self.0.way).as_ref().map(|way| way.try_send(foreign)) {
            Some(Ok(())) => true,
            None | Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) => false,
        }
    }
}

/// Locks; a thread that panicked while it held the lock left the value whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn requests_for_older_processes_go_to_the_process_before_while_it_lives() {
        let request = |relay: &UpgradeRelay| {
            let pid = Place { process: relay.process(), worker: 0, slot: 7 }.pid().expect("in range");
            ForeignCancel { listener: "pg".into(), pid, secret: [1].into(), over: Arc::new(|| {}) }
        };
        let (sender, receiver) = sync_channel(1);
        let received = || match receiver.recv().expect("it came") {
            Foreign::Cancel(request) => request.pid,
            other @ Foreign::Pause(_) => panic!("{other:?}"),
        };
        for epoch in [1, 62, 63, 64, 1_000] {
            let (old, new) = (UpgradeRelay::new(epoch - 1), UpgradeRelay::new(epoch));
            let oldest = UpgradeRelay::new((epoch + 61) % 63);
            assert_ne!(old.process(), new.process());
            assert!(!new.forward(request(&old)), "there is no way yet");
            new.connect(Some(sender.clone()));
            assert!(!new.forward(request(&new)) && !new.forward(ForeignCancel { pid: 7, ..request(&new) }));
            assert!(new.forward(request(&old)) && !new.forward(request(&old)), "one has room");
            assert_eq!(received(), request(&old).pid);
            assert!(new.forward(request(&oldest)), "two upgrades in a row");
            assert_eq!(received(), request(&oldest).pid);
            new.connect(None);
            assert!(!new.forward(request(&old)));
        }
    }

    #[test]
    fn an_order_reaches_the_process_before_and_needs_none() {
        let relay = UpgradeRelay::new(1);
        let order = PauseOrder { database: Some(b"shop"[..].into()), is_paused: false };
        let pause = ForeignPause { listener: "pg".into(), order };
        assert!(relay.forward_pause(pause.clone()), "there is no process before");
        let (sender, receiver) = sync_channel(1);
        relay.connect(Some(sender));
        assert!(relay.forward_pause(pause.clone()) && !relay.forward_pause(pause.clone()), "one has room");
        assert!(matches!(receiver.recv(), Ok(Foreign::Pause(came)) if came == pause));
    }

    #[test]
    fn no_order_falls_between_those_that_are_handed_over_and_the_new_process() {
        let relay = UpgradeRelay::new(0);
        let given = Mutex::new(Vec::new());
        let order = |number: u32| relay.while_open(|| lock(&given).push(number)).is_some();
        assert!(order(1));
        assert_eq!(relay.close_gate(|| lock(&given).clone()), [1]);
        assert!(!order(2));
        relay.open_gate();
        assert!(order(3), "the upgrade has failed");
        assert_eq!(*lock(&given), [1, 3]);
    }
}
