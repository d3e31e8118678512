//! Random operations of workers, the keeper and kills, against a model that only adds.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use proptest::prelude::*;
use weir_spend::{
    budget::AccountKind,
    journal::{Journal, JournalSettings, Recovery},
    meter::{Meter, Reservation},
    policy::Policy,
};

use crate::support::{Keys, NOON, assert_reconciled, day_tokens, reserve, settings, settle, usage_log, used};

const KEYS: [&str; 2] = ["a", "b"];
const WORKERS: u16 = 2;

/// Tokens of a day: few, so that budgets refuse.
const LIMITS: [u64; 2] = [3_000, 900];

#[derive(Clone, Debug)]
enum Operation {
    Reserve {
        worker: u16,
        key: usize,
        tokens: u64,
    },
    /// Settles one of the open requests with a share of what it reserved.
    Settle {
        which: prop::sample::Index,
        percent: u64,
    },
    Drop {
        which: prop::sample::Index,
    },
    Flush,
    Compact,
    /// The process dies: another one finds the files as they are at this moment.
    Kill,
    /// The process ends in order, with open requests.
    Restart,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (0..WORKERS, 0..KEYS.len(), 1u64..400).prop_map(|(worker, key, tokens)| Operation::Reserve { worker, key, tokens }),
        6 => (any::<prop::sample::Index>(), 0u64..=100).prop_map(|(which, percent)| Operation::Settle { which, percent }),
        1 => any::<prop::sample::Index>().prop_map(|which| Operation::Drop { which }),
        1 => Just(Operation::Flush),
        2 => Just(Operation::Compact),
        2 => Just(Operation::Kill),
        1 => Just(Operation::Restart),
    ]
}

/// A gateway whose keeper acts on orders alone, so that its files can be copied at a moment.
struct Gateway {
    folder: tempfile::TempDir,
    journal: Option<Journal>,
    recovery: Recovery,
    keys: Keys,
    open: Vec<(Reservation, usize, String, u64)>,
}

fn start(folder: tempfile::TempDir) -> Gateway {
    let settings = JournalSettings { sync_interval: Duration::from_secs(3_600), ..settings(folder.path()) };
    let (journal, recovery) = Journal::open(settings, NOON).unwrap();
    let policies = [(KEYS[0], day_tokens(LIMITS[0])), (KEYS[1], day_tokens(LIMITS[1]))];
    let keys = Keys::new(&recovery.ledger, &policies, Policy::default());
    Gateway { folder, journal: Some(journal), recovery, keys, open: Vec::new() }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

impl Gateway {
    /// Another process, after the end of this one.
    fn successor(mut self, is_killed: bool) -> Gateway {
        let folder = if is_killed {
            let copied = tempfile::tempdir().unwrap();
            copy(self.folder.path(), copied.path());
            copied
        } else {
            drop(self.journal.take());
            std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
        };
        // Dropped, they would be settled.
        self.open.drain(..).for_each(std::mem::forget);
        start(folder)
    }

    fn used(&self, key: usize) -> u64 {
        used(&self.recovery.ledger, AccountKind::Key, KEYS[key]).in_day.tokens
    }
}

/// The model: charges by request, and what is reserved.
#[derive(Default)]
struct Model {
    charged: BTreeMap<String, (usize, u64)>,
    open: BTreeMap<String, (usize, u64)>,
}

impl Model {
    fn sum(map: &BTreeMap<String, (usize, u64)>, key: usize) -> u64 {
        map.values().filter(|(owner, _)| *owner == key).map(|(_, tokens)| tokens).sum()
    }

    fn left(&self, key: usize) -> u64 {
        LIMITS[key] - Self::sum(&self.charged, key) - Self::sum(&self.open, key)
    }

    fn end(&mut self, request: &str, tokens: Option<u64>) {
        let (key, reserved) = self.open.remove(request).unwrap();
        self.charged.insert(request.to_owned(), (key, tokens.unwrap_or(reserved)));
    }

    fn crash(&mut self) {
        self.charged.append(&mut self.open);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn budgets_and_usage_log_are_those_of_the_model_through_kills_and_restarts(
        operations in proptest::collection::vec(operation(), 1..60),
    ) {
        let (mut gateway, mut model) = (start(tempfile::tempdir().unwrap()), Model::default());
        let end = [Operation::Kill, Operation::Restart];
        for (number, operation) in operations.into_iter().chain(end).enumerate() {
            let journal = gateway.journal.as_ref().unwrap();
            match operation {
                Operation::Reserve { worker, key, tokens } => {
                    let request = format!("r{number}");
                    let meter = Meter::new(gateway.recovery.ledger.clone(), Some(journal.writer(worker).unwrap()));
                    let granted = reserve(&meter, &gateway.keys, KEYS[key], &request, tokens);
                    let left = model.left(key);
                    prop_assert_eq!(granted.is_ok(), left > 0 && left >= tokens);
                    if let Ok(reservation) = granted {
                        gateway.open.push((reservation, key, request.clone(), tokens));
                        model.open.insert(request, (key, tokens));
                    }
                }
                Operation::Settle { which, percent } if !gateway.open.is_empty() => {
                    let at = which.index(gateway.open.len());
                    let (reservation, key, request, reserved) = gateway.open.swap_remove(at);
                    let tokens = reserved * percent / 100;
                    settle(reservation, KEYS[key], &request, tokens);
                    model.end(&request, Some(tokens));
                }
                Operation::Drop { which } if !gateway.open.is_empty() => {
                    let at = which.index(gateway.open.len());
                    let (reservation, _, request, _) = gateway.open.swap_remove(at);
                    drop(reservation);
                    model.end(&request, None);
                }
                Operation::Settle { .. } | Operation::Drop { .. } => {}
                Operation::Flush => journal.flush(),
                Operation::Compact => prop_assert!(journal.compact()),
                Operation::Kill | Operation::Restart => {
                    gateway = gateway.successor(matches!(operation, Operation::Kill));
                    prop_assert!(!gateway.recovery.damage.is_unexpected());
                    model.crash();
                    assert_reconciled(gateway.folder.path(), &gateway.recovery.ledger);
                    prop_assert_eq!(usage_log(gateway.folder.path()).0.requests(), model.charged.len());
                }
            }
            for key in 0..KEYS.len() {
                prop_assert_eq!(gateway.used(key), Model::sum(&model.charged, key));
            }
        }
    }
}
