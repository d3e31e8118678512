//! The limit that stopped the gateway. The first reason that matches wins, and its evidence is stored: the lab's own limits come
//! before the box, the box before the back end, the back end before the gateway, so that the gateway is never blamed,
//! or praised, for a limit that is not its own.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cell::short;
use crate::judge::{Check, Verdict};
use crate::rules::Rules;
use crate::trial::Trial;

/// The limiting party or resource, in the order of the match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// The generator lagged or ran out of CPU.
    Generator,
    /// Sockets, descriptors, ports or kernel queues ran out.
    Connections,
    /// Steal, or no idle CPU left on the box, or on a CPU that the generator shares.
    Box,
    /// The origin or the real back end.
    Backend,
    /// A gateway core is saturated.
    GatewayCpu,
    /// A permit, queue or budget of the gateway refused while its CPU was not saturated.
    GatewayLimit,
    /// The latency target is missed, nothing is saturated.
    Latency,
    /// None of the above.
    Unknown,
    /// The scenario limited the search; nothing was found to be a limit.
    Asked,
}

impl StopReason {
    /// The word printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Connections => "connections",
            Self::Box => "box",
            Self::Backend => "backend",
            Self::GatewayCpu => "gateway-cpu",
            Self::GatewayLimit => "gateway-limit",
            Self::Latency => "latency",
            Self::Unknown => "unknown",
            Self::Asked => "asked",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One figure and the bound it is held against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The measured quantity; for a limit of the gateway, the name of the limit.
    pub what: String,
    /// The figure.
    pub value: f64,
    /// The bound; `None`: the figure stands for itself.
    pub limit: Option<f64>,
}

/// Why the search went no higher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// First reason that matched.
    pub reason: StopReason,
    /// The figures that made it match.
    pub evidence: Vec<Evidence>,
}

/// Results of the calibration, requests per second. Zero before it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Generator into a null sink.
    pub null_sink: f64,
    /// Generator and origin without the gateway.
    pub direct: f64,
}

/// Why a trial was not clean, or not valid.
#[must_use]
pub fn stop_reason(trial: &Trial, verdict: &Verdict, ceilings: &Ceilings, rules: &Rules) -> Stop {
    let matchers: [(StopReason, Vec<Evidence>); 7] = [
        (StopReason::Generator, generator(trial, rules)),
        (StopReason::Connections, connections(trial, rules)),
        (StopReason::Box, the_box(trial, rules)),
        (StopReason::Backend, backend(trial, verdict, ceilings, rules)),
        (StopReason::GatewayCpu, gateway_cpu(trial, rules)),
        (StopReason::GatewayLimit, gateway_limit(trial)),
        (StopReason::Latency, latency(trial, verdict)),
    ];
    let unknown = || Stop { reason: StopReason::Unknown, evidence: unexplained(verdict) };
    let found = matchers.into_iter().find(|(_, evidence)| !evidence.is_empty());
    found.map_or_else(unknown, |(reason, evidence)| Stop { reason, evidence })
}

/// Why the search reached its ceiling cleanly: the scenario said so, or the lab could offer no more. A direct row that is
/// as fast as the null sink is limited by the generator, a slower one by what stands behind the gateway.
#[must_use]
pub fn stop_at_ceiling(ceilings: &Ceilings, ceiling: f64, asked_max: Option<f64>, rules: &Rules) -> Stop {
    if let Some(max) = asked_max.filter(|max| *max <= ceiling) {
        return Stop { reason: StopReason::Asked, evidence: vec![above("highest rate of the scenario", max, None)] };
    }
    let flat = rules.direct_flat_share * ceilings.null_sink;
    let reason = if ceilings.direct >= flat { StopReason::Generator } else { StopReason::Backend };
    let evidence =
        vec![above("direct ceiling", ceilings.direct, Some(flat)), above("highest offered load", ceiling, None)];
    Stop { reason, evidence }
}

impl Stop {
    /// One sentence for the column "planning read".
    #[must_use]
    pub fn planning_read(&self) -> String {
        let first = self.evidence.first();
        let what = first.map_or("nothing measured", |evidence| evidence.what.as_str());
        let value = first.map_or(0.0, |evidence| evidence.value);
        match self.reason {
            StopReason::Generator => format!("the generator is the limit ({what}); the gateway may carry more"),
            StopReason::Connections => format!("the lab ran out of {what}; raise it and run again"),
            StopReason::Box => {
                format!("the box is the limit ({what} {:.0} %); give the parties their own cores", value * 1e2)
            }
            StopReason::Backend => format!("the server behind the gateway is the limit ({what})"),
            StopReason::GatewayCpu => {
                format!("the gateway's busiest core is full ({:.0} %); more cores may carry more", value * 1e2)
            }
            StopReason::GatewayLimit => format!("the gateway limit `{what}` refused work; raise it or add instances"),
            StopReason::Latency => {
                format!("queues pass the latency target (p99 {value:.0} us) before anything is full")
            }
            StopReason::Unknown => format!("no limit was recognised ({what}); do not plan above the knee"),
            StopReason::Asked => format!("clean up to {}, where the scenario makes the search stop", short(value)),
        }
    }
}

fn generator(trial: &Trial, rules: &Rules) -> Vec<Evidence> {
    let latency = &trial.latency;
    over(&[
        ("busiest generator core", trial.parties.generator_core_busiest, rules.generator_core_max),
        ("generator waiting for a CPU", trial.parties.generator_wait.unwrap_or(0.0), rules.generator_wait_max),
        ("generator lag p99 us", latency.lag_p99_us as f64, rules.lag_p99_us_max(trial)),
        ("generator lag maximum us", latency.lag_max_us as f64, rules.lag_max_us as f64),
        ("requests skipped by the generator", trial.skipped_generator as f64, 0.0),
    ])
}

fn connections(trial: &Trial, rules: &Rules) -> Vec<Evidence> {
    let resources = &trial.resources;
    let missing = resources.sockets_asked.saturating_sub(resources.sockets_established);
    over(&[
        ("file descriptors", resources.fds.share(), rules.fds_share_max),
        ("ephemeral ports", resources.ports.share(), rules.ports_share_max),
        ("kernel queues", resources.kernel_drops as f64, 0.0),
        ("sockets", missing as f64, 0.0),
    ])
}

fn the_box(trial: &Trial, rules: &Rules) -> Vec<Evidence> {
    let host = &trial.host;
    let stolen = if host.slices == 0 { 0.0 } else { host.slices_stolen as f64 / host.slices as f64 };
    let mut found = over(&[("slices lost to steal", stolen, rules.slices_stolen_share_max)]);
    if let Some(idle) = host.idle.filter(|idle| *idle < rules.box_idle_min) {
        found.push(above("idle CPU of the box", idle, Some(rules.box_idle_min)));
    }
    if let Some(busy) = host.generator_cpu.filter(|busy| *busy >= rules.saturated_share) {
        found.push(above("CPU that the generator shares", busy, Some(rules.saturated_share)));
    }
    if trial.resources.swap_bytes > 0 {
        found.push(above("bytes swapped", trial.resources.swap_bytes as f64, Some(0.0)));
    }
    found
}

fn backend(trial: &Trial, verdict: &Verdict, ceilings: &Ceilings, rules: &Rules) -> Vec<Evidence> {
    let mut found = Vec::new();
    // A synthetic origin makes the trial invalid before it is saturated.
    let is_invalid = matches!(verdict, Verdict::Invalid(found) if found.reason == Check::OriginCpu);
    let limit = if is_invalid { rules.origin_core_max } else { rules.saturated_share };
    if let Some(busiest) = trial.parties.origin_core_busiest.filter(|busiest| *busiest >= limit) {
        found.push(above("busiest core of the back end", busiest, Some(limit)));
    }
    let flat = rules.direct_flat_share * ceilings.direct;
    if flat > 0.0 && trial.completed_rate() >= flat {
        found.push(above("completed against the direct ceiling", trial.completed_rate(), Some(flat)));
    }
    found
}

fn gateway_cpu(trial: &Trial, rules: &Rules) -> Vec<Evidence> {
    let Some(busiest) = trial.parties.gateway_core_busiest.filter(|busiest| *busiest >= rules.saturated_share) else {
        return Vec::new();
    };
    let mut found = vec![above("busiest gateway core", busiest, Some(rules.saturated_share))];
    found.extend(trial.parties.gateway_core_mean.map(|mean| above("mean of the gateway's cores", mean, None)));
    found
}

fn gateway_limit(trial: &Trial) -> Vec<Evidence> {
    match &trial.parties.refused {
        Some(refused) if refused.count > 0 => vec![above(&refused.limit, refused.count as f64, Some(0.0))],
        _ if trial.shed > 0 => vec![above("shed (limit not named)", trial.shed as f64, Some(0.0))],
        _ => Vec::new(),
    }
}

fn latency(trial: &Trial, verdict: &Verdict) -> Vec<Evidence> {
    match verdict {
        Verdict::NotClean(found) if found.reason == crate::judge::NotClean::Slo => {
            let p99 = trial.latency.sojourn_p99_us as f64;
            vec![above("p99 sojourn us", p99, Some(found.limit))]
        }
        _ => Vec::new(),
    }
}

fn unexplained(verdict: &Verdict) -> Vec<Evidence> {
    let (value, limit) = match verdict {
        Verdict::NotClean(found) => (found.value, Some(found.limit)),
        Verdict::Invalid(found) => (found.value, Some(found.limit)),
        Verdict::Clean | Verdict::Unsteady => (0.0, None),
    };
    vec![above(&verdict.to_string(), value, limit)]
}

fn over(figures: &[(&str, f64, f64)]) -> Vec<Evidence> {
    let found = figures.iter().filter(|(_, value, limit)| value > limit);
    found.map(|(what, value, limit)| above(what, *value, Some(*limit))).collect()
}

fn above(what: &str, value: f64, limit: Option<f64>) -> Evidence {
    let value = if value.is_nan() { 0.0 } else { value.clamp(f64::MIN, f64::MAX) };
    Evidence { what: what.to_owned(), value, limit }
}
