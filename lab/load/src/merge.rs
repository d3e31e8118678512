//! The records of all parts of a run become the record of the run, the one that a single process with all shards would have
//! written: counts are summed, histograms added, the verdict is judged again. Nothing is averaged.

use std::fmt;
use std::time::Duration;

use weir_knee::Trial;
use weir_knee::trial::Errors;

use crate::measured::{Measured, verdict};
use crate::outcome::Counts;
use crate::part::Part;
use crate::record::{Host, PartOfRun, Placement, RecordError, StepRecord};

/// A record, and what messages call it: its file and line, or its process.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// For messages.
    pub name: &'a str,
    /// Record of one part.
    pub record: &'a StepRecord,
}

/// Merges one phase of a run: the records of all parts, in any order. Beside the record stand the same figures for a judge.
///
/// # Errors
/// They are not all parts of one phase of one run, each of them once; or a histogram cannot be read.
pub fn merge(parts: &[Named<'_>]) -> Result<(StepRecord, Trial), MergeError> {
    let parts = checked(parts)?;
    let (_, first, common) = parts[0];
    let mut sum = Measured::none(Duration::from_micros(common.load.late_limit_us));
    for (name, record, part) in &parts {
        sum.merge(&measured(record, part).map_err(|error| MergeError::Unreadable { name: (*name).to_owned(), error })?);
    }
    let trial = sum.trial(&common.load, common.slo_p99_us);
    let record = StepRecord {
        identity: first.identity.clone(),
        part: None,
        host: common_host(parts.iter().map(|(_, record, _)| &record.host)),
        placement: Placement::default(),
        load: common.load.clone(),
        latency: sum.latency(),
        resources: sum.resources(),
        wire: sum.wire(),
        verdict: verdict(&trial),
        counts: sum.outcome.counts,
        thresholds: Vec::new(),
    };
    Ok((record, trial))
}

/// Largest figure of a record. 2^55: 400 days of CPU time, and the sum over 256 parts, which is the most, is still a number.
const FIGURE_MAX: u64 = 1 << 55;

type Checked<'a> = (&'a str, &'a StepRecord, &'a PartOfRun);

/// In the order of the parts, if they are all of one phase.
fn checked<'a>(parts: &[Named<'a>]) -> Result<Vec<Checked<'a>>, MergeError> {
    let mut all: Vec<Checked<'a>> = Vec::new();
    for Named { name, record } in parts {
        let part = record.part.as_ref().ok_or_else(|| MergeError::NoPart { name: (*name).to_owned() })?;
        if part.index.checked_sub(1).and_then(|index| Part::new(index, part.of)).is_none() {
            let part = format!("{}/{}", part.index, part.of);
            return Err(MergeError::Impossible { name: (*name).to_owned(), part });
        }
        if let Some(figure) = implausible(record, part) {
            return Err(MergeError::Implausible { name: (*name).to_owned(), figure });
        }
        if let Some(first) = all.first()
            && let Some(what) = difference(first, &(name, record, part))
        {
            return Err(MergeError::Differ { one: first.0.to_owned(), other: (*name).to_owned(), what });
        }
        if let Some((one, ..)) = all.iter().find(|(_, _, other)| other.index == part.index) {
            let (one, other) = ((*one).to_owned(), (*name).to_owned());
            return Err(MergeError::Twice { part: format!("{}/{}", part.index, part.of), one, other });
        }
        all.push((name, record, part));
    }
    all.sort_by_key(|(_, _, part)| part.index);
    let of = all.first().map_or(0, |(_, _, part)| part.of);
    let is_there = |index| all.iter().any(|(_, _, part)| part.index == index);
    let missing: Vec<String> =
        (1..=of).filter(|index| !is_there(*index)).map(|index| format!("{index}/{of}")).collect();
    match (all.is_empty(), missing.is_empty()) {
        (true, _) => Err(MergeError::Nothing),
        (false, true) => Ok(all),
        (false, false) => Err(MergeError::Missing { missing }),
    }
}

/// A figure that no run reaches; sums of those below stay far within their range.
fn implausible(record: &StepRecord, part: &PartOfRun) -> Option<u64> {
    let Counts { intended, sent, completed, late, skipped_backlog, skipped_generator, shed, errors, integrity } =
        &record.counts;
    let Errors { transport, protocol, status, timeout, payload } = *errors;
    let plain = [*intended, *sent, *completed, *late, *skipped_backlog, *skipped_generator];
    let failed = [transport, protocol, status, timeout, payload];
    let checked = [integrity.checked, integrity.failed, integrity.race_suspect];
    let used = [part.cpu_ns, part.connections_lost.into(), record.wire.tx_bytes, record.wire.rx_bytes];
    let mut all = plain.into_iter().chain(failed).chain(checked).chain(used).chain(shed.values().copied());
    all.find(|figure| *figure > FIGURE_MAX)
}

/// The first difference between two records that parts of one phase of one run cannot have.
fn difference(first: &Checked<'_>, second: &Checked<'_>) -> Option<String> {
    let ((_, a, a_part), (_, b, b_part)) = (first, second);
    let (one, other) = (&a.identity, &b.identity);
    let (load, other_load) = (&a_part.load, &b_part.load);
    let phase = |(_, record, part): &Checked<'_>| format!("{} ({})", part.phase, u64::from(record.identity.step) + 1);
    let rate = |rate: Option<f64>| rate.map_or("a closed loop".to_owned(), |rate| format!("{rate}/s"));
    // From what a user recognises to what only says that something differs.
    let facts: [(&str, String, String); 14] = [
        ("scenario", one.row.clone(), other.row.clone()),
        ("seed", one.seed.to_string(), other.seed.to_string()),
        ("phase", phase(first), phase(second)),
        ("rate", rate(load.offered), rate(other_load.offered)),
        ("connections", load.connections.to_string(), other_load.connections.to_string()),
        ("window", format!("{} s", load.window_s), format!("{} s", other_load.window_s)),
        ("warm-up", format!("{} s", load.warmup_s), format!("{} s", other_load.warmup_s)),
        ("number of parts", a_part.of.to_string(), b_part.of.to_string()),
        ("target", one.arm.clone(), other.arm.clone()),
        ("build", one.build.clone(), other.build.clone()),
        ("rest of the load", format!("{load:?}"), format!("{other_load:?}")),
        ("contents of the scenario", a_part.scenario.clone(), b_part.scenario.clone()),
        ("begin in microseconds", a_part.begins_unix_us.to_string(), b_part.begins_unix_us.to_string()),
        ("run", one.run_id.clone(), other.run_id.clone()),
    ];
    facts.into_iter().find(|(_, a, b)| a != b).map(|(what, a, b)| format!("{what}: {a} and {b}"))
}

fn measured(record: &StepRecord, part: &PartOfRun) -> Result<Measured, RecordError> {
    let generator = record.resources.parties.get("generator").cloned().unwrap_or_default();
    Ok(Measured {
        outcome: record.outcome()?,
        cpu_nanos: part.cpu_ns,
        busiest_core: generator.busiest_core.unwrap_or(0.0),
        threads: generator.threads.unwrap_or(0),
        connections_lost: part.connections_lost,
        tx_bytes: record.wire.tx_bytes,
        rx_bytes: record.wire.rx_bytes,
    })
}

/// The common facts of all machines; `null` where they differ.
fn common_host<'a>(mut hosts: impl Iterator<Item = &'a Host>) -> Host {
    fn agreed<T: PartialEq>(one: &mut Option<T>, other: &Option<T>) {
        if one != other {
            *one = None;
        }
    }
    let mut common = hosts.next().cloned().unwrap_or_default();
    for host in hosts {
        let Host { kernel, cpu_model, cpus, virt, cgroup, pmu, nofile, somaxconn, clocksource } = host;
        agreed(&mut common.kernel, kernel);
        agreed(&mut common.cpu_model, cpu_model);
        agreed(&mut common.cpus, cpus);
        agreed(&mut common.virt, virt);
        agreed(&mut common.cgroup, cgroup);
        agreed(&mut common.pmu, pmu);
        agreed(&mut common.nofile, nofile);
        agreed(&mut common.somaxconn, somaxconn);
        agreed(&mut common.clocksource, clocksource);
    }
    common
}

/// Why records cannot be merged.
#[derive(Debug)]
pub enum MergeError {
    /// There are none.
    Nothing,
    /// A record of a whole run.
    NoPart {
        /// Which.
        name: String,
    },
    /// A part that no run has.
    Impossible {
        /// Which record says so.
        name: String,
        /// Such as `3/2`.
        part: String,
    },
    /// A figure is beyond any run.
    Implausible {
        /// The record.
        name: String,
        /// The figure.
        figure: u64,
    },
    /// Two records are not of one phase of one run.
    Differ {
        /// Which.
        one: String,
        /// And which.
        other: String,
        /// The field, and both values.
        what: String,
    },
    /// A part comes twice.
    Twice {
        /// Such as `2/4`.
        part: String,
        /// Here.
        one: String,
        /// And here.
        other: String,
    },
    /// Parts do not come at all.
    Missing {
        /// Such as `2/4`.
        missing: Vec<String>,
    },
    /// A histogram is damaged.
    Unreadable {
        /// Where.
        name: String,
        /// How.
        error: RecordError,
    },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no records; name the files that the parts of one run wrote"),
            Self::NoPart { name } => write!(
                f,
                "{name}: this is a whole run, or was merged already; only records of `weir lab load --part` are merged"
            ),
            Self::Impossible { name, part } => write!(f, "{name}: there is no part {part}; the file is damaged"),
            Self::Implausible { name, figure } => {
                write!(f, "{name}: no run makes a figure of {figure}; the file is damaged")
            }
            Self::Differ { one, other, what } => write!(
                f,
                "{one} and {other} are not parts of one run; they differ in {what}. Give each part the same scenario, \
                 target, build and start"
            ),
            Self::Twice { part, one, other } => {
                write!(f, "part {part} comes twice, in {one} and in {other}; name each file once")
            }
            Self::Missing { missing } => {
                write!(f, "missing: part {}; without it the rest says nothing about the load", missing.join(", "))
            }
            Self::Unreadable { name, error } => write!(f, "{name}: {error}"),
        }
    }
}

impl std::error::Error for MergeError {}

#[cfg(test)]
mod tests;
