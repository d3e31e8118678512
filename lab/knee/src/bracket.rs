//! Where the knee lies if it could not be verified: the trials of a search that ended without one still bound it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cell::short;
use crate::command::Rate;
use crate::judge::Verdict;
use crate::knee::Knee;

/// Trials at one rate that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Offered load, requests per second.
    pub rate: f64,
    /// Valid trials.
    pub trials: u32,
    /// Clean trials among them.
    pub clean: u32,
}

/// The measured rates around a knee that was not verified. Do not size from it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bracket {
    /// The highest rate up to which every trial that counts was clean.
    pub clean: Option<Tried>,
    /// The lowest rate from which on none was.
    pub not_clean: Option<Tried>,
}

impl Knee {
    /// The bracket of a search without a verified knee; `None` if there is a knee, or no trial counts.
    #[must_use]
    pub fn bracket(&self) -> Option<Bracket> {
        if self.capacity().is_some() {
            return None;
        }
        let tried = self.tried();
        let clean = tried.iter().take_while(|one| one.clean == one.trials).last().copied();
        let not_clean = tried.iter().rev().take_while(|one| one.clean == 0).last().copied();
        (clean.is_some() || not_clean.is_some()).then_some(Bracket { clean, not_clean })
    }

    /// Rates of the trials that count, ascending.
    fn tried(&self) -> Vec<Tried> {
        // Rates are positive, so their bits have their order.
        let mut by_rate: BTreeMap<u64, Tried> = BTreeMap::new();
        for seen in &self.seen {
            let Rate::Offered(rate) = seen.run.rate else { continue };
            let is_clean = match seen.verdict {
                Verdict::Clean => 1,
                Verdict::NotClean(_) => 0,
                Verdict::Invalid(_) | Verdict::Unsteady => continue,
            };
            let tried = by_rate.entry(rate.to_bits()).or_insert(Tried { rate, ..Tried::default() });
            tried.trials += 1;
            tried.clean += is_clean;
        }
        by_rate.into_values().collect()
    }
}

/// `clean up to 40k req/s (3 of 3 trials), not clean from 55k req/s (0 of 2 trials)`; or the half that is known.
impl fmt::Display for Bracket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = |words: &str, tried: &Tried| {
            format!("{words} {} req/s ({} of {} trials)", short(tried.rate), tried.clean, tried.trials)
        };
        let clean = self.clean.iter().map(|tried| half("clean up to", tried));
        let not_clean = self.not_clean.iter().map(|tried| half("not clean from", tried));
        f.write_str(&clean.chain(not_clean).collect::<Vec<_>>().join(", "))
    }
}
