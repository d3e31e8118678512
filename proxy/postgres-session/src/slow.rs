//! Statements that take longer than a limit: which one each batch runs, and how long its server takes.
//!
//! The time of a batch runs from its first message at the server, or from the end of the batch before it, to its ReadyForQuery. The wait
//! for a server is no part of it. A batch is a Query, or a pipeline up to its Sync, and counts as its first statement.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use weir_analysis::postgres::{Analysis, Class};
use weir_base::time::Time;

use crate::server::ServerState;
use crate::session::Session;
use crate::share::WorkerShare;
use crate::statements::Statement;

/// Batches without a reply whose statements are known. Default 64: drivers pipeline some tens. Further ones are reported without their
/// statement.
const BATCHES_MAX: usize = 64;

/// A statement over the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowStatement {
    /// The time of its server.
    pub duration: Duration,
    /// Fingerprint and class of its text. If the text has several statements, the class is the first in the order of [`Class::ALL`] that
    /// one of them has. `None`: the text is too large, was prepared earlier in a session pool, or there is none, as for a FunctionCall.
    pub statement: Option<(u64, Class)>,
}

/// The first statement of a batch.
#[derive(Clone, Debug)]
enum First {
    Text(Rc<Analysis>),
    Prepared(Rc<Statement>),
}

impl First {
    fn facts(self, share: &WorkerShare) -> (u64, Class) {
        let analysis = match self {
            Self::Text(analysis) => analysis,
            Self::Prepared(statement) => share.analysis(statement.text()),
        };
        let has = |class: &Class| analysis.statements.iter().any(|statement| statement.class == *class);
        (analysis.fingerprint, Class::ALL.into_iter().find(has).unwrap_or(Class::Unknown))
    }
}

/// See above.
#[derive(Debug)]
pub(crate) struct SlowLog {
    limit: Duration,
    /// By the number of their batch.
    running: VecDeque<(u64, First)>,
    found: Option<SlowStatement>,
}

impl SlowLog {
    pub(crate) fn new(limit: Duration) -> Box<Self> {
        Box::new(Self { limit, running: VecDeque::new(), found: None })
    }

    fn note(&mut self, batch: u64, first: impl FnOnce() -> First) {
        let is_known = self.running.back().is_some_and(|(last, _)| *last == batch);
        if !is_known && self.running.len() < BATCHES_MAX {
            self.running.push_back((batch, first()));
        }
    }

    /// Batches below this number have their ReadyForQuery.
    fn take_finished(&mut self, number: u64) -> Option<First> {
        let count = self.running.iter().take_while(|(batch, _)| *batch < number).count();
        self.running.drain(..count).next().map(|(_, first)| first)
    }
}

impl Session {
    /// A text is about to go to the server.
    pub(crate) fn note_running_text(&mut self, text: &[u8], server: &ServerState) {
        if let Some(slow) = &mut self.slow {
            slow.note(server.queue.batch(), || First::Text(self.share.analysis(text)));
        }
    }

    /// A message about a statement is about to go to the server.
    pub(crate) fn note_running(&mut self, statement: &Rc<Statement>, server: &ServerState) {
        if let Some(slow) = &mut self.slow {
            slow.note(server.queue.batch(), || First::Prepared(statement.clone()));
        }
    }

    /// A batch has its ReadyForQuery.
    pub(crate) fn note_finished(&mut self, server: &ServerState, now: Time) {
        let Some(slow) = &mut self.slow else { return };
        let first = slow.take_finished(server.queue.finished());
        let duration = self.busy_since.map(|since| now.since(since)).unwrap_or_default();
        if duration >= slow.limit {
            let statement = first.map(|first| first.facts(&self.share));
            slow.found = Some(SlowStatement { duration, statement });
        }
    }

    /// Another server: its batches have other numbers.
    pub(crate) fn forget_running(&mut self) {
        if let Some(slow) = &mut self.slow {
            slow.running.clear();
        }
    }

    /// The last statement over the limit since the last call. If several end in one turn of the loop, one has taken the time.
    pub fn take_slow(&mut self) -> Option<SlowStatement> {
        self.slow.as_mut()?.found.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_counts_as_its_first_statement_and_an_ignored_sync_ends_none() {
        let share = WorkerShare::new();
        let mut slow = SlowLog::new(Duration::ZERO);
        let text = |text: &[u8]| First::Text(share.analysis(text));
        slow.note(0, || text(b"insert into a values (1)"));
        slow.note(0, || unreachable!("a batch has one"));
        slow.note(3, || text(b"select 1; delete from b"));
        let class = |first: Option<First>| first.map(|first| first.facts(&share).1);
        assert_eq!(class(slow.take_finished(0)), None);
        // Two Syncs among the data of a COPY counted as batches.
        assert_eq!(class(slow.take_finished(3)), Some(Class::Write));
        assert_eq!(class(slow.take_finished(4)), Some(Class::Write), "the first class in the order of all");
        assert_eq!(class(slow.take_finished(5)), None);
        for batch in 0..2 * BATCHES_MAX as u64 {
            slow.note(batch, || text(b"select 1"));
        }
        assert_eq!(slow.running.len(), BATCHES_MAX);
    }

    #[test]
    fn a_fingerprint_has_no_literal() {
        let share = WorkerShare::new();
        let facts = |text: &[u8]| First::Text(share.analysis(text)).facts(&share);
        assert_eq!(facts(b"select * from t where a = 'secret'"), facts(b"SELECT * FROM t WHERE a = 'other' -- x"));
        let prepared = share.statement(b"select * from t where a = $1\0\0\0");
        assert_eq!(First::Prepared(prepared).facts(&share), facts(b"select * from t where a = 'secret'"));
    }
}
