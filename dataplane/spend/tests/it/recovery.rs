//! A journal that is closed, opened, compacted and damaged.

use std::fs;

use weir_spend::{
    budget::AccountKind,
    journal::{Journal, JournalError, JournalSettings},
    meter::Meter,
    policy::Policy,
};

use crate::support::{
    Keys, NOON, amount, assert_reconciled, day_tokens, open, reserve, settings, settle, usage_log, used,
};

fn meter(journal: &Journal, recovery: &weir_spend::journal::Recovery, worker: u16) -> (Keys, Meter) {
    let keys = Keys::new(&recovery.ledger, &[("a", day_tokens(1_000)), ("b", Policy::default())], day_tokens(100_000));
    (keys, Meter::new(recovery.ledger.clone(), Some(journal.writer(worker).unwrap())))
}

#[test]
fn what_was_used_survives_a_restart_and_a_reload_of_nothing_changes_it() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let (journal, recovery) = open(folder.path());
        assert_eq!((recovery.crashed, recovery.restored_lines, recovery.days_ahead), (0, 0, 0));
        assert_eq!(used(&recovery.ledger, AccountKind::Key, "a").in_day, amount(round * 100));
        let (keys, meter) = meter(&journal, &recovery, 0);
        for number in 0..10 {
            let request = format!("{round}-{number}");
            settle(reserve(&meter, &keys, "a", &request, 50).unwrap(), "a", &request, 10);
        }
        drop(journal);
        assert_reconciled(folder.path(), &recovery.ledger);
    }
    assert_eq!(usage_log(folder.path()).0.requests(), 30);
}

#[test]
fn requests_that_are_open_at_the_end_are_charged_in_full_with_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, recovery) = open(folder.path());
    let (keys, meter) = meter(&journal, &recovery, 0);
    settle(reserve(&meter, &keys, "a", "1", 50).unwrap(), "a", "1", 10);
    let open_ones = ["2", "3"].map(|request| reserve(&meter, &keys, "a", request, 70).unwrap());
    drop(journal);
    open_ones.into_iter().for_each(std::mem::forget);
    for round in 0..3 {
        let (journal, recovery) = open(folder.path());
        assert_eq!(recovery.crashed, if round == 0 { 2 } else { 0 });
        assert_eq!(used(&recovery.ledger, AccountKind::Key, "a").in_day, amount(150));
        assert_reconciled(folder.path(), &recovery.ledger);
        drop(journal);
    }
    let (_, text) = usage_log(folder.path());
    assert_eq!(text.lines().filter(|line| line.contains("\"crash\"")).count(), 2);
}

#[test]
fn snapshots_under_traffic_lose_and_double_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, recovery) = open(folder.path());
    let (keys, _) = meter(&journal, &recovery, 0);
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (keys, journal, ledger) = (&keys, &journal, recovery.ledger.clone());
            scope.spawn(move || {
                let meter = Meter::new(ledger, Some(journal.writer(worker).unwrap()));
                let mut open = Vec::new();
                for number in 0..400 {
                    let request = format!("{worker}-{number}");
                    let key = if number % 2 == 0 { "a" } else { "b" };
                    open.push((reserve(&meter, keys, key, &request, 2).unwrap(), key, request));
                    if open.len() > 5 {
                        let (reservation, key, request) = open.remove(0);
                        settle(reservation, key, &request, 1);
                    }
                }
                open.into_iter().for_each(|(reservation, key, request)| settle(reservation, key, &request, 1));
            });
        }
        for _ in 0..20 {
            assert!(journal.compact());
        }
    });
    journal.flush();
    assert_eq!(used(&recovery.ledger, AccountKind::Team, "team").in_day, amount(1_200));
    assert_reconciled(folder.path(), &recovery.ledger);
    assert!(journal.compact() && journal.health().live_bytes < 1_000);
    drop(journal);
    let (_journal, after) = open(folder.path());
    assert_eq!(used(&after.ledger, AccountKind::Team, "team").in_day, amount(1_200));
    assert!(!after.damage.is_unexpected());
}

#[test]
fn two_processes_cannot_have_one_journal() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let second = Journal::open(settings(folder.path()), NOON);
    assert!(matches!(second, Err(JournalError::Io(_))));
    drop(first);
    open(folder.path());
}

#[test]
fn a_lost_or_damaged_snapshot_is_no_unused_budget() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, recovery) = open(folder.path());
    let (keys, meter) = meter(&journal, &recovery, 0);
    settle(reserve(&meter, &keys, "a", "1", 50).unwrap(), "a", "1", 10);
    drop(journal);
    let snapshots = || {
        let entries = fs::read_dir(folder.path().join("journal")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "snapshot")).collect::<Vec<_>>()
    };
    let [snapshot] = &snapshots()[..] else { panic!("{:?}", snapshots()) };
    let bytes = fs::read(snapshot).unwrap();
    let mut changed = bytes.clone();
    changed[40] ^= 1;
    fs::write(snapshot, changed).unwrap();
    assert!(matches!(Journal::open(settings(folder.path()), NOON), Err(JournalError::NoSnapshot(_))));
    fs::write(snapshot, bytes).unwrap();
    let (_journal, recovery) = open(folder.path());
    assert_eq!(used(&recovery.ledger, AccountKind::Key, "a").in_day, amount(10));
}

#[test]
fn a_place_that_cannot_be_written_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let error = Journal::open(JournalSettings::new(folder.path().join("file")), NOON).unwrap_err();
    assert!(error.to_string().contains("cannot be opened"), "{error}");
}

#[test]
fn a_clock_that_is_behind_the_journal_is_reported_and_gives_no_budget() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, recovery) = open(folder.path());
    let (keys, first) = meter(&journal, &recovery, 0);
    settle(reserve(&first, &keys, "a", "1", 1_000).unwrap(), "a", "1", 1_000);
    drop(journal);
    let yesterday = NOON - 86_400;
    let (journal, recovery) = Journal::open(settings(folder.path()), yesterday).unwrap();
    assert_eq!(recovery.days_ahead, 1);
    let (keys, second) = meter(&journal, &recovery, 0);
    let clock = weir_spend::meter::Clock { now: weir_base::Time::from_nanos(1), unix_seconds: yesterday };
    assert!(second.reserve(Some(keys.get("a")), amount(1), clock, |_, _| ()).is_err());
    drop((journal, second));
    let trusting = JournalSettings { trusts_clock: true, ..settings(folder.path()) };
    let (_journal, recovery) = Journal::open(trusting, yesterday).unwrap();
    assert_eq!(recovery.days_ahead, 0);
    let totals = used(&recovery.ledger, AccountKind::Key, "a");
    assert_eq!(
        (totals.day.text().as_str(), totals.in_day),
        ("2026-11-25", amount(1_000)),
        "it moves, and is not forgotten"
    );
}
