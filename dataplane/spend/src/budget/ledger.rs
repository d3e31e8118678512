//! All accounts of the process, and reservations over several of them.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
    task::Context,
    thread::Thread,
};

use super::{
    account::{Account, AccountId, AccountKind, Budgets, Totals},
    allowance::Supply,
    news::News,
    window::Day,
};
use crate::{amount::Amount, denial::Exhausted};

/// Accounts that share a request: a key, its team, its organisation.
pub const LEVELS_MAX: usize = 3;

/// The accounts of the process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Shared>);

#[derive(Debug, Default)]
struct Accounts {
    by_id: HashMap<AccountId, Arc<Account>>,
    /// For accounts that are added.
    share: Share,
}

/// The share of this process of all accounts, while another process has them too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// All that is left: there is no other process.
    #[default]
    Sole,
    /// Half of what is left now: this process hands the budgets over.
    Leased,
    /// Nothing: this process has handed the budgets over.
    Ceded,
    /// The rest without half of it: another process has handed the budgets over, and still grants.
    Lending,
}

#[derive(Debug, Default)]
struct Shared {
    /// Read by the control thread when it makes a snapshot of keys; a worker has the accounts in hand.
    accounts: Mutex<Accounts>,
    latest_day: AtomicU32,
    /// A [`Supply`].
    supply: AtomicU8,
    calls: Calls,
    news: News,
}

/// Accounts that need more of a shared budget, for the thread that claims.
#[derive(Debug, Default)]
struct Calls {
    /// Each account once, until that thread looks at it. Held to add one, or to take all.
    accounts: Mutex<Vec<Arc<Account>>>,
    /// `None`: no thread claims.
    thread: OnceLock<Thread>,
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
        let by_id = totals.into_iter().map(|(id, totals)| (id, Arc::new(Account::new(id, totals)))).collect();
        let accounts = Accounts { by_id, share: Share::Sole };
        let latest_day = AtomicU32::new(latest_day.number());
        let shared = Shared { accounts: Mutex::new(accounts), latest_day, ..Shared::default() };
        Self(Arc::new(shared))
    }

    /// The account with this identity; a new one if there is none. For the control thread.
    pub fn account(&self, id: AccountId) -> Arc<Account> {
        let mut accounts = self.lock();
        let share = accounts.share;
        let make = || {
            let account = Account::new(id, Totals::default());
            account.lock().set_share(share);
            Arc::new(account)
        };
        Arc::clone(accounts.by_id.entry(id).or_insert_with(make))
    }

    /// Every account.
    pub fn accounts(&self) -> Vec<Arc<Account>> {
        self.lock().by_id.values().cloned().collect()
    }

    /// Sets the share of this process of all accounts. For the thread of the journal.
    pub fn set_share(&self, share: Share) {
        let mut accounts = self.lock();
        accounts.share = share;
        accounts.by_id.values().for_each(|account| account.lock().set_share(share));
    }

    /// Counts a reservation that another process has made.
    pub fn reserve_elsewhere(&self, ids: impl IntoIterator<Item = AccountId>, day: Day, amount: Amount) {
        self.0.latest_day.fetch_max(day.number(), Ordering::Relaxed);
        ids.into_iter().for_each(|id| self.account(id).lock().reserve_elsewhere(day, amount));
    }

    /// Takes a reservation of another process back.
    pub fn release_elsewhere(&self, ids: impl IntoIterator<Item = AccountId>, day: Day, amount: Amount) {
        ids.into_iter().for_each(|id| self.account(id).lock().release(day, amount));
    }

    /// Adds charges of another process.
    pub fn charge_elsewhere(&self, id: AccountId, charges: &Totals) {
        self.0.latest_day.fetch_max(charges.day.number(), Ordering::Relaxed);
        let account = self.account(id);
        let mut position = account.lock();
        position.begin(charges.day);
        position.settled.merge(charges);
    }

    /// The account with this identity, with the budgets that are claimed for it if a store has them. For the control thread.
    pub fn budgeted_account(&self, id: AccountId, budgets: &Budgets) -> Arc<Account> {
        let account = self.account(id);
        if account.set_budgets(*budgets) {
            self.call(&account);
        }
        account
    }

    /// The accounts of the process have claims of a shared store from now on. `thread` is woken when one needs more.
    pub fn share_with(&self, thread: Thread) {
        let _ = self.0.calls.thread.set(thread);
        self.set_supply(Supply::ClaimsAwaited);
    }

    /// Sets where the right to spend comes from.
    pub fn set_supply(&self, supply: Supply) {
        if self.0.supply.swap(supply.number(), Ordering::Relaxed) != supply.number() {
            self.0.news.announce();
        }
    }

    /// Where the right to spend comes from.
    pub fn supply(&self) -> Supply {
        Supply::of(self.0.supply.load(Ordering::Relaxed))
    }

    /// The number of the latest news about claims, for [`Self::news_after`]. To be read before an account is looked at.
    pub fn news(&self) -> u64 {
        self.0.news.number()
    }

    /// Waits for news behind those of this number: what was refused may have room now.
    pub fn news_after(&self, number: u64) -> impl Future<Output = ()> + use<> {
        let shared = Arc::clone(&self.0);
        let mut registered = None;
        poll_fn(move |context: &mut Context<'_>| shared.news.poll_after(number, &mut registered, context))
    }

    /// Wakes the requests that wait for news. For the thread that claims.
    pub(crate) fn announce(&self) {
        self.0.news.announce();
    }

    /// The accounts that need more, each once. They may call again when they were looked at.
    pub fn take_calls(&self) -> Vec<Arc<Account>> {
        std::mem::take(&mut *self.0.calls.accounts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes the thread that claims. The caller sees to it that an account calls once.
    fn call(&self, account: &Arc<Account>) {
        let Some(thread) = self.0.calls.thread.get() else { return };
        let mut accounts = self.0.calls.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.push(Arc::clone(account));
        let is_first = accounts.len() == 1;
        drop(accounts);
        if is_first {
            thread.unpark();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.0.accounts.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (supply, mut observed) = (self.supply(), None);
        for (position, level) in positions.iter_mut().flatten().zip(levels) {
            position.begin(day);
            let lacking = position.lacks(level.budgets, amount, supply);
            if lacking.is_some() && supply != Supply::Own {
                position.note_denied(level.budgets, amount, supply);
                // A budget that is used up everywhere waits for the next look of that thread.
                if lacking == Some(Exhausted::Store) && !std::mem::replace(&mut position.allowance.is_called, true) {
                    self.call(level.account);
                }
            }
            match lacking {
                Some(exhausted) if !level.observes => return Err(exhausted),
                // They say nothing about what was used.
                Some(Exhausted::Lease | Exhausted::Store) => {}
                lacking => observed = observed.or(lacking),
            }
        }
        let mut accounts = [None, None, None];
        for ((position, level), account) in positions.iter_mut().flatten().zip(levels).zip(&mut accounts) {
            position.reserve(amount);
            if supply != Supply::Own
                && position.note_granted(level.budgets, amount)
                && !std::mem::replace(&mut position.allowance.is_called, true)
            {
                self.call(level.account);
            }
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
