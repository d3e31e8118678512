//! Gateway and server of one phase.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use super::options::Options;
use super::resident::Resident;
use crate::bench::peers::origin::Origin;
use crate::bench::peers::weir::{Program, Settings};
use crate::bench::place::Place;
use weir_parties::interrupt;
use weir_parties::process::Process;

/// How long descriptors may take to be closed after their connections.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// Looks at a resting gateway: together longer than the second between two health checks.
const REST_LOOKS: usize = 60;
const REST_PAUSE: Duration = Duration::from_millis(25);

/// A running gateway in front of a running server.
pub(crate) struct Stack<'a> {
    /// Files and CPUs.
    pub(crate) place: &'a Place,
    /// How a gateway is started.
    pub(crate) program: &'a Program,
    /// The server.
    pub(crate) origin: Origin,
    /// The gateway.
    pub(crate) gateway: Process,
    /// Its configuration.
    pub(crate) settings: Settings,
}

impl<'a> Stack<'a> {
    /// Starts both. The gateway has its default number of workers.
    pub(crate) fn start(place: &'a Place, program: &'a Program, options: &Options) -> Result<Self> {
        let origin = Origin::start(place)?;
        let mut settings = Settings::new(origin.port)?;
        settings.workers = None;
        settings.connections = Some(u32::try_from(options.idle_connections + options.clients + 100)?);
        let gateway = program.start("weir", &settings, None, place.path())?;
        Ok(Self { place, program, origin, gateway, settings })
    }

    /// Where the gateway's configuration is.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.place.path().join("weir.toml")
    }

    /// What the gateway holds now.
    pub(crate) fn resident(&self) -> Result<Resident> {
        Resident::of(self.gateway.id())
    }

    /// The most descriptors that the gateway has within a while without load: a health check may open one for a moment.
    pub(crate) fn descriptors_at_rest(&self) -> Result<usize> {
        let mut most = 0;
        for _ in 0..REST_LOOKS {
            most = most.max(self.resident()?.descriptors);
            interrupt::sleep(REST_PAUSE)?;
        }
        Ok(most)
    }

    /// Waits until the gateway has no more descriptors than before, and returns how many it has at the end.
    pub(crate) fn descriptors_after(&self, before: usize) -> Result<usize> {
        let mut now = 0;
        let waited = interrupt::wait_until("descriptors to be closed", CLOSE_LIMIT, || {
            now = self.resident()?.descriptors;
            Ok(now <= before)
        });
        interrupt::check()?;
        if waited.is_err() && now == 0 {
            bail!("the gateway is gone");
        }
        Ok(now)
    }
}
