//! A disk that takes no more: a limit on the size of files, which cuts writes off in the middle as a full disk does.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, setrlimit};
use weir_spend::{
    Denial,
    budget::AccountKind,
    journal::{Journal, JournalSettings, Trouble},
    meter::Meter,
    policy::Policy,
};

use crate::support::{Keys, NOON, assert_reconciled, day_tokens, reserve, settings, settle, usage_log, used};

/// The folder of a child process with the limit.
const CHILD: &str = "WEIR_SPEND_FULL_DISK";

/// The limit ends, as when a disk is cleaned up.
const HEALS: &str = "WEIR_SPEND_DISK_HEALS";

/// Requests of the child.
const REQUESTS: usize = 100;

fn keys(ledger: &weir_spend::budget::Ledger) -> Keys {
    Keys::new(ledger, &[("budgeted", day_tokens(1_000_000)), ("free", Policy::default())], Policy::default())
}

/// The process on a full disk. Does nothing in a usual run.
#[test]
fn child_on_a_full_disk() {
    let Ok(folder) = env::var(CHILD) else { return };
    let (journal, recovery) = Journal::open(settings(Path::new(&folder)), NOON).unwrap();
    let (keys, writer) = (keys(&recovery.ledger), journal.writer(0).unwrap());
    let meter = Meter::new(recovery.ledger.clone(), Some(writer.clone()));
    let (mut admitted, mut refused, mut open) = (0u64, 0u64, Vec::new());
    for number in 0..REQUESTS {
        let request = format!("b{number}");
        match reserve(&meter, &keys, "budgeted", &request, 10) {
            Ok(reservation) => {
                assert!(reservation.is_journaled() && refused == 0, "a full disk stays full");
                open.push((reservation, request));
                admitted += 1;
            }
            Err(denial) => {
                assert_eq!((denial, denial.reason()), (Denial::Journal, "journal_unwritable"));
                refused += 1;
            }
        }
    }
    assert!(admitted > 5 && refused > 5, "{admitted} admitted, {refused} refused");
    assert_eq!(journal.health().trouble, Some(Trouble::Unwritable));
    assert!(journal.health().failed_writes >= refused);
    assert_eq!(used(&recovery.ledger, AccountKind::Key, "budgeted").in_day.tokens, 0);
    // Keys without a budget go on, and settlements wait.
    let free = reserve(&meter, &keys, "free", "f", 10).unwrap();
    assert!(!free.is_journaled());
    settle(free, "free", "f", 4);
    for (reservation, request) in open {
        settle(reservation, "budgeted", &request, 3);
    }
    assert!(writer.pending_bytes() > 0);
    assert_eq!(used(&recovery.ledger, AccountKind::Key, "budgeted").in_day.tokens, admitted * 3);
    if env::var(HEALS).is_ok() {
        setrlimit(Resource::Fsize, Rlimit { current: None, maximum: None }).unwrap();
        settle(reserve(&meter, &keys, "budgeted", "late", 10).unwrap(), "budgeted", "late", 3);
        assert!(journal.health().trouble.is_none() && writer.pending_bytes() == 0);
        journal.flush();
    }
    // As abrupt as a kill: nothing is closed.
    std::process::exit(0);
}

/// Runs the child with at most `blocks` of 512 bytes per file.
fn run(folder: &Path, blocks: u32, heals: bool) {
    let mut command = Command::new("sh");
    // The signal would end the process; ignored, the write fails as on a full disk.
    command.args(["-c", &format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$0\" \"$@\"")]);
    command.arg(env::current_exe().unwrap()).args(["--exact", "disk::child_on_a_full_disk", "--nocapture"]);
    if heals {
        command.env(HEALS, "1");
    }
    let output = command.env(CHILD, folder).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

#[test]
fn a_full_disk_closes_keys_with_a_budget_and_no_others_and_forgets_nothing() {
    // Limits at which the write that fails is cut at many different bytes.
    for blocks in [16, 17, 19, 22, 26] {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), blocks, false);
        let (journal, recovery) = Journal::open(settings(folder.path()), NOON).unwrap();
        let budgeted = used(&recovery.ledger, AccountKind::Key, "budgeted").in_day.tokens;
        // A settlement in memory alone is lost: the reservation is charged in full.
        assert!(recovery.crashed > 5);
        assert_eq!(budgeted, recovery.crashed as u64 * 10);
        assert!(!recovery.damage.is_unexpected(), "{:?}", recovery.damage);
        assert_reconciled(folder.path(), &recovery.ledger);
        drop(journal);
    }
}

#[test]
fn a_disk_with_room_again_takes_the_settlements_that_wait() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), 20, true);
    let (journal, recovery) = Journal::open(settings(folder.path()), NOON).unwrap();
    assert_eq!(recovery.crashed, 0);
    assert!(!recovery.damage.is_unexpected(), "a record that was cut off is gone: {:?}", recovery.damage);
    let (log, text) = usage_log(folder.path());
    assert_eq!(used(&recovery.ledger, AccountKind::Key, "free").in_day.tokens, 4);
    assert_eq!(used(&recovery.ledger, AccountKind::Key, "budgeted").in_day.tokens, (log.requests() as u64 - 1) * 3);
    assert!(text.contains("\"late\"") && !text.contains("\"crash\""));
    assert_reconciled(folder.path(), &recovery.ledger);
    drop(journal);
}

#[test]
fn a_usage_log_that_refuses_closes_no_key_and_loses_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("usage.log");
    std::os::unix::fs::symlink("/dev/full", &log).unwrap();
    let (journal, recovery) = Journal::open(settings(folder.path()), NOON).unwrap();
    let keys = keys(&recovery.ledger);
    let meter = Meter::new(recovery.ledger.clone(), Some(journal.writer(0).unwrap()));
    let request = |number: u32| {
        let name = number.to_string();
        settle(reserve(&meter, &keys, "budgeted", &name, 10).unwrap(), "budgeted", &name, 3);
    };
    (0..20).for_each(request);
    journal.flush();
    assert!(!journal.compact(), "a snapshot would lose the lines");
    (20..40).for_each(request);
    let health = journal.health();
    assert!(health.is_usage_failing && health.trouble.is_none());
    std::fs::remove_file(&log).unwrap();
    std::fs::write(&log, "").unwrap();
    // The file is looked at once a second, and the snapshot is tried again as often.
    let begin = Instant::now();
    while journal.health().is_usage_failing || usage_log(folder.path()).0.requests() < 40 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", journal.health());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(journal.compact());
    assert_reconciled(folder.path(), &recovery.ledger);
    assert_eq!(usage_log(folder.path()).0.requests(), 40);
}

#[test]
fn segments_have_a_bound_when_no_snapshot_can_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let bounded = JournalSettings { live_bytes_max: 5_000, ..settings(folder.path()) };
    let (journal, recovery) = Journal::open(bounded, NOON).unwrap();
    let keys = keys(&recovery.ledger);
    let meter = Meter::new(recovery.ledger.clone(), Some(journal.writer(0).unwrap()));
    let mut open = Vec::new();
    let denial = loop {
        match reserve(&meter, &keys, "budgeted", &open.len().to_string(), 1) {
            Ok(reservation) => open.push(reservation),
            Err(denial) => break denial,
        }
    };
    assert_eq!((denial, journal.health().trouble), (Denial::Journal, Some(Trouble::Full)));
    assert!((5..50).contains(&open.len()));
    assert!(journal.compact(), "a snapshot makes room");
    settle(reserve(&meter, &keys, "budgeted", "x", 1).unwrap(), "budgeted", "x", 1);
}
