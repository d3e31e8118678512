//! `bench http`: gateways in front of one HTTP/1.1 origin, connections kept on both sides.

pub(crate) mod origin;
pub(crate) mod row;
mod wrk;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use weir_parties::peer::{find_program, version_line};

use super::contest::{self, Contest, Texts};
use super::measure::Outcome;
use super::options::Options;
use super::peers::weir::{Program, Protocol, Settings};
use super::peers::{Arm, Goal, floor, name, peer};
use super::place::Place;
use super::target::Comparison;
use crate::setup;
use crate::workspace::Workspace;
use origin::{HttpOrigin, OriginKind};
use row::HttpRow;

/// Of a run that only shows that an arm works, or warms it up: the shortest that wrk knows.
const SHORTEST: u64 = 1;

/// Runs the comparison.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let (options, origin) = Options::of_http(words)?;
    contest::run(&options, |workspace, place| Http::start(workspace, place, origin, options.weir_command.as_deref()))
}

/// The origin.
pub(crate) struct Http {
    origin: HttpOrigin,
    /// The envoy of `setup`, if it is there.
    envoy: Option<PathBuf>,
}

impl Http {
    /// Starts the origin.
    pub(crate) fn start(
        workspace: &Workspace,
        place: &Place,
        kind: OriginKind,
        weir_command: Option<&str>,
    ) -> Result<Self> {
        find_program("wrk").context("no wrk on the PATH (Debian: apt install wrk); it makes the load")?;
        let envoy = setup::environment(workspace).join("bin/envoy");
        let origin = HttpOrigin::start(workspace, place, kind, weir_command)?;
        Ok(Self { origin, envoy: Some(envoy).filter(|envoy| envoy.is_file()) })
    }
}

impl Contest for Http {
    type Row = HttpRow;
    /// Seconds.
    type Length = u64;
    /// Requests.
    type Counters = u64;

    const TEXTS: Texts = Texts {
        title: "HTTP/1.1: gateways side by side",
        command: "cargo xtask bench http",
        server: "origin",
        load: "closed loop: wrk sends the next request of a connection after the reply, so latencies hide stalls of the\n  \
               client. Runs are seconds, not requests; what is under way at the end is not counted",
    };
    const COMPARISONS: &'static [Comparison<HttpRow>] = &[
        Comparison { ours: name::WEIR, theirs: name::NGINX, at_most: |row| row.is_small().then_some(0.80) },
        Comparison { ours: name::WEIR, theirs: name::HAPROXY, at_most: |row| row.is_small().then_some(0.72) },
        Comparison { ours: name::WEIR, theirs: name::ENVOY, at_most: |row| row.is_small().then_some(0.25) },
        Comparison { ours: name::WEIR, theirs: name::FLOOR, at_most: |_| None },
        Comparison { ours: name::WEIR, theirs: name::WEIR_TELEMETRY_OFF, at_most: |_| Some(1.15) },
    ];

    fn start(
        &self,
        arm: &'static str,
        place: &Place,
        weir: Option<&Program>,
        options: &Options<HttpRow>,
    ) -> Result<Arm> {
        let port = self.origin.port;
        let known = |known: &str, program| peer::start(place, arm, (known, &peer::built_in(known)?), port, program);
        match (arm, weir) {
            (name::NGINX, _) => known("nginx", None),
            (name::HAPROXY, _) => known("haproxy-http", None),
            (name::ENVOY, _) => {
                let program = options.envoy.as_deref().or_else(|| {
                    let installed = self.envoy.as_deref();
                    installed.filter(|_| find_program("envoy").is_none())
                });
                known("envoy-http", program)
            }
            (name::FLOOR, _) => floor::start(place, port, floor::Way::Pairs),
            (name::DIRECT, _) => Ok(Arm::direct(self.origin.goal())),
            (_, Some(weir)) => {
                let mut settings = Settings { protocol: Protocol::Http, ..Settings::new(port)? };
                settings.vary(place, arm)?;
                weir.arm(place, arm, &settings)
            }
            (_, None) => bail!("no such arm"),
        }
    }

    fn servers(&self) -> Vec<u32> {
        self.origin.processes()
    }

    fn first_length(&self, _row: &HttpRow) -> u64 {
        SHORTEST
    }

    fn length(&self, _row: &HttpRow, _rate: f64, aimed: Duration) -> u64 {
        aimed.as_secs_f64().ceil() as u64
    }

    fn warm_up_length(&self, _row: &HttpRow, _measured: u64) -> u64 {
        SHORTEST
    }

    fn told(&self, length: u64) -> String {
        format!("{length} s")
    }

    fn load(&self, place: &Place, row: &HttpRow, goal: &Goal, length: u64) -> Result<Outcome> {
        wrk::run(row, goal, length, place)
    }

    fn count(&mut self) -> Result<u64> {
        self.origin.requests()
    }

    fn prove(&self, before: &u64, after: &u64, outcome: &Outcome) -> Result<()> {
        let answered = after - before;
        ensure!(
            answered >= outcome.completed,
            "the origin answered {answered} requests, and wrk counted {} replies",
            outcome.completed
        );
        Ok(())
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        // It has no way to ask only for its version: the line stands before how it is used.
        vec![("load generator", version_line("wrk", &["-v"])), ("origin", self.origin.version.clone())]
    }
}
