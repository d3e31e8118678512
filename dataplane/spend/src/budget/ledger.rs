//! All accounts of the process, and reservations over several of them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use super::{
    account::{Account, AccountId, AccountKind, Budgets, Totals},
    window::Day,
};
use crate::{amount::Amount, denial::Exhausted};

/// Accounts that share a request: a key, its team, its organisation.
pub const LEVELS_MAX: usize = 3;

/// The accounts of the process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Read by the control thread when it makes a snapshot of keys; a worker has the accounts in hand.
    accounts: Mutex<HashMap<AccountId, Arc<Account>>>,
    latest_day: AtomicU32,
}

/// An account of a request, with the budgets of its policy.
#[derive(Clone, Copy, Debug)]
pub struct Level<'a> {
    /// The account.
    pub account: &'a Arc<Account>,
    /// Its rank; levels are given in rising order.
    pub kind: AccountKind,
    /// Its budgets.
    pub budgets: &'a Budgets,
    /// A budget that is used up is reported, and the request is admitted.
    pub observes: bool,
}

/// A reservation: so much, with these accounts, on this day. The ledger counts it until [`Ledger::settle`].
#[derive(Debug)]
#[must_use = "a reservation stays until it is settled"]
pub struct Grant {
    accounts: [Option<Arc<Account>>; LEVELS_MAX],
    /// The day that it belongs to.
    pub day: Day,
    /// Reserved.
    pub amount: Amount,
}

impl Grant {
    /// The accounts that are charged.
    pub fn accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.accounts.iter().flatten()
    }
}

/// A granted reservation, and the budget that would have refused it if its level did not only observe.
#[derive(Debug)]
pub struct Reserved {
    /// The reservation.
    pub grant: Grant,
    /// The first budget of an observing level that has too little left.
    pub observed: Option<Exhausted>,
}

impl Ledger {
    /// A ledger that begins with what earlier processes have used.
    pub fn new(totals: impl IntoIterator<Item = (AccountId, Totals)>, latest_day: Day) -> Self {
        let accounts = totals.into_iter().map(|(id, totals)| (id, Arc::new(Account::new(id, totals)))).collect();
        let shared = Shared { accounts: Mutex::new(accounts), latest_day: AtomicU32::new(latest_day.number()) };
        Self(Arc::new(shared))
    }

    /// The account with this identity; a new one if there is none. For the control thread.
    pub fn account(&self, id: AccountId) -> Arc<Account> {
        let mut accounts = self.0.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(accounts.entry(id).or_insert_with(|| Arc::new(Account::new(id, Totals::default()))))
    }

    /// Every account.
    pub fn accounts(&self) -> Vec<Arc<Account>> {
        self.0.accounts.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The latest day that this ledger has seen. Later than the clock's: the clock has gone back.
    pub fn latest_day(&self) -> Day {
        Day::new(self.0.latest_day.load(Ordering::Relaxed))
    }

    /// Reserves `amount` with all levels, or with none.
    ///
    /// # Errors
    /// The first budget that has less left.
    pub fn reserve(&self, levels: &[Level<'_>], amount: Amount, today: Day) -> Result<Reserved, Exhausted> {
        debug_assert!(levels.len() <= LEVELS_MAX && levels.windows(2).all(|pair| pair[0].kind < pair[1].kind));
        let before = self.0.latest_day.fetch_max(today.number(), Ordering::Relaxed);
        let mut day = Day::new(before.max(today.number()));
        let levels = &levels[..levels.len().min(LEVELS_MAX)];
        let mut positions = [None, None, None];
        for (position, level) in positions.iter_mut().zip(levels) {
            let locked = level.account.lock();
            day = day.max(locked.settled.day);
            *position = Some(locked);
        }
        let mut observed = None;
        for (position, level) in positions.iter_mut().flatten().zip(levels) {
            position.begin(day);
            match position.lacks(level.budgets, amount) {
                Some(exhausted) if !level.observes => return Err(exhausted),
                lacking => observed = observed.or(lacking),
            }
        }
        let mut accounts = [None, None, None];
        for ((position, level), account) in positions.iter_mut().flatten().zip(levels).zip(&mut accounts) {
            position.reserve(amount);
            *account = Some(Arc::clone(level.account));
        }
        Ok(Reserved { grant: Grant { accounts, day, amount }, observed })
    }

    /// Replaces a reservation by what was used: [`Amount::ZERO`] releases it.
    pub fn settle(&self, grant: Grant, used: Amount) {
        let mut positions = [None, None, None];
        for (position, account) in positions.iter_mut().zip(grant.accounts()) {
            *position = Some(account.lock());
        }
        for position in positions.iter_mut().flatten() {
            position.release(grant.day, grant.amount);
            position.settled.add(grant.day, used);
        }
    }
}

#[cfg(test)]
mod tests;
