//! How much CPU a gateway gets: whole CPUs of its own, or a share of one.

use std::fmt;
use std::str::FromStr;

use weir_parties::cgroup::{PERIOD, SHARE_MIN};

/// CPUs of a gateway.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// Whole ones, one worker each.
    Cpus(u32),
    /// A share of one, 0.1 to below 1, kept by a quota: latency then has steps of a period's length.
    Share(f64),
}

impl Budget {
    /// CPUs that it needs for itself.
    #[must_use]
    pub fn cpus(self) -> u32 {
        match self {
            Self::Cpus(count) => count,
            Self::Share(_) => 1,
        }
    }

    /// As results count it.
    #[must_use]
    pub fn vcpu(self) -> f64 {
        match self {
            Self::Cpus(count) => count.into(),
            Self::Share(share) => share,
        }
    }

    /// Share of one CPU; `None`: whole CPUs.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        match self {
            Self::Cpus(_) => None,
            Self::Share(share) => Some(share),
        }
    }

    /// How it is kept: `cpuset` or `quota`.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Cpus(_) => "cpuset",
            Self::Share(_) => "quota",
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus(count) => count.fmt(f),
            Self::Share(share) => share.fmt(f),
        }
    }
}

/// The text is no budget; the display text says what is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetError;

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = PERIOD.as_millis();
        write!(f, "a budget is a whole number of CPUs, or {SHARE_MIN} to 1 as a share of one in periods of {period} ms")
    }
}

impl std::error::Error for BudgetError {}

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, BudgetError> {
        if let Ok(count) = text.parse::<u32>() {
            return if (1..=1024).contains(&count) { Ok(Self::Cpus(count)) } else { Err(BudgetError) };
        }
        match text.parse::<f64>() {
            Ok(share) if (SHARE_MIN..1.0).contains(&share) => Ok(Self::Share(share)),
            _ => Err(BudgetError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_whole_or_a_share_and_nothing_between() {
        assert_eq!("2".parse(), Ok(Budget::Cpus(2)));
        assert_eq!("0.25".parse(), Ok(Budget::Share(0.25)));
        for text in ["0", "1.5", "0.05", "-1", "2000", "NaN", "x"] {
            assert_eq!(text.parse::<Budget>(), Err(BudgetError), "{text}");
        }
        assert_eq!(
            (Budget::Share(0.5).cpus(), Budget::Share(0.5).vcpu(), Budget::Share(0.5).kind()),
            (1, 0.5, "quota")
        );
    }
}
