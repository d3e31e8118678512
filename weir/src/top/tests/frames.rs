//! Expected screens for given samples.

use std::time::{Duration, Instant};

use weir_admin::status::{
    Breaker, CertificateState, CertificateStatus, ErrorStatus, Health, ListenerState, ResponseClasses, RouteStatus,
    Validity, Verdict,
};

use super::{knee, listener, sample, screen, state_of, upstream, words};
use crate::top::client::Sample;
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
fn trouble_is_shown_on_the_alert_line_the_worst_first() {
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
        let at = words(&wide, "LISTENER").iter().position(|word| *word == "KNEE%").expect("the column");
        assert_eq!(words(&wide, "cache")[at], shown, "{wide:#?}");
        assert_eq!(words(&wide, "other")[at], "-", "it has no knee");
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
fn a_failed_poll_is_shown_keeps_the_last_data_and_is_forgotten_on_recovery() {
    let start = Instant::now();
    let mut state = state_of([]);
    assert_eq!(screen(&mut state, 80, 24, start)[2], "waiting for the first response");
    state.accept(Err("/metrics: io: Connection refused".to_owned()));
    assert_eq!(screen(&mut state, 80, 24, start)[2], "NO DATA, retrying: /metrics: io: Connection refused");
    state.accept(Ok(sample(start, 0.0, vec![listener("cache", 100)])));
    state.accept(Err("/metrics: timeout".to_owned()));
    let lines = screen(&mut state, 80, 24, start + Duration::from_secs(5));
    assert_eq!(lines[2], "NO DATA for 5s, retrying: /metrics: timeout");
    assert_eq!(words(&lines, "cache")[1], "accepting");
    state.accept(Ok(sample(start, 6.0, vec![listener("cache", 700)])));
    let lines = screen(&mut state, 80, 24, start);
    assert_eq!(lines[2], "");
    assert_eq!(words(&lines, "cache")[3], "100", "600 requests in the 6 s since the last response");
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
    let wide = screen(&mut state, 100, 30, start);
    let expected =
        ["LISTENER", "STATE", "CONNS", "REQ/S", "KNEE%", "P50", "P99", "P99.9", "INFL", "SHED/S", "IN/S", "OUT/S"];
    assert_eq!(words(&wide, "LISTENER"), expected);
    assert!(words(&wide, "cache")[0] == "cache" && wide.iter().all(|line| line.chars().count() <= 100), "{wide:#?}");
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

/// An HTTP listener with so many good responses and so many 500s, in front of one endpoint, with one route.
fn http_sample(start: Instant, seconds: f64, good: u64, bad: u64) -> Sample {
    let classes =
        ResponseClasses { successful: good, client_error: 3, server_error: bad, ..ResponseClasses::default() };
    let mut web = listener("web", good + bad);
    web.protocol = "http".to_owned();
    web.responses_total = Some(classes);
    web.errors = Some(ErrorStatus { ratio: None, warn_ratio: 0.05, warned: false });
    let mut sample = sample(start, seconds, vec![web]);
    sample.upstreams = vec![upstream("app")];
    sample.upstreams[0].endpoints[0].responses_total = Some(classes);
    sample.routes = vec![RouteStatus {
        name: "api".to_owned(),
        domain: None,
        listeners: vec!["web".to_owned()],
        online: true,
        validity: Validity::Valid,
        mistakes: Vec::new(),
        responses_total: Some(classes),
    }];
    sample
}

#[test]
fn a_listener_a_route_and_an_endpoint_whose_responses_are_5xx_say_so_by_word() {
    let start = Instant::now();
    let first = http_sample(start, 0.0, 1_000, 0);
    let mut state = state_of([first.clone(), http_sample(start, 1.0, 1_000, 400)]);
    let lines = screen(&mut state, 80, 24, start);
    assert_eq!(words(&lines, "LISTENER")[..6], ["LISTENER", "STATE", "CONNS", "REQ/S", "4XX/S", "5XX/S"]);
    assert_eq!(words(&lines, "web")[1], "ERRORS", "{lines:#?}");
    assert_eq!(words(&lines, "web")[3..6], ["400", "0", "400"]);
    let route = ["api", "ERRORS", "400", "0", "0", "0", "400"];
    assert_eq!(words(&lines, "api"), route, "{lines:#?}");
    assert_eq!(words(&lines, "app")[2], "ERRORS", "{lines:#?}");
    assert_eq!(words(&lines, "app").last(), Some(&"400"));
    // All is well again.
    state.accept(Ok(http_sample(start, 2.0, 1_990, 410)));
    let lines = screen(&mut state, 80, 24, start);
    assert_eq!((words(&lines, "web")[1], words(&lines, "web")[5]), ("accepting", "10"), "1 % is no alarm");
    assert_eq!((words(&lines, "api")[1], words(&lines, "app")[2]), ("online", "healthy"));
    let wide = screen(&mut state, 200, 50, start);
    assert_eq!(words(&wide, "web")[7..11], ["990", "0", "0", "10"], "{wide:#?}");
    // Bytes come before the last quantile, and the name keeps its room.
    let middle = screen(&mut state, 100, 30, start);
    let expected =
        ["LISTENER", "STATE", "CONNS", "REQ/S", "4XX/S", "5XX/S", "P50", "P99", "INFL", "SHED/S", "IN/S", "OUT/S"];
    assert_eq!(words(&middle, "LISTENER"), expected);
    let row = words(&middle, "web").join(" ");
    assert!(row.ends_with("29.3 KiB 68.4 KiB"), "{row}");
}

#[test]
fn responses_that_origins_break_off_are_errors_and_have_a_column_at_any_width() {
    let start = Instant::now();
    let broken = |seconds: f64, count| {
        let mut sample = http_sample(start, seconds, 1_000, 0);
        let classes = ResponseClasses { successful: 1_000, broken: count, ..ResponseClasses::default() };
        sample.listeners[0].responses_total = Some(classes);
        sample.routes[0].responses_total = Some(classes);
        sample.upstreams[0].endpoints[0].responses_total = Some(classes);
        sample
    };
    let mut state = state_of([broken(0.0, 0), broken(1.0, 0)]);
    assert!(!screen(&mut state, 80, 24, start).iter().any(|line| line.contains("BROKE/S")), "only where there are any");
    state.accept(Ok(broken(2.0, 300)));
    for (columns, rows) in [(80, 24), (120, 30), (200, 50)] {
        let lines = screen(&mut state, columns, rows, start);
        for (heading, name) in [("LISTENER", "web"), ("ROUTE", "api"), ("UPSTREAM", "app")] {
            assert!(words(&lines, heading).contains(&"BROKE/S"), "{columns}: {lines:#?}");
            assert!(words(&lines, name).contains(&"300"), "{columns}: {lines:#?}");
            assert!(words(&lines, name).contains(&"ERRORS"), "{columns}: {lines:#?}");
        }
    }
}

#[test]
fn a_warning_of_the_gateway_is_shown_though_the_window_has_no_error() {
    let start = Instant::now();
    let mut warned = http_sample(start, 0.0, 1_000, 0);
    warned.listeners[0].errors = Some(ErrorStatus { ratio: Some(0.25), warn_ratio: 0.05, warned: true });
    let lines = screen(&mut state_of([warned]), 80, 24, start);
    assert_eq!(lines[2], "! web: 25 % of the responses are errors (5xx or broken off)");
    assert_eq!(words(&lines, "web")[1], "ERRORS");
}

#[test]
fn routes_have_a_table_only_where_there_are_any() {
    let start = Instant::now();
    let mut state = state_of([http_sample(start, 0.0, 1, 0)]);
    assert!(screen(&mut state, 80, 24, start).iter().any(|line| line.starts_with("ROUTE")));
    assert!(render::plain(&mut state, 120).contains("\nROUTE"));
    let mut without = http_sample(start, 1.0, 1, 0);
    without.routes.clear();
    state.accept(Ok(without));
    assert!(!screen(&mut state, 80, 24, start).iter().any(|line| line.starts_with("ROUTE")));
}

#[test]
fn a_certificate_near_its_end_is_an_alert_and_has_its_days_in_a_column() {
    let start = Instant::now();
    let shown = |days_left, state| {
        let mut secure = http_sample(start, 0.0, 1, 0);
        let of = |name: &str, days_left, state| CertificateStatus {
            name: name.to_owned(),
            expires_at: 1_800_000_000,
            days_left,
            state,
        };
        let valid = of("b.test", 80, CertificateState::Valid);
        secure.listeners[0].certificates = vec![valid, of("a.test", days_left, state)];
        let mut state = state_of([secure]);
        let alert = screen(&mut state, 80, 24, start)[2].clone();
        let wide = screen(&mut state, 120, 24, start);
        let at = words(&wide, "LISTENER").iter().position(|word| *word == "CERT").expect("the column");
        (alert, words(&wide, "web")[at].to_owned())
    };
    assert_eq!(shown(60, CertificateState::Valid), (String::new(), "60d".to_owned()));
    let warned = shown(13, CertificateState::Warning);
    assert_eq!(warned, ("! web: the certificate a.test expires in 13 days".to_owned(), "13d!".to_owned()));
    assert_eq!(shown(2, CertificateState::Critical).1, "2d!");
    let expired = shown(-1, CertificateState::Expired);
    assert_eq!(expired, ("! web: the certificate a.test has expired".to_owned(), "OVER".to_owned()));
}
