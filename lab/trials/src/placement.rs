//! Assigns CPUs to parties. A budget that the host cannot give is not run, never guessed.

use std::fmt;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use weir_parties::place::allowed_cpus;
use weir_parties::{Group, interrupt};

use crate::budget::Budget;
use crate::knee::Failure;

/// CPUs of the parties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// One worker each.
    pub gateway: Vec<u32>,
    /// The servers behind the gateway.
    pub origin: Vec<u32>,
    /// The load generator.
    pub generator: Vec<u32>,
}

/// Why a budget cannot be measured here.
#[derive(Clone, Debug, PartialEq)]
pub enum NotRun {
    /// Too few CPUs.
    Cpus {
        /// CPUs requested for the gateway.
        budget: u32,
        /// CPUs that this process may use.
        available: usize,
    },
    /// No quota can be set.
    Quota {
        /// The requested share.
        share: f64,
        /// Reason given by the system.
        reason: String,
    },
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus { budget, available } => write!(
                f,
                "not run: a budget of {budget} CPUs needs at least {} (one for origin and generator), and this process \
                 may use {available}",
                u64::from(*budget) + 1
            ),
            Self::Quota { share, reason } => write!(
                f,
                "not run: a budget of {share} CPUs needs a control group with a quota, and this user cannot make one \
                 ({reason}); run as root"
            ),
        }
    }
}

impl std::error::Error for NotRun {}

impl Placement {
    /// Gives the gateway as many of `cpus` as its budget needs; origin and generator halve the rest, or share it if it is
    /// one.
    ///
    /// # Errors
    /// Nothing would be left for the others.
    pub fn divide(cpus: &[u32], budget: Budget) -> std::result::Result<Self, NotRun> {
        let count = budget.cpus() as usize;
        if count == 0 || cpus.len() <= count {
            return Err(NotRun::Cpus { budget: budget.cpus(), available: cpus.len() });
        }
        let (gateway, rest) = cpus.split_at(count);
        let (origin, generator) = if rest.len() == 1 { (rest, rest) } else { rest.split_at(rest.len() / 2) };
        Ok(Self { gateway: gateway.to_vec(), origin: origin.to_vec(), generator: generator.to_vec() })
    }

    /// As [`Placement::on`], of the CPUs that this process may use.
    pub(crate) fn of(budget: Budget) -> std::result::Result<Self, Failure> {
        Self::on(&allowed_cpus()?, budget)
    }

    /// As [`Placement::divide`], once it is known that a share can be kept.
    pub(crate) fn on(cpus: &[u32], budget: Budget) -> std::result::Result<Self, Failure> {
        if let Some(share) = budget.share() {
            let tried = Group::create("quota", Some(share));
            tried.map_err(|error| NotRun::Quota { share, reason: format!("{error:#}") }).map_err(Failure::NotRun)?;
        }
        Self::divide(cpus, budget).map_err(Failure::NotRun)
    }

    /// Makes this process the generator: on its CPUs, with as many descriptors as it may have, and with Ctrl-C as an error
    /// that ends its children in order.
    pub(crate) fn enter_generator(&self) -> Result<()> {
        interrupt::watch()?;
        weir_engine::net::raise_descriptor_limit().context("the limit of open files")?;
        let mut set = CpuSet::new();
        self.generator.iter().for_each(|cpu| set.set(*cpu as usize));
        // Threads that are started later inherit it.
        sched_setaffinity(None, &set).context("the generator's CPUs")
    }

    /// Origin and generator have the same CPU.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.origin == self.generator
    }
}

/// `gateway on CPU 0, origin on CPU 1, generator on CPU 1 (shared)`.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = if self.is_shared() { " (shared)" } else { "" };
        let Self { gateway, origin, generator } = self;
        write!(
            f,
            "gateway on CPU {}, origin on CPU {}, generator on CPU {}{shared}",
            list_of(gateway),
            list_of(origin),
            list_of(generator)
        )
    }
}

impl Placement {
    /// As shown before the origin is known, or when it is not the lab's.
    #[must_use]
    pub fn without_origin(&self) -> String {
        format!("gateway on CPU {}, generator on CPU {}", list_of(&self.gateway), list_of(&self.generator))
    }
}

/// As `taskset -c` reads them.
#[must_use]
pub fn list_of(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_divided_and_never_invented() {
        let two = Placement::divide(&[0, 1], Budget::Cpus(1)).expect("one each");
        assert!(two.is_shared());
        assert_eq!(two.without_origin(), "gateway on CPU 0, generator on CPU 1");
        assert_eq!(two.to_string(), "gateway on CPU 0, origin on CPU 1, generator on CPU 1 (shared)");
        let eight = Placement::divide(&[0, 1, 2, 3, 4, 5, 6, 7], Budget::Cpus(4)).expect("enough");
        assert_eq!((eight.gateway, eight.origin, eight.generator), (vec![0, 1, 2, 3], vec![4, 5], vec![6, 7]));
        let refusal = Placement::divide(&[0, 1], Budget::Cpus(2)).expect_err("nothing left");
        assert!(refusal.to_string().starts_with("not run: a budget of 2 CPUs needs at least 3"), "{refusal}");
        assert!(
            Placement::divide(&[0, 1], Budget::Cpus(0)).is_err() && Placement::divide(&[], Budget::Cpus(1)).is_err()
        );
        let share = Placement::divide(&[0, 1], Budget::Share(0.5)).expect("a CPU of its own");
        assert_eq!(share, two);
    }
}
