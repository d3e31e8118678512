//! Pools of several workers to one server.

use std::{
    net::TcpListener,
    sync::{atomic::AtomicU32, mpsc},
    thread,
    time::Instant,
};

mod changes;
mod tiny;

use self::tiny::{Crew, Key, WAIT, acquire};
use super::*;
use weir_base::exchange::LossCause;
use weir_engine::settings::Address;

const ONE: Key = ("db", "one");
const TWO: Key = ("db", "two");

fn pool_of(pool_size: u32) -> PooledSettings {
    PooledSettings { pool_size, ..PooledSettings::default() }
}

/// Longer than any tolerance between workers.
const APART: Duration = Duration::from_millis(20);

#[test]
fn the_limit_is_one_for_all_workers_and_every_client_has_its_turn() {
    const WORKERS: usize = 4;
    let crew = Crew::new(WORKERS, pool_of(3));
    let clients: Vec<_> = (0..WORKERS * 6)
        .map(|number| {
            crew.on(number % WORKERS, async move |upstream| {
                let mut rng = Rng::new(number as u64);
                for _ in 0..60 {
                    let lease = acquire(&upstream, ONE, WAIT).await.expect("its turn comes");
                    match rng.below(4) {
                        0 => weir_engine::sleep(Duration::from_micros(300)).await,
                        1 => weir_engine::yield_now().await,
                        _ => {}
                    }
                    match rng.below(30) {
                        0 => drop(lease),
                        1..=3 => lease.give_back(Condition::Dirty),
                        _ => lease.give_back(Condition::Clean),
                    }
                }
            })
        })
        .collect();
    clients.iter().for_each(|client| client.recv_timeout(3 * WAIT).expect("no client is forgotten"));
    let most = crew.census.most.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most} connections at once");
    crew.until(ONE, |counts| counts.idle == counts.open && counts.active + counts.tested + counts.waiting == 0);
}

#[test]
fn one_that_has_a_connection_can_see_that_others_wait_for_it() {
    for (pool_size, is_awaited) in [(1, true), (3, false)] {
        let crew = Crew::new(2, pool_of(pool_size));
        let (others, has_others) = mpsc::channel();
        let seen = crew.on(0, async move |upstream| {
            let lease = acquire(&upstream, ONE, WAIT).await.expect("a connection");
            let before = lease.is_awaited();
            others.send(()).expect("the test waits");
            let begun = Instant::now();
            while !lease.is_awaited() && begun.elapsed() < APART * 20 {
                weir_engine::sleep(Duration::from_millis(1)).await;
            }
            let seen = (before, lease.is_awaited());
            lease.give_back(Condition::Clean);
            seen
        });
        has_others.recv_timeout(WAIT).expect("the first has one");
        let second = crew.hold(1, ONE);
        assert_eq!(seen.recv_timeout(WAIT), Ok((false, is_awaited)), "a pool of {pool_size}");
        second.id();
    }
}

#[test]
fn an_idle_connection_goes_to_the_worker_that_waits_with_its_state() {
    let crew = Crew::new(2, pool_of(1));
    let first = crew.hold(0, ONE);
    let id = first.id();
    first.give_back(Condition::Clean);
    crew.until(ONE, |counts| counts.idle == 1);
    crew.server.say("hello\n");
    // The notice may be on its way.
    crew.ask(0, async |upstream| {
        let begun = Instant::now();
        loop {
            let mut lease = acquire(&upstream, ONE, WAIT).await.expect("idle");
            let has_come = lease.state().notices == "hello\n";
            lease.give_back(Condition::Clean);
            if has_come {
                return;
            }
            assert!(begun.elapsed() < WAIT, "no notice");
            weir_engine::sleep(Duration::from_millis(1)).await;
        }
    });
    let begun = Instant::now();
    for worker in (0..30).map(|round| (round + 1) % 2) {
        let (moved, notices) = crew.ask(worker, async |upstream| {
            let mut lease = acquire(&upstream, ONE, WAIT).await.expect("it moves");
            let (stream, state) = lease.parts();
            assert!(upstream.protocol().check(stream, state).await, "it is alive");
            let found = (lease.id(), lease.state().notices.clone());
            lease.give_back(Condition::Clean);
            found
        });
        assert_eq!((moved, &*notices), (id, "hello\n"));
    }
    // Without the bell each move would wait for the next look at idle connections, which comes once a second.
    assert!(begun.elapsed() < 15 * upkeep::IDLE_LOOK, "{:?}", begun.elapsed());
    assert_eq!(crew.logins(), 1);
}

#[test]
fn the_oldest_of_all_workers_is_next() {
    let crew = Crew::new(3, pool_of(1));
    let first = crew.hold(0, ONE);
    first.id();
    let waiting: Vec<_> = [2, 0, 1, 0, 2]
        .into_iter()
        .map(|worker| {
            let held = crew.hold(worker, ONE);
            thread::sleep(APART);
            held
        })
        .collect();
    crew.until(ONE, |counts| counts.waiting == 5 && counts.maxwait >= APART);
    let mut before = &first;
    for (at, held) in waiting.iter().enumerate() {
        assert!(waiting[at..].iter().all(|one| one.is_waiting()), "nobody passes");
        before.give_back(Condition::Clean);
        held.id();
        before = held;
    }
    assert_eq!(crew.logins(), 1);
}

#[test]
fn one_that_waits_is_noticed_once_and_refused_at_its_deadline() {
    let crew = Crew::new(2, pool_of(1));
    let held = crew.hold(0, ONE);
    held.id();
    let (notices, error, took) = crew.ask(1, async |upstream| {
        let (notices, begun) = (Cell::new(0), Instant::now());
        let at = |millis| turn::now().saturating_add(Duration::from_millis(millis));
        let patience = Patience { since: at(0), deadline: at(200), notify_at: Some(at(50)) };
        let on_wait = || notices.set(notices.get() + 1);
        let acquired = upstream.pool(&ONE).acquire(Default::default(), patience, on_wait).await;
        (notices.get(), acquired.err().expect("none is free"), begun.elapsed())
    });
    assert_eq!((notices, error.refusal), (1, Refusal::QueueTimeout));
    assert!(took >= Duration::from_millis(190) && took < WAIT, "{took:?}");
    held.give_back(Condition::Clean);
    crew.until(ONE, |counts| counts.idle == 1 && counts.waiting == 0);
}

#[test]
fn a_key_has_its_turn_though_another_one_is_always_busy() {
    let settings = PooledSettings { max_db_connections: Some(1), ..pool_of(5) };
    let crew = Crew::new(2, settings);
    let is_over = Arc::new(AtomicU32::new(0));
    let busy: Vec<_> = (0..4)
        .map(|number| {
            let is_over = is_over.clone();
            crew.on(number % 2, async move |upstream| {
                while is_over.load(Ordering::Relaxed) == 0 {
                    let lease = acquire(&upstream, ONE, WAIT).await.expect("its turn comes");
                    weir_engine::sleep(Duration::from_millis(1)).await;
                    lease.give_back(Condition::Clean);
                }
            })
        })
        .collect();
    for worker in [0, 1, 0] {
        crew.ask(worker, async |upstream| {
            acquire(&upstream, TWO, WAIT).await.expect("its turn comes").give_back(Condition::Clean);
        });
    }
    is_over.store(1, Ordering::Relaxed);
    busy.iter().for_each(|client| client.recv_timeout(WAIT).expect("no client is forgotten"));
    assert_eq!(crew.census.most.load(Ordering::SeqCst), 1);
}

#[test]
fn a_limit_per_user_counts_all_databases() {
    let crew = Crew::new(2, PooledSettings { max_user_connections: Some(2), ..pool_of(5) });
    let held = [crew.hold(0, ("a", "one")), crew.hold(1, ("b", "one"))];
    held.iter().for_each(|held| assert!(held.id() > 0));
    let (third, other) = (crew.hold(0, ("c", "one")), crew.hold(0, ("c", "other")));
    other.id();
    assert!(third.is_waiting());
    held[1].give_back(Condition::Clean);
    third.id();
    assert_eq!(crew.counts(("b", "one")).open, 0, "an idle connection makes room");
}

#[test]
fn a_refused_login_is_for_those_of_its_key_and_makes_no_storm() {
    let crew = Crew::new(2, pool_of(5));
    crew.server.with(|now| now.refuses.insert("db/one".into()));
    let refused: Vec<_> = (0..40).map(|number| crew.hold(number % 2, ONE)).collect();
    let other = crew.hold(0, TWO);
    other.id();
    for held in &refused {
        let error = held.error();
        assert_eq!((error.refusal, error.words.as_deref()), (Refusal::Greeting, Some(&b"refused\n"[..])));
    }
    let logins = crew.logins();
    assert!(logins <= 12, "{logins} logins for 40 clients of one key");
    crew.server.with(|now| now.refuses.clear());
    crew.hold(1, ONE).id();
}

#[test]
fn a_dead_server_is_waited_for_and_sees_no_storm() {
    let crew = Crew::new(2, pool_of(5));
    crew.server.with(|now| now.is_down = true);
    let keys = [ONE, TWO, ("three", "three")];
    let waiting: Vec<_> = (0..30)
        .map(|number| {
            crew.on(number % 2, async move |upstream| {
                let lease = acquire(&upstream, keys[number % 3], WAIT).await.expect("it comes back");
                lease.give_back(Condition::Clean);
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(500));
    let accepted = crew.server.with(|now| {
        now.is_down = false;
        now.accepted
    });
    assert!((2..=12).contains(&accepted), "{accepted} attempts in half a second");
    waiting.iter().for_each(|client| client.recv_timeout(WAIT).expect("no client is forgotten"));
}

#[test]
fn a_connection_that_ends_while_idle_serves_nobody() {
    let crew = Crew::new(1, pool_of(2));
    let first = crew.hold(0, ONE);
    let id = first.id();
    first.give_back(Condition::Clean);
    crew.until(ONE, |counts| counts.idle == 1);
    crew.server.hang_up();
    crew.until(ONE, |counts| counts.open == 0);
    let second = crew.hold(0, ONE);
    assert_ne!(second.id(), id);
    second.give_back(Condition::Clean);
    crew.until(ONE, |counts| counts.idle == 1);
    crew.server.say("goodbye!");
    crew.until(ONE, |counts| counts.open == 0);
    assert_eq!(crew.census.now.load(Ordering::SeqCst), 0);
}

#[test]
fn a_half_message_keeps_a_connection_from_clients_until_the_rest_is_there() {
    let crew = Crew::new(1, pool_of(1));
    let first = crew.hold(0, ONE);
    let id = first.id();
    first.give_back(Condition::Clean);
    crew.until(ONE, |counts| counts.idle == 1);
    crew.server.say("hel");
    // Until it has arrived the connection may serve.
    let begun = Instant::now();
    while crew.ask(0, async |upstream| {
        upstream.pool(&ONE).try_acquire(&mut Default::default()).is_some_and(|lease| {
            lease.give_back(Condition::Clean);
            true
        })
    }) {
        assert!(begun.elapsed() < WAIT);
    }
    assert_eq!(crew.counts(ONE).idle, 1, "it is kept");
    let waiting = crew.hold(0, ONE);
    crew.server.say("lo\n");
    let next = waiting.id();
    assert!(next == id || crew.logins() == 2, "the same one, or it took too long to come");
}

#[test]
fn a_reset_runs_before_the_next_client_and_one_that_fails_closes() {
    let crew = Crew::new(2, pool_of(1));
    let first = crew.hold(0, ONE);
    let id = first.id();
    let second = crew.hold(1, ONE);
    crew.until(ONE, |counts| counts.waiting == 1);
    first.give_back(Condition::Dirty);
    assert_eq!(second.id(), id);
    crew.server.with(|now| now.fails_resets = true);
    let third = crew.hold(0, ONE);
    crew.until(ONE, |counts| counts.waiting == 1);
    second.give_back(Condition::Dirty);
    assert_ne!(third.id(), id);
    third.lose();
    crew.until(ONE, |counts| counts.open == 0);
    assert_eq!(crew.census.most.load(Ordering::SeqCst), 1);
}

#[test]
fn the_reserve_is_for_one_that_has_waited_for_long() {
    let settings =
        PooledSettings { reserve_pool_size: 1, reserve_pool_timeout: Duration::from_millis(100), ..pool_of(1) };
    let crew = Crew::new(2, settings);
    let first = crew.hold(0, ONE);
    first.id();
    let (begun, second) = (Instant::now(), crew.hold(1, ONE));
    second.id();
    assert!(begun.elapsed() >= Duration::from_millis(90));
    let third = crew.hold(1, ONE);
    thread::sleep(Duration::from_millis(300));
    assert!(third.is_waiting(), "the reserve is used up");
    second.give_back(Condition::Clean);
    third.id();
    third.give_back(Condition::Clean);
    crew.until(ONE, |counts| counts.open == 1 && counts.active == 1);
}

#[test]
fn a_pause_drains_all_workers_and_no_client_fails() {
    let crew = Crew::new(2, pool_of(3));
    let (is_over, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let (is_over, done) = (is_over.clone(), done.clone());
            crew.on(number % 2, async move |upstream| {
                while is_over.load(Ordering::Relaxed) == 0 {
                    let lease = acquire(&upstream, ONE, WAIT).await.expect("no client fails");
                    weir_engine::sleep(Duration::from_micros(500)).await;
                    lease.give_back(Condition::Clean);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let (census, scope) = (crew.census.clone(), Scope::Database((*b"db").into()));
    for scope in [Scope::All, scope, Scope::Key(ONE)] {
        let before = done.load(Ordering::Relaxed);
        let begun = Instant::now();
        while done.load(Ordering::Relaxed) < before + 20 {
            assert!(begun.elapsed() < WAIT, "clients go on");
        }
        let (own, census) = (scope.clone(), census.clone());
        let (open, is_paused) = crew.ask(1, async move |upstream| {
            upstream.pause(&own);
            upstream.drained(&own).await;
            (census.now.load(Ordering::SeqCst), upstream.is_paused(&ONE))
        });
        assert_eq!((open, is_paused), (0, true));
        let paused = done.load(Ordering::Relaxed);
        crew.until(ONE, |counts| counts.waiting == 8);
        assert!(done.load(Ordering::Relaxed) <= paused + 3, "nobody goes on");
        crew.ask(0, async move |upstream| upstream.resume(&scope));
    }
    is_over.store(1, Ordering::Relaxed);
    clients.iter().for_each(|client| client.recv_timeout(WAIT).expect("no client is forgotten"));
}

#[test]
fn a_deadline_that_falls_into_a_pause_is_put_off() {
    let crew = Crew::new(1, pool_of(1));
    crew.ask(0, async |upstream| upstream.pause(&Scope::All));
    let waiting = crew.on(0, async |upstream| {
        acquire(&upstream, ONE, Duration::from_millis(50)).await.map(|lease| lease.id()).map_err(|error| error.refusal)
    });
    thread::sleep(Duration::from_millis(300));
    assert!(waiting.try_recv().is_err(), "it waits");
    crew.ask(0, async |upstream| upstream.resume(&Scope::All));
    waiting.recv_timeout(WAIT).expect("it is forgotten").expect("a connection");
}

#[test]
fn a_reconnect_replaces_each_connection_when_it_is_free() {
    let crew = Crew::new(2, pool_of(2));
    let (first, second) = (crew.hold(0, ONE), crew.hold(1, ONE));
    let (idle, lent) = (first.id(), second.id());
    first.give_back(Condition::Clean);
    crew.until(ONE, |counts| counts.idle == 1);
    crew.ask(1, async |upstream| upstream.reconnect(&Scope::All));
    crew.until(ONE, |counts| counts.idle == 0 && counts.active == 1);
    second.give_back(Condition::Clean);
    crew.until(ONE, |counts| counts.open == 0);
    let third = crew.hold(1, ONE).id();
    assert!(third != idle && third != lent);
    let begun = Instant::now();
    while crew.server.with(|now| now.farewells) < 2 {
        assert!(begun.elapsed() < WAIT, "each takes its leave");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_connection_that_cannot_move_is_closed_for_the_worker_that_waits() {
    let crew = Crew::with(2, pool_of(1), |_| {}, true);
    let first = crew.hold(0, ONE);
    let id = first.id();
    first.give_back(Condition::Clean);
    crew.until(ONE, |counts| counts.idle == 1);
    let second = crew.hold(1, ONE);
    assert_ne!(second.id(), id, "its permit moved");
    let third = crew.hold(0, ONE);
    crew.until(ONE, |counts| counts.waiting == 1);
    second.give_back(Condition::Clean);
    third.id();
    assert_eq!((crew.logins(), crew.census.most.load(Ordering::SeqCst)), (3, 1));
}

#[test]
fn a_worker_without_clients_gives_its_connections_up() {
    let crew = Crew::new(2, pool_of(4));
    let mut first: Vec<_> = (0..4).map(|_| crew.hold(0, ONE)).collect();
    let mut before: Vec<_> = first.iter().map(tiny::Held::id).collect();
    first.drain(..).for_each(|held| held.give_back(Condition::Clean));
    crew.until(ONE, |counts| counts.idle == 4);
    let second: Vec<_> = (0..4).map(|_| crew.hold(1, ONE)).collect();
    let mut after: Vec<_> = second.iter().map(tiny::Held::id).collect();
    before.sort_unstable();
    after.sort_unstable();
    assert_eq!((before, crew.logins()), (after, 4));
}

#[test]
fn clients_that_give_up_leave_no_permit_behind() {
    let crew = Crew::new(3, pool_of(2));
    let clients: Vec<_> = (0..12)
        .map(|number| {
            crew.on(number % 3, async move |upstream| {
                let mut rng = Rng::new(number as u64);
                for _ in 0..80 {
                    let limit = Duration::from_micros(rng.below(3_000));
                    let patience = if rng.below(2) == 0 { limit } else { WAIT };
                    // Some are cut off in the middle of their wait, others come to its end.
                    let acquired = timeout(limit, acquire(&upstream, ONE, patience)).await;
                    if let Ok(Ok(lease)) = acquired {
                        weir_engine::sleep(Duration::from_micros(rng.below(800))).await;
                        lease.give_back(if rng.below(4) == 0 { Condition::Dirty } else { Condition::Clean });
                    }
                }
            })
        })
        .collect();
    clients.iter().for_each(|client| client.recv_timeout(3 * WAIT).expect("no client is forgotten"));
    crew.until(ONE, |counts| counts.open == counts.idle && counts.waiting + counts.active + counts.login == 0);
    assert!(crew.census.most.load(Ordering::SeqCst) <= 2);
    for worker in 0..3 {
        crew.ask(worker, async |upstream| upstream.retire());
    }
    crew.until(ONE, |counts| counts.open == 0);
    assert_eq!(crew.census.now.load(Ordering::SeqCst), 0);
}

#[test]
fn idle_connections_grow_old_down_to_the_least_number() {
    let settings = PooledSettings {
        min_pool_size: 1,
        server_idle_timeout: Duration::from_millis(1),
        server_check_delay: Duration::ZERO,
        ..pool_of(3)
    };
    let crew = Crew::new(1, settings);
    let held: Vec<_> = (0..3).map(|_| crew.hold(0, ONE)).collect();
    held.iter().for_each(|held| assert!(held.id() > 0));
    assert_eq!(crew.server.with(|now| now.checks), 0, "new ones need no check");
    held.iter().for_each(|held| held.give_back(Condition::Clean));
    crew.until(ONE, |counts| counts.used == 1 && counts.open == 1);
    crew.hold(0, ONE).id();
    assert_eq!(crew.server.with(|now| now.checks), 1);
    let crew = Crew::new(1, PooledSettings { server_lifetime: Duration::from_millis(1), ..pool_of(3) });
    let held = crew.hold(0, ONE);
    held.id();
    thread::sleep(APART);
    held.give_back(Condition::Clean);
    crew.until(ONE, |counts| counts.open == 0);
}

#[test]
fn a_key_with_clients_has_the_least_number_of_connections() {
    let crew = Crew::new(2, PooledSettings { min_pool_size: 2, ..pool_of(3) });
    let pool = crew.on(1, async |upstream| {
        let _client = upstream.pool(&ONE);
        weir_engine::sleep(2 * WAIT).await;
    });
    crew.until(ONE, |counts| counts.idle == 2 && counts.open == 2);
    drop(pool);
}

#[test]
fn the_line_of_a_worker_is_bounded() {
    let crew = Crew::with(1, pool_of(1), |settings| settings.lane_waiters_max = 1, false);
    let held = crew.hold(0, ONE);
    held.id();
    let waiting = crew.hold(0, ONE);
    crew.until(ONE, |counts| counts.waiting == 1);
    assert_eq!(crew.hold(0, ONE).error().refusal, Refusal::QueueFull);
    held.give_back(Condition::Clean);
    waiting.id();
}

#[test]
fn a_lease_that_is_closed_or_dropped_returns_its_permit() {
    let crew = Crew::new(1, pool_of(1));
    crew.ask(0, async |upstream| {
        for is_closed in [true, false] {
            let lease = acquire(&upstream, ONE, WAIT).await.expect("a connection");
            assert_eq!(lease.number(), 0);
            match is_closed {
                true => lease.close(LossCause::Retired),
                false => drop(lease),
            }
        }
    });
    crew.until(ONE, |counts| counts.open == 0);
    assert_eq!(crew.logins(), 2);
}

#[test]
fn another_endpoint_serves_where_one_cannot_be_reached() {
    // A port without a listener.
    let dead = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let change = |settings: &mut UpstreamSettings| settings.endpoints.insert(0, Address::Socket(dead));
    let crew = Crew::with(2, pool_of(4), change, false);
    let clients: Vec<_> = (0..8)
        .map(|number| {
            crew.on(number % 2, async |upstream| {
                let lease = acquire(&upstream, ONE, WAIT).await.expect("the other one serves");
                let number = lease.number();
                lease.give_back(Condition::Clean);
                number
            })
        })
        .collect();
    for client in clients {
        assert_eq!(client.recv_timeout(WAIT).expect("no client is forgotten"), 1);
    }
    let crew = Crew::with(1, pool_of(4), |settings| settings.endpoints = vec![Address::Socket(dead); 2], false);
    let begun = Instant::now();
    let acquired = crew.ask(0, async |upstream| acquire(&upstream, ONE, Duration::from_millis(300)).await.map(|_| ()));
    let error = acquired.expect_err("none serves");
    assert!(matches!(error.refusal, Refusal::Unreachable | Refusal::BreakerOpen), "{error:?}");
    assert!(begun.elapsed() >= Duration::from_millis(290), "it waits as long as it may");
}
