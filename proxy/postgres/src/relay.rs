//! Cancel requests for clients of the other process of an upgrade. The new process accepts them all, and the clients of the old one
//! have keys that name it. While several old ones drain, each sends a request on to the one before it, up to the one that the key names.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
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

/// The place of a process among those of its upgrades, and the way to the one before it. Clones share it.
#[derive(Clone)]
pub struct CancelRelay(Arc<Relay>);

struct Relay {
    process: u32,
    way: Mutex<Option<SyncSender<ForeignCancel>>>,
}

impl CancelRelay {
    /// For the process to which so many upgrades have led: neighbours have different numbers.
    #[must_use]
    pub fn new(restart_epoch: u64) -> Self {
        let process = (restart_epoch % u64::from(PROCESSES_MAX)) as u32 + 1;
        Self(Arc::new(Relay { process, way: Mutex::default() }))
    }

    /// The way to the process before; `None` once that has ended.
    pub fn connect(&self, way: Option<SyncSender<ForeignCancel>>) {
        *self.0.way.lock().unwrap_or_else(PoisonError::into_inner) = way;
    }

    /// The number of this process in keys.
    pub(crate) fn process(&self) -> u32 {
        self.0.process
    }

    /// Sends a request with the key of another process on its way, to the one before this; false: there is none, the key is one of this
    /// process, or too many are on their way.
    pub fn forward(&self, request: ForeignCancel) -> bool {
        let is_foreign = Place::of(request.pid).is_some_and(|place| place.process != self.0.process);
        let way = self.0.way.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(way) = way.as_ref().filter(|_| is_foreign) else { return false };
        match way.try_send(request) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn requests_for_older_processes_go_to_the_process_before_while_it_lives() {
        let request = |relay: &CancelRelay| {
            let pid = Place { process: relay.process(), worker: 0, slot: 7 }.pid().expect("in range");
            ForeignCancel { listener: "pg".into(), pid, secret: [1].into(), over: Arc::new(|| {}) }
        };
        let (sender, receiver) = sync_channel(1);
        for epoch in [1, 62, 63, 64, 1_000] {
            let (old, new) = (CancelRelay::new(epoch - 1), CancelRelay::new(epoch));
            let oldest = CancelRelay::new((epoch + 61) % 63);
            assert_ne!(old.process(), new.process());
            assert!(!new.forward(request(&old)), "there is no way yet");
            new.connect(Some(sender.clone()));
            assert!(!new.forward(request(&new)) && !new.forward(ForeignCancel { pid: 7, ..request(&new) }));
            assert!(new.forward(request(&old)) && !new.forward(request(&old)), "one has room");
            assert_eq!(receiver.recv().expect("it came").pid, request(&old).pid);
            assert!(new.forward(request(&oldest)), "two upgrades in a row");
            assert_eq!(receiver.recv().expect("it came").pid, request(&oldest).pid);
            new.connect(None);
            assert!(!new.forward(request(&old)));
        }
    }
}
