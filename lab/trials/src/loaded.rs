//! Results of `weir lab load` as a chapter of the report: a row for each phase, and the latencies of each as a chart.

use weir_knee::cell;
use weir_knee::markdown::Table;
use weir_load::recorder::{Percentile, Tail};
use weir_load::threshold::Judged;
use weir_load::{Recorder, StepRecord};

use crate::chart::{Bar, Bars, Chart};
use crate::document::{Document, Element};
use crate::file::FileError;

/// Bars of a histogram.
const ROWS: u32 = 10;

/// Reads the records of a file: a line each, as `weir lab load --json` writes them.
///
/// # Errors
/// A line that is no record, or the record of a part, whose figures are not those of a run.
pub(crate) fn read(text: &str) -> Result<Vec<StepRecord>, FileError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let records = lines.map(|(at, line)| {
        let record =
            StepRecord::from_line(line).map_err(|error| FileError::Line { line: at + 1, why: error.to_string() })?;
        match record.part {
            None => Ok(record),
            Some(_) => {
                let why = "a part of a run; `weir lab merge` makes one record of all parts".to_owned();
                Err(FileError::Line { line: at + 1, why })
            }
        }
    });
    records.collect()
}

/// All loads, in the order of their files and phases.
pub(crate) fn chapter(loads: &[(String, StepRecord)]) -> Document {
    let mut page = Document::default();
    if loads.is_empty() {
        return page;
    }
    page.add(Element::Heading(2, "Loads".to_owned()));
    page.add(Element::Table(table(loads)));
    for (name, record) in loads {
        let chart = histogram(name, record);
        if !chart.is_empty() {
            page.add(Element::Chart(chart));
        }
    }
    page
}

fn table(loads: &[(String, StepRecord)]) -> Table {
    let mut table = Table::new(&[
        "load",
        "target",
        "mode",
        "offered/s",
        "completed/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "errors",
        "refused",
        "skipped",
        "thresholds",
        "verdict",
        "file",
    ]);
    for (name, record) in loads {
        let counts = &record.counts;
        table.row(vec![
            title(record),
            record.identity.arm.clone(),
            record.load.mode.clone(),
            record.load.offered.map_or("-".to_owned(), cell::short),
            cell::short(counts.completed as f64 / record.load.window_s),
            millis(record, Tail::P50),
            millis(record, Tail::P99),
            millis(record, Tail::P999),
            counts.errors.total().to_string(),
            counts.shed_total().to_string(),
            counts.skipped().to_string(),
            thresholds(&record.thresholds),
            verdict(record),
            name.clone(),
        ]);
    }
    table
}

/// `http1-128b, phase 1`.
fn title(record: &StepRecord) -> String {
    format!("{}, phase {}", record.identity.row, record.identity.step + 1)
}

fn millis(record: &StepRecord, tail: Tail) -> String {
    let percentile = Recorder::from_summary(&record.latency.sojourn).map(|all| all.percentile(tail));
    match percentile {
        Ok(Percentile::Micros(micros)) => format!("{:.3}", micros as f64 / 1e3),
        Ok(few) => few.to_string(),
        Err(_) => "unreadable".to_owned(),
    }
}

/// `p99<5ms met, rate>1990 MISSED`.
fn thresholds(judged: &[Judged]) -> String {
    let one = |judged: &Judged| {
        let word = match judged.is_met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "unknown",
        };
        format!("{} {word}", judged.threshold)
    };
    if judged.is_empty() { "-".to_owned() } else { judged.iter().map(one).collect::<Vec<_>>().join(", ") }
}

fn verdict(record: &StepRecord) -> String {
    match (&record.verdict.invalid_reason, &record.verdict.not_clean_reason) {
        (Some(reason), _) => format!("invalid: {reason}"),
        (None, Some(reason)) => format!("not clean: {reason}"),
        (None, None) => "clean".to_owned(),
    }
}

fn histogram(name: &str, record: &StepRecord) -> Chart {
    let lines = Recorder::from_summary(&record.latency.sojourn).map_or(Vec::new(), |all| {
        let bar = |bucket: weir_load::buckets::Bucket| Bar {
            label: format!("up to {}", Percentile::Micros(bucket.micros_max)),
            share: bucket.count as f64 / all.n() as f64,
            kind: 0,
        };
        all.buckets(ROWS).into_iter().map(bar).collect()
    });
    Chart::Bars(Bars { title: format!("{} ({name}): share of the requests by latency", title(record)), lines })
}
