//! The state of the store for metrics and operators: numbers that the thread writes and others read.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use weir_base::Time;
use weir_spend::shared::Tally;

/// Reasons of failures, as metrics have them.
pub const REASONS: [&str; 9] =
    ["connect", "timeout", "closed", "refused", "protocol", "tls", "stale", "superseded", "randomness"];

/// See the module.
#[derive(Debug, Default)]
pub struct StoreStatus {
    is_in_contact: AtomicBool,
    contact_nanos: AtomicU64,
    tally: Mutex<Tally>,
    failures: [AtomicU64; REASONS.len()],
    epochs: AtomicU64,
}

impl StoreStatus {
    pub(super) fn set(&self, tally: Tally, contact: Time, is_in_contact: bool) {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner) = tally;
        self.contact_nanos.store(contact.as_nanos(), Ordering::Relaxed);
        self.is_in_contact.store(is_in_contact, Ordering::Relaxed);
    }

    pub(super) fn count(&self, reason: &str) {
        if let Some(index) = REASONS.iter().position(|one| *one == reason) {
            self.failures[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_epoch(&self) {
        self.epochs.fetch_add(1, Ordering::Relaxed);
    }

    /// The store has responded of late.
    pub fn is_in_contact(&self) -> bool {
        self.is_in_contact.load(Ordering::Relaxed)
    }

    /// When it last responded; before the first reply, [`Time::ZERO`].
    pub fn contact(&self) -> Time {
        Time::from_nanos(self.contact_nanos.load(Ordering::Relaxed))
    }

    /// Claims so far.
    pub fn tally(&self) -> Tally {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Failures so far, by reason.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.into_iter().zip(&self.failures).map(|(reason, count)| (reason, count.load(Ordering::Relaxed)))
    }

    /// Restarts and losses of data of the store that this process has noticed.
    pub fn epochs(&self) -> u64 {
        self.epochs.load(Ordering::Relaxed)
    }
}
