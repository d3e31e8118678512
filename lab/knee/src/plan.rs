//! How many instances a demand needs: `U = K x (1 - headroom)`, `n = ceil(D / U) + failover`, per dimension; the largest
//! binds. Sized from clean knees of exactly the requested shape, or not at all.

mod difference;
mod warning;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use warning::Warning;

use crate::cell::short;
use crate::knee::{Knee, SearchOutcome};

/// Something that can run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Requests per second.
    Requests,
    /// Bytes per second.
    Bytes,
    /// Open connections.
    Connections,
    /// Concurrent streams.
    Streams,
    /// Bytes of memory.
    Memory,
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "requests/s",
            Self::Bytes => "bytes/s",
            Self::Connections => "connections",
            Self::Streams => "streams",
            Self::Memory => "bytes of memory",
        })
    }
}

/// The properties that must agree before a measurement applies to a deployment. None of them is extrapolated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Row of the catalogue: workload, payload, connections, pipeline.
    pub row: String,
    /// CPU budget of one instance.
    pub budget_vcpu: f64,
    /// `cpuset` or `quota`.
    pub budget_kind: String,
    /// `io_uring` or `polling`.
    pub driver: String,
    /// TLS state.
    pub tls: String,
    /// Telemetry level.
    pub telemetry: String,
}

/// One measured capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Run that found it; cited in the plan.
    pub run_id: String,
    /// Age of the run, seconds.
    pub age_s: u64,
    /// Shape of the measured run.
    pub shape: Shape,
    /// Which resource.
    pub dimension: Dimension,
    /// Kind of figure.
    pub figure: Figure,
}

/// Only a clean knee sizes anything.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Last clean rate of a verified interval.
    CleanKnee {
        /// In the unit of the dimension.
        capacity: f64,
        /// The lab could offer no more; the true knee is not below.
        is_at_ceiling: bool,
        /// Measured under a quota.
        is_quota_shaped: bool,
    },
    /// A peak: evidence of saturation, never a target.
    Peak,
    /// The search ended without a knee.
    NoKnee,
}

impl Figure {
    /// The requests per second of a search.
    #[must_use]
    pub fn of(knee: &Knee) -> Self {
        match knee.capacity() {
            Some(capacity) => Self::CleanKnee {
                capacity,
                is_at_ceiling: knee.outcome == SearchOutcome::AtCeiling,
                is_quota_shaped: knee.is_quota_shaped,
            },
            None => Self::NoKnee,
        }
    }
}

/// The query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// The command that would measure the shape.
    pub command: String,
    /// Shape of one instance and its traffic.
    pub shape: Shape,
    /// Demand at peak per dimension, each at most once.
    pub peak: Vec<(Dimension, f64)>,
    /// Share of the knee that stays free. Default 0.30.
    pub headroom: f64,
    /// Instances that may be down at the peak. Default 1.
    pub failover: u32,
}

/// Share of the knee left free unless the user says otherwise. 30 %: bursts, drift and the failover itself.
pub const HEADROOM_DEFAULT: f64 = 0.30;
/// Instances that may be down unless the user says otherwise.
pub const FAILOVER_DEFAULT: u32 = 1;
/// Age beyond which the plan warns. 30 days: kernel, configuration or build have probably changed.
pub const AGE_S_MAX: u64 = 30 * 24 * 3600;
/// Most instances that a plan may name; more is a mistake in the units.
pub const INSTANCES_MAX: u64 = 1_000_000;

/// The need in one dimension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Need {
    /// Which resource.
    pub dimension: Dimension,
    /// Demand at peak.
    pub demand: f64,
    /// Clean knee of one instance, `K`.
    pub knee: f64,
    /// The share of the knee that is used, `U`.
    pub usable: f64,
    /// Instances this dimension needs, failover included.
    pub instances: u64,
    /// Load of one instance when all of the plan's instances are up.
    pub load_all_up: f64,
    /// Load of one instance when `failover` of them are down.
    pub load_degraded: f64,
    /// Run the knee comes from.
    pub run_id: String,
    /// Its age, seconds.
    pub age_s: u64,
}

/// The plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Instances, failover included.
    pub instances: u64,
    /// The dimension that asks for most.
    pub binding: Dimension,
    /// Every dimension, in the order of the question.
    pub needs: Vec<Need>,
    /// Limitations of the figure.
    pub warnings: Vec<Warning>,
}

/// Why no number is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// A figure of the demand makes no sense.
    BadDemand {
        /// Which.
        what: String,
        /// The requirement on its value.
        must: String,
    },
    /// A dimension was not measured in this shape.
    Missing {
        /// Which.
        dimension: Dimension,
        /// The results found instead, run by run, and why they do not count.
        instead: Vec<String>,
        /// The command that would measure it.
        command: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadDemand { what, must } => write!(f, "{what} must be {must}"),
            Self::Missing { dimension, instead, command } => {
                writeln!(f, "no clean knee for {dimension} in this shape")?;
                for reason in instead {
                    writeln!(f, "  {reason}")?;
                }
                write!(f, "to find one, run:\n  {command}")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// Sizes a deployment from measured results. The most recent of several matching runs is used.
///
/// # Errors
/// A demand that makes no sense, or the first dimension without a clean knee of this shape.
pub fn plan(demand: &Demand, measured: &[Measured]) -> Result<Plan, Refusal> {
    check(demand)?;
    let mut needs = Vec::with_capacity(demand.peak.len());
    let mut warnings = Vec::new();
    for &(dimension, peak) in &demand.peak {
        let row = matching(demand, dimension, measured)?;
        needs.push(need(demand, dimension, peak, row)?);
        warning::add(row.0, &mut warnings);
    }
    if demand.failover == 0 {
        warnings.push(Warning::NoFailover);
    }
    warnings.extend(warning::ALWAYS);
    // The first of equals binds: the user's order is the order of importance.
    let most = needs.iter().rev().max_by_key(|need| need.instances);
    let (instances, binding) = most.map(|need| (need.instances, need.dimension)).ok_or_else(no_dimension)?;
    for need in &mut needs {
        need.load_all_up = need.demand / instances as f64;
        need.load_degraded = need.demand / (instances - u64::from(demand.failover)) as f64;
    }
    Ok(Plan { instances, binding, needs, warnings })
}

fn check(demand: &Demand) -> Result<(), Refusal> {
    let bad = |what: &str, must: &str| Err(Refusal::BadDemand { what: what.into(), must: must.into() });
    if !(0.0..1.0).contains(&demand.headroom) {
        return bad("headroom", "within 0..1");
    }
    if demand.peak.is_empty() {
        return Err(no_dimension());
    }
    for (place, (dimension, peak)) in demand.peak.iter().enumerate() {
        if !(peak.is_finite() && *peak > 0.0) {
            return bad(&format!("demand of {dimension}"), "a positive number");
        }
        if demand.peak[..place].iter().any(|(earlier, _)| earlier == dimension) {
            return bad(&format!("demand of {dimension}"), "given once");
        }
    }
    Ok(())
}

fn no_dimension() -> Refusal {
    Refusal::BadDemand { what: "demand".into(), must: "given for at least one dimension".into() }
}

/// The youngest clean knee of the shape, with its capacity.
fn matching<'a>(
    demand: &Demand,
    dimension: Dimension,
    measured: &'a [Measured],
) -> Result<(&'a Measured, f64), Refusal> {
    let mut found: Option<(&Measured, f64)> = None;
    let mut instead = Vec::new();
    for row in measured.iter().filter(|row| row.dimension == dimension) {
        match refusal_of(&demand.shape, row) {
            Ok(capacity) if found.is_none_or(|(best, _)| row.age_s < best.age_s) => found = Some((row, capacity)),
            Ok(_) => {}
            Err(reason) => instead.push(format!("run {}: {reason}", row.run_id)),
        }
    }
    found.ok_or_else(|| Refusal::Missing { dimension, instead, command: demand.command.clone() })
}

/// The capacity of a row, or why it may not speak for the shape.
fn refusal_of(shape: &Shape, row: &Measured) -> Result<f64, String> {
    let differences = difference::differences(&row.shape, shape);
    if !differences.is_empty() {
        return Err(format!("differs in: {}", differences.join("; ")));
    }
    match row.figure {
        Figure::CleanKnee { capacity, .. } if capacity.is_finite() && capacity > 0.0 => Ok(capacity),
        Figure::CleanKnee { .. } => Err("its capacity is not a positive number".into()),
        Figure::Peak => Err("a peak is evidence of saturation, not a size".into()),
        Figure::NoKnee => Err("it found no clean knee".into()),
    }
}

fn need(demand: &Demand, dimension: Dimension, peak: f64, row: (&Measured, f64)) -> Result<Need, Refusal> {
    let (row, knee) = row;
    let usable = knee * (1.0 - demand.headroom);
    // 550k x 0.7 is not exactly 385k: a demand of 385k needs one instance, not two.
    let working = (peak / usable * (1.0 - ROUNDING)).ceil().max(1.0);
    if working > INSTANCES_MAX as f64 {
        let must = format!("at most {INSTANCES_MAX} x {}", short(usable));
        return Err(Refusal::BadDemand { what: format!("demand of {dimension}"), must });
    }
    let instances = working as u64 + u64::from(demand.failover);
    let (run_id, age_s) = (row.run_id.clone(), row.age_s);
    Ok(Need { dimension, demand: peak, knee, usable, instances, load_all_up: 0.0, load_degraded: 0.0, run_id, age_s })
}

/// Far below one instance in [`INSTANCES_MAX`].
const ROUNDING: f64 = 1e-9;
