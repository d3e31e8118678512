//! What is compared in front of Redis, and how much of the other's CPU time is aimed at.

use super::row::{RedisRow, Verb};
use crate::bench::peers::name;
use crate::bench::target::Comparison;

/// The targets of the design, and the ratios that are of interest without one.
pub(crate) const ALL: [Comparison<RedisRow>; 7] = [
    Comparison { ours: name::WEIR, theirs: name::ENVOY, at_most: against_envoy },
    Comparison { ours: name::WEIR, theirs: name::TWEMPROXY, at_most: against_twemproxy },
    Comparison { ours: name::WEIR, theirs: name::HAPROXY_TCP, at_most: |_| None },
    Comparison { ours: name::WEIR, theirs: name::FLOOR, at_most: |_| None },
    Comparison { ours: name::WEIR_POLLING, theirs: name::ENVOY, at_most: polling_against_envoy },
    Comparison { ours: name::WEIR, theirs: name::WEIR_TELEMETRY_OFF, at_most: |_| Some(1.15) },
    Comparison { ours: name::WEIR_TLS, theirs: name::WEIR, at_most: |_| None },
];

fn is_small_get(row: &RedisRow) -> bool {
    row.verb == Verb::Get && row.bytes == 64 && row.keys == 1
}

fn against_envoy(row: &RedisRow) -> Option<f64> {
    match (is_small_get(row), row.pipeline, row.connections) {
        (true, 1, 50) => Some(0.55),
        (true, 1, 400) => Some(0.50),
        (true, 16, _) => Some(0.25),
        _ => None,
    }
}

fn against_twemproxy(row: &RedisRow) -> Option<f64> {
    is_small_get(row).then_some(0.75)
}

fn polling_against_envoy(row: &RedisRow) -> Option<f64> {
    (is_small_get(row) && row.pipeline == 1).then_some(0.95)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_those_of_the_design() {
        let row = |verb, connections, pipeline| RedisRow { verb, bytes: 64, connections, pipeline, keys: 1 };
        assert_eq!(against_envoy(&row(Verb::Get, 50, 1)), Some(0.55));
        assert_eq!(against_envoy(&row(Verb::Get, 400, 1)), Some(0.50));
        assert_eq!(against_envoy(&row(Verb::Get, 400, 16)), Some(0.25));
        assert_eq!(against_envoy(&row(Verb::Set, 50, 1)), None);
        assert_eq!(against_twemproxy(&row(Verb::Get, 50, 16)), Some(0.75));
        assert_eq!(polling_against_envoy(&row(Verb::Get, 50, 16)), None);
    }

    #[test]
    fn the_floor_is_shown_without_a_target() {
        let floor = ALL.iter().find(|comparison| comparison.theirs == name::FLOOR).unwrap();
        assert_eq!(floor.ours, name::WEIR);
        assert!(RedisRow::all().iter().all(|row| (floor.at_most)(row).is_none()));
    }
}
