//! Results of `weir lab load` as a chapter of the report: a row for each phase, and the latencies of each as a chart.

use weir_knee::cell;
use weir_knee::markdown::Table;
use weir_load::recorder::{Percentile, Summary, Tail};
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

/// All loads, in the order of their files and phases: open and closed loops apart, because their latencies do not compare.
pub(crate) fn chapter(loads: &[(String, StepRecord)]) -> Document {
    let mut page = Document::default();
    for (is_open, title) in [(true, "Loads, open loop"), (false, "Loads, closed loop")] {
        let loads: Vec<&(String, StepRecord)> =
            loads.iter().filter(|(_, record)| record.load.offered.is_some() == is_open).collect();
        if loads.is_empty() {
            continue;
        }
        page.add(Element::Heading(2, title.to_owned()));
        page.add(Element::Table(table(&loads, is_open)));
        for (name, record) in loads {
            let chart = histogram(name, record);
            if record.verdict.valid && !chart.is_empty() {
                page.add(Element::Chart(chart));
            }
        }
    }
    page
}

fn table(loads: &[&(String, StepRecord)], is_open: bool) -> Table {
    let has_events = loads.iter().any(|(_, record)| record.latency.first_event.is_some());
    let mut heads = vec!["load", "target"];
    heads.extend(is_open.then_some("offered/s"));
    heads.extend(["completed/s", "p50 ms", "p99 ms", "p99.9 ms"]);
    if has_events {
        heads.extend(["first event p50 ms", "first event p99 ms", "between events p50 ms", "between events p99 ms"]);
    }
    heads.extend(["errors", "refused", "skipped", "thresholds", "verdict", "file"]);
    let mut table = Table::new(&heads);
    for (name, record) in loads {
        let counts = &record.counts;
        let mut row = vec![title(record), record.identity.arm.clone()];
        row.extend(is_open.then(|| record.load.offered.map_or("-".to_owned(), cell::short)));
        // Figures of a run that does not count are none.
        let figure = |text: String| if record.verdict.valid { text } else { verdict(record) };
        row.extend([
            figure(cell::short(counts.completed as f64 / record.load.window_s)),
            figure(millis(Some(&record.latency.sojourn), Tail::P50)),
            figure(millis(Some(&record.latency.sojourn), Tail::P99)),
            figure(millis(Some(&record.latency.sojourn), Tail::P999)),
        ]);
        if has_events {
            for summary in [&record.latency.first_event, &record.latency.between_events] {
                row.extend([Tail::P50, Tail::P99].map(|tail| figure(millis(summary.as_ref(), tail))));
            }
        }
        row.extend([
            counts.errors.total().to_string(),
            counts.shed_total().to_string(),
            counts.skipped().to_string(),
            thresholds(&record.thresholds),
            verdict(record),
            name.clone(),
        ]);
        table.row(row);
    }
    table
}

/// `http1-128b, phase 1`.
fn title(record: &StepRecord) -> String {
    format!("{}, phase {}", record.identity.row, record.identity.step + 1)
}

/// `-`: nothing is streamed.
fn millis(summary: Option<&Summary>, tail: Tail) -> String {
    let Some(summary) = summary else { return "-".to_owned() };
    match Recorder::from_summary(summary).map(|all| all.percentile(tail)) {
        Ok(Percentile::Micros(micros)) => format!("{:.3}", micros as f64 / 1e3),
        Ok(few) => few.to_string(),
        Err(_) => "unreadable".to_owned(),
    }
}

/// `p99<5ms met, rate>1990 MISSED`.
fn thresholds(judged: &[Judged]) -> String {
    let one = |judged: &Judged| format!("{} {}", judged.threshold, judged.word());
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_load::{Integrity, Stamps, WindowResult, record};

    use super::*;

    /// A record of TCP as a file has it; counts and latencies come from [`loaded`].
    const RECORD: &str = r#"{"schema":"weir.lab.step/1","run_id":"r1","step":0,"repeat":0,"row":"tcp-127.0.0.1-7",
        "arm":"127.0.0.1:7","commit":null,"build":"0.1.0","seed":1,"started":"2026-01-02T03:04:05Z","host":{},
        "placement":{"pins":{}},"load":{"mode":"open","arrival":"poisson","offered":1000.0,"connections":4,"pipeline":1,
        "streams":null,"payload":"64B","window_s":2.0,"warmup_s":1.0,"late_limit_us":1000000},
        "counts":{"intended":0,"sent":0,"completed":0,"late":0,"skipped_backlog":0,"skipped_generator":0,"shed":{},
        "errors":{"transport":0,"protocol":0,"status":0,"timeout":0,"payload":0},
        "integrity":{"checked":0,"failed":0,"race_suspect":0}},
        "latency":{"sojourn":{"n":0,"hist":""},"service":{"n":0,"hist":""},"backlog":{"n":0,"hist":""},
        "generator_lag":{"n":0,"hist":""},"error_service":{"n":0,"hist":""}},
        "resources":{"parties":{}},"wire":{"tx_bytes":0,"rx_bytes":0},"verdict":{"valid":true,"evidence":{}}}"#;

    /// 2,000 requests that took from 100 us to 2.1 ms.
    fn loaded() -> StepRecord {
        let mut outcome = WindowResult::new(Duration::from_secs(1));
        for at in 0..2_000 {
            outcome.intended();
            outcome.sent();
            let stamps = Stamps { intended: 0, ready: 0, sent: 0, completed: 100_000 + at * 1_000 };
            outcome.completed(&stamps, Some(Integrity::Ok));
        }
        let mut record = StepRecord::from_line(RECORD).expect("a record");
        record.latency = record::Latency::of(&outcome.latencies);
        record.counts = outcome.counts;
        record
    }

    fn page(change: impl FnOnce(&mut StepRecord)) -> Document {
        let mut record = loaded();
        change(&mut record);
        chapter(&[("load.jsonl".to_owned(), record)])
    }

    fn charts(page: &Document) -> usize {
        page.elements().iter().filter(|element| matches!(element, Element::Chart(_))).count()
    }

    #[test]
    fn open_and_closed_loops_share_no_table() {
        let open = page(|_| {});
        let closed = page(|record| record.load.offered = None);
        let (one, other) = (open.markdown(), closed.markdown());
        assert!(one.contains("## Loads, open loop") && one.contains("offered/s") && one.contains("1.0k"), "{one}");
        assert!(other.contains("## Loads, closed loop") && !other.contains("offered/s"), "{other}");
        let mut other = loaded();
        other.load.offered = None;
        let both = chapter(&[("a".to_owned(), loaded()), ("b".to_owned(), other)]).markdown();
        assert_eq!(both.matches("## Loads, ").count(), 2, "{both}");
        assert_eq!((charts(&open), charts(&closed)), (1, 1));
    }

    #[test]
    fn streamed_replies_have_columns_for_their_events() {
        let plain = page(|_| {}).markdown();
        assert!(!plain.contains("first event"), "{plain}");
        let streamed = page(|record| {
            let mut outcome = WindowResult::new(Duration::from_secs(1));
            for _ in 0..1_000 {
                outcome.event(40_000_000, None);
                outcome.event(0, Some(2_000_000));
            }
            let latency = record::Latency::of(&outcome.latencies);
            (record.latency.first_event, record.latency.between_events) = (latency.first_event, latency.between_events);
        });
        let text = streamed.markdown();
        assert!(text.contains("first event p99 ms") && text.contains("between events p50 ms"), "{text}");
        assert!(text.contains("40.0") && text.contains("2.00"), "{text}");
    }

    #[test]
    fn an_invalid_run_shows_no_figure_and_no_chart() {
        let page = page(|record| {
            record.verdict.valid = false;
            record.verdict.invalid_reason = Some("generator-lag".to_owned());
        });
        let text = page.markdown();
        // Completed, three percentiles, and the verdict.
        assert_eq!(text.matches("invalid: generator-lag").count(), 5, "{text}");
        assert_eq!(charts(&page), 0);
    }
}
