//! All arms of a comparison, started once and kept: during the runs only the load moves.

use anyhow::{Result, anyhow};

use super::contest::Contest;
use super::options::Options;
use super::peers::weir::Program;
use super::peers::{Arm, name};
use super::place::Place;

/// An arm that could not be had.
pub(crate) struct Missing {
    /// Its name.
    pub(crate) name: &'static str,
    /// Why, and how to get it.
    pub(crate) reason: String,
}

/// What runs and what does not.
pub(crate) struct Fleet {
    /// In the order of a block.
    pub(crate) arms: Vec<Arm>,
    /// Not compared.
    pub(crate) missing: Vec<Missing>,
    /// Arms of the gateway under test that did not start: an error of the run, unlike a peer that is not installed.
    pub(crate) broken: Vec<String>,
}

impl Fleet {
    /// Starts every arm that was asked for.
    pub(crate) fn start<C: Contest>(
        options: &Options<C::Row>,
        place: &Place,
        contest: &C,
        weir: Option<&Program>,
    ) -> Result<Self> {
        let mut fleet = Self { arms: Vec::new(), missing: Vec::new(), broken: Vec::new() };
        for arm in options.arms.iter().copied() {
            weir_parties::interrupt::check()?;
            let is_other_weir = is_weir(arm) && arm != name::WEIR;
            let started = match weir.filter(|weir| is_other_weir && !weir.is_configurable()) {
                Some(_) => Err(anyhow!("the command given by --weir-command reads no configuration")),
                None => contest.start(arm, place, weir, options),
            };
            match started {
                Ok(started) => fleet.arms.push(started),
                Err(error) => {
                    // An interrupt is not a missing peer.
                    weir_parties::interrupt::check()?;
                    let reason = format!("{error:#}");
                    eprintln!("bench: {arm} does not run: {reason}");
                    if is_weir(arm) && weir.is_some_and(|weir| arm == name::WEIR || weir.is_configurable()) {
                        fleet.broken.push(format!("{arm}: {reason}"));
                    }
                    fleet.missing.push(Missing { name: arm, reason });
                }
            }
        }
        Ok(fleet)
    }
}

/// Whether an arm is a form of the gateway under test.
pub(crate) fn is_weir(arm: &str) -> bool {
    arm.starts_with(name::WEIR)
}
