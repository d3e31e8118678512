//! The load: clients in threads of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::client::{Client, Habits, Pulse};
use super::tally::Tally;

/// Stack of a client's thread: it keeps its values on the heap.
const STACK_BYTES: usize = 256 << 10;

/// Running clients. They end when this is dropped.
pub(crate) struct Load {
    started: Instant,
    stop: Arc<AtomicBool>,
    pulses: Arc<Vec<Pulse>>,
    threads: Vec<JoinHandle<Tally>>,
}

impl Load {
    /// Starts `clients` of them.
    pub(crate) fn start(clients: usize, habits: Habits) -> Result<Self> {
        let started = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let pulses: Arc<Vec<Pulse>> = Arc::new((0..clients).map(|_| Pulse::default()).collect());
        let mut load = Self { started, stop, pulses, threads: Vec::new() };
        for index in 0..clients {
            let (stop, pulses) = (Arc::clone(&load.stop), Arc::clone(&load.pulses));
            let work = move || Client::new(index, habits, &pulses[index], started).run(&stop);
            load.threads.push(thread::Builder::new().stack_size(STACK_BYTES).spawn(work)?);
        }
        Ok(load)
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// How many clients have had a right reply after `mark`.
    pub(crate) fn good_since(&self, mark: Duration) -> usize {
        let mark = mark.as_nanos() as u64;
        self.pulses.iter().filter(|pulse| pulse.good.load(Ordering::Relaxed) > mark).count()
    }

    /// When any client last saw a failure.
    pub(crate) fn last_bad(&self) -> Duration {
        let nanos = self.pulses.iter().map(|pulse| pulse.bad.load(Ordering::Relaxed)).max();
        Duration::from_nanos(nanos.unwrap_or(0))
    }

    /// Stops all clients after the round they are in.
    pub(crate) fn finish(mut self) -> Result<Tally> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        for thread in self.threads.drain(..) {
            all.add(&thread.join().map_err(|_| anyhow!("a client panicked"))?);
        }
        Ok(all)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Its panic was printed; there is no one left to tell.
            let _ = thread.join();
        }
    }
}
