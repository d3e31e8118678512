//! The owners that have a transaction or a cursor in a logical session.
//!
//! Behind a gateway all owners may be one user at a server. There the id of a session alone keeps the transactions of two owners apart,
//! and ids show in lists of operations. All pins of a listener share this index: those of its connections in load-balanced mode as well.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use crate::users::Owner;

/// The kind of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Cursor,
    /// Also one that waits for its server.
    Transaction,
}

/// Pins of one owner in one session.
#[derive(Debug)]
struct Holder {
    owner: Owner,
    cursors: usize,
    transactions: usize,
}

impl Holder {
    fn count(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Cursor => &mut self.cursors,
            Kind::Transaction => &mut self.transactions,
        }
    }
}

/// The index. An owner is in the list of a session as long as it has a pin there.
#[derive(Debug, Default)]
pub(super) struct Holders {
    sessions: Mutex<HashMap<[u8; 16], Vec<Holder>, RandomState>>,
    /// All transactions: most commands need no look while there is none.
    transactions: AtomicUsize,
}

impl Holders {
    fn sessions(&self) -> MutexGuard<'_, HashMap<[u8; 16], Vec<Holder>, RandomState>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, session: &[u8; 16], owner: &Owner, kind: Kind) {
        self.add_if(session, owner, kind, |_| true);
    }

    /// A transaction is about to begin. `false`: another owner has one in this session.
    pub(super) fn claim(&self, session: &[u8; 16], owner: &Owner) -> bool {
        let has_none = |holder: &Holder| holder.transactions == 0 || holder.owner == *owner;
        self.add_if(session, owner, Kind::Transaction, |holders| holders.iter().all(has_none))
    }

    fn add_if(&self, session: &[u8; 16], owner: &Owner, kind: Kind, may: impl FnOnce(&[Holder]) -> bool) -> bool {
        let mut sessions = self.sessions();
        let holders = sessions.entry(*session).or_default();
        if !may(holders) {
            return false;
        }
        let at = holders.iter().position(|holder| holder.owner == *owner).unwrap_or_else(|| {
            holders.push(Holder { owner: owner.clone(), cursors: 0, transactions: 0 });
            holders.len() - 1
        });
        *holders[at].count(kind) += 1;
        if kind == Kind::Transaction {
            self.transactions.fetch_add(1, Relaxed);
        }
        true
    }

    pub(super) fn sub(&self, session: &[u8; 16], owner: &Owner, kind: Kind) {
        let mut sessions = self.sessions();
        let Some(holders) = sessions.get_mut(session) else { return };
        let Some(at) = holders.iter().position(|holder| holder.owner == *owner) else { return };
        let count = holders[at].count(kind);
        if *count > 0 {
            *count -= 1;
            if kind == Kind::Transaction {
                self.transactions.fetch_sub(1, Relaxed);
            }
        }
        if holders[at].cursors == 0 && holders[at].transactions == 0 {
            holders.swap_remove(at);
        }
        if holders.is_empty() {
            sessions.remove(session);
        }
    }

    /// Another owner has a transaction in this session.
    pub(super) fn has_foreign_transaction(&self, session: &[u8; 16], owner: &Owner) -> bool {
        self.transactions.load(Relaxed) > 0
            && self.any(session, |holder| holder.owner != *owner && holder.transactions > 0)
    }

    /// Another owner has a transaction or a cursor in this session.
    pub(super) fn has_foreign(&self, session: &[u8; 16], owner: &Owner) -> bool {
        self.any(session, |holder| holder.owner != *owner)
    }

    /// The owner has a cursor in this session.
    pub(super) fn has_cursor(&self, session: &[u8; 16], owner: &Owner) -> bool {
        self.any(session, |holder| holder.owner == *owner && holder.cursors > 0)
    }

    fn any(&self, session: &[u8; 16], test: impl FnMut(&Holder) -> bool) -> bool {
        self.sessions().get(session).is_some_and(|holders| holders.iter().any(test))
    }

    /// No session has a pin.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.sessions().is_empty() && self.transactions.load(Relaxed) == 0
    }
}
