//! The facts of one timed run at one rate, as plain numbers. No opinion: that is [`judge`](mod@crate::judge).
//!
//! Rates are requests per second, times microseconds, CPU figures shares of one core (1.0 is a core that never idled).
//! `None` means "not measurable here"; zero means zero.

use serde::{Deserialize, Serialize};

/// Kind of server behind the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// A fixed-reply origin of the lab: it must not be the limit, so its CPU is a validity check.
    #[default]
    Synthetic,
    /// A real database or application: its limit is a legitimate result.
    Real,
}

/// One measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trial {
    /// Scheduled rate; 0 for a saturating run.
    pub offered: f64,
    /// Length of the measured window, seconds.
    pub window_s: f64,
    /// Requests that the schedule intended inside the window (a saturating run: requests sent).
    pub intended: u64,
    /// Intended requests that got the right reply, late ones included.
    pub completed: u64,
    /// Right replies per second that came within the window, whenever they were intended; `None`: not known, and
    /// `completed` stands for it. Under overload the two differ: what was intended early gets its reply late.
    /// The records in `docs/results` call it `answered_rate`.
    #[serde(alias = "answered_rate")]
    pub completed_rate: Option<f64>,
    /// Sent and received by the generator within the window, all of the protocol.
    pub wire_bytes: u64,
    /// Never sent because all connection slots were busy until past the late limit.
    pub skipped_backlog: u64,
    /// Never sent because the generator itself was behind.
    pub skipped_generator: u64,
    /// Refused by the gateway with the protocol's overload reply.
    pub shed: u64,
    /// Failures by class.
    pub errors: Errors,
    /// Reply checks.
    pub integrity: Integrity,
    /// Latency and generator lag.
    pub latency: Latency,
    /// Target for p99 sojourn; `None`: the scenario sets none.
    pub slo_p99_us: Option<u64>,
    /// Warm-up ended with slices that agree.
    pub is_steady: bool,
    /// Sockets, descriptors, ports.
    pub resources: Resources,
    /// Kind of server behind the gateway.
    pub backend: Backend,
    /// CPU of the parties and limits that refused.
    pub parties: Parties,
    /// Steal, idle, throttling.
    pub host: Host,
    /// Ceiling that applies to this row, requests per second. Filled in by the search once it is calibrated.
    pub ceiling: Option<f64>,
    /// Differences from the scenario (driver, TLS state, workers, pinning), in words; `None`: no difference.
    pub config_mismatch: Option<String>,
}

impl Trial {
    /// Requests completed correctly per second of the window, by when the reply came if that is known; 0 for an empty
    /// window.
    #[must_use]
    pub fn completed_rate(&self) -> f64 {
        let intended = if self.window_s > 0.0 { self.completed as f64 / self.window_s } else { 0.0 };
        self.completed_rate.unwrap_or(intended)
    }

    /// Gb/s of the generator, both directions; 0 for an empty window.
    #[must_use]
    pub fn wire_gigabits(&self) -> f64 {
        if self.window_s > 0.0 { self.wire_bytes as f64 * 8.0 / 1e9 / self.window_s } else { 0.0 }
    }
}

/// The five classes of failure. A refusal in the protocol's own overload words is not here: it is `shed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Errors {
    /// Connect, reset, early close.
    pub transport: u64,
    /// Bytes that are not the protocol.
    pub protocol: u64,
    /// A well-formed reply of the wrong kind.
    pub status: u64,
    /// No complete reply before the drain limit.
    pub timeout: u64,
    /// Wrong payload.
    pub payload: u64,
}

impl Errors {
    /// All classes together.
    #[must_use]
    pub fn total(&self) -> u64 {
        [self.transport, self.protocol, self.status, self.timeout, self.payload]
            .iter()
            .fold(0, |a, b| a.saturating_add(*b))
    }
}

/// Checks of reply contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Integrity {
    /// Replies whose contents were checked.
    pub checked: u64,
    /// Replies that failed.
    pub failed: u64,
    /// Replies that belong to another stream or connection: these end the whole search.
    pub mix_ups: u64,
    /// The scenario knows the status of a right response and nothing of its contents, so none are checked.
    pub is_status_only: bool,
}

/// Latency figures over the window, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Median sojourn (intended time to checked reply).
    pub sojourn_p50_us: u64,
    /// p99 sojourn.
    pub sojourn_p99_us: u64,
    /// p99 of ready time to send time: the lab's own fault.
    pub lag_p99_us: u64,
    /// Longest generator lag.
    pub lag_max_us: u64,
}

impl Latency {
    /// p99 sojourn without the lag of the generator, as far as two percentiles can be distinguished; never below the median.
    #[must_use]
    pub fn own_p99_us(&self) -> u64 {
        self.sojourn_p99_us.saturating_sub(self.lag_p99_us).max(self.sojourn_p50_us)
    }
}

/// How much of something finite was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Used {
    /// Most that was in use.
    pub used: u64,
    /// Limit set by the system; 0: not limited.
    pub limit: u64,
}

impl Used {
    /// Share in use, 0 when nothing limits it.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.limit == 0 { 0.0 } else { self.used as f64 / self.limit as f64 }
    }
}

/// Finite things of the operating system, of the lab's own processes and the gateway's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Sockets required by the scenario.
    pub sockets_asked: u64,
    /// Fewest sockets that were established at any time of the window.
    pub sockets_established: u64,
    /// Descriptors of the fullest process.
    pub fds: Used,
    /// Ephemeral ports towards one address.
    pub ports: Used,
    /// Bytes swapped in or out during the window.
    pub swap_bytes: u64,
    /// Change in ListenOverflows, ListenDrops and RcvbufErrors of the lab's own sockets.
    pub kernel_drops: u64,
}

/// A limit of the gateway that refused work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Name of the permit, queue or budget.
    pub limit: String,
    /// Refusals inside the window.
    pub count: u64,
}

/// CPU use of each party.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parties {
    /// Busiest generator core.
    pub generator_core_busiest: f64,
    /// Share of the window in which a generator thread was ready to run and others had its CPU.
    pub generator_wait: Option<f64>,
    /// Busiest core of the origin, or CPU of a real back end as a share of its budget.
    pub origin_core_busiest: Option<f64>,
    /// Busiest gateway core.
    pub gateway_core_busiest: Option<f64>,
    /// Mean of the gateway's cores; the gap to the busiest is connection imbalance.
    pub gateway_core_mean: Option<f64>,
    /// CPU of the gateway per completed request, microseconds.
    pub gateway_cpu_us_per_req: Option<f64>,
    /// The limit that refused most.
    pub refused: Option<Refused>,
}

/// The rest of the box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// One-second slices measured.
    pub slices: u64,
    /// Slices dropped because steal exceeded the limit.
    pub slices_stolen: u64,
    /// Idle share of all CPUs of the box.
    pub idle: Option<f64>,
    /// Busy or stolen share of the fullest CPU that the generator may use, including other programs on it.
    pub generator_cpu: Option<f64>,
    /// Periods in which a party was throttled.
    pub throttled_periods: u64,
    /// The budget is a quota: throttling is then expected and the row is marked `quota-shaped`.
    pub is_quota: bool,
}
