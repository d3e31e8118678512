//! The right knee within 5 % for 1,000 seeds, on systems whose knee is known.

use weir_base::rng::Rng;

use super::systems::{assert_honest, capped, drive, mm1, mm1_knee, normal};
use crate::{Knee, NotClean, Rules, Run, SearchOptions, SearchOutcome, StopReason, Trial, Verdict};

const SEEDS: u64 = 1_000;

/// A search against a system of this seed, and the ratio of what it found to the truth.
fn find(seed: u64, truth: f64, system: impl FnMut(&Run) -> Trial) -> (Knee, f64) {
    let knee = drive(SearchOptions::default(), Rules::default(), seed, system);
    assert_honest(&knee);
    let ratio = knee.capacity().map_or(0.0, |rate| rate / truth);
    (knee, ratio)
}

fn assert_right(seed: u64, knee: &Knee, ratio: f64) {
    assert!((0.95..=1.05).contains(&ratio), "seed {seed}: {ratio} of the truth, {:?}, {:?}", knee.outcome, knee.trail);
}

/// A capacity between the low load (25k) and 90 % of the highest load offered (400k).
fn some_cap(rng: &mut Rng) -> f64 {
    30_000.0 * 12f64.powf(rng.unit())
}

#[test]
fn mm1_with_a_latency_target() {
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let (mu, slo_us) = (some_cap(&mut rng), 1_000 + rng.below(9_000));
        let (knee, ratio) = find(seed, mm1_knee(mu, slo_us), |run| mm1(run, mu, slo_us));
        assert_right(seed, &knee, ratio);
        assert!(ratio <= 1.001, "seed {seed}: without noise the knee is never above the truth: {ratio}");
    }
}

#[test]
fn a_hard_cap() {
    for seed in 0..SEEDS {
        let cap = some_cap(&mut Rng::new(seed));
        let (knee, ratio) = find(seed, cap, |run| capped(run, cap));
        assert_right(seed, &knee, ratio);
        assert_eq!(knee.stop.as_ref().map(|stop| stop.reason), Some(StopReason::GatewayCpu));
        assert_eq!(knee.first_overload.map(|step| step.rate), knee.not_clean.map(|side| side.rate));
        let peak = knee.peak.unwrap().completed.mean;
        assert!((peak / cap - 1.0).abs() < 0.01, "seed {seed}: peak {peak} of {cap}");
    }
}

#[test]
fn a_noisy_mm1() {
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let (mu, slo_us) = (some_cap(&mut rng), 1_000 + rng.below(4_000));
        // p99 scatters by 5 %, as that of 10,000 samples with 100 above it does by 2 to 3 %, and the box adds its share.
        let (knee, ratio) = find(seed, mm1_knee(mu, slo_us), |run| {
            let mut trial = mm1(run, mu, slo_us);
            let noise = (1.0 + 0.05 * normal(&mut rng)).max(0.5);
            trial.latency.sojourn_p99_us = (trial.latency.sojourn_p99_us as f64 * noise) as u64;
            trial
        });
        assert_right(seed, &knee, ratio);
    }
}

#[test]
fn a_cap_that_scatters() {
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let cap = some_cap(&mut rng);
        // The capacity itself differs by 0.3 % from trial to trial.
        let (knee, ratio) = find(seed, cap, |run| capped(run, cap * (1.0 + 0.003 * normal(&mut rng))));
        assert_right(seed, &knee, ratio);
    }
}

#[test]
fn a_hiccup_in_one_trial_of_a_hundred_never_raises_the_knee_and_seldom_costs_it() {
    let mut verified = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let cap = some_cap(&mut rng);
        let (knee, ratio) = find(seed, cap, |run| {
            let mut trial = capped(run, cap);
            trial.errors.timeout = u64::from(rng.below(100) == 0);
            trial
        });
        assert!(ratio <= 1.001, "seed {seed}: {ratio}");
        if ratio >= 0.90 {
            verified += 1;
        } else {
            // The low load itself was hit, or a lower step: said in words, not hidden.
            assert!(
                knee.clean.is_some() || matches!(knee.outcome, SearchOutcome::Below { .. } | SearchOutcome::Unstable)
            );
        }
    }
    assert!(verified >= 900, "only {verified} of {SEEDS} searches got within 10 % in spite of hiccups");
}

#[test]
fn a_hole_below_the_cap_bounds_the_knee_or_is_not_met() {
    let mut met = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let cap = 150_000.0 + 200_000.0 * rng.unit();
        let hole = (cap * (0.3 + 0.4 * rng.unit()), cap * 0.1);
        let (knee, ratio) = find(seed, cap, |run| {
            let mut trial = capped(run, cap);
            let depth = run.rate.offered() - hole.0;
            trial.shed = u64::from(depth > 0.0 && depth < hole.1);
            trial
        });
        let is_at_hole = knee.capacity().is_some_and(|rate| (0.95..=1.001).contains(&(rate / hole.0)));
        let is_at_cap = (0.95..=1.001).contains(&ratio);
        assert!(is_at_hole || is_at_cap, "seed {seed}: {ratio}, hole {hole:?}, cap {cap}, {:?}", knee.trail);
        if is_at_hole {
            met += 1;
            // The ladder climbs out of the hole unless the hole is wider than the ladder is high.
            let climbed = knee.seen.iter().any(|seen| seen.run.rate.offered() > hole.0 && seen.verdict.is_clean());
            assert_eq!(climbed, !knee.non_monotone.is_empty(), "seed {seed}: {:?}", knee.non_monotone);
            let failed =
                |verdict: &Verdict| matches!(verdict, Verdict::NotClean(found) if found.reason == NotClean::Shed);
            assert!(knee.seen.iter().any(|seen| failed(&seen.verdict)));
        }
    }
    assert!((50..950).contains(&met), "the hole was met {met} times");
}
