//! The file of a comparison: every run of every arm, and what follows from them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use weir_knee::judge::{IGNORED_BY_CEILINGS, failed_checks};
use weir_knee::ratio::median;
use weir_knee::{Backend, Check, Ratio, Rules, Trial, Verdict, cell};
use weir_load::record::{Host, Resources};
use weir_load::recorder::{Percentile, Summary, Tail};
use weir_load::scenario::Phase;
use weir_load::{Recorder, StepRecord};

use crate::placement::Placement;
use crate::watch::STEAL_MAX;

/// Name and version of the file; a changed meaning gets a new number.
pub const SCHEMA: &str = "weir.lab.comparison/1";

/// Runs of an arm in a block: there and back.
const RUNS_PER_BLOCK: usize = 2;

/// One comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
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
    /// The scenario, whole.
    pub scenario: String,
    /// Its name.
    pub name: String,
    /// The servers behind the gateways, in words.
    pub behind: String,
    /// Whether that was an origin of the lab.
    pub backend: Backend,
    /// CPUs of each party.
    pub placement: Placement,
    /// The machine.
    pub host: Host,
    /// Those that ran, the gateway of this project first.
    pub arms: Vec<Arm>,
    /// Those that did not.
    pub missing: Vec<MissingPeer>,
    /// Those that ended, or refused the load.
    pub failed: Vec<FailedArm>,
    /// The program of others that made the load; `None`: the lab's own generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadProgram>,
    /// The parts that every gateway has besides what its file says: `tls`, `routes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Requests per second without a gateway, closed loop: what generator and back end can do; `None`: not measured, because
    /// others made the load, or each request has a connection of its own.
    pub direct_ceiling: Option<f64>,
    /// One per rate.
    pub rows: Vec<Row>,
    /// Thresholds by which runs were judged.
    pub rules: Rules,
    /// Seed of the order of the runs, and of the requests that they sent.
    pub seed: u64,
    /// Seed of the resampling.
    pub bootstrap_seed: u64,
}

/// A load program of others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadProgram {
    /// As the command line calls it.
    pub name: String,
    /// As the program tells it.
    pub version: String,
}

/// One side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// As tables call it.
    pub name: String,
    /// As the program tells it.
    pub version: String,
    /// The command that started it; empty without a gateway.
    pub command: String,
    /// Its configuration, whole.
    pub config: String,
}

/// A peer that was not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPeer {
    /// Its name.
    pub name: String,
    /// Why, and how to get it.
    pub reason: String,
}

/// An arm that ended, or refused the load. It was not run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedArm {
    /// Its name.
    pub arm: String,
    /// In which row.
    pub at: String,
    /// Why.
    pub reason: String,
}

/// All runs at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the phase.
    pub phase: String,
    /// Requests per second; `None` in a closed loop.
    pub offered: Option<f64>,
    /// Load before each window, seconds.
    pub warmup_s: f64,
    /// Measured window of each run, seconds; of a load program the aim.
    pub window_s: f64,
    /// The command of the load program, without its port; empty: the lab's own generator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub load: String,
    /// In the order in which they ran.
    pub blocks: Vec<Block>,
    /// By arm: sojourn over all valid runs, merged.
    pub sojourn: BTreeMap<String, Summary>,
    /// The same while runs still come.
    #[serde(skip)]
    merging: Merging,
}

/// Histograms under way. They have no equality of their own: once merged, the summaries stand for them.
#[derive(Clone, Debug, Default)]
struct Merging(BTreeMap<String, Recorder>);

impl PartialEq for Merging {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Every arm twice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Runs by arm.
    pub runs: BTreeMap<String, Vec<Sample>>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The measured window.
    pub trial: Trial,
    /// Verdict on it, in words.
    pub verdict: String,
    /// Which of its figures count.
    pub worth: Worth,
    /// Kernel share of the gateway's CPU time: sampled.
    pub kernel_share: Option<f64>,
    /// Busy microseconds of all CPUs per completed request.
    pub box_us: Option<f64>,
    /// Cycles of the gateway per completed request; `None` where the machine does not count them.
    #[serde(default)]
    pub cycles: Option<f64>,
    /// Instructions of the gateway per completed request, like `cycles`.
    #[serde(default)]
    pub instructions: Option<f64>,
    /// CPU of the lab's origin per completed request, microseconds; `None`: another server stands behind.
    #[serde(default)]
    pub origin_us: Option<f64>,
    /// Largest resident memory of the gateway, bytes.
    pub rss_max: Option<u64>,
    /// Share of the window that the hypervisor took.
    pub steal: f64,
}

/// Which figures of a run count. An order: each counts what the ones before it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Worth {
    /// The lab was not fit.
    Nothing,
    /// The generator sent all requests, but late: the cost is right, the latency is not.
    Cost,
    /// All.
    All,
}

impl Worth {
    /// Worth of a run with this verdict. Overload is unsteady by its nature, and connections that a gateway drops are its own:
    /// both runs still show which gateway carries what.
    pub(crate) fn of(trial: &Trial, verdict: Verdict, rules: &Rules) -> Self {
        if !matches!(verdict, Verdict::Invalid(_)) {
            return Self::All;
        }
        // A stall is another load: what waited for it went out in a burst, and shares its system calls.
        let is_sent = trial.skipped_generator == 0 && trial.latency.lag_max_us <= rules.lag_max_us;
        let is_closed = trial.offered == 0.0;
        let mut failed = failed_checks(trial, rules);
        failed.retain(|found| !is_closed || !IGNORED_BY_CEILINGS.contains(&found.reason));
        let is_only = |checks: &[Check]| failed.iter().all(|found| checks.contains(&found.reason));
        match verdict {
            Verdict::Invalid(found) if found.reason == Check::Samples => Self::Cost,
            _ if is_only(&[Check::Connections]) => Self::All,
            _ if is_sent && is_only(&[Check::Connections, Check::GeneratorLag]) => Self::Cost,
            _ => Self::Nothing,
        }
    }
}

impl Sample {
    /// The gateway had a share of a CPU.
    pub(crate) fn is_quota(&self) -> bool {
        self.trial.host.is_quota
    }

    pub(crate) fn new(trial: Trial, verdict: Verdict, worth: Worth, resources: &Resources) -> Self {
        let gateway = resources.parties.get("gateway");
        Self {
            verdict: verdict.to_string(),
            worth,
            kernel_share: gateway.and_then(|gateway| gateway.kernel_share),
            box_us: resources.box_us_per_req,
            cycles: resources.cycles_per_req,
            instructions: resources.instructions_per_req,
            origin_us: resources.parties.get("origin").and_then(|origin| origin.cpu_us_per_req),
            rss_max: gateway.and_then(|gateway| gateway.rss_max),
            steal: resources.steal.unwrap_or(0.0),
            trial,
        }
    }
}

/// A figure of a run.
#[derive(Clone, Copy)]
pub struct Metric {
    /// As tables head its column.
    pub name: &'static str,
    /// Reads it.
    pub figure: fn(&Sample) -> Option<f64>,
    /// Least worth of a run whose figure counts.
    pub needs: Worth,
    /// Whether more of it is better.
    pub is_more_better: bool,
}

impl Metric {
    /// Figure of a run, if it counts.
    #[must_use]
    pub fn of(&self, sample: &Sample) -> Option<f64> {
        (self.figure)(sample).filter(|_| sample.worth >= self.needs)
    }
}

impl Block {
    pub(crate) fn add(&mut self, arm: &str, sample: Sample) {
        self.runs.entry(arm.to_owned()).or_default().push(sample);
    }

    fn is_stolen(&self) -> bool {
        self.runs.values().flatten().any(|sample| sample.steal > STEAL_MAX)
    }

    /// Mean over the runs of an arm; `None` if one of them does not count or has no such figure.
    fn mean(&self, arm: &str, metric: &Metric) -> Option<f64> {
        let runs = self.runs.get(arm)?;
        let figures: Vec<f64> = runs.iter().map(|sample| metric.of(sample)).collect::<Option<_>>()?;
        // One alone has no mirror image.
        (figures.len() == RUNS_PER_BLOCK).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    }
}

impl Row {
    pub(crate) fn new(phase: &Phase) -> Self {
        Self {
            phase: phase.name.clone(),
            offered: phase.rate.map(|rate| rate.as_per_second()),
            warmup_s: phase.warmup.as_secs_f64(),
            window_s: phase.duration.as_secs_f64(),
            load: String::new(),
            blocks: Vec::new(),
            sojourn: BTreeMap::new(),
            merging: Merging::default(),
        }
    }

    /// `high, 20.0k/s`.
    #[must_use]
    pub fn title(&self) -> String {
        let load = self.offered.map_or("as fast as possible".to_owned(), |rate| format!("{}/s", cell::short(rate)));
        format!("{}, {load}", self.phase)
    }

    pub(crate) fn add_latency(&mut self, arm: &str, sample: &Sample, record: &StepRecord) -> Result<()> {
        if sample.worth == Worth::All {
            let sojourn =
                Recorder::from_summary(&record.latency.sojourn).map_err(|error| anyhow::anyhow!("{error}"))?;
            self.merging.0.entry(arm.to_owned()).or_default().merge(&sojourn);
        }
        Ok(())
    }

    pub(crate) fn conclude(&mut self) {
        let merged = std::mem::take(&mut self.merging).0;
        self.sojourn = merged.into_iter().map(|(arm, recorder)| (arm, recorder.summary())).collect();
    }

    /// Runs of an arm, of all blocks.
    pub fn runs<'a>(&'a self, arm: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.blocks.iter().filter_map(move |block| block.runs.get(arm)).flatten()
    }

    /// Median over the runs of an arm that count.
    #[must_use]
    pub fn median(&self, arm: &str, metric: &Metric) -> Option<f64> {
        median(self.runs(arm).filter_map(|sample| metric.of(sample)))
    }

    /// Number of runs of an arm whose figure counts, and of all its runs.
    #[must_use]
    pub fn counted(&self, arm: &str, needs: Worth) -> (usize, usize) {
        (self.runs(arm).filter(|sample| sample.worth >= needs).count(), self.runs(arm).count())
    }

    /// Sojourn over all valid runs of an arm.
    #[must_use]
    pub fn percentile(&self, arm: &str, tail: Tail) -> Option<Percentile> {
        Some(Recorder::from_summary(self.sojourn.get(arm)?).ok()?.percentile(tail))
    }

    /// Ratio of a figure, paired by block. Blocks with stolen time, and those with a run that does not count, are left out.
    #[must_use]
    pub fn ratio(&self, ours: &str, theirs: &str, metric: &Metric) -> Option<Ratio> {
        let pairs: Vec<(f64, f64)> = self
            .blocks
            .iter()
            .filter(|block| !block.is_stolen())
            .filter_map(|block| Some((block.mean(ours, metric)?, block.mean(theirs, metric)?)))
            .collect();
        Ratio::of(&pairs)
    }

    /// Caveats that a reader has to know before the figures.
    #[must_use]
    pub fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        let stolen = self.blocks.iter().filter(|block| block.is_stolen()).count();
        if stolen > 0 {
            caveats
                .push(format!("{stolen} of {} blocks are left out of the ratios for stolen time", self.blocks.len()));
        }
        let arms: BTreeSet<&String> = self.blocks.iter().flat_map(|block| block.runs.keys()).collect();
        for arm in arms {
            let all = self.runs(arm).count();
            let silent = self.runs(arm).filter(|sample| sample.trial.completed == 0).count();
            if silent > 0 {
                caveats.push(format!("{arm}: {silent} of {all} runs completed nothing, and have no ratio"));
            }
            for (worth, what) in [(Worth::Nothing, "do not count"), (Worth::Cost, "count for cost, not for latency")] {
                let reasons: Vec<&str> =
                    self.runs(arm).filter(|sample| sample.worth == worth).map(|sample| &*sample.verdict).collect();
                if let Some(reason) = reasons.first() {
                    caveats.push(format!("{arm}: {} of {all} runs {what} ({reason})", reasons.len()));
                }
            }
        }
        caveats
    }
}

impl Comparison {
    /// Reads a file's text.
    ///
    /// # Errors
    /// No JSON, a missing field, or another schema.
    pub fn from_json(text: &str) -> Result<Self, crate::file::FileError> {
        crate::file::read(text, SCHEMA)
    }
}

#[cfg(test)]
mod tests {
    use weir_knee::judge;

    use super::*;

    fn sample(cpu_us: f64) -> Sample {
        let mut trial = Trial { completed: 1_000, ..Trial::default() };
        trial.parties.gateway_cpu_us_per_req = Some(cpu_us);
        Sample {
            trial,
            verdict: "clean".to_owned(),
            worth: Worth::All,
            kernel_share: None,
            box_us: None,
            cycles: None,
            instructions: None,
            origin_us: None,
            rss_max: None,
            steal: 0.0,
        }
    }

    fn row(blocks: &[[f64; 2]]) -> Row {
        let phase = Phase { name: "p".to_owned(), ..Phase::default() };
        let mut row = Row::new(&phase);
        for [ours, theirs] in blocks {
            let mut block = Block::default();
            // Twice each, a tenth above and below.
            [0.9, 1.1].iter().for_each(|share| block.add("a", sample(ours * share)));
            [1.1, 0.9].iter().for_each(|share| block.add("b", sample(theirs * share)));
            row.blocks.push(block);
        }
        row
    }

    const CPU: Metric = Metric {
        name: "CPU",
        figure: |sample| sample.trial.parties.gateway_cpu_us_per_req,
        needs: Worth::Cost,
        is_more_better: false,
    };

    #[test]
    fn a_ratio_pairs_the_means_of_a_block() {
        let mut row = row(&[[1.0, 2.0], [2.0, 4.0], [9.0, 1.0]]);
        // The third was disturbed.
        row.blocks[2].runs.get_mut("b").expect("it ran")[0].steal = 0.5;
        let ratio = row.ratio("a", "b", &CPU).expect("two pairs");
        assert!((ratio.median - 0.5).abs() < 1e-9 && ratio.blocks == 2, "{ratio:?}");
        assert_eq!(row.caveats(), ["1 of 3 blocks are left out of the ratios for stolen time"]);
        assert_eq!(row.ratio("a", "c", &CPU), None);
    }

    #[test]
    fn a_run_that_does_not_count_takes_its_pair_out_and_is_reported() {
        let mut row = row(&[[1.0, 2.0], [9.0, 1.0]]);
        let spoiled = &mut row.blocks[1].runs.get_mut("a").expect("it ran")[1];
        (spoiled.worth, spoiled.verdict) = (Worth::Nothing, "invalid: steal".to_owned());
        let ratio = row.ratio("a", "b", &CPU).expect("one pair");
        assert!((ratio.median - 0.5).abs() < 1e-9 && ratio.blocks == 1);
        assert_eq!(row.caveats(), ["a: 1 of 4 runs do not count (invalid: steal)"]);
        assert!((row.median("a", &CPU).expect("three") - 1.1).abs() < 1e-9);
    }

    #[test]
    fn a_late_generator_spoils_latency_and_not_cost() {
        let rules = Rules::default();
        let mut trial = Trial { offered: 100.0, window_s: 10.0, intended: 1_000, completed: 1_000, ..Trial::default() };
        trial.integrity.checked = 1_000;
        trial.parties.origin_core_busiest = Some(0.1);
        let worth = |trial: &Trial| Worth::of(trial, judge(trial, &rules), &rules);
        trial.is_steady = true;
        assert_eq!(worth(&trial), Worth::All);
        trial.latency.lag_p99_us = 5_000;
        assert_eq!(worth(&trial), Worth::Cost);
        let skipped = Trial { skipped_generator: 1, ..trial.clone() };
        assert_eq!(worth(&skipped), Worth::Nothing, "then it was another load");
        let mut stalled = trial.clone();
        stalled.latency.lag_max_us = 90_000;
        assert_eq!(worth(&stalled), Worth::Nothing, "also with a stall");
        let mut dropped = trial.clone();
        dropped.latency.lag_p99_us = 0;
        dropped.resources.sockets_asked = 10;
        assert_eq!(worth(&dropped), Worth::All, "connections that a gateway drops are its own");
        trial.parties.origin_core_busiest = Some(0.99);
        assert_eq!(worth(&trial), Worth::Nothing, "also another reason");
        let row = row(&[[1.0, 2.0]]);
        let mut late = row.clone();
        late.blocks[0].runs.get_mut("a").expect("it ran").iter_mut().for_each(|run| run.worth = Worth::Cost);
        let slow = Metric { needs: Worth::All, ..CPU };
        assert!(late.ratio("a", "b", &CPU).is_some() && late.ratio("a", "b", &slow).is_none());
    }
}
