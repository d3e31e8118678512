//! Cursors and transactions, and the server at which each one lives.
//!
//! A cursor or a transaction belongs to its owner and to the logical session that made it, never to a number alone: cursor ids are
//! unique at one server and not among several (L3, M9, M20).
//!
//! | file | concept |
//! |---|---|
//! | `cursors` | cursors by owner, session and id |
//! | `transactions` | transactions by owner and session |
//! | `holders` | the owners that have a pin in a logical session |
//! | `cleanup` | commands for things that have lost their client |
//!
//! In load-balanced mode each client connection has pins of its own, which end with it. Behind the face of a mongos all connections of a
//! listener share them, since a driver may go on with a cursor on any of its connections; time ends them.

mod cleanup;
mod cursors;
mod holders;
mod transactions;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use weir_base::time::Time;

pub use cleanup::Cleanup;
pub use cursors::{CursorKey, CursorPlace};
pub use transactions::{SessionKey, TransactionRoute};

use crate::users::Owner;
use cursors::Cursors;
use holders::{Holders, Kind};
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

/// The longest use of a pin. Default 24 hours: no command runs as long, and a client whose session panicked leaves its use behind.
const USE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Cursors beyond the bound of an owner that are kept. The bound is looked at when a command begins, and others may be under way then:
/// their clients get the ids of their cursors, and must be able to use them. Default 1,000: as many as ten pools have under way.
const UNDER_WAY_MAX: usize = 1_000;

/// Whether the time of a pin is over. It does not pass while requests use it.
fn is_over(expires: Time, uses: u32, now: Time) -> bool {
    let end = if uses == 0 { expires } else { expires.saturating_add(USE_MAX) };
    end <= now
}

/// Cursors and transactions with their servers.
#[derive(Debug)]
pub struct Pins {
    limits: PinLimits,
    cursors: Cursors,
    transactions: Transactions,
    holders: Arc<Holders>,
}

impl Pins {
    /// No pins.
    #[must_use]
    pub fn new(limits: PinLimits) -> Pins {
        Self::with(limits, Arc::default())
    }

    /// No pins, of a connection beside these: neither side reaches the pins of the other.
    #[must_use]
    pub fn beside(&self, limits: PinLimits) -> Pins {
        Self::with(limits, self.holders.clone())
    }

    fn with(limits: PinLimits, holders: Arc<Holders>) -> Pins {
        let counts = |kind, bound| Counts::new(kind, bound, holders.clone());
        let cursors = Cursors::new(counts(Kind::Cursor, limits.cursors_max));
        let transactions = Transactions::new(counts(Kind::Transaction, limits.transactions_max));
        Pins { limits, cursors, transactions, holders }
    }

    /// Bounds of the pins.
    #[must_use]
    pub fn limits(&self) -> PinLimits {
        self.limits
    }

    /// Other bounds, for cursors and transactions that are pinned from now on.
    pub fn set_limits(&mut self, limits: PinLimits) {
        self.limits = limits;
        self.cursors.set_bound(limits.cursors_max);
    }

    /// An owner has as many cursors as it may have.
    #[must_use]
    pub fn has_full_owner(&self) -> bool {
        self.cursors.has_full_owner()
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

    /// A request uses the cursor until [`Pins::release_cursor`]: its time cannot be over before. `false`: there is none.
    pub(crate) fn use_cursor(&mut self, key: &CursorKey) -> bool {
        self.cursors.use_one(key)
    }

    /// The request is over. The time without a use begins.
    pub(crate) fn release_cursor(&mut self, key: &CursorKey, now: Time) {
        self.cursors.release(key, now.saturating_add(self.limits.cursor_idle));
    }

    /// As [`Pins::use_cursor`].
    pub(crate) fn use_transaction(&mut self, key: &SessionKey, number: i64) -> bool {
        self.transactions.use_one(key, number)
    }

    /// As [`Pins::release_cursor`].
    pub(crate) fn release_transaction(&mut self, key: &SessionKey, number: i64, now: Time) {
        self.transactions.release(key, number, now.saturating_add(self.limits.transaction_idle));
    }

    /// A transaction of this session is about to begin: until [`Pins::release_claim`] no other owner may begin one. `false`: another owner
    /// has one.
    pub(crate) fn claim(&self, key: &SessionKey) -> bool {
        self.holders.claim(&key.session, &key.owner)
    }

    /// It has begun, or does not begin.
    pub(crate) fn release_claim(&self, key: &SessionKey) {
        self.holders.sub(&key.session, &key.owner, Kind::Transaction);
    }

    /// Another owner has a transaction in this session.
    pub(crate) fn has_foreign_transaction(&self, key: &SessionKey) -> bool {
        self.holders.has_foreign_transaction(&key.session, &key.owner)
    }

    /// Another owner has a cursor or a transaction in one of these sessions.
    pub(crate) fn has_foreign(&self, owner: &Owner, sessions: &[[u8; 16]]) -> bool {
        sessions.iter().any(|session| self.holders.has_foreign(session, owner))
    }

    /// A server has opened the cursor, or has kept it behind a batch. Another one of the same key makes both unusable: both are given
    /// back, and neither is found any more. One far beyond the owner's bound is given back at once.
    pub fn note_cursor(&mut self, key: CursorKey, place: CursorPlace, now: Time) -> Vec<Cleanup> {
        let most = self.limits.cursors_max.saturating_add(UNDER_WAY_MAX);
        if !self.cursors.has(&key) && self.cursors.count(&key.owner) >= most {
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

    /// The transaction is over here. One that was under way must be aborted at its server.
    pub fn take_transaction(&mut self, key: &SessionKey, number: i64) -> Option<Cleanup> {
        self.transactions.take_number(key, number)
    }

    /// endSessions: cursors and transactions of these sessions are given back.
    pub fn end_sessions(&mut self, owner: &Owner, sessions: &[[u8; 16]]) -> Vec<Cleanup> {
        let key = |session: &[u8; 16]| SessionKey { owner: owner.clone(), session: *session };
        let mut cleanups: Vec<_> =
            sessions.iter().filter_map(|session| self.transactions.take(&key(session))).collect();
        // A look at each cursor is for sessions that have one.
        let with_cursors = sessions.iter().filter(|session| self.holders.has_cursor(session, owner));
        let with_cursors: HashSet<_> = with_cursors.copied().collect();
        if !with_cursors.is_empty() {
            cleanups.extend(self.cursors.take_sessions(owner, &with_cursors));
        }
        cleanups
    }

    /// A server is gone, with its cursors and transactions.
    pub fn on_server_lost(&mut self, server: ServerId) {
        self.cursors.lose(server);
        self.transactions.lose(server);
    }

    /// The clients of a server that is there still have moved to other servers. As [`Pins::on_server_lost`], and its cursors and transactions
    /// are given back.
    pub fn take_server(&mut self, server: ServerId) -> Vec<Cleanup> {
        let mut cleanups = self.cursors.kills_at(server);
        cleanups.extend(self.transactions.aborts_at(server));
        self.on_server_lost(server);
        cleanups
    }

    /// Gives back all whose time is over, and that no request uses. Call it every few seconds: it looks at each pin.
    pub fn expire(&mut self, now: Time) -> Vec<Cleanup> {
        let mut cleanups = self.cursors.take_if(|_, cursor| cursor.is_over(now));
        cleanups.extend(self.transactions.take_if(|transaction| transaction.is_over(now)));
        cleanups
    }

    /// Gives back everything: the client of these pins is gone.
    pub fn drain(&mut self) -> Vec<Cleanup> {
        let mut cleanups = self.cursors.take_if(|_, _| true);
        cleanups.extend(self.transactions.take_if(|_| true));
        cleanups
    }
}

/// Pins of each owner, and its part of the index of sessions.
#[derive(Debug)]
struct Counts {
    kind: Kind,
    of: HashMap<Owner, usize, RandomState>,
    /// Pins that one owner may have.
    bound: usize,
    /// Owners that have as many, or more.
    full: usize,
    holders: Arc<Holders>,
}

impl Counts {
    fn new(kind: Kind, bound: usize, holders: Arc<Holders>) -> Counts {
        Counts { kind, of: HashMap::default(), bound, full: 0, holders }
    }

    fn set_bound(&mut self, bound: usize) {
        self.bound = bound;
        self.full = self.of.values().filter(|count| **count >= bound).count();
    }

    fn of(&self, owner: &Owner) -> usize {
        self.of.get(owner).copied().unwrap_or(0)
    }

    fn add(&mut self, owner: &Owner, session: Option<&[u8; 16]>) {
        let now = match self.of.get_mut(owner) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => {
                self.of.insert(owner.clone(), 1);
                1
            }
        };
        self.full += usize::from(now == self.bound);
        if let Some(session) = session {
            self.holders.add(session, owner, self.kind);
        }
    }

    fn sub(&mut self, owner: &Owner, session: Option<&[u8; 16]>) {
        if let Some(count) = self.of.get_mut(owner) {
            self.full -= usize::from(*count == self.bound);
            *count -= 1;
            if *count == 0 {
                self.of.remove(owner);
            }
        }
        if let Some(session) = session {
            self.holders.sub(session, owner, self.kind);
        }
    }
}

/// Those of a connection that ends without a word.
impl Drop for Pins {
    fn drop(&mut self) {
        self.drain();
    }
}

#[cfg(test)]
mod tests;
