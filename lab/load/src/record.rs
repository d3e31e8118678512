//! The result of one step as one line of JSON, schema `weir.lab.step/1`.
//!
//! Readers ignore fields that they do not know; a changed meaning gets a new number. `null` is "not measurable", 0 is
//! zero. Times are integer microseconds unless the name says seconds, rates are requests per second.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_knee::judge::Check;

use crate::outcome::{Counts, Latencies, WindowResult};
use crate::recorder::{HistogramError, Recorder, Summary};
use crate::scenario::{Mode, Phase, Scenario};
use crate::threshold::{Judged, Threshold};

/// Value of the field `schema`.
pub const SCHEMA: &str = "weir.lab.step/1";

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Which step of which run; at the top level of the object.
    #[serde(flatten)]
    pub identity: Identity,
    /// Set if this is a part of a run that goes on in several processes: the figures are those of the part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartOfRun>,
    /// The machine.
    pub host: Host,
    /// Which CPUs each party ran on.
    pub placement: Placement,
    /// The request.
    pub load: Load,
    /// The results of the requests.
    pub counts: Counts,
    /// How long they took.
    pub latency: Latency,
    /// Cost of the step.
    pub resources: Resources,
    /// Traffic on the wire.
    pub wire: Wire,
    /// Verdict on the step.
    pub verdict: Verdict,
    /// Thresholds of the run and what became of them; none if the run has none, or is a part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thresholds: Vec<Judged>,
}

/// Which step of which run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// [`SCHEMA`].
    pub schema: String,
    /// Unique per run.
    pub run_id: String,
    /// From 0.
    pub step: u32,
    /// From 0, among the steps at the same rate.
    pub repeat: u32,
    /// The row of the report: the scenario's name.
    pub row: String,
    /// `weir`, `direct`, or the name of a peer.
    pub arm: String,
    /// The commit of the source; absent where the program does not name one.
    pub commit: Option<String>,
    /// Version and profile of the binary.
    pub build: String,
    /// Seed of the scenario.
    pub seed: u64,
    /// RFC 3339, UTC.
    pub started: String,
}

/// Fields of a partial record that the merge needs: those that all parts have in common, and the sums behind its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartOfRun {
    /// Which, from 1.
    pub index: u32,
    /// Number of parts.
    pub of: u32,
    /// Name of the phase.
    pub phase: String,
    /// Fingerprint of the whole scenario.
    pub scenario: String,
    /// When the phase began with its warm-up, in microseconds since 1970.
    pub begins_unix_us: u64,
    /// The load of all parts together.
    pub load: Load,
    /// The latency target of the scenario.
    pub slo_p99_us: Option<u64>,
    /// CPU nanoseconds of the generator's threads within the window.
    pub cpu_ns: u64,
    /// Connections that ended during the phase unprompted.
    pub connections_lost: u32,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Release.
    pub kernel: Option<String>,
    /// As the kernel names it.
    pub cpu_model: Option<String>,
    /// Online.
    pub cpus: Option<u32>,
    /// Kind of guest, or `none`.
    pub virt: Option<String>,
    /// `v1`, `v2` or `mixed`.
    pub cgroup: Option<String>,
    /// Whether the cores have hardware counters.
    pub pmu: Option<bool>,
    /// Descriptors that a process may have.
    pub nofile: Option<u64>,
    /// Longest accept queue.
    pub somaxconn: Option<u64>,
    /// As the kernel names it.
    pub clocksource: Option<String>,
}

/// Which CPUs each party ran on. Parties are `gateway`, `generator`, `origin`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// CPUs of the gateway.
    pub budget_vcpu: Option<f64>,
    /// How the budget is kept.
    pub budget_kind: Option<BudgetKind>,
    /// CPU numbers by party.
    pub pins: BTreeMap<String, Vec<u32>>,
    /// `io_uring` or `polling`, as it was in use.
    pub driver: Option<String>,
    /// Whether the measured connections were encrypted.
    pub tls: Option<bool>,
    /// Level of the gateway's telemetry.
    pub telemetry: Option<String>,
}

/// How a CPU budget is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetKind {
    /// Whole CPUs.
    Cpuset,
    /// A share of time, which shapes the tail.
    Quota,
}

/// The request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// `open` or `closed`: numbers of different modes never share a column.
    pub mode: String,
    /// The process and its parameter; `null` in a closed loop.
    pub arrival: Option<String>,
    /// Requests per second; `null` in a closed loop.
    pub offered: Option<f64>,
    /// Connections of all shards together.
    pub connections: u32,
    /// Requests under way per connection.
    pub pipeline: u32,
    /// Streams per connection, for protocols that have them.
    pub streams: Option<u32>,
    /// Size or sizes of values.
    pub payload: String,
    /// The scenario knows the status of a right response and nothing of its contents, so none are checked.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_status_only: bool,
    /// Measured window in seconds.
    pub window_s: f64,
    /// Before it, in seconds.
    pub warmup_s: f64,
    /// Sojourn above which a request is late.
    pub late_limit_us: u64,
}

/// For fields that are written only where they say something.
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Load {
    /// As `scenario` and one phase of it ask for.
    #[must_use]
    pub fn of(scenario: &Scenario, phase: &Phase) -> Self {
        let arrival = match scenario.mode {
            Mode::Open(arrival) => Some(arrival.to_string()),
            Mode::Closed => None,
        };
        let is_multiplexed = scenario.protocol.is_multiplexed();
        Self {
            mode: scenario.mode.to_string(),
            arrival,
            offered: phase.rate.map(|rate| rate.as_per_second()),
            connections: scenario.connections,
            pipeline: if is_multiplexed { 1 } else { scenario.pipeline },
            streams: is_multiplexed.then_some(scenario.pipeline),
            payload: scenario.payload_words(),
            is_status_only: scenario.request.has_any_length,
            window_s: phase.duration.as_secs_f64(),
            warmup_s: phase.warmup.as_secs_f64(),
            late_limit_us: u64::try_from(scenario.late_limit.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

/// How long requests took; each with its whole histogram. See [`Latencies`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Intended to completed.
    pub sojourn: Summary,
    /// Sent to completed.
    pub service: Summary,
    /// Intended to ready.
    pub backlog: Summary,
    /// Ready to sent.
    pub generator_lag: Summary,
    /// Intended to first event, for protocols that stream.
    pub first_event: Option<Summary>,
    /// From each event to the next one of the same reply, for protocols that stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_events: Option<Summary>,
    /// Sent to completed, of refused and failed requests.
    pub error_service: Summary,
}

impl Latency {
    /// Summaries of `latencies`.
    #[must_use]
    pub fn of(latencies: &Latencies) -> Self {
        let Latencies { sojourn, service, backlog, generator_lag, error_service, first_event, between_events } =
            latencies;
        let some = |recorder: &Recorder| (recorder.n() > 0).then(|| recorder.summary());
        Self {
            sojourn: sojourn.summary(),
            service: service.summary(),
            backlog: backlog.summary(),
            generator_lag: generator_lag.summary(),
            first_event: some(first_event),
            between_events: some(between_events),
            error_service: error_service.summary(),
        }
    }
}

/// Cost of the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// By party: `gateway`, `generator`, `origin`, `rest`.
    pub parties: BTreeMap<String, Party>,
    /// Busy microseconds of all CPUs per completed request.
    pub box_us_per_req: Option<f64>,
    /// Share of the window that the hypervisor took, 0 to 1.
    pub steal: Option<f64>,
    /// CPU cycles of the gateway per completed request, by the processor's own counters.
    pub cycles_per_req: Option<f64>,
    /// Instructions of the gateway per completed request, counted like `cycles_per_req`.
    pub instructions_per_req: Option<f64>,
}

/// The cost of one party.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Party {
    /// CPU microseconds per completed request.
    pub cpu_us_per_req: Option<f64>,
    /// Kernel share of its CPU time, 0 to 1; sampled by most kernels.
    #[serde(default)]
    pub kernel_share: Option<f64>,
    /// Busy share of its busiest core, 0 to 1.
    pub busiest_core: Option<f64>,
    /// Bytes.
    pub rss_max: Option<u64>,
    /// Descriptors.
    pub fds_max: Option<u64>,
    /// Threads.
    pub threads: Option<u32>,
    /// Periods in which a quota stopped it.
    pub throttled: Option<u64>,
}

/// Traffic on the wire, as the generator saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Sent.
    pub tx_bytes: u64,
    /// Received.
    pub rx_bytes: u64,
    /// Bytes of values in correct replies; `null` if they were not counted.
    pub goodput_bytes: Option<u64>,
    /// Connections per core of the gateway.
    pub connections_per_core: Option<Vec<u32>>,
}

/// Verdict on the step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the trial passed its own checks.
    pub valid: bool,
    /// The check that failed, such as `generator-lag`.
    pub invalid_reason: Option<String>,
    /// Every check that failed, causes before symptoms: `invalid_reason` is the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_checks: Vec<String>,
    /// `null` if it is not valid.
    pub class: Option<Class>,
    /// Why it is not clean.
    pub not_clean_reason: Option<String>,
    /// The limit that stopped the search at this step.
    pub stop_reason: Option<String>,
    /// Numbers behind the reasons.
    pub evidence: BTreeMap<String, serde_json::Value>,
}

impl Verdict {
    /// Whether what went wrong is the target's: the step is valid, or all that makes it invalid is that the target dropped
    /// connections.
    #[must_use]
    pub fn is_of_target(&self) -> bool {
        self.valid || self.failed_checks == [Check::Connections.as_str()]
    }
}

/// Whether a valid step carried its load cleanly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It did.
    Clean,
    /// It did not.
    NotClean,
}

impl StepRecord {
    /// Judges `thresholds` by the figures of this record, which then holds what became of each.
    ///
    /// # Errors
    /// The histogram of the latencies cannot be read.
    pub fn judge(&mut self, thresholds: &[Threshold]) -> Result<(), HistogramError> {
        self.thresholds = thresholds.iter().map(|one| one.judge(self)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// One line of JSON without a line end.
    ///
    /// # Errors
    /// A number in `evidence` that JSON cannot hold.
    pub fn to_line(&self) -> Result<String, RecordError> {
        serde_json::to_string(self).map_err(RecordError::Json)
    }

    /// Reads one line.
    ///
    /// # Errors
    /// No JSON, a missing field, or another schema.
    pub fn from_line(line: &str) -> Result<Self, RecordError> {
        /// Read first: a record of another schema has other fields.
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let head: Head = serde_json::from_str(line).map_err(RecordError::Json)?;
        if head.schema != SCHEMA {
            return Err(RecordError::Schema(head.schema));
        }
        serde_json::from_str(line).map_err(RecordError::Json)
    }

    /// The outcome behind the record, so that those of several processes can be merged: see [`merge()`](crate::merge()).
    ///
    /// # Errors
    /// A histogram that cannot be read.
    pub fn outcome(&self) -> Result<WindowResult, RecordError> {
        let read = |summary: &Summary| Recorder::from_summary(summary).map_err(RecordError::Histogram);
        let some = |summary: &Option<Summary>| summary.as_ref().map_or(Ok(Recorder::default()), read);
        let Latency { sojourn, service, backlog, generator_lag, first_event, between_events, error_service } =
            &self.latency;
        let latencies = Latencies {
            sojourn: read(sojourn)?,
            service: read(service)?,
            backlog: read(backlog)?,
            generator_lag: read(generator_lag)?,
            error_service: read(error_service)?,
            first_event: some(first_event)?,
            between_events: some(between_events)?,
        };
        let late_limit = Duration::from_micros(self.load.late_limit_us);
        Ok(WindowResult::from_parts(self.counts.clone(), latencies, late_limit))
    }
}

/// Why a line is no record.
#[derive(Debug)]
pub enum RecordError {
    /// Not JSON, or not with these fields.
    Json(serde_json::Error),
    /// Another schema, which stands here.
    Schema(String),
    /// A histogram is damaged or of another kind.
    Histogram(HistogramError),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "no record of a step: {error}"),
            Self::Schema(found) => write!(f, "schema is {found:?}, this version reads {SCHEMA:?}"),
            Self::Histogram(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecordError {}

#[cfg(test)]
mod tests;
