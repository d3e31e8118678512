//! An account that two processes share for a moment, at an upgrade.
//!
//! The old process hands the journal over and still serves for a moment: while the new one opens the journal, and for
//! requests that come with its last connections. So it keeps a lease: half of what is left of each budget, counted by grants. The
//! new process counts that half as used until the lease is over. Both together therefore stay within the budget, although neither
//! waits for the other.
//!
//! | stance | process | may grant |
//! |---|---|---|
//! | sole | any, outside of an upgrade | all that is left |
//! | leased | the old one, from its hand-over on | half of what was left then |
//! | ceded | the old one, when its lease is over | nothing |
//! | lending | the new one, until then | the rest without the half of the old one |
//!
//! The new process reads later than the old one counts. The old one may have granted `x` of its half since, and settlements may have
//! given `y` back. The new one then reserves `(left - x + y) / 2`, which is at least `left / 2 - x`, the rest of the lease.

use super::account::Totals;
use crate::amount::Amount;

/// The part of an account that this process may grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stance {
    /// All that is left.
    #[default]
    Sole,
    /// Half of what `base` had left, of which `granted` is gone.
    Leased { base: Totals, granted: Totals },
    /// Nothing: another process has the budget.
    Ceded,
    /// Another process may grant half of what `base` has left.
    Lending { base: Totals },
}

/// One limit of a budget, with the amounts of its window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// The limit.
    pub limit: u64,
    /// Settled and reserved in its window.
    pub used: u64,
    /// The amount of a request.
    pub more: u64,
    /// The amount of this limit in totals.
    pub of: fn(&Totals) -> u64,
}

impl Stance {
    /// Begins the windows of a day if they are later.
    pub(super) fn begin(&mut self, day: super::Day) {
        match self {
            Self::Sole | Self::Ceded => {}
            Self::Leased { base, granted } => {
                base.begin(day);
                granted.begin(day);
            }
            Self::Lending { base } => base.begin(day),
        }
    }

    /// The share of this process has room. The caller has checked the whole budget.
    pub(super) fn has_room(&self, Limit { limit, used, more, of }: Limit) -> bool {
        let half = |base: &Totals| limit.saturating_sub(of(base)) / 2;
        match self {
            Self::Sole => true,
            Self::Leased { base, granted } => of(granted).saturating_add(more) <= half(base),
            Self::Ceded => false,
            Self::Lending { base } => used.saturating_add(half(base)).saturating_add(more) <= limit,
        }
    }

    /// Counts a grant on the present day.
    pub(super) fn grant(&mut self, amount: Amount) {
        if let Self::Leased { granted, .. } = self {
            granted.in_day = granted.in_day.plus(amount);
            granted.in_month = granted.in_month.plus(amount);
        }
    }
}
