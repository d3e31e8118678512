//! How a result is printed in a table. A cell never holds an extrapolated or a remembered value.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One cell of the knee table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// A measured rate and its unit: `400k req/s`.
    Number {
        /// Rate per second.
        value: f64,
        /// `req/s`, `TPS`.
        unit: String,
    },
    /// The lowest rate tried was not clean: `below 400k`.
    Below(f64),
    /// No overload up to the ceiling.
    NotReached,
    /// The host has no such budget.
    NotRun,
    /// Too few samples: `n/a (n = 412)`.
    NotAvailable {
        /// Samples there were.
        n: u64,
    },
    /// Why there is no figure: `invalid: generator-lag`.
    Invalid(String),
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { value, unit } => write!(f, "{} {unit}", short(*value)),
            Self::Below(rate) => write!(f, "below {}", short(*rate)),
            Self::NotReached => f.write_str("not reached"),
            Self::NotRun => f.write_str("not run"),
            Self::NotAvailable { n } => write!(f, "n/a (n = {n})"),
            Self::Invalid(reason) => write!(f, "invalid: {reason}"),
        }
    }
}

/// A rate as the tables write it: `850`, `3.3k`, `120.2k`, `400k`, `1.25M`.
#[must_use]
pub fn short(rate: f64) -> String {
    // The bound below a thousand is the rate that rounds up to it, so that nothing prints as `1000`.
    if rate < 9.995 {
        format!("{rate:.2}")
    } else if rate < 99.95 {
        format!("{rate:.1}")
    } else if rate < 999.5 {
        format!("{rate:.0}")
    } else if rate < 99_950.0 {
        format!("{:.1}k", rate / 1e3)
    } else if rate < 999_950.0 {
        let text = format!("{:.1}", rate / 1e3);
        format!("{}k", text.strip_suffix(".0").unwrap_or(&text))
    } else {
        format!("{:.2}M", rate / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_like_those_of_the_public_table() {
        let shown = [3_300.0, 17_400.0, 67_200.0, 120_200.0, 400_000.0, 2_000.0, 27_600.0].map(short);
        assert_eq!(shown, ["3.3k", "17.4k", "67.2k", "120.2k", "400k", "2.0k", "27.6k"]);
        let edges = [0.5, 42.0, 850.0, 999.6, 99_960.0, 1_250_000.0].map(short);
        assert_eq!(edges, ["0.50", "42.0", "850", "1.0k", "100k", "1.25M"]);
    }

    #[test]
    fn every_form_of_the_grammar() {
        let number = Cell::Number { value: 400_000.0, unit: "req/s".into() };
        let cells = [
            (number, "400k req/s"),
            (Cell::Below(400_000.0), "below 400k"),
            (Cell::NotReached, "not reached"),
            (Cell::NotRun, "not run"),
            (Cell::NotAvailable { n: 412 }, "n/a (n = 412)"),
            (Cell::Invalid("generator-lag".into()), "invalid: generator-lag"),
        ];
        for (cell, text) in cells {
            assert_eq!(cell.to_string(), text);
        }
    }
}
