//! A comparison as a page: figures, ratios, and under which conditions.

use weir_knee::markdown::{Table, number};
use weir_knee::ratio::{BLOCKS_MIN, Ratio};
use weir_knee::{Backend, Trial, cell};
use weir_load::record::Host;
use weir_load::recorder::Tail;
use weir_parties::peer::Telemetry;

use crate::chart::{Axis, Chart, Field, Forest, Interval, Series};
use crate::comparison::{Arm, Comparison, Metric, Row, Sample, Worth};
use crate::document::{Document, Element};

const MIB: f64 = 1024.0 * 1024.0;

const CPU: Metric = Metric {
    name: "CPU per request",
    figure: |sample| sample.trial.parties.gateway_cpu_us_per_req,
    needs: Worth::Cost,
    is_more_better: false,
};
const COMPLETED: Metric = Metric {
    name: "completed/s",
    figure: |sample| Some(sample.trial.completed_rate()),
    needs: Worth::All,
    is_more_better: true,
};
const P50: Metric = Metric {
    name: "p50",
    figure: |sample| enough(sample, Tail::P50).then(|| reported(sample.trial.latency.sojourn_p50_us)).flatten(),
    needs: Worth::All,
    is_more_better: false,
};
const P99: Metric = Metric {
    name: "p99",
    figure: |sample| enough(sample, Tail::P99).then(|| reported(sample.trial.latency.sojourn_p99_us)).flatten(),
    ..P50
};
const KERNEL: Metric = Metric { name: "in the kernel", figure: |sample| sample.kernel_share, ..CPU };
const WIRE: Metric = Metric {
    name: "Gb/s",
    // A load program does not tell it.
    figure: |sample| Some(sample.trial.wire_gigabits()).filter(|bits| *bits > 0.0),
    needs: Worth::Cost,
    is_more_better: true,
};
const BOX: Metric = Metric { name: "box CPU per request", figure: |sample| sample.box_us, ..CPU };
const ORIGIN: Metric = Metric { name: "origin CPU-s per million", figure: |sample| sample.origin_us, ..CPU };
const CYCLES: Metric = Metric { name: "cycles/request", figure: |sample| sample.cycles, ..CPU };
const INSTRUCTIONS: Metric = Metric { name: "instructions/request", figure: |sample| sample.instructions, ..CPU };
const RSS: Metric = Metric { name: "RSS MiB", figure: |sample| sample.rss_max.map(|bytes| bytes as f64 / MIB), ..CPU };

/// A latency; 0 is that of a load program which does not tell it.
fn reported(micros: u64) -> Option<f64> {
    (micros > 0).then_some(micros as f64)
}

/// A percentile of fewer samples is no percentile.
fn enough(sample: &Sample, tail: Tail) -> bool {
    sample.trial.completed >= tail.samples_min()
}

/// Compared by ratio.
const METRICS: [Metric; 4] = [CPU, P50, P99, COMPLETED];

/// A comparison as Markdown.
#[must_use]
pub fn markdown(comparison: &Comparison) -> String {
    document(comparison).markdown()
}

/// A comparison: per rate the figures of each arm, then the ratios, then who they were and where.
pub(crate) fn document(comparison: &Comparison) -> Document {
    let mut page = Document::default();
    page.add(Element::Heading(1, format!("{}: side by side", comparison.name)));
    caveats(comparison).into_iter().for_each(|caveat| page.add(Element::Caveat(caveat)));
    for row in &comparison.rows {
        page.add(Element::Heading(2, row.title()));
        page.add(Element::Table(figures(comparison, row)));
        let (blocks, window) = (row.blocks.len(), row.window_s);
        page.add(Element::Text(match &*row.load {
            "" => format!(
                "{blocks} blocks, each arm twice in each, {window:.0} s a run; medians over the runs, percentiles over all \
                 their requests."
            ),
            command => format!(
                "{blocks} blocks, each arm twice in each, about {window:.0} s a run of `{command}`; medians over the runs."
            ),
        }));
        let ratios = ratios(comparison, row);
        if !ratios.is_empty() {
            page.add(Element::Table(ratios));
        }
        row.caveats().into_iter().for_each(|caveat| page.add(Element::Caveat(format!("{caveat}."))));
    }
    let memory = memory(comparison);
    if !memory.is_empty() {
        page.add(Element::Heading(2, "Memory of connections".to_owned()));
        page.add(Element::Table(memory));
    }
    let charts = charts(comparison).into_iter().filter(|chart| !chart.is_empty());
    charts.for_each(|chart| page.add(Element::Chart(chart)));
    page.add(Element::Heading(2, "Conditions".to_owned()));
    page.add(Element::List(conditions(comparison)));
    page.add(Element::Code("Scenario".to_owned(), comparison.scenario.clone()));
    for arm in comparison.arms.iter().filter(|arm| !arm.config.is_empty()) {
        page.add(Element::Code(format!("Configuration of {}", arm.name), arm.config.clone()));
    }
    page
}

/// CPU and latency against load, and the ratios with their intervals.
fn charts(comparison: &Comparison) -> Vec<Chart> {
    let Some((ours, others)) = comparison.arms.split_first() else { return Vec::new() };
    let field = |what: &str, label, is_log, figure: &dyn Fn(&Row, &str) -> Option<f64>| {
        let of = |name: &str| Series {
            name: name.to_owned(),
            points: comparison.rows.iter().filter_map(|row| Some((row.offered?, figure(row, name)?))).collect(),
            is_joined: true,
            look: None,
        };
        let series = comparison.arms.iter().map(|arm| of(&arm.name)).filter(|series| !series.points.is_empty());
        Chart::Field(Field {
            title: format!("{}: {what}", comparison.name),
            x: Axis { label: "offered, requests per second", is_log: false },
            y: Axis { label, is_log },
            series: series.collect(),
            marks: Vec::new(),
        })
    };
    let cpu = field("CPU per request against load", "gateway CPU, us", false, &|row, arm| row.median(arm, &CPU));
    let p99 = field("latency against load", "p99 sojourn, ms", true, &|row, arm| {
        Some(row.percentile(arm, Tail::P99)?.micros()? as f64 / 1e3)
    });
    let lines = comparison.rows.iter().flat_map(|row| {
        others.iter().filter_map(move |other| {
            // With fewer blocks the interval is too narrow.
            let ratio = row.ratio(&ours.name, &other.name, &CPU).filter(|ratio| ratio.blocks >= BLOCKS_MIN)?;
            let Ratio { median, interval: (low, high), .. } = ratio;
            Some(Interval { label: format!("{}, {}", other.name, row.title()), median, low, high })
        })
    });
    let title = format!("{}: CPU per request, {} to the others", comparison.name, ours.name);
    vec![cpu, p99, Chart::Forest(Forest { title, lines: lines.collect() })]
}

fn caveats(comparison: &Comparison) -> Vec<String> {
    let mut caveats = Vec::new();
    let blocks = comparison.rows.iter().map(|row| row.blocks.len()).min().unwrap_or(0);
    if blocks < BLOCKS_MIN {
        caveats.push(format!("{blocks} blocks: no claim; a claim needs {BLOCKS_MIN}."));
    }
    if comparison.backend == Backend::Synthetic && comparison.placement.is_shared() {
        caveats.push("Origin and generator share a CPU.".to_owned());
    }
    if comparison.rows.iter().any(is_shaped) {
        caveats.push(
            "Quota-shaped: each gateway has a share of a CPU, and latency has steps of a period's length.".into(),
        );
    }
    let is_capturing = |arm: &&Arm| arm.name == Telemetry::CaptureAll.peer_name();
    if let Some(arm) = comparison.arms.iter().find(is_capturing) {
        caveats.push(format!(
            "{}: lines that the access log cannot take are dropped, as in service; beyond some 20k/s its cost is a lower bound.",
            arm.name
        ));
    }
    if !has_counters(comparison) {
        let why = match comparison.host.pmu {
            Some(false) => "not measurable on this host",
            Some(true) => {
                "this user may not read the processor's counters (kernel.perf_event_paranoid), or others use them"
            }
            None => "not recorded",
        };
        caveats.push(format!("Cycles and instructions per request: {why}."));
    }
    caveats.extend(comparison.missing.iter().map(|missing| {
        format!(
            "Not compared: {}. {}",
            missing.name,
            missing.reason.lines().map(str::trim).collect::<Vec<_>>().join(" ")
        )
    }));
    caveats.extend(comparison.failed.iter().map(|failed| {
        format!("Failed, and not run again: {} at {}: {}", failed.arm, failed.at, failed.reason.replace('\n', " "))
    }));
    caveats
}

/// Gateways had a share of a CPU.
fn is_shaped(row: &Row) -> bool {
    row.blocks.iter().flat_map(|block| block.runs.values()).flatten().any(Sample::is_quota)
}

/// The processor counted for at least one run.
fn has_counters(comparison: &Comparison) -> bool {
    is_measured(comparison, &CYCLES)
}

/// At least one run has the figure.
fn is_measured(comparison: &Comparison, metric: &Metric) -> bool {
    let mut blocks = comparison.rows.iter().flat_map(|row| &row.blocks);
    blocks.any(|block| block.runs.values().flatten().any(|sample| (metric.figure)(sample).is_some()))
}

/// Heads of the columns that every row has.
const HEADS: [&str; 14] = [
    "arm",
    "valid runs",
    "completed/s",
    "Gb/s",
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
];

/// One line per arm. CPU seconds per million requests are microseconds per request.
fn figures(comparison: &Comparison, row: &Row) -> Table {
    let mut heads = HEADS.to_vec();
    // The figure by which shares of a CPU are compared elsewhere.
    let is_shaped = is_shaped(row);
    if is_shaped {
        heads.push("p95 ms");
    }
    let mut more = vec![(ORIGIN, 2), (CYCLES, 0), (INSTRUCTIONS, 0)];
    more.retain(|(metric, _)| is_measured(comparison, metric));
    heads.extend(more.iter().map(|(metric, _)| metric.name));
    let mut table = Table::new(&heads);
    for arm in &comparison.arms {
        let name = &*arm.name;
        let count = |figure: fn(&Trial) -> u64| {
            let all: Vec<u64> = row.runs(name).map(|run| figure(&run.trial)).collect();
            if all.is_empty() { "-".to_owned() } else { all.iter().sum::<u64>().to_string() }
        };
        let millis = |tail, metric: Option<&Metric>| {
            let Some(percentile) = row.percentile(name, tail) else {
                // A load program tells a percentile of each run, and no more.
                return number(metric.and_then(|metric| row.median(name, metric)).map(|micros| micros / 1e3), 3);
            };
            match percentile.micros() {
                Some(micros) => format!("{:.3}", micros as f64 / 1e3),
                None => percentile.to_string(),
            }
        };
        let kernel = row.median(name, &KERNEL);
        let of_all = |cell: String| with_runs(cell, row.counted(name, Worth::All));
        let of_cost = |cell: String| with_runs(cell, row.counted(name, Worth::Cost));
        let (valid, all) = row.counted(name, Worth::All);
        let mut cells = vec![
            name.to_owned(),
            format!("{valid} of {all}"),
            of_all(row.median(name, &COMPLETED).map_or("-".to_owned(), cell::short)),
            of_cost(number(row.median(name, &WIRE), 2)),
            count(|trial| trial.shed),
            count(|trial| trial.errors.total()),
            count(|trial| trial.skipped_backlog),
            of_all(millis(Tail::P50, Some(&P50))),
            of_all(millis(Tail::P99, Some(&P99))),
            of_all(millis(Tail::P999, None)),
            of_cost(number(row.median(name, &CPU), 2)),
            of_cost(kernel.map_or("-".to_owned(), |share| format!("~{:.0} %", share * 1e2))),
            of_cost(number(row.median(name, &BOX), 2)),
            of_cost(number(row.median(name, &RSS), 1)),
        ];
        if is_shaped {
            cells.push(of_all(millis(Tail::P95, None)));
        }
        cells.extend(more.iter().map(|(metric, digits)| of_cost(number(row.median(name, metric), *digits))));
        table.row(cells);
    }
    table
}

/// Connections by which two rows must differ for the memory of one to show: beside it, buffers and code weigh little then.
const CONNECTIONS_APART: u32 = 1_000;

/// The resident memory of each gateway at the rows with the fewest and the most connections, divided by their difference.
fn memory(comparison: &Comparison) -> Table {
    let none = Table::new(&["arm"]);
    let Ok(scenario) = weir_load::scenario::parse("scenario", &comparison.scenario) else { return none };
    let connections = |row: &&Row| {
        let phase = scenario.phases.iter().find(|phase| phase.name == row.phase);
        phase.map_or(0, |phase| scenario.alone(phase).connections)
    };
    let rows = || comparison.rows.iter();
    let (Some(few), Some(many)) = (rows().min_by_key(connections), rows().max_by_key(connections)) else { return none };
    let (least, most) = (connections(&few), connections(&many));
    if most - least < CONNECTIONS_APART {
        return none;
    }
    let [before, after] = [least, most].map(|count| format!("RSS MiB with {count}"));
    let mut table = Table::new(&["arm", &before, &after, "KiB per connection"]);
    for arm in &comparison.arms {
        if let (Some(before), Some(after)) = (few.median(&arm.name, &RSS), many.median(&arm.name, &RSS)) {
            let each = (after - before) * 1024.0 / f64::from(most - least);
            let [before, after] = [before, after].map(|figure| number(Some(figure), 1));
            table.row(vec![arm.name.clone(), before, after, number(Some(each), 2)]);
        }
    }
    table
}

/// `34.000 (2 of 4)`: a figure with the runs behind it, where some of them do not count. `n/a` has its own count.
fn with_runs(cell: String, (counted, all): (usize, usize)) -> String {
    if cell == "-" || cell.starts_with("n/a") || counted == all { cell } else { format!("{cell} ({counted} of {all})") }
}

/// The gateway of this project against each other arm.
fn ratios(comparison: &Comparison, row: &Row) -> Table {
    let Some((ours, others)) = comparison.arms.split_first() else { return Table::new(&[]) };
    let heads: Vec<String> = [format!("{} against", ours.name)]
        .into_iter()
        .chain(METRICS.iter().map(|metric| metric.name.to_owned()))
        .collect();
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for other in others {
        let is_tail_claim = [ours, other].iter().all(|arm| {
            let samples = row.runs(&arm.name).filter(|run| run.worth == Worth::All).map(|run| run.trial.completed);
            samples.sum::<u64>() >= Tail::P99.samples_claim()
        });
        let cells = METRICS.iter().map(|metric| {
            let ratio = row.ratio(&ours.name, &other.name, metric);
            let is_claim = metric.name != P99.name || is_tail_claim;
            ratio.map_or("-".to_owned(), |ratio| read(&ratio, metric.is_more_better, is_claim))
        });
        table.row([other.name.clone()].into_iter().chain(cells).collect());
    }
    table
}

/// `0.610 (0.590 to 0.630) better`. With too few blocks, or too few samples for a tail, only the figures and the number of
/// blocks.
fn read(ratio: &Ratio, is_more_better: bool, is_claim: bool) -> String {
    let Ratio { median, interval: (low, high), blocks, .. } = ratio;
    let figures = format!("{median:.3} ({low:.3} to {high:.3})");
    if *blocks < BLOCKS_MIN || !is_claim {
        return format!("{figures}, n = {blocks}: no claim");
    }
    let word = match (ratio.is_difference(), (*median > 1.0) == is_more_better) {
        (false, _) => "no difference shown",
        (true, true) => "better",
        (true, false) => "worse",
    };
    format!("{figures} {word}")
}

fn conditions(comparison: &Comparison) -> Vec<String> {
    let mut points = vec![
        format!("made by `{}`, weir {}", comparison.command, comparison.build),
        match comparison.backend {
            Backend::Synthetic => format!("{}; behind the gateways {}", comparison.placement, comparison.behind),
            Backend::Real => format!(
                "{}; behind the gateways {}, on whatever CPU it has",
                comparison.placement.without_origin(),
                comparison.behind
            ),
        },
        host(&comparison.host),
    ];
    points.extend(
        comparison.direct_ceiling.map(|rate| format!("{}/s without a gateway, closed loop", cell::short(rate))),
    );
    points.extend(comparison.load.iter().map(|load| {
        format!("load: {}, {}; runs are whole, with their connects, and so is the CPU time", load.name, load.version)
    }));
    points.extend(comparison.changes.iter().map(|change| match &**change {
        "tls" => "clients speak TLS with the gateways, which speak clear text with the server behind".to_owned(),
        "routes" => {
            "each gateway has 100 routes, the requested one last, and a line of access log per request".to_owned()
        }
        other => other.to_owned(),
    }));
    let gateways = comparison.arms.iter().filter(|arm| !arm.command.is_empty());
    points.extend(gateways.map(|arm| format!("{}: {}, `{}`", arm.name, arm.version, arm.command)));
    let is_open = comparison.rows.iter().all(|row| row.offered.is_some());
    points.push(match is_open {
        true => "open loop; sojourn counts from the instant that the schedule gave to a request until its reply was \
                 checked; late requests are sent late, and skipped beyond the late limit"
            .to_owned(),
        false => "closed loop: the next request leaves after the reply, so a stall hides".to_owned(),
    });
    if has_counters(comparison) {
        points.push(
            "the processor's counters were on in every run; they cost each arm a little at every switch of threads"
                .to_owned(),
        );
    }
    points.extend(
        [
            "CPU: accumulated run time of all threads over the window per completed request; `~`: sampled by the kernel",
            "ratio: median of the ratios paired by block, with its 95 % bootstrap interval; a difference is shown if the \
             interval excludes 1 and the effect exceeds 2 %",
        ]
        .map(str::to_owned),
    );
    points
}

/// Kernel, CPU and what else decides how far figures carry.
pub(crate) fn host(host: &Host) -> String {
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
    fn cycles_have_columns_where_they_were_counted() {
        let mut compared = Comparison::from_json(include_str!("testdata/compared.json")).expect("a comparison");
        let without = |pmu, compared: &mut Comparison| {
            compared.host.pmu = pmu;
            markdown(compared)
        };
        for (pmu, why) in [(Some(false), "not measurable"), (Some(true), "perf_event_paranoid"), (None, "not recorded")]
        {
            let page = without(pmu, &mut compared);
            assert!(page.contains(why) && !page.contains("cycles/request"), "{page}");
        }
        let runs = compared.rows.iter_mut().flat_map(|row| &mut row.blocks).flat_map(|block| block.runs.values_mut());
        for sample in runs.flatten() {
            (sample.cycles, sample.instructions) = (Some(35_200.0), Some(23_900.0));
        }
        let with = markdown(&compared);
        assert!(!with.contains("not recorded") && with.contains("counters were on"), "{with}");
        assert!(with.contains("cycles/request") && with.contains("35200") && with.contains("23900"), "{with}");
    }

    #[test]
    fn a_share_of_a_cpu_has_the_column_of_its_own_percentile() {
        let mut compared = Comparison::from_json(include_str!("testdata/compared.json")).expect("a comparison");
        assert!(!markdown(&compared).contains("p95 ms"));
        let runs = compared.rows.iter_mut().flat_map(|row| &mut row.blocks).flat_map(|block| block.runs.values_mut());
        runs.flatten().for_each(|sample| sample.trial.host.is_quota = true);
        let page = markdown(&compared);
        let [head, _, first] =
            page.lines().skip_while(|line| !line.starts_with("| arm")).take(3).collect::<Vec<_>>()[..]
        else {
            panic!("{page}")
        };
        let at = head.split('|').position(|cell| cell.trim() == "p95 ms").expect("the column");
        let cell = first.split('|').nth(at).expect("a cell").trim();
        let median = cell.split(' ').next().and_then(|figure| figure.parse::<f64>().ok()).expect(cell);
        assert!(median > 0.1 && median < 100.0, "{first}");
    }

    #[test]
    fn a_ratio_is_read_by_its_better_direction() {
        let ratio = |median: f64, interval| Ratio { median, spread: interval, interval, blocks: 8 };
        assert_eq!(read(&ratio(0.6, (0.55, 0.65)), false, true), "0.600 (0.550 to 0.650) better");
        assert_eq!(read(&ratio(0.6, (0.55, 0.65)), true, true), "0.600 (0.550 to 0.650) worse");
        assert_eq!(read(&ratio(1.2, (1.1, 1.3)), true, true), "1.200 (1.100 to 1.300) better");
        assert_eq!(read(&ratio(0.9, (0.7, 1.1)), false, true), "0.900 (0.700 to 1.100) no difference shown");
        // One block has an interval without width.
        let single = Ratio { blocks: 1, ..ratio(0.6, (0.6, 0.6)) };
        assert_eq!(read(&single, false, true), "0.600 (0.600 to 0.600), n = 1: no claim");
        assert_eq!(read(&ratio(0.6, (0.55, 0.65)), false, false), "0.600 (0.550 to 0.650), n = 8: no claim");
    }
}
