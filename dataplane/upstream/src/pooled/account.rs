//! The connections of one key to one endpoint, over all workers, and those that wait for one. Pure: time comes in.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use weir_base::time::Time;

/// How much longer one must have waited than one on the worker of a free connection, for the connection to go to its worker. 1 ms: many
/// times the cost of such a move (a descriptor, two wakes), so that workers which are all busy do not move a connection per
/// transaction. Worst case: one waits so much longer than one that came later on another worker.
pub(super) const LEND_AFTER: Duration = Duration::from_millis(1);

/// The state that a worker reads, without the lock, before it keeps a connection that came back.
#[derive(Default)]
pub(crate) struct Signals {
    flags: AtomicU32,
    generation: AtomicU32,
}

/// One waits for a connection of the key.
const WAITING: u32 = 1;
/// Connections of the key are not used now.
const PAUSED: u32 = 2;
/// There are more than the pool may have for long.
const OVER: u32 = 4;
/// There are as many as the pool may have for long.
const FULL: u32 = 8;

impl Signals {
    /// A connection that is free needs a look at the ledger.
    #[inline]
    pub(crate) fn needs_look(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & (WAITING | PAUSED | OVER) != 0
    }

    /// One waits for a connection of the key.
    pub(crate) fn is_awaited(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & WAITING != 0
    }

    /// No connection is made for those that come now, before one ends.
    pub(crate) fn is_full(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & FULL != 0
    }

    /// See [`super::Scope`].
    pub(crate) fn is_paused(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & PAUSED != 0
    }

    /// Connections of an older generation are closed when they are free.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(super) fn advance_generation(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

/// When the next attempt may be made after some have failed in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    retry_at: Time,
}

impl Backoff {
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// `under_way`: attempts now. After a failure one at a time decides.
    pub(super) fn admits(&self, under_way: u32, now: Time) -> bool {
        self.failures == 0 || (under_way == 0 && now >= self.retry_at)
    }

    pub(super) fn failed(&mut self, retry_at: Time) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = retry_at;
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

/// One that waits.
pub(crate) struct Queued<W> {
    pub(crate) number: u64,
    pub(crate) since: Time,
    pub(crate) worker: usize,
    pub(crate) waiter: W,
    /// A connection is being made because of it.
    pub(super) has_launch: bool,
}

/// See above. `W`: how one that waits is reached.
pub(super) struct Account<W> {
    /// Connections that are lent, idle, moving or being made.
    pub(super) open: u32,
    /// Those of them that are being made.
    pub(super) logins: u32,
    /// A login has succeeded since the last one was refused.
    pub(super) is_proven: bool,
    /// Logins that the server refused.
    pub(super) refusals: Backoff,
    /// The oldest first.
    pub(super) line: VecDeque<Queued<W>>,
    pub(super) is_paused: bool,
    pub(super) signals: Arc<Signals>,
}

impl<W> Account<W> {
    pub(super) fn new(is_paused: bool) -> Self {
        Self {
            open: 0,
            logins: 0,
            is_proven: false,
            refusals: Backoff::default(),
            line: VecDeque::new(),
            is_paused,
            signals: Arc::default(),
        }
    }

    /// Writes what workers read without the lock. Called after each change.
    pub(super) fn publish(&self, pool_size: u32) {
        let mut flags = 0;
        for (flag, is_set) in [
            (WAITING, !self.line.is_empty()),
            (PAUSED, self.is_paused),
            (OVER, self.open > pool_size),
            (FULL, self.open >= pool_size),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        self.signals.flags.store(flags, Ordering::Relaxed);
    }

    /// Its place is that of its age.
    pub(super) fn join(&mut self, queued: Queued<W>) {
        let at = self.line.partition_point(|other| other.since <= queued.since);
        self.line.insert(at, queued);
    }

    pub(super) fn take(&mut self, number: u64) -> Option<Queued<W>> {
        let at = self.line.iter().position(|queued| queued.number == number)?;
        self.line.remove(at)
    }

    /// A login that began for that one is over.
    pub(super) fn login_over(&mut self, cause: Option<u64>) {
        self.logins -= 1;
        if let Some(queued) = self.line.iter_mut().find(|queued| Some(queued.number) == cause) {
            queued.has_launch = false;
        }
    }

    /// A login may begin, as far as no limit is concerned.
    pub(super) fn may_log_in(&self, now: Time) -> bool {
        // The first login of a key shows whether it is accepted.
        !self.is_paused && self.refusals.admits(self.logins, now) && (self.is_proven || self.logins == 0)
    }

    /// Since when the first has waited.
    pub(super) fn waiting_since(&self) -> Option<Time> {
        self.line.front().map(|first| first.since)
    }

    /// The position of the one that a free connection on `worker` is for: the oldest; or one of that worker, unless the oldest has
    /// waited longer by `tolerance`.
    pub(super) fn next_for(&self, worker: usize, tolerance: Duration) -> Option<usize> {
        let oldest = self.line.front()?.since.saturating_add(tolerance);
        let own = self.line.iter().position(|queued| queued.worker == worker);
        Some(own.filter(|&own| self.line[own].since <= oldest).unwrap_or(0))
    }

    /// The waiter for whom a connection is made next, if one more is of use.
    pub(super) fn next_launch(&mut self) -> Option<&mut Queued<W>> {
        if self.logins as usize >= self.line.len() {
            return None;
        }
        self.line.iter_mut().find(|queued| !queued.has_launch)
    }
}
