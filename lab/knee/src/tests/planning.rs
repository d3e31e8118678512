//! The arithmetic of `plan`, and its refusals.

use super::systems::{capped, search};
use crate::plan::{Demand, Dimension, Figure, Measured, Shape, Warning};
use crate::{Refusal, plan};

fn shape() -> Shape {
    Shape {
        row: "redis-get-set-80-20-64b".into(),
        budget_vcpu: 2.0,
        budget_kind: "cpuset".into(),
        driver: "io_uring".into(),
        tls: "off".into(),
        telemetry: "counters".into(),
    }
}

fn measured(run_id: &str, dimension: Dimension, capacity: f64) -> Measured {
    let figure = Figure::CleanKnee { capacity, is_at_ceiling: false, is_quota_shaped: false };
    Measured { run_id: run_id.into(), age_s: 3_600, shape: shape(), dimension, figure }
}

fn demand(peak: &[(Dimension, f64)]) -> Demand {
    Demand {
        command: "weir lab knee redis.toml".into(),
        shape: shape(),
        peak: peak.to_vec(),
        headroom: 0.30,
        failover: 1,
    }
}

#[test]
fn four_instances_carry_900k_at_550k_each_with_headroom_and_one_down() {
    let rows = [measured("r1", Dimension::Requests, 550_000.0)];
    let plan = plan(&demand(&[(Dimension::Requests, 900_000.0)]), &rows).unwrap();
    assert_eq!((plan.instances, plan.binding), (4, Dimension::Requests));
    let need = &plan.needs[0];
    assert!((need.usable - 385_000.0).abs() < 1e-6);
    assert_eq!((need.load_all_up, need.load_degraded), (225_000.0, 300_000.0));
    assert_eq!((need.run_id.as_str(), need.age_s), ("r1", 3_600));
}

#[test]
fn the_dimension_that_needs_most_binds() {
    let rows = [
        measured("r1", Dimension::Requests, 550_000.0),
        measured("r2", Dimension::Bytes, 1e9),
        measured("r3", Dimension::Connections, 2_000.0),
    ];
    let peak = [(Dimension::Requests, 900_000.0), (Dimension::Bytes, 3e9), (Dimension::Connections, 5_000.0)];
    let plan = plan(&demand(&peak), &rows).unwrap();
    let instances: Vec<u64> = plan.needs.iter().map(|need| need.instances).collect();
    assert_eq!(instances, [4, 6, 5]);
    assert_eq!((plan.instances, plan.binding), (6, Dimension::Bytes));
    assert_eq!(plan.needs[0].load_all_up, 150_000.0, "loads are those of the whole plan");
}

#[test]
fn a_demand_that_fits_exactly_needs_no_further_instance() {
    let rows = [measured("r1", Dimension::Requests, 550_000.0)];
    for (peak, instances) in [(385_000.0, 2), (385_001.0, 3), (770_000.0, 3), (1.0, 2)] {
        let plan = plan(&demand(&[(Dimension::Requests, peak)]), &rows).unwrap();
        assert_eq!(plan.instances, instances, "{peak}");
    }
}

#[test]
fn the_youngest_matching_run_speaks() {
    let mut young = measured("young", Dimension::Requests, 100.0);
    young.age_s = 60;
    let rows = [measured("old", Dimension::Requests, 900.0), young];
    let plan = plan(&demand(&[(Dimension::Requests, 50.0)]), &rows).unwrap();
    assert_eq!((plan.needs[0].run_id.as_str(), plan.needs[0].knee), ("young", 100.0));
}

#[test]
fn another_shape_a_peak_and_a_search_without_a_knee_are_refused_by_name() {
    let change = |run_id: &str, change: fn(&mut Measured)| {
        let mut row = measured(run_id, Dimension::Requests, 550_000.0);
        change(&mut row);
        row
    };
    let rows = [
        change("a", |row| row.shape.row = "redis-64k".into()),
        change("b", |row| row.shape.budget_vcpu = 4.0),
        change("c", |row| row.shape.budget_kind = "quota".into()),
        change("d", |row| row.shape.driver = "polling".into()),
        change("e", |row| row.shape.tls = "on".into()),
        change("f", |row| row.shape.telemetry = "off".into()),
        change("g", |row| row.figure = Figure::Peak),
        change("h", |row| row.figure = Figure::NoKnee),
        change("i", |row| row.dimension = Dimension::Bytes),
    ];
    let refusal = plan(&demand(&[(Dimension::Requests, 900_000.0)]), &rows).unwrap_err();
    let Refusal::Missing { dimension, instead, command } = &refusal else { panic!("{refusal}") };
    assert_eq!((*dimension, command.as_str()), (Dimension::Requests, "weir lab knee redis.toml"));
    let words = [
        "differs in: redis-64k (requested: redis-get-set-80-20-64b)",
        "differs in: budget 4 vCPU (requested: 2)",
        "differs in: budget kind quota (requested: cpuset)",
        "driver polling",
        "tls on",
        "telemetry off",
        "peak",
        "no clean knee",
    ];
    assert_eq!(instead.len(), words.len(), "{instead:?}");
    for (reason, word) in instead.iter().zip(words) {
        assert!(reason.contains(word), "{reason}: {word}");
    }
    let text = refusal.to_string();
    assert!(text.ends_with("to find one, run:\n  weir lab knee redis.toml"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn demands_that_make_no_sense_are_refused() {
    let rows = [measured("r1", Dimension::Requests, 550_000.0)];
    let one = [(Dimension::Requests, 1_000.0)];
    let bad = [
        Demand { headroom: 1.0, ..demand(&one) },
        Demand { headroom: f64::NAN, ..demand(&one) },
        demand(&[]),
        demand(&[(Dimension::Requests, 0.0)]),
        demand(&[(Dimension::Requests, f64::INFINITY)]),
        demand(&[(Dimension::Requests, 1e300)]),
        demand(&[one[0], one[0]]),
    ];
    for demand in bad {
        assert!(matches!(plan(&demand, &rows), Err(Refusal::BadDemand { .. })), "{demand:?}");
    }
}

#[test]
fn warnings_name_the_limits_of_the_figure() {
    let mut row = measured("r1", Dimension::Requests, 550_000.0);
    row.age_s = 40 * 24 * 3_600;
    row.figure = Figure::CleanKnee { capacity: 550_000.0, is_at_ceiling: true, is_quota_shaped: true };
    let options = Demand { failover: 0, ..demand(&[(Dimension::Requests, 100.0)]) };
    let made = plan(&options, &[row]).unwrap();
    let own = [Warning::Old, Warning::QuotaShaped, Warning::AtCeiling, Warning::NoFailover];
    assert_eq!(made.warnings[..4], own);
    assert_eq!(made.warnings.len(), 11);
    assert_eq!(made.instances, 1);
    let plain = plan(&demand(&[(Dimension::Requests, 100.0)]), &[measured("r1", Dimension::Requests, 1e3)]).unwrap();
    assert!(own.iter().all(|warning| !plain.warnings.contains(warning)));
}

#[test]
fn a_search_becomes_a_figure_only_with_a_verified_knee() {
    let knee = search(|run| capped(run, 130_000.0));
    assert!(matches!(Figure::of(&knee), Figure::CleanKnee { capacity, .. } if capacity == 125_000.0));
    let below = search(|run| capped(run, 10.0));
    assert_eq!(Figure::of(&below), Figure::NoKnee);
}
