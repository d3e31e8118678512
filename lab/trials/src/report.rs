//! The report of a folder of results: what was found, drawn, with every caveat and how to find it again.

use std::collections::BTreeMap;

use weir_knee::command::Rate;
use weir_knee::knee::TrialSummary;
use weir_knee::markdown::{Table, number};
use weir_knee::plan::Shape;
use weir_knee::ratio::median;
use weir_knee::{Purpose, StopReason, Verdict, cell};
use weir_load::recorder::Tail;
use weir_load::{StepRecord, record};

use crate::chart::{Axis, Bar, Bars, Chart, Field, Series};
use crate::comparison::Comparison;
use crate::course::{Course, CourseSecond};
use crate::document::{Document, Element};
use crate::file::FileError;
use crate::result::{KneeResult, QUICK};
use crate::swept::{self, Sweep};
use crate::watch::Party;
use crate::{comparison, file, html, loaded, published, result, side_by_side, swept_page, table};

/// In the row of a search before a server that was there.
const REAL: &str = "real back end";
/// Budgets of the public knee table, in thousandths of a CPU; others stand among them.
const BUDGETS: [u32; 4] = [1_000, 2_000, 4_000, 8_000];

/// Results of a folder.
#[derive(Debug, Default)]
pub struct Report {
    knees: Vec<(String, KneeResult)>,
    comparisons: Vec<(String, Comparison)>,
    sweeps: Vec<(String, Sweep)>,
    loads: Vec<(String, StepRecord)>,
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
    /// Takes the text of a file called `name`. A text that is no result is listed in the report.
    pub fn add(&mut self, name: &str, text: &str) {
        let first = text.lines().next().unwrap_or_default();
        // Records of loads are lines, whatever the ending of their file.
        if file::schema_of(first).is_ok_and(|schema| schema == record::SCHEMA) {
            return self.add_lines(name, text);
        }
        let name = name.to_owned();
        let added = file::schema_of(text).and_then(|schema| match &*schema {
            result::SCHEMA => KneeResult::from_json(text).map(|found| self.knees.push((name.clone(), found))),
            comparison::SCHEMA => Comparison::from_json(text).map(|found| self.comparisons.push((name.clone(), found))),
            swept::SCHEMA => Sweep::from_json(text).map(|found| self.sweeps.push((name.clone(), found))),
            _ => Err(FileError::Schema { found: schema, wanted: result::SCHEMA }),
        });
        if let Err(error) = added {
            self.unread.push((name, error.to_string()));
        }
    }

    /// Takes the text of a file of lines called `name`: results of `weir lab load`. A text without any is listed in the report.
    pub fn add_lines(&mut self, name: &str, text: &str) {
        match loaded::read(text) {
            Ok(records) if records.is_empty() => self.add_unread(name, "no result: the file is empty".to_owned()),
            Ok(records) => self.loads.extend(records.into_iter().map(|record| (name.to_owned(), record))),
            Err(error) => self.add_unread(name, error.to_string()),
        }
    }

    /// Takes note of a file that could not be read.
    pub fn add_unread(&mut self, name: &str, why: String) {
        self.unread.push((name.to_owned(), why));
    }

    /// Whether there is nothing to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.knees.is_empty() && self.comparisons.is_empty() && self.sweeps.is_empty() && self.loads.is_empty()
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
        self.sweeps.sort_by(|a, b| (a.1.kind as u8, a.1.ended, &a.0).cmp(&(b.1.kind as u8, b.1.ended, &b.0)));
        let title = "Capacity report";
        let mut page = Document::default();
        page.add(Element::Heading(1, title.to_owned()));
        page.add(Element::Text(
            "Made by weir lab report. In an open loop latency counts from the instant that the schedule gave to a request. \
             Nothing is extrapolated."
                .to_owned(),
        ));
        if !self.knees.is_empty() {
            page.add(Element::Heading(2, "Clean knees".to_owned()));
            page.add(Element::Table(self.knee_table()));
        }
        page.extend(loaded::chapter(&self.loads));
        for (name, found) in &self.knees {
            page.extend(knee_chapter(name, found, &self.title(found)));
        }
        for (name, swept) in &self.sweeps {
            page.extend(swept_page::document(swept).nested());
            page.add(Element::Text(format!("Every run is in {name}.")));
        }
        for (name, compared) in &self.comparisons {
            page.extend(side_by_side::document(compared).nested());
            page.add(Element::Text(format!("Every run is in {name}.")));
        }
        page.extend(published::of_knees(self.knees.iter().map(|(_, found)| &found.shape)));
        page.extend(published::of_sweeps(&self.sweeps.iter().map(|(_, swept)| swept).collect::<Vec<_>>()));
        if !self.unread.is_empty() {
            page.add(Element::Heading(2, "Not read".to_owned()));
            page.add(Element::List(self.unread.iter().map(|(name, why)| format!("{name}: {why}")).collect()));
        }
        Rendered { markdown: page.markdown(), html: html::page(title, &page) }
    }

    /// Title that distinguishes a row from the others: its name, and the run if others have the same name.
    fn title(&self, found: &KneeResult) -> String {
        let title = title_of(&found.shape);
        let is_same = |other: &KneeResult| title_of(&other.shape) == title && row_of(other) != row_of(found);
        match self.knees.iter().any(|(_, other)| is_same(other)) {
            true => format!("{title} (run {})", found.run_id),
            false => title,
        }
    }

    /// One line per workload, in the columns of the public comparator table.
    fn knee_table(&self) -> Table {
        let mut rows: BTreeMap<String, Vec<&KneeResult>> = BTreeMap::new();
        for (_, found) in &self.knees {
            rows.entry(row_of(found)).or_default().push(found);
        }
        let mut budgets: Vec<u32> = BUDGETS.to_vec();
        budgets.extend(self.knees.iter().map(|(_, found)| budget_of(found)));
        budgets.sort_unstable();
        budgets.dedup();
        let mut heads = vec!["workload".to_owned()];
        heads.extend(budgets.iter().map(|budget| format!("{} vCPU", f64::from(*budget) / 1e3)));
        heads.extend(["first overload", "peak completed", "run of the peak", "planning read"].map(str::to_owned));
        let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
        for results in rows.values() {
            let of =
                |budget: u32| results.iter().copied().filter(|found| budget_of(found) == budget).collect::<Vec<_>>();
            let Some(last) = results.iter().copied().max_by_key(|found| (budget_of(found), found.ended)) else {
                continue;
            };
            let mut cells = vec![self.title(last)];
            cells.extend(budgets.iter().map(|budget| knee_cell(&of(*budget))));
            cells.push(last.knee.overload_cell("req/s").to_string());
            cells.push(last.knee.peak_cell("req/s").to_string());
            cells.push(format!("{} vCPU, run {}", last.shape.budget_vcpu, last.run_id));
            cells.push(last.knee.planning_read());
            table.row(cells);
        }
        table
    }
}

/// Identity of a row: searches with the same one are repeats. The budget is not part of it: it has a column of its own.
fn row_of(found: &KneeResult) -> String {
    let Shape { row, budget_vcpu: _, budget_kind: _, driver, tls, telemetry } = &found.shape;
    let KneeResult { build, behind, host, .. } = found;
    format!("{row}|{driver}|{tls}|{telemetry}|{build}|{behind}|{host:?}")
}

/// In thousandths of a CPU.
fn budget_of(found: &KneeResult) -> u32 {
    (found.shape.budget_vcpu * 1e3).round() as u32
}

/// The properties of a shape that distinguish it from others in a table.
fn title_of(shape: &Shape) -> String {
    let row = &shape.row;
    let name = row.split(':').next().unwrap_or(row);
    let back_end = if row.contains(REAL) { REAL } else { "synthetic" };
    let quick = if row.ends_with(QUICK) { QUICK } else { "" };
    let telemetry = match &*shape.telemetry {
        "on" => String::new(),
        other => format!(", telemetry {other}"),
    };
    format!("{name}, {back_end}{telemetry}{quick}")
}

/// Several searches of one row: their median and how far they are apart, and how many found a knee. One that has the order
/// where to stop found none of its own.
fn knee_cell(results: &[&KneeResult]) -> String {
    let Some(last) = results.last() else { return cell::Cell::NotRun.to_string() };
    let is_asked = |found: &KneeResult| found.knee.stop.as_ref().is_some_and(|stop| stop.reason == StopReason::Asked);
    let rates: Vec<f64> =
        results.iter().filter(|found| !is_asked(found)).filter_map(|found| found.knee.capacity()).collect();
    let shaped = if results.iter().any(|found| found.knee.is_quota_shaped) { ", quota-shaped" } else { "" };
    if results.len() == 1 || rates.is_empty() {
        let bracket = last.knee.bracket().map_or(String::new(), |bracket| format!(", {bracket}"));
        return format!("{}{bracket}{shaped}", last.knee.clean_cell("req/s"));
    }
    let middle = median(rates.iter().copied()).unwrap_or(0.0);
    let (low, high) =
        rates.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
    let (middle, low, high) = (cell::short(middle), cell::short(low), cell::short(high));
    format!("{middle} req/s ({} of {} searches, {low} to {high}{shaped})", rates.len(), results.len())
}

fn knee_chapter(name: &str, found: &KneeResult, title: &str) -> Document {
    let mut page = Document::default();
    let is_real = found.shape.row.contains(REAL);
    page.add(Element::Heading(2, format!("{title}, {} vCPU", found.shape.budget_vcpu)));
    if found.shape.row.ends_with(QUICK) {
        page.add(Element::Caveat("Quick run: short trials, wide steps. Do not use it for sizing.".to_owned()));
    }
    if !is_real && found.placement.is_shared() {
        page.add(Element::Caveat("Origin and generator share a CPU.".to_owned()));
    }
    if found.knee.is_quota_shaped {
        page.add(Element::Caveat("Quota-shaped: latency has steps of the length of a period.".to_owned()));
    }
    let all = &found.knee.seen;
    let is_lag = |seen: &TrialSummary| seen.verdict.is_valid() && seen.lag_p99_us * 10 > seen.sojourn_p99_us;
    let late = offered(found).filter(|(_, seen)| is_lag(seen)).count();
    if late > 0 {
        page.add(Element::Caveat(format!(
            "In {late} of {} trials the generator's own lag made up over 10 % of the p99; the latency of the gateway is lower.",
            all.len()
        )));
    }
    let spoiled = all.iter().filter(|seen| !matches!(seen.verdict, Verdict::Clean | Verdict::NotClean(_))).count();
    if spoiled > 0 {
        let caveat =
            format!("{spoiled} of {} trials do not count: the lab was not fit, or they were uneven.", all.len());
        page.add(Element::Caveat(caveat));
    }
    let mut facts: Vec<String> =
        table::facts(&found.knee).iter().map(|(what, value)| format!("{what}: {value}")).collect();
    facts.extend(busy_at_knee(found));
    page.add(Element::List(facts));
    for chart in knee_charts(found).into_iter().chain(course_charts(found)).filter(|chart| !chart.is_empty()) {
        page.add(Element::Chart(chart));
    }
    page.add(Element::Table(trials(found)));
    page.add(Element::List(vec![
        found.shape.row.clone(),
        match is_real {
            true => format!("{}; behind it {}, on whatever CPU it has", found.placement.without_origin(), found.behind),
            false => found.placement.to_string(),
        },
        format!("TLS {}, telemetry {}, weir {}", found.shape.tls, found.shape.telemetry, found.build),
        side_by_side::host(&found.host),
        format!("run {} in {name}", found.run_id),
    ]));
    page.add(Element::Code("Again".to_owned(), found.command.clone()));
    page.add(Element::Code("Scenario".to_owned(), found.scenario.clone()));
    page.add(Element::Code("Configuration of the gateway".to_owned(), found.gateway_config.clone()));
    page
}

/// States of a trial in charts, with their look: a green square, a red triangle, a grey plus. Colour is never alone.
const STATES: [(&str, usize); 3] = [("clean", 2), ("not clean", 1), ("does not count", 5)];

/// As the legend of a chart calls it.
fn kind_of(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Clean => "clean",
        Verdict::NotClean(_) => "not clean",
        Verdict::Invalid(_) | Verdict::Unsteady => "does not count",
    }
}

/// Trials at an offered rate; the calibrations have none.
fn offered(found: &KneeResult) -> impl Iterator<Item = (f64, &TrialSummary)> {
    found.knee.seen.iter().filter_map(|seen| match seen.run.rate {
        Rate::Offered(rate) => Some((rate, seen)),
        Rate::Saturate => None,
    })
}

/// p99 in milliseconds; `None`: too few requests for one.
fn p99_millis(seen: &TrialSummary) -> Option<f64> {
    (seen.completed >= Tail::P99.samples_min()).then_some(seen.sojourn_p99_us as f64 / 1e3)
}

fn knee_charts(found: &KneeResult) -> Vec<Chart> {
    let marks: Vec<(f64, String)> =
        found.knee.capacity().map(|rate| (rate, "clean knee".to_owned())).into_iter().collect();
    let title = title_of(&found.shape);
    let series = |figure: fn(&TrialSummary) -> Option<f64>| -> Vec<Series> {
        STATES
            .into_iter()
            .map(|(kind, look)| Series {
                name: kind.to_owned(),
                points: offered(found)
                    .filter(|(_, seen)| kind_of(&seen.verdict) == kind)
                    .filter_map(|(rate, seen)| Some((rate, figure(seen)?)))
                    .collect(),
                is_joined: false,
                look: Some(look),
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
        chart("latency against offered load", "p99 sojourn, ms", true, p99_millis),
        chart("completed against offered load", "completed per second", false, |seen| Some(seen.completed_rate)),
        chart("CPU per request against load", "gateway CPU, us", false, |seen| seen.gateway_cpu_us_per_req),
    ]
}

/// The last clean trial at the knee, with its course.
fn at_knee(found: &KneeResult) -> Option<(&TrialSummary, &Course)> {
    let knee = found.knee.capacity()?;
    let mut all = found.knee.seen.iter().zip(&found.courses).rev();
    all.find(|(seen, _)| seen.verdict.is_clean() && seen.run.rate.offered() == knee)
}

/// The last trial at the step above the knee that was not clean, with its course.
fn above_knee(found: &KneeResult) -> Option<(&TrialSummary, &Course)> {
    let above = found.knee.not_clean?.rate;
    let mut all = found.knee.seen.iter().zip(&found.courses).rev();
    all.find(|(seen, _)| matches!(seen.verdict, Verdict::NotClean(_)) && seen.run.rate.offered() == above)
}

/// How busy the parties were when the knee was verified.
fn busy_at_knee(found: &KneeResult) -> Option<String> {
    let (_, course) = at_knee(found)?;
    let shares = [Party::Gateway, Party::Origin, Party::Generator].into_iter().filter_map(|party| {
        let share = course.busiest(party)?;
        Some(format!("{} {:.0} %", party.name(), share * 1e2))
    });
    let shares = shares.collect::<Vec<_>>().join(", ");
    (!shares.is_empty()).then(|| format!("busiest thread of each at the knee: {shares} of its CPU"))
}

/// Second by second at the knee and above it, and thread by thread at the knee.
fn course_charts(found: &KneeResult) -> Vec<Chart> {
    let Some(at_knee) = at_knee(found) else { return Vec::new() };
    let title = title_of(&found.shape);
    let shown = [(Some(at_knee), "at the knee"), (above_knee(found), "above")];
    let series = |figure: fn(&CourseSecond) -> Option<f64>| -> Vec<Series> {
        let of = |(trial, words): (Option<(&TrialSummary, &Course)>, &str)| {
            let (seen, course) = trial?;
            let points = course.until_window_ends().iter().enumerate();
            Some(Series {
                name: format!("{words}, {}/s", cell::short(seen.run.rate.offered())),
                points: points.filter_map(|(at, second)| Some((at as f64 + 1.0, figure(second)?))).collect(),
                is_joined: true,
                look: None,
            })
        };
        shown.into_iter().filter_map(of).collect()
    };
    let measured = at_knee.1.seconds.iter().position(|second| second.is_measured);
    let begins = measured.map(|at| (at as f64 + 1.0, "measured from here".to_owned()));
    let field = |what: &str, label, is_log, figure| {
        Chart::Field(Field {
            title: format!("{title}: {what}"),
            x: Axis { label: "second of the trial", is_log: false },
            y: Axis { label, is_log },
            series: series(figure),
            marks: begins.iter().cloned().collect(),
        })
    };
    let bars = at_knee.1.busy.iter().enumerate().flat_map(|(kind, (party, shares))| {
        shares.iter().enumerate().map(move |(thread, share)| Bar {
            label: format!("{party}, thread {}", thread + 1),
            share: *share,
            kind,
        })
    });
    let bars: Vec<Bar> = bars.collect();
    let mut charts = vec![
        field("latency second by second", "p99 sojourn, ms", true, |second| Some(second.p99_us? as f64 / 1e3)),
        field("completed second by second", "completed", false, |second| Some(second.completed as f64)),
    ];
    let has_failed =
        |(_, course): (&TrialSummary, &Course)| course.until_window_ends().iter().any(|second| second.failed > 0);
    if shown.iter().any(|(trial, _)| trial.is_some_and(has_failed)) {
        let failed = |second: &CourseSecond| Some(second.failed as f64);
        charts.push(field("failed second by second", "refused, failed, skipped", false, failed));
    }
    charts.push(Chart::Bars(Bars { title: format!("{title}: share of its CPU at the knee"), lines: bars }));
    charts
}

fn trials(found: &KneeResult) -> Table {
    let mut table =
        Table::new(&["trial", "offered/s", "completed/s", "p99 ms", "p99 lag ms", "gateway us per request", "verdict"]);
    for seen in &found.knee.seen {
        let rate = match (seen.run.purpose, seen.run.rate) {
            (Purpose::NullSink | Purpose::Direct, _) | (_, Rate::Saturate) => "-".to_owned(),
            (_, Rate::Offered(rate)) => cell::short(rate),
        };
        table.row(vec![
            table::purpose(seen.run.purpose).to_owned(),
            rate,
            cell::short(seen.completed_rate),
            match seen.run.rate {
                // A closed loop has no sojourn to compare.
                Rate::Saturate => "-".to_owned(),
                Rate::Offered(_) => {
                    p99_millis(seen).map_or_else(|| format!("n/a (n = {})", seen.completed), |p99| format!("{p99:.3}"))
                }
            },
            match p99_millis(seen).filter(|_| seen.run.rate != Rate::Saturate) {
                Some(_) => format!("{:.3}", seen.lag_p99_us as f64 / 1e3),
                None => "-".to_owned(),
            },
            number(seen.gateway_cpu_us_per_req, 2),
            seen.verdict.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use weir_knee::knee::Side;
    use weir_knee::{Backend, Rules, Run, SearchOutcome, Trial};

    use super::*;

    /// A quick search as the program wrote it: clean up to 45.9k.
    const FOUND: &str = include_str!("testdata/knee.json");

    fn found(change: impl FnOnce(&mut KneeResult)) -> String {
        let mut result = KneeResult::from_json(FOUND).expect("a result");
        change(&mut result);
        serde_json::to_string(&result).expect("JSON")
    }

    fn rendered(texts: &[String]) -> Rendered {
        let mut report = Report::default();
        texts.iter().enumerate().for_each(|(index, text)| report.add(&format!("{index}.json"), text));
        report.render()
    }

    #[test]
    fn repeats_stand_in_one_cell_with_those_that_found_nothing() {
        let higher = found(|result| result.knee.clean.as_mut().expect("clean").rate *= 1.1);
        let none = found(|result| result.knee.outcome = SearchOutcome::Unsteady);
        let page = rendered(&[FOUND.to_owned(), higher, none]).markdown;
        assert!(page.contains("48.2k req/s (2 of 3 searches, 45.9k to 50.5k)"), "{page}");
    }

    #[test]
    fn another_build_or_machine_is_another_row_with_another_name() {
        let texts = [
            FOUND.to_owned(),
            found(|result| (result.build, result.run_id) = ("0.2.0 release".to_owned(), "later".to_owned())),
        ];
        let page = rendered(&texts).markdown;
        assert!(!page.contains("searches,") && page.contains("quick look (run later)"), "{page}");
    }

    #[test]
    fn a_real_server_is_not_said_to_share_the_generators_cpu() {
        let real = found(|result| {
            result.shape.row = result.shape.row.replace("synthetic back end", REAL);
            result.behind = "127.0.0.1:6379".to_owned();
        });
        let page = rendered(&[real]).markdown;
        assert!(page.contains("behind it 127.0.0.1:6379") && !page.contains("share a CPU"), "{page}");
    }

    #[test]
    fn charts_and_tables_leave_out_figures_with_too_few_samples() {
        let few = found(|result| result.knee.seen.iter_mut().for_each(|seen| seen.completed = 7));
        let Rendered { markdown, html } = rendered(&[few]);
        assert!(markdown.contains("n/a (n = 7)"), "{markdown}");
        assert!(!html.contains("latency against offered load") && html.contains("CPU per request against load"));
    }

    #[test]
    fn the_courses_at_the_knee_and_above_it_are_drawn_and_no_others() {
        let page = rendered(&[found(|result| {
            let knee = &mut result.knee;
            let clean = knee.clean.expect("clean");
            let mut above = *knee.seen.last().expect("trials");
            (above.run.rate, above.verdict) = (Rate::Offered(clean.rate * 1.05), not_clean());
            (knee.not_clean, knee.outcome) = (Some(Side { rate: clean.rate * 1.05, ..clean }), SearchOutcome::Verified);
            // The third stands for a step above that was left again.
            let elsewhere = TrialSummary { run: Run { rate: Rate::Offered(1e6), ..above.run }, ..above };
            knee.seen.extend([above, elsewhere]);
            let last = knee.seen.len();
            result.courses = (0..last).map(|trial| course(1_000 * (last - trial) as u64)).collect();
        })]);
        assert!(
            page.markdown.contains("busiest thread of each at the knee: gateway 91 %, generator 55 % of its CPU"),
            "{}",
            page.markdown
        );
        for words in ["latency second by second", "measured from here", "gateway, thread 2: 40 %", "share of its CPU"] {
            assert!(page.html.contains(words), "{words}");
        }
        // Second 5 of the third from the end, and of the one behind it; second 6 drains.
        assert!(page.html.contains("at the knee, 45.9k/s: 5, 3") && page.html.contains("above, 48.2k/s: 5, 2"));
        assert!(!page.html.contains("/s: 6,") && !page.html.contains("1.0M/s:"));
    }

    fn not_clean() -> Verdict {
        let trial = Trial { intended: 1, window_s: 1.0, is_steady: true, backend: Backend::Real, ..Trial::default() };
        let verdict = weir_knee::judge(&trial, &Rules::default());
        assert!(matches!(verdict, Verdict::NotClean(_)), "{verdict}");
        verdict
    }

    fn course(p99_us: u64) -> Course {
        let second = |at: u64| CourseSecond {
            completed: 45_000 + at,
            failed: 0,
            p99_us: Some(p99_us),
            is_measured: (1..5).contains(&at),
        };
        Course {
            seconds: (0..6).map(second).collect(),
            busy: [("gateway".to_owned(), vec![0.91, 0.4]), ("generator".to_owned(), vec![0.55])].into(),
        }
    }

    /// The pages of a search and of a comparison, whole. `WEIR_BLESS=1` writes them again; read the difference.
    #[test]
    fn the_pages_are_as_committed() {
        let Rendered { markdown, html } =
            rendered(&[FOUND.to_owned(), include_str!("testdata/compared.json").to_owned()]);
        for (name, page) in [("report.md", markdown), ("report.html", html)] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testdata").join(name);
            if std::env::var_os("WEIR_BLESS").is_some() {
                std::fs::write(&path, &page).expect("written");
            }
            let committed = std::fs::read_to_string(&path).expect("the page is there");
            assert!(
                committed == page,
                "{name} is another page: run this test with WEIR_BLESS=1 and read the difference"
            );
        }
    }

    #[test]
    fn files_that_are_no_result_are_named() {
        let page = rendered(&[FOUND.to_owned(), "{\"schema\": \"other/1\"}".to_owned(), "no JSON".to_owned()]).markdown;
        assert!(
            page.contains("- 1.json: schema is \"other/1\"") && page.contains("- 2.json: no result of the lab"),
            "{page}"
        );
    }
}
