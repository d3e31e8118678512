//! The limits of a plan, which it must name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{AGE_S_MAX, Figure, Measured};

/// A reason for caution before trusting the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Warning {
    /// The run is older than [`AGE_S_MAX`].
    Old,
    /// Measured under a quota.
    QuotaShaped,
    /// The lab could offer no more.
    AtCeiling,
    /// No instance may fail.
    NoFailover,
    /// Always: bursts.
    Bursts,
    /// Always: latency variation of the back end.
    LatencyVariation,
    /// Always: connection churn.
    Churn,
    /// Always: payload sizes.
    Payloads,
    /// Always: telemetry.
    Telemetry,
    /// Always: mirroring.
    Mirroring,
    /// Always: noisy neighbours.
    NoisyNeighbours,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Old => "a run is older than 30 days: measure again on today's build and kernel",
            Self::QuotaShaped => "measured under a CPU quota: throttling puts whole periods into the tail",
            Self::AtCeiling => "the highest load that was offered: the knee is a lower bound",
            Self::NoFailover => "failover 0: losing one instance at the peak overloads the rest",
            Self::Bursts => "demand must be the peak second, not the mean of a minute",
            Self::LatencyVariation => "a slower back end holds more requests in flight and lowers the knee",
            Self::Churn => "new connections cost more than requests; the row kept its connections",
            Self::Payloads => "a larger payload is another row",
            Self::Telemetry => "a higher telemetry level is another row",
            Self::Mirroring => "mirrored traffic counts as traffic",
            Self::NoisyNeighbours => {
                "stolen CPU lowers the knee; the lab counts the slices where it saw any and refuses a trial with many"
            }
        })
    }
}

/// The warnings of the capacity guide, which hold for every plan.
pub(super) const ALWAYS: [Warning; 7] = [
    Warning::Bursts,
    Warning::LatencyVariation,
    Warning::Churn,
    Warning::Payloads,
    Warning::Telemetry,
    Warning::Mirroring,
    Warning::NoisyNeighbours,
];

/// The warnings that a run itself calls for, each once per plan.
pub(super) fn add(row: &Measured, warnings: &mut Vec<Warning>) {
    let Figure::CleanKnee { is_at_ceiling, is_quota_shaped, .. } = row.figure else { return };
    let facts = [
        (Warning::Old, row.age_s > AGE_S_MAX),
        (Warning::QuotaShaped, is_quota_shaped),
        (Warning::AtCeiling, is_at_ceiling),
    ];
    for (warning, holds) in facts {
        if holds && !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
}
