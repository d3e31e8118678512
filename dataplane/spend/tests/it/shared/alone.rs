//! One gateway in front of the model of a store, turn by turn.

use super::*;

#[test]
fn a_gateway_without_contact_stops_at_three_quarters_of_the_time_of_its_claim() {
    let budgets = Budgets { day_tokens: Some(8_000), ..Budgets::default() };
    let mut world = World { budgets, ..World::new(1, Faults::default()) };
    world.gateways = vec![Gateway::start("g".to_owned(), Totals::default(), &budgets, 0)];
    world.turn(0);
    world.gateways[0].reserve(300, &budgets).expect("it is claimed");
    let cut = world.now;
    world.gateways[0].cut_until = u64::MAX;
    while world.now < cut + ms(TTL) {
        world.now += TURN_MS;
        world.turn(0);
        let (is_over, gateway) = (world.now - cut >= ms(TTL) / 4 * 3, &mut world.gateways[0]);
        assert_eq!(gateway.held() == gateway.used(), is_over, "at {} of {cut}", world.now);
        // A settlement below its reservation makes no room again.
        if is_over && let Some(grant) = gateway.open.pop() {
            gateway.ledger.settle(grant, Amount { tokens: 200, money: 200 });
        }
        let refused = gateway.reserve(1, &budgets);
        assert_eq!(refused.is_err(), is_over, "at {} of {cut}: {refused:?}", world.now);
        if let Some(grant) = (!is_over).then(|| gateway.open.pop()).flatten() {
            gateway.ledger.settle(grant, Amount::ZERO);
        }
    }
    assert_eq!(world.gateways[0].claimant.tally().expired, 1);
    world.gateways[0].cut_until = 0;
    world.now += TURN_MS;
    world.turn(0);
    world.gateways[0].reserve(1, &budgets).expect("it goes on");
}

#[test]
fn a_gateway_that_refuses_without_contact_grants_nothing_that_a_settlement_frees() {
    let budgets = Budgets { day_tokens: Some(8_000), ..Budgets::default() };
    let mut world = World { budgets, ..World::new(1, Faults::default()) };
    let gateway = Gateway::start_with("g".to_owned(), Totals::default(), &budgets, 0, OnStoreFailure::Refuse);
    world.gateways = vec![gateway];
    world.turn(0);
    world.gateways[0].reserve(300, &budgets).expect("it is claimed");
    world.gateways[0].cut_until = world.now + 2 * ms(CONTACT_MAX);
    world.now += ms(CONTACT_MAX);
    world.turn(0);
    let gateway = &mut world.gateways[0];
    assert_eq!(gateway.reserve(1, &budgets), Err(Exhausted::Store), "at once");
    let grant = gateway.open.pop().expect("a request in flight");
    gateway.ledger.settle(grant, Amount { tokens: 10, money: 10 });
    assert_eq!(gateway.reserve(1, &budgets), Err(Exhausted::Store), "between two attempts, too");
    world.now += 2 * ms(CONTACT_MAX);
    world.turn(0);
    world.gateways[0].reserve(300, &budgets).expect("its claim is there still");
}

#[test]
fn the_next_day_is_kept_until_it_begins_with_the_shortest_time_of_claims() {
    let claims = ClaimSettings { claim_ttl: Duration::from_secs(30), ..ClaimSettings::default() };
    let budgets = Budgets { day_tokens: Some(8_000), ..Budgets::default() };
    let (mut store, mut gateway) = (Store::default(), Gateway::start("g".to_owned(), Totals::default(), &budgets, 0));
    gateway.claimant = Claimant::new(gateway.ledger.clone(), claims, time(0));
    let (next, end) = (Item { window: DAY + 1, ..item() }, u64::from(DAY + 1) * 86_400);
    let caller = |epoch| Caller { gateway: "g", session: "s", epoch, revision: 0 };
    let epoch = store.open(&caller(""), false, "", 0, 0).epoch;
    let mut ahead = |gateway: &mut Gateway, second: u64, is_cut: bool| {
        let requests = gateway.claimant.requests(time(second * 1_000), end - 61 + second);
        if is_cut {
            gateway.claimant.on_failure(&requests, time(second * 1_000));
        } else {
            let Reply::Claims { replies, .. } = store.claim(&caller(&epoch), (30_000, true), &requests, second * 1_000)
            else {
                panic!()
            };
            gateway.claimant.on_replies(&requests, &replies, time(second * 1_000));
            gateway.claimant.on_round(time(second * 1_000));
        }
        (gateway.account.position().claim(Measure::DayTokens).next, store.claimed(&next, second * 1_000))
    };
    assert_eq!(ahead(&mut gateway, 0, false), (0, 0));
    for second in 1..40 {
        assert_eq!(ahead(&mut gateway, second, false), (1_000, 1_000), "{second} s");
    }
    // Without contact it is given up before the store ends it.
    let ends: Vec<_> = (40..61).map(|second| ahead(&mut gateway, second, true)).collect();
    assert!(ends.iter().all(|(next, claimed)| next <= claimed), "{ends:?}");
    let _ = ahead(&mut gateway, 62, true);
    assert_eq!(gateway.held(), 0, "the day has begun without it");
}

#[test]
fn the_next_day_is_claimed_before_it_begins() {
    let budgets = Budgets { day_tokens: Some(10_000), ..Budgets::default() };
    let (mut store, mut gateway) = (Store::default(), Gateway::start("g".to_owned(), Totals::default(), &budgets, 0));
    let end = u64::from(DAY + 1) * 86_400;
    let mut look = |gateway: &mut Gateway, now: u64, unix: u64| {
        let requests = gateway.claimant.requests(time(now), unix);
        let caller = |epoch| Caller { gateway: "g", session: "s", epoch, revision: 0 };
        let epoch = store.open(&caller(""), false, "", 0, now).epoch;
        let Reply::Claims { replies, .. } = store.claim(&caller(&epoch), (ms(TTL), true), &requests, now) else {
            panic!()
        };
        gateway.claimant.on_replies(&requests, &replies, time(now));
        gateway.claimant.on_round(time(now));
        requests.len()
    };
    let today = |gateway: &mut Gateway, day| {
        let level = Level { account: &gateway.account, kind: AccountKind::Key, budgets: &budgets, observes: false };
        gateway.ledger.reserve(&[level], Amount { tokens: 100, money: 0 }, Day::new(day)).map(|reserved| reserved.grant)
    };
    assert_eq!(look(&mut gateway, 1_000, end - 3_600), 1, "only the present day");
    assert_eq!(look(&mut gateway, 2_000, end - 30), 1, "the next one");
    let first = today(&mut gateway, DAY).expect("the day goes on");
    let second = today(&mut gateway, DAY + 1).expect("the next day has begun with its claim");
    // A day that was not claimed for waits for a reply.
    assert_eq!(today(&mut gateway, DAY + 3).map(|_| ()), Err(Exhausted::Store));
    assert_eq!(look(&mut gateway, 3_000, end + 2 * 86_400), 1);
    let third = today(&mut gateway, DAY + 3).expect("it is claimed");
    [first, second, third].into_iter().for_each(|grant| gateway.ledger.settle(grant, Amount::ZERO));
}

#[test]
fn a_gateway_that_starts_in_the_grace_of_the_store_claims_behind_it_without_a_request() {
    let budgets = Budgets { day_tokens: Some(8_000), ..Budgets::default() };
    let mut world = World { budgets, ..World::new(1, Faults::default()) };
    // Data of an earlier process of the server: others may be about to say what they hold.
    let before = Caller { gateway: "h", session: "h", epoch: "", revision: 0 };
    let _ = world.store.open(&before, false, "before", ms(GRACE), world.now);
    world.gateways = vec![Gateway::start("g".to_owned(), Totals::default(), &budgets, world.now)];
    let start = world.now;
    world.turn(0);
    assert_eq!(world.gateways[0].held(), 0);
    assert_eq!(world.gateways[0].reserve(100, &budgets), Err(Exhausted::Store));
    while world.now < start + ms(GRACE + LOOK_INTERVAL) {
        world.now += TURN_MS;
        world.turn(0);
    }
    assert!(world.gateways[0].held() > 0, "nothing is claimed");
    world.gateways[0].reserve(100, &budgets).expect("its first request has room");
}
