//! The ledger against a world of connections and clients that chance moves.

use std::collections::BTreeMap;

use weir_base::rng::Rng;

use super::*;

type Key = (u8, u8);
type Waiter = u64;

const WORKERS: u64 = 3;
const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];

fn names(key: &Key) -> [&[u8]; 2] {
    [NAMES[usize::from(key.0)], NAMES[usize::from(key.1)]]
}

/// A pause, or a pool that has become smaller, is no reason to hurry: no client waits.
#[test]
fn signals_tell_those_that_wait_from_other_reasons_for_a_look() {
    let mut account = Account::<Waiter>::new(true);
    account.open = 5;
    account.publish(3);
    let signals = account.signals.clone();
    assert!(signals.needs_look() && signals.is_full() && !signals.is_awaited());
    account.join(Queued { number: 1, since: Time::ZERO, worker: 0, waiter: 1, has_launch: false });
    account.publish(3);
    assert!(signals.is_awaited());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Login(Option<u64>),
    Idle,
    Lent,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    key: Key,
    worker: usize,
    stage: Stage,
    generation: u32,
}

struct World {
    ledger: Ledger<Key, Waiter>,
    settings: PooledSettings,
    rng: Rng,
    now: Time,
    connections: Vec<Connection>,
    /// Those that wait: key, worker, since; by number.
    waiting: BTreeMap<u64, (Key, usize, Time)>,
    /// The ledger's number of a waiter, by its own.
    tickets: BTreeMap<Waiter, u64>,
    next: Waiter,
    signals: HashMap<Key, Arc<Signals>>,
    /// The ends of pauses after failed logins.
    retries: Vec<Time>,
    served: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut some = |most: u64| (rng.below(2) == 0).then(|| 1 + rng.below(most) as u32);
        let (max_db_connections, max_user_connections) = (some(4), some(4));
        let settings = PooledSettings {
            pool_size: 1 + rng.below(3) as u32,
            min_pool_size: rng.below(2) as u32,
            reserve_pool_size: rng.below(3) as u32,
            reserve_pool_timeout: Duration::from_millis(30),
            max_db_connections,
            max_user_connections,
            ..PooledSettings::default()
        };
        let mut ledger = Ledger::new(names as Names<Key>);
        ledger.set_limits(&settings);
        Self {
            ledger,
            settings,
            rng,
            now: Time::from_nanos(1_000_000_000),
            connections: Vec::new(),
            waiting: BTreeMap::new(),
            tickets: BTreeMap::new(),
            next: 0,
            signals: HashMap::new(),
            retries: Vec::new(),
            served: 0,
        }
    }

    fn key(&mut self) -> Key {
        (self.rng.below(2) as u8, self.rng.below(2) as u8)
    }

    fn signals(&mut self, key: Key) -> Arc<Signals> {
        let ledger = &mut self.ledger;
        self.signals.entry(key).or_insert_with(|| ledger.signals(&key)).clone()
    }

    fn launched(&mut self, launched: Vec<Launch<Waiter>>) {
        for (number, waiter) in launched {
            assert_eq!(self.tickets.get(&waiter), Some(&number), "it waits");
            let (key, worker, _) = self.waiting[&number];
            let generation = self.signals(key).generation();
            self.connections.push(Connection { key, worker, stage: Stage::Login(Some(number)), generation });
        }
    }

    fn served(&mut self, number: u64) {
        self.waiting.remove(&number).expect("it waits");
        self.tickets.retain(|_, of| *of != number);
        self.served += 1;
    }

    /// A client comes, as `Pool::acquire`.
    fn arrive(&mut self) {
        let (key, worker) = (self.key(), self.rng.below(WORKERS) as usize);
        let at = |one: &Connection| one.key == key && one.worker == worker && one.stage == Stage::Idle;
        if let Some(at) = self.connections.iter().position(at) {
            self.connections[at].stage = Stage::Lent;
            return;
        }
        self.signals(key);
        let waiter = self.next;
        self.next += 1;
        let number = self.ledger.join(&key, self.now, worker, waiter);
        self.waiting.insert(number, (key, worker, self.now));
        self.tickets.insert(waiter, number);
        let launched = self.ledger.launch(&key, self.now);
        self.launched(launched);
    }

    /// One that waits gives up.
    fn leave(&mut self) {
        let Some(&number) = self.waiting.keys().nth(self.rng.below(4) as usize) else { return };
        let (key, ..) = self.waiting.remove(&number).expect("one of them");
        self.tickets.retain(|_, of| *of != number);
        self.ledger.leave(&key, number);
        let launched = self.ledger.launch(&key, self.now);
        self.launched(launched);
    }

    /// The connection is free on its worker.
    fn place(&mut self, at: usize, can_move: bool) {
        let Connection { key, worker, generation, .. } = self.connections[at];
        let signals = self.signals(key);
        let needs_look = signals.needs_look()
            || signals.generation() != generation
            || (self.settings.has_shared_limits() && self.ledger.waiting().load(Ordering::Relaxed) > 0);
        if !needs_look {
            self.connections[at].stage = Stage::Idle;
            assert!(self.waiting.values().all(|(of, ..)| *of != key), "nobody waits for it");
            return;
        }
        let offer = self.ledger.offer(&key, worker, generation, can_move, self.now);
        let rivals = self.ledger.launch_rivals(self.now);
        match offer {
            Offer::Keep => self.connections[at].stage = Stage::Idle,
            Offer::Close => self.close(at),
            Offer::Give(queued) => {
                let (of, to, since) = self.waiting[&queued.number];
                assert!(of == key && to == queued.worker && !signals.is_paused() && signals.generation() == generation);
                assert!(to == worker || can_move);
                let oldest = self.waiting.values().filter(|(of, ..)| *of == key).map(|(.., since)| *since).min();
                let tolerance = if to != worker {
                    Duration::ZERO
                } else if can_move {
                    LEND_AFTER
                } else {
                    MOVE_AFTER
                };
                assert!(since.since(oldest.expect("one")) <= tolerance, "the oldest is next");
                self.served(queued.number);
                self.connections[at].worker = to;
                self.connections[at].stage = Stage::Lent;
            }
            Offer::Replace((number, waiter)) => {
                assert!(!can_move && self.tickets[&waiter] == number);
                let (_, to, _) = self.waiting[&number];
                let generation = signals.generation();
                self.connections[at] = Connection { key, worker: to, stage: Stage::Login(Some(number)), generation };
            }
        }
        self.launched(rivals);
    }

    fn close(&mut self, at: usize) {
        let Connection { key, stage, .. } = self.connections.swap_remove(at);
        let launched = match stage {
            Stage::Login(cause) => {
                self.ledger.login_dropped(&key, cause);
                self.ledger.launch_all(self.now)
            }
            Stage::Idle | Stage::Lent => {
                self.ledger.closed(&key);
                self.ledger.launch(&key, self.now)
            }
        };
        self.launched(launched);
    }

    fn some_of(&mut self, is: impl Fn(Stage) -> bool) -> Option<usize> {
        let all: Vec<_> = (0..self.connections.len()).filter(|&at| is(self.connections[at].stage)).collect();
        (!all.is_empty()).then(|| all[self.rng.below(all.len() as u64) as usize])
    }

    fn login_ends(&mut self, at: usize, failure: Option<Failure>) {
        let Connection { key, stage: Stage::Login(cause), .. } = self.connections[at] else { return };
        let Some(failure) = failure else {
            self.ledger.logged_in(&key, cause);
            self.connections[at].stage = Stage::Lent;
            let launched = self.ledger.launch_all(self.now);
            self.launched(launched);
            return self.place(at, true);
        };
        self.connections.swap_remove(at);
        let leaves = self.rng.below(2) == 0;
        let mut retry_at = self.now;
        let pause = |failures: u32| {
            let pause = Duration::from_millis(5 << failures.min(4));
            retry_at = retry_at.saturating_add(pause);
            pause
        };
        let refused = self.ledger.login_failed(&key, cause, failure, leaves, self.now, pause);
        self.retries.push(retry_at);
        let stands = self.connections.iter().any(|one| one.key == key && !matches!(one.stage, Stage::Login(_)));
        assert!(refused.is_empty() || failure == Failure::Broken || !stands, "one of the key may come back");
        refused.iter().for_each(|queued| self.served(queued.number));
        let launched = self.ledger.launch_all(self.now);
        self.launched(launched);
    }

    /// The workers have heard their bells.
    fn attend(&mut self) {
        for _ in 0..self.connections.len() {
            let Some(at) = self.some_of(|stage| stage == Stage::Idle) else { return };
            let can_move = self.rng.below(4) > 0;
            self.place(at, can_move);
        }
    }

    /// Timers come to their end: those of waiters, for the reserve, and those of failed logins.
    fn pass_time(&mut self, millis: u64) {
        let before = self.now;
        self.now = self.now.saturating_add(Duration::from_millis(millis));
        let now = self.now;
        let keys: HashSet<Key> = self.waiting.values().map(|(key, ..)| *key).collect();
        for key in keys {
            if self.ledger.reserve_at(&key, before).is_some_and(|at| at <= now) {
                let launched = self.ledger.launch(&key, now);
                self.launched(launched);
            }
        }
        let is_due = self.retries.iter().any(|at| *at <= now);
        self.retries.retain(|at| *at > now);
        if is_due {
            let launched = self.ledger.launch_all(now);
            self.launched(launched);
        }
    }

    fn scope(&mut self) -> Scope<Key> {
        match self.rng.below(3) {
            0 => Scope::All,
            1 => Scope::Database(NAMES[self.rng.below(2) as usize].into()),
            _ => Scope::Key(self.key()),
        }
    }

    fn step(&mut self) {
        match self.rng.below(16) {
            0..=4 => self.arrive(),
            5 => self.leave(),
            6 | 7 => {
                if let Some(at) = self.some_of(|stage| matches!(stage, Stage::Login(_))) {
                    let failure = match self.rng.below(8) {
                        0 => Some(Failure::Refused),
                        1 => Some(Failure::Broken),
                        2 => Some(Failure::Busy),
                        _ => None,
                    };
                    self.login_ends(at, failure);
                }
            }
            8..=10 => {
                if let Some(at) = self.some_of(|stage| stage == Stage::Lent) {
                    let can_move = self.rng.below(4) > 0;
                    self.place(at, can_move);
                }
            }
            11 => {
                let is_any = |_| true;
                if let Some(at) = self.some_of(is_any) {
                    self.close(at);
                }
            }
            12 => self.attend(),
            13 => {
                let millis = self.rng.below(40);
                self.pass_time(millis);
            }
            14 => {
                let (scope, is_paused) = (self.scope(), self.rng.below(3) == 0);
                self.ledger.set_paused(&scope, is_paused);
                let launched = self.ledger.launch_all(self.now);
                self.launched(launched);
            }
            _ => {
                let scope = self.scope();
                self.ledger.reconnect(&scope);
            }
        }
        self.check();
    }

    fn check(&mut self) {
        let settings = self.settings.clone();
        let count = |is: &dyn Fn(&Connection) -> bool| self.connections.iter().filter(|one| is(one)).count() as u32;
        for key in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let open = count(&|one| one.key == key);
            assert_eq!(self.ledger.open_in(&Scope::Key(key)), open, "permits are connections");
            assert!(open <= settings.pool_size + settings.reserve_pool_size);
        }
        for name in 0..2 {
            let of_db = count(&|one| one.key.0 == name);
            let of_user = count(&|one| one.key.1 == name);
            assert!(settings.max_db_connections.is_none_or(|most| of_db <= most));
            assert!(settings.max_user_connections.is_none_or(|most| of_user <= most));
        }
        assert_eq!(self.ledger.waiting().load(Ordering::Relaxed) as usize, self.waiting.len());
        let tallies = self.ledger.tallies(self.now);
        let logins: u32 = tallies.iter().map(|(_, tally)| tally.logins).sum();
        assert_eq!(logins, count(&|one| matches!(one.stage, Stage::Login(_))));
        assert_eq!(logins, self.ledger.logins);
    }

    /// From now on nothing fails, and every client gives its connection back: each one that waits gets one.
    fn settle(&mut self) {
        self.ledger.set_paused(&Scope::All, false);
        let launched = self.ledger.launch_all(self.now);
        self.launched(launched);
        for _ in 0..400 {
            if self.waiting.is_empty() {
                break;
            }
            self.attend();
            for round in 0.. {
                let Some(at) = self.some_of(|stage| matches!(stage, Stage::Login(_))) else { break };
                assert!(round < 1_000, "logins without end: {:?} for {:?}", self.connections, self.waiting);
                self.login_ends(at, None);
            }
            if let Some(at) = self.some_of(|stage| stage == Stage::Lent) {
                self.place(at, true);
            }
            self.pass_time(20);
            self.check();
        }
        assert!(self.waiting.is_empty(), "starved: {:?} of {:?}", self.waiting, self.connections);
        while !self.connections.is_empty() {
            self.close(0);
        }
        assert_eq!(self.ledger.open_in(&Scope::All), 0);
        self.signals.clear();
        self.ledger.prune();
        assert!(self.ledger.accounts.is_empty() && self.ledger.shared.iter().all(HashMap::is_empty));
    }
}

#[test]
fn limits_hold_the_oldest_is_next_and_nobody_starves_whatever_happens() {
    let mut served = 0;
    for seed in 0..2_000 {
        let mut world = World::new(seed);
        (0..200).for_each(|_| world.step());
        world.settle();
        served += world.served;
    }
    assert!(served > 10_000, "the world is alive: {served}");
}

fn ledger(settings: &PooledSettings) -> Ledger<Key, Waiter> {
    let mut ledger = Ledger::new(names as Names<Key>);
    ledger.set_limits(settings);
    ledger
}

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

#[test]
fn the_first_login_of_a_key_decides_whether_others_follow() {
    let (mut ledger, key) = (ledger(&PooledSettings::default()), (0, 0));
    for waiter in 0..4 {
        ledger.join(&key, at(waiter), 0, waiter);
    }
    assert_eq!(ledger.launch(&key, at(9)), [(0, 0)]);
    ledger.logged_in(&key, Some(0));
    assert_eq!(ledger.launch_all(at(9)).len(), 4, "one for each that waits");
}

#[test]
fn a_refused_login_is_tried_again_after_a_pause_and_says_nothing_about_another_key() {
    let (mut ledger, pause) = (ledger(&PooledSettings::default()), Duration::from_millis(100));
    let (refused, other) = ((0, 0), (0, 1));
    ledger.join(&refused, at(0), 0, 0);
    ledger.launch(&refused, at(0));
    let over = ledger.login_failed(&refused, Some(0), Failure::Refused, false, at(10), |_| pause);
    assert_eq!(over.iter().map(|queued| queued.number).collect::<Vec<_>>(), [0]);
    ledger.join(&refused, at(11), 0, 1);
    ledger.join(&other, at(12), 0, 2);
    assert!(ledger.launch(&refused, at(109)).is_empty());
    assert_eq!((ledger.launch(&other, at(12)).len(), ledger.launch(&refused, at(110)).len()), (1, 1));
}

#[test]
fn after_an_outage_one_attempt_of_all_keys_decides() {
    let (mut ledger, pause) = (ledger(&PooledSettings::default()), Duration::from_millis(100));
    let keys = [(0, 0), (0, 1), (1, 0)];
    for (millis, key) in (0..).zip(keys) {
        ledger.join(&key, at(millis), 0, millis);
    }
    assert_eq!(ledger.launch_all(at(9)).len(), 3);
    for (cause, key) in (0..).zip(keys) {
        let over = ledger.login_failed(&key, Some(cause), Failure::Broken, false, at(10), |_| pause);
        assert!(over.is_empty(), "they wait for the server");
    }
    assert!(ledger.launch_all(at(109)).is_empty());
    assert_eq!(ledger.launch_all(at(110)), [(0, 0)], "that of the oldest");
    ledger.logged_in(&keys[0], Some(0));
    assert_eq!(ledger.launch_all(at(111)).len(), 3);
}

#[test]
fn a_key_that_shares_a_limit_is_not_kept_out_by_another_one() {
    let settings = PooledSettings { max_db_connections: Some(1), ..PooledSettings::default() };
    let (mut ledger, [busy, rival, elsewhere]) = (ledger(&settings), [(0, 0), (0, 1), (1, 0)]);
    ledger.join(&busy, at(0), 0, 0);
    ledger.launch(&busy, at(0));
    ledger.logged_in(&busy, Some(0));
    assert!(matches!(ledger.offer(&busy, 0, 0, true, at(1)), Offer::Give(_)));
    ledger.join(&rival, at(10), 0, 1);
    ledger.join(&busy, at(20), 0, 2);
    ledger.join(&elsewhere, at(0), 0, 3);
    assert!(ledger.launch(&rival, at(20)).iter().all(|(_, waiter)| *waiter == 3), "the database is full");
    assert!(
        matches!(ledger.offer(&busy, 0, 0, true, at(21)), Offer::Give(_)),
        "the other has not waited so much longer"
    );
    ledger.join(&busy, at(61), 0, 4);
    assert!(matches!(ledger.offer(&busy, 0, 0, true, at(62)), Offer::Close), "now it has");
    ledger.closed(&busy);
    assert_eq!(ledger.launch(&busy, at(61)).into_iter().map(|(_, waiter)| waiter).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_higher_limit_lets_more_in_and_a_lower_one_closes_what_comes_back() {
    let (mut ledger, key) = (ledger(&PooledSettings { pool_size: 1, ..PooledSettings::default() }), (0, 0));
    ledger.join(&key, at(0), 0, 0);
    ledger.launch(&key, at(0));
    ledger.logged_in(&key, Some(0));
    ledger.join(&key, at(1), 0, 1);
    ledger.join(&key, at(2), 0, 2);
    assert!(matches!(ledger.offer(&key, 0, 0, true, at(3)), Offer::Give(queued) if queued.number == 0));
    assert!(ledger.launch(&key, at(3)).is_empty(), "one is all");
    ledger.set_limits(&PooledSettings { pool_size: 2, ..PooledSettings::default() });
    assert_eq!(ledger.launch_all(at(4)), [(1, 1)]);
    ledger.logged_in(&key, Some(1));
    assert!(matches!(ledger.offer(&key, 0, 0, true, at(4)), Offer::Give(queued) if queued.number == 1));
    let signals = ledger.signals(&key);
    ledger.leave(&key, 2);
    assert!(!signals.needs_look(), "connections that come back stay");
    ledger.set_limits(&PooledSettings { pool_size: 1, ..PooledSettings::default() });
    assert!(signals.needs_look() && matches!(ledger.offer(&key, 0, 0, true, at(5)), Offer::Close));
    ledger.closed(&key);
    assert!(!signals.needs_look());
}
