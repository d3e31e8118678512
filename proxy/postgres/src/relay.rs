//! Cancel requests for clients of the other process of an upgrade. The new process accepts them all, and the clients of the old one
//! have keys that name it.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{SyncSender, TrySendError},
    },
};

use weir_postgres_session::cancel_key::PROCESSES_MAX;

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
    before: u32,
    way: Mutex<Option<SyncSender<ForeignCancel>>>,
}

impl CancelRelay {
    /// For the process to which so many upgrades have led: neighbours have different numbers.
    #[must_use]
    pub fn new(restart_epoch: u64) -> Self {
        let number = |epoch: u64| (epoch % u64::from(PROCESSES_MAX)) as u32 + 1;
        let before = restart_epoch.checked_sub(1).map_or(0, number);
        Self(Arc::new(Relay { process: number(restart_epoch), before, way: Mutex::default() }))
    }

    /// The way to the process before; `None` once that has ended.
    pub fn connect(&self, way: Option<SyncSender<ForeignCancel>>) {
        *self.0.way.lock().unwrap_or_else(PoisonError::into_inner) = way;
    }

    /// The number of this process in keys.
    pub(crate) fn process(&self) -> u32 {
        self.0.process
    }

    /// Sends a request on its way; false: it is for no process that lives, or too many are on their way.
    pub(crate) fn forward(&self, process: u32, request: ForeignCancel) -> bool {
        let way = self.0.way.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(way) = way.as_ref().filter(|_| process == self.0.before) else { return false };
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
    fn a_request_goes_to_the_process_before_alone_while_it_lives() {
        let request = || ForeignCancel { listener: "pg".into(), pid: 7, secret: [1].into(), over: Arc::new(|| {}) };
        let (sender, receiver) = sync_channel(1);
        for epoch in [1, 62, 63, 64, 1_000] {
            let (old, new) = (CancelRelay::new(epoch - 1), CancelRelay::new(epoch));
            assert_ne!(old.process(), new.process());
            assert!(!new.forward(old.process(), request()), "there is no way yet");
            new.connect(Some(sender.clone()));
            assert!(!new.forward(new.process(), request()) && !new.forward(0, request()));
            assert!(new.forward(old.process(), request()) && !new.forward(old.process(), request()), "one has room");
            assert_eq!(receiver.recv().expect("it came").pid, 7);
            new.connect(None);
            assert!(!new.forward(old.process(), request()));
        }
        assert!(!CancelRelay::new(0).forward(0, request()), "nothing was before the first");
    }
}
