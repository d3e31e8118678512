//! Several gateways with common budgets: the interface of a shared store.
//!
//! Budgets here are those of one process. A store that several gateways share, such as a Redis server, fits behind
//! [`SharedStore`] without a call per request: it grants **leases**, parts of a budget that a gateway may spend alone.
//!
//! - A gateway leases a part of each window of an account, for example a sixteenth of what is left, and sets its own limit to
//!   what it has leased. [`Ledger`](crate::budget::Ledger) and journal stay as they are: exact within the process, durable on its disk.
//! - Before a lease is used up the gateway asks for more, from a thread of the control plane. A request that no longer fits
//!   the lease is refused only if the store has nothing left; until the answer comes it waits in no queue, and is refused
//!   with `retry-after` of a second.
//! - Settlements are reported with the identity of the lease and a sequence number. The store adds a report once,
//!   so a report that is sent again after a lost answer is not charged twice.
//! - A lease ends at a time that the store gives. A gateway that was killed reports after its recovery. One that never comes
//!   back has spent its lease: the store never refunds silently, an operator does.
//!
//! **Bound.** The sum of all settlements never exceeds the budget by more than each gateway exceeds its lease, which is what
//! one process may exceed its budget. The price is that up to one lease per gateway is out of reach of the others: at the
//! end of a budget the parts shrink to one request.
//!
//! **With Redis.** One hash per window (`weir:{account}:d20484`) with the fields `settled`, `leased` and one per lease. Both
//! operations are one script each, so they are atomic. The hash expires a window later. `WAIT` is not used: a failover may
//! lose leases of the last second, which then exist twice; their sum is the bound of the damage.
//!
//! **Without the store** a gateway spends what it has leased, then refuses keys with a budget: closed, with the reason
//! `store_unreachable`. Rates stay per process; the limit of a gateway is its part of the common one.

use crate::{
    amount::Amount,
    budget::{AccountId, Day, Month},
};

/// A window of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// A day.
    Day(Day),
    /// A month.
    Month(Month),
}

/// The right to spend a part of a budget alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Given by the store.
    pub id: u64,
    /// Whose.
    pub account: AccountId,
    /// The window that it is a part of.
    pub window: Window,
    /// The most that may be settled with it.
    pub amount: Amount,
    /// Unix time in seconds at which it ends, and the rest returns to the budget if everything was reported.
    pub until: u64,
}

/// Why a store grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The budget is used up or leased to others.
    Exhausted,
    /// The store does not answer.
    Unreachable,
    /// It knows no such lease, or not this sequence number next.
    Conflict,
}

/// A store of budgets that several gateways share. Implementations wait for a network: only control threads call them.
pub trait SharedStore: Send + Sync {
    /// Leases up to `wanted` of what is left of `budget`. Idempotent for the same `request`.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn lease(
        &self,
        request: u64,
        account: AccountId,
        window: Window,
        budget: Amount,
        wanted: Amount,
    ) -> Result<Lease, StoreError>;

    /// Reports everything that was settled with a lease so far. A report replaces the one before it; `sequence` grows by one each
    /// time, and a repeated one changes nothing.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn report(&self, lease: u64, sequence: u64, settled: Amount) -> Result<(), StoreError>;

    /// Gives the rest of a lease back. Nothing may be open on it.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn end(&self, lease: u64, sequence: u64, settled: Amount) -> Result<(), StoreError>;
}
