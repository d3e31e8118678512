//! The file of a sweep: what one closed loop after the other found, with more and more requests under way, or CPUs.

use serde::{Deserialize, Serialize};
use weir_knee::{Backend, Rules};
use weir_load::Recorder;
use weir_load::record::Host;
use weir_load::recorder::{Percentile, Summary, Tail};

use crate::comparison::{Arm, MissingPeer};
use crate::file::{self, FileError};
use crate::placement::Placement;
use crate::swept_page;

/// Name and version of the file; a changed meaning gets a new number.
pub const SCHEMA: &str = "weir.lab.sweep/1";

/// Busy share of a core from which it bounds what it carries.
const FULL_MIN: f64 = 0.95;

/// The parameter that a sweep varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Requests under way, for each of several protocols.
    Ladder,
    /// CPUs of the gateway.
    Cores,
}

/// One sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// [`SCHEMA`].
    pub schema: String,
    /// Id of the last run.
    pub run_id: String,
    /// Seconds since 1970 at its end.
    pub ended: u64,
    /// The command that repeats it.
    pub command: String,
    /// Version and profile of the build.
    pub build: String,
    /// The varied parameter.
    pub kind: Kind,
    /// The servers behind the gateways, in words.
    pub behind: String,
    /// Whether that was an origin of the lab.
    pub backend: Backend,
    /// The machine.
    pub host: Host,
    /// Thresholds by which runs were judged.
    pub rules: Rules,
    /// Load before each window, seconds.
    pub warmup_s: f64,
    /// Measured window of each run, seconds.
    pub window_s: f64,
    /// One per scenario and budget.
    pub groups: Vec<Group>,
}

/// Measurements of one set of programs: a scenario on one budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Name of the scenario.
    pub name: String,
    /// Its protocol, as tables head it.
    pub protocol: String,
    /// The scenario, whole. Its mode, connections and phases are not used.
    pub scenario: String,
    /// Size or sizes of bodies, messages or values.
    pub payload: String,
    /// CPUs of each gateway; below 1 a share of one.
    pub budget_vcpu: f64,
    /// CPUs of each party; `None`: the host cannot give the budget.
    pub placement: Option<Placement>,
    /// Why nothing was run.
    pub not_run: Option<String>,
    /// The server of others that was started to stand behind; `None`: an origin of the lab, or one that was there.
    pub server: Option<Arm>,
    /// Those that ran, the gateway of this project first.
    pub arms: Vec<Arm>,
    /// Those that did not.
    pub missing: Vec<MissingPeer>,
    /// In the order in which they ran.
    pub rungs: Vec<Rung>,
}

/// One arm with so many requests under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    /// The arm.
    pub arm: String,
    /// Requests under way: connections times streams or pipeline.
    pub under_way: u32,
    /// Connections.
    pub connections: u32,
    /// Always `closed`: numbers of different modes never share a column.
    pub mode: String,
    /// The measurements; `None`: see `failed`.
    pub figures: Option<Figures>,
    /// Why there are no figures, or why they do not count, in words.
    pub failed: Option<String>,
}

/// Measurements of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Completed correctly per second.
    pub rate: f64,
    /// Refused with the overload reply, failed, and skipped.
    pub refused: u64,
    /// See `refused`.
    pub errors: u64,
    /// Sojourn with its whole histogram; in a closed loop it is what a client sees, and hides stalls.
    pub sojourn: Summary,
    /// CPU time of the gateway per completed request, microseconds; `None` without a gateway.
    pub cpu_us_per_req: Option<f64>,
    /// Share of its CPU time in the kernel: sampled.
    pub kernel_share: Option<f64>,
    /// Most resident bytes at any look.
    pub rss_max: Option<u64>,
    /// Most descriptors of one of its processes at any look.
    pub fds_max: Option<u64>,
    /// Its threads.
    pub threads: Option<u32>,
    /// Gateway: its busiest thread as a share of the CPU that it may use, 0 to 1.
    pub gateway_busiest: Option<f64>,
    /// The same of the origin.
    pub origin_busiest: Option<f64>,
    /// Busy share of the fullest CPU that the generator may use, whatever else runs on it.
    pub generator_cpu: Option<f64>,
    /// Busy microseconds of all CPUs per completed request.
    pub box_us: Option<f64>,
    /// Share of the window that the hypervisor took.
    pub steal: f64,
}

impl Figures {
    /// CPU time of the gateway per second, in percent of one CPU.
    #[must_use]
    pub fn cpu_percent(&self) -> Option<f64> {
        self.cpu_us_per_req.map(|micros| micros * self.rate / 1e4)
    }

    /// A percentile of the sojourn.
    #[must_use]
    pub fn percentile(&self, tail: Tail) -> Option<Percentile> {
        Some(Recorder::from_summary(&self.sojourn).ok()?.percentile(tail))
    }

    /// The party that was full: only then the rate is its own. If none was full, each request only waits for the one before.
    #[must_use]
    pub fn limit(&self) -> &'static str {
        let is_full = |share: Option<f64>| share.is_some_and(|share| share >= FULL_MIN);
        match (is_full(self.gateway_busiest), is_full(self.origin_busiest) || is_full(self.generator_cpu)) {
            (true, true) => "gateway and lab",
            (true, false) => "gateway",
            (false, true) => "lab",
            (false, false) => "concurrency",
        }
    }
}

impl Sweep {
    /// Reads a file's text.
    ///
    /// # Errors
    /// No JSON, a missing field, or another schema.
    pub fn from_json(text: &str) -> Result<Self, FileError> {
        file::read(text, SCHEMA)
    }

    /// Its tables and conditions.
    #[must_use]
    pub fn markdown(&self) -> String {
        swept_page::markdown(self)
    }
}

impl Group {
    /// The rate without a gateway with as many requests under way.
    #[must_use]
    pub fn direct_rate(&self, under_way: u32) -> Option<f64> {
        let direct = |rung: &&Rung| rung.arm == weir_parties::peer::DIRECT && rung.under_way == under_way;
        Some(self.rungs.iter().find(direct)?.counted()?.rate)
    }
}

impl Rung {
    /// Its figures, if they count.
    #[must_use]
    pub fn counted(&self) -> Option<&Figures> {
        self.figures.as_ref().filter(|_| self.failed.is_none())
    }
}
