//! The table at the end of a test run, and the closing line that scripts read.

use std::time::Duration;

use crate::lane::LaneResult;
use crate::plan::Form;
use crate::totals::Totals;

/// Prints what failing lanes said, the form of the run, the table, the problems and the closing line; true if every lane held.
pub fn print(outcomes: &[LaneResult], form: &str, total: Duration) -> bool {
    for outcome in outcomes.iter().filter(|outcome| !outcome.report.evidence.is_empty()) {
        println!("\n━━ the failure of {} ━━", outcome.name);
        for line in &outcome.report.evidence {
            println!("{line}");
        }
    }
    println!("\n{form}\n{}", table(outcomes, total));
    // After the table: a record that keeps only the last lines of a run still names the failed tests.
    let problems: Vec<&String> = outcomes.iter().flat_map(|outcome| &outcome.report.problems).collect();
    if !problems.is_empty() {
        println!("Problems:");
        for problem in &problems {
            println!("  {problem}");
        }
        println!();
    }
    println!("{}", closing_line(outcomes));
    problems.is_empty()
}

/// One row per lane.
fn table(outcomes: &[LaneResult], total: Duration) -> String {
    let mut text = format!(
        "{:<20} {:<5} {:<7} {:>7} {:>7} {:>8} {:>9}  {}\n",
        "lane", "form", "result", "passed", "failed", "ignored", "time", "why"
    );
    let mut sum = Totals::default();
    for outcome in outcomes {
        let counts = outcome.report.totals;
        sum.add(counts);
        let result = match (outcome.form, outcome.held()) {
            (Form::Out, _) => "-",
            (_, true) => "ok",
            (_, false) => "FAILED",
        };
        let note = outcome.report.note;
        let why = if note.is_empty() { outcome.why.clone() } else { format!("{}; {note}", outcome.why) };
        text += &row([outcome.name, outcome.form.word(), result, &why], counts, outcome.elapsed);
    }
    let result = if outcomes.iter().all(LaneResult::held) { "ok" } else { "FAILED" };
    text + &row(["all, with set-up", "", result, ""], sum, total)
}

fn row([name, form, result, why]: [&str; 4], counts: Totals, elapsed: Duration) -> String {
    let text = format!(
        "{name:<20} {form:<5} {result:<7} {:>7} {:>7} {:>8} {:>7.1} s  {why}",
        counts.passed,
        counts.failed,
        counts.ignored,
        elapsed.as_secs_f64()
    );
    text.trim_end().to_owned() + "\n"
}

/// `N passed, N failed` over all lanes. A lane that failed without a counted test adds one failure,
/// so that the line can never read as a success when the exit status is not one.
fn closing_line(outcomes: &[LaneResult]) -> String {
    let passed: u64 = outcomes.iter().map(|outcome| outcome.report.totals.passed).sum();
    let failed: u64 = outcomes.iter().map(LaneResult::failures).sum();
    format!("{passed} passed, {failed} failed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Report;

    fn outcome(passed: u64, failed: u64, problems: Vec<String>) -> LaneResult {
        let totals = Totals { passed, failed, ignored: 0 };
        LaneResult {
            name: "unit",
            form: Form::Full,
            why: "always".into(),
            report: Report { totals, problems, ..Report::default() },
            elapsed: Duration::from_secs(1),
        }
    }

    #[test]
    fn closing_line_sums_lanes_and_counts_a_broken_lane() {
        let outcomes = [
            outcome(10, 0, vec![]),
            outcome(4, 2, vec!["e2e: 2 failed".into()]),
            outcome(0, 0, vec!["fmt: differs".into()]),
        ];
        assert_eq!(closing_line(&outcomes), "14 passed, 3 failed");
        assert!(table(&outcomes, Duration::ZERO).contains("FAILED"));
    }
}
