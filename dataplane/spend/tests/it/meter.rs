//! Admission as a worker does it.

use std::{
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use weir_base::Time;
use weir_spend::{
    Amount, Denial, Exhausted,
    budget::{AccountKind, Budgets, Ledger},
    meter::{Clock, Meter},
    policy::{CacheRule, Mode, Policy},
    rate::Pace,
    shared::{CLAIM_WAIT, CONTACT_MAX, ClaimReply, ClaimSettings, Claimant, GRACE_WAIT},
};

use crate::support::{Keys, NOON, amount, day_tokens, noon, reserve, settle, used};

fn meter(policy: Policy, team: Policy) -> (Ledger, Keys, Meter) {
    let ledger = Ledger::default();
    let keys = Keys::new(&ledger, &[("a", policy.clone()), ("b", policy)], team);
    (ledger.clone(), keys, Meter::new(ledger, None))
}

#[test]
fn the_strictest_level_refuses_and_nothing_stays_taken() {
    let (ledger, keys, meter) = meter(
        Policy { requests: Some(Pace::per_minute(100)), concurrent_max: Some(10), ..day_tokens(1_000) },
        Policy { tokens: Some(Pace::per_minute(50)), ..day_tokens(150) },
    );
    let first = reserve(&meter, &keys, "a", "1", 100).unwrap();
    let exhausted = Denial::Budget { exhausted: Exhausted::DayTokens };
    assert_eq!(reserve(&meter, &keys, "b", "2", 100).unwrap_err(), exhausted, "the budget of the team");
    // The tokens of the team are in debt by 50.
    assert!(
        matches!(reserve(&meter, &keys, "b", "3", 10), Err(Denial::Tokens { retry_after }) if retry_after > Duration::from_secs(60))
    );
    let b = ledger.account(weir_spend::budget::AccountId::new(AccountKind::Key, "b"));
    assert_eq!((b.position().reserved_in_day, b.open.in_use()), (Amount::ZERO, 0));
    assert_eq!(meter.rates(keys.get("b"), noon().now).requests.unwrap().remaining, 100);
    settle(first, "a", "1", 5);
    assert_eq!(used(&ledger, AccountKind::Team, "team").in_day, amount(5));
    assert_eq!(meter.rates(keys.get("b"), noon().now).tokens.unwrap().remaining, 45);
}

#[test]
fn requests_per_minute_refuse_with_the_time_to_wait() {
    let (_, keys, meter) =
        meter(Policy { requests: Some(Pace::per_minute(60).with_burst(2)), ..Policy::default() }, Policy::default());
    settle(reserve(&meter, &keys, "a", "1", 1).unwrap(), "a", "1", 1);
    settle(reserve(&meter, &keys, "a", "2", 1).unwrap(), "a", "2", 1);
    let refused = reserve(&meter, &keys, "a", "3", 1).unwrap_err();
    assert_eq!(refused, Denial::Requests { retry_after: Duration::from_secs(1) });
    let rates = meter.rates(keys.get("a"), noon().now).requests.unwrap();
    assert_eq!((rates.limit, rates.remaining, rates.reset), (60, 0, Duration::from_secs(2)));
    settle(reserve(&meter, &keys, "b", "4", 1).unwrap(), "b", "4", 1);
}

#[test]
fn tool_calls_per_minute_are_those_of_the_strictest_level() {
    let calls = |burst| Policy { tool_calls: Some(Pace::per_minute(60).with_burst(burst)), ..Policy::default() };
    let (_, keys, meter) = meter(calls(3), calls(2));
    let take = |name: &str| meter.take_tool_call(Some(keys.get(name)), noon().now);
    assert_eq!([take("a"), take("b")], [Ok(None); 2]);
    let refused = Err(Denial::ToolCalls { retry_after: Duration::from_secs(1) });
    assert_eq!([take("a"), take("b")], [refused; 2], "those of the team are used up");
    let observing = Policy { mode: Mode::Observe, ..calls(1) };
    let (_, keys, meter) = self::meter(observing, Policy::default());
    let take = || meter.take_tool_call(Some(keys.get("a")), noon().now);
    assert_eq!(take(), Ok(None));
    assert!(matches!(take(), Ok(Some(Denial::ToolCalls { .. }))));
    assert_eq!(meter.take_tool_call(None, noon().now), Ok(None), "without keys nothing is limited");
}

#[test]
fn requests_in_flight_are_counted_until_their_settlement() {
    let (_, keys, meter) = meter(Policy { concurrent_max: Some(2), ..Policy::default() }, Policy::default());
    let open = [1, 2].map(|number| reserve(&meter, &keys, "a", &number.to_string(), 1).unwrap());
    assert_eq!(reserve(&meter, &keys, "a", "3", 1).unwrap_err(), Denial::Concurrency { limit: 2 });
    let [first, second] = open;
    settle(first, "a", "1", 1);
    drop((reserve(&meter, &keys, "a", "4", 1).unwrap(), second));
    settle(reserve(&meter, &keys, "a", "5", 1).unwrap(), "a", "5", 1);
}

#[test]
fn a_dropped_reservation_is_charged_in_full_and_a_released_one_not_at_all() {
    let (ledger, keys, meter) = meter(day_tokens(100), Policy::default());
    drop(reserve(&meter, &keys, "a", "1", 30).unwrap());
    reserve(&meter, &keys, "a", "2", 70).unwrap().release(Time::from_nanos(2), |_, _| ());
    assert_eq!(used(&ledger, AccountKind::Key, "a").in_day, amount(30));
    settle(reserve(&meter, &keys, "a", "3", 70).unwrap(), "a", "3", 70);
}

#[test]
fn an_observing_policy_reports_what_it_would_refuse() {
    let observing = Policy {
        requests: Some(Pace::per_minute(1)),
        concurrent_max: Some(1),
        mode: Mode::Observe,
        budgets: Budgets { month_money: Some(1), ..Budgets::default() },
        ..Policy::default()
    };
    let (ledger, keys, meter) = meter(observing, Policy::default());
    let first = reserve(&meter, &keys, "a", "1", 10).unwrap();
    assert_eq!(first.observed(), Some(Denial::Budget { exhausted: Exhausted::MonthMoney }));
    let second = reserve(&meter, &keys, "a", "2", 10).unwrap();
    assert_eq!(second.observed(), Some(Denial::Concurrency { limit: 1 }));
    settle(first, "a", "1", 10);
    settle(second, "a", "2", 10);
    assert_eq!(used(&ledger, AccountKind::Key, "a").in_month, amount(20));
}

#[test]
fn a_request_without_a_key_is_metered_without_limits() {
    let (_, _, meter) = meter(Policy::default(), Policy::default());
    let reservation = meter.reserve(None, amount(1), noon(), |_, _| ()).unwrap();
    reservation.settle(amount(1), Time::from_nanos(2), |_, _| ());
}

#[test]
fn a_new_day_gives_a_new_budget_and_a_clock_that_goes_back_gives_none() {
    let (_, keys, meter) = meter(day_tokens(100), Policy::default());
    let at = |unix_seconds| {
        let clock = Clock { unix_seconds, ..noon() };
        meter.reserve(Some(keys.get("a")), amount(100), clock, |_, _| ()).map(drop)
    };
    assert!(at(NOON).is_ok() && at(NOON).is_err());
    assert!(at(NOON + 86_400).is_ok());
    assert!(at(NOON).is_err() && at(NOON + 86_400).is_err() && at(0).is_err());
}

#[test]
fn a_request_that_costs_nothing_is_judged_by_requests_alone() {
    let paced =
        Policy { requests: Some(Pace::per_minute(60).with_burst(2)), concurrent_max: Some(1), ..day_tokens(10) };
    let team = Policy { tokens: Some(Pace::per_minute(1)), ..Policy::default() };
    let (ledger, keys, meter) = meter(paced, team);
    // The budget of the key and the tokens of the team are used up.
    settle(reserve(&meter, &keys, "a", "1", 10).unwrap(), "a", "1", 10);
    assert!(reserve(&meter, &keys, "a", "2", 0).is_err());
    let key = Some(&**keys.get("a"));
    let free = meter.admit_free(key, noon(), |_, _| ()).unwrap();
    assert_eq!(meter.admit_free(key, noon(), |_, _| ()).unwrap_err(), Denial::Concurrency { limit: 1 });
    free.settle(Amount::ZERO, noon().now, |_, _| ());
    let refused = meter.admit_free(key, noon(), |_, _| ()).unwrap_err();
    assert_eq!(refused, Denial::Requests { retry_after: Duration::from_secs(1) });
    assert_eq!(used(&ledger, AccountKind::Key, "a").in_day, amount(10));
}

#[test]
fn the_version_of_a_policy_changes_with_it_and_the_strictest_cache_rule_counts() {
    let rule = |seconds, takes_sampled| Some(CacheRule { ttl: Duration::from_secs(seconds), takes_sampled });
    let cached = |cache| Policy { cache, ..Policy::default() };
    let (_, first, _) = meter(cached(rule(60, true)), cached(rule(90, false)));
    assert_eq!(first.get("a").cache(), rule(60, false));
    assert_eq!(first.get("a").policy_version(), first.get("b").policy_version(), "their policies are the same");
    let (_, again, _) = meter(cached(rule(60, true)), cached(rule(90, false)));
    assert_eq!(first.get("a").policy_version(), again.get("a").policy_version(), "a reload without a change");
    let of_team = Policy { tools_max: Some(1), ..cached(rule(90, false)) };
    for (own, team) in [(cached(rule(61, true)), cached(rule(90, false))), (cached(rule(60, true)), of_team)] {
        let (_, other, _) = meter(own, team);
        assert_ne!(first.get("a").policy_version(), other.get("a").policy_version());
    }
    let (_, without, _) = meter(Policy::default(), Policy::default());
    assert_eq!(without.get("a").cache(), None);
}

#[test]
fn a_request_waits_for_a_claim_as_long_as_the_store_may_grant_one() {
    let budgets = Budgets { day_tokens: Some(800), ..Budgets::default() };
    let (ledger, keys, meter) = meter(Policy { budgets, ..Policy::default() }, Policy::default());
    ledger.share_with(std::thread::current());
    let key = Some(&**keys.get("a"));
    let denial = meter.reserve(key, amount(10), noon(), |_, _| ()).expect_err("nothing is claimed");
    assert_eq!(meter.claim_wait(key, denial), GRACE_WAIT, "the store has not responded yet");
    assert_eq!(meter.claim_wait(key, Denial::Journal), Duration::ZERO);
    let (now, news) = (noon().now, ledger.news());
    let mut claimant = Claimant::new(ledger.clone(), ClaimSettings::default(), now);
    let requests = claimant.requests(now, NOON);
    let mut reply = |allowed, rest| {
        let reply = ClaimReply { allowed, rest, ..ClaimReply::default() };
        claimant.on_replies(&requests, &vec![reply; requests.len()], now);
        claimant.on_round(now);
        meter.claim_wait(key, denial)
    };
    let has_news = |number| {
        let mut context = Context::from_waker(Waker::noop());
        pin!(ledger.news_after(number)).poll(&mut context).is_ready()
    };
    assert!(!has_news(news));
    assert_eq!(reply(0, 800), GRACE_WAIT, "the store grants nothing of what it has");
    let news = ledger.news();
    assert_eq!(reply(100, 700), CLAIM_WAIT);
    assert!(has_news(news) && !has_news(ledger.news()));
    meter.reserve(key, amount(10), noon(), |_, _| ()).expect("it is claimed").release(now, |_, _| ());
    claimant.on_failure(&[], now.saturating_add(CONTACT_MAX));
    assert_eq!(meter.claim_wait(key, denial), Duration::ZERO, "the store is out of contact");
    assert!(has_news(ledger.news() - 1));
}
