//! The comparison of a usage log with the ledger of the origin, line by line, and with the budgets.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use serde_json::Value;
use weir_spend::{
    journal::{Journal, JournalSettings},
    usage::{LogSum, reconcile},
};

use super::mix::TOKENS_MAX;

/// The most output that an estimate of these requests can have: their reservation, or the bytes of a whole response.
const OUTPUT_MAX: u64 = 2 * TOKENS_MAX;

/// Sums of a comparison.
#[derive(Debug, Default)]
pub struct Books {
    pub lines: usize,
    /// Lines that say what the origin has billed.
    pub exact: usize,
    /// Lines of requests under way when the gateway was killed.
    pub crashed: usize,
    /// By flags: lines, tokens that were charged, and tokens that the origin has billed.
    rows: BTreeMap<String, (usize, u64, u64)>,
}

/// A line of the usage log.
struct Line<'a> {
    value: &'a Value,
    flags: Vec<&'a str>,
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} is a number: {value}"))
}

fn total(entry: &Value) -> u64 {
    number(entry, "prompt") + number(entry, "completion")
}

impl Books {
    /// Compares each line with the entries of its request.
    ///
    /// # Panics
    /// If they differ, and no flag says so.
    pub fn compare(entries: &[Value], lines: &[Value]) -> Self {
        let mut of_request: HashMap<&str, Vec<&Value>> = HashMap::new();
        for entry in entries {
            of_request.entry(entry["request"].as_str().expect("an id of the gateway")).or_default().push(entry);
        }
        let mut books = Self { lines: lines.len(), ..Self::default() };
        for value in lines {
            let id = value["request"].as_str().expect("an id");
            // `compare_budgets` looks for a second line of a request.
            let billed = of_request.remove(id).unwrap_or_default();
            let flags = value["flags"].as_array().expect("flags").iter().filter_map(Value::as_str).collect();
            let line = Line { value, flags };
            line.check(&billed);
            books.exact += usize::from(line.is_exact() && !billed.is_empty());
            books.crashed += usize::from(line.has("crash"));
            let row = books.rows.entry(line.flags.join(",")).or_default();
            let sum: u64 = billed.iter().map(|entry| total(entry)).sum();
            *row = (row.0 + 1, row.1 + number(value, "charged_tokens"), row.2 + sum);
        }
        assert!(of_request.is_empty(), "requests without a line: {of_request:?}");
        books
    }

    /// The budgets that a next process would begin with are the sum of the log, each request once.
    ///
    /// # Panics
    /// If they differ.
    pub fn compare_budgets(&self, state: &Path) {
        let mut log = LogSum::default();
        log.add(&std::fs::read_to_string(state.join("usage.log")).expect("a log"));
        assert_eq!((log.unreadable, log.duplicates().count(), log.requests()), (0, 0, self.lines));
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
        let (_journal, recovery) = Journal::open(JournalSettings::new(state.join("journal")), now).expect("a journal");
        assert_eq!(recovery.crashed, 0, "everything was settled at the end");
        assert_eq!(log.accounts().count(), 1);
        assert_eq!(reconcile(&log, |id| recovery.ledger.account(id).position().settled), []);
    }
}

impl Line<'_> {
    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// It claims to be what the provider has billed.
    fn is_exact(&self) -> bool {
        self.flags.iter().all(|flag| *flag == "retried")
    }

    fn number(&self, name: &str) -> u64 {
        number(self.value, name)
    }

    /// Checks the line against the entries of its request, in the order in which they came.
    fn check(&self, billed: &[&Value]) {
        let (line, charged) = (self.value, self.number("charged_tokens"));
        if self.has("crash") {
            let sum: u64 = billed.iter().map(|entry| total(entry)).sum();
            return assert!(charged >= sum, "less than was billed: {line}\n{billed:?}");
        }
        let (input, output) = (self.number("input_tokens"), self.number("output_tokens"));
        assert_eq!((charged, self.number("cost_micro")), (input + output, input + 2 * output), "{line}");
        assert!(billed.len() as u64 <= self.number("tries"), "{line}\n{billed:?}");
        let Some((last, before)) = billed.split_last() else {
            return assert!(charged == 0 || self.has("partial"), "the origin has not seen it: {line}");
        };
        if self.is_exact() {
            let same = |one: &str, other: &str| assert_eq!(line[one], last[other], "{one}: {line}\n{billed:?}");
            same("input_tokens", "prompt");
            same("output_tokens", "completion");
            same("cached_input_tokens", "cached");
            let is_free = |entry: &&Value| total(entry) == 0;
            assert!(before.iter().all(is_free) || self.has("retried"), "{line}\n{billed:?}");
            return;
        }
        self.check_estimate(last);
    }

    /// Bounds of a line that says that it is not exact.
    fn check_estimate(&self, last: &Value) {
        let (line, input, output) = (self.value, self.number("input_tokens"), self.number("output_tokens"));
        let (prompt, completion) = (number(last, "prompt"), number(last, "completion"));
        let fate = line["user"].as_str().expect("a user").split('-').next().expect("a fate");
        assert!(self.has("estimated") || self.has("partial") || self.has("implausible"), "{line}\n{last}");
        assert!(output <= OUTPUT_MAX, "{line}\n{last}");
        if number(last, "status") != 200 || prompt == 0 {
            return;
        }
        // Each dialect writes the same prompt in its own words.
        assert!(input >= prompt / 3 && input <= 2 * prompt, "{line}\n{last}");
        if fate == "reasoning" && self.has("partial") {
            assert!(output >= completion, "hidden reasoning is not free: {line}\n{last}");
        }
        if fate == "unreported" && !self.has("partial") {
            // The origin counts four bytes as a token. Its words are hexadecimal, and an estimate by classes of characters has up to four
            // times as many.
            let seen = completion - number(last, "reasoning");
            assert!(output >= seen / 2 && (output <= 4 * seen + 4 || last["stream"] != true), "{line}\n{last}");
        }
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} lines, {} exact, {} of the kill", self.lines, self.exact, self.crashed)?;
        writeln!(f, "{:32} {:>7} {:>12} {:>12}", "flags", "lines", "charged", "billed")?;
        for (flags, (lines, charged, billed)) in &self.rows {
            let flags = if flags.is_empty() { "none" } else { flags };
            writeln!(f, "{flags:32} {lines:>7} {charged:>12} {billed:>12}")?;
        }
        Ok(())
    }
}
