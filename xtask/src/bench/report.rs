//! The report in Markdown: verdicts first, then every figure, then on what and with what it was measured.

use std::fmt::Write as _;

use super::contest::Contest;
use super::fleet::Fleet;
use super::measure::Sample;
use super::options::Options;
use super::peers::name;
use super::place::Place;
use super::results::RowResults;
use super::row::Row;
use super::target::verdict;
use weir_knee::markdown::{Table, number};
use weir_knee::ratio::{BLOCKS_MIN, SEED, median};

/// More CPUs than this busy with something else are named as a disturbance.
const FOREIGN_CPUS_MAX: f64 = 0.05;

/// A CPU that is busy for this share of the time limits the rate.
const BUSY: f64 = 0.9;

/// Everything that is known at the end of the runs.
pub(crate) struct Report<'a, C: Contest> {
    /// What was asked for.
    pub(crate) options: &'a Options<C::Row>,
    /// Who ran.
    pub(crate) fleet: &'a Fleet,
    /// Where.
    pub(crate) place: &'a Place,
    /// What stands behind.
    pub(crate) contest: &'a C,
    /// Machine and commit.
    pub(crate) machine: Vec<(&'static str, String)>,
    /// One entry per row.
    pub(crate) results: Vec<RowResults<C::Row>>,
}

impl<C: Contest> Report<'_, C> {
    /// The whole text.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "# {}\n\nMade by `{}`. Ratios are gateway CPU time per request; lower is better.\n\n",
            C::TEXTS.title,
            C::TEXTS.command
        );
        for warning in self.warnings() {
            let _ = writeln!(text, "> {warning}\n");
        }
        text.push_str("## Ratios and targets\n\n");
        text.push_str(&self.ratios());
        for results in &self.results {
            let _ = write!(text, "\n## {} (`{}`)\n\n{}", results.row.title(), results.row.id(), self.figures(results));
            let _ = write!(text, "\n{} per run; medians over the blocks.\n", results.length);
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
        for comparison in C::COMPARISONS {
            for results in &self.results {
                let Some(ratio) = results.ratio(comparison.ours, comparison.theirs, |sample| sample.gateway_us) else {
                    continue;
                };
                let at_most = (comparison.at_most)(&results.row);
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

    fn figures(&self, results: &RowResults<C::Row>) -> String {
        let server = format!("{} CPU µs/req", C::TEXTS.server);
        let mut heads = vec!["arm", "gateway CPU µs/req", "user", "system", &server, "load CPU µs/req"];
        heads.extend(["box CPU µs/req", "gateway busy", "others busy"]);
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
                number(results.median(arm.name, |sample| Some(sample.load_us)), 2),
                number(results.median(arm.name, |sample| Some(sample.box_us)), 2),
                percent(of_gateway(results.median(arm.name, |sample| Some(sample.cpus(sample.gateway_us))))),
                percent(results.median(arm.name, |sample| Some(others_busy(sample) / self.place.other_cpus()))),
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
        for results in &self.results {
            let bound: Vec<&str> =
                self.fleet.arms.iter().map(|arm| arm.name).filter(|arm| self.is_bound(results, arm)).collect();
            if !bound.is_empty() {
                warnings.push(format!(
                    "{}: not the gateway but the load and the {} limit the rate of {}.",
                    results.row.id(),
                    C::TEXTS.server,
                    bound.join(", ")
                ));
            }
        }
        for missing in &self.fleet.missing {
            warnings.push(format!("Not compared: {}. {}", missing.name, missing.reason.replace('\n', " ")));
        }
        warnings
    }

    /// Whether a gateway had time to spare while the others had none.
    fn is_bound(&self, results: &RowResults<C::Row>, arm: &str) -> bool {
        let gateway = results.median(arm, |sample| Some(sample.cpus(sample.gateway_us)));
        let others = results.median(arm, |sample| Some(others_busy(sample) / self.place.other_cpus()));
        arm != name::DIRECT && gateway.is_some_and(|busy| busy < BUSY) && others.is_some_and(|busy| busy >= BUSY)
    }

    fn conditions(&self) -> String {
        let mut text = String::from("\n## Conditions\n\n");
        for (what, value) in &self.machine {
            let _ = writeln!(text, "- {what}: {value}");
        }
        for (what, value) in self.contest.conditions() {
            let _ = writeln!(text, "- {what}: {value}");
        }
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
        let _ = writeln!(text, "- {}", C::TEXTS.load);
        let _ = writeln!(
            text,
            "- gateway and {} CPU: accumulated run time of all threads over the whole run, connecting included,\n  \
             divided by completed requests; user and system are sampled by the kernel (`~`), and so is the load\n  \
             generator's; box: busy time of all CPUs, load generator included\n\
             - busy: share of the gateway's CPU, and of those of the others, in the median run",
            C::TEXTS.server
        );
        let _ = writeln!(
            text,
            "- ratio: median of the ratios paired by block; 95 % bootstrap interval of it (10,000 resamples, seed {SEED:#x})"
        );
        text
    }
}

/// CPUs that the load generator and what stands behind kept busy.
fn others_busy(sample: &Sample) -> f64 {
    sample.cpus(sample.load_us + sample.origin_us)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0))
}
