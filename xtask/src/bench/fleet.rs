//! All arms of a comparison, started once and kept: during the runs only the load moves.

use anyhow::Result;

use super::options::Options;
use super::peers::backend::Backend;
use super::peers::origin::Origin;
use super::peers::weir::{Program, arm_settings};
use super::peers::{Arm, floor, name, peer};
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
    pub(crate) fn start(options: &Options, place: &Place, backend: &Backend, weir: Option<&Program>) -> Result<Self> {
        let origin = &backend.servers[0];
        let mut fleet = Self { arms: Vec::new(), missing: Vec::new(), broken: Vec::new() };
        for arm in options.arms.iter().copied() {
            weir_parties::interrupt::check()?;
            let started = match (arm, weir) {
                (name::ENVOY, _) => peer::start(place, (arm, "envoy"), backend, options.envoy.as_deref()),
                (name::TWEMPROXY, _) => peer::start(place, (arm, "twemproxy"), backend, None),
                (name::HAPROXY, _) => peer::start(place, (arm, "haproxy"), backend, None),
                (name::FLOOR, _) => floor::start(place, origin.port),
                (name::DIRECT, _) => Ok(direct(origin)),
                (_, Some(weir)) => start_weir(arm, place, backend, weir),
                (_, None) => continue,
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

fn start_weir(arm: &'static str, place: &Place, backend: &Backend, weir: &Program) -> Result<Arm> {
    if arm != name::WEIR && !weir.is_configurable() {
        anyhow::bail!("the command given by --weir-command reads no configuration");
    }
    weir.arm(place, arm, &arm_settings(place, arm, backend)?)
}

fn direct(origin: &Origin) -> Arm {
    Arm { name: name::DIRECT, goal: origin.goal(), process: None, version: "no gateway".into(), config: None }
}
