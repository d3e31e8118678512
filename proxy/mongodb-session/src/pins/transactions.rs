//! Transactions by owner and session. A session has one at a time.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use weir_base::time::Time;

use super::cleanup::Cleanup;
use super::{Counts, ServerId, is_over};
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
pub(super) struct Transaction {
    number: i64,
    server: ServerId,
    state: State,
    expires: Time,
    /// Requests that use it now.
    uses: u32,
}

impl Transaction {
    pub(super) fn is_over(&self, now: Time) -> bool {
        is_over(self.expires, self.uses, now)
    }
}

#[derive(Debug)]
pub(super) struct Transactions {
    all: HashMap<SessionKey, Transaction, RandomState>,
    counts: Counts,
}

impl Transactions {
    pub(super) fn new(counts: Counts) -> Transactions {
        Transactions { all: HashMap::default(), counts }
    }

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
            None if self.counts.holders.has_foreign_transaction(&key.session, &key.owner) => TransactionRoute::Foreign,
            None => TransactionRoute::Unknown,
        }
    }

    pub(super) fn begin(&mut self, key: SessionKey, number: i64, server: ServerId, expires: Time) -> Option<Cleanup> {
        let session = key.session;
        let transaction = Transaction { number, server, state: State::UnderWay, expires, uses: 0 };
        match self.all.get_mut(&key) {
            Some(known) => {
                // One that is repeated is in use already.
                let uses = if known.number == number { known.uses } else { 0 };
                let before = std::mem::replace(known, Transaction { uses, ..transaction });
                // The same server aborts it by itself when it sees the new number.
                cleanup(&before, session).filter(|_| before.number != number && before.server != server)
            }
            None => {
                self.counts.add(&key.owner, Some(&key.session));
                self.all.insert(key, transaction);
                None
            }
        }
    }

    fn known(&mut self, key: &SessionKey, number: i64) -> Option<&mut Transaction> {
        self.all.get_mut(key).filter(|known| known.number == number)
    }

    pub(super) fn use_one(&mut self, key: &SessionKey, number: i64) -> bool {
        self.known(key, number).map(|known| known.uses += 1).is_some()
    }

    pub(super) fn release(&mut self, key: &SessionKey, number: i64, expires: Time) {
        if let Some(known) = self.known(key, number) {
            known.uses = known.uses.saturating_sub(1);
            known.expires = expires;
        }
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
        self.take_number(key, number);
    }

    pub(super) fn take_number(&mut self, key: &SessionKey, number: i64) -> Option<Cleanup> {
        self.known(key, number)?;
        self.take(key)
    }

    pub(super) fn take(&mut self, key: &SessionKey) -> Option<Cleanup> {
        let transaction = self.all.remove(key)?;
        self.counts.sub(&key.owner, Some(&key.session));
        cleanup(&transaction, key.session)
    }

    /// The commands that abort those at this server.
    pub(super) fn aborts_at(&self, server: ServerId) -> Vec<Cleanup> {
        let abort = |(key, known): (&SessionKey, &Transaction)| {
            if known.server == server { cleanup(known, key.session) } else { None }
        };
        self.all.iter().filter_map(abort).collect()
    }

    pub(super) fn lose(&mut self, server: ServerId) {
        let at_server = self.all.values_mut().filter(|known| known.server == server);
        at_server.for_each(|known| known.state = State::Lost);
    }

    /// Those that a test takes for over. Each is taken out.
    pub(super) fn take_if(&mut self, is_over: impl Fn(&Transaction) -> bool) -> Vec<Cleanup> {
        let (counts, mut cleanups) = (&mut self.counts, Vec::new());
        self.all.retain(|key, transaction| {
            let over = is_over(transaction);
            if over {
                counts.sub(&key.owner, Some(&key.session));
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
