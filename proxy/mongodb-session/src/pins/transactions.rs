//! Transactions by owner and session. A session has one at a time.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use weir_base::time::Time;

use super::cleanup::Cleanup;
use super::{Counts, ServerId};
use crate::users::Owner;

/// A logical session of an owner. Two owners with one session id have two sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// Its owner.
    pub owner: Owner,
    /// `lsid.id`.
    pub session: [u8; 16],
}

/// Where a part of a transaction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionRoute {
    /// To its server.
    Server(ServerId),
    /// Its server is gone. A commit or an abort may go to any primary, everything else cannot go on.
    Lost,
    /// None of this number is known: a primary knows whether there is one.
    Unknown,
    /// Another owner has a transaction in this session. All owners may be one user at the server, which would let this one into it.
    Foreign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    UnderWay,
    Committed,
    Lost,
}

#[derive(Debug)]
struct Transaction {
    number: i64,
    server: ServerId,
    state: State,
    expires: Time,
}

#[derive(Debug, Default)]
pub(super) struct Transactions {
    all: HashMap<SessionKey, Transaction, RandomState>,
    counts: Counts,
}

impl Transactions {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn count(&self, owner: &Owner) -> usize {
        self.counts.of(owner)
    }

    pub(super) fn has(&self, key: &SessionKey) -> bool {
        self.all.contains_key(key)
    }

    pub(super) fn route(&self, key: &SessionKey, number: i64) -> TransactionRoute {
        match self.all.get(key).filter(|known| known.number == number) {
            Some(Transaction { state: State::Lost, .. }) => TransactionRoute::Lost,
            Some(known) => TransactionRoute::Server(known.server),
            None if self.is_foreign(key) => TransactionRoute::Foreign,
            None => TransactionRoute::Unknown,
        }
    }

    fn is_foreign(&self, key: &SessionKey) -> bool {
        self.all.keys().any(|other| other.session == key.session && other.owner != key.owner)
    }

    pub(super) fn begin(&mut self, key: SessionKey, number: i64, server: ServerId, expires: Time) -> Option<Cleanup> {
        let session = key.session;
        let transaction = Transaction { number, server, state: State::UnderWay, expires };
        match self.all.get_mut(&key) {
            Some(known) => {
                let before = std::mem::replace(known, transaction);
                // The same server aborts it by itself when it sees the new number.
                cleanup(&before, session).filter(|_| before.number != number && before.server != server)
            }
            None => {
                self.counts.add(&key.owner);
                self.all.insert(key, transaction);
                None
            }
        }
    }

    fn known(&mut self, key: &SessionKey, number: i64) -> Option<&mut Transaction> {
        self.all.get_mut(key).filter(|known| known.number == number)
    }

    pub(super) fn touch(&mut self, key: &SessionKey, number: i64, expires: Time) {
        if let Some(known) = self.known(key, number) {
            known.expires = expires;
        }
    }

    pub(super) fn commit(&mut self, key: &SessionKey, number: i64, expires: Time) {
        if let Some(known) = self.known(key, number) {
            known.expires = expires;
            if known.state == State::UnderWay {
                known.state = State::Committed;
            }
        }
    }

    pub(super) fn end(&mut self, key: &SessionKey, number: i64) {
        if self.known(key, number).is_some() {
            self.take(key);
        }
    }

    pub(super) fn take(&mut self, key: &SessionKey) -> Option<Cleanup> {
        let transaction = self.all.remove(key)?;
        self.counts.sub(&key.owner);
        cleanup(&transaction, key.session)
    }

    pub(super) fn lose(&mut self, server: ServerId) {
        let at_server = self.all.values_mut().filter(|known| known.server == server);
        at_server.for_each(|known| known.state = State::Lost);
    }

    pub(super) fn expire(&mut self, now: Time) -> Vec<Cleanup> {
        let (counts, mut cleanups) = (&mut self.counts, Vec::new());
        self.all.retain(|key, transaction| {
            let over = transaction.expires <= now;
            if over {
                counts.sub(&key.owner);
                cleanups.extend(cleanup(transaction, key.session));
            }
            !over
        });
        cleanups
    }
}

/// Only one that is under way needs an abort.
fn cleanup(transaction: &Transaction, session: [u8; 16]) -> Option<Cleanup> {
    let Transaction { number, server, state, .. } = *transaction;
    (state == State::UnderWay).then_some(Cleanup::AbortTransaction { server, session, number })
}
