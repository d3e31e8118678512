//! The ledger that a child process reports over a pipe, and the states that a recovery may find.

use std::collections::{BTreeSet, VecDeque};

/// The steps of one worker of a child.
#[derive(Debug, Default)]
pub struct WorkerLedger {
    settled: u64,
    /// Reserved, the oldest first: workers settle in this order.
    open: VecDeque<u64>,
    /// Announced, not confirmed.
    pending: Option<Step>,
}

/// A step that a worker announces before it takes it, and confirms afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Reserve(u64),
    /// That of the oldest.
    Settle(u64),
}

impl WorkerLedger {
    /// Reads `reserve 5`, `settle 3` or `done`.
    pub fn read(&mut self, words: &[&str]) {
        match words {
            ["reserve", tokens] => self.pending = Some(Step::Reserve(tokens.parse().unwrap())),
            ["settle", tokens] => self.pending = Some(Step::Settle(tokens.parse().unwrap())),
            ["done"] => {
                let step = self.pending.take().unwrap();
                self.take(step);
            }
            // The gateway refused it: nothing has changed.
            ["refused"] => self.pending = None,
            other => panic!("{other:?}"),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Reserve(tokens) => self.open.push_back(tokens),
            Step::Settle(tokens) => {
                self.open.pop_front().unwrap();
                self.settled += tokens;
            }
        }
    }

    /// The charges that a recovery may find: with the last announced step and without it.
    pub fn charges(&self) -> BTreeSet<u64> {
        let charged = |ledger: &Self| ledger.settled + ledger.open.iter().sum::<u64>();
        let mut found = BTreeSet::from([charged(self)]);
        if let Some(step) = self.pending {
            let mut after = Self { settled: self.settled, open: self.open.clone(), pending: None };
            after.take(step);
            found.insert(charged(&after));
        }
        found
    }

    /// Requests that were admitted for certain.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

#[test]
fn an_unconfirmed_step_leaves_two_possible_charges() {
    let mut ledger = WorkerLedger::default();
    for line in ["reserve 10", "done", "reserve 7", "done", "settle 4", "done", "reserve 1", "refused", "settle 2"] {
        ledger.read(&line.split(' ').collect::<Vec<_>>());
    }
    assert_eq!(ledger.charges(), BTreeSet::from([4 + 7, 4 + 2]));
}
