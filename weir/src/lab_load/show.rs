//! The output of a load: a line per second, a summary and a line of JSON per phase.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Write},
    path::Path,
};

use weir_load::{Second, Stage, StepRecord, recorder::Tail};

use super::summary::summary;

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
    let mut has_summary = true;
    if let Some(json) = json {
        json.write(record)?;
        has_summary = !json.is_stdout;
    }
    if has_summary {
        let is_ascii = !io::stdout().is_terminal();
        let summary = summary(phase, record, is_ascii).map_err(|error| error.to_string())?;
        // A closed pipe is how `head` says that it has seen enough.
        let _ = io::stdout().write_all(summary.as_bytes());
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
