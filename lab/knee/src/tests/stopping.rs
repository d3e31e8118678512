//! The stop reason: first match wins, with its evidence; and the faults of the lab that must be named as such.

use super::systems::{DIRECT, NULL_SINK, capped, drive, healthy, search};
use crate::stop::{Ceilings, stop_reason};
use crate::trial::{Refused, Used};
use crate::{Check, Length, Purpose, Rate, Rules, Run, SearchOptions, SearchOutcome, Stop, StopReason, Trial, judge};

fn stopped(change: impl FnOnce(&mut Trial)) -> Stop {
    let rules = Rules::default();
    let rate = Rate::Offered(100_000.0);
    let length = Length::of(false, rate, &rules);
    let run = Run { rate, length, repeat: 1, purpose: Purpose::Ramp, shards: 1, is_retry: false };
    let mut trial = Trial { slo_p99_us: Some(1_000), ..healthy(&run) };
    change(&mut trial);
    let ceilings = Ceilings { null_sink: NULL_SINK, direct: DIRECT };
    stop_reason(&trial, &judge(&trial, &rules), &ceilings, &rules)
}

#[test]
fn each_reason_wins_over_all_that_follow() {
    // From the last reason to the first: each change adds to those before it, and must win over them.
    type Change = fn(&mut Trial);
    let changes: [(StopReason, Change); 8] = [
        (StopReason::Latency, |t| t.latency.sojourn_p99_us = 2_000),
        (StopReason::GatewayLimit, |t| t.parties.refused = Some(Refused { limit: "inflight".into(), count: 3 })),
        (StopReason::GatewayCpu, |t| t.parties.gateway_core_busiest = Some(0.95)),
        (StopReason::Backend, |t| t.parties.origin_core_busiest = Some(0.96)),
        (StopReason::Box, |t| t.host.idle = Some(0.04)),
        (StopReason::Box, |t| t.host.generator_cpu = Some(0.97)),
        (StopReason::Connections, |t| t.resources.fds = Used { used: 99, limit: 100 }),
        (StopReason::Generator, |t| t.latency.lag_p99_us = 5_000),
    ];
    for count in 1..=changes.len() {
        let stop = stopped(|trial| changes[..count].iter().for_each(|(_, change)| change(trial)));
        assert_eq!(stop.reason, changes[count - 1].0);
        assert!(!stop.evidence.is_empty());
        assert!(!stop.planning_read().is_empty());
    }
    assert_eq!(stopped(|t| t.errors.protocol = 1).reason, StopReason::Unknown);
}

#[test]
fn evidence_names_the_limit_and_the_imbalance() {
    let limit = stopped(|t| t.parties.refused = Some(Refused { limit: "lane queue".into(), count: 7 }));
    assert_eq!((limit.evidence[0].what.as_str(), limit.evidence[0].value), ("lane queue", 7.0));
    assert!(limit.planning_read().contains("lane queue"));
    let cores = stopped(|t| (t.parties.gateway_core_busiest, t.parties.gateway_core_mean) = (Some(0.99), Some(0.6)));
    let figures: Vec<f64> = cores.evidence.iter().map(|evidence| evidence.value).collect();
    assert_eq!(figures, [0.99, 0.6]);
}

#[test]
fn a_direct_row_flat_at_the_same_rate_is_the_back_end() {
    let stop = stopped(|t| {
        (t.completed, t.intended) = ((0.96 * DIRECT * t.window_s) as u64, (1.1 * DIRECT * t.window_s) as u64);
    });
    assert_eq!(stop.reason, StopReason::Backend);
}

#[test]
fn a_generator_that_lags_is_named_and_more_shards_help_while_there_are_any() {
    // One shard sends 60k on time.
    let lagging = |run: &Run| {
        let mut trial = capped(run, 200_000.0);
        if run.rate.offered() > 60_000.0 * f64::from(run.shards) {
            trial.latency.lag_p99_us = 30_000;
            trial.parties.generator_core_busiest = 1.0;
        }
        trial
    };
    let small = drive(SearchOptions::default(), Rules { shards_max: 2, ..Rules::default() }, 1, lagging);
    assert_eq!(small.outcome, SearchOutcome::AtCeiling);
    assert_eq!(small.stop.as_ref().unwrap().reason, StopReason::Generator);
    let rate = small.capacity().unwrap();
    assert!((114_000.0..=120_000.0).contains(&rate), "{rate}");
    assert!(small.planning_read().ends_with("the gateway may carry more"), "{}", small.planning_read());
    let large = search(lagging);
    let rate = large.capacity().unwrap();
    assert!((190_000.0..=200_000.0).contains(&rate), "{rate}");
}

#[test]
fn a_generator_that_only_lags_bounds_the_search_and_ends_it_where_nothing_lower_was_clean() {
    let lagging = |from: f64| {
        search(|run| {
            let mut trial = healthy(run);
            trial.skipped_generator = u64::from(run.rate.offered() > from);
            trial
        })
    };
    let knee = lagging(100_000.0);
    let rate = knee.capacity().unwrap();
    assert!((95_000.0..=100_000.0).contains(&rate), "{rate}");
    assert_eq!((knee.outcome, knee.stop.unwrap().reason), (SearchOutcome::AtCeiling, StopReason::Generator));
    assert_eq!(knee.first_overload, None);
    assert!(knee.ceiling >= knee.seen.iter().map(|seen| seen.run.rate.offered()).fold(0.0, f64::max));
    let never = lagging(1_000.0);
    assert_eq!(never.clean_cell("req/s").to_string(), "invalid: generator-lag");
    assert_eq!((never.capacity(), never.stop.unwrap().reason), (None, StopReason::Generator));
}

#[test]
fn a_step_above_that_cannot_be_offered_leaves_the_repeats_of_the_knee() {
    // In long trials only: the short ones found the bracket of a cap.
    let knee = search(|run| {
        let mut trial = capped(run, 130_000.0);
        trial.skipped_generator = u64::from(run.purpose == Purpose::VerifyAbove);
        trial
    });
    assert_eq!((knee.outcome, knee.not_clean), (SearchOutcome::AtCeiling, None));
    assert_eq!(knee.clean.unwrap().repeats, 3);
    // The short trial that failed there tells why.
    assert_eq!(knee.stop.as_ref().unwrap().reason, StopReason::GatewayCpu);
    assert_eq!(knee.overload_ended, Some(SearchOutcome::Invalid { check: Check::GeneratorLag }));
    // One long trial that counts is the upper side.
    let mut times = 0;
    let knee = search(|run| {
        let mut trial = capped(run, 130_000.0);
        if run.purpose == Purpose::VerifyAbove {
            times += 1;
            trial.skipped_generator = u64::from(times > 1);
        }
        trial
    });
    let above = knee.not_clean.unwrap();
    assert_eq!((knee.outcome, above.repeats, above.clean), (SearchOutcome::Verified, 1, 0));
    assert_eq!(knee.clean.unwrap().repeats, 3);
}

#[test]
fn rungs_that_the_lab_cannot_climb_are_no_sign_that_there_is_no_overload() {
    // Out of reach above 150k; the latency target is missed above 130k, where nothing overflows.
    let knee = search(|run| {
        let mut trial = healthy(run);
        let rate = run.rate.offered();
        trial.skipped_generator = u64::from(rate > 150_000.0);
        trial.slo_p99_us = Some(1_000);
        trial.latency.sojourn_p99_us = if rate > 130_000.0 { 1_500 } else { 200 };
        trial
    });
    assert_eq!((knee.outcome, knee.first_overload), (SearchOutcome::Verified, None));
    assert_eq!(knee.overload_cell("req/s").to_string(), "invalid: generator-lag");
}

#[test]
fn a_knee_that_cannot_be_offered_again_is_sought_lower() {
    let knee = search(|run| {
        let mut trial = capped(run, 130_000.0);
        trial.skipped_generator = u64::from(run.purpose == Purpose::VerifyKnee && run.rate.offered() > 110_000.0);
        trial
    });
    let rate = knee.capacity().unwrap();
    assert!((90_000.0..=110_000.0).contains(&rate), "{rate}");
    assert_eq!(knee.outcome, SearchOutcome::AtCeiling);
}

#[test]
fn an_origin_slower_than_the_gateway_is_named() {
    // The origin does 100k, the gateway 300k: the knee of the gateway cannot be seen.
    let slow = |run: &Run, busy: f64| {
        let mut trial = capped(run, 100_000.0);
        if run.purpose == Purpose::Direct {
            trial.completed = (100_000.0 * trial.window_s) as u64;
        }
        trial.parties.gateway_core_busiest = Some(run.rate.offered() / 300_000.0);
        trial.parties.origin_core_busiest = Some(busy * run.rate.offered() / 100_000.0);
        trial
    };
    let knee = search(|run| slow(run, 1.0));
    assert_eq!((knee.outcome, knee.capacity()), (SearchOutcome::AtCeiling, Some(80_000.0)));
    assert_eq!(knee.stop.as_ref().unwrap().reason, StopReason::Backend);
    assert!(knee.planning_read().contains("behind the gateway"));
    // The same origin burns more CPU behind the gateway's many connections than it did in the direct row.
    let hot = search(|run| slow(run, 1.3));
    let rate = hot.capacity().unwrap();
    assert!((62_000.0..=65_400.0).contains(&rate), "85 % of 100k / 1.3: {rate}");
    assert_eq!((hot.outcome, hot.stop.unwrap().reason), (SearchOutcome::AtCeiling, StopReason::Backend));
}

#[test]
fn a_generator_as_slow_as_the_direct_row_is_the_ceiling() {
    let knee = search(|run| {
        let mut trial = healthy(run);
        if matches!(run.rate, Rate::Saturate) {
            trial.completed = (100_000.0 * trial.window_s) as u64;
        }
        trial
    });
    assert_eq!((knee.outcome, knee.stop.unwrap().reason), (SearchOutcome::AtCeiling, StopReason::Generator));
}

#[test]
fn too_few_descriptors_are_named() {
    let knee = search(|run| {
        let mut trial = capped(run, 200_000.0);
        trial.resources.sockets_asked = 2_000;
        trial.resources.sockets_established = 1_010;
        trial.resources.fds = Used { used: 1_024, limit: 1_024 };
        trial
    });
    assert_eq!(knee.clean_cell("req/s").to_string(), "invalid: fds");
    let stop = knee.stop.unwrap();
    assert_eq!(stop.reason, StopReason::Connections);
    assert!(stop.planning_read().contains("file descriptors"));
    assert_eq!(knee.seen.len(), 2, "found by the first calibration and its retry");
}

#[test]
fn a_quota_marks_the_result() {
    let knee = search(|run| {
        let mut trial = capped(run, 100_000.0);
        (trial.host.is_quota, trial.host.throttled_periods) = (true, 12);
        trial
    });
    assert!(knee.is_quota_shaped && knee.capacity().is_some());
}
