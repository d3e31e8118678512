//! What a load shows: a line per second, a table and a line of JSON per phase.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use weir_load::{
    Recorder, Second, Stage, StepRecord,
    recorder::{HistogramError, Summary, Tail},
};

/// Where records go.
pub struct JsonLines {
    out: Box<dyn Write>,
    is_stdout: bool,
}

impl JsonLines {
    /// Before any load, so that no result is lost for want of a place.
    pub fn create(path: &Path) -> Result<Self, String> {
        if path == Path::new("-") {
            return Ok(Self { out: Box::new(io::stdout()), is_stdout: true });
        }
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { out: Box::new(file), is_stdout: false })
    }

    fn write(&mut self, record: &StepRecord) -> Result<(), String> {
        let line = record.to_line().map_err(|error| error.to_string())?;
        writeln!(self.out, "{line}").and_then(|()| self.out.flush()).map_err(|error| format!("--json: {error}"))
    }
}

/// Writes the result of a phase, for people and to `json`.
pub fn show(phase: &str, record: &StepRecord, json: Option<&mut JsonLines>) -> Result<(), String> {
    let mut has_table = true;
    if let Some(json) = json {
        json.write(record)?;
        has_table = !json.is_stdout;
    }
    if has_table {
        let table = table(phase, record).map_err(|error| error.to_string())?;
        // A closed pipe is how `head` says that it has seen enough.
        let _ = io::stdout().write_all(table.as_bytes());
    }
    Ok(())
}

/// One second, for people.
pub fn line(second: &Second) -> String {
    let Second { phase, stage, slice, left, .. } = second;
    let (p50, p99, lag_p99) = (second.sojourn(Tail::P50), second.sojourn(Tail::P99), second.lag_p99());
    let (completed, failed) = (slice.completed, slice.failed);
    let stage = match stage {
        Stage::Warmup => "warm-up, ",
        Stage::Window => "",
        Stage::Drain => "draining, ",
    };
    let left = left.as_secs();
    format!("{phase}: {stage}{left} s left  {completed}/s  p50 {p50}  p99 {p99}  lag p99 {lag_p99}  failed {failed}")
}

/// The result of a phase, for people.
pub fn table(phase: &str, record: &StepRecord) -> Result<String, HistogramError> {
    let StepRecord { counts, load, latency, resources, verdict, .. } = record;
    let percentile =
        |summary: &Summary, tail| Recorder::from_summary(summary).map(|all| all.percentile(tail).to_string());
    let per_second = |count: u64| format!("{:.0}/s", count as f64 / load.window_s);
    let errors = &counts.errors;
    let shed = match counts.shed.is_empty() {
        true => "0".to_owned(),
        false => {
            let reasons: Vec<String> = counts.shed.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
            format!("{} ({})", counts.shed_total(), reasons.join(", "))
        }
    };
    let generator = resources.parties.get("generator");
    let cpu = generator.and_then(|party| party.cpu_us_per_req);
    let worth = match (&verdict.invalid_reason, &verdict.not_clean_reason) {
        (Some(reason), _) => format!("INVALID: {reason}"),
        (None, Some(reason)) => format!("not clean: {reason}"),
        (None, None) => "clean".to_owned(),
    };
    let rows = [
        ("verdict", worth),
        ("offered", load.offered.map_or("as fast as it answers".to_owned(), |rate| format!("{rate}/s"))),
        ("sent", format!("{} ({})", counts.sent, per_second(counts.sent))),
        ("completed", format!("{} ({})", counts.completed, per_second(counts.completed))),
        ("late", counts.late.to_string()),
        ("skipped", format!("{} backlog, {} generator", counts.skipped_backlog, counts.skipped_generator)),
        ("shed", shed),
        (
            "errors",
            format!(
                "{} connection, {} protocol, {} status, {} timeout, {} integrity",
                errors.transport, errors.protocol, errors.status, errors.timeout, errors.payload
            ),
        ),
        ("checked", format!("{} ({} race-suspect)", counts.integrity.checked, counts.integrity.race_suspect)),
        ("sojourn p50", percentile(&latency.sojourn, Tail::P50)?),
        ("sojourn p99", percentile(&latency.sojourn, Tail::P99)?),
        ("sojourn p99.9", percentile(&latency.sojourn, Tail::P999)?),
        ("service p99", percentile(&latency.service, Tail::P99)?),
        ("lag p99", percentile(&latency.generator_lag, Tail::P99)?),
        ("generator CPU", cpu.map_or("n/a".to_owned(), |micros| format!("{micros:.2} us per request"))),
    ];
    let mut text = format!("{} / {phase}: {} loop, {:.1} s\n", record.identity.row, load.mode, load.window_s);
    for (name, value) in rows {
        text.push_str(&format!("  {name:<14} {value}\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use weir_load::{run::Slice, scenario};

    use super::*;

    #[test]
    fn a_second_names_its_stage_and_the_time_left() {
        let source = "name = \"s\"\nprotocol = \"redis\"\ncommand = [{ name = \"GET\" }]\n\
                      phase = [{ name = \"low\", rate = 10, warmup = \"2s\", duration = \"6s\" }]\n";
        let scenario = scenario::parse("s.toml", source).expect("a right scenario");
        let mut slice = Slice { completed: 2_000, failed: 3, ..Slice::default() };
        (0..2_000).for_each(|_| slice.sojourn.record_nanos(70_000));
        (0..5).for_each(|_| slice.generator_lag.record_nanos(1_000));
        let second = Second::new(&scenario.phases[0], 1, slice);
        let expected = "low: warm-up, 7 s left  2000/s  p50 70 us  p99 70 us  lag p99 n/a (n = 5)  failed 3";
        assert_eq!(line(&second), expected);
    }
}
