//! What stands on the screen for which samples.

use std::time::{Duration, Instant};

use weir_admin::status::{Breaker, Health, ListenerState, Verdict};

use super::{knee, listener, sample, screen, state_of, upstream, words};
use crate::top::exposition::Exposition;
use crate::top::render;

/// Request buckets of one listener: this many below 1 ms, this many below 4 ms.
fn buckets(fast: u64, all: u64) -> Exposition {
    Exposition::parse(&format!(
        "weir_request_duration_seconds_bucket{{listener=\"cache\",le=\"0.001\"}} {fast}\n\
         weir_request_duration_seconds_bucket{{listener=\"cache\",le=\"0.004\"}} {all}\n\
         weir_request_duration_seconds_bucket{{listener=\"cache\",le=\"+Inf\"}} {all}\n\
         process_resident_memory_bytes 12582912\n\
         process_open_fds 42\n\
         process_max_fds 65536\n"
    ))
}

#[test]
fn rates_are_per_second_of_the_window() {
    let start = Instant::now();
    let mut state = state_of([
        sample(start, 0.0, vec![listener("cache", 1000)]),
        sample(start, 2.0, vec![listener("cache", 5000)]),
    ]);
    let lines = screen(&mut state, 80, 24, start);
    assert_eq!(words(&lines, "cache")[..4], ["cache", "accepting", "50", "2000"]);
    assert!(lines[1].contains("req/s 2000") && lines[1].contains("cpu 75%"), "{}", lines[1]);
    assert_eq!(words(&lines, "0"), ["0", "50.0", "7", "io_uring"]);
    assert_eq!(words(&lines, "1"), ["1", "25.0", "7", "io_uring"]);
}

#[test]
fn quantiles_are_those_of_the_window_when_buckets_are_there() {
    let start = Instant::now();
    let mut first = sample(start, 0.0, vec![listener("cache", 1000)]);
    // A slow past that the window must not show.
    first.metrics = buckets(0, 1000);
    let mut second = sample(start, 1.0, vec![listener("cache", 2000)]);
    second.metrics = buckets(1000, 2000);
    let mut state = state_of([first, second]);
    let lines = screen(&mut state, 80, 24, start);
    assert_eq!(words(&lines, "cache")[4..7], ["500us", "990us", "999us"]);
    assert!(lines[1].contains("rss 12.0 MiB  fds 42"), "{}", lines[1]);
    assert!(!lines[23].contains("since start"));
    let wide = screen(&mut state, 120, 24, start);
    assert!(wide[0].ends_with("over 1.0 s") && wide[1].contains("fds 42/65.5k"), "{wide:#?}");
}

#[test]
fn without_buckets_quantiles_are_marked_as_since_start() {
    let start = Instant::now();
    let mut state = state_of([
        sample(start, 0.0, vec![listener("cache", 1000)]),
        sample(start, 1.0, vec![listener("cache", 2000)]),
    ]);
    let lines = screen(&mut state, 80, 24, start);
    assert_eq!(words(&lines, "cache")[4..7], ["500us*", "2.50ms*", "12.5ms*"]);
    assert!(lines[23].ends_with("* since start"), "{}", lines[23]);
}

#[test]
fn one_sample_has_no_rates() {
    let start = Instant::now();
    let mut state = state_of([sample(start, 0.0, vec![listener("cache", 1000)])]);
    let lines = screen(&mut state, 80, 24, start);
    assert_eq!(words(&lines, "cache")[3], "-");
    assert!(lines[1].contains("req/s -") && lines[1].contains("cpu -"), "{}", lines[1]);
}

#[test]
fn a_restarted_process_has_no_rates_from_before() {
    let start = Instant::now();
    let mut restarted = sample(start, 1.0, vec![listener("cache", 10)]);
    restarted.version.pid = 8;
    let mut state = state_of([sample(start, 0.0, vec![listener("cache", 1000)]), restarted]);
    assert_eq!(words(&screen(&mut state, 80, 24, start), "cache")[3], "-");
}

#[test]
fn a_listener_that_a_reload_added_counts_from_zero() {
    let start = Instant::now();
    let mut state = state_of([sample(start, 0.0, vec![]), sample(start, 1.0, vec![listener("cache", 300)])]);
    assert_eq!(words(&screen(&mut state, 80, 24, start), "cache")[3], "300");
}

#[test]
fn refusals_are_listed_by_listener_and_reason_the_fastest_first() {
    let start = Instant::now();
    let with = |shed: u64, refused: u64| {
        let mut cache = listener("cache", 100);
        cache.shed_total.insert("in_flight".to_owned(), shed);
        cache.refused_total.insert("source_connections".to_owned(), refused);
        cache.refused_total.insert("never".to_owned(), 0);
        cache
    };
    let mut state = state_of([sample(start, 0.0, vec![with(10, 1)]), sample(start, 1.0, vec![with(15, 41)])]);
    let lines = screen(&mut state, 80, 24, start);
    let begin = lines.iter().position(|line| line.contains("REFUSED")).expect("the table");
    assert!(lines[begin + 1].ends_with("cache connection source_connections      40     41"), "{lines:#?}");
    assert!(lines[begin + 2].contains("cache request in_flight"), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("never")));
    assert_eq!(words(&lines, "cache").last(), Some(&"5"), "shed per second of the listener");
}

#[test]
fn trouble_is_told_on_the_alert_line_the_worst_first() {
    let start = Instant::now();
    let mut trouble = sample(start, 0.0, vec![listener("cache", 100)]);
    trouble.upstreams[0].endpoints[0].health = Health::Unhealthy;
    trouble.upstreams[0].endpoints[0].last_error = Some("connection refused".to_owned());
    trouble.listeners[0].state = ListenerState::Draining;
    let mut state = state_of([trouble.clone()]);
    let lines = screen(&mut state, 80, 24, start);
    assert_eq!(lines[2], "! redis-main 10.0.0.1:6379 unhealthy: connection refused");
    assert!(words(&lines, "redis-main").contains(&"UNHEALTHY"));
    assert_eq!(words(&lines, "cache")[1], "draining");

    trouble.readiness.status = Verdict::Fail;
    trouble.readiness.checks[0].status = Verdict::Fail;
    trouble.workers[1].stalled = true;
    let mut state = state_of([trouble]);
    let lines = screen(&mut state, 80, 24, start);
    assert!(lines[0].contains("NOT READY"), "{}", lines[0]);
    assert_eq!(lines[2], "! worker 1 is stalled  (+2 more)");
    assert_eq!(words(&lines, "1")[3], "STALLED");
}

#[test]
fn the_load_is_shown_as_a_share_of_the_knee_and_marked_past_its_warning() {
    let start = Instant::now();
    let at = |offered: Option<f64>, warned, reached| {
        let mut cache = listener("cache", 100);
        cache.knee = Some(knee(offered, warned, reached));
        state_of([sample(start, 0.0, vec![cache, listener("other", 50)])])
    };
    for (offered, warned, reached, shown) in [
        (None, false, false, "-"),
        (Some(5_000.0), false, false, "50"),
        (Some(8_500.0), true, false, "85!"),
        (Some(12_000.0), true, true, "120!"),
    ] {
        let mut state = at(offered, warned, reached);
        let wide = screen(&mut state, 120, 24, start);
        assert_eq!(words(&wide, "LISTENER")[6], "KNEE%");
        assert_eq!(words(&wide, "cache")[6], shown, "{wide:#?}");
        assert_eq!(words(&wide, "other")[6], "-", "it has no knee");
        let alert = &screen(&mut state, 80, 24, start)[2];
        assert_eq!(alert.is_empty(), !warned, "{alert}");
    }
    let lines = screen(&mut at(Some(8_500.0), true, false), 80, 24, start);
    assert_eq!(lines[2], "! cache at 85 % of its knee: 8500 of 10.0k req/s", "narrow screens have the alert line");
}

#[test]
fn an_open_breaker_of_a_healthy_endpoint_shows_at_every_width() {
    let start = Instant::now();
    let mut open = sample(start, 0.0, vec![listener("cache", 100)]);
    open.upstreams[0].endpoints[0].breaker = Breaker::Open;
    let mut state = state_of([open]);
    assert!(words(&screen(&mut state, 80, 24, start), "redis-main").join(" ").contains("brk OPEN"));
    let wide = screen(&mut state, 200, 60, start);
    assert_eq!(words(&wide, "redis-main")[2..4], ["healthy", "OPEN"]);
    assert_eq!(wide[2], "! redis-main 10.0.0.1:6379 breaker open: no error recorded");
}

#[test]
fn a_failed_poll_is_told_keeps_the_last_data_and_is_forgotten_on_recovery() {
    let start = Instant::now();
    let mut state = state_of([]);
    assert_eq!(screen(&mut state, 80, 24, start)[2], "waiting for the first answer");
    state.accept(Err("/metrics: io: Connection refused".to_owned()));
    assert_eq!(screen(&mut state, 80, 24, start)[2], "NO DATA, trying on: /metrics: io: Connection refused");
    state.accept(Ok(sample(start, 0.0, vec![listener("cache", 100)])));
    state.accept(Err("/metrics: timeout".to_owned()));
    let lines = screen(&mut state, 80, 24, start + Duration::from_secs(5));
    assert_eq!(lines[2], "NO DATA for 5s, trying on: /metrics: timeout");
    assert_eq!(words(&lines, "cache")[1], "accepting");
    state.accept(Ok(sample(start, 6.0, vec![listener("cache", 700)])));
    let lines = screen(&mut state, 80, 24, start);
    assert_eq!(lines[2], "");
    assert_eq!(words(&lines, "cache")[3], "100", "600 requests in the 6 s since the last answer");
}

#[test]
fn everything_has_its_place_at_80_by_24_whatever_the_number_of_rows() {
    let start = Instant::now();
    for count in [0, 1, 5, 50, 500] {
        let listeners = (0..count).map(|index| listener(&format!("listener-{index:03}"), 1000 + index));
        let mut crowded = sample(start, 0.0, listeners.collect());
        crowded.upstreams = (0..count).map(|index| upstream(&format!("upstream-{index}"))).collect();
        let lines = screen(&mut state_of([crowded]), 80, 24, start);
        for heading in ["LISTENER", "UPSTREAM", "WORKER"] {
            assert!(lines.iter().any(|line| line.starts_with(heading)), "{heading} of {count}: {lines:#?}");
        }
        assert!(lines[23].starts_with("q quit"), "{count}");
        if count >= 50 {
            assert_eq!(lines.iter().filter(|line| line.starts_with("… 0 above, ")).count(), 2, "{lines:#?}");
        }
    }
}

#[test]
fn wide_screens_show_more_columns_and_narrow_ones_do_not_panic() {
    let start = Instant::now();
    let mut state = state_of([sample(start, 0.0, vec![listener("cache", 100)])]);
    let wide = screen(&mut state, 200, 60, start);
    assert_eq!(
        words(&wide, "LISTENER"),
        [
            "LISTENER", "PROTOCOL", "BIND", "STATE", "CONNS", "ACC/S", "REQ/S", "KNEE%", "P50", "P99", "P99.9", "OWN",
            "P99", "INFL", "SHED/S", "IN/S", "OUT/S"
        ]
    );
    for (width, height) in [(1, 1), (10, 3), (30, 5), (79, 10), (80, 4), (400, 2)] {
        assert_eq!(screen(&mut state, width, height, start).len(), usize::from(height));
    }
}

#[test]
fn control_characters_of_the_server_do_not_reach_the_terminal() {
    let start = Instant::now();
    let mut hostile = sample(start, 0.0, vec![listener("ca\u{1b}[31mche\u{7}", 100)]);
    hostile.upstreams[0].endpoints[0].health = Health::Unhealthy;
    hostile.upstreams[0].endpoints[0].last_error = Some("\u{1b}]0;owned\u{7}\u{9b}2J".to_owned());
    let mut state = state_of([hostile]);
    state.admin = "http://127.0.0.1:9900\u{1b}c".to_owned();
    let text = render::plain(&mut state, 200);
    assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
}

#[test]
fn the_plain_frame_has_every_row_and_no_keys() {
    let start = Instant::now();
    let listeners = (0..40).map(|index| listener(&format!("listener-{index:02}"), 1000));
    let mut state = state_of([sample(start, 0.0, listeners.collect())]);
    let text = render::plain(&mut state, 120);
    assert_eq!(text.lines().filter(|line| line.starts_with("listener-")).count(), 40);
    assert!(text.starts_with("weir top http://127.0.0.1:9900  READY  up 1h00m  config 2  v0.1.0 (abc1234)\n"));
    assert!(!text.contains("q quit") && !text.contains("above"), "{text}");
    assert!(text.lines().all(|line| line == line.trim_end()));
    assert!(text.ends_with("io_uring\n"), "{text}");
}
