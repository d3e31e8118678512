//! Whatever the trials say, the search ends, stays within its ceiling, and never reports a knee with a failed repeat.

use proptest::prelude::*;

use super::systems::{assert_honest, capped, drive, healthy};
use crate::points::NonMonotone;
use crate::trial::Used;
use crate::{Knee, Purpose, Rules, Run, SearchOptions, SearchOutcome, Trial};

/// The result that an adversary gives to a trial.
fn spoil(run: &Run, choice: u8, cap: f64) -> Trial {
    let mut trial = if choice.is_multiple_of(2) { capped(run, cap) } else { healthy(run) };
    match choice {
        0..=159 => {}
        160..=199 => trial.errors.timeout = 1,
        200..=219 => trial.completed /= 2,
        220..=229 => (trial.slo_p99_us, trial.latency.sojourn_p99_us) = (Some(100), 5_000),
        230..=239 => trial.is_steady = false,
        240..=244 => trial.latency.lag_max_us = 1_000_000,
        245..=249 => trial.resources.fds = Used { used: 9, limit: 10 },
        250 => trial.offered = f64::NAN,
        251 => trial.window_s = 0.0,
        252 => trial.parties.generator_core_busiest = f64::INFINITY,
        253 => (trial.completed, trial.intended) = (u64::MAX, u64::MAX),
        254 => trial.offered *= 2.0,
        255 => trial.integrity.mix_ups = 1,
    }
    trial
}

fn assert_bounded(knee: &Knee) {
    assert!(knee.seen.len() <= knee.rules.trials_max as usize);
    let ceiling = knee.ceiling;
    let above = knee.seen.iter().find(|seen| seen.run.rate.offered() > ceiling * (1.0 + 1e-9));
    assert!(ceiling == 0.0 || above.is_none(), "{above:?} above {ceiling}");
    for (at, pair) in knee.non_monotone.iter().enumerate() {
        let is_same = |earlier: &NonMonotone| (earlier.failed, earlier.clean) == (pair.failed, pair.clean);
        // A verification and the ladder may each meet a pair that short trials met before.
        assert!(
            knee.non_monotone[..at].iter().filter(|earlier| is_same(earlier)).count() < 3,
            "{pair:?} again and again"
        );
    }
    for seen in &knee.seen {
        assert!(seen.run.length.window_s <= knee.rules.window_max_s);
        let is_calibration = matches!(seen.run.purpose, Purpose::NullSink | Purpose::Direct);
        assert_eq!(seen.run.rate.offered() == 0.0, is_calibration);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_trials_ends_and_is_honest(
        choices in proptest::collection::vec(any::<u8>(), 1..400),
        cap in 1.0f64..1e6,
        seed in any::<u64>(),
    ) {
        let mut at = 0;
        let knee = drive(SearchOptions::default(), Rules::default(), seed, |run| {
            at += 1;
            spoil(run, choices[at % choices.len()], cap)
        });
        assert_honest(&knee);
        assert_bounded(&knee);
    }

    /// Valid trials only, clean or not by a coin: the states themselves bound the search, not the limit of trials.
    #[test]
    fn a_coin_ends_without_the_limit_of_trials(seed in any::<u64>(), clean_of_8 in 1u64..8) {
        let mut coin = weir_base::rng::Rng::new(seed);
        let knee = drive(SearchOptions::default(), Rules::default(), seed, |run| {
            let mut trial = healthy(run);
            trial.shed = u64::from(coin.below(8) >= clean_of_8 && run.purpose != Purpose::LowLoad);
            trial
        });
        assert_honest(&knee);
        assert_bounded(&knee);
        prop_assert_ne!(knee.outcome, SearchOutcome::TrialLimit);
        prop_assert_ne!(knee.overload_ended, Some(SearchOutcome::TrialLimit));
    }

    #[test]
    fn any_rules_that_pass_their_check_end(
        precision in 0.005f64..0.5,
        ramp in 1.05f64..16.0,
        low in 0.0001f64..0.5,
        repeats in 1u32..10,
        trials_max in 10u32..200,
        cap in 1.0f64..1e6,
        seed in any::<u64>(),
    ) {
        let rules = Rules {
            precision,
            ramp_factor: ramp,
            ramp_factor_backlog: ramp,
            low_load_share: low,
            verify_repeats: repeats,
            verify_repeats_max: repeats + 2,
            trials_max,
            ..Rules::default()
        };
        let knee = drive(SearchOptions::default(), rules, seed, |run| capped(run, cap));
        assert_bounded(&knee);
        if let Some(rate) = knee.capacity() {
            prop_assert!(rate <= cap * 1.002, "{rate} of {cap}");
        }
    }

    #[test]
    fn a_result_survives_json(seed in any::<u64>(), choices in proptest::collection::vec(any::<u8>(), 1..50)) {
        let mut at = 0;
        let knee = drive(SearchOptions::default(), Rules::default(), seed, |run| {
            at += 1;
            spoil(run, choices[at % choices.len()], 100_000.0)
        });
        let text = serde_json::to_string(&knee).unwrap();
        let back: Knee = serde_json::from_str(&text).unwrap();
        // Decimal text may round the last bit of a mean, so cells and counts are compared.
        prop_assert_eq!(back.clean_cell("req/s"), knee.clean_cell("req/s"));
        prop_assert_eq!(back.outcome, knee.outcome);
        prop_assert_eq!(back.seen.len(), knee.seen.len());
        prop_assert_eq!(back.trail, knee.trail);
        prop_assert_eq!(back.rules, knee.rules);
    }
}

#[test]
fn the_limit_of_trials_spares_a_verified_knee() {
    let usual = drive(SearchOptions::default(), Rules::default(), 1, |run| capped(run, 130_000.0));
    let before_end = u32::try_from(usual.seen.len()).unwrap() - 2;
    let rules = Rules { trials_max: before_end, ..Rules::default() };
    let cut = drive(SearchOptions::default(), rules, 1, |run| capped(run, 130_000.0));
    assert_eq!((cut.outcome, cut.overload_ended), (SearchOutcome::Verified, Some(SearchOutcome::TrialLimit)));
    let early =
        drive(SearchOptions::default(), Rules { trials_max: 10, ..Rules::default() }, 1, |run| capped(run, 130_000.0));
    assert_eq!((early.outcome, early.capacity()), (SearchOutcome::TrialLimit, None));
    assert_eq!(early.clean_cell("req/s").to_string(), "invalid: trial-limit");
}

#[test]
fn the_same_seed_gives_the_same_search() {
    let once = |seed| drive(SearchOptions::default(), Rules::default(), seed, |run| capped(run, 130_000.0));
    assert_eq!(once(5), once(5));
}
