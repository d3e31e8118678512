//! A14: processes that are killed at any moment.

use std::{
    collections::BTreeSet,
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use weir_base::Rng;
use weir_spend::{
    budget::AccountKind,
    journal::{Journal, JournalSettings},
    meter::Meter,
    policy::Policy,
};

use crate::{
    ledger::WorkerLedger,
    support::{Keys, NOON, assert_reconciled, day_tokens, reserve, settings, settle, usage_log, used},
};

/// The folder of a child process; without it this program is no child.
const CHILD: &str = "WEIR_SPEND_CHILD";

/// Rounds, unless `WEIR_SPEND_ROUNDS` says otherwise.
const ROUNDS: usize = 40;

/// Rounds in one folder.
const FOLDER_ROUNDS: usize = 20;

/// Workers of a child.
const WORKERS: u16 = 2;

/// Names of the keys, one for each worker, so that the last step of each is known.
const KEYS: [&str; WORKERS as usize] = ["k0", "k1"];

fn child_settings(folder: &Path) -> JournalSettings {
    // So small that snapshots and rotations of the usage log fall under the kills.
    JournalSettings { snapshot_bytes: 6 << 10, ..settings(folder) }
}

fn say(words: &str) {
    // One write: the parent sees whole lines or none.
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(format!("#{words}\n").as_bytes()).and_then(|()| stdout.flush()).expect("the parent reads");
}

/// The process that is killed: reserves and settles without end, and announces each step. Does nothing in a usual run.
#[test]
fn child_that_reserves_and_settles() {
    let Ok(folder) = env::var(CHILD) else { return };
    let (journal, recovery) = Journal::open(child_settings(Path::new(&folder)), NOON).unwrap();
    let policies = KEYS.map(|name| (name, day_tokens(u64::MAX)));
    let keys = Keys::new(&recovery.ledger, &policies, Policy::default());
    let seed = u64::from(std::process::id());
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let meter = Meter::new(recovery.ledger.clone(), Some(journal.writer(worker).unwrap()));
            let keys = &keys;
            scope.spawn(move || work(worker, &meter, keys, &mut Rng::new(seed << 8 | u64::from(worker))));
        }
    });
}

fn work(worker: u16, meter: &Meter, keys: &Keys, rng: &mut Rng) {
    let (key, process) = (KEYS[usize::from(worker)], std::process::id());
    let mut open = std::collections::VecDeque::new();
    for number in 0.. {
        let request = format!("{process}-{worker}-{number}-{}", rng.next_u64());
        let tokens = 1 + rng.below(1_000);
        say(&format!("{worker} reserve {tokens}"));
        open.push_back((reserve(meter, keys, key, &request, tokens).unwrap(), request, tokens));
        say(&format!("{worker} done"));
        while open.len() as u64 > rng.below(5) {
            let (reservation, request, reserved) = open.pop_front().unwrap();
            // Sometimes more than was reserved.
            let tokens = rng.below(reserved + reserved / 8 + 1);
            say(&format!("{worker} settle {tokens}"));
            settle(reservation, key, &request, tokens);
            say(&format!("{worker} done"));
        }
    }
}

fn spawn(folder: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "crash::child_that_reserves_and_settles"])
        .env(CHILD, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// When a child is killed.
enum Moment {
    /// So long after its start: perhaps while it recovers.
    After(Duration),
    /// So long after so many lines.
    Lines(u64, Duration),
}

/// Kills a child: the steps of its workers until then.
fn kill(folder: &Path, moment: &Moment) -> [WorkerLedger; WORKERS as usize] {
    let mut child = spawn(folder);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).split(b'\n');
    let mut ledgers = [WorkerLedger::default(), WorkerLedger::default()];
    let mut read = |line: std::io::Result<Vec<u8>>| {
        let line = String::from_utf8(line.unwrap()).unwrap();
        let Some(words) = line.strip_prefix('#') else { return false };
        let words: Vec<&str> = words.split(' ').collect();
        ledgers[words[0].parse::<usize>().unwrap()].read(&words[1..]);
        true
    };
    let delay = match moment {
        Moment::After(delay) => *delay,
        Moment::Lines(count, delay) => {
            let mut seen = 0;
            while seen < *count {
                seen += u64::from(read(lines.next().expect("the child does not end by itself")));
            }
            *delay
        }
    };
    thread::sleep(delay);
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines {
        read(line);
    }
    ledgers
}

fn sums(before: &BTreeSet<u64>, more: &BTreeSet<u64>) -> BTreeSet<u64> {
    before.iter().flat_map(|one| more.iter().map(move |other| one + other)).collect()
}

#[test]
fn a14_after_each_kill_budgets_and_usage_log_are_what_the_pipe_says() {
    let rounds = env::var("WEIR_SPEND_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut tally = Tally::default();
    // A folder for some rounds: the whole usage log is read after each.
    for begin in (0..rounds).step_by(FOLDER_ROUNDS) {
        let folder = tempfile::tempdir().unwrap();
        let mut expected = KEYS.map(|_| BTreeSet::from([0]));
        for round in begin..(begin + FOLDER_ROUNDS).min(rounds) {
            kills(folder.path(), &mut Rng::new(round as u64), &mut expected, &mut tally);
            check(folder.path(), &mut expected, &mut tally, round);
        }
        tally.requests += usage_log(folder.path()).0.requests();
    }
    println!("{rounds} rounds: {tally:?}");
    assert!(tally.requests > rounds * 20 && tally.crashed > rounds && tally.open > rounds, "{tally:?}");
}

/// The coverage of the rounds.
#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    /// Reservations that were certainly open at a kill.
    open: usize,
    /// Requests in the usage log.
    requests: usize,
    /// Reservations that the parent found open: those that a child found are not in it.
    crashed: usize,
    /// Usage records that only the journal had.
    restored: usize,
}

/// Kills one to four children, one after another, each of which recovers what the one before has left.
fn kills(folder: &Path, rng: &mut Rng, expected: &mut [BTreeSet<u64>; 2], tally: &mut Tally) {
    for _ in 0..=rng.below(4) {
        let moment = match rng.below(3) {
            0 => Moment::After(Duration::from_micros(rng.below(20_000))),
            _ => Moment::Lines(rng.below(300), Duration::from_micros(rng.below(1_000))),
        };
        let ledgers = kill(folder, &moment);
        tally.kills += 1;
        for (expected, ledger) in expected.iter_mut().zip(&ledgers) {
            *expected = sums(expected, &ledger.charges());
            tally.open += ledger.open();
        }
    }
}

/// Recovers, and compares budgets and usage log with what was expected.
fn check(folder: &Path, expected: &mut [BTreeSet<u64>; 2], tally: &mut Tally, round: usize) {
    let (journal, recovery) = Journal::open(child_settings(folder), NOON).unwrap();
    tally.crashed += recovery.crashed;
    tally.restored += recovery.restored_lines;
    assert!(!recovery.damage.is_unexpected(), "round {round}: {:?}", recovery.damage);
    for (name, expected) in KEYS.iter().zip(&mut *expected) {
        let found = used(&recovery.ledger, AccountKind::Key, name).in_day.tokens;
        assert!(expected.contains(&found), "round {round}: {name} {found}, not in {expected:?}");
        *expected = BTreeSet::from([found]);
    }
    let team = used(&recovery.ledger, AccountKind::Team, "team").in_day.tokens;
    assert_eq!(team, expected.iter().flatten().sum::<u64>(), "round {round}");
    assert_reconciled(folder, &recovery.ledger);
    drop(journal);
}
