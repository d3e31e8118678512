//! Simulated systems: a function from a run to what a trial of it would measure.

use weir_base::rng::Rng;

use crate::trial::{Errors, Host, Integrity, Latency, Parties, Resources, Used};
use crate::{Command, Knee, Observation, Purpose, Rules, Run, Search, SearchOptions, Trial};

/// Ceilings that leave room above every system here.
pub const NULL_SINK: f64 = 1_000_000.0;
pub const DIRECT: f64 = 500_000.0;
/// Latency of an idle system.
pub const BASE_P99_US: u64 = 200;

/// A flawless trial of a run: everything intended completed at idle latency.
pub fn healthy(run: &Run) -> Trial {
    let window_s = run.length.window_s;
    let rate = match run.purpose {
        Purpose::NullSink => NULL_SINK,
        Purpose::Direct => DIRECT,
        _ => run.rate.offered(),
    };
    let intended = (rate * window_s).round() as u64;
    Trial {
        offered: run.rate.offered(),
        window_s,
        intended,
        completed: intended,
        errors: Errors::default(),
        integrity: Integrity { checked: intended, failed: 0, mix_ups: 0, is_status_only: false },
        latency: Latency { sojourn_p50_us: 80, sojourn_p99_us: BASE_P99_US, lag_p99_us: 20, lag_max_us: 900 },
        is_steady: true,
        resources: Resources {
            sockets_asked: 50,
            sockets_established: 50,
            fds: Used { used: 120, limit: 1_024 },
            ..Resources::default()
        },
        parties: Parties {
            generator_core_busiest: 0.4,
            origin_core_busiest: Some(0.3),
            gateway_core_busiest: Some(0.5),
            gateway_core_mean: Some(0.4),
            ..Parties::default()
        },
        host: Host { slices: window_s as u64, idle: Some(0.3), ..Host::default() },
        ..Trial::default()
    }
}

/// A trial at `rate` against a system that completes `cap` per second at the most and then builds a backlog.
pub fn capped(run: &Run, cap: f64) -> Trial {
    let mut trial = healthy(run);
    let offered = run.rate.offered();
    if offered > cap {
        trial.completed = (cap * trial.window_s) as u64;
        trial.skipped_backlog = trial.intended - trial.completed;
        trial.latency.sojourn_p99_us = 1_000_000;
        trial.parties.gateway_core_busiest = Some(0.99);
    }
    trial
}

/// A trial against M/M/1 with service rate `mu`: p99 sojourn is `ln(100) / (mu - lambda)`.
pub fn mm1(run: &Run, mu: f64, slo_us: u64) -> Trial {
    let mut trial = capped(run, mu);
    trial.slo_p99_us = Some(slo_us);
    let lambda = run.rate.offered();
    if lambda < mu {
        trial.latency.sojourn_p99_us = (100f64.ln() / (mu - lambda) * 1e6) as u64;
        trial.parties.gateway_core_busiest = Some(lambda / mu);
    }
    trial
}

/// The rate at which the p99 of M/M/1 meets the target.
pub fn mm1_knee(mu: f64, slo_us: u64) -> f64 {
    mu - 100f64.ln() / (slo_us as f64 / 1e6)
}

/// A standard normal number (sum of twelve uniforms).
pub fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}

/// Runs a search to its end.
pub fn drive(options: SearchOptions, rules: Rules, seed: u64, mut system: impl FnMut(&Run) -> Trial) -> Knee {
    let most = rules.trials_max;
    let mut search = Search::new(options, rules, seed).unwrap();
    let mut command = search.next(None);
    for _ in 0..=most {
        match command {
            Command::Done(knee) => return *knee,
            Command::Run(run) => {
                let trial = system(&run);
                command = search.next(Some(&Observation { run, trial }));
            }
        }
    }
    panic!("the search did not end within {most} trials");
}

/// Runs a search with what most tests want.
pub fn search(system: impl FnMut(&Run) -> Trial) -> Knee {
    drive(SearchOptions::default(), Rules::default(), 1, system)
}

/// Conditions that hold for every result: a knee has only clean long trials, at least as many as requested, and lies
/// below the failed side.
pub fn assert_honest(knee: &Knee) {
    let Some(side) = &knee.clean else {
        assert_eq!(knee.capacity(), None);
        return;
    };
    let long = knee.seen.iter().filter(|seen| seen.run.length.is_long && seen.run.rate.offered() == side.rate);
    let valid: Vec<_> = long.filter(|seen| seen.verdict.is_valid()).collect();
    assert!(valid.len() >= knee.rules.verify_repeats as usize, "{} repeats at {}", valid.len(), side.rate);
    assert!(valid.iter().all(|seen| seen.verdict.is_clean()), "a repeat at {} failed: {:?}", side.rate, knee.trail);
    assert_eq!((side.repeats, side.clean), (valid.len() as u32, valid.len() as u32));
    if let Some(above) = &knee.not_clean {
        assert!(above.rate > side.rate && above.rate <= side.rate * 1.052, "{} {}", side.rate, above.rate);
        assert!(above.repeats > above.clean, "nothing failed at {}", above.rate);
    }
}
