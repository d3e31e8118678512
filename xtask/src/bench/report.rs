//! The report in Markdown: verdicts first, then every figure, then on what and with what it was measured.

use std::fmt::Write as _;

use super::fleet::Fleet;
use super::options::Options;
use super::peers::backend::{Backend, Behind};
use super::peers::name;
use super::place::Place;
use super::results::RowResults;
use super::target::{Comparison, verdict};
use weir_knee::markdown::{Table, number};
use weir_knee::ratio::{BLOCKS_MIN, SEED, median};

/// More CPUs than this busy with something else are named as a disturbance.
const FOREIGN_CPUS_MAX: f64 = 0.05;

/// Everything that is known at the end of the runs.
pub(crate) struct Report<'a> {
    /// What was asked for.
    pub(crate) options: &'a Options,
    /// Who ran.
    pub(crate) fleet: &'a Fleet,
    /// Where.
    pub(crate) place: &'a Place,
    /// What stands behind.
    pub(crate) backend: &'a Backend,
    /// Machine and commit.
    pub(crate) machine: Vec<(&'static str, String)>,
    /// One entry per row.
    pub(crate) results: Vec<RowResults>,
}

impl Report<'_> {
    /// The whole text.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from("# Redis: gateways side by side\n\n");
        text.push_str(
            "Made by `cargo xtask bench redis`. Ratios are gateway CPU time per request; lower is better.\n\n",
        );
        for warning in self.warnings() {
            let _ = writeln!(text, "> {warning}\n");
        }
        text.push_str("## Ratios and targets\n\n");
        text.push_str(&self.ratios());
        for results in &self.results {
            let _ = write!(text, "\n## {} (`{}`)\n\n{}", results.row.title(), results.row.id(), self.figures(results));
            let _ = write!(text, "\n{} requests per run; medians over the blocks.\n", results.requests);
            for (arm, error) in &results.failures {
                let _ = write!(text, "\n**{arm} failed:** {}\n", error.replace('\n', " "));
            }
        }
        text.push_str(&self.conditions());
        text
    }

    fn ratios(&self) -> String {
        let mut table =
            Table::new(&["row", "ours", "against", "ratio", "95 % interval", "min to max", "at most", "verdict"]);
        for comparison in Comparison::ALL {
            for results in &self.results {
                let Some(ratio) = results.ratio(comparison.ours, comparison.theirs, |sample| sample.gateway_us) else {
                    continue;
                };
                let at_most = comparison.at_most(&results.row);
                table.row(vec![
                    results.row.title(),
                    comparison.ours.into(),
                    comparison.theirs.into(),
                    format!("{:.3}", ratio.median),
                    format!("{:.3} to {:.3}", ratio.interval.0, ratio.interval.1),
                    format!("{:.3} to {:.3}", ratio.spread.0, ratio.spread.1),
                    number(at_most, 2),
                    verdict(&ratio, at_most),
                ]);
            }
        }
        if table.is_empty() { "No pair of arms was measured.\n".into() } else { table.markdown() }
    }

    fn figures(&self, results: &RowResults) -> String {
        let mut heads = vec!["arm", "gateway CPU µs/req", "user", "system", "redis CPU µs/req", "box CPU µs/req"];
        heads.extend(["requests/s", "p50 ms", "p99 ms", "p99.9 ms"]);
        let mut table = Table::new(&heads);
        for arm in &self.fleet.arms {
            if results.median(arm.name, |_| Some(0.0)).is_none() {
                continue;
            }
            let has_gateway = arm.name != name::DIRECT;
            let of_gateway = |value: Option<f64>| value.filter(|_| has_gateway);
            let sampled = |value: Option<f64>| of_gateway(value).map_or_else(|| "-".into(), |us| format!("~{us:.2}"));
            table.row(vec![
                arm.name.into(),
                number(of_gateway(results.median(arm.name, |sample| Some(sample.gateway_us))), 2),
                sampled(results.median(arm.name, |sample| Some(sample.user_us))),
                sampled(results.median(arm.name, |sample| Some(sample.system_us))),
                number(results.median(arm.name, |sample| Some(sample.origin_us)), 2),
                number(results.median(arm.name, |sample| Some(sample.box_us)), 2),
                number(results.median(arm.name, |sample| Some(sample.outcome.rate)), 0),
                number(results.median(arm.name, |sample| Some(sample.outcome.p50)), 3),
                number(results.median(arm.name, |sample| Some(sample.outcome.p99)), 3),
                number(results.median(arm.name, |sample| sample.outcome.p999), 3),
            ]);
        }
        table.markdown()
    }

    /// What a reader has to know before the first figure.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.options.blocks < BLOCKS_MIN {
            warnings.push(format!("{} blocks: a look, not a claim, which takes {BLOCKS_MIN}.", self.options.blocks));
        }
        let foreign = median(self.results.iter().flat_map(RowResults::all).map(|sample| sample.foreign_cpus));
        if let Some(cpus) = foreign.filter(|cpus| *cpus > FOREIGN_CPUS_MAX) {
            let worst =
                self.results.iter().flat_map(RowResults::all).map(|sample| sample.foreign_cpus).fold(0.0, f64::max);
            warnings.push(format!(
                "The machine was busy with something else: {cpus:.2} CPUs in the median run, {worst:.2} in the worst."
            ));
        }
        for results in &self.results {
            let stolen = results.stolen_blocks();
            if !stolen.is_empty() {
                let row = results.row.id();
                warnings.push(format!("{row}: {} blocks are left out of the ratios for stolen time.", stolen.len()));
            }
        }
        for missing in &self.fleet.missing {
            warnings.push(format!("Not compared: {}. {}", missing.name, missing.reason.replace('\n', " ")));
        }
        warnings
    }

    fn conditions(&self) -> String {
        let mut text = String::from("\n## Conditions\n\n");
        for (what, value) in &self.machine {
            let _ = writeln!(text, "- {what}: {value}");
        }
        let shape = match self.backend.behind {
            Behind::One => "one",
            Behind::Shards => "three, each with its part of the keys, placed by Maglev (by twemproxy with ketama)",
            Behind::Cluster => "a cluster of three, each with a third of the slots",
        };
        let _ = writeln!(text, "- server: {}, `--save '' --appendonly no`; {shape}", self.backend.servers[0].version);
        for arm in &self.fleet.arms {
            let _ = writeln!(text, "- {}: {}", arm.name, arm.version);
        }
        let _ = writeln!(text, "- CPUs: {}", self.place.layout());
        let order = "each block runs every arm once, every second block in reverse order";
        let _ = writeln!(
            text,
            "- {} blocks per row, aimed length {:?}; {order}",
            self.options.blocks, self.options.run_length
        );
        text.push_str(
            "- closed loop: redis-benchmark sends the next request after the reply, so latencies hide stalls of the\n  \
             client; with a pipeline a latency is that of the batch. p99.9 is interpolated, and printed from ten\n  \
             thousand requests on\n\
             - gateway and redis CPU: accumulated run time of all threads over the whole run, connecting included,\n  \
             divided by completed requests; user and system are sampled by the kernel (`~`); box: busy time of all CPUs,\n  \
             load generator included\n",
        );
        let _ = writeln!(
            text,
            "- ratio: median of the ratios paired by block; 95 % bootstrap interval of it (10,000 resamples, seed {SEED:#x})"
        );
        text
    }
}
