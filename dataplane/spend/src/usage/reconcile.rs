//! The sum of a usage log against the budgets.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::{
    amount::Amount,
    budget::{AccountId, AccountKind, Day, Month, Totals},
};

/// The sum of a log by account.
#[derive(Clone, Debug, Default)]
pub struct LogSum {
    accounts: BTreeMap<(AccountKind, String), Days>,
    requests: HashMap<String, u32>,
    /// Lines that could not be read.
    pub unreadable: u64,
}

type Days = BTreeMap<Day, Amount>;

/// An account whose budgets and log differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Whose.
    pub kind: AccountKind,
    /// Its name.
    pub name: String,
    /// Settled according to the budgets.
    pub settled: Totals,
    /// The same windows according to the log.
    pub logged: Totals,
}

impl LogSum {
    /// Adds the lines of a file. Several files of a log may come in any order.
    pub fn add(&mut self, lines: &str) {
        for line in lines.lines() {
            if self.add_line(line).is_none() {
                self.unreadable += 1;
            }
        }
    }

    fn add_line(&mut self, line: &str) -> Option<()> {
        let value: Value = serde_json::from_str(line).ok()?;
        let number = |name: &str| value.get(name)?.as_u64();
        let day = Day::new(u32::try_from(number("day")?).ok()?);
        let amount = Amount { tokens: number("charged_tokens")?, money: number("cost_micro")? };
        let request = value.get("request")?.as_str()?.to_owned();
        for (kind, name) in [(AccountKind::Key, "key"), (AccountKind::Team, "team")] {
            if let Some(name) = value.get(name).and_then(Value::as_str) {
                let sum = self.accounts.entry((kind, name.to_owned())).or_default().entry(day).or_default();
                *sum = sum.plus(amount);
            }
        }
        *self.requests.entry(request).or_default() += 1;
        Some(())
    }

    /// Requests.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Requests with more than one line.
    pub fn duplicates(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().filter(|(_, lines)| **lines > 1).map(|(request, _)| request.as_str())
    }

    /// Names of keys and teams in the log.
    pub fn accounts(&self) -> impl Iterator<Item = (AccountKind, &str)> {
        self.accounts.keys().map(|(kind, name)| (*kind, name.as_str()))
    }

    /// The amounts of an account in the day and month according to the log.
    pub fn used(&self, kind: AccountKind, name: &str, day: Day, month: Month) -> (Amount, Amount) {
        let empty = Days::new();
        let days = self.accounts.get(&(kind, name.to_owned())).unwrap_or(&empty);
        let in_month = days.iter().filter(|(day, _)| day.month() == month).map(|(_, amount)| *amount);
        (days.get(&day).copied().unwrap_or_default(), in_month.fold(Amount::ZERO, Amount::plus))
    }
}

/// Compares the sum of a log with the budgets, as `settled` knows them: each account whose present windows differ.
///
/// Nothing may be in flight, the log must have all files of the month, and [`Journal::flush`](crate::journal::Journal::flush)
/// must have been called.
pub fn reconcile(log: &LogSum, settled: impl Fn(AccountId) -> Totals) -> Vec<Difference> {
    let compare = |(kind, name): (AccountKind, &str)| {
        let totals = settled(AccountId::new(kind, name));
        let (in_day, in_month) = log.used(kind, name, totals.day, totals.month);
        let logged = Totals { in_day, in_month, ..totals };
        (logged != totals).then(|| Difference { kind, name: name.to_owned(), settled: totals, logged })
    };
    log.accounts().filter_map(compare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::UsageRecord;

    fn line(request: &str, day: u32, tokens: u64, into: &mut Vec<u8>) {
        UsageRecord {
            request,
            day: Day::new(day),
            key: Some("k"),
            team: Some("t"),
            charged: Amount { tokens, money: tokens * 2 },
            ..UsageRecord::default()
        }
        .write(into);
    }

    #[test]
    fn sums_of_the_log_equal_the_budgets_or_the_difference_is_named() {
        let mut bytes = Vec::new();
        // 2026-01-30, -31, 02-01.
        [(20_483, 5), (20_484, 7), (20_484, 1), (20_485, 9)]
            .iter()
            .enumerate()
            .for_each(|(index, (day, tokens))| line(&index.to_string(), *day, *tokens, &mut bytes));
        let mut log = LogSum::default();
        log.add(&String::from_utf8(bytes).unwrap());
        assert_eq!((log.requests(), log.unreadable), (4, 0));
        let amount = |tokens| Amount { tokens, money: tokens * 2 };
        let january =
            Totals { day: Day::new(20_484), in_day: amount(8), month: Day::new(20_484).month(), in_month: amount(13) };
        assert_eq!(reconcile(&log, |_| january), []);
        let team = AccountId::new(AccountKind::Team, "t");
        let wrong = Totals { in_day: amount(9), ..january };
        let found = reconcile(&log, |id| if id == team { wrong } else { january });
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind, found[0].logged), (AccountKind::Team, january));
    }

    #[test]
    fn a_request_with_two_lines_and_unreadable_lines_are_found() {
        let mut bytes = Vec::new();
        (0..2).for_each(|_| line("same", 1, 1, &mut bytes));
        let mut log = LogSum::default();
        log.add(&format!("{}nonsense\n{{}}\n", String::from_utf8(bytes).unwrap()));
        assert_eq!(log.duplicates().collect::<Vec<_>>(), ["same"]);
        assert_eq!(log.unreadable, 2);
    }
}
