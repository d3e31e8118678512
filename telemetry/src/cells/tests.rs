use super::*;
use crate::catalog::{
    ACCEPT_ERRORS, AI_STORE_CONTACT_AGE, BREAKER_STATE, CONNECTIONS_OPEN, ENDPOINT_UP, FLAGS_POLL_AGE,
    REQUEST_DURATION, REQUESTS_TOTAL, SHED, WORKER_BUSY_RATIO, WORKER_CONNECTIONS,
};
use std::thread;
use std::time::Duration;

use weir_base::limits::METRIC_LABEL_SETS_MAX;

#[test]
fn the_same_labels_on_the_same_core_are_the_same_cell() {
    let registry = Registry::new();
    let core = registry.core(0);
    let (a, b) = (core.counter(&SHED, &["cache", "full"]), core.counter(&SHED, &["cache", "full"]));
    a.add(2);
    b.inc();
    assert_eq!((a.value(), b.value()), (3, 3));
    core.counter(&SHED, &["cache", "other"]).inc();
    let snapshot = registry.read();
    assert_eq!(snapshot.counter("weir_shed_total", &[("reason", "full")]), Some(3));
    assert_eq!(snapshot.counter("weir_shed_total", &[("listener", "cache")]), Some(4));
    assert_eq!(snapshot.counter("weir_shed_total", &[("listener", "web")]), None);
    assert_eq!(snapshot.counter("weir_connections_open", &[]), None, "a gauge is not a counter");
}

#[test]
fn cores_add_up_and_workers_stay_apart() {
    let registry = Registry::new();
    thread::scope(|scope| {
        for number in 0..4u32 {
            let registry = &registry;
            scope.spawn(move || {
                let core = registry.core(number);
                let requests = core.counter(&REQUESTS_TOTAL, &["cache", "read"]);
                let duration = core.histogram(&REQUEST_DURATION, &["cache"]);
                for n in 0..10_000 {
                    requests.inc();
                    duration.record(n);
                }
                core.gauge(&WORKER_CONNECTIONS, &[&number.to_string()]).set(i64::from(number) + 1);
            });
        }
    });
    let snapshot = registry.read();
    assert_eq!(snapshot.counter("weir_requests_total", &[]), Some(40_000));
    let duration = snapshot.histogram("weir_request_duration_seconds", &[("listener", "cache")]).unwrap();
    assert_eq!((duration.count(), duration.sum()), (40_000, 4 * (9_999 * 10_000 / 2)));
    let owned = snapshot.by("weir_worker_connections", "worker", &[]);
    assert_eq!(owned.len(), 4);
    assert_eq!(owned["3"], Value::Gauge(4));
}

#[test]
fn a_reader_sees_a_counter_that_only_grows_while_it_is_written() {
    let registry = Registry::new();
    let writer = registry.clone();
    let thread = thread::spawn(move || {
        let counter = writer.core(0).counter(&REQUESTS_TOTAL, &["cache", "read"]);
        (0..300_000).for_each(|_| counter.inc());
    });
    let mut last = 0;
    while last < 300_000 {
        let now = registry.read().counter("weir_requests_total", &[]).unwrap_or(0);
        assert!(now >= last);
        last = now;
    }
    thread.join().unwrap();
    assert_eq!(last, 300_000);
}

#[test]
fn durations_are_shown_in_seconds() {
    let registry = Registry::new();
    let age = registry.core(0).gauge(&FLAGS_POLL_AGE, &["flags", "development"]);
    age.set_duration(Duration::from_millis(1_500));
    registry.shared().gauge(&AI_STORE_CONTACT_AGE, &[]).set_duration(Duration::from_secs(90));
    let page = crate::prometheus::render(&registry.read());
    for line in [
        "weir_flags_poll_age_seconds{listener=\"flags\",environment=\"development\"} 1.5",
        "weir_ai_store_contact_age_seconds 90",
    ] {
        assert!(page.lines().any(|one| one == line), "{line} is missing:\n{page}");
    }
}

#[test]
fn gauges_merge_as_their_family_says() {
    let registry = Registry::new();
    let (a, b) = (registry.core(0), registry.core(1));
    let endpoint = ["redis-main", "127.0.0.1:6379"];
    for (core, open, up, breaker) in [(&a, 5, 1, 0), (&b, -2, 0, 2)] {
        core.gauge(&CONNECTIONS_OPEN, &["cache"]).set(open);
        core.gauge(&ENDPOINT_UP, &endpoint).set(up);
        core.gauge(&BREAKER_STATE, &endpoint).set(breaker);
    }
    a.gauge(&WORKER_BUSY_RATIO, &["0"]).set_ratio(0.25);
    let snapshot = registry.read();
    assert_eq!(snapshot.gauge("weir_connections_open", &[]), Some(3), "handed over from one core to the other");
    assert_eq!(snapshot.gauge("weir_endpoint_up", &[]), Some(0));
    assert_eq!(snapshot.gauge("weir_breaker_state", &[]), Some(2));
    assert_eq!(snapshot.number("weir_worker_busy_ratio", &[("worker", "0")]), Some(0.25));
}

#[test]
fn a_guard_counts_down_when_it_is_dropped() {
    let registry = Registry::new();
    let gauge = registry.core(0).gauge(&CONNECTIONS_OPEN, &["cache"]);
    let guards: Vec<GaugeGuard> = (0..3).map(|_| gauge.guard()).collect();
    assert_eq!(gauge.value(), 3);
    drop(guards);
    assert_eq!(registry.read().gauge("weir_connections_open", &[]), Some(0));
}

#[test]
fn a_total_counted_elsewhere_never_goes_back() {
    let counter = Registry::new().core(0).counter(&SHED, &["cache", "full"]);
    counter.advance_to(7);
    counter.advance_to(5);
    assert_eq!(counter.value(), 7);
}

#[test]
fn label_sets_beyond_the_limit_are_counted_under_other() {
    let registry = Registry::new();
    let core = registry.core(0);
    for n in 0..METRIC_LABEL_SETS_MAX + 10 {
        core.counter(&ACCEPT_ERRORS, &["cache", &format!("class-{n}")]).inc();
    }
    core.counter(&ACCEPT_ERRORS, &["cache", "class-3"]).inc();
    let snapshot = registry.read();
    let other = [("listener", "other"), ("class", "other")];
    assert_eq!(snapshot.counter("weir_accept_errors_total", &other), Some(10));
    assert_eq!(snapshot.counter("weir_accept_errors_total", &[("class", "class-3")]), Some(2));
    assert_eq!(snapshot.family("weir_accept_errors_total").unwrap().series.len(), METRIC_LABEL_SETS_MAX + 1);
    let overflows = [("family", "weir_accept_errors_total")];
    assert_eq!(snapshot.counter("weir_telemetry_label_overflows_total", &overflows), Some(10));
}

#[test]
fn a_long_label_value_is_cut_at_a_character() {
    let registry = Registry::new();
    let name = "ä".repeat(100) + "x";
    registry.core(0).gauge(&CONNECTIONS_OPEN, &[&name]).set(1);
    let snapshot = registry.read();
    let series = &snapshot.family("weir_connections_open").unwrap().series;
    assert_eq!(series[0].labels[0].as_ref(), "ä".repeat(64));
}

/// A thousand renamed listeners leave neither series nor cells behind.
#[test]
fn retired_series_disappear_and_their_cells_are_used_again() {
    let registry = Registry::new();
    let core = registry.core(0);
    let kept = core.counter(&REQUESTS_TOTAL, &["kept", "read"]);
    kept.inc();
    for n in 0..1_000 {
        let name = format!("listener-{n}");
        let (open, shed) = (core.gauge(&CONNECTIONS_OPEN, &[&name]), core.counter(&SHED, &[&name, "full"]));
        assert_eq!((open.value(), shed.value()), (0, 0), "a reused cell starts at zero");
        open.set(9);
        shed.add(9);
        core.histogram(&REQUEST_DURATION, &[&name]).record(1);
        drop(open);
        assert_eq!(registry.retire("listener", &name), 3);
        shed.add(1);
        assert_eq!(registry.read().counter("weir_shed_total", &[]), None, "no reader sees a retired series");
    }
    assert_eq!(registry.retire("listener", "never there"), 0);
    assert_eq!(registry.read().counter("weir_requests_total", &[]), Some(1));
    let free = lock(&core.block.free).len();
    assert_eq!(free, CHUNK_CELLS - 1, "one chunk was enough, and only the kept cell is taken");
}

#[test]
fn a_family_forgets_one_name_while_the_others_keep_it() {
    let registry = Registry::new();
    let (core, shared) = (registry.core(0), registry.shared());
    core.counter(&REQUESTS_TOTAL, &["cache", "read"]).inc();
    for name in ["cache", "other"] {
        shared.gauge(&CONNECTIONS_OPEN, &[name]).set(4);
    }
    assert!(registry.retire_series(&CONNECTIONS_OPEN, &["cache"]));
    assert!(!registry.retire_series(&CONNECTIONS_OPEN, &["cache"]), "it is gone");
    let snapshot = registry.read();
    assert_eq!(snapshot.gauge("weir_connections_open", &[("listener", "cache")]), None);
    assert_eq!(snapshot.gauge("weir_connections_open", &[("listener", "other")]), Some(4));
    assert_eq!(snapshot.counter("weir_requests_total", &[("listener", "cache")]), Some(1));
}

#[test]
fn one_counter_is_read_by_itself() {
    let registry = Registry::new();
    for id in 0..3 {
        registry.core(id).counter(&REQUESTS_TOTAL, &["cache", "read"]).add(5);
        registry.core(id).counter(&REQUESTS_TOTAL, &["cache", "write"]).add(1);
    }
    assert_eq!(registry.count(&REQUESTS_TOTAL, &["cache", "read"]), Some(15));
    assert_eq!(registry.count(&REQUESTS_TOTAL, &["cache", "local"]), None);
    registry.core(0).gauge(&CONNECTIONS_OPEN, &["cache"]).inc();
    assert_eq!(registry.count(&CONNECTIONS_OPEN, &["cache"]), None, "a gauge is no count");
}

#[test]
fn a_family_of_classes_has_room_for_all_classes_of_as_many_names() {
    let registry = Registry::new();
    let core = registry.core(0);
    for n in 0..METRIC_LABEL_SETS_MAX {
        for class in catalog::RESPONSE_CLASSES {
            core.counter(&catalog::HTTP_LISTENER_RESPONSES, &[&format!("listener-{n}"), class]).inc();
        }
    }
    let family = [("family", "weir_http_listener_responses_total")];
    assert_eq!(registry.read().counter("weir_telemetry_label_overflows_total", &family), None);
    let last = format!("listener-{}", METRIC_LABEL_SETS_MAX - 1);
    assert_eq!(registry.count(&catalog::HTTP_LISTENER_RESPONSES, &[&last, "aborted"]), Some(1));
    core.counter(&catalog::HTTP_LISTENER_RESPONSES, &["one more", "2xx"]).inc();
    assert_eq!(registry.read().counter("weir_telemetry_label_overflows_total", &family), Some(1));
}

#[test]
fn a_sum_over_one_family_is_that_of_a_full_read() {
    let registry = Registry::new();
    for id in 0..3 {
        let core = registry.core(id);
        core.counter(&REQUESTS_TOTAL, &["cache", "read"]).add(5);
        core.counter(&REQUESTS_TOTAL, &["cache", "write"]).add(u64::from(id));
        core.counter(&REQUESTS_TOTAL, &["other", "read"]).add(1_000);
    }
    let read = registry.read().counter("weir_requests_total", &[("listener", "cache")]);
    assert_eq!((registry.sum(&REQUESTS_TOTAL, "listener", "cache"), read), (Some(18), Some(18)));
    assert_eq!(registry.sum(&REQUESTS_TOTAL, "listener", "nobody"), None);
    assert_eq!(registry.sum(&CONNECTIONS_OPEN, "listener", "cache"), None, "a gauge is no count");
}

#[test]
fn shared_handles_count_exactly_from_many_threads() {
    let registry = Registry::new();
    let counter = registry.shared().counter(&SHED, &["cache", "full"]);
    let gauge = registry.shared().gauge(&CONNECTIONS_OPEN, &["cache"]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..10_000).for_each(|_| {
                    counter.inc();
                    gauge.add(1);
                    gauge.add(-1);
                })
            });
        }
    });
    registry.core(0).counter(&SHED, &["cache", "full"]).inc();
    assert_eq!(registry.read().counter("weir_shed_total", &[]), Some(40_001));
    assert_eq!(gauge.value(), 0);
}

#[test]
fn lower_levels_measure_less_and_accept_the_same_calls() {
    for (level, exposed, recorded) in [(Level::Off, None, 0), (Level::Counters, Some(1), 0), (Level::Full, Some(1), 1)]
    {
        let registry = Registry::with_level(level);
        let core = registry.core(0);
        let (counter, gauge) = (core.counter(&SHED, &["cache", "full"]), core.gauge(&CONNECTIONS_OPEN, &["cache"]));
        let histogram = core.histogram(&REQUEST_DURATION, &["cache"]);
        counter.inc();
        gauge.inc();
        histogram.record(5);
        let (snapshot, shown) = (registry.read(), registry.exposed());
        assert_eq!(shown.counter("weir_shed_total", &[]), exposed);
        assert_eq!(snapshot.counter("weir_shed_total", &[]), Some(1), "the admin API knows all counts");
        assert_eq!(shown.gauge("weir_connections_open", &[]), Some(1), "state is always known");
        let known = snapshot.histogram("weir_request_duration_seconds", &[]).map(|histogram| histogram.count());
        assert_eq!(known, (recorded == 1).then_some(1), "what does not record is not known");
        assert_eq!(histogram.snapshot().count(), recorded);
        assert_eq!(histogram.is_enabled(), recorded == 1);
    }
}

#[test]
fn a_level_that_is_set_holds_for_the_handles_that_there_are() {
    let registry = Registry::with_level(Level::Off);
    let core = registry.core(0);
    let (counter, histogram) = (core.counter(&SHED, &["cache", "full"]), core.histogram(&REQUEST_DURATION, &["cache"]));
    let record = || {
        counter.inc();
        histogram.record(5);
        let snapshot = registry.exposed();
        let durations = snapshot.family(REQUEST_DURATION.name);
        let shown = durations.map_or(0, |family| family.series.len());
        (snapshot.counter("weir_shed_total", &[]), histogram.snapshot().count(), shown)
    };
    assert_eq!(record(), (None, 0, 0));
    registry.set_level(Level::Full);
    assert_eq!(record(), (Some(2), 1, 1), "a counter has counted all along");
    registry.set_level(Level::Counters);
    let late = core.histogram(&REQUEST_DURATION, &["late"]);
    late.record(5);
    assert_eq!((record(), late.snapshot().count()), ((Some(3), 1, 0), 0));
    registry.set_level(Level::Full);
    late.record(5);
    assert_eq!((record(), late.snapshot().count()), ((Some(4), 2, 2), 1));
}

#[test]
fn what_the_control_thread_counts_is_exposed_at_every_level() {
    let registry = Registry::with_level(Level::Off);
    registry.shared().counter(&SHED, &["cache", "full"]).inc();
    assert_eq!(registry.exposed().counter("weir_shed_total", &[]), Some(1));
}

#[test]
#[should_panic(expected = "weir_shed_total has the labels")]
fn a_wrong_number_of_labels_is_a_mistake_in_the_code() {
    let _ = Registry::new().core(0).counter(&SHED, &["cache"]);
}

#[test]
fn cells_of_a_core_do_not_share_cache_lines_with_another_core() {
    assert_eq!((align_of::<Chunk>(), size_of::<Chunk>()), (128, 8 * CHUNK_CELLS));
    assert_eq!(size_of::<Counter>(), 8, "a handle is one pointer");
}
