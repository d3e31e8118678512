//! The connections of all workers to one endpoint, key by key, and those that wait for one: who gets a free connection, and who may
//! make another one. Pure: time and chance come in.
//!
//! A permit is the right to one connection; it is counted from before the login until after the close. Three limits bound the
//! permits: of the key, of its database and of its user. One that waits is in the line of its key, whichever worker it is on.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use weir_base::time::Time;

use super::{
    PooledSettings,
    account::{Account, Backoff, LEND_AFTER, Queued, Signals},
};
use crate::room::MOVE_AFTER;

/// Some of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope<K> {
    /// All of them, also those that have no pool yet.
    All,
    /// Those of one database.
    Database(Box<[u8]>),
    /// One.
    Key(K),
}

/// Database and user of a key.
pub(super) type Names<K> = for<'a> fn(&'a K) -> [&'a [u8]; 2];

/// The use of a connection that is free on a worker.
pub(super) enum Offer<W> {
    /// No client waits for it.
    Keep,
    /// It is closed.
    Close,
    /// It is for this one, which waits no longer.
    Give(Queued<W>),
    /// It cannot move to this one, which waits on: it is closed, and its permit is for a login that this one begins.
    Replace(Launch<W>),
}

/// The number of one that waits, and how it is reached: it begins a login, for which the ledger has counted a permit.
pub(super) type Launch<W> = (u64, W);

/// Why a login failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server refused it.
    Refused,
    /// The server is full.
    Busy,
    /// The endpoint could not be reached, broke off, or starts or ends.
    Broken,
}

/// Figures of one key.
pub(super) struct Tally {
    pub(super) open: u32,
    pub(super) logins: u32,
    pub(super) waiting: u32,
    pub(super) maxwait: Duration,
}

/// The limits of [`PooledSettings`], as the ledger needs them.
#[derive(Clone, Debug)]
struct Limits {
    pool_size: u32,
    min_pool_size: u32,
    reserve: u32,
    reserve_after: Duration,
    /// Per database, and per user.
    shared: [Option<u32>; 2],
}

/// See above.
pub(super) struct Ledger<K, W> {
    names: Names<K>,
    limits: Limits,
    /// Each wait looks its key up several times.
    accounts: HashMap<K, Account<W>, foldhash::quality::RandomState>,
    /// Permits per database, and per user.
    shared: [HashMap<Box<[u8]>, u32>; 2],
    paused: HashSet<Box<[u8]>>,
    paused_keys: HashSet<K>,
    is_all_paused: bool,
    /// Attempts that did not reach the server.
    outage: Backoff,
    /// Logins under way.
    logins: u32,
    /// The number of the next one that waits.
    number: u64,
    /// Those that wait, over all keys, to be read without the lock.
    waiting: Arc<AtomicU32>,
}

impl<K: Clone + Eq + Hash, W: Clone> Ledger<K, W> {
    pub(super) fn new(names: Names<K>) -> Self {
        Self {
            names,
            limits: Limits::from(&PooledSettings::default()),
            accounts: HashMap::default(),
            shared: Default::default(),
            paused: HashSet::new(),
            paused_keys: HashSet::new(),
            is_all_paused: false,
            outage: Backoff::default(),
            logins: 0,
            number: 0,
            waiting: Arc::default(),
        }
    }

    /// Connections above lowered limits are closed when they come back. Call [`Ledger::launch`] for all keys then.
    pub(super) fn set_limits(&mut self, settings: &PooledSettings) {
        self.limits = Limits::from(settings);
        self.accounts.values().for_each(|account| account.publish(self.limits.pool_size));
    }

    /// The length of all lines together.
    pub(super) fn waiting(&self) -> Arc<AtomicU32> {
        self.waiting.clone()
    }

    /// The state that the workers read of `key`.
    pub(super) fn signals(&mut self, key: &K) -> Arc<Signals> {
        let account = self.account(key);
        account.signals.clone()
    }

    /// Forgets keys that no worker has a pool for.
    pub(super) fn prune(&mut self) {
        let is_used = |account: &Account<W>| {
            account.open > 0 || !account.line.is_empty() || Arc::strong_count(&account.signals) > 1
        };
        self.accounts.retain(|_, account| is_used(account));
        self.shared.iter_mut().for_each(|names| names.retain(|_, open| *open > 0));
    }

    fn account(&mut self, key: &K) -> &mut Account<W> {
        if !self.accounts.contains_key(key) {
            let is_paused = self.is_key_paused(key);
            let account = Account::new(is_paused);
            account.publish(self.limits.pool_size);
            self.accounts.insert(key.clone(), account);
        }
        self.accounts.get_mut(key).expect("it was made")
    }

    /// Connections of all keys are not used now.
    pub(super) fn is_all_paused(&self) -> bool {
        self.is_all_paused
    }

    /// Connections of `key` are not used now.
    pub(super) fn is_key_paused(&self, key: &K) -> bool {
        self.is_all_paused || self.paused.contains((self.names)(key)[0]) || self.paused_keys.contains(key)
    }

    /// The scopes that are not used now.
    pub(super) fn pauses(&self) -> Vec<Scope<K>> {
        let all = self.is_all_paused.then_some(Scope::All);
        let databases = self.paused.iter().map(|name| Scope::Database(name.clone()));
        all.into_iter().chain(databases).chain(self.paused_keys.iter().cloned().map(Scope::Key)).collect()
    }

    /// `waiter` waits on `worker` since `since`; its number.
    pub(super) fn join(&mut self, key: &K, since: Time, worker: usize, waiter: W) -> u64 {
        let (number, pool_size) = (self.number, self.limits.pool_size);
        self.number += 1;
        let account = self.account(key);
        account.join(Queued { number, since, worker, waiter, has_launch: false });
        account.publish(pool_size);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        number
    }

    /// That one waits no longer. A login that began for it goes on for others.
    pub(super) fn leave(&mut self, key: &K, number: u64) {
        let pool_size = self.limits.pool_size;
        let account = self.account(key);
        if account.take(number).is_some() {
            account.publish(pool_size);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A connection of `key` is free on `worker`. `can_move`: it can go to another worker as it is. Call [`Ledger::launch_rivals`] then.
    pub(super) fn offer(&mut self, key: &K, worker: usize, generation: u32, can_move: bool, now: Time) -> Offer<W> {
        let (limits, rival) = (self.limits.clone(), self.rival_since(key, 0, now));
        let account = self.account(key);
        if account.is_paused || account.signals.generation() != generation {
            return Offer::Close;
        }
        let most = limits.pool_size + if account.line.is_empty() { 0 } else { limits.reserve };
        let is_rivalled =
            rival.is_some_and(|rival| account.waiting_since().is_none_or(|own| rival.saturating_add(MOVE_AFTER) < own));
        if account.open > most || is_rivalled {
            return Offer::Close;
        }
        let tolerance = if can_move { LEND_AFTER } else { MOVE_AFTER };
        let Some(at) = account.next_for(worker, tolerance) else { return Offer::Keep };
        if account.line[at].worker != worker && !can_move {
            account.line[at].has_launch = true;
            account.logins += 1;
            let replaced = (account.line[at].number, account.line[at].waiter.clone());
            self.logins += 1;
            return Offer::Replace(replaced);
        }
        let Some(queued) = account.line.remove(at) else { return Offer::Keep };
        account.publish(limits.pool_size);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Offer::Give(queued)
    }

    /// Since when the oldest of those has waited that need a connection of a limit that they share with `key`, and that admits no more
    /// than `left`.
    fn rival_since(&self, key: &K, left: u32, now: Time) -> Option<Time> {
        if !self.limits.has_shared() || self.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let own = (self.names)(key);
        let is_rival = |other: &K, account: &Account<W>| {
            let names = (self.names)(other);
            let is_scarce = |shared: usize| names[shared] == own[shared] && self.left(shared, own[shared]) <= left;
            other != key
                && (is_scarce(0) || is_scarce(1))
                && account.open < self.limits.pool_size
                && account.line.len() > account.logins as usize
                && account.may_log_in(now)
        };
        let rivals = self.accounts.iter().filter(|(other, account)| is_rival(other, account));
        rivals.filter_map(|(_, account)| account.waiting_since()).min()
    }

    /// How many more connections a shared limit admits.
    fn left(&self, shared: usize, name: &[u8]) -> u32 {
        let open = self.shared[shared].get(name).copied().unwrap_or(0);
        self.limits.shared[shared].map_or(u32::MAX, |most| most.saturating_sub(open))
    }

    /// Begins logins for those that wait, as far as there may be more connections: each of the result has a permit.
    pub(super) fn launch(&mut self, key: &K, now: Time) -> Vec<Launch<W>> {
        let mut launched = Vec::new();
        let own = self.accounts.get(key).map_or(0, |account| account.line.len());
        // The free part of a shared limit may be for another key.
        if self.limits.has_shared() && self.waiting.load(Ordering::Relaxed) as usize > own {
            return self.launch_all(now);
        }
        while let Some(waiter) = self.launch_one(key, now) {
            launched.push(waiter);
        }
        launched
    }

    /// The same for all keys, the oldest first.
    pub(super) fn launch_all(&mut self, now: Time) -> Vec<Launch<W>> {
        let mut launched = Vec::new();
        let waiting = self.accounts.iter().filter_map(|(key, account)| Some((account.waiting_since()?, key.clone())));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|(since, _)| *since);
        // One for each in turn: the first key may not take all. A key that was kept out by an older one may follow it.
        let mut before = None;
        while before != Some(launched.len()) {
            before = Some(launched.len());
            for (_, key) in &waiting {
                launched.extend(self.launch_one(key, now));
            }
        }
        launched
    }

    /// The same after one of another key has left its line, for which a part of a shared limit was kept.
    pub(super) fn launch_rivals(&mut self, now: Time) -> Vec<Launch<W>> {
        let may_be = self.limits.has_shared() && self.waiting.load(Ordering::Relaxed) > 0;
        if may_be { self.launch_all(now) } else { Vec::new() }
    }

    fn launch_one(&mut self, key: &K, now: Time) -> Option<Launch<W>> {
        if !self.may_open(key, now) {
            return None;
        }
        let queued = self.accounts.get_mut(key)?.next_launch()?;
        queued.has_launch = true;
        let launch = (queued.number, queued.waiter.clone());
        self.opened(key);
        Some(launch)
    }

    /// A permit for a connection that no client waits for, if `key` has fewer than the least that it should have.
    pub(super) fn top_up(&mut self, key: &K, now: Time) -> bool {
        let is_short = self.account(key).open < self.limits.min_pool_size.min(self.limits.pool_size);
        let may = is_short && self.may_open(key, now);
        if may {
            self.opened(key);
        }
        may
    }

    /// How many idle connections of `key` may be closed for their age.
    pub(super) fn spare(&mut self, key: &K) -> u32 {
        self.account(key).open.saturating_sub(self.limits.min_pool_size)
    }

    fn may_open(&self, key: &K, now: Time) -> bool {
        let Some(account) = self.accounts.get(key) else { return false };
        let has_waited = account.waiting_since().is_some_and(|since| now.since(since) >= self.limits.reserve_after);
        let most = self.limits.pool_size + if has_waited { self.limits.reserve } else { 0 };
        let names = (self.names)(key);
        // One that shares a limit and has waited longer may wait for its other limit, too: what is left is kept for it.
        let is_kept_for_rival =
            || self.rival_since(key, 1, now).is_some_and(|rival| account.waiting_since().is_none_or(|own| rival < own));
        account.open < most
            && account.may_log_in(now)
            && self.outage.admits(self.logins, now)
            && self.left(0, names[0]) > 0
            && self.left(1, names[1]) > 0
            && !is_kept_for_rival()
    }

    fn opened(&mut self, key: &K) {
        self.logins += 1;
        for (shared, name) in (self.names)(key).into_iter().enumerate() {
            match self.shared[shared].get_mut(name) {
                Some(open) => *open += 1,
                None => drop(self.shared[shared].insert(name.into(), 1)),
            }
        }
        let pool_size = self.limits.pool_size;
        let account = self.account(key);
        account.open += 1;
        account.logins += 1;
        account.publish(pool_size);
    }

    /// A permit of `key` is returned. Call [`Ledger::launch`] then.
    pub(super) fn closed(&mut self, key: &K) {
        for (shared, name) in (self.names)(key).into_iter().enumerate() {
            if let Some(open) = self.shared[shared].get_mut(name) {
                *open -= 1;
            }
        }
        let pool_size = self.limits.pool_size;
        let account = self.account(key);
        account.open -= 1;
        account.publish(pool_size);
    }

    /// The login that began for number `cause` has succeeded. Call [`Ledger::launch`] for all keys then.
    pub(super) fn logged_in(&mut self, key: &K, cause: Option<u64>) {
        self.logins -= 1;
        self.outage.succeeded();
        let account = self.account(key);
        account.login_over(cause);
        account.is_proven = true;
        account.refusals.succeeded();
    }

    /// The login was given up: its permit is returned.
    pub(super) fn login_dropped(&mut self, key: &K, cause: Option<u64>) {
        self.logins -= 1;
        self.account(key).login_over(cause);
        self.closed(key);
    }

    /// The login failed; its permit is returned. `pause` gives the time until the next attempt for the number of failures before; at the end
    /// of it call [`Ledger::launch_all`].
    /// `leaves`: those that wait try elsewhere after an outage. The result are those that wait no longer. A refused login ends the wait
    /// of all of its key if no connection of that is left, that of its cause if others are only being made, and none if one may come
    /// back. At a full server all wait on.
    pub(super) fn login_failed(
        &mut self,
        key: &K,
        cause: Option<u64>,
        failure: Failure,
        leaves: bool,
        now: Time,
        pause: impl FnOnce(u32) -> Duration,
    ) -> Vec<Queued<W>> {
        self.login_dropped(key, cause);
        let (mut outage, pool_size) = (self.outage, self.limits.pool_size);
        let account = self.account(key);
        let refused: Vec<_> = match failure {
            Failure::Refused => {
                outage.succeeded();
                let retry_at = now.saturating_add(pause(account.refusals.failures()));
                account.refusals.failed(retry_at);
                account.is_proven = false;
                match (account.open, account.open == account.logins) {
                    (0, _) => account.line.drain(..).collect(),
                    // The other logins may succeed.
                    (_, true) => cause.and_then(|cause| account.take(cause)).into_iter().collect(),
                    (_, false) => Vec::new(),
                }
            }
            Failure::Busy => {
                outage.succeeded();
                account.refusals.failed(now.saturating_add(pause(account.refusals.failures())));
                Vec::new()
            }
            Failure::Broken => {
                outage.failed(now.saturating_add(pause(outage.failures())));
                if leaves { account.line.drain(..).collect() } else { Vec::new() }
            }
        };
        account.publish(pool_size);
        self.outage = outage;
        self.waiting.fetch_sub(refused.len() as u32, Ordering::Relaxed);
        refused
    }

    /// The last attempt did not reach a server that serves.
    pub(super) fn is_out(&self) -> bool {
        self.outage.failures() > 0
    }

    /// Those that wait for `key`.
    pub(super) fn waiting_for(&self, key: &K) -> usize {
        self.accounts.get(key).map_or(0, |account| account.line.len())
    }

    /// When one of `key` has waited long enough for the reserve, if it is not yet.
    pub(super) fn reserve_at(&self, key: &K, now: Time) -> Option<Time> {
        let since = self.accounts.get(key).filter(|_| self.limits.reserve > 0)?.waiting_since()?;
        Some(since.saturating_add(self.limits.reserve_after)).filter(|at| *at > now)
    }

    /// Connections of `scope` are not used, or are used again. Call [`Ledger::launch_all`] then.
    pub(super) fn set_paused(&mut self, scope: &Scope<K>, is_paused: bool) {
        match (scope, is_paused) {
            (Scope::All, true) => self.is_all_paused = true,
            (Scope::All, false) => {
                self.is_all_paused = false;
                self.paused.clear();
                self.paused_keys.clear();
            }
            (Scope::Database(name), true) => drop(self.paused.insert(name.clone())),
            (Scope::Database(name), false) => drop(self.paused.remove(name)),
            (Scope::Key(key), true) => drop(self.paused_keys.insert(key.clone())),
            (Scope::Key(key), false) => drop(self.paused_keys.remove(key)),
        }
        let keys: Vec<_> = self.accounts.keys().cloned().collect();
        let pool_size = self.limits.pool_size;
        for key in keys {
            let is_paused = self.is_key_paused(&key);
            let account = self.account(&key);
            account.is_paused = is_paused;
            account.publish(pool_size);
        }
    }

    /// Each connection of `scope` that stands now is closed when it is free.
    pub(super) fn reconnect(&mut self, scope: &Scope<K>) {
        let accounts = self.accounts.iter().filter(|(key, _)| is_in(scope, key, self.names));
        accounts.for_each(|(_, account)| account.signals.advance_generation());
    }

    /// Ends all waits.
    pub(super) fn take_all(&mut self) -> Vec<Queued<W>> {
        let pool_size = self.limits.pool_size;
        let mut taken = Vec::new();
        for account in self.accounts.values_mut() {
            taken.extend(account.line.drain(..));
            account.publish(pool_size);
        }
        self.waiting.fetch_sub(taken.len() as u32, Ordering::Relaxed);
        taken
    }

    /// Permits of `scope` that are out.
    pub(super) fn open_in(&self, scope: &Scope<K>) -> u32 {
        let accounts = self.accounts.iter().filter(|(key, _)| is_in(scope, key, self.names));
        accounts.map(|(_, account)| account.open).sum()
    }

    /// Figures of all keys.
    pub(super) fn tallies(&self, now: Time) -> Vec<(K, Tally)> {
        let tally = |account: &Account<W>| Tally {
            open: account.open,
            logins: account.logins,
            waiting: account.line.len() as u32,
            maxwait: account.waiting_since().map_or(Duration::ZERO, |since| now.since(since)),
        };
        self.accounts.iter().map(|(key, account)| (key.clone(), tally(account))).collect()
    }
}

impl Limits {
    fn has_shared(&self) -> bool {
        self.shared != [None; 2]
    }
}

impl From<&PooledSettings> for Limits {
    fn from(settings: &PooledSettings) -> Self {
        Self {
            pool_size: settings.pool_size.max(1),
            min_pool_size: settings.min_pool_size,
            reserve: settings.reserve_pool_size,
            reserve_after: settings.reserve_pool_timeout,
            shared: [settings.max_db_connections, settings.max_user_connections],
        }
    }
}

fn is_in<K: Eq>(scope: &Scope<K>, key: &K, names: Names<K>) -> bool {
    match scope {
        Scope::All => true,
        Scope::Database(name) => names(key)[0] == &**name,
        Scope::Key(one) => one == key,
    }
}

#[cfg(test)]
mod tests;
