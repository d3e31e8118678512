//! Transactions and retryable writes of logical sessions.
//!
//! Source: "Transactions" and "Retryable Writes" of the driver specifications, and `transaction_participant.cpp` of MongoDB for the errors.

use std::collections::HashMap;
use std::time::Duration;

use weir_base::Time;

use super::failure::{Failure, code};
use super::request::Request;
use super::settings::TRANSACTIONS_MAX;

/// How long a transaction lives. `transactionLifetimeLimitSeconds` of MongoDB.
const LIFETIME: Duration = Duration::from_secs(60);

/// The session of a transaction.
pub(super) type SessionId = [u8; 16];

/// Sessions with a transaction or a write that has a number.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    sessions: HashMap<SessionId, Session>,
    pub started: u64,
    pub committed: u64,
    pub aborted: u64,
}

#[derive(Debug)]
struct Session {
    number: i64,
    state: TransactionState,
    /// It must stay on this connection.
    connection: Option<u64>,
    begun: Time,
    /// Statements, or retries of the write.
    statements: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransactionState {
    /// The number is that of a write.
    Write,
    InProgress,
    Committed,
    Aborted,
}

/// The facts about a connection that decide about its transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Transactions exist here.
    pub has_cluster: bool,
    /// Those of this connection stay on it.
    pub connection: Option<u64>,
    pub now: Time,
}

impl Transactions {
    /// Admits a command with a number, or a part of a transaction. It is true for a write that was carried out before.
    pub fn admit(&mut self, request: &Request<'_>, place: Place) -> Result<bool, Failure> {
        let command = &request.command;
        let invalid = |text: &str| Err(Failure::new(code::INVALID_OPTIONS, text));
        let Some(number) = command.txn_number else {
            return if command.is_in_transaction {
                invalid("'autocommit' field requires a transaction number to also be specified")
            } else if command.is_transaction_start {
                invalid("Specifying startTransaction requires a transaction number to also be specified")
            } else {
                Ok(false)
            };
        };
        let Some(&session) = command.session else {
            return invalid("Transaction number requires a session ID to also be specified");
        };
        if !place.has_cluster {
            let text = "Transaction numbers are only allowed on a replica set member or mongos";
            return Err(Failure::new(code::ILLEGAL_OPERATION, text));
        }
        if command.is_transaction_start && !command.is_in_transaction {
            return invalid("Specifying startTransaction requires autocommit=false");
        }
        self.expire(place.now);
        match (command.is_in_transaction, command.is_transaction_start) {
            (true, true) => self.start(session, number, place).map(|()| false),
            (true, false) => self.go_on(session, number, request, place).map(|()| false),
            (false, _) => self.write(session, number, place),
        }
    }

    fn start(&mut self, session: SessionId, number: i64, place: Place) -> Result<(), Failure> {
        if let Some(known) = self.sessions.get(&session) {
            if known.number > number {
                return Err(too_old(number, known.number));
            }
            if known.number == number && known.state != TransactionState::Aborted {
                let text =
                    format!("Cannot start a transaction at given transaction number {number}: it was used before");
                return Err(Failure::new(code::TRANSACTION_NUMBER_USED, text));
            }
            self.aborted += u64::from(known.state == TransactionState::InProgress);
        }
        self.started += 1;
        self.keep(session, number, TransactionState::InProgress, place);
        Ok(())
    }

    fn go_on(&mut self, session: SessionId, number: i64, request: &Request<'_>, place: Place) -> Result<(), Failure> {
        let none = |text: String| Failure::new(code::NO_SUCH_TRANSACTION, text);
        let Some(known) = self.sessions.get_mut(&session) else {
            let text = "Given transaction number does not match any in-progress transactions. The active transaction number is -1";
            return Err(none(text.to_owned()));
        };
        if known.number > number {
            return Err(too_old(number, known.number));
        }
        if known.number != number || known.state == TransactionState::Write || known.connection != place.connection {
            return Err(none(format!(
                "Given transaction number {number} does not match any in-progress transactions. The active transaction number is {}",
                known.number
            )));
        }
        match known.state {
            TransactionState::Aborted => {
                Err(none(format!("Transaction with {{ txnNumber: {number} }} has been aborted.")))
            }
            TransactionState::Committed if request.command.name != b"commitTransaction" => {
                let text = format!("Transaction {number} has been committed.");
                Err(Failure::new(code::TRANSACTION_COMMITTED, text))
            }
            _ => {
                known.statements += 1;
                Ok(())
            }
        }
    }

    fn write(&mut self, session: SessionId, number: i64, place: Place) -> Result<bool, Failure> {
        match self.sessions.get_mut(&session) {
            Some(known) if known.number > number => Err(too_old(number, known.number)),
            Some(known) if known.number == number && known.state == TransactionState::Write => {
                known.statements += 1;
                Ok(true)
            }
            Some(known) if known.number == number => {
                let text =
                    format!("Transaction number {number} is that of a transaction, and no retryable write can have it");
                Err(Failure::new(code::TRANSACTION_NUMBER_USED, text))
            }
            _ => {
                self.keep(session, number, TransactionState::Write, place);
                Ok(false)
            }
        }
    }

    fn keep(&mut self, session: SessionId, number: i64, state: TransactionState, place: Place) {
        if self.sessions.len() >= TRANSACTIONS_MAX {
            self.forget_oldest();
        }
        let connection = place.connection.filter(|_| state == TransactionState::InProgress);
        self.sessions.insert(session, Session { number, state, connection, begun: place.now, statements: 1 });
    }

    /// The older half goes: a look at all of them for each new one would take too long.
    fn forget_oldest(&mut self) {
        let mut begun: Vec<Time> = self.sessions.values().map(|session| session.begun).collect();
        let middle = begun.len() / 2;
        let (_, &mut median, _) = begun.select_nth_unstable(middle);
        self.sessions.retain(|_, session| session.begun > median);
    }

    /// The end of a transaction that [`Self::admit`] has admitted.
    pub fn end(&mut self, session: &SessionId, is_committed: bool) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        if known.state == TransactionState::InProgress {
            self.committed += u64::from(is_committed);
            self.aborted += u64::from(!is_committed);
        }
        known.state = if is_committed { TransactionState::Committed } else { TransactionState::Aborted };
    }

    /// The transaction of a session is aborted, if one is in progress.
    pub fn abort(&mut self, session: &SessionId) {
        if let Some(known) = self.sessions.get_mut(session).filter(|known| known.state == TransactionState::InProgress)
        {
            known.state = TransactionState::Aborted;
            self.aborted += 1;
        }
    }

    /// The transaction in progress with this number failed, and is aborted.
    pub fn fail(&mut self, session: &SessionId, number: i64) {
        if self.sessions.get(session).is_some_and(|known| known.number == number) {
            self.abort(session);
        }
    }

    /// Every transaction of a connection is aborted: it has ended.
    pub fn leave(&mut self, connection: u64) {
        let all: Vec<SessionId> = self.of(|session| session.connection == Some(connection));
        all.iter().for_each(|session| self.abort(session));
    }

    /// Every transaction is aborted.
    pub fn abort_all(&mut self) {
        self.of(|_| true).iter().for_each(|session| self.abort(session));
    }

    /// Nothing is known about a session any more.
    pub fn forget(&mut self, session: &SessionId) {
        self.abort(session);
        self.sessions.remove(session);
    }

    /// Transactions in progress.
    pub fn open(&self) -> usize {
        self.sessions.values().filter(|session| session.state == TransactionState::InProgress).count()
    }

    fn of(&self, wanted: impl Fn(&Session) -> bool) -> Vec<SessionId> {
        self.sessions.iter().filter(|(_, session)| wanted(session)).map(|(id, _)| *id).collect()
    }

    /// Aborts the transactions that have lived too long, now and then: a look at all of them is not for every command.
    fn expire(&mut self, now: Time) {
        const FEW: usize = 64;
        if self.sessions.len() > FEW && !self.started.is_multiple_of(FEW as u64) {
            return;
        }
        let is_over =
            |session: &Session| session.state == TransactionState::InProgress && now.since(session.begun) >= LIFETIME;
        self.of(is_over).iter().for_each(|session| self.abort(session));
    }
}

fn too_old(number: i64, active: i64) -> Failure {
    let text = format!(
        "Cannot start transaction {number} because a newer transaction with txnNumber {active} has already started"
    );
    Failure::new(code::TRANSACTION_TOO_OLD, text)
}

#[cfg(test)]
mod tests;
