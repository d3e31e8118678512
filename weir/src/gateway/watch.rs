//! The control thread's look at the workers: processor time, stalls, load.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use weir_base::time::Time;
use weir_telemetry::{SharedCounter, SharedGauge, SharedMetrics, catalog};

use super::{
    Gateway,
    certificates::{self, CertificateWatch},
    errors::ErrorWatch,
    knee::KneeWatch,
    lock,
};

const LOOK: Duration = Duration::from_millis(250);
/// A loop turn longer than this is a stalled worker: thousands of connections wait for it.
pub const STALL: Duration = Duration::from_secs(5);

/// After a peak of at least this many connections memory is given back once half of them have gone.
const PEAK_MIN: usize = 1_000;
/// Looks after which the start is over: half a second.
const STARTED_AFTER: u64 = 2;

struct WorkerCells {
    cpu: SharedCounter,
    turns: SharedCounter,
    stalls: SharedCounter,
    connections: SharedGauge,
    depth: SharedGauge,
    busy: SharedGauge,
    last: (u64, Instant),
    is_stalled: bool,
}

/// Publishes what the workers say of themselves until the gateway stops.
pub fn run(gateway: &Gateway) {
    let shared = gateway.registry.shared();
    let mut cells: Vec<WorkerCells> = (0..gateway.states.len())
        .map(|id| {
            let worker = id.to_string();
            let label = [&*worker];
            shared.gauge(&catalog::WORKER_DRIVER_INFO, &[&worker, gateway.driver.name()]).set(1);
            WorkerCells {
                cpu: shared.counter(&catalog::WORKER_CPU_SECONDS, &label),
                turns: shared.counter(&catalog::WORKER_LOOP_TURNS, &label),
                stalls: shared.counter(&catalog::WORKER_STALLS, &label),
                connections: shared.gauge(&catalog::WORKER_CONNECTIONS, &label),
                depth: shared.gauge(&catalog::WORKER_MAILBOX_DEPTH, &label),
                busy: shared.gauge(&catalog::WORKER_BUSY_RATIO, &label),
                last: (0, Instant::now()),
                is_stalled: false,
            }
        })
        .collect();
    let mut peak = 0;
    let (mut knees, mut errors) = (KneeWatch::default(), ErrorWatch::default());
    let mut served = CertificateWatch::default();
    let (mut looks, mut is_caching) = (0, false);
    while !gateway.stopping.load(Ordering::Relaxed) {
        shared.gauge(&catalog::CONNECTIONS_LIMIT, &[]).set(gateway.snapshot().limits.connections.into());
        shared.gauge(&catalog::BUFFERED_LIMIT_BYTES, &[]).set(gateway.bytes.limit() as i64);
        for (id, cells) in cells.iter_mut().enumerate() {
            look(gateway, id, cells);
        }
        looks += 1;
        if looks == STARTED_AFTER {
            release_start();
        }
        let loads = knees.look(&gateway.registry, &gateway.snapshot(), Time::now());
        *lock(&gateway.loads) = loads;
        let shares = errors.look(&gateway.registry, &gateway.snapshot(), Time::now());
        *lock(&gateway.errors) = shares;
        if let Some(is_failing) = gateway.spend.is_failing() {
            shared.gauge(&catalog::AI_JOURNAL_FAILING, &[]).set(is_failing.into());
        }
        if let Some(store) = gateway.spend.store() {
            show_store(store.status(), &shared);
        }
        if let Some(cache) = gateway.spend.cache() {
            is_caching |= cache.bytes() > 0;
            if is_caching {
                show_cache(cache, &shared);
            }
        }
        served.look(&gateway.registry, &gateway.snapshot(), certificates::now());
        let connections = gateway.connections();
        peak = peak.max(connections);
        if peak >= PEAK_MIN && connections < peak / 2 {
            peak = connections;
            weir_engine::net::release_free_memory();
        }
        thread::sleep(LOOK);
    }
}

/// The exact cache of AI, from its first response on.
fn show_cache(cache: &weir_ai::ResponseCache, shared: &SharedMetrics) {
    shared.gauge(&catalog::AI_CACHE_BYTES, &[]).set(cache.bytes() as i64);
    let evictions = cache.evictions();
    for (reason, count) in [("capacity", evictions.capacity), ("expired", evictions.expired)] {
        shared.counter(&catalog::AI_CACHE_EVICTIONS, &[reason]).advance_to(count);
    }
}

/// The store of shared budgets.
fn show_store(status: &weir_ai::store::StoreStatus, shared: &SharedMetrics) {
    shared.gauge(&catalog::AI_STORE_IN_CONTACT, &[]).set(status.is_in_contact().into());
    shared.gauge(&catalog::AI_STORE_CONTACT_AGE, &[]).set_duration(Time::now().since(status.contact()));
    let tally = status.tally();
    let claims = [
        ("granted", tally.granted),
        ("refused", tally.refused),
        ("given_back", tally.given_back),
        ("expired", tally.expired),
    ];
    for (outcome, count) in claims {
        shared.counter(&catalog::AI_STORE_CLAIMS, &[outcome]).advance_to(count);
    }
    for (reason, count) in status.failures() {
        shared.counter(&catalog::AI_STORE_FAILURES, &[reason]).advance_to(count);
    }
    shared.counter(&catalog::AI_STORE_EPOCHS, &[]).advance_to(status.epochs());
}

/// The memory that only the start needed.
fn release_start() {
    if let Err(error) = weir_engine::net::release_program_pages() {
        tracing::debug!(%error, "the pages of the start stay in memory");
    }
}

fn look(gateway: &Gateway, id: usize, cells: &mut WorkerCells) {
    let state = &gateway.states[id];
    let cpu = state.cpu_nanos.load(Ordering::Relaxed);
    cells.cpu.advance_to(cpu);
    cells.turns.advance_to(state.turns.load(Ordering::Relaxed));
    cells.connections.set(state.connections.load(Ordering::Relaxed) as i64);
    cells.depth.set(gateway.mailboxes[id].depth() as i64);
    let (before, since) = std::mem::replace(&mut cells.last, (cpu, Instant::now()));
    let ratio = (cpu - before) as f64 / since.elapsed().as_nanos().max(1) as f64;
    cells.busy.set((ratio.min(1.0) * 1e6) as i64);
    let age = state.turn_age(Time::now());
    let is_stalled = age > STALL;
    if is_stalled && !cells.is_stalled {
        cells.stalls.inc();
        tracing::error!(worker = id, ?age, "the worker is stuck in one loop turn");
    }
    cells.is_stalled = is_stalled;
}
