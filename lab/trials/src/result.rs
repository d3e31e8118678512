//! The file of a search: what was found, in what shape, on what machine, and how to find it again.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use weir_knee::plan::{Demand, Dimension, Figure, Measured, Shape};
use weir_knee::{Backend, Knee, Plan};
use weir_load::Scenario;
use weir_load::record::Host;
use weir_load::scenario::Mode;
use weir_parties::peer::Telemetry;

use crate::budget::Budget;
use crate::course::Course;
use crate::file::{self, FileError};
use crate::placement::Placement;

/// Name and version of the file; a changed meaning gets a new number.
pub const SCHEMA: &str = "weir.lab.result/1";

/// Suffix of the row of a search that must not be used for sizing.
pub const QUICK: &str = ", quick look";

/// One search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KneeResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// Id of the search; plans cite it.
    pub run_id: String,
    /// Seconds since 1970 at its end.
    pub ended: u64,
    /// The only shape to which the result applies.
    pub shape: Shape,
    /// The command that repeats it.
    pub command: String,
    /// Version and profile of the build.
    #[serde(default)]
    pub build: String,
    /// The server behind the gateway, in words.
    #[serde(default)]
    pub behind: String,
    /// The scenario, whole.
    pub scenario: String,
    /// The gateway's configuration, whole.
    pub gateway_config: String,
    /// CPUs of each party.
    pub placement: Placement,
    /// The machine.
    pub host: Host,
    /// The result of the search.
    pub knee: Knee,
    /// Courses of all trials of `knee.seen`, in its order; none in files of earlier builds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub courses: Vec<Course>,
    /// The size that `weir lab size` made of it; absent from other searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

/// A deployment sized from one search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Its purpose.
    pub demand: Demand,
    /// The size; absent without a verified knee.
    pub plan: Option<Plan>,
    /// Why there is none, with the remedy.
    pub refusal: Option<String>,
}

impl KneeResult {
    /// Reads a file's text.
    ///
    /// # Errors
    /// No JSON, a missing field, or another schema.
    pub fn from_json(text: &str) -> Result<Self, FileError> {
        file::read(text, SCHEMA)
    }

    /// As a row that a plan may be made from, `now` seconds after 1970.
    #[must_use]
    pub fn measured(&self, now: u64) -> Measured {
        Measured {
            run_id: self.run_id.clone(),
            age_s: now.saturating_sub(self.ended),
            shape: self.shape.clone(),
            dimension: Dimension::Requests,
            figure: Figure::of(&self.knee),
        }
    }
}

/// Conditions outside the scenario that make a search another row.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// CPUs of the gateway.
    pub budget: Budget,
    /// Kind of server behind it.
    pub backend: Backend,
    /// How much it observes of itself.
    pub telemetry: Telemetry,
    /// A look, not for sizing.
    pub is_quick: bool,
}

/// The shape of a search. Every setting of the scenario that shapes the load is in the row, whatever its name.
#[must_use]
pub fn shape_of(scenario: &Scenario, conditions: &Conditions) -> Shape {
    let Conditions { budget, backend, telemetry, is_quick } = *conditions;
    let Scenario { name, protocol, connections, pipeline, mode, slo_p99, late_limit, .. } = scenario;
    let depth = if protocol.is_multiplexed() { "streams" } else { "pipeline" };
    let arrival = match mode {
        Mode::Open(arrival) => arrival.to_string(),
        Mode::Closed => "closed loop".to_owned(),
    };
    let slo = slo_p99.map_or("none".to_owned(), |slo| format!("{} us", slo.as_micros()));
    let backend = match backend {
        Backend::Real => "real",
        Backend::Synthetic => "synthetic",
    };
    let quick = if is_quick { QUICK } else { "" };
    let churn = if scenario.churn { ", a connection for each request" } else { "" };
    Shape {
        row: format!(
            "{name}: {}, {}, {connections} connections, {depth} {pipeline}{churn}, {arrival}{}, p99 limit {slo}, late \
             limit {} us, {backend} back end{quick}",
            protocol.mix(scenario),
            scenario.payload_words(),
            protocol.details(scenario),
            late_limit.as_micros()
        ),
        budget_vcpu: budget.vcpu(),
        budget_kind: budget.kind().to_owned(),
        driver: "auto".to_owned(),
        tls: "off".to_owned(),
        telemetry: telemetry.name().to_owned(),
    }
}

/// Seconds since 1970.
#[must_use]
pub fn seconds_since_epoch() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since: Duration| since.as_secs())
}
