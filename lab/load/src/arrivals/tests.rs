//! The schedules against theory. Bounds are about five standard deviations of the statistic at the sample's size.

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn rate(per_second: f64) -> Rate {
    Rate::per_second(per_second).expect("a possible rate")
}

fn shard(arrival: Arrival, per_second: f64, seed: u64, shard: Shard, seconds: u64) -> Vec<u64> {
    Schedule::new(arrival, rate(per_second), seed, 0, shard, Duration::from_secs(seconds)).collect()
}

/// All shards together, sorted.
fn union(arrival: Arrival, per_second: f64, seed: u64, shards: u32, seconds: u64) -> Vec<u64> {
    let mut all: Vec<u64> = Shard::all(shards).flat_map(|one| shard(arrival, per_second, seed, one, seconds)).collect();
    all.sort_unstable();
    all
}

fn mean_and_variance(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    (mean, values.map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0))
}

/// Squared coefficient of variation of the gaps: 0 even, 1 Poisson, above 1 bursty.
fn gap_variation(times: &[u64]) -> f64 {
    let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let (mean, variance) = mean_and_variance(gaps.iter().copied());
    variance / (mean * mean)
}

/// Variance by mean of the arrivals per slot of `nanos`: 1 for Poisson.
fn dispersion(times: &[u64], nanos: u64, slots: usize) -> f64 {
    let mut counts = vec![0u32; slots];
    for time in times {
        if let Some(count) = counts.get_mut((time / nanos) as usize) {
            *count += 1;
        }
    }
    let (mean, variance) = mean_and_variance(counts.iter().map(|count| f64::from(*count)));
    variance / mean
}

const ALL: [Arrival; 4] =
    [Arrival::Deterministic, Arrival::Poisson, Arrival::Gamma { burstiness: 4.0 }, Arrival::OnOff { burst: 50 }];

#[test]
fn a_schedule_repeats_and_depends_on_seed_round_and_shard() {
    let (second, shards) = (Duration::from_secs(1), [Shard::new(0, 2).unwrap(), Shard::new(1, 2).unwrap()]);
    let draw = |arrival, seed, round, shard| -> Vec<u64> {
        Schedule::new(arrival, rate(1_000.0), seed, round, shard, second).collect()
    };
    for arrival in ALL {
        let first = draw(arrival, 1, 0, shards[0]);
        assert_eq!(first, draw(arrival, 1, 0, shards[0]), "{arrival}");
        assert!(first.is_sorted() && first.last().is_some_and(|last| *last < 1_000_000_000), "{arrival}");
        let is_random = matches!(arrival, Arrival::Poisson | Arrival::Gamma { .. });
        assert_eq!(first != draw(arrival, 2, 0, shards[0]), is_random, "{arrival}");
        assert_eq!(first != draw(arrival, 1, 1, shards[0]), is_random, "{arrival}");
        assert!(arrival == Arrival::OnOff { burst: 50 } || first != draw(arrival, 1, 0, shards[1]), "{arrival}");
    }
}

#[test]
fn the_mean_rate_is_the_offered_one_for_any_number_of_shards() {
    for arrival in ALL {
        for shards in [1, 3, 8] {
            let expected = 200_000.0;
            let variation = match arrival {
                Arrival::Poisson => 1.0,
                Arrival::Gamma { burstiness } => burstiness,
                _ => 0.0,
            };
            let bound = 50.0 + 5.0 * f64::sqrt(expected * variation);
            let count = union(arrival, 10_000.0, 3, shards, 20).len() as f64;
            assert!((count - expected).abs() <= bound, "{arrival} in {shards}: {count}");
        }
    }
}

#[test]
fn deterministic_shards_interleave_to_even_gaps() {
    let all = union(Arrival::Deterministic, 7_000.0, 0, 4, 1);
    let expected: Vec<u64> = (0..7_000).map(|i| i * 1_000_000 / 7).collect();
    assert_eq!(all, expected);
}

#[test]
fn deterministic_times_do_not_drift_over_an_hour() {
    // Rates whose gap is no whole number of nanoseconds.
    for (per_second, milli) in [(3.0, 3_000u128), (333.333, 333_333), (1_234.567, 1_234_567)] {
        for one in Shard::all(3) {
            let mut count = 0u128;
            for time in Schedule::new(Arrival::Deterministic, rate(per_second), 0, 0, one, HOUR) {
                let index = u128::from(one.index()) + 3 * count;
                assert_eq!(u128::from(time), index * NANOS_MILLI / milli);
                count += 1;
            }
            let last = (u128::from(one.index()) + 3 * count) * NANOS_MILLI / milli;
            assert!(last >= HOUR.as_nanos(), "ended early");
        }
    }
}

#[test]
fn random_times_do_not_drift_over_an_hour() {
    // The clock against a sum in integers that loses nothing: gaps in units of 2^-40 ns.
    let (mut rng, mut clock, mut exact) = (Rng::new(9), Clock::default(), 0u128);
    let mut time = 0;
    while time < HOUR.as_nanos() as u64 {
        let gap = exponential(&mut rng) * 1_234_567.891;
        let units = (gap * (1u64 << 40) as f64) as u128;
        exact += units;
        time = clock.advance(gap);
    }
    let exact = (exact >> 40) as u64;
    assert!(time.abs_diff(exact) <= 1, "{time} against {exact}");
}

#[test]
fn the_mean_of_a_poisson_hour_is_exact_within_its_own_noise() {
    let count = Schedule::new(Arrival::Poisson, rate(1_000.0), 4, 0, Shard::ONLY, HOUR).count() as f64;
    assert!((count - 3_600_000.0).abs() < 5.0 * f64::sqrt(3_600_000.0), "{count}");
}

#[test]
fn poisson_gaps_are_exponential() {
    let times = shard(Arrival::Poisson, 10_000.0, 6, Shard::ONLY, 40);
    let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    assert!((gap_variation(&times) - 1.0).abs() < 0.03);
    // Share of gaps above x means is exp(-x).
    for x in [0.1, 0.5, 1.0, 2.0, 4.0] {
        let share = gaps.iter().filter(|gap| **gap > x * 100_000.0).count() as f64 / gaps.len() as f64;
        let bound = 5.0 * (f64::exp(-x) / gaps.len() as f64).sqrt();
        assert!((share - f64::exp(-x)).abs() < bound, "{x}: {share}");
    }
    // Gaps say nothing about their neighbours.
    let (mean, variance) = mean_and_variance(gaps.iter().copied());
    let covariance =
        gaps.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>() / (gaps.len() - 1) as f64;
    assert!((covariance / variance).abs() < 5.0 / (gaps.len() as f64).sqrt());
}

#[test]
fn the_sum_of_poisson_shards_is_poisson() {
    for shards in [1, 2, 5, 16] {
        let all = union(Arrival::Poisson, 10_000.0, 8, shards, 40);
        // 5 standard deviations of an index of dispersion over m slots: 5 * sqrt(2 / m).
        for (slot, slots) in [(1_000_000, 40_000), (10_000_000, 4_000), (100_000_000, 400)] {
            let index = dispersion(&all, slot, slots);
            let bound = 5.0 * (2.0 / slots as f64).sqrt();
            assert!((index - 1.0).abs() < bound, "{shards} shards, slots of {slot} ns: {index}");
        }
        assert!((gap_variation(&all) - 1.0).abs() < 0.03, "{shards}");
    }
}

#[test]
fn gamma_gaps_have_the_configured_burstiness_and_shards_do_not_smooth_it() {
    for burstiness in [1.0, 2.0, 4.0, 10.0] {
        for shards in [1, 4] {
            let all = union(Arrival::Gamma { burstiness }, 10_000.0, 2, shards, 60);
            let variation = gap_variation(&all);
            let tolerance = 0.02 + 0.015 * burstiness;
            assert!((variation / burstiness - 1.0).abs() < tolerance, "{burstiness} in {shards}: {variation}");
        }
    }
    // Far beyond any use: the gaps still are numbers.
    let wild = shard(Arrival::Gamma { burstiness: 1_000.0 }, 1_000.0, 2, Shard::ONLY, 60);
    assert!(wild.is_sorted() && !wild.is_empty());
}

#[test]
fn the_shards_of_a_common_process_are_the_process() {
    for arrival in [Arrival::Gamma { burstiness: 4.0 }, Arrival::OnOff { burst: 7 }] {
        assert_eq!(union(arrival, 5_000.0, 2, 1, 2), union(arrival, 5_000.0, 2, 6, 2), "{arrival}");
    }
}

#[test]
fn bursts_come_back_to_back_at_the_same_mean_rate() {
    let all = union(Arrival::OnOff { burst: 30 }, 900.0, 0, 4, 10);
    assert_eq!(all.len(), 9_000);
    for (number, burst) in all.chunks(30).enumerate() {
        let begin = number as u64 * 1_000_000_000 / 30;
        assert!(burst.iter().all(|time| *time == begin), "burst {number}");
    }
}

#[test]
fn impossible_rates_do_not_exist() {
    for wrong in [0.0, -1.0, 0.000_9, f64::NAN, f64::INFINITY, 100_000_001.0] {
        assert_eq!(Rate::per_second(wrong), None, "{wrong}");
    }
    assert_eq!(rate(0.001).as_per_second(), 0.001);
    assert_eq!(shard(Arrival::Deterministic, 0.001, 0, Shard::ONLY, 10), [0]);
}
