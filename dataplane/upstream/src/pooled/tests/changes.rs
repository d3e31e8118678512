//! Pools that a reload has replaced, and servers that do not serve now.

use super::{
    APART, ONE, pool_of,
    tiny::{Crew, Held, Server, WAIT, acquire},
    *,
};
use crate::SelectionCriteria;
use weir_engine::settings::TlsClientSettings;

#[test]
fn a_retired_pool_serves_those_that_still_wait_at_it_by_one_login() {
    let crew = Crew::new(1, pool_of(1));
    crew.ask(0, async |upstream| upstream.retire());
    let first = crew.hold(0, ONE);
    let id = first.id();
    let others = [1, 2].map(|place| {
        let held = crew.hold(0, ONE);
        crew.until(ONE, |counts| counts.waiting == place);
        held
    });
    let mut before = &first;
    for held in &others {
        before.give_back(Condition::Clean);
        assert_eq!(held.id(), id);
        before = held;
    }
    before.give_back(Condition::Dirty);
    crew.until(ONE, |counts| counts.open == 0);
    assert_eq!(crew.logins(), 1);
}

#[test]
fn a_full_server_ends_no_wait_and_sees_no_storm() {
    let crew = Crew::new(2, pool_of(5));
    crew.server.with(|now| now.is_full = true);
    let waiting: Vec<_> = (0..30)
        .map(|number| {
            crew.on(number % 2, async move |upstream| {
                let lease = acquire(&upstream, ONE, WAIT).await.map_err(|error| error.refusal)?;
                lease.give_back(Condition::Clean);
                Ok::<(), Refusal>(())
            })
        })
        .collect();
    let short = crew.ask(0, async |upstream| acquire(&upstream, ONE, Duration::from_millis(300)).await.map(|_| ()));
    assert_eq!(short.expect_err("it is full").refusal, Refusal::QueueTimeout);
    let logins = crew.server.with(|now| {
        now.is_full = false;
        now.logins
    });
    assert!((2..=12).contains(&logins), "{logins} attempts in 0.3 s");
    for client in &waiting {
        assert_eq!(client.recv_timeout(WAIT).expect("no client is forgotten"), Ok(()));
    }
}

#[test]
fn a_server_that_does_not_serve_refuses_none_before_its_time_is_over() {
    let crew = Crew::new(1, pool_of(5));
    crew.server.with(|now| now.is_down = true);
    let begun = Instant::now();
    let short = crew.ask(0, async |upstream| acquire(&upstream, ONE, Duration::from_millis(100)).await.map(|_| ()));
    assert_eq!(short.expect_err("it is down").refusal, Refusal::Unreachable);
    assert!(begun.elapsed() >= Duration::from_millis(90), "{:?}", begun.elapsed());
}

#[test]
fn several_servers_that_do_not_serve_are_tried_until_one_does() {
    let dead = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let change = |settings: &mut UpstreamSettings| settings.endpoints.insert(0, Address::Socket(dead));
    let crew = Crew::with(2, pool_of(8), change, false);
    crew.server.with(|now| now.is_down = true);
    let waiting: Vec<_> = (0..8).map(|number| crew.hold(number % 2, ONE)).collect();
    thread::sleep(Duration::from_millis(300));
    assert!(waiting.iter().all(|held| held.is_waiting()), "none is refused");
    crew.server.with(|now| now.is_down = false);
    for held in &waiting {
        held.id();
        held.give_back(Condition::Clean);
    }
}

#[test]
fn a_pause_puts_the_end_of_a_wait_off_also_while_no_server_serves() {
    let dead = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let crew = Crew::with(1, pool_of(1), |settings| settings.endpoints.insert(0, Address::Socket(dead)), false);
    crew.server.with(|now| now.is_down = true);
    let pauses = crew.ask(0, async |upstream| {
        upstream.pause(&Scope::Database(b"db"[..].into()));
        upstream.pause(&Scope::All);
        upstream.pauses()
    });
    assert_eq!(pauses, [Scope::All, Scope::Database(b"db"[..].into())], "each once, of two endpoints");
    let waiting = crew.on(0, async |upstream| acquire(&upstream, ONE, Duration::from_millis(100)).await.map(drop));
    thread::sleep(Duration::from_millis(500));
    assert!(waiting.try_recv().is_err(), "it waits beyond its deadline");
    crew.server.with(|now| now.is_down = false);
    crew.ask(0, async |upstream| upstream.resume(&Scope::All));
    assert!(waiting.recv_timeout(WAIT).expect("it is not forgotten").is_ok());
    assert!(crew.ask(0, async |upstream| upstream.pauses()).is_empty());
}

#[test]
fn a_wait_that_goes_on_elsewhere_after_a_pause_has_the_time_that_the_pause_gave_it() {
    let (crew, other) = crew_of_two(1);
    for server in [&crew.server, &other] {
        server.with(|now| now.is_down = true);
    }
    crew.ask(0, async |upstream| upstream.pause(&Scope::All));
    let waiting = crew.on(0, async |upstream| {
        let (now, limit) = (turn::now(), Duration::from_secs(1));
        let mut patience = Patience { since: now, deadline: now.saturating_add(limit), notify_at: None };
        let mut wanted = SelectionCriteria { is_optional: true, ..Default::default() };
        let pool = upstream.pool(&ONE);
        assert!(pool.try_acquire(&mut wanted).is_none());
        let refusal = pool.wait(wanted, &mut patience, || {}).await.err().map(|error| error.refusal);
        (refusal, patience.deadline > turn::now())
    });
    thread::sleep(Duration::from_millis(1_200));
    assert!(waiting.try_recv().is_err(), "it waits as long as the pause");
    crew.ask(0, async |upstream| upstream.resume(&Scope::All));
    assert_eq!(waiting.recv_timeout(WAIT).expect("it is not forgotten"), (Some(Refusal::Unreachable), true));
}

/// A crew with a second server in front of its own.
fn crew_of_two(pool_size: u32) -> (Crew, Server) {
    let other = Server::start();
    let address = Address::Socket(other.address);
    (Crew::with(1, pool_of(pool_size), |settings| settings.endpoints.insert(0, address.clone()), false), other)
}

#[test]
fn no_client_waits_at_a_full_endpoint_while_another_one_serves() {
    let (crew, other) = crew_of_two(1);
    let begun = Instant::now();
    let held = [crew.hold(0, ONE), crew.hold(0, ONE)];
    held.iter().for_each(|held| assert!(held.id() > 0));
    assert_eq!((crew.logins(), other.with(|now| now.logins)), (1, 1));
    assert!(begun.elapsed() < WAIT / 4, "{:?}", begun.elapsed());
    // One waits at each endpoint now; both are served by the one that is free.
    let waiting = [crew.hold(0, ONE), crew.hold(0, ONE)];
    thread::sleep(APART);
    held[0].give_back(Condition::Clean);
    let begun = Instant::now();
    let first = loop {
        if let Some(first) = waiting.iter().position(Held::is_served) {
            break first;
        }
        assert!(begun.elapsed() < WAIT, "none is served");
        thread::sleep(Duration::from_millis(1));
    };
    waiting[first].give_back(Condition::Clean);
    waiting[1 - first].id();
    assert_eq!((crew.logins(), other.with(|now| now.logins)), (1, 1));
}

#[test]
fn endpoints_take_turns_with_one_client_at_a_time() {
    let (crew, other) = crew_of_two(4);
    let served = crew.ask(0, async |upstream| {
        let mut served = [0; 2];
        for _ in 0..100 {
            let lease = acquire(&upstream, ONE, WAIT).await.expect("it is idle");
            served[lease.number()] += 1;
            lease.give_back(Condition::Clean);
        }
        served
    });
    assert_eq!((served, crew.logins(), other.with(|now| now.logins)), ([50, 50], 1, 1));
}

/// Idle connections that all need a check before they serve, at a server that does not respond to it.
fn silent(upkeep_timeout: Duration) -> Crew {
    let settings = PooledSettings { server_check_delay: Duration::ZERO, upkeep_timeout, ..pool_of(8) };
    let crew = Crew::new(1, settings);
    let held: Vec<_> = (0..8).map(|_| crew.hold(0, ONE)).collect();
    held.iter().for_each(|held| assert!(held.id() > 0));
    held.iter().for_each(|held| held.give_back(Condition::Clean));
    crew.until(ONE, |counts| counts.idle == 8);
    crew.server.with(|now| now.ignores_checks = true);
    crew
}

#[test]
fn one_check_without_a_response_is_enough_for_all_idle_connections() {
    let limit = Duration::from_millis(400);
    let crew = silent(limit);
    let begun = Instant::now();
    let held = crew.hold(0, ONE);
    held.id();
    let took = begun.elapsed();
    assert!(took >= limit && took < 3 * limit, "{took:?}");
    assert_eq!((crew.server.with(|now| now.checks), crew.logins()), (1, 9), "it has a new one");
    crew.until(ONE, |counts| counts.open == 1);
}

#[test]
fn a_check_ends_with_the_wait_that_it_is_for_and_keeps_no_notice_back() {
    let crew = silent(WAIT);
    let (noticed, took, refusal) = crew.ask(0, async |upstream| {
        let (noticed, begun) = (Cell::new(None), Instant::now());
        let at = |millis| turn::now().saturating_add(Duration::from_millis(millis));
        let patience = Patience { since: at(0), deadline: at(600), notify_at: Some(at(100)) };
        let on_wait = || noticed.set(Some(begun.elapsed()));
        let acquired = upstream.pool(&ONE).acquire(Default::default(), patience, on_wait).await;
        (noticed.get(), begun.elapsed(), acquired.err().expect("none is fit").refusal)
    });
    assert!(noticed.is_some_and(|noticed| noticed < Duration::from_millis(500)), "{noticed:?}");
    assert!(took >= Duration::from_millis(590) && took < WAIT / 2, "{took:?}");
    assert_eq!((refusal, crew.server.with(|now| now.checks)), (Refusal::QueueTimeout, 1));
    crew.until(ONE, |counts| counts.waiting == 0 && counts.idle >= 7);
}

#[test]
fn connections_made_under_other_tls_settings_are_of_another_pool() {
    let share = Arc::<EndpointShare>::default();
    let plain = UpstreamSettings::new("one", vec![Address::Host { name: "db".into(), port: 5432 }]);
    let with = |tls: TlsClientSettings| UpstreamSettings { tls: Some(tls), ..plain.clone() };
    let tls = with(TlsClientSettings::default());
    let named = with(TlsClientSettings { server_name: Some("db.internal".into()), ..Default::default() });
    let rotated = with(TlsClientSettings { files_digest: 7, ..Default::default() });
    let patient = with(TlsClientSettings { handshake_timeout: WAIT, ..Default::default() });
    for (before, now, is_kept) in [
        (&plain, &plain, true),
        (&plain, &tls, false),
        (&tls, &plain, false),
        (&tls, &named, false),
        (&tls, &rotated, false),
        (&tls, &patient, true),
    ] {
        let kept = share.after_reload(before, now);
        assert_eq!(kept.pools.is_same(&share.pools), is_kept, "{:?} {:?}", before.tls, now.tls);
        assert!(Arc::ptr_eq(&kept.health, &share.health), "it is the same server");
    }
    let unchecked = UpstreamSettings { health: None, ..plain.clone() };
    let kept = share.after_reload(&plain, &unchecked);
    assert!(kept.pools.is_same(&share.pools) && !Arc::ptr_eq(&kept.health, &share.health));
}

/// Resident memory of the process, bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("figures of the process");
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
fn ten_thousand_clients_wait_at_one_pool_and_each_has_its_turn() {
    const CLIENTS: usize = 10_000;
    let crew = Crew::with(2, pool_of(4), |settings| settings.lane_waiters_max = WAITERS_MAX, false);
    let held: Vec<_> = (0..4).map(|number| crew.hold(number % 2, ONE)).collect();
    held.iter().for_each(|held| assert!(held.id() > 0));
    let before = resident();
    let served = Arc::new(AtomicUsize::new(0));
    for number in 0..CLIENTS {
        let served = served.clone();
        drop(crew.on(number % 2, async move |upstream| {
            let lease = acquire(&upstream, ONE, 10 * WAIT).await.expect("its turn comes");
            served.fetch_add(1, Ordering::Relaxed);
            lease.give_back(Condition::Clean);
        }));
    }
    crew.until(ONE, |counts| counts.waiting == CLIENTS as u32);
    let each = resident().saturating_sub(before) / CLIENTS as u64;
    println!("{each} bytes for each that waits");
    assert!(each <= 6 * 1024, "{each} bytes for each that waits, its task included");
    held.iter().for_each(|held| held.give_back(Condition::Clean));
    crew.until(ONE, |counts| counts.waiting == 0 && counts.active == 0);
    assert_eq!((served.load(Ordering::Relaxed), crew.logins()), (CLIENTS, 4));
}
