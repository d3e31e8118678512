use std::{
    collections::HashMap,
    sync::{Barrier, atomic::AtomicU64},
};

use proptest::prelude::*;

use super::*;

const DAY: Day = Day::new(20_484);

fn amount(tokens: u64) -> Amount {
    Amount { tokens, money: tokens * 3 }
}

fn key(ledger: &Ledger, name: &str) -> Arc<Account> {
    ledger.account(AccountId::new(AccountKind::Key, name))
}

fn level<'a>(account: &'a Arc<Account>, kind: AccountKind, budgets: &'a Budgets) -> Level<'a> {
    Level { account, kind, budgets, observes: false }
}

fn tokens_a_day(tokens: u64) -> Budgets {
    Budgets { day_tokens: Some(tokens), ..Budgets::default() }
}

#[test]
fn a_reservation_is_refused_when_less_is_left_and_settlement_gives_the_rest_back() {
    let ledger = Ledger::default();
    let (account, budgets) = (key(&ledger, "a"), tokens_a_day(100));
    let levels = [level(&account, AccountKind::Key, &budgets)];
    let first = ledger.reserve(&levels, amount(60), DAY).unwrap().grant;
    assert_eq!(ledger.reserve(&levels, amount(41), DAY).unwrap_err(), Exhausted::DayTokens);
    let second = ledger.reserve(&levels, amount(40), DAY).unwrap().grant;
    assert_eq!(ledger.reserve(&levels, amount(0), DAY).unwrap_err(), Exhausted::DayTokens, "nothing is left at all");
    ledger.settle(first, amount(10));
    ledger.settle(second, Amount::ZERO);
    let position = account.position();
    assert_eq!((position.settled.in_day, position.reserved_in_day), (amount(10), Amount::ZERO));
    ledger.settle(ledger.reserve(&levels, amount(90), DAY).unwrap().grant, amount(90));
}

#[test]
fn an_estimate_that_was_too_low_exceeds_the_budget_by_its_own_difference_and_nothing_follows() {
    let ledger = Ledger::default();
    let (account, budgets) = (key(&ledger, "a"), tokens_a_day(100));
    let levels = [level(&account, AccountKind::Key, &budgets)];
    let first = ledger.reserve(&levels, amount(90), DAY).unwrap().grant;
    let second = ledger.reserve(&levels, amount(10), DAY).unwrap().grant;
    ledger.settle(first, amount(130));
    assert_eq!(account.position().settled.in_day, amount(130));
    assert_eq!(ledger.reserve(&levels, amount(0), DAY).unwrap_err(), Exhausted::DayTokens);
    ledger.settle(second, amount(10));
    assert_eq!(
        account.position().settled.in_day,
        amount(140),
        "40 above the budget, as much as the first exceeded its own"
    );
}

#[test]
fn a_team_refuses_for_all_its_keys_and_leaves_no_trace_with_the_key() {
    let ledger = Ledger::default();
    let (account, team) = (key(&ledger, "a"), ledger.account(AccountId::new(AccountKind::Team, "t")));
    let (own, shared) = (tokens_a_day(1_000), Budgets { month_money: Some(30), ..Budgets::default() });
    let levels = [level(&account, AccountKind::Key, &own), level(&team, AccountKind::Team, &shared)];
    let grant = ledger.reserve(&levels, amount(10), DAY).unwrap().grant;
    assert_eq!(ledger.reserve(&levels, amount(1), DAY).unwrap_err(), Exhausted::MonthMoney);
    assert_eq!(account.position().reserved_in_day, amount(10));
    ledger.settle(grant, amount(10));
    assert_eq!(team.position().settled.in_month, amount(10));
}

#[test]
fn an_observing_level_reports_and_admits() {
    let ledger = Ledger::default();
    let (account, budgets) = (key(&ledger, "a"), tokens_a_day(1));
    let observing = Level { observes: true, ..level(&account, AccountKind::Key, &budgets) };
    let reserved = ledger.reserve(&[observing], amount(50), DAY).unwrap();
    assert_eq!(reserved.observed, Some(Exhausted::DayTokens));
    ledger.settle(reserved.grant, amount(50));
    assert_eq!(account.position().settled.in_day, amount(50), "it is counted all the same");
}

#[test]
fn a_clock_that_steps_back_gives_no_second_budget() {
    let ledger = Ledger::default();
    let (account, budgets) = (key(&ledger, "a"), tokens_a_day(100));
    let levels = [level(&account, AccountKind::Key, &budgets)];
    ledger.settle(ledger.reserve(&levels, amount(100), DAY).unwrap().grant, amount(100));
    for back in 1..40 {
        let earlier = Day::new(DAY.number() - back);
        assert_eq!(ledger.reserve(&levels, amount(1), earlier).unwrap_err(), Exhausted::DayTokens);
    }
    let next = Day::new(DAY.number() + 1);
    ledger.settle(ledger.reserve(&levels, amount(100), next).unwrap().grant, amount(100));
    assert!(ledger.reserve(&levels, amount(1), DAY).is_err() && ledger.reserve(&levels, amount(1), next).is_err());
    // An account that was not used on the latest day follows the day of the ledger.
    let other = key(&ledger, "b");
    let grant = ledger.reserve(&[level(&other, AccountKind::Key, &budgets)], amount(1), DAY).unwrap().grant;
    assert_eq!(grant.day, next);
    ledger.settle(grant, amount(1));
}

#[test]
fn a_request_that_ends_after_midnight_belongs_to_the_day_before() {
    let ledger = Ledger::default();
    let budgets = Budgets { day_tokens: Some(100), month_tokens: Some(150), ..Budgets::default() };
    let account = key(&ledger, "a");
    let levels = [level(&account, AccountKind::Key, &budgets)];
    // 2026-01-30 and -31.
    let (late, next) = (Day::new(20_483), Day::new(20_484));
    let grant = ledger.reserve(&levels, amount(100), late).unwrap().grant;
    assert_eq!(ledger.reserve(&levels, amount(60), next).unwrap_err(), Exhausted::MonthTokens);
    let new = ledger.reserve(&levels, amount(50), next).unwrap().grant;
    ledger.settle(grant, amount(70));
    let position = account.position();
    assert_eq!((position.settled.in_day, position.settled.in_month), (Amount::ZERO, amount(70)));
    assert_eq!((position.reserved_in_day, position.reserved_in_month), (amount(50), amount(50)));
    ledger.settle(new, amount(50));
}

#[test]
fn of_two_racers_for_the_last_tokens_one_wins() {
    for _ in 0..2_000 {
        let ledger = Ledger::default();
        let (account, budgets) = (key(&ledger, "a"), tokens_a_day(100));
        let start = Barrier::new(2);
        let won: Vec<bool> = std::thread::scope(|scope| {
            let race = || {
                start.wait();
                ledger.reserve(&[level(&account, AccountKind::Key, &budgets)], amount(100), DAY).map(drop).is_ok()
            };
            let racers = [scope.spawn(race), scope.spawn(race)];
            racers.map(|racer| racer.join().unwrap()).into()
        });
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
    }
}

#[test]
fn a_shared_budget_is_exact_among_threads() {
    const LIMIT: u64 = 50_000;
    let ledger = Ledger::default();
    let (team, budgets) = (ledger.account(AccountId::new(AccountKind::Team, "t")), tokens_a_day(LIMIT));
    let (used, none) = (AtomicU64::new(0), Budgets::default());
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (ledger, team, budgets, none, used) = (&ledger, &team, &budgets, &none, &used);
            scope.spawn(move || {
                let mut rng = weir_base::Rng::new(seed);
                let own = key(ledger, &seed.to_string());
                let levels = [level(&own, AccountKind::Key, none), level(team, AccountKind::Team, budgets)];
                let mut open = Vec::new();
                for _ in 0..5_000 {
                    if let Ok(reserved) = ledger.reserve(&levels, amount(1 + rng.below(40)), DAY) {
                        open.push(reserved.grant);
                    }
                    let position = team.position();
                    assert!(position.settled.in_day.plus(position.reserved_in_day).tokens <= LIMIT);
                    if rng.below(2) == 0 && !open.is_empty() {
                        let grant = open.swap_remove(rng.below(open.len() as u64) as usize);
                        let spent = rng.below(grant.amount.tokens + 1);
                        used.fetch_add(spent, Ordering::Relaxed);
                        ledger.settle(grant, amount(spent));
                    }
                }
                open.into_iter().for_each(|grant| ledger.settle(grant, Amount::ZERO));
            });
        }
    });
    let position = team.position();
    assert_eq!(position.settled.in_day.tokens, used.load(Ordering::Relaxed));
    assert_eq!(position.reserved_in_day, Amount::ZERO);
}

/// Accounts without windows that replace each other: all charges by day.
#[derive(Default)]
struct Model {
    settled: HashMap<(usize, Day), u64>,
    reserved: HashMap<(usize, Day), u64>,
}

impl Model {
    fn used(&self, account: usize, is_in: impl Fn(Day) -> bool) -> u64 {
        let sum = |map: &HashMap<(usize, Day), u64>| -> u64 {
            map.iter().filter(|((owner, day), _)| *owner == account && is_in(*day)).map(|(_, tokens)| tokens).sum()
        };
        sum(&self.settled) + sum(&self.reserved)
    }
}

proptest! {
    #[test]
    fn random_operations_agree_with_a_model_of_all_charges(
        steps in proptest::collection::vec((0u8..4, 0usize..3, 1u64..60, 0u32..80), 1..120),
    ) {
        const LIMITS: (u64, u64) = (150, 400);
        let ledger = Ledger::default();
        let budgets = Budgets { day_tokens: Some(LIMITS.0), month_tokens: Some(LIMITS.1), ..Budgets::default() };
        let keys = [0, 1, 2].map(|name| key(&ledger, &name.to_string()));
        let team = ledger.account(AccountId::new(AccountKind::Team, "t"));
        let shared = Budgets { day_tokens: Some(LIMITS.0 * 2), month_tokens: Some(LIMITS.1 * 2), ..Budgets::default() };
        let (mut model, mut open, mut latest) = (Model::default(), Vec::new(), Day::default());
        for (what, who, tokens, step) in steps {
            if what < 3 {
                // Days go on and back.
                let today = Day::new(20_440 + step);
                latest = latest.max(today);
                let levels =
                    [level(&keys[who], AccountKind::Key, &budgets), level(&team, AccountKind::Team, &shared)];
                let fits = |account: usize, factor: u64| {
                    let left = |used: u64, limit: u64| used < limit && limit - used >= tokens;
                    left(model.used(account, |day| day == latest), LIMITS.0 * factor)
                        && left(model.used(account, |day| day.month() == latest.month()), LIMITS.1 * factor)
                };
                let is_expected = fits(who, 1) && fits(3, 2);
                let granted = ledger.reserve(&levels, amount(tokens), today);
                prop_assert_eq!(granted.is_ok(), is_expected);
                if let Ok(Reserved { grant, .. }) = granted {
                    prop_assert_eq!(grant.day, latest);
                    for account in [who, 3] {
                        *model.reserved.entry((account, grant.day)).or_default() += tokens;
                    }
                    open.push((who, grant));
                }
            } else if !open.is_empty() {
                let (who, grant) = open.swap_remove(step as usize % open.len());
                let used = tokens.min(grant.amount.tokens);
                for account in [who, 3] {
                    *model.reserved.get_mut(&(account, grant.day)).unwrap() -= grant.amount.tokens;
                    *model.settled.entry((account, grant.day)).or_default() += used;
                }
                ledger.settle(grant, amount(used));
            }
        }
        prop_assert_eq!(ledger.latest_day(), latest);
    }
}
