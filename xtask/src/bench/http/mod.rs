//! `bench http`: gateways in front of one HTTP/1.1 origin, connections kept on both sides. `--front` says what clients speak.

mod closed;
pub(crate) mod front;
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
use super::peers::weir::Program;
use super::peers::{Arm, Goal, floor, name, peer};
use super::place::Place;
use super::target::Comparison;
use crate::setup;
use crate::workspace::Workspace;
use front::Front;
use origin::{HttpOrigin, OriginKind, program};
use row::HttpRow;

/// Of a run that only shows that an arm works, or warms it up: the shortest that wrk knows.
const SHORTEST: u64 = 1;

/// Runs the comparison.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let (options, front, origin) = Options::of_http(words)?;
    contest::run(&options, |workspace, place| {
        Http::start(workspace, place, (front, origin), options.weir_command.as_deref())
    })
}

/// The origin.
pub(crate) struct Http {
    origin: HttpOrigin,
    front: Front,
    /// The program that has the lab's load.
    lab: String,
    /// The envoy of `setup`, if it is there.
    envoy: Option<PathBuf>,
}

impl Http {
    /// Starts the origin.
    pub(crate) fn start(
        workspace: &Workspace,
        place: &Place,
        (front, kind): (Front, OriginKind),
        weir_command: Option<&str>,
    ) -> Result<Self> {
        let is_small = !matches!(front, Front::Http2 | Front::WebSocket) || kind == OriginKind::Lab;
        ensure!(is_small, "HTTP/2 and WebSocket need the lab's origin, whose answers the lab checks");
        find_program("wrk").context("no wrk on the PATH (Debian: apt install wrk); it makes the load")?;
        let envoy = setup::environment(workspace).join("bin/envoy");
        let origin = HttpOrigin::start(workspace, place, kind, weir_command)?;
        let lab = program(workspace, weir_command)?;
        Ok(Self { origin, front, lab, envoy: Some(envoy).filter(|envoy| envoy.is_file()) })
    }
}

impl Http {
    /// Whoever has signed the gateways' certificates, if clients speak TLS.
    fn authority(&self, place: &Place) -> Result<Option<PathBuf>> {
        Ok(match self.front {
            Front::Tls => Some(place.certificate()?.0),
            _ => None,
        })
    }
}

impl Contest for Http {
    type Row = HttpRow;
    /// Seconds.
    type Length = u64;
    /// Requests.
    type Counters = u64;

    const TEXTS: Texts = Texts {
        title: "HTTP: gateways side by side",
        command: "cargo xtask bench http",
        server: "origin",
        load: "closed loop: wrk, and for HTTP/2 and WebSocket `weir lab load`, sends the next request after the reply, so\n  \
               latencies hide stalls of the client. Runs are seconds, not requests; what is under way at the end is not counted",
    };
    const COMPARISONS: &'static [Comparison<HttpRow>] = &[
        Comparison { ours: name::WEIR, theirs: name::NGINX, at_most: |row| row.targets()[0] },
        Comparison { ours: name::WEIR, theirs: name::HAPROXY, at_most: |row| row.targets()[1] },
        Comparison { ours: name::WEIR, theirs: name::ENVOY, at_most: |row| row.targets()[2] },
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
        match (arm, weir) {
            (name::NGINX | name::HAPROXY | name::ENVOY, _) => {
                let program = options.envoy.as_deref().or_else(|| {
                    let installed = self.envoy.as_deref();
                    installed.filter(|_| find_program("envoy").is_none())
                });
                let (known, text) = self.front.peer(arm, place)?;
                let mut arm = peer::start(place, arm, (known, &text), port, program.filter(|_| arm == name::ENVOY))?;
                arm.goal.tls_ca = self.authority(place)?;
                Ok(arm)
            }
            (name::FLOOR, _) => floor::start(place, port, floor::Way::Pairs),
            (name::DIRECT, _) => Ok(Arm::direct(self.origin.goal())),
            (_, Some(weir)) => {
                let mut settings = self.front.settings(port, place)?;
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
        match self.front {
            Front::Plain | Front::Routes | Front::Tls => wrk::run(row, goal, length, place),
            Front::Http2 | Front::WebSocket => closed::run(&self.lab, row, goal, length, place),
        }
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
        let generator = match self.front {
            Front::Plain | Front::Routes | Front::Tls => version_line("wrk", &["-v"]),
            Front::Http2 | Front::WebSocket => "`weir lab load`, which checks every answer".to_owned(),
        };
        vec![("load generator", generator), ("origin", self.origin.version.clone())]
    }
}
