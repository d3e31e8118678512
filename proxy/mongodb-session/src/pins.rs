//! Cursors and transactions, and the server at which each one lives.
//!
//! A cursor or a transaction belongs to its owner and to the logical session that made it, never to a number alone: cursor ids are
//! unique at one server and not among several (L3, M9, M20).
//!
//! | file | concept |
//! |---|---|
//! | `cursors` | cursors by owner, session and id |
//! | `transactions` | transactions by owner and session |
//! | `cleanup` | commands for things that have lost their client |
//!
//! In load-balanced mode each client connection has pins of its own, which end with it. Behind the face of a mongos all connections of a
//! listener share them, since a driver may go on with a cursor on any of its connections; time ends them.

mod cleanup;
mod cursors;
mod transactions;

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;
use weir_base::time::Time;

pub use cleanup::Cleanup;
pub use cursors::{CursorKey, CursorPlace};
pub use transactions::{SessionKey, TransactionRoute};

use crate::users::Owner;
use cursors::Cursors;
use transactions::Transactions;

/// A server of an upstream, as the shell numbers them. Another process at the same address is another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub u32);

/// Bounds of pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinLimits {
    /// Cursors of one owner. Default 1,000 for a client connection, 10,000 for an owner behind the face of a mongos.
    /// A cursor has about 150 bytes.
    pub cursors_max: usize,
    /// Transactions of one owner. Default 10 for a client connection, 1,000 for an owner behind the face of a mongos.
    pub transactions_max: usize,
    /// How long a cursor lives without a use. Default 10 minutes, as servers have it.
    pub cursor_idle: Duration,
    /// How long a transaction lives without a use. Default 60 seconds, as servers have it; also how long its commit may be repeated.
    pub transaction_idle: Duration,
}

impl PinLimits {
    /// Bounds of a client connection in load-balanced mode.
    pub const CONNECTION: PinLimits = PinLimits {
        cursors_max: 1_000,
        transactions_max: 10,
        cursor_idle: Duration::from_secs(600),
        transaction_idle: Duration::from_secs(60),
    };
    /// Bounds of all connections of an owner behind the face of a mongos.
    pub const SHARED: PinLimits = PinLimits { cursors_max: 10_000, transactions_max: 1_000, ..PinLimits::CONNECTION };
}

/// Cursors and transactions with their servers.
#[derive(Debug)]
pub struct Pins {
    limits: PinLimits,
    cursors: Cursors,
    transactions: Transactions,
}

impl Pins {
    /// No pins.
    #[must_use]
    pub fn new(limits: PinLimits) -> Pins {
        Pins { limits, cursors: Cursors::default(), transactions: Transactions::default() }
    }

    /// Other bounds, for what is pinned from now on.
    pub fn set_limits(&mut self, limits: PinLimits) {
        self.limits = limits;
    }

    /// The owner has a cursor or a transaction.
    #[must_use]
    pub fn has_any(&self, owner: &Owner) -> bool {
        self.cursors.count(owner) > 0 || self.transactions.count(owner) > 0
    }

    /// Nothing is pinned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cursors.len() == 0 && self.transactions.len() == 0
    }

    /// Cursors and transactions that are pinned.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.cursors.len(), self.transactions.len())
    }

    /// Whether the owner may open another cursor.
    #[must_use]
    pub fn has_room_for_cursor(&self, owner: &Owner) -> bool {
        self.cursors.count(owner) < self.limits.cursors_max
    }

    /// The server of a cursor; `None`: this owner has no such cursor in this session.
    #[must_use]
    pub fn cursor(&self, key: &CursorKey) -> Option<ServerId> {
        self.cursors.get(key)
    }

    /// A server has opened the cursor, or has kept it behind a batch. Another one of the same key makes both unusable: both are given
    /// back, and neither is found any more. One beyond the owner's bound is given back at once.
    pub fn note_cursor(&mut self, key: CursorKey, place: CursorPlace, now: Time) -> Vec<Cleanup> {
        if !self.cursors.has(&key) && !self.has_room_for_cursor(&key.owner) {
            return vec![place.kill(key.id)];
        }
        self.cursors.note(key, place, now.saturating_add(self.limits.cursor_idle))
    }

    /// This server has ended the cursor.
    pub fn end_cursor(&mut self, key: &CursorKey, server: ServerId) {
        self.cursors.take(key, server);
    }

    /// The cursor must be killed at this server, if it is still the one of this key.
    pub fn take_cursor(&mut self, key: &CursorKey, server: ServerId) -> Option<Cleanup> {
        self.cursors.take(key, server)
    }

    /// Whether the owner of this key may begin another transaction.
    #[must_use]
    pub fn has_room_for_transaction(&self, key: &SessionKey) -> bool {
        self.transactions.has(key) || self.transactions.count(&key.owner) < self.limits.transactions_max
    }

    /// Where a part of a transaction goes.
    #[must_use]
    pub fn transaction(&self, key: &SessionKey, number: i64) -> TransactionRoute {
        self.transactions.route(key, number)
    }

    /// The first command of a transaction goes to this server. One of the same session that was under way is aborted.
    pub fn begin_transaction(&mut self, key: SessionKey, number: i64, server: ServerId, now: Time) -> Option<Cleanup> {
        self.transactions.begin(key, number, server, now.saturating_add(self.limits.transaction_idle))
    }

    /// A part of the transaction has been answered.
    pub fn touch_transaction(&mut self, key: &SessionKey, number: i64, now: Time) {
        self.transactions.touch(key, number, now.saturating_add(self.limits.transaction_idle));
    }

    /// The transaction is committed, or its commit has no known end: it may be repeated at the same server.
    pub fn commit_transaction(&mut self, key: &SessionKey, number: i64, now: Time) {
        self.transactions.commit(key, number, now.saturating_add(self.limits.transaction_idle));
    }

    /// The transaction is over.
    pub fn end_transaction(&mut self, key: &SessionKey, number: i64) {
        self.transactions.end(key, number);
    }

    /// endSessions: cursors and transactions of these sessions are given back.
    pub fn end_sessions(&mut self, owner: &Owner, sessions: &[[u8; 16]]) -> Vec<Cleanup> {
        let key = |session: &[u8; 16]| SessionKey { owner: owner.clone(), session: *session };
        let mut cleanups: Vec<_> =
            sessions.iter().filter_map(|session| self.transactions.take(&key(session))).collect();
        cleanups.extend(self.cursors.take_sessions(owner, &sessions.iter().copied().collect()));
        cleanups
    }

    /// A server is gone, with its cursors and transactions.
    pub fn on_server_lost(&mut self, server: ServerId) {
        self.cursors.lose(server);
        self.transactions.lose(server);
    }

    /// Gives back all whose time is over. Call it every few seconds: it looks at each pin.
    pub fn expire(&mut self, now: Time) -> Vec<Cleanup> {
        let mut cleanups = self.cursors.expire(now);
        cleanups.extend(self.transactions.expire(now));
        cleanups
    }

    /// Gives back everything: the client of these pins is gone.
    pub fn drain(&mut self) -> Vec<Cleanup> {
        self.expire(Time::NEVER)
    }
}

/// Pins of each owner.
#[derive(Debug, Default)]
struct Counts(HashMap<Owner, usize, RandomState>);

impl Counts {
    fn of(&self, owner: &Owner) -> usize {
        self.0.get(owner).copied().unwrap_or(0)
    }

    fn add(&mut self, owner: &Owner) {
        match self.0.get_mut(owner) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(owner.clone(), 1)),
        }
    }

    fn sub(&mut self, owner: &Owner) {
        match self.0.get_mut(owner) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.0.remove(owner)),
        }
    }
}

#[cfg(test)]
mod tests;
