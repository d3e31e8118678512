//! Gateways with one budget, in front of the model of a store: by chance they crash, lose requests and replies, are cut off and die, and the
//! store loses its data. They never spend more than the budget and its stated bound, and leave nothing of it stranded.
//!
//! `WEIR_SHARED_SEEDS=20000` is a long run.

use std::{sync::Arc, time::Duration};

use weir_base::{Rng, Time};
use weir_spend::{
    Amount, Exhausted,
    budget::{Account, AccountId, AccountKind, Budgets, Day, Grant, Ledger, Level, Measure, Totals},
    shared::{
        CONTACT_MAX, ClaimRequest, ClaimSettings, Claimant, GRACE, Item, LOOK_INTERVAL, OnStoreFailure,
        model::{Caller, Reply, Store},
    },
};

mod alone;

const TTL: Duration = Duration::from_secs(60);
const DAY: u32 = 20_484;
/// Noon of that day.
const NOON: u64 = DAY as u64 * 86_400 + 43_200;
/// Pause between two turns of a gateway.
const TURN_MS: u64 = 100;
/// How long a gateway without requests is so.
const QUIET_MS: u64 = 8_000;

/// Faults that a run has.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Requests and replies are lost, gateways crash and restart.
    losses: bool,
    /// The store restarts with older data, or with none, while all gateways are there.
    data: bool,
    /// Gateways are cut off for long, and die.
    ends: bool,
    /// Settlements exceed their reservations.
    excess: bool,
    /// Gateways end as they should, and start again.
    stops: bool,
    /// The budget is lowered and raised.
    limits: bool,
}

struct Gateway {
    name: String,
    ledger: Ledger,
    account: Arc<Account>,
    claimant: Claimant,
    on_failure: OnStoreFailure,
    session: Option<String>,
    sessions: u64,
    epoch: String,
    revision: u64,
    open: Vec<Grant>,
    /// No request reaches the store before that time.
    cut_until: u64,
    /// The last call that got a reply, or the start.
    heard: u64,
    is_dead: bool,
}

struct World {
    rng: Rng,
    now: u64,
    store: Store,
    /// Data of an earlier moment.
    backup: Store,
    run: u64,
    gateways: Vec<Gateway>,
    budgets: Budgets,
    /// The budget of the beginning.
    full: u64,
    faults: Faults,
    /// A request is at most this part of the budget.
    share: u64,
    /// The excess of settlements over their reservations, and the stated bound of gateways that were out of contact for too long.
    slack: u64,
    /// Used when the budget was last lowered, as soon as all gateways knew it.
    floor: u64,
    /// How often a gateway without contact was found to have stopped.
    stopped: u64,
}

fn account_id() -> AccountId {
    AccountId::new(AccountKind::Key, "a")
}

fn item() -> Item {
    Item { account: account_id(), measure: Measure::DayTokens, window: DAY }
}

impl Gateway {
    fn start(name: String, totals: Totals, budgets: &Budgets, now: u64) -> Self {
        Self::start_with(name, totals, budgets, now, OnStoreFailure::Claimed)
    }

    fn start_with(name: String, totals: Totals, budgets: &Budgets, now: u64, on_failure: OnStoreFailure) -> Self {
        let ledger = Ledger::new([(account_id(), totals)], Day::new(DAY));
        ledger.share_with(std::thread::current());
        let account = ledger.budgeted_account(account_id(), budgets);
        let claimant = Claimant::new(ledger.clone(), ClaimSettings { claim_ttl: TTL, on_failure }, time(now));
        Self {
            name,
            ledger,
            account,
            claimant,
            on_failure,
            session: None,
            sessions: 0,
            epoch: String::new(),
            revision: 0,
            open: Vec::new(),
            cut_until: 0,
            heard: now,
            is_dead: false,
        }
    }

    /// Killed, and started again: what was open is charged in full.
    fn restart(&mut self, budgets: &Budgets, now: u64) {
        let mut totals = self.account.position().settled;
        self.open.drain(..).for_each(|grant| totals.add(grant.day, grant.amount));
        let (sessions, epoch, on_failure) = (self.sessions, std::mem::take(&mut self.epoch), self.on_failure);
        let fresh = Self::start_with(self.name.clone(), totals, budgets, now, on_failure);
        *self = Self { sessions, epoch, ..fresh };
    }

    fn used(&self) -> u64 {
        self.account.position().used_of(Measure::DayTokens)
    }

    fn held(&self) -> u64 {
        self.account.position().claim(Measure::DayTokens).allowed
    }

    fn reserve(&mut self, tokens: u64, budgets: &Budgets) -> Result<(), Exhausted> {
        let level = Level { account: &self.account, kind: AccountKind::Key, budgets, observes: false };
        let reserved = self.ledger.reserve(&[level], Amount { tokens, money: tokens }, Day::new(DAY))?;
        self.open.push(reserved.grant);
        Ok(())
    }
}

fn time(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut rng = Rng::new(seed);
        let limit = 100 + rng.below(200_000);
        let budgets = Budgets { day_tokens: Some(limit), month_money: Some(3 * limit), ..Budgets::default() };
        let count = 1 + rng.below(6);
        let start = |number| {
            // One in three refuses without contact.
            let on_failure = if number % 3 == 2 { OnStoreFailure::Refuse } else { OnStoreFailure::Claimed };
            Gateway::start_with(format!("g{number}"), Totals::default(), &budgets, 0, on_failure)
        };
        let gateways = (0..count).map(start).collect();
        let (store, backup) = Default::default();
        let share = 10 + rng.below(1_000);
        Self {
            share,
            rng,
            now: 1_000,
            store,
            backup,
            run: 0,
            gateways,
            budgets,
            full: limit,
            faults,
            slack: 0,
            floor: 0,
            stopped: 0,
        }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.rng.below(one_in) == 0
    }

    /// A turn of the thread that claims.
    fn turn(&mut self, index: usize) {
        let (now, run) = (self.now, self.run.to_string());
        let has_losses = self.faults.losses;
        let gateway = &mut self.gateways[index];
        if gateway.is_dead {
            return;
        }
        let requests = gateway.claimant.requests(time(now), NOON);
        let looks = gateway.claimant.is_looking();
        if now < gateway.cut_until {
            gateway.session = None;
            return gateway.claimant.on_failure(&requests, time(now));
        }
        let session = match &gateway.session {
            Some(session) => session.clone(),
            None => {
                gateway.sessions += 1;
                let session = format!("{}-{}", gateway.name, gateway.sessions);
                let caller = Caller {
                    gateway: &gateway.name,
                    session: &session,
                    epoch: &gateway.epoch,
                    revision: gateway.revision,
                };
                let opened = self.store.open(&caller, gateway.claimant.has_used(), &run, ms(GRACE), now);
                if opened.epoch != gateway.epoch {
                    (gateway.epoch, gateway.revision) = (opened.epoch, 0);
                    gateway.claimant.on_new_epoch();
                }
                gateway.revision = gateway.revision.max(opened.revision);
                gateway.session = Some(session.clone());
                session
            }
        };
        let loss = if has_losses { self.rng.below(12) } else { 12 };
        let gateway = &mut self.gateways[index];
        let caller =
            Caller { gateway: &gateway.name, session: &session, epoch: &gateway.epoch, revision: gateway.revision };
        let reply = if loss == 0 { None } else { Some(self.store.claim(&caller, (ms(TTL), looks), &requests, now)) };
        match reply.filter(|_| loss != 1) {
            Some(Reply::Claims { replies, hungers, revision }) => {
                gateway.revision = revision;
                gateway.claimant.on_replies(&requests, &replies, time(now));
                gateway.claimant.on_hungers(&hungers);
                gateway.claimant.on_round(time(now));
                gateway.heard = now;
            }
            _ => {
                gateway.session = None;
                gateway.claimant.on_failure(&requests, time(now));
                // It arrives late, behind the connection that takes its place.
                if loss == 0 {
                    self.arrive_late(index, &session, &requests);
                }
            }
        }
    }

    /// The configuration of all gateways has another budget. As soon as they have called the store, their claims are within it.
    fn change_limit(&mut self) {
        let limit = self.full / 4 + self.rng.below(self.full);
        self.budgets.day_tokens = Some(limit);
        for gateway in &self.gateways {
            let _ = gateway.ledger.budgeted_account(account_id(), &self.budgets);
        }
        // A first call lowers claims, and the next look says so.
        for _ in 0..2 * ms(LOOK_INTERVAL) / TURN_MS {
            self.now += TURN_MS;
            (0..self.gateways.len()).for_each(|index| self.turn(index));
        }
        self.floor = self.used();
        let held: u64 = self.gateways.iter().map(|gateway| gateway.held().max(gateway.used())).sum();
        assert!(held <= limit.max(self.floor), "{held} is held of {limit}, and {} is used", self.floor);
        let claimed = self.store.claimed(&item(), self.now);
        assert!(claimed <= limit.max(self.floor), "{claimed} is claimed of {limit}, and {} is used", self.floor);
    }

    /// A gateway ends as it should, and its last call gives its claims back. Its successor begins with the same use.
    fn stop(&mut self, which: usize) {
        self.gateways[which].claimant.end();
        self.turn(which);
        let gateway = &self.gateways[which];
        if gateway.session.is_some() {
            let claimed = self.store.claimed_by(&gateway.name, &item(), self.now);
            assert_eq!(claimed, gateway.used(), "{} has given its claim back", gateway.name);
        }
        let (budgets, now) = (self.budgets, self.now);
        if !gateway.is_dead {
            self.gateways[which].restart(&budgets, now);
        }
    }

    fn arrive_late(&mut self, index: usize, session: &str, requests: &[ClaimRequest]) {
        self.turn(index);
        let gateway = &self.gateways[index];
        let caller = Caller { gateway: &gateway.name, session, epoch: &gateway.epoch, revision: 0 };
        if gateway.session.is_some() && gateway.session.as_deref() != Some(session) {
            let late = self.store.claim(&caller, (ms(TTL), true), requests, self.now);
            assert!(matches!(late, Reply::Superseded { .. } | Reply::Stale), "{late:?}");
        }
    }

    fn requests(&mut self) {
        for index in 0..self.gateways.len() {
            // Each gateway has its quiet times, longer than the grace: it has nothing to say then, and goes on with what it holds.
            if (self.now / QUIET_MS + index as u64).is_multiple_of(3) {
                continue;
            }
            if self.gateways[index].is_dead {
                continue;
            }
            // The stated stop, and a turn to notice it.
            let is_over = self.now - self.gateways[index].heard > ms(TTL) / 4 * 3 + TURN_MS;
            let is_claimed = self.gateways[index].claimant.tally().granted > 0;
            let refuses = self.gateways[index].on_failure == OnStoreFailure::Refuse;
            let is_refusing = refuses && self.now - self.gateways[index].heard > ms(CONTACT_MAX) + TURN_MS;
            if (is_over && is_claimed) || is_refusing {
                let refused = self.gateways[index].reserve(1, &self.budgets);
                assert!(refused.is_err(), "{} stops by itself", self.gateways[index].name);
                self.stopped += 1;
            }
            for _ in 0..self.rng.below(4) {
                let tokens = self.rng.below(self.budgets.day_tokens.unwrap_or(1) / self.share + 2);
                let _ = self.gateways[index].reserve(tokens, &self.budgets);
            }
            self.settle(index);
        }
    }

    fn settle(&mut self, index: usize) {
        while !self.gateways[index].open.is_empty() && !self.chance(3) {
            let which = self.rng.below(self.gateways[index].open.len() as u64) as usize;
            let grant = self.gateways[index].open.swap_remove(which);
            let mut used = self.rng.below(grant.amount.tokens + 1);
            if self.faults.excess && self.chance(4) {
                let more = self.rng.below(50);
                (used, self.slack) = (grant.amount.tokens + more, self.slack + more);
            }
            self.gateways[index].ledger.settle(grant, Amount { tokens: used, money: used });
        }
    }

    fn faults(&mut self) {
        let count = self.gateways.len() as u64;
        if self.faults.losses && self.chance(40) {
            let which = self.rng.below(count) as usize;
            let (budgets, now) = (self.budgets, self.now);
            if !self.gateways[which].is_dead {
                self.gateways[which].restart(&budgets, now);
                self.gateways[which].cut_until = now + self.rng.below(ms(GRACE) / 2);
            }
        }
        if self.faults.stops && self.chance(40) {
            let which = self.rng.below(count) as usize;
            self.stop(which);
        }
        if self.faults.limits && self.chance(25) {
            self.change_limit();
        }
        if self.faults.losses && self.chance(60) {
            let which = self.rng.below(count) as usize;
            self.gateways[which].cut_until = self.now + self.rng.below(ms(TTL) / 2);
        }
        let is_whole = self.gateways.iter().all(|gateway| gateway.cut_until < self.now && !gateway.is_dead);
        if self.faults.data && is_whole && self.chance(100) {
            let older = if self.chance(2) { Store::default() } else { self.backup.clone() };
            self.store = older;
            // Without a restart it is FLUSHALL: the connections stay.
            if !self.is_empty() || self.chance(2) {
                self.run += 1;
                self.gateways.iter_mut().for_each(|gateway| gateway.session = None);
            }
        } else if self.chance(50) {
            self.backup = self.store.clone();
        }
        if self.faults.ends && self.chance(150) {
            let which = self.rng.below(count) as usize;
            let idle = self.gateways[which].held().saturating_sub(self.gateways[which].used());
            if self.gateways[which].cut_until < self.now && !self.gateways[which].is_dead {
                // The store may have noted more than a reply that was lost has said.
                self.slack += idle + self.budgets.day_tokens.unwrap_or(0) / 4;
                self.gateways[which].cut_until = self.now + 3 * ms(TTL);
                self.gateways[which].is_dead = self.chance(2) && which > 0;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.store.claimed(&item(), 0) == 0
    }

    fn used(&self) -> u64 {
        self.gateways.iter().map(Gateway::used).sum()
    }

    fn check(&self, seed: u64) {
        let (used, limit) = (self.used(), self.budgets.day_tokens.unwrap_or(0));
        let limit = limit.max(self.floor);
        assert!(used <= limit + self.slack, "seed {seed} at {}: {used} of {limit} + {}", self.now, self.slack);
    }

    fn step(&mut self, seed: u64) {
        self.now += TURN_MS;
        self.requests();
        for index in 0..self.gateways.len() {
            self.turn(index);
        }
        self.check(seed);
        self.faults();
    }

    /// Without faults all gateways together use the budget up, to less than one request.
    fn use_up(&mut self, seed: u64) {
        self.faults = Faults::default();
        self.gateways.iter_mut().for_each(|gateway| gateway.cut_until = 0);
        // Claims of the dead end.
        for _ in 0..(ms(TTL) + ms(GRACE)) / TURN_MS + 1 {
            self.now += TURN_MS;
            (0..self.gateways.len()).for_each(|index| self.turn(index));
        }
        let size = 1 + self.rng.below(30);
        let mut idle_rounds = 0;
        for _round in 0..100_000 {
            self.now += TURN_MS;
            let (mut granted, mut is_over) = (false, true);
            for index in 0..self.gateways.len() {
                if self.gateways[index].is_dead {
                    continue;
                }
                for _ in 0..20 {
                    match self.gateways[index].reserve(size, &self.budgets) {
                        Ok(()) => granted = true,
                        Err(Exhausted::DayTokens) => break,
                        Err(_) => {
                            is_over = false;
                            break;
                        }
                    }
                }
                self.turn(index);
            }
            self.check(seed);
            idle_rounds = if granted { 0 } else { idle_rounds + 1 };
            assert!(idle_rounds < 200, "seed {seed}: {} of {:?} by {size} is stranded", self.used(), self.budgets);
            if is_over && !granted && idle_rounds > 10 {
                break;
            }
        }
        let limit = self.budgets.day_tokens.unwrap_or(0);
        // Requests that were in flight at the last call of a gateway that is gone for ever stay charged in full.
        let gone = self
            .gateways
            .iter()
            .filter(|gateway| gateway.is_dead)
            .map(|gateway| self.store.claimed_by(&gateway.name, &item(), self.now).saturating_sub(gateway.used()));
        let used = self.used() + gone.sum::<u64>();
        assert!(used + size > limit, "seed {seed}: {} of {limit} is left by {size}", limit - used);
    }
}

fn ms(span: Duration) -> u64 {
    span.as_millis() as u64
}

fn seeds() -> u64 {
    std::env::var("WEIR_SHARED_SEEDS").map_or(150, |text| text.parse().expect("WEIR_SHARED_SEEDS is a number"))
}

/// Returns how often gateways without contact were found to have stopped.
fn run(faults: Faults) -> u64 {
    let mut stopped = 0;
    for seed in 0..seeds() {
        let mut world = World::new(seed, faults);
        for _ in 0..300 {
            world.step(seed);
        }
        stopped += world.stopped;
        world.use_up(seed);
    }
    stopped
}

#[test]
fn gateways_use_a_budget_up_and_not_more() {
    run(Faults::default());
}

#[test]
fn lost_messages_crashes_and_short_cuts_change_neither_the_bound_nor_the_end() {
    run(Faults { losses: true, ..Faults::default() });
}

#[test]
fn settlements_above_their_reservations_count_for_all() {
    run(Faults { losses: true, excess: true, ..Faults::default() });
}

#[test]
fn a_store_that_loses_data_grants_nothing_twice() {
    run(Faults { data: true, ..Faults::default() });
}

#[test]
fn gateways_that_are_gone_leave_their_claims_behind_and_no_more() {
    let stopped = run(Faults { losses: true, excess: true, ends: true, ..Faults::default() });
    assert!(stopped > 0, "gateways are cut off for long enough to stop");
}

#[test]
fn a_budget_that_is_lowered_holds_for_all_gateways_together() {
    run(Faults { limits: true, ..Faults::default() });
    run(Faults { limits: true, excess: true, ..Faults::default() });
}

#[test]
fn gateways_that_end_give_their_claims_back() {
    run(Faults { stops: true, losses: true, ..Faults::default() });
}
