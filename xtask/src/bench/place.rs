//! Where a run takes place: a folder that goes away with it, free ports, and who gets which CPU.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use tempfile::TempDir;

use weir_parties::exists;
use weir_parties::place::allowed_cpus;

/// A folder for configurations and logs, and the CPUs of each party.
pub(crate) struct Place {
    folder: TempDir,
    /// The gateway's own CPU.
    pub(crate) gateway_cpu: String,
    /// The real server's CPU.
    pub(crate) origin_cpu: String,
    /// The load generator's CPU; the server's too on a machine with two.
    pub(crate) load_cpu: String,
}

impl Place {
    /// Makes the folder and divides the CPUs that this process may use.
    pub(crate) fn new() -> Result<Self> {
        if !exists("taskset") {
            bail!("`taskset` is not on the PATH (Debian: package util-linux); without it no CPU can be assigned");
        }
        let cpus = allowed_cpus()?;
        let at = |wanted: usize| cpus[wanted.min(cpus.len() - 1)].to_string();
        let folder = tempfile::Builder::new().prefix("weir-bench-").tempdir()?;
        Ok(Self { folder, gateway_cpu: at(0), origin_cpu: at(1), load_cpu: at(2) })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// One sentence on who runs where.
    pub(crate) fn layout(&self) -> String {
        let shared = if self.origin_cpu == self.load_cpu { ", which share it" } else { "" };
        let crowded =
            if self.gateway_cpu == self.origin_cpu { " (one CPU for everything: read nothing into it)" } else { "" };
        format!(
            "gateway on CPU {}, server on CPU {}, load generator on CPU {}{shared}{crowded}",
            self.gateway_cpu, self.origin_cpu, self.load_cpu
        )
    }

    /// Moves this process to the load generator's CPU, away from the gateway's.
    pub(crate) fn step_aside(&self) -> Result<()> {
        let me = std::process::id().to_string();
        let status = Command::new("taskset").args(["-a", "-cp", &self.load_cpu, &me]).stdout(Stdio::null()).status()?;
        if !status.success() {
            bail!("taskset cannot move this process to CPU {}", self.load_cpu);
        }
        Ok(())
    }
}
