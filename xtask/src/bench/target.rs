//! What is compared with what, and how much of the other's CPU time is aimed at.

use super::peers::name;
use super::row::{Row, Verb};
use weir_knee::Ratio;

/// One comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    /// Whose CPU time stands above the line.
    pub(crate) ours: &'static str,
    /// Whose stands below.
    pub(crate) theirs: &'static str,
    at_most: fn(&Row) -> Option<f64>,
}

impl Comparison {
    /// The targets of the design, and the ratios that are of interest without one.
    pub(crate) const ALL: [Self; 7] = [
        Self { ours: name::WEIR, theirs: name::ENVOY, at_most: against_envoy },
        Self { ours: name::WEIR, theirs: name::TWEMPROXY, at_most: against_twemproxy },
        Self { ours: name::WEIR, theirs: name::HAPROXY, at_most: |_| None },
        Self { ours: name::WEIR, theirs: name::FLOOR, at_most: |_| None },
        Self { ours: name::WEIR_POLLING, theirs: name::ENVOY, at_most: polling_against_envoy },
        Self { ours: name::WEIR, theirs: name::WEIR_TELEMETRY_OFF, at_most: |_| Some(1.15) },
        Self { ours: name::WEIR_TLS, theirs: name::WEIR, at_most: |_| None },
    ];

    /// Largest ratio that meets the target; `None`: this row has no target.
    pub(crate) fn at_most(&self, row: &Row) -> Option<f64> {
        (self.at_most)(row)
    }
}

fn is_small_get(row: &Row) -> bool {
    row.verb == Verb::Get && row.bytes == 64 && row.keys == 1
}

fn against_envoy(row: &Row) -> Option<f64> {
    match (is_small_get(row), row.pipeline, row.connections) {
        (true, 1, 50) => Some(0.55),
        (true, 1, 400) => Some(0.50),
        (true, 16, _) => Some(0.25),
        _ => None,
    }
}

fn against_twemproxy(row: &Row) -> Option<f64> {
    is_small_get(row).then_some(0.75)
}

fn polling_against_envoy(row: &Row) -> Option<f64> {
    (is_small_get(row) && row.pipeline == 1).then_some(0.95)
}

/// Whether the median meets the target. If the interval reaches over it, the blocks do not settle the question, and
/// the verdict says so.
pub(crate) fn verdict(ratio: &Ratio, at_most: Option<f64>) -> String {
    let Some(at_most) = at_most else { return "-".into() };
    let open = if ratio.interval.0 <= at_most && at_most < ratio.interval.1 { " (interval reaches over)" } else { "" };
    if ratio.median <= at_most {
        format!("met{open}")
    } else {
        format!("missed by {:.3}{open}", ratio.median - at_most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(median: f64, interval: (f64, f64)) -> Ratio {
        Ratio { median, spread: interval, interval, blocks: 8 }
    }

    #[test]
    fn targets_are_those_of_the_design() {
        let row = |verb, connections, pipeline| Row { verb, bytes: 64, connections, pipeline, keys: 1 };
        assert_eq!(against_envoy(&row(Verb::Get, 50, 1)), Some(0.55));
        assert_eq!(against_envoy(&row(Verb::Get, 400, 1)), Some(0.50));
        assert_eq!(against_envoy(&row(Verb::Get, 400, 16)), Some(0.25));
        assert_eq!(against_envoy(&row(Verb::Set, 50, 1)), None);
        assert_eq!(against_twemproxy(&row(Verb::Get, 50, 16)), Some(0.75));
        assert_eq!(polling_against_envoy(&row(Verb::Get, 50, 16)), None);
    }

    #[test]
    fn the_floor_is_shown_without_a_target() {
        let floor = Comparison::ALL.iter().find(|comparison| comparison.theirs == name::FLOOR).unwrap();
        assert_eq!(floor.ours, name::WEIR);
        assert!(Row::all().iter().all(|row| floor.at_most(row).is_none()));
    }

    #[test]
    fn a_verdict_tells_by_how_much_and_whether_it_is_settled() {
        assert_eq!(verdict(&ratio(0.5, (0.48, 0.52)), Some(0.55)), "met");
        assert_eq!(verdict(&ratio(0.5, (0.48, 0.60)), Some(0.55)), "met (interval reaches over)");
        assert_eq!(verdict(&ratio(0.6, (0.58, 0.62)), Some(0.55)), "missed by 0.050");
        assert_eq!(verdict(&ratio(0.6, (0.5, 0.7)), None), "-");
    }
}
