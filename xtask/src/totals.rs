//! Counts tests from what the test runners print. Nothing here guesses: a lane whose runner printed
//! no summary line counts nothing, and a lane that must run tests then fails (see `lane.rs`).

/// Counts reported by one or more test runners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Tests that ran and held.
    pub passed: u64,
    /// Tests that ran and did not hold, errors of collection included.
    pub failed: u64,
    /// Tests that the runner left out.
    pub ignored: u64,
}

impl Totals {
    /// Adds another report.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// Whose output is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// `cargo test`: one `test result:` line per test binary.
    Cargo,
    /// pytest: the closing line between `=` signs, or bare with `-q`.
    Pytest,
    /// `go test -v`: one `--- PASS:` line per test and sub-test.
    Go,
    /// `node --test --test-reporter=tap`: `# pass N` and its companions.
    Node,
    /// Maven surefire: the closing `Tests run:` line (the per-class ones carry a time).
    Maven,
    /// `suite` of `weir-tests`: one `suite result:` line.
    Suite,
    /// libFuzzer with `-print_final_stats=1`: an input that it tried and that held counts as a test.
    LibFuzzer,
    /// Not a test runner; nothing is counted.
    None,
}

/// Counts in one line of output.
pub fn count_line(runner: Runner, line: &str) -> Totals {
    let line = line.trim();
    match runner {
        Runner::Cargo => cargo(line),
        Runner::Pytest => pytest(line),
        Runner::Go => go(line),
        Runner::Node => node(line),
        Runner::Maven => maven(line),
        Runner::Suite => suite(line),
        Runner::LibFuzzer => lib_fuzzer(line),
        Runner::None => Totals::default(),
    }
}

/// The name of a failed test in one line of output, if the runner names it there.
pub fn failed_test(runner: Runner, line: &str) -> Option<&str> {
    let line = line.trim();
    match runner {
        // `test a::b ... FAILED`
        Runner::Cargo => line.strip_prefix("test ")?.strip_suffix(" ... FAILED"),
        // `FAILED checks/test_keys.py::test_scan - AssertionError: ...`, of the short summary
        Runner::Pytest => line.strip_prefix("FAILED ")?.split(" - ").next(),
        Runner::Go => line.strip_prefix("--- FAIL: ")?.split(" (").next(),
        Runner::Node => line.strip_prefix("not ok ")?.split_once(" - ").map(|(_, name)| name),
        Runner::Suite => line.strip_prefix("suite failed: "),
        Runner::Maven | Runner::LibFuzzer | Runner::None => None,
    }
}

fn lib_fuzzer(line: &str) -> Totals {
    let count = line.strip_prefix("stat::number_of_executed_units:").and_then(|count| count.trim().parse().ok());
    Totals { passed: count.unwrap_or(0), ..Totals::default() }
}

fn cargo(line: &str) -> Totals {
    let Some(rest) = line.strip_prefix("test result: ") else {
        return Totals::default();
    };
    // `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s`
    Totals {
        passed: number_before(rest, " passed"),
        failed: number_before(rest, " failed"),
        ignored: number_before(rest, " ignored"),
    }
}

fn pytest(line: &str) -> Totals {
    // `== 1 failed, 12 passed, 2 skipped in 0.31s ==`; only the closing line has both parts.
    let text = line.trim_matches('=').trim();
    let is_closing = text.contains(" in ") && text.ends_with('s') || text.ends_with(')');
    let starts_with_number = text.starts_with(|c: char| c.is_ascii_digit());
    if !is_closing || !starts_with_number {
        return Totals::default();
    }
    Totals {
        passed: number_before(text, " passed") + number_before(text, " xpassed"),
        failed: number_before(text, " failed") + number_before(text, " error"),
        ignored: number_before(text, " skipped") + number_before(text, " xfailed"),
    }
}

fn go(line: &str) -> Totals {
    let one = |prefix: &str| u64::from(line.starts_with(prefix));
    Totals {
        passed: one("--- PASS: "),
        // A package that does not build, or a test binary that dies, prints no `--- FAIL:`.
        failed: one("--- FAIL: ") + u64::from(line.ends_with("[build failed]")),
        ignored: one("--- SKIP: "),
    }
}

fn node(line: &str) -> Totals {
    let number = |prefix: &str| line.strip_prefix(prefix).and_then(|n| n.trim().parse().ok()).unwrap_or(0);
    Totals {
        passed: number("# pass "),
        failed: number("# fail ") + number("# cancelled "),
        ignored: number("# skipped ") + number("# todo "),
    }
}

fn maven(line: &str) -> Totals {
    // `[INFO] Tests run: 9, Failures: 0, Errors: 0, Skipped: 0`, also with [WARNING] or [ERROR].
    let Some((_, rest)) = line.split_once("Tests run: ") else {
        return Totals::default();
    };
    if rest.contains("Time elapsed") {
        return Totals::default();
    }
    let field = |name: &str| {
        rest.split(", ")
            .find_map(|part| part.strip_prefix(name))
            .and_then(|n| n.trim().parse::<u64>().ok())
            .unwrap_or(0)
    };
    let run: u64 = rest.split(',').next().and_then(|n| n.trim().parse().ok()).unwrap_or(0);
    let failed = field("Failures: ") + field("Errors: ");
    let ignored = field("Skipped: ");
    Totals { passed: run.saturating_sub(failed + ignored), failed, ignored }
}

fn suite(line: &str) -> Totals {
    let Some(rest) = line.strip_prefix("suite result: ") else {
        return Totals::default();
    };
    // `1200 passed; 0 failed; 61 listed`
    Totals {
        passed: number_before(rest, " passed"),
        failed: number_before(rest, " failed"),
        ignored: number_before(rest, " listed"),
    }
}

/// The number that stands right before `word`; 0 if the word is absent.
fn number_before(text: &str, word: &str) -> u64 {
    let mut from = 0;
    while let Some(at) = text[from..].find(word) {
        let end = from + at;
        let digits = text[..end].bytes().rev().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            return text[end - digits..end].parse().unwrap_or(0);
        }
        from = end + word.len();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(passed: u64, failed: u64, ignored: u64) -> Totals {
        Totals { passed, failed, ignored }
    }

    #[test]
    fn cargo_summary_line_is_counted_and_other_lines_are_not() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.02s";
        assert_eq!(count_line(Runner::Cargo, line), totals(12, 3, 1));
        assert_eq!(count_line(Runner::Cargo, "test a::b ... ok"), Totals::default());
        assert_eq!(count_line(Runner::Cargo, "error: test failed, to rerun pass `--lib`"), Totals::default());
    }

    #[test]
    fn pytest_closing_line_is_counted_in_both_forms() {
        let framed = "=================== 2 failed, 40 passed, 1 skipped, 1 error in 3.41s ===================";
        assert_eq!(count_line(Runner::Pytest, framed), totals(40, 3, 1));
        assert_eq!(count_line(Runner::Pytest, "40 passed in 0.10s"), totals(40, 0, 0));
        let long = "=== 7 passed in 75.02s (0:01:15) ===";
        assert_eq!(count_line(Runner::Pytest, long), totals(7, 0, 0));
        assert_eq!(count_line(Runner::Pytest, "collected 40 items"), Totals::default());
        assert_eq!(count_line(Runner::Pytest, "=== short test summary info ==="), Totals::default());
    }

    #[test]
    fn go_counts_tests_and_sub_tests() {
        assert_eq!(count_line(Runner::Go, "    --- PASS: TestScan/weir (0.01s)"), totals(1, 0, 0));
        assert_eq!(count_line(Runner::Go, "--- FAIL: TestScan (0.01s)"), totals(0, 1, 0));
        assert_eq!(count_line(Runner::Go, "FAIL\tweir.example/clients [build failed]"), totals(0, 1, 0));
        assert_eq!(count_line(Runner::Go, "PASS"), Totals::default());
    }

    #[test]
    fn node_tap_lines_are_counted() {
        assert_eq!(count_line(Runner::Node, "# pass 31"), totals(31, 0, 0));
        assert_eq!(count_line(Runner::Node, "# fail 2"), totals(0, 2, 0));
        assert_eq!(count_line(Runner::Node, "# cancelled 1"), totals(0, 1, 0));
        assert_eq!(count_line(Runner::Node, "# tests 33"), Totals::default());
    }

    #[test]
    fn maven_closing_line_is_counted_once() {
        let class = "[INFO] Tests run: 9, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.4 s -- in X";
        assert_eq!(count_line(Runner::Maven, class), Totals::default());
        let closing = "[ERROR] Tests run: 9, Failures: 1, Errors: 1, Skipped: 2";
        assert_eq!(count_line(Runner::Maven, closing), totals(5, 2, 2));
    }

    #[test]
    fn the_result_line_of_a_suite_is_counted() {
        assert_eq!(count_line(Runner::Suite, "suite result: 1200 passed; 1 failed; 61 listed"), totals(1200, 1, 61));
        assert_eq!(count_line(Runner::Suite, "suite redis:    12 left out by name"), Totals::default());
    }

    #[test]
    fn the_name_of_a_failed_test_is_read_from_each_runner() {
        let cases = [
            (Runner::Cargo, "test a::b ... FAILED", Some("a::b")),
            (Runner::Cargo, "test a::b ... ok", None),
            (Runner::Cargo, "test result: FAILED. 1 passed; 1 failed", None),
            (
                Runner::Pytest,
                "FAILED checks/test_keys.py::test_scan - assert 1 == 2",
                Some("checks/test_keys.py::test_scan"),
            ),
            (Runner::Go, "    --- FAIL: TestScan/weir (0.01s)", Some("TestScan/weir")),
            (Runner::Suite, "suite failed: unit/scan: SCAN COUNT", Some("unit/scan: SCAN COUNT")),
            (Runner::Suite, "suite redis:    12 left out by name", None),
            (Runner::Node, "not ok 3 - scan returns each key", Some("scan returns each key")),
        ];
        for (runner, line, name) in cases {
            assert_eq!(failed_test(runner, line), name, "{line}");
        }
    }
}
