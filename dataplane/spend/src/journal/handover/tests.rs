//! Processes of an upgrade as keepers without threads: a keeper that is dropped has died, since its files stay as they are and its locks
//! end.

use std::{
    fmt, fs, io,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use weir_base::{Rng, Time};

use super::super::{JournalSettings, keeper::Keeper, record::Charge};
use super::*;
use crate::{
    Amount, Denial, Exhausted,
    budget::{AccountId, AccountKind, Budgets, Day},
    keys::{KeyRing, KeySecret, KeySettings, NewKey},
    meter::{Clock, Meter, Reservation},
    policy::Policy,
    rate::Pace,
    usage::{Flags, LogSum, UsageRecord, UsageSettings, reconcile},
};

/// Called in front of each step on the disk.
#[derive(Clone, Default)]
pub(in super::super) struct Steps(Arc<Mutex<Option<Step>>>);

type Step = Box<dyn FnMut(&'static str) -> io::Result<()> + Send>;

impl Steps {
    pub(in super::super) fn call(&self, name: &'static str) -> io::Result<()> {
        self.0.lock().unwrap().as_mut().map_or(Ok(()), |step| step(name))
    }

    fn set(&self, step: impl FnMut(&'static str) -> io::Result<()> + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(step));
    }

    fn clear(&self) {
        *self.0.lock().unwrap() = None;
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps")
    }
}

/// 2026-11-26 12:00:00 UTC.
const NOON: u64 = 1_795_694_400;

const WORKERS: u16 = 2;

/// Tokens of a day.
const LIMIT: u64 = 10_000;

/// A request that has no end.
struct Open {
    reservation: Reservation,
    request: String,
    tokens: u64,
}

/// A gateway.
struct Process {
    number: usize,
    keeper: Keeper,
    meters: Vec<Meter>,
    ring: KeyRing,
    key: NewKey,
    open: Vec<Open>,
    requests: usize,
}

impl Process {
    fn start(folder: &Path, number: usize) -> Self {
        let usage = Some(UsageSettings::new(folder.join("usage.log")));
        let settings = JournalSettings { usage, ..JournalSettings::new(folder.join("journal")) };
        let (mut keeper, recovery) = Keeper::open(settings, NOON).unwrap();
        assert!(!recovery.damage.is_unexpected(), "{:?}", recovery.damage);
        let meter = |worker| Meter::new(recovery.ledger.clone(), Some(keeper.writer(worker).unwrap()));
        let meters = (0..WORKERS).map(meter).collect();
        let key = NewKey::generate().unwrap();
        let secret = KeySecret { hash: key.hash, shown: key.shown.as_str().into(), until: None };
        let budgets = Budgets { day_tokens: Some(LIMIT), ..Budgets::default() };
        let settings = KeySettings {
            name: "k".into(),
            secrets: vec![secret],
            is_enabled: true,
            expires: None,
            policy: Arc::new(Policy { budgets, ..Policy::default() }),
            team: None,
            organization: None,
        };
        let ring = KeyRing::new(&[settings], &[], &recovery.ledger).unwrap();
        Self { number, keeper, meters, ring, key, open: Vec::new(), requests: 0 }
    }

    fn reserve(&mut self, tokens: u64) -> Result<(), Denial> {
        let request = format!("p{}-{}", self.number, self.requests);
        self.requests += 1;
        let key = self.ring.find(self.key.text.expose(), NOON).unwrap();
        let clock = Clock { now: Time::from_nanos(1), unix_seconds: NOON };
        let meter = &self.meters[self.requests % self.meters.len()];
        let reservation = meter.reserve(Some(key), amount(tokens), clock, line(&request, tokens, true))?;
        self.open.push(Open { reservation, request, tokens });
        Ok(())
    }

    /// Settles one of the open requests.
    fn settle(&mut self, which: usize, used: u64) {
        let Open { reservation, request, .. } = self.open.swap_remove(which);
        reservation.settle(amount(used), Time::from_nanos(2), line(&request, used, false));
    }

    /// Tokens of requests that have no end.
    fn held(&self) -> u64 {
        self.open.iter().map(|open| open.tokens).sum()
    }

    fn used(&self) -> u64 {
        let position = self.meters[0].ledger().account(account()).position();
        position.settled.in_day.tokens + position.reserved_in_day.tokens
    }

    /// Dies: nothing is settled.
    fn kill(mut self) -> u64 {
        let held = self.held();
        self.open.drain(..).for_each(std::mem::forget);
        held
    }

    fn cede(&mut self) {
        assert_eq!(self.keeper.cede(), Ok(()));
    }

    fn end_lease(&mut self) {
        self.keeper.end_lease(Duration::ZERO);
        self.keeper.depart();
    }

    /// Reads what others have written. Twice, so that a lease ends.
    fn look(&mut self) {
        self.keeper.flush();
        self.keeper.flush();
    }
}

fn account() -> AccountId {
    AccountId::new(AccountKind::Key, "k")
}

fn amount(tokens: u64) -> Amount {
    Amount { tokens, money: tokens * 3 }
}

fn line(request: &str, tokens: u64, crash: bool) -> impl FnOnce(Day, &mut Vec<u8>) {
    let request = request.to_owned();
    move |day, into| {
        let flags = Flags { crash, ..Flags::default() };
        let charged = amount(tokens);
        UsageRecord { request: &request, day, key: Some("k"), charged, flags, ..UsageRecord::default() }.write(into);
    }
}

/// The files at this moment, as a process finds them that comes after all others have died.
fn copy(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("journal")).unwrap();
    for part in ["", "journal"] {
        for entry in fs::read_dir(folder.join(part)).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), copy.path().join(part).join(entry.file_name())).unwrap();
            }
        }
    }
    copy
}

/// Recovers: so much is charged, and the usage log has each request once.
fn check(folder: &Path, tokens: u64, at: &str) {
    let process = Process::start(folder, 999);
    assert_eq!(process.used(), tokens, "{at}");
    let mut log = LogSum::default();
    log.add(&fs::read_to_string(folder.join("usage.log")).unwrap());
    assert_eq!((log.unreadable, log.duplicates().collect::<Vec<_>>()), (0, Vec::<&str>::new()), "{at}");
    let ledger = process.meters[0].ledger();
    assert_eq!(reconcile(&log, |id| ledger.account(id).position().settled), [], "{at}");
}

/// A process with requests that have ended, and one that has not: the process, and what it has settled.
fn busy(folder: &Path) -> (Process, u64) {
    let mut process = Process::start(folder, 0);
    for _ in 0..6 {
        process.reserve(500).unwrap();
    }
    process.keeper.flush();
    (0..3).for_each(|_| process.settle(0, 100));
    (process, 300)
}

#[test]
fn after_a_kill_at_any_step_what_was_settled_counts_and_what_is_open_is_charged_in_full() {
    let folder = tempfile::tempdir().unwrap();
    let (mut old, mut settled) = busy(folder.path());
    let copies = Arc::new(Mutex::new(Vec::new()));
    let (taken, from) = (copies.clone(), folder.path().to_owned());
    old.keeper.files.steps.set(move |name| {
        taken.lock().unwrap().push((name, copy(&from)));
        Ok(())
    });
    let copies_expected = settled + old.held();
    old.cede();
    old.keeper.files.steps.clear();
    let copies = std::mem::take(&mut *copies.lock().unwrap());
    assert!(copies.len() >= 10, "{:?}", copies.iter().map(|(name, _)| name).collect::<Vec<_>>());
    for (name, copy) in copies {
        check(copy.path(), copies_expected, name);
    }
    check(copy(folder.path()).path(), copies_expected, "handed over");
    old.settle(0, 70);
    settled += 70;
    old.reserve(200).unwrap();
    check(copy(folder.path()).path(), settled + old.held(), "served on");
    let mut new = Process::start(folder.path(), 1);
    check(copy(folder.path()).path(), settled + old.held(), "taken over");
    old.settle(0, 30);
    settled += 30;
    new.look();
    assert_eq!(new.used(), settled + old.held());
    check(copy(folder.path()).path(), settled + old.held(), "settled behind that");
    settled += old.kill();
    new.look();
    assert!(new.keeper.departing.is_empty() && new.keeper.compact());
    assert_eq!(new.used(), settled);
    check(copy(folder.path()).path(), settled, "ended");
    let left: Vec<_> = fs::read_dir(folder.path().join("journal")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !format!("{name:?}").contains("departing")), "{left:?}");
}

#[test]
fn records_that_workers_write_at_any_step_are_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (mut old, settled) = busy(folder.path());
    let (writer, charged) = (old.keeper.writers[0].writer.clone(), Arc::new(Mutex::new(0)));
    let count = charged.clone();
    old.keeper.files.steps.set(move |_| {
        let mut count = count.lock().unwrap();
        let (mut text, day) = (Vec::new(), Day::of(NOON));
        line(&format!("c{count}"), 1, false)(day, &mut text);
        *count += 1;
        writer.charge(Charge::new(day, amount(1), [account()]), &text).unwrap();
        Ok(())
    });
    old.cede();
    old.keeper.files.steps.clear();
    let charged = *charged.lock().unwrap();
    assert!(charged >= 10, "{charged}");
    check(copy(folder.path()).path(), settled + old.held() + charged, "handed over");
    let mut new = Process::start(folder.path(), 1);
    new.look();
    assert_eq!(new.used(), settled + old.held() + charged);
    let held = old.kill();
    new.kill();
    check(folder.path(), settled + held + charged, "the end");
}

#[test]
fn a_step_that_the_disk_refuses_leaves_the_journal_where_it_is() {
    let mut refused = 0;
    for at in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let (mut old, settled) = busy(folder.path());
        let calls = Arc::new(Mutex::new(0));
        let count = calls.clone();
        old.keeper.files.steps.set(move |_| {
            let mut count = count.lock().unwrap();
            *count += 1;
            if *count == at + 1 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        });
        let ceded = old.keeper.cede();
        old.keeper.files.steps.clear();
        if *calls.lock().unwrap() <= at {
            assert_eq!(ceded, Ok(()), "no step is left");
            break;
        }
        if ceded.is_err() {
            refused += 1;
            // All of the budget is here.
            old.reserve(LIMIT - old.used()).unwrap();
            old.settle(0, 60);
        }
        let expected = settled + if ceded.is_err() { 60 } else { 0 } + old.held();
        check(copy(folder.path()).path(), expected, &format!("refused at {at}"));
        if ceded.is_err() {
            assert!(old.keeper.compact());
            check(copy(folder.path()).path(), expected, &format!("behind a refusal at {at}"));
            old.cede();
            check(copy(folder.path()).path(), expected, &format!("handed over behind a refusal at {at}"));
        }
        old.kill();
    }
    assert!(refused >= 6, "{refused}");
}

#[test]
fn both_processes_share_what_is_left_until_the_lease_ends() {
    let folder = tempfile::tempdir().unwrap();
    let leased = Err(Denial::Budget { exhausted: Exhausted::Lease });
    let spent = Err(Denial::Budget { exhausted: Exhausted::DayTokens });
    let mut old = Process::start(folder.path(), 0);
    old.reserve(2_000).unwrap();
    old.cede();
    assert_eq!(old.keeper.cede(), Err(HandoverError::Ceded));
    old.reserve(3_000).unwrap();
    let mut new = Process::start(folder.path(), 1);
    // Left are 5,000, of which the old one may have half: it had 4,000 and has used 3,000.
    assert_eq!(new.reserve(2_501), leased);
    new.reserve(2_500).unwrap();
    assert_eq!(new.reserve(1), leased);
    assert_eq!(new.reserve(2_501), spent);
    assert_eq!(new.keeper.cede(), Err(HandoverError::Lent));
    assert_eq!(old.reserve(1_001), leased);
    old.reserve(1_000).unwrap();
    // A settlement gives nothing back to a lease.
    old.settle(0, 0);
    assert_eq!(old.reserve(1), leased);
    old.end_lease();
    new.look();
    assert_eq!(new.used(), 6_500);
    new.reserve(3_500).unwrap();
    assert_eq!(new.reserve(1), spent);
    assert_eq!(old.reserve(0), leased);
    new.cede();
    let open = old.kill() + new.kill();
    check(folder.path(), open, "the end");
}

#[test]
fn the_new_process_goes_on_with_the_rates_of_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let (mut old, pace) = (Process::start(folder.path(), 0), Pace::per_minute(60).with_burst(3));
    let account = |process: &Process| process.meters[0].ledger().account(account());
    for _ in 0..3 {
        account(&old).requests.take_request(pace, Time::now()).unwrap();
    }
    account(&old).tokens.take_tokens(pace, 100, Time::now()).unwrap();
    old.cede();
    let new = Process::start(folder.path(), 1);
    assert!(account(&new).requests.look_request(pace, Time::now()).is_err());
    let wait = account(&new).tokens.look_tokens(pace, Time::now()).unwrap_err().next;
    assert!(wait > Duration::from_secs(90), "{wait:?}");
}

#[test]
fn a_process_that_does_not_serve_gives_the_journal_back() {
    for (grants, opens) in [(0, false), (0, true), (2, true)] {
        let folder = tempfile::tempdir().unwrap();
        let (mut old, mut settled) = busy(folder.path());
        old.cede();
        old.reserve(40).unwrap();
        if opens {
            let mut new = Process::start(folder.path(), 1);
            (0..grants).for_each(|_| new.reserve(25).unwrap());
            assert!(old.keeper.want_back().is_err(), "the other one has it");
            if grants > 0 {
                assert!(new.keeper.compact());
            }
            settled += new.kill();
        }
        old.settle(0, 5);
        settled += 5;
        old.keeper.want_back().unwrap();
        assert_eq!(old.used(), settled + old.held(), "{grants} {opens}");
        check(copy(folder.path()).path(), settled + old.held(), "back");
        // The first half of a snapshot: segments that end what the departing ones have begun.
        old.keeper.begin_generation(Kind::Owned).unwrap();
        old.keeper.state.is_due = true;
        old.settle(0, 6);
        settled += 6;
        old.reserve(LIMIT - old.used()).unwrap();
        check(copy(folder.path()).path(), settled + old.held(), "goes on");
        assert!(old.keeper.compact());
        old.settle(0, 7);
        settled += 7;
        check(copy(folder.path()).path(), settled + old.held(), "behind a snapshot");
        old.cede();
        settled += old.kill();
        check(folder.path(), settled, "the end");
    }
}

#[test]
fn a_settlement_behind_the_return_counts_although_the_other_process_had_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let (mut old, mut settled) = busy(folder.path());
    old.cede();
    // Each process numbers its reservations from 1 on.
    let mut new = Process::start(folder.path(), 1);
    (0..12).for_each(|_| new.reserve(4).unwrap());
    settled += new.kill();
    old.keeper.want_back().unwrap();
    old.settle(0, 5);
    old.reserve(40).unwrap();
    settled += 5;
    assert!(old.keeper.compact());
    check(copy(folder.path()).path(), settled + old.held(), "behind a snapshot");
}

/// A chain of processes.
struct Chain {
    folder: tempfile::TempDir,
    owner: Option<Process>,
    departing: Vec<Process>,
    /// Charged of requests that have ended, in whichever way.
    settled: u64,
    next: usize,
    rng: Rng,
}

impl Chain {
    fn start(&mut self) {
        self.next += 1;
        self.owner = Some(Process::start(self.folder.path(), self.next));
    }

    /// One of the processes.
    fn any(&mut self) -> Option<&mut Process> {
        let count = self.departing.len() + usize::from(self.owner.is_some());
        let index = self.rng.below(count.max(1) as u64) as usize;
        self.departing.iter_mut().chain(&mut self.owner).nth(index)
    }

    fn held(&self) -> u64 {
        self.departing.iter().chain(&self.owner).map(Process::held).sum()
    }

    fn step(&mut self) {
        let (choice, tokens) = (self.rng.below(20), 1 + self.rng.below(600));
        match choice {
            0..8 => {
                let Some(process) = self.any() else { return };
                let _ = process.reserve(tokens);
            }
            8..13 => {
                let Some(process) = self.any().filter(|process| !process.open.is_empty()) else { return };
                let used = tokens.min(process.open[0].tokens);
                process.settle(0, used);
                self.settled += used;
            }
            13 => self.owner.iter_mut().for_each(Process::look),
            14 => {
                let _ = self.owner.as_mut().map(|owner| owner.keeper.compact());
            }
            15 => self.departing.iter_mut().for_each(Process::end_lease),
            16 if !self.departing.is_empty() => {
                let at = self.rng.below(self.departing.len() as u64) as usize;
                self.settled += self.departing.swap_remove(at).kill();
            }
            17 => {
                self.settled += self.owner.take().map_or(0, Process::kill);
                self.start();
            }
            18..20 => self.upgrade(),
            _ => {}
        }
    }

    fn upgrade(&mut self) {
        let Some(mut old) = self.owner.take() else { return };
        old.look();
        if old.keeper.cede().is_err() {
            self.owner = Some(old);
            return;
        }
        match self.rng.below(4) {
            // The new one does not come, or dies before it serves.
            0 => self.take_back(old),
            1 => {
                self.start();
                let _ = self.owner.take().map(Process::kill);
                self.take_back(old);
            }
            // Both die.
            2 => {
                self.settled += old.kill();
                self.start();
            }
            _ => {
                self.start();
                self.departing.push(old);
            }
        }
    }

    fn take_back(&mut self, mut old: Process) {
        old.keeper.want_back().unwrap();
        self.owner = Some(old);
    }
}

#[test]
fn chains_of_processes_charge_each_request_once_and_never_exceed_a_budget() {
    for seed in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let mut chain = Chain { folder, owner: None, departing: Vec::new(), settled: 0, next: 0, rng: Rng::new(seed) };
        chain.start();
        for step in 0..80 {
            chain.step();
            assert!(chain.settled + chain.held() <= LIMIT, "seed {seed}, step {step}");
            if let Some(owner) = &mut chain.owner {
                owner.look();
                let all = chain.departing.iter().map(Process::held).sum::<u64>() + owner.held() + chain.settled;
                assert_eq!(owner.used(), all, "seed {seed}, step {step}");
            }
        }
        let killed = chain.departing.drain(..).chain(chain.owner.take()).map(Process::kill);
        let settled = chain.settled + killed.sum::<u64>();
        check(chain.folder.path(), settled, &format!("seed {seed}"));
    }
}
