//! Results as Markdown that also reads well in a terminal.

use std::fmt::Write as _;

use weir_knee::markdown::{Table, number};
use weir_knee::ratio::{BLOCKS_MIN, Ratio};
use weir_knee::{Trial, cell};
use weir_load::record::Host;
use weir_load::recorder::Tail;

use crate::comparison::{Comparison, Counts, Metric, Row};

const MIB: f64 = 1024.0 * 1024.0;

const CPU: Metric =
    Metric { name: "CPU per request", figure: |sample| sample.cpu_us, needs: Counts::Cost, is_more_better: false };
const COMPLETED: Metric = Metric {
    name: "completed/s",
    figure: |sample| Some(sample.trial.completed_rate()),
    needs: Counts::Cost,
    is_more_better: true,
};
const P50: Metric = Metric {
    name: "p50",
    figure: |sample| Some(sample.trial.latency.sojourn_p50_us as f64),
    needs: Counts::All,
    is_more_better: false,
};
const P99: Metric = Metric { name: "p99", figure: |sample| Some(sample.trial.latency.sojourn_p99_us as f64), ..P50 };
const KERNEL: Metric = Metric { name: "in the kernel", figure: |sample| sample.kernel_share, ..CPU };
const BOX: Metric = Metric { name: "box CPU per request", figure: |sample| sample.box_us, ..CPU };
const RSS: Metric = Metric { name: "RSS MiB", figure: |sample| sample.rss_max.map(|bytes| bytes as f64 / MIB), ..CPU };

/// Compared by ratio.
const METRICS: [Metric; 4] = [CPU, P50, P99, COMPLETED];

/// A comparison: per rate the figures of each arm, then the ratios, then who they were and where.
#[must_use]
pub fn comparison(comparison: &Comparison) -> String {
    let mut text = format!("# {}: side by side\n\n", comparison.name);
    for caveat in caveats(comparison) {
        let _ = writeln!(text, "> {caveat}\n");
    }
    for row in &comparison.rows {
        let blocks = row.blocks.len();
        let _ = write!(
            text,
            "## {}\n\n{}\n{} blocks, each arm twice in each, {:.0} s a run; medians over the runs, percentiles over all \
             their requests.\n\n{}",
            row.title(),
            figures(comparison, row),
            blocks,
            row.window_s,
            ratios(comparison, row),
        );
        for caveat in row.caveats() {
            let _ = writeln!(text, "\n> {caveat}.");
        }
        text.push('\n');
    }
    text.push_str(&conditions(comparison));
    text
}

fn caveats(comparison: &Comparison) -> Vec<String> {
    let mut caveats = Vec::new();
    let blocks = comparison.rows.iter().map(|row| row.blocks.len()).min().unwrap_or(0);
    if blocks < BLOCKS_MIN {
        caveats.push(format!("{blocks} blocks: a look and no claim, which takes {BLOCKS_MIN}."));
    }
    let placement = &comparison.placement;
    if placement.is_shared() {
        caveats.push("Origin and generator share a CPU.".to_owned());
    }
    if comparison.host.pmu != Some(true) {
        caveats.push("Cycles and instructions per request: not measurable on this host.".to_owned());
    }
    caveats.extend(comparison.missing.iter().map(|missing| {
        format!(
            "Not compared: {}. {}",
            missing.name,
            missing.reason.lines().map(str::trim).collect::<Vec<_>>().join(" ")
        )
    }));
    caveats.extend(comparison.failed.iter().map(|failed| format!("Failed: {}", failed.replace('\n', " "))));
    caveats
}

/// One line per arm. CPU seconds per million requests are microseconds per request.
fn figures(comparison: &Comparison, row: &Row) -> String {
    let mut table = Table::new(&[
        "arm",
        "completed/s",
        "shed",
        "errors",
        "skipped",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "CPU-s per million",
        "in the kernel",
        "box CPU-s per million",
        "RSS MiB",
    ]);
    for arm in &comparison.arms {
        let name = &*arm.name;
        let count = |figure: fn(&Trial) -> u64| {
            let counted = row.runs(name).filter(|run| run.counts >= Counts::Cost);
            counted.map(|run| figure(&run.trial)).sum::<u64>().to_string()
        };
        let millis = |tail| {
            row.percentile(name, tail).map_or("-".to_owned(), |percentile| match percentile.micros() {
                Some(micros) => format!("{:.3}", micros as f64 / 1e3),
                None => percentile.to_string(),
            })
        };
        let kernel = row.median(name, &KERNEL);
        table.row(vec![
            name.to_owned(),
            row.median(name, &COMPLETED).map_or("-".to_owned(), cell::short),
            count(|trial| trial.shed),
            count(|trial| trial.errors.total()),
            count(|trial| trial.skipped_backlog),
            millis(Tail::P50),
            millis(Tail::P99),
            millis(Tail::P999),
            number(row.median(name, &CPU), 2),
            kernel.map_or("-".to_owned(), |share| format!("~{:.0} %", share * 1e2)),
            number(row.median(name, &BOX), 2),
            number(row.median(name, &RSS), 1),
        ]);
    }
    table.markdown()
}

/// The gateway of this project against each other arm.
fn ratios(comparison: &Comparison, row: &Row) -> String {
    let Some((ours, others)) = comparison.arms.split_first() else { return String::new() };
    let heads: Vec<String> = [format!("{} against", ours.name)]
        .into_iter()
        .chain(METRICS.iter().map(|metric| metric.name.to_owned()))
        .collect();
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for other in others {
        let cells = METRICS.iter().map(|metric| {
            row.ratio(&ours.name, &other.name, metric)
                .map_or("-".to_owned(), |ratio| read(&ratio, metric.is_more_better))
        });
        table.row([other.name.clone()].into_iter().chain(cells).collect());
    }
    if table.is_empty() { String::new() } else { table.markdown() }
}

/// `0.61 (0.59 to 0.63) better`.
fn read(ratio: &Ratio, is_more_better: bool) -> String {
    let word = match (ratio.is_difference(), (ratio.median > 1.0) == is_more_better) {
        (false, _) => "no difference shown",
        (true, true) => "better",
        (true, false) => "worse",
    };
    format!("{:.3} ({:.3} to {:.3}) {word}", ratio.median, ratio.interval.0, ratio.interval.1)
}

fn conditions(comparison: &Comparison) -> String {
    let mut text = String::from("## Conditions\n\n");
    // Writing to a string does not fail.
    let _ = writeln!(text, "- made by `{}`, weir {}", comparison.command, comparison.build);
    let _ = writeln!(text, "- {}; behind the gateways {}", comparison.placement, comparison.behind);
    let _ = writeln!(text, "- {}", host(&comparison.host));
    for arm in comparison.arms.iter().filter(|arm| !arm.version.is_empty()) {
        let _ = writeln!(text, "- {}: {}", arm.name, arm.version);
    }
    text.push_str(
        "- sojourn: from the instant that the schedule gave to a request until its reply was checked; what is late is sent \
         late, and skipped beyond the late limit\n\
         - CPU: accumulated run time of all threads over the window per completed request; `~`: sampled by the kernel\n\
         - ratio: median of the ratios paired by block, with its 95 % bootstrap interval; a difference is shown if the \
         interval excludes 1 and the effect exceeds 2 %\n",
    );
    text
}

/// Kernel, CPU and what else decides how far figures carry.
fn host(host: &Host) -> String {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "unknown".to_owned());
    format!(
        "kernel {}, {} x {}, guest of {}, clock {}",
        word(&host.kernel),
        host.cpus.map_or("?".to_owned(), |cpus| cpus.to_string()),
        word(&host.cpu_model),
        word(&host.virt),
        word(&host.clocksource)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_read_by_what_is_better() {
        let ratio = |median: f64, interval| Ratio { median, spread: interval, interval, blocks: 8 };
        assert_eq!(read(&ratio(0.6, (0.55, 0.65)), false), "0.600 (0.550 to 0.650) better");
        assert_eq!(read(&ratio(0.6, (0.55, 0.65)), true), "0.600 (0.550 to 0.650) worse");
        assert_eq!(read(&ratio(1.2, (1.1, 1.3)), true), "1.200 (1.100 to 1.300) better");
        assert_eq!(read(&ratio(0.9, (0.7, 1.1)), false), "0.900 (0.700 to 1.100) no difference shown");
    }
}
