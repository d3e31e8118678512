//! The report of a folder of results: what was found, drawn, with every caveat and how to find it again.

use std::collections::BTreeMap;

use weir_knee::command::Rate;
use weir_knee::knee::Seen;
use weir_knee::markdown::{Table, number};
use weir_knee::ratio::median;
use weir_knee::{Purpose, Verdict, cell};

use crate::chart::{Axis, Chart, Field, Series};
use crate::comparison::Comparison;
use crate::document::{Document, Part};
use crate::file::FileError;
use crate::result::{KneeResult, QUICK};
use crate::{comparison, file, html, result, side_by_side, table};

/// Budgets of the public knee table; others come behind them.
const BUDGETS: [u32; 4] = [1, 2, 4, 8];

/// Results of a folder.
#[derive(Debug, Default)]
pub struct Report {
    knees: Vec<(String, KneeResult)>,
    comparisons: Vec<(String, Comparison)>,
    unread: Vec<(String, String)>,
}

/// A report in both forms, which say the same.
#[derive(Debug)]
pub struct Rendered {
    /// For reading as text, and for looking at differences.
    pub markdown: String,
    /// One file that needs no network.
    pub html: String,
}

impl Report {
    /// Takes the text of a file called `name`. What is no result is named in the report.
    pub fn add(&mut self, name: &str, text: &str) {
        let name = name.to_owned();
        let added = file::schema_of(text).and_then(|schema| match &*schema {
            result::SCHEMA => KneeResult::from_json(text).map(|found| self.knees.push((name.clone(), found))),
            comparison::SCHEMA => Comparison::from_json(text).map(|found| self.comparisons.push((name.clone(), found))),
            _ => Err(FileError::Schema { found: schema, wanted: result::SCHEMA }),
        });
        if let Err(error) = added {
            self.unread.push((name, error.to_string()));
        }
    }

    /// Whether there is nothing to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.knees.is_empty() && self.comparisons.is_empty()
    }

    /// Files that are no result, and why.
    #[must_use]
    pub fn unread(&self) -> &[(String, String)] {
        &self.unread
    }

    /// The report.
    #[must_use]
    pub fn render(mut self) -> Rendered {
        // The order of files in a folder is no order.
        self.knees.sort_by(|a, b| (&a.1.shape.row, a.1.ended, &a.0).cmp(&(&b.1.shape.row, b.1.ended, &b.0)));
        self.comparisons.sort_by(|a, b| (&a.1.name, a.1.ended, &a.0).cmp(&(&b.1.name, b.1.ended, &b.0)));
        let title = "What it carries";
        let mut page = Document::default();
        page.add(Part::Heading(1, title.to_owned()));
        page.add(Part::Text(
            "Made by weir lab report. Open loop: latency counts from the instant that the schedule gave to a request. \
             Nothing is extrapolated."
                .to_owned(),
        ));
        if !self.knees.is_empty() {
            page.add(Part::Heading(2, "Clean knees".to_owned()));
            page.add(Part::Table(self.knee_table()));
        }
        for (name, found) in &self.knees {
            page.extend(knee_chapter(name, found));
        }
        for (name, compared) in &self.comparisons {
            page.extend(side_by_side::document(compared).nested());
            page.add(Part::Text(format!("Every run is in {name}.")));
        }
        if !self.unread.is_empty() {
            page.add(Part::Heading(2, "Not read".to_owned()));
            page.add(Part::List(self.unread.iter().map(|(name, why)| format!("{name}: {why}")).collect()));
        }
        Rendered { markdown: page.markdown(), html: html::page(title, &page) }
    }

    /// One line per workload, in the columns of the public comparator table.
    fn knee_table(&self) -> Table {
        let mut rows: BTreeMap<&str, Vec<&KneeResult>> = BTreeMap::new();
        for (_, found) in &self.knees {
            rows.entry(&found.shape.row).or_default().push(found);
        }
        let mut budgets: Vec<u32> = BUDGETS.to_vec();
        budgets.extend(self.knees.iter().map(|(_, found)| budget_of(found)));
        budgets.sort_unstable();
        budgets.dedup();
        let mut heads = vec!["workload".to_owned()];
        heads.extend(budgets.iter().map(|budget| format!("{budget} vCPU")));
        heads.extend(["first overload", "peak completed", "of budget", "planning read"].map(str::to_owned));
        let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
        for (row, results) in rows {
            let of =
                |budget: u32| results.iter().copied().filter(|found| budget_of(found) == budget).collect::<Vec<_>>();
            let mut cells = vec![row_title(row)];
            cells.extend(budgets.iter().map(|budget| knee_cell(&of(*budget))));
            let largest = results.iter().copied().max_by_key(|found| (budget_of(found), found.ended));
            if let Some(largest) = largest {
                cells.push(largest.knee.overload_cell("req/s").to_string());
                cells.push(largest.knee.peak_cell("req/s").to_string());
                cells.push(format!("{} vCPU", budget_of(largest)));
                cells.push(largest.knee.planning_read());
            }
            table.row(cells);
        }
        table
    }
}

fn budget_of(found: &KneeResult) -> u32 {
    found.shape.budget_vcpu as u32
}

/// Of a row's long description what tells it from others in a table.
fn row_title(row: &str) -> String {
    let name = row.split(':').next().unwrap_or(row);
    let back_end = if row.contains("real back end") { "real back end" } else { "synthetic" };
    let quick = if row.ends_with(QUICK) { QUICK } else { "" };
    format!("{name}, {back_end}{quick}")
}

/// Several searches of one row: their median and how far they are apart.
fn knee_cell(results: &[&KneeResult]) -> String {
    let Some(last) = results.last() else { return cell::Cell::NotRun.to_string() };
    let rates: Vec<f64> = results.iter().filter_map(|found| found.knee.capacity()).collect();
    if rates.len() < 2 || rates.len() < results.len() {
        return last.knee.clean_cell("req/s").to_string();
    }
    let middle = median(rates.iter().copied()).unwrap_or(0.0);
    let (low, high) =
        rates.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
    let (low, high) = (cell::short(low), cell::short(high));
    format!("{} req/s ({} searches, {low} to {high})", cell::short(middle), rates.len())
}

fn knee_chapter(name: &str, found: &KneeResult) -> Document {
    let mut page = Document::default();
    page.add(Part::Heading(2, format!("{}, {} vCPU", row_title(&found.shape.row), found.shape.budget_vcpu)));
    if found.shape.row.ends_with(QUICK) {
        page.add(Part::Caveat("A quick look: short trials, wide steps. Nothing to size from.".to_owned()));
    }
    if found.placement.is_shared() {
        page.add(Part::Caveat("Origin and generator share a CPU.".to_owned()));
    }
    let all = &found.knee.seen;
    let spoiled = all.iter().filter(|seen| !matches!(seen.verdict, Verdict::Clean | Verdict::NotClean(_))).count();
    if spoiled > 0 {
        let caveat = format!("{spoiled} of {} trials do not count: the lab was not fit for them.", all.len());
        page.add(Part::Caveat(caveat));
    }
    page.add(Part::List(table::facts(&found.knee).iter().map(|(what, value)| format!("{what}: {value}")).collect()));
    for chart in knee_charts(found) {
        page.add(Part::Chart(chart));
    }
    page.add(Part::Table(trials(found)));
    page.add(Part::List(vec![
        found.shape.row.clone(),
        format!("{}; TLS {}, telemetry {}", found.placement, found.shape.tls, found.shape.telemetry),
        side_by_side::host(&found.host),
        format!("run {} in {name}", found.run_id),
    ]));
    page.add(Part::Code("Again".to_owned(), found.command.clone()));
    page.add(Part::Code("Scenario".to_owned(), found.scenario.clone()));
    page.add(Part::Code("Configuration of the gateway".to_owned(), found.gateway_config.clone()));
    page
}

/// As the legend of a chart calls it.
fn kind_of(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Clean => "clean",
        Verdict::NotClean(_) => "not clean",
        Verdict::Invalid(_) | Verdict::Unsteady => "does not count",
    }
}

/// Trials at an offered rate; the calibrations have none.
fn offered(found: &KneeResult) -> impl Iterator<Item = (f64, &Seen)> {
    found.knee.seen.iter().filter_map(|seen| match seen.run.rate {
        Rate::Offered(rate) => Some((rate, seen)),
        Rate::Saturate => None,
    })
}

fn knee_charts(found: &KneeResult) -> Vec<Chart> {
    let marks: Vec<(f64, String)> =
        found.knee.capacity().map(|rate| (rate, "clean knee".to_owned())).into_iter().collect();
    let title = row_title(&found.shape.row);
    let series = |figure: fn(&Seen) -> Option<f64>| -> Vec<Series> {
        ["clean", "not clean", "does not count"]
            .into_iter()
            .map(|kind| Series {
                name: kind.to_owned(),
                points: offered(found)
                    .filter(|(_, seen)| kind_of(&seen.verdict) == kind)
                    .filter_map(|(rate, seen)| Some((rate, figure(seen)?)))
                    .collect(),
                is_joined: false,
            })
            .filter(|series| !series.points.is_empty())
            .collect()
    };
    let chart = |what: &str, label, is_log, figure| {
        Chart::Field(Field {
            title: format!("{title}: {what}"),
            x: Axis { label: "offered, requests per second", is_log: false },
            y: Axis { label, is_log },
            series: series(figure),
            marks: marks.clone(),
        })
    };
    vec![
        chart("latency against offered load", "p99 sojourn, ms", true, |seen| Some(seen.sojourn_p99_us as f64 / 1e3)),
        chart("completed against offered load", "completed per second", false, |seen| Some(seen.completed_rate)),
        chart("CPU per request against load", "gateway CPU, us", false, |seen| seen.gateway_cpu_us_per_req),
    ]
}

fn trials(found: &KneeResult) -> Table {
    let mut table = Table::new(&["trial", "offered/s", "completed/s", "p99 ms", "gateway us per request", "verdict"]);
    for seen in &found.knee.seen {
        let rate = match (seen.run.purpose, seen.run.rate) {
            (Purpose::NullSink | Purpose::Direct, _) | (_, Rate::Saturate) => "-".to_owned(),
            (_, Rate::Offered(rate)) => cell::short(rate),
        };
        table.row(vec![
            table::purpose(seen.run.purpose).to_owned(),
            rate,
            cell::short(seen.completed_rate),
            format!("{:.3}", seen.sojourn_p99_us as f64 / 1e3),
            number(seen.gateway_cpu_us_per_req, 2),
            seen.verdict.to_string(),
        ]);
    }
    table
}
