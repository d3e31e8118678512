//! Every transition of the table in `search.rs`, each with the smallest system that causes it.

use super::systems::{DIRECT, assert_honest, capped, drive, healthy, search};
use crate::command::Rate;
use crate::{
    Backend, Check, Command, Knee, Observation, Purpose, Rules, Run, Search, SearchOptions, SearchOutcome, State,
    StopReason,
};

/// The states passed, in order.
fn states(knee: &Knee) -> Vec<State> {
    assert_honest(knee);
    let mut states: Vec<State> = knee.trail.iter().map(|step| step.from).collect();
    states.extend(knee.trail.last().map(|step| step.to));
    assert!(knee.trail.windows(2).all(|pair| pair[0].to == pair[1].from), "{:?}", knee.trail);
    states
}

/// Offered loads of a purpose, in order.
fn rates(knee: &Knee, purpose: Purpose) -> Vec<f64> {
    let of_purpose = knee.seen.iter().filter(|seen| seen.run.purpose == purpose);
    of_purpose.map(|seen| seen.run.rate.offered()).collect()
}

#[test]
fn calibrate_measures_both_ceilings_and_then_five_per_cent() {
    let knee = search(|run| capped(run, 100_000.0));
    let first: Vec<(Purpose, Rate)> = knee.seen[..3].iter().map(|seen| (seen.run.purpose, seen.run.rate)).collect();
    let low = Rate::Offered(0.05 * DIRECT);
    assert_eq!(
        first,
        [(Purpose::NullSink, Rate::Saturate), (Purpose::Direct, Rate::Saturate), (Purpose::LowLoad, low)]
    );
    assert_eq!(knee.base.unwrap().sojourn_p99_us, super::systems::BASE_P99_US);
    let usual = [State::Calibrate, State::Ramp, State::Bisect, State::Verify, State::Overload, State::Done];
    assert_eq!(states(&knee), usual);
}

#[test]
fn a_ceiling_that_stays_uneven_is_a_scale_all_the_same() {
    let knee = search(|run| {
        let mut trial = capped(run, 100_000.0);
        trial.is_steady = run.rate != Rate::Saturate;
        trial
    });
    let retries = knee.seen.iter().filter(|seen| seen.run.rate == Rate::Saturate && seen.run.is_retry);
    assert_eq!((retries.count(), knee.outcome), (2, SearchOutcome::Verified));
}

#[test]
fn calibrate_ends_below_when_low_load_is_not_clean() {
    let knee = search(|run| capped(run, 10_000.0));
    assert_eq!(knee.outcome, SearchOutcome::Below { rate: 25_000.0 });
    assert_eq!(knee.clean_cell("req/s").to_string(), "below 25.0k");
    assert_eq!(knee.overload_cell("req/s").to_string(), "below 25.0k");
    assert_eq!(knee.stop.as_ref().unwrap().reason, StopReason::GatewayCpu);
    assert_eq!(states(&knee), [State::Calibrate, State::Done]);
}

#[test]
fn ramp_doubles_and_takes_smaller_steps_after_the_first_backlog() {
    let knee = search(|run| {
        let mut trial = capped(run, 180_000.0);
        if run.rate.offered() >= 100_000.0 {
            trial.latency.sojourn_p99_us = trial.latency.sojourn_p99_us.max(500);
        }
        trial
    });
    assert_eq!(rates(&knee, Purpose::Ramp), [50_000.0, 100_000.0, 150_000.0, 225_000.0]);
}

#[test]
fn ramp_to_the_ceiling_is_verified_and_overload_not_reached() {
    let knee = search(healthy);
    assert_eq!(rates(&knee, Purpose::Ramp), [50_000.0, 100_000.0, 200_000.0, 400_000.0]);
    assert_eq!(states(&knee), [State::Calibrate, State::Ramp, State::Verify, State::Done]);
    assert_eq!(knee.outcome, SearchOutcome::AtCeiling);
    assert_eq!(rates(&knee, Purpose::VerifyKnee), [400_000.0; 3]);
    assert_eq!(knee.clean_cell("req/s").to_string(), "400k req/s");
    assert_eq!(knee.overload_cell("req/s").to_string(), "not reached");
    assert_eq!(knee.peak_cell("req/s").to_string(), "400k req/s");
    assert_eq!(knee.stop.as_ref().unwrap().reason, StopReason::Backend);
}

#[test]
fn a_scenario_may_bound_the_search() {
    let options = SearchOptions { rate_max: Some(120_000.0), ..SearchOptions::default() };
    let knee = drive(options, Rules::default(), 1, healthy);
    assert_eq!(knee.capacity(), Some(120_000.0));
    assert_eq!(knee.seen[2].run.rate, Rate::Offered(6_000.0), "5 % of what is allowed");
    assert_eq!(knee.stop.as_ref().unwrap().reason, StopReason::Asked);
    assert!(knee.planning_read().contains("120k"), "{}", knee.planning_read());
}

#[test]
fn bisect_takes_the_middle_until_five_per_cent() {
    let knee = search(|run| capped(run, 130_000.0));
    assert_eq!(rates(&knee, Purpose::Ramp), [50_000.0, 100_000.0, 200_000.0]);
    assert_eq!(rates(&knee, Purpose::Bisect), [150_000.0, 125_000.0, 137_500.0, 131_250.0]);
    assert_eq!((knee.clean.unwrap().rate, knee.not_clean.unwrap().rate), (125_000.0, 131_250.0));
}

#[test]
fn verify_alternates_both_sides_in_an_order_of_the_seed() {
    let order = |seed: u64| -> Vec<Purpose> {
        let knee = drive(SearchOptions::default(), Rules::default(), seed, |run| capped(run, 130_000.0));
        let purposes = knee.seen.iter().map(|seen| seen.run.purpose);
        let order: Vec<Purpose> =
            purposes.filter(|purpose| matches!(purpose, Purpose::VerifyKnee | Purpose::VerifyAbove)).collect();
        assert_eq!(order.len(), 6);
        assert!(order.chunks(2).all(|pair| pair[0] != pair[1]), "{order:?}");
        order
    };
    assert_eq!(order(3), order(3));
    assert!((0..20).any(|seed| order(seed) != order(3)));
    let knee = search(|run| capped(run, 130_000.0));
    let long: Vec<&Run> = knee.seen.iter().map(|seen| &seen.run).filter(|run| run.length.is_long).collect();
    assert!(long.iter().all(|run| run.length.window_s == 30.0 && run.length.warmup_s == 5.0));
    assert_eq!(long.iter().map(|run| run.repeat).max(), Some(3));
}

#[test]
fn step_down_probes_the_next_lower_rate_and_verifies_it() {
    // Short trials pass up to 130k, long ones only up to 123k.
    let knee = search(|run| capped(run, if run.length.is_long { 123_000.0 } else { 130_000.0 }));
    assert_eq!(rates(&knee, Purpose::StepDown), [121_950.0]);
    let end = [State::Verify, State::StepDown, State::Verify, State::Overload, State::Done];
    assert!(states(&knee).ends_with(&end), "{:?}", knee.trail);
    assert_eq!((knee.clean.unwrap().rate, knee.not_clean.unwrap().rate), (121_950.0, 125_000.0));
}

#[test]
fn step_down_goes_on_while_the_probe_fails() {
    let mut has_verified = false;
    let knee = search(|run| {
        has_verified |= run.length.is_long;
        capped(run, if has_verified { 117_000.0 } else { 130_000.0 })
    });
    assert_eq!(rates(&knee, Purpose::StepDown), [121_950.0, 116_140.0]);
    assert_eq!(knee.outcome, SearchOutcome::Verified);
}

#[test]
fn four_step_downs_are_unstable() {
    let mut long = 0;
    let knee = search(|run| {
        // Every long trial finds less than the one before.
        long += u32::from(run.length.is_long);
        capped(run, if run.length.is_long { 1_000.0 } else { 130_000.0 })
    });
    assert!(long >= 5);
    assert_eq!(rates(&knee, Purpose::StepDown).len(), 4);
    assert_eq!(knee.outcome, SearchOutcome::Unstable);
    assert_eq!(knee.clean_cell("req/s").to_string(), "invalid: unstable");
    assert_eq!(knee.stop.as_ref().unwrap().reason, StopReason::GatewayCpu);
}

#[test]
fn step_up_makes_the_step_above_the_knee() {
    let knee = search(|run| capped(run, if run.length.is_long { 135_000.0 } else { 130_000.0 }));
    let end = [State::Verify, State::StepUp, State::Verify, State::Overload, State::Done];
    assert!(states(&knee).ends_with(&end), "{:?}", knee.trail);
    assert_eq!((knee.clean.unwrap().rate, knee.not_clean.unwrap().rate), (131_250.0, 137_810.0));
}

#[test]
fn two_steps_up_in_a_row_ramp_again() {
    // One trial of the ramp met a hiccup; the system itself carries 300k.
    let mut trials = 0;
    let knee = search(|run| {
        trials += 1;
        let mut trial = capped(run, 300_000.0);
        trial.errors.transport = u64::from(trials == 5);
        trial
    });
    let back = [State::StepUp, State::Verify, State::StepUp, State::Ramp];
    assert!(states(&knee).windows(4).any(|part| part == back), "{:?}", knee.trail);
    let rate = knee.capacity().unwrap();
    assert!((285_000.0..=300_000.0).contains(&rate), "{rate}");
}

#[test]
fn step_up_ends_at_the_ceiling() {
    let knee = search(|run| {
        let fails = !run.length.is_long && run.rate.offered() > 390_000.0;
        capped(run, if fails { 390_000.0 } else { 1e9 })
    });
    assert!(states(&knee).ends_with(&[State::StepUp, State::Verify, State::Done]), "{:?}", knee.trail);
    assert_eq!((knee.outcome, knee.capacity()), (SearchOutcome::AtCeiling, Some(400_000.0)));
}

#[test]
fn too_many_steps_up_are_unstable() {
    let rules = Rules { step_ups_max: 1, ..Rules::default() };
    let knee =
        drive(SearchOptions::default(), rules, 1, |run| capped(run, if run.length.is_long { 1e9 } else { 130_000.0 }));
    assert!(states(&knee).ends_with(&[State::StepUp, State::Done]), "{:?}", knee.trail);
    assert_eq!(knee.outcome, SearchOutcome::Unstable);
}

#[test]
fn repeats_above_that_disagree_are_run_up_to_five_times_and_never_become_the_knee() {
    let mut above = 0;
    let knee = search(|run| {
        let mut cap = 130_000.0;
        if run.purpose == Purpose::VerifyAbove {
            above += 1;
            cap = if above == 2 { cap } else { 140_000.0 };
        }
        capped(run, cap)
    });
    assert_honest(&knee);
    let side = knee.not_clean.unwrap();
    assert_eq!((side.rate, side.repeats, side.clean), (131_250.0, 5, 4));
    assert_eq!(knee.clean.unwrap().rate, 125_000.0);
}

#[test]
fn overload_climbs_the_ladder_and_stops_after_two_falls() {
    let shrinking = |run: &Run| {
        let offered = run.rate.offered();
        // Congestion collapse: the further above the cap, the less is completed.
        capped(run, if offered > 100_000.0 { 100_000.0 - 0.3 * (offered - 100_000.0) } else { 100_000.0 })
    };
    let knee = search(shrinking);
    let base = knee.first_overload.unwrap().rate;
    let rungs = rates(&knee, Purpose::Overload);
    assert_eq!(rungs.len(), 6, "two rungs of three trials: {rungs:?}");
    assert!((rungs[0] / base - 1.1).abs() < 0.001 && (rungs[3] / base - 1.25).abs() < 0.001);
    assert_eq!(knee.peak.unwrap().rate, base);
    let flat = search(|run| capped(run, 100_000.0));
    assert_eq!(rates(&flat, Purpose::Overload).len(), 12, "four rungs of three trials");
    assert!(flat.peak.unwrap().completed.interval().is_some());
}

#[test]
fn the_ladder_finds_the_overload_that_a_missed_target_is_not() {
    let knee = search(|run| {
        let mut trial = capped(run, 150_000.0);
        trial.slo_p99_us = Some(300);
        if run.rate.offered() > 100_000.0 && run.rate.offered() <= 150_000.0 {
            trial.latency.sojourn_p99_us = 400;
        }
        trial
    });
    assert_eq!(knee.stop.as_ref().unwrap().reason, StopReason::Latency);
    let (above, overload) = (knee.not_clean.unwrap().rate, knee.first_overload.unwrap().rate);
    assert!(above < 110_000.0 && overload > 150_000.0, "{above} {overload}");
}

#[test]
fn an_invalid_ladder_leaves_the_knee_and_says_why_it_ended() {
    let knee = search(|run| {
        let mut trial = healthy(run);
        trial.slo_p99_us = Some(300);
        trial.latency.sojourn_p99_us = if run.rate.offered() > 100_000.0 { 400 } else { 200 };
        if run.purpose == Purpose::Overload {
            trial.parties.generator_core_busiest = 0.99;
        }
        trial
    });
    assert_eq!(knee.outcome, SearchOutcome::Verified);
    assert!(knee.capacity().is_some());
    assert_eq!(knee.first_overload, None);
    assert_eq!(knee.overload_ended, Some(SearchOutcome::Invalid { check: Check::GeneratorCpu }));
    assert_eq!(knee.overload_cell("req/s").to_string(), "invalid: generator-cpu");
}

#[test]
fn an_invalid_trial_is_retried_once_with_more_shards() {
    let mut times = 0;
    let knee = search(|run| {
        let mut trial = capped(run, 130_000.0);
        if run.purpose == Purpose::Bisect && run.shards == 1 && !run.is_retry {
            times += 1;
            trial.latency.lag_max_us = 60_000;
        }
        trial
    });
    assert_eq!(times, 1);
    let at = knee.seen.iter().position(|seen| seen.run.is_retry).unwrap();
    let (failed, retried) = (&knee.seen[at - 1].run, &knee.seen[at].run);
    assert_eq!((failed.rate, failed.purpose, failed.shards), (retried.rate, retried.purpose, 1));
    assert_eq!(retried.shards, 2);
    assert!(knee.seen[at..].iter().all(|seen| seen.run.shards == 2), "the shards stay");
    assert_eq!(knee.outcome, SearchOutcome::Verified);
}

#[test]
fn the_second_failure_ends_the_search_with_its_reason() {
    let unsteady = search(|run| {
        let mut trial = healthy(run);
        trial.is_steady = run.purpose != Purpose::Ramp;
        trial
    });
    assert_eq!(unsteady.outcome, SearchOutcome::Unsteady);
    assert_eq!(unsteady.seen.len(), 5);
    assert_eq!(unsteady.clean_cell("req/s").to_string(), "invalid: unsteady");
    let overrun = search(|run| {
        let mut trial = capped(run, 130_000.0);
        trial.is_steady = trial.completed == trial.intended;
        trial
    });
    assert_eq!(overrun.outcome, SearchOutcome::Verified, "what is overloaded twice need not be so evenly");
    let few = search(|run| {
        let mut trial = healthy(run);
        trial.slo_p99_us = Some(1_000);
        if run.purpose == Purpose::Ramp {
            (trial.intended, trial.completed) = (412, 412);
        }
        trial
    });
    assert_eq!(few.clean_cell("req/s").to_string(), "n/a (n = 412)");
}

#[test]
fn a_clean_point_above_a_failed_one_makes_both_run_again() {
    // A hole from 160k to 210k in a system of 350k: the ramp falls into it, the ladder climbs out.
    let knee = search(|run| {
        let mut trial = capped(run, 350_000.0);
        trial.shed = u64::from((160_000.0..210_000.0).contains(&run.rate.offered()));
        trial
    });
    assert_honest(&knee);
    let again = rates(&knee, Purpose::Recheck);
    assert_eq!(again.len(), 2);
    let pair = knee.non_monotone[0];
    assert_eq!(again, [pair.failed, pair.clean]);
    assert!(pair.is_failed_again && pair.is_clean_again);
    let at = knee.seen.iter().position(|seen| seen.run.purpose == Purpose::Recheck).unwrap();
    assert_eq!(knee.seen[at - 1].run.rate.offered(), pair.clean, "before anything else");
    let rate = knee.capacity().unwrap();
    assert!((152_000.0..=160_000.0).contains(&rate), "load passes the hole on its way up: {rate}");
}

#[test]
fn a_contradiction_that_a_second_run_resolves_is_forgotten() {
    // Bisection fails twice by accident at 137,500 and above; two steps up later the ramp passes them.
    let mut short = 0;
    let knee = search(|run| {
        short += u32::from(!run.length.is_long && run.rate.offered() > 0.0);
        let mut trial = capped(run, 300_000.0);
        trial.errors.status = u64::from((4..=8).contains(&short) && !run.length.is_long);
        trial
    });
    assert_honest(&knee);
    assert!(!knee.non_monotone.is_empty(), "{:?}", knee.trail);
    assert!(knee.non_monotone.iter().any(|pair| !pair.is_failed_again));
    let rate = knee.capacity().unwrap();
    assert!((285_000.0..=300_000.0).contains(&rate), "{rate}");
}

#[test]
fn a_failed_knee_below_a_passing_step_is_run_again_and_stepped_down_from() {
    let knee = search(|run| match run.purpose {
        Purpose::VerifyKnee if run.rate.offered() == 125_000.0 && run.repeat >= 2 => capped(run, 100_000.0),
        Purpose::VerifyAbove if run.rate.offered() > 130_000.0 => healthy(run),
        _ => capped(run, 130_000.0),
    });
    assert_honest(&knee);
    let again: Vec<_> = knee.seen.iter().filter(|seen| seen.run.purpose == Purpose::Recheck).collect();
    assert!(again.len() >= 2 && again[0].run.length.is_long && again[1].run.length.is_long);
    assert_eq!(knee.non_monotone[0].failed, 125_000.0);
    assert_eq!(knee.clean.unwrap().rate, 121_950.0);
}

#[test]
fn a_mix_up_ends_the_search_at_once() {
    let knee = search(|run| {
        let mut trial = healthy(run);
        trial.integrity.mix_ups = u64::from(run.purpose == Purpose::Ramp);
        trial
    });
    assert_eq!((knee.outcome, knee.seen.len()), (SearchOutcome::MixUp, 4));
    assert_eq!(knee.clean_cell("req/s").to_string(), "invalid: mix-up");
}

#[test]
fn a_real_back_end_may_be_the_knee() {
    let options = SearchOptions { backend: Backend::Real, ..SearchOptions::default() };
    let cap = DIRECT;
    let knee = drive(options, Rules::default(), 1, |run| {
        let mut trial = capped(run, cap);
        trial.parties.gateway_core_busiest = Some(0.5);
        trial
    });
    let rate = knee.capacity().unwrap();
    assert!((0.95 * cap..=cap).contains(&rate), "{rate}: above 80 % of the direct ceiling");
    assert_eq!(knee.stop.as_ref().unwrap().reason, StopReason::Backend);
}

#[test]
fn a_command_is_repeated_until_its_own_observation_comes() {
    let mut search = Search::new(SearchOptions::default(), Rules::default(), 1).unwrap();
    let Command::Run(first) = search.next(None) else { panic!("a search begins with a trial") };
    assert_eq!(search.next(None), Command::Run(first));
    let other = Run { repeat: 9, ..first };
    assert_eq!(search.next(Some(&Observation { run: other, trial: healthy(&other) })), Command::Run(first));
    assert!(search.seen().is_empty());
    let Command::Run(second) = search.next(Some(&Observation { run: first, trial: healthy(&first) })) else {
        panic!("the second calibration follows")
    };
    assert_eq!((second.purpose, search.seen().len(), search.state()), (Purpose::Direct, 1, State::Calibrate));
}

#[test]
fn low_rates_get_windows_long_enough_for_a_p99() {
    let low = |run: &Run| {
        let mut trial = capped(run, 40.0);
        if matches!(run.rate, Rate::Saturate) {
            (trial.intended, trial.completed, trial.integrity.checked) = (1_000, 1_000, 1_000);
        }
        trial.slo_p99_us = Some(1_000_000);
        trial
    };
    let knee = search(low);
    assert_eq!(knee.seen[2].run.rate, Rate::Offered(5.0));
    assert_eq!(knee.seen[2].run.length.window_s, 240.0);
    assert_eq!(knee.clean_cell("req/s").to_string(), "40.0 req/s");
}

#[test]
fn an_offered_load_above_the_ceiling_is_invalid_even_within_tolerance() {
    let knee = search(|run| {
        let mut trial = healthy(run);
        trial.offered *= 1.005;
        trial
    });
    assert_eq!(knee.outcome, SearchOutcome::Invalid { check: Check::Ceiling });
    let far = search(|run| {
        let mut trial = healthy(run);
        trial.offered *= 1.02;
        trial
    });
    assert_eq!((far.outcome, far.seen.len()), (SearchOutcome::Invalid { check: Check::ConfigMismatch }, 4));
}

#[test]
fn a_hole_that_a_second_run_confirms_is_run_again_once_and_bounds_the_bisection() {
    // An accident keeps the first bracket low; after two steps up the ramp jumps over a hole that bisection had met.
    let mut has_verified = false;
    let knee = search(|run| {
        has_verified |= run.length.is_long;
        let rate = run.rate.offered();
        let mut trial = capped(run, 300_000.0);
        trial.errors.status = u64::from(!has_verified && rate > 105_000.0);
        trial.shed = u64::from((118_000.0..155_000.0).contains(&rate));
        trial
    });
    assert_honest(&knee);
    let confirmed = knee.non_monotone.iter().filter(|pair| pair.is_failed_again && pair.is_clean_again);
    let pairs: Vec<(f64, f64)> = confirmed.map(|pair| (pair.failed, pair.clean)).collect();
    assert!(!pairs.is_empty(), "{:?}", knee.trail);
    assert!(pairs.iter().enumerate().all(|(at, pair)| !pairs[..at].contains(pair)), "{pairs:?}");
    let rate = knee.capacity().unwrap();
    assert!((111_000.0..=118_000.0).contains(&rate), "{rate}");
}
