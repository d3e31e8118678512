//! Which lines of a failed program's output are shown once more at the end of the whole run, where one looks first.

use std::collections::VecDeque;

use crate::totals::Runner;

/// Lines of one test binary's report of failures; the message of an assertion stands in its first lines.
const BLOCK_LINES_MAX: usize = 60;
/// Lines of all blocks.
const ALL_LINES_MAX: usize = 200;
/// Last lines, for a program that prints no report of failures.
const TAIL_LINES: usize = 40;

/// Collects while a program runs.
pub struct Evidence {
    runner: Runner,
    blocks: Vec<String>,
    /// Lines in the open block; `None`: outside of a block.
    open: Option<usize>,
    tail: VecDeque<String>,
}

impl Evidence {
    /// Nothing seen yet.
    pub fn new(runner: Runner) -> Self {
        Self { runner, blocks: Vec::new(), open: None, tail: VecDeque::with_capacity(TAIL_LINES) }
    }

    /// Takes the next line.
    pub fn see(&mut self, line: &str) {
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_owned());
        if self.runner != Runner::Cargo {
            return;
        }
        // libtest: `failures:`, the output of each failed test, `failures:`, their names, `test result: FAILED`.
        match (&mut self.open, line) {
            (open, "failures:") => {
                open.get_or_insert(0);
            }
            (open, line) if line.starts_with("test result: ") => *open = None,
            (Some(seen), line) => {
                *seen += 1;
                let is_name = line.starts_with("---- ");
                if (*seen <= BLOCK_LINES_MAX || is_name) && self.blocks.len() < ALL_LINES_MAX {
                    self.blocks.push(line.to_owned());
                }
            }
            (None, _) => {}
        }
    }

    /// The lines to print.
    pub fn lines(self) -> Vec<String> {
        if self.blocks.is_empty() { self.tail.into() } else { self.blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(runner: Runner, lines: &[String]) -> Vec<String> {
        let mut evidence = Evidence::new(runner);
        for line in lines {
            evidence.see(line);
        }
        evidence.lines()
    }

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn of_libtest_the_report_of_failures_is_kept() {
        let text = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nleft: 1\n\nfailures:\n    b\n\
                    test result: FAILED. 1 passed; 1 failed\nother";
        assert_eq!(evidence(Runner::Cargo, &lines(text)), ["", "---- b stdout ----", "left: 1", "", "    b"]);
    }

    #[test]
    fn a_long_report_keeps_its_beginning_and_the_names() {
        let mut text = lines("failures:\n---- a stdout ----");
        text.extend((0..500).map(|n| format!("line {n}")));
        text.push("---- b stdout ----".into());
        let kept = evidence(Runner::Cargo, &text);
        assert_eq!(kept.len(), BLOCK_LINES_MAX + 1);
        assert_eq!((kept[1].as_str(), kept.last().map(String::as_str)), ("line 0", Some("---- b stdout ----")));
    }

    #[test]
    fn without_a_report_the_last_lines_are_kept() {
        let text: Vec<String> = (0..500).map(|n| format!("line {n}")).collect();
        for runner in [Runner::Cargo, Runner::Pytest] {
            let kept = evidence(runner, &text);
            assert_eq!((kept.len(), kept[0].as_str()), (TAIL_LINES, "line 460"));
        }
    }
}
