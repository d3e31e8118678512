//! Every validity check, every blemish, and their order.

use super::systems::healthy;
use crate::command::{Length, Rate};
use crate::judge::{failed_checks, is_overload, judge_ceiling, judge_uneven};
use crate::trial::{Backend, Used};
use crate::{Check, NotClean, Purpose, Rules, Run, Trial, Verdict, judge};

fn run() -> Run {
    let rate = Rate::Offered(100_000.0);
    let length = Length::of(false, rate, &Rules::default());
    Run { rate, length, repeat: 1, purpose: Purpose::Ramp, shards: 1, is_retry: false }
}

fn trial() -> Trial {
    Trial { slo_p99_us: Some(1_000), ceiling: Some(500_000.0), ..healthy(&run()) }
}

fn judged(change: impl FnOnce(&mut Trial)) -> Verdict {
    let mut trial = trial();
    change(&mut trial);
    judge(&trial, &Rules::default())
}

#[test]
fn a_flawless_trial_is_clean() {
    assert_eq!(judged(|_| {}), Verdict::Clean);
    assert_eq!(failed_checks(&trial(), &Rules::default()), []);
}

#[test]
fn every_validity_check_has_its_reason_on_both_sides_of_its_bound() {
    type Change = fn(&mut Trial);
    let table: [(&str, Change, Change); 20] = [
        ("config-mismatch", |_| {}, |t| t.config_mismatch = Some("driver is polling".into())),
        ("config-mismatch", |_| {}, |t| t.offered = f64::NAN),
        (
            "fds",
            |t| t.resources.fds = Used { used: 80, limit: 100 },
            |t| t.resources.fds = Used { used: 81, limit: 100 },
        ),
        (
            "ports",
            |t| t.resources.ports = Used { used: 0, limit: 0 },
            |t| t.resources.ports = Used { used: 9, limit: 10 },
        ),
        ("memory", |_| {}, |t| t.resources.swap_bytes = 1),
        ("connections", |t| t.resources.sockets_established = 51, |t| t.resources.sockets_established = 49),
        ("kernel-drops", |_| {}, |t| t.resources.kernel_drops = 1),
        ("steal", |t| t.host.slices_stolen = 2, |t| t.host.slices_stolen = 3),
        ("throttled", |_| {}, |t| t.host.throttled_periods = 1),
        ("ceiling", |t| t.ceiling = Some(125_000.0), |t| t.ceiling = Some(124_000.0)),
        ("generator-cpu", |t| t.parties.generator_core_busiest = 0.85, |t| t.parties.generator_core_busiest = 0.86),
        ("generator-cpu", |_| {}, |t| t.parties.generator_core_busiest = f64::NAN),
        ("generator-lag", |t| t.latency.lag_p99_us = 200, |t| t.latency.lag_p99_us = 201),
        (
            "generator-lag",
            |t| (t.latency.sojourn_p99_us, t.latency.lag_p99_us, t.slo_p99_us) = (10_000, 1_000, None),
            |t| (t.latency.sojourn_p99_us, t.latency.lag_p99_us, t.slo_p99_us) = (10_000, 1_001, None),
        ),
        (
            "generator-lag",
            |t| (t.slo_p99_us, t.latency.lag_p99_us) = (Some(10_000), 1_000),
            |t| (t.slo_p99_us, t.latency.lag_p99_us) = (Some(10_000), 1_001),
        ),
        ("generator-lag", |t| t.latency.lag_max_us = 50_000, |t| t.latency.lag_max_us = 50_001),
        ("generator-lag", |_| {}, |t| t.skipped_generator = 1),
        (
            "origin-cpu",
            |t| (t.backend, t.parties.origin_core_busiest) = (Backend::Real, Some(1.0)),
            |t| t.parties.origin_core_busiest = Some(0.86),
        ),
        ("origin-cpu", |t| t.backend = Backend::Real, |t| t.parties.origin_core_busiest = None),
        ("unchecked", |t| t.integrity.checked = 10_000, |t| t.integrity.checked = 9_999),
    ];
    for (reason, inside, outside) in table {
        assert_eq!(judged(inside), Verdict::Clean, "{reason}: inside its bound");
        let Verdict::Invalid(found) = judged(outside) else { panic!("{reason} was not found") };
        assert_eq!(found.reason.to_string(), reason);
        assert!(found.value.is_finite() && found.limit.is_finite(), "{found:?}");
    }
}

#[test]
fn every_blemish_has_its_reason() {
    type Change = fn(&mut Trial);
    let table: [(&str, Change); 12] = [
        ("mix-up", |t| t.integrity.mix_ups = 1),
        ("integrity", |t| t.integrity.failed = 1),
        ("errors", |t| t.errors.transport = 1),
        ("errors", |t| t.errors.protocol = 1),
        ("errors", |t| t.errors.status = 1),
        ("errors", |t| t.errors.timeout = 1),
        ("errors", |t| t.errors.payload = 1),
        ("shed", |t| t.shed = 1),
        ("skipped", |t| t.skipped_backlog = 1),
        ("completed", |t| t.completed = 998_999),
        ("completed", |t| (t.intended, t.completed) = (0, 0)),
        ("slo", |t| t.latency.sojourn_p99_us = 1_001),
    ];
    for (reason, change) in table {
        let Verdict::NotClean(found) = judged(change) else { panic!("{reason} was not found") };
        assert_eq!(found.reason.to_string(), reason);
    }
    assert_eq!(judged(|t| t.completed = 999_000), Verdict::Clean, "99.9 % of a million");
    assert_eq!(judged(|t| (t.slo_p99_us, t.latency.sojourn_p99_us) = (None, 9_000_000)), Verdict::Clean);
}

#[test]
fn validity_comes_before_cleanness_and_causes_before_symptoms() {
    let verdict = judged(|t| (t.errors.transport, t.parties.generator_core_busiest) = (5, 0.99));
    assert_eq!(verdict.to_string(), "invalid: generator-cpu");
    let verdict = judged(|t| {
        t.resources.fds = Used { used: 1_024, limit: 1_024 };
        t.resources.sockets_established = 3;
        t.latency.lag_p99_us = 90_000;
    });
    assert_eq!(verdict.to_string(), "invalid: fds");
    assert_eq!(judged(|t| t.is_steady = false), Verdict::Unsteady);
}

#[test]
fn a_trial_that_is_uneven_again_may_fail_but_not_be_clean() {
    let mut uneven = Trial { is_steady: false, ..trial() };
    let rules = Rules::default();
    assert_eq!((judge(&uneven, &rules), judge_uneven(&uneven, &rules)), (Verdict::Unsteady, Verdict::Unsteady));
    uneven.skipped_backlog = 1;
    assert_eq!(judge(&uneven, &rules), Verdict::Unsteady);
    assert_eq!(judge_uneven(&uneven, &rules).to_string(), "not clean: skipped");
    (uneven.skipped_backlog, uneven.slo_p99_us, uneven.latency.sojourn_p99_us) = (0, Some(1_000), 2_000);
    assert_eq!(judge_uneven(&uneven, &rules).to_string(), "not clean: slo");
    uneven.parties.generator_core_busiest = 0.99;
    assert_eq!(judge_uneven(&uneven, &rules).to_string(), "invalid: generator-cpu");
}

#[test]
fn throttling_is_expected_under_a_quota() {
    assert_eq!(judged(|t| (t.host.throttled_periods, t.host.is_quota) = (9, true)), Verdict::Clean);
}

#[test]
fn a_p99_needs_a_thousand_samples_but_a_collapse_needs_none() {
    let few = |t: &mut Trial, n: u64| (t.intended, t.completed, t.integrity.checked) = (n, n, n);
    assert_eq!(judged(|t| few(t, 1_000)), Verdict::Clean);
    let Verdict::Invalid(found) = judged(|t| few(t, 999)) else { panic!("999 samples are too few") };
    assert_eq!(found.reason, Check::Samples);
    let mut without_target = trial();
    few(&mut without_target, 999);
    without_target.slo_p99_us = None;
    assert_eq!(judge(&without_target, &Rules::default()), Verdict::Clean);
    let collapse = judged(|t| (t.completed, t.integrity.checked) = (10, 10));
    let Verdict::NotClean(found) = collapse else { panic!("a collapse is not clean: {collapse}") };
    assert_eq!(found.reason, NotClean::Completed);
}

#[test]
fn overload_is_more_than_a_missed_target() {
    let overload = |change: fn(&mut Trial)| {
        let mut trial = trial();
        change(&mut trial);
        is_overload(&trial, 200, &Rules::default())
    };
    assert!(!overload(|_| {}));
    assert!(!overload(|t| t.latency.sojourn_p99_us = 2_020), "ten times is not more than ten times; 20 are lag");
    assert!(overload(|t| t.latency.sojourn_p99_us = 2_021));
    assert!(!overload(|t| t.completed = 990_000), "99 %");
    assert!(overload(|t| t.completed = 989_999));
    assert!(overload(|t| t.errors.status = 1) && overload(|t| t.shed = 1) && overload(|t| t.skipped_backlog = 1));
}

#[test]
fn a_ceiling_may_exhaust_the_generator_but_not_the_box() {
    let rules = Rules::default();
    let mut busy = trial();
    busy.parties.generator_core_busiest = 1.0;
    busy.latency.lag_max_us = 1_000_000;
    busy.parties.origin_core_busiest = Some(1.0);
    assert_eq!(judge_ceiling(&busy, &rules, true), Verdict::Clean);
    busy.integrity.checked = 0;
    assert_eq!(judge_ceiling(&busy, &rules, true).to_string(), "invalid: unchecked");
    assert_eq!(judge_ceiling(&busy, &rules, false), Verdict::Clean, "a null sink never responds");
    busy.resources.sockets_established = 1;
    assert_eq!(judge_ceiling(&busy, &rules, false).to_string(), "invalid: connections");
    let idle = Trial { completed: 0, ..trial() };
    assert_eq!(judge_ceiling(&idle, &rules, true).to_string(), "invalid: ceiling");
}

#[test]
fn rules_that_would_not_end_are_refused() {
    let refused = |change: fn(&mut Rules)| {
        let mut rules = Rules::default();
        change(&mut rules);
        rules.check().unwrap_err().rule
    };
    assert_eq!(Rules::default().check(), Ok(()));
    assert_eq!(refused(|r| r.precision = 0.0), "precision");
    assert_eq!(refused(|r| r.ramp_factor = 1.0), "ramp_factor");
    assert_eq!(refused(|r| r.ramp_factor_backlog = f64::NAN), "ramp_factor_backlog");
    assert_eq!(refused(|r| r.verify_repeats_max = 2), "verify_repeats_max");
    assert_eq!(refused(|r| r.overload_ladder = vec![1.5, 1.1]), "overload_ladder");
    assert_eq!(refused(|r| r.window_long_s = 1e9), "window_*_s");
}

#[test]
fn a_kept_record_with_the_former_key_of_the_completed_rate_is_read() {
    let kept: Trial = serde_json::from_str(r#"{"window_s":2.0,"completed":10,"answered_rate":7.5}"#).unwrap();
    assert_eq!((kept.completed_rate, kept.completed_rate()), (Some(7.5), 7.5));
    assert!(serde_json::to_string(&kept).unwrap().contains(r#""completed_rate":7.5"#));
}
